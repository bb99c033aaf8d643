//! The functions of NVIDIA's driver, loaded at run time. No other module calls them. The types of this module
//! can be used from any thread.
//!
//! A call that needs a context pushes the device's primary context on the thread's stack of contexts, and
//! pops it afterwards. So the thread's current context, which may be another library's, does not change.

use crate::error::CudaError;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

/// The name by which the dynamic linker finds the driver's library.
const DRIVER: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// `CUresult`: 0, or an error.
type Status = c_int;

const SUCCESS: Status = 0;
const OUT_OF_MEMORY: Status = 2;
const NO_DEVICE: Status = 100;
const OPERATING_SYSTEM: Status = 304;
const NOT_READY: Status = 600;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pins memory for the contexts of all devices.
const REGISTER_PORTABLE: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a thread that waits for the event sleeps, and the
/// event records no time.
const EVENT_FLAGS: c_uint = 1 | 2;

/// Declares [`Functions`], the table of the driver's functions.
macro_rules! functions {
    ($($field:ident = $symbol:literal($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "system" fn($($argument),*) -> Status,)*
        }

        impl Functions {
            fn of(library: &Library, path: &Path) -> Result<Self, CudaError> {
                let missing = |function| CudaError::NotADriver { library: path.into(), function };
                $(
                    let name = concat!($symbol, "\0").as_bytes();
                    // SAFETY: the function of this name has this type in `cuda.h` since CUDA 11.
                    let $field = *unsafe { library.get(name) }.map_err(|_| missing($symbol))?;
                )*
                Ok(Functions { $($field),* })
            }
        }
    };
}

