//! Tests of programs, transfers and mapped memory on one GPU. The environment variable
//! `SHARDSTREAM_TEST_CUDA` is the path of the plugin, `xla_cuda_plugin.so`.

use bytes::Bytes;
use shardstream_pjrt::{
    Buffer, Client, CompileOptions, DmaMapping, Executable, PjrtError, Plugin, Signature, Span, Spec,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A program that adds an input to the state. The result reuses the memory of the state.
const ADD: &str = "func.func @main(%state: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<f32>)
                       -> tensor<1024xf32> {
    %all = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %sum = stablehlo.add %state, %all : tensor<1024xf32>
    return %sum : tensor<1024xf32>
}";

fn plugin() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let path =
            std::env::var_os("SHARDSTREAM_TEST_CUDA").expect("SHARDSTREAM_TEST_CUDA is the plugin's path");
        Plugin::load(path).expect("the plugin loads")
    })
}

/// Opens the first GPU for one test. Memory is allocated as needed, since tests run at the same time.
fn another_client() -> Client {
    let options = ["visible_devices=[0]", "preallocate=false"].map(|option| option.parse().unwrap());
    plugin().client(&options).expect("there is a GPU")
}

/// The client of the first GPU. The tests share this client.
fn client() -> Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(another_client).clone()
}

fn signature() -> Signature {
    Signature { state: vec![Spec::of::<f32>(&[1024])], inputs: vec![Spec::of::<f32>(&[])] }
}

fn add(client: &Client) -> Executable {
    client.compile(ADD.as_bytes(), signature(), &CompileOptions::default()).unwrap()
}

/// Pages of memory, which may be mapped for the GPU. The slab sends a message when it is released.
struct Slab {
    /// The mapping of the memory, dropped before the memory is freed.
    mapping: Option<DmaMapping>,
    start: NonNull<u8>,
    size: usize,
    freed: Option<Sender<()>>,
}

// SAFETY: a slab owns its memory, and changes it only in `filled` and `drop`.
unsafe impl Send for Slab {}

const PAGE: usize = 64 << 10;

impl Slab {
    fn new(size: usize) -> Self {
        let layout = Layout::from_size_align(size, PAGE).unwrap();
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Slab { mapping: None, start, size, freed: None }
    }

    fn filled(size: usize, number: usize) -> Self {
        let slab = Slab::new(size);
        // SAFETY: the slab owns the memory, and nobody else has the slab yet.
        unsafe { slab.memory().as_mut() }.copy_from_slice(&contents(size, number));
        slab
    }

    fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.size)
    }

    fn mapped(mut self, client: &Client) -> Self {
        // SAFETY: `drop` unmaps the memory before it frees the memory. A transfer keeps the slab alive.
        self.mapping = Some(unsafe { client.dma_map(self.memory()) }.unwrap());
        self
    }

    /// The memory, and a receiver that gets a message when the memory is released.
    fn into_bytes(mut self) -> (Bytes, Receiver<()>) {
        let (freed, receiver) = channel();
        self.freed = Some(freed);
        (Bytes::from_owner(self), receiver)
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory is allocated and initialised until the slab is dropped.
        unsafe { self.memory().as_ref() }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        drop(self.mapping.take());
        // If a transfer were still reading the memory, it would copy these bytes. SAFETY: nobody else has the
        // memory.
        unsafe { self.memory().as_mut() }.fill(0xee);
        // SAFETY: the memory was allocated with this layout, and was not freed before.
        unsafe { dealloc(self.start.as_ptr(), Layout::from_size_align(self.size, PAGE).unwrap()) };
        if let Some(freed) = &self.freed {
            let _ = freed.send(());
        }
    }
}

fn contents(size: usize, number: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 31 + i / 251 + number * 7) as u8).collect()
}

