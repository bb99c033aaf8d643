//! Tests of programs, which are written as StableHLO text.

use crate::common::{client, plugin};
use shardstream_pjrt::{Client, CompileOptions, Executable, PjrtError, Signature, Span, Spec};

/// A program that adds an input to the state. The result reuses the memory of the state.
const ADD: &str = "func.func @main(%state: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<f32>)
                       -> tensor<1024xf32> {
    %all = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %sum = stablehlo.add %state, %all : tensor<1024xf32>
    return %sum : tensor<1024xf32>
}";

fn signature() -> Signature {
    Signature { state: vec![Spec::of::<f32>(&[1024])], inputs: vec![Spec::of::<f32>(&[])] }
}

fn add(client: &Client) -> Executable {
    client.compile(ADD.as_bytes(), signature(), &CompileOptions::default()).unwrap()
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_program_reads_its_state_or_consumes_it() {
    let client = client(1);
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
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn each_replica_has_its_own_state() {
    let client = client(2);
    let options = CompileOptions { replicas: 2, partitions: 1 };
    let program = client.compile_local(ADD.as_bytes(), signature(), &options).unwrap();
    assert_eq!(program.local_devices(), 2);
    let upload = |device| client.upload(&[device as f32; 1024], &[1024], device).unwrap();
    let state = vec![vec![upload(0)], vec![upload(1)]];
    let inputs: Vec<_> = (0..2).map(|device| client.upload(&[10f32], &[], device).unwrap()).collect();
    let result = program.run(state, &[vec![&inputs[0]], vec![&inputs[1]]]).unwrap();
    assert_eq!(result[0][0].to_host::<f32>().unwrap(), [10.0; 1024]);
    assert_eq!(result[1][0].to_host::<f32>().unwrap(), [11.0; 1024]);
    assert_eq!(result[1][0].device(), 1);
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_loaded_program_reuses_the_memory_of_its_state() {
    let client = client(1);
    let compiled = add(&client);
    let serialized = compiled.serialize().unwrap();
    let loaded = client.load(&serialized, signature(), &CompileOptions::default(), Span::Job).unwrap();
    let one = client.upload(&[1f32], &[], 0).unwrap();
    let in_place = |program: &Executable| {
        let given = client.upload(&[1f32; 1024], &[1024], 0).unwrap();
        // The memory of a result belongs to the plugin, so the next run may reuse it.
        let first = program.run(vec![vec![given]], &[vec![&one]]).unwrap();
        let address = first[0][0].address().unwrap();
        let second = program.run(first, &[vec![&one]]).unwrap();
        assert_eq!(second[0][0].to_host::<f32>().unwrap(), [3.0; 1024]);
        second[0][0].address().unwrap() == address
    };
    assert!(in_place(&compiled));
    assert!(in_place(&loaded));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn arrays_are_read_as_they_were_uploaded() {
    let client = client(2);
    let values: Vec<i32> = (0..2 * 3 * 4 * 5).collect();
    let buffer = client.upload(&values, &[2, 3, 4, 5], 1).unwrap();
    assert_eq!(buffer.to_host::<i32>().unwrap(), values);
    assert_eq!(buffer.device(), 1);
    let empty = client.upload::<f32>(&[], &[3, 0], 0).unwrap();
    assert!(empty.to_host::<f32>().unwrap().is_empty());
    assert_eq!(client.upload(&[2.5f32], &[], 0).unwrap().scalar::<f32>().unwrap(), 2.5);
    assert_eq!(client.upload(&[-2.5f64], &[], 0).unwrap().scalar::<f64>().unwrap(), -2.5);
    assert_eq!(client.upload(&[u64::MAX], &[], 0).unwrap().scalar::<u64>().unwrap(), u64::MAX);
    assert_eq!(client.upload(&[-7i16], &[], 0).unwrap().scalar::<i16>().unwrap(), -7);
}

#[track_caller]
fn mismatch<T: std::fmt::Debug>(result: Result<T, PjrtError>) {
    let e = result.unwrap_err();
    assert!(matches!(e, PjrtError::Mismatch { .. }), "{e}");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, PjrtError>) {
    let e = result.unwrap_err();
    assert!(matches!(&e, PjrtError::Call { message, .. } if !message.is_empty()), "{e}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn arguments_of_the_wrong_shape_type_number_or_device_are_errors() {
    let (client, other) = (client(2), client(1));
    mismatch(client.upload(&[1u8, 2], &[3], 0));
    mismatch(client.upload(&[1u8, 2], &[-2], 0));
    mismatch(client.upload(&[1u8, 2], &[2], 2));
    let pair = client.upload(&[1u8, 2], &[2], 0).unwrap();
    mismatch(pair.to_host::<i32>());
    mismatch(pair.scalar::<u8>());

    for replicas in [0, 3] {
        let options = CompileOptions { replicas, partitions: 1 };
        mismatch(client.compile(ADD.as_bytes(), signature(), &options));
    }
    let program = add(&client);
    let state = || vec![vec![client.upload(&[1f32; 1024], &[1024], 0).unwrap()]];
    let x = client.upload(&[1f32], &[], 0).unwrap();
    let elsewhere = client.upload(&[1f32], &[], 1).unwrap();
    let foreign = other.upload(&[1f32], &[], 0).unwrap();
    mismatch(program.run(vec![], &[vec![&x]]));
    mismatch(program.run(vec![vec![]], &[vec![&x]]));
    mismatch(program.run(state(), &[]));
    mismatch(program.run(state(), &[vec![]]));
    mismatch(program.run(state(), &[vec![&x, &x]]));
    mismatch(program.run(state(), &[vec![&pair]]));
    mismatch(program.run(state(), &[vec![&elsewhere]]));
    mismatch(program.run(state(), &[vec![&foreign]]));
    // After all these errors, the program still runs with correct arguments, even twice.
    for _ in 0..2 {
        assert_eq!(program.run(state(), &[vec![&x]]).unwrap()[0].len(), 1);
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_program_that_the_plugin_refuses_is_an_error() {
    let client = client(1);
    let options = CompileOptions::default();
    refused(client.compile(b"this is not a program", Signature::default(), &options));
    refused(client.compile(&[], Signature::default(), &options));
    refused(client.compile(&ADD.as_bytes()[..ADD.len() / 2], signature(), &options));
    // With a wrong signature, the plugin refuses the arguments.
    let bytes = Signature { state: vec![], inputs: vec![Spec::of::<u8>(&[3]); 2] };
    let wrong = client.compile(ADD.as_bytes(), bytes, &options).unwrap();
    let given = client.upload(&[0u8; 3], &[3], 0).unwrap();
    refused(wrong.run(vec![vec![]], &[vec![&given, &given]]));
    let too_few = client.compile(ADD.as_bytes(), Signature::default(), &options).unwrap();
    refused(too_few.run(vec![vec![]], &[vec![]]));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_last_option_of_a_name_applies() {
    let plugin = plugin();
    let open =
        |options: &[&str]| plugin.client(&options.iter().map(|o| o.parse().unwrap()).collect::<Vec<_>>());
    let client = open(&["cpu_device_count=2", "cpu_device_count=3"]).unwrap();
    assert_eq!((client.devices(), client.local_devices(), client.processes()), (3, 3, 1));
    assert_eq!((client.process_index().unwrap(), client.platform().unwrap().as_str()), (0, "cpu"));
    assert_eq!(client.device_identities().unwrap().len(), 3);
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn an_unknown_topology_is_an_error() {
    let plugin = plugin();
    assert!(plugin.compile_for("v99:1x1", ADD.as_bytes(), &CompileOptions::default()).is_err());
    let (major, minor) = plugin.version();
    assert!(major == 0 && minor > 0);
}
