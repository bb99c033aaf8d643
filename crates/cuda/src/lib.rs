#![doc = include_str!("../README.md")]

mod device;
#[allow(unsafe_code, reason = "calls the functions of the driver")]
mod driver;
mod error;
mod in_flight;
mod memory;

pub use device::CudaDevice;
pub use error::CudaError;
pub use in_flight::InFlight;
pub use memory::PinnedMemory;