#[track_caller]
fn is_freed(receiver: &Receiver<()>) {
    receiver.recv_timeout(Duration::from_secs(30)).expect("the memory is released");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, PjrtError>) {
    let error = result.unwrap_err();
    assert!(matches!(&error, PjrtError::Call { message, .. } if !message.is_empty()), "{error}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn the_plugin_reports_its_platform_and_devices() {
    let client = client();
    println!("plugin API {:?}, {}", plugin().version(), client.platform_version());
    println!("{:?}", client.device_identities().unwrap());
    assert!(client.platform().unwrap().to_lowercase().contains("cuda"));
    assert_eq!((client.devices(), client.local_devices(), client.processes()), (1, 1, 1));
    assert!(!client.device_identities().unwrap()[0].kind.is_empty());
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn a_program_reads_its_state_or_consumes_it() {
    let client = client();
    let program = add(&client);
    assert_eq!((program.outputs(), program.local_devices()), (1, 1));
    let state = vec![vec![client.upload(&[1f32; 1024], &[1024], 0).unwrap()]];
    let two = client.upload(&[2f32], &[], 0).unwrap();
    let result = program.read(&state, &[vec![&two]]).unwrap();
    assert_eq!(result[0][0].spec(), &Spec::of::<f32>(&[1024]));
    assert_eq!(result[0][0].to_host::<f32>().unwrap(), [3.0; 1024]);
    assert_eq!(state[0][0].to_host::<f32>().unwrap(), [1.0; 1024], "the state was only read");
    let result = program.run(state, &[vec![&two]]).unwrap();
    assert_eq!(result[0][0].to_host::<f32>().unwrap(), [3.0; 1024]);
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn a_loaded_program_reuses_the_memory_of_its_state() {
    let client = client();
    let compiled = add(&client);
    let serialized = compiled.serialize().unwrap();
    let loaded = client.load(&serialized, signature(), &CompileOptions::default(), Span::Job).unwrap();
    let one = client.upload(&[1f32], &[], 0).unwrap();
    for program in [&compiled, &loaded] {
        let given = client.upload(&[1f32; 1024], &[1024], 0).unwrap();
        let first = program.run(vec![vec![given]], &[vec![&one]]).unwrap();
        let address = first[0][0].address().unwrap();
        let second = program.run(first, &[vec![&one]]).unwrap();
        assert_eq!(second[0][0].to_host::<f32>().unwrap(), [3.0; 1024]);
        assert_eq!(second[0][0].address().unwrap(), address);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn arrays_are_read_as_they_were_uploaded() {
    let client = client();
    let values: Vec<i32> = (0..2 * 3 * 4 * 5).collect();
    let buffer = client.upload(&values, &[2, 3, 4, 5], 0).unwrap();
    assert_eq!(buffer.to_host::<i32>().unwrap(), values);
    let empty = client.upload::<f32>(&[], &[3, 0], 0).unwrap();
    assert!(empty.to_host::<f32>().unwrap().is_empty());
    assert_eq!(client.upload(&[-2.5f64], &[], 0).unwrap().scalar::<f64>().unwrap(), -2.5);
    assert_eq!(client.upload(&[u64::MAX], &[], 0).unwrap().scalar::<u64>().unwrap(), u64::MAX);
    assert_eq!(client.upload(&[-7i16], &[], 0).unwrap().scalar::<i16>().unwrap(), -7);
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn a_program_or_option_that_the_plugin_refuses_is_an_error() {
    let client = client();
    let options = CompileOptions::default();
    refused(client.compile(b"this is not a program", Signature::default(), &options));
    refused(client.compile(&ADD.as_bytes()[..ADD.len() / 2], signature(), &options));
    let unknown = plugin().client(&["no_such_option=1".parse().unwrap()]);
    assert!(matches!(unknown, Err(PjrtError::Call { .. })), "{unknown:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn uploads_in_flight_keep_their_contents() {
    const SIZE: usize = 4 << 20;
    let client = client();
    for mapped in [false, true] {
        let upload = |number| {
            let slab = Slab::filled(SIZE, number);
            let slab = if mapped { slab.mapped(&client) } else { slab };
            let (bytes, freed) = slab.into_bytes();
            (client.upload_bytes(bytes, &[SIZE as i64], 0).unwrap(), freed)
        };
        let arrays: Vec<(Buffer, _)> = (0..24).map(upload).collect();
        for (number, (array, freed)) in arrays.iter().enumerate() {
            assert!(array.to_host::<u8>().unwrap() == contents(SIZE, number), "{number}, mapped: {mapped}");
            is_freed(freed);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn mapped_memory_cannot_be_mapped_again_until_it_is_unmapped() {
    let client = client();
    let slab = Slab::filled(1 << 20, 1).mapped(&client);
    // SAFETY: this is the memory of the first mapping, and it outlives the second mapping too.
    let again = unsafe { client.dma_map(slab.memory()) };
    assert!(again.is_err(), "{again:?}");
    for number in 0..3 {
        let slab = Slab::filled(1 << 20, number).mapped(&client);
        let (bytes, freed) = slab.into_bytes();
        let parts: Vec<Bytes> = (0..4).map(|part| bytes.slice(part << 18..(part + 1) << 18)).collect();
        drop(bytes);
        // As in a trainer, several uploads read parts of one slab.
        let arrays: Vec<_> =
            parts.into_iter().map(|part| client.upload_bytes(part, &[1 << 18], 0).unwrap()).collect();
        let all: Vec<u8> = arrays.iter().flat_map(|array| array.to_host::<u8>().unwrap()).collect();
        assert!(all == contents(1 << 20, number));
        is_freed(&freed);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn transfers_complete_after_arrays_and_client_are_dropped() {
    for round in 0..6 {
        let mapped = round % 2 == 1;
        let client = another_client();
        let upload = |_| {
            let slab = Slab::new(64 << 20);
            let slab = if mapped { slab.mapped(&client) } else { slab };
            let (bytes, freed) = slab.into_bytes();
            drop(client.upload_bytes(bytes, &[64 << 20], 0).unwrap());
            freed
        };
        let all: Vec<_> = (0..4).map(upload).collect();
        // Now only the transfers have references to the client.
        drop(client);
        all.iter().for_each(is_freed);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: see CONTRIBUTING.md"]
fn rates_of_uploads_are_printed() {
    const SIZE: usize = 256 * 224 * 224 * 3;
    const ROUNDS: u32 = 20;
    let client = client();
    // The program's result is complete only after the transfer of its argument.
    let program = format!(
        "func.func @main(%x: tensor<{SIZE}xui8>) -> tensor<ui8> {{
            %last = stablehlo.slice %x [{}:{SIZE}] : (tensor<{SIZE}xui8>) -> tensor<1xui8>
            %scalar = stablehlo.reshape %last : (tensor<1xui8>) -> tensor<ui8>
            return %scalar : tensor<ui8>
        }}",
        SIZE - 1
    );
    let signature = Signature { state: vec![], inputs: vec![Spec::of::<u8>(&[SIZE as i64])] };
    let last = client.compile(program.as_bytes(), signature, &CompileOptions::default()).unwrap();
    for mapped in [false, true, false, true] {
        let start = Instant::now();
        let slab = Slab::filled(SIZE.next_multiple_of(PAGE), 0);
        let filled = start.elapsed();
        let slab = if mapped { slab.mapped(&client) } else { slab };
        let mapping = start.elapsed() - filled;
        let (bytes, freed) = slab.into_bytes();
        let mut calls = Duration::ZERO;
        let mut whole = Duration::ZERO;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let array = client.upload_bytes(bytes.slice(..SIZE), &[SIZE as i64], 0).unwrap();
            calls += start.elapsed();
            let result = last.run(vec![vec![]], &[vec![&array]]).unwrap();
            assert_eq!(result[0][0].scalar::<u8>().unwrap(), bytes[SIZE - 1]);
            whole += start.elapsed();
        }
        drop(bytes);
        is_freed(&freed);
        println!(
            "mapped {mapped}: {SIZE} bytes in {:.2} ms, {:.1} GB/s; the call {:.3} ms; mapping {:.1} ms",
            whole.as_secs_f64() * 1e3 / f64::from(ROUNDS),
            SIZE as f64 * f64::from(ROUNDS) / whole.as_secs_f64() / 1e9,
            calls.as_secs_f64() * 1e3 / f64::from(ROUNDS),
            mapping.as_secs_f64() * 1e3,
        );
    }
}