functions! {
    init = "cuInit"(c_uint);
    error_name = "cuGetErrorName"(Status, *mut *const c_char);
    error_text = "cuGetErrorString"(Status, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    context_push = "cuCtxPushCurrent_v2"(*mut c_void);
    context_pop = "cuCtxPopCurrent_v2"(*mut *mut c_void);
    host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister"(*mut c_void);
    stream_synchronize = "cuStreamSynchronize"(*mut c_void);
    event_create = "cuEventCreate"(*mut *mut c_void, c_uint);
    event_record = "cuEventRecord"(*mut c_void, *mut c_void);
    event_query = "cuEventQuery"(*mut c_void);
    event_synchronize = "cuEventSynchronize"(*mut c_void);
    event_destroy = "cuEventDestroy_v2"(*mut c_void);
}

impl Functions {
    fn check(&self, call: &'static str, status: Status) -> Result<(), CudaError> {
        if status == SUCCESS {
            return Ok(());
        }
        let message = self.text(self.error_text, status).unwrap_or_else(|| "the driver has no text".into());
        Err(CudaError::Call { call, name: self.name(status), message })
    }

    fn name(&self, status: Status) -> String {
        self.text(self.error_name, status).unwrap_or_else(|| format!("error {status}"))
    }

    fn text(
        &self,
        of: unsafe extern "system" fn(Status, *mut *const c_char) -> Status,
        status: Status,
    ) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: `of` is one of the two functions that return a text for a status.
        unsafe { of(status, &mut text) };
        if text.is_null() {
            return None; // the status is unknown to the driver
        }
        // SAFETY: the text is a constant of the driver that ends with a zero.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

/// The primary context of a device. All users of CUDA's runtime in a process share this context. The context
/// is retained until the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Context(Arc<Retained>);

struct Retained {
    functions: Functions,
    device: c_int,
    context: *mut c_void,
}

// SAFETY: the functions of the driver can be called from any thread, and a context can be current on several
// threads.
unsafe impl Send for Retained {}
// SAFETY: as above.
unsafe impl Sync for Retained {}

impl Context {
    /// Loads the driver and retains the primary context of a device.
    pub(crate) fn open(ordinal: usize) -> Result<Self, CudaError> {
        // SAFETY: by this name, the dynamic linker finds NVIDIA's driver.
        unsafe { Context::open_with(Path::new(DRIVER), ordinal) }
    }

    /// Does the same as [`open`](Context::open), with the driver's library at a path.
    ///
    /// The driver stays loaded until the process ends, because it starts threads that run its code.
    ///
    /// # Safety
    /// The library must be the driver, or a library whose functions do the same work as the driver's
    /// functions.
    pub(crate) unsafe fn open_with(library: &Path, ordinal: usize) -> Result<Self, CudaError> {
        // SAFETY: loading runs the library's initialisers; the caller names the driver.
        let loaded = unsafe { Library::new(library) }
            .map_err(|source| CudaError::NoDriver { library: library.into(), source })?;
        let functions = Functions::of(&loaded, library)?;
        std::mem::forget(loaded);
        let missing = |present| CudaError::NoDevice { ordinal, present };
        // SAFETY: `cuInit` takes only 0.
        let status = unsafe { (functions.init)(0) };
        if status == NO_DEVICE {
            return Err(missing(0));
        }
        functions.check("cuInit", status)?;
        let mut present = 0;
        // SAFETY: the driver is initialised, and writes a number.
        functions.check("cuDeviceGetCount", unsafe { (functions.device_count)(&mut present) })?;
        let number = match c_int::try_from(ordinal) {
            Ok(number) if number < present => number,
            _ => return Err(missing(present.try_into().unwrap_or(0))),
        };
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the driver is initialised, and `number` is the ordinal of a device.
        functions.check("cuDeviceGet", unsafe { (functions.device_get)(&mut device, number) })?;
        // SAFETY: `device` comes from the driver. `Retained` releases the context.
        let status = unsafe { (functions.context_retain)(&mut context, device) };
        functions.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(Context(Arc::new(Retained { functions, device, context })))
    }

    /// Calls the driver while the context is current on this thread.
    fn call(&self, call: &'static str, work: impl FnOnce(&Functions) -> Status) -> Result<(), CudaError> {
        let Retained { functions, context, .. } = &*self.0;
        // SAFETY: the context is retained.
        functions.check("cuCtxPushCurrent", unsafe { (functions.context_push)(*context) })?;
        let status = work(functions);
        // SAFETY: the context that was pushed above is current.
        let popped = unsafe { (functions.context_pop)(&mut null_mut()) };
        functions.check(call, status)?;
        functions.check("cuCtxPopCurrent", popped)
    }

    /// Pins memory for all devices. `pinned` is the number of bytes that are pinned already; an error reports
    /// this number.
    ///
    /// The caller must keep the memory allocated until the [`Registration`] is dropped. Otherwise the driver
    /// would copy from pages that the process has given back.
    pub(crate) fn register(&self, memory: &[u8], pinned: usize) -> Result<Registration, CudaError> {
        let begin = memory.as_ptr().cast_mut().cast::<c_void>();
        let mut status = SUCCESS;
        let registered = self.call("cuMemHostRegister", |functions| {
            // SAFETY: the range is allocated. The driver locks its pages and writes nothing.
            status = unsafe { (functions.host_register)(begin, memory.len(), REGISTER_PORTABLE) };
            status
        });
        match registered {
            Ok(()) => Ok(Registration { context: self.clone(), begin, bytes: memory.len() }),
            Err(_) if [OUT_OF_MEMORY, OPERATING_SYSTEM].contains(&status) => {
                let name = self.0.functions.name(status);
                Err(CudaError::LockedMemory { bytes: memory.len(), pinned, name })
            }
            Err(error) => Err(error),
        }
    }

    /// Records an event after all work that is in the stream now.
    ///
    /// If the event cannot be recorded, this function waits until the work has ended and returns an error.
    /// The error says whether that wait succeeded.
    ///
    /// # Safety
    /// `stream` must be null, for the default stream, or an existing stream of this context.
    pub(crate) unsafe fn record(&self, stream: *mut c_void) -> Result<Event, Unrecorded> {
        let create = || {
            let mut event = null_mut();
            self.call("cuEventCreate", |functions| {
                // SAFETY: a context is current. `Event` destroys the event.
                unsafe { (functions.event_create)(&mut event, EVENT_FLAGS) }
            })?;
            Ok(Event { context: self.clone(), event })
        };
        let recorded = create().and_then(|event| {
            // SAFETY: the event exists; the caller promises that the stream does.
            self.call("cuEventRecord", |functions| unsafe { (functions.event_record)(event.event, stream) })?;
            Ok(event)
        });
        recorded.map_err(|error| {
            // SAFETY: the caller promises that the stream exists.
            let waited = self
                .call("cuStreamSynchronize", |functions| unsafe { (functions.stream_synchronize)(stream) });
            Unrecorded { error, is_done: waited.is_ok() }
        })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        // An error is ignored: it means that the driver has shut down because the process ends.
        // SAFETY: `Context::open_with` retained the context, and only this `drop` releases it.
        unsafe { (self.functions.context_release)(self.device) };
    }
}

/// A range of pinned memory. Dropping this value unpins the memory.
pub(crate) struct Registration {
    context: Context,
    begin: *mut c_void,
    pub(crate) bytes: usize,
}

// SAFETY: the pointer is only handed to the driver, which can be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // An error is ignored: it means that the driver has shut down or that the context is lost, and then
        // nothing is pinned.
        let _ = self.context.call("cuMemHostUnregister", |functions| {
            // SAFETY: `Context::register` registered this address, and only this `drop` unregisters it.
            unsafe { (functions.host_unregister)(self.begin) }
        });
    }
}

/// Why no event was recorded.
pub(crate) struct Unrecorded {
    pub(crate) error: CudaError,
    /// Whether it is known that the stream's work has ended.
    pub(crate) is_done: bool,
}

/// A CUDA event, made by [`Context::record`]. It is done when all earlier work of the stream has ended.
pub(crate) struct Event {
    context: Context,
    event: *mut c_void,
}

// SAFETY: events can be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        let mut status = SUCCESS;
        let result = self.context.call("cuEventQuery", |functions| {
            // SAFETY: the event exists until it is dropped.
            status = unsafe { (functions.event_query)(self.event) };
            status
        });
        if status == NOT_READY { Ok(false) } else { result.map(|()| true) }
    }

    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the event exists until it is dropped.
        self.context
            .call("cuEventSynchronize", |functions| unsafe { (functions.event_synchronize)(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `Context::record` created the event, and only this `drop` destroys it.
        let _ =
            self.context.call("cuEventDestroy", |functions| unsafe { (functions.event_destroy)(self.event) });
    }
}
