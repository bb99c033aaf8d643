//! Tensors of shardstream as data of burn.

use burn::tensor::{AllocationProperty, BoolStore, Bytes, DType, TensorData};
use shardstream::codec::DType as Numbers;
use shardstream::tensor::Tensor;

/// The data of a tensor, without a copy: same type, same shape.
///
/// The backends `flex` and `ndarray` compute on this memory itself. It returns to the loader when the last
/// tensor over it is dropped. Other backends copy it to their device.
///
/// `Tensor::from_data(data, (device, DType::I32))` keeps the type, where `Tensor::from_data(data, device)`
/// converts to the device's default for integers or floats.
///
/// # Panics
/// If the tensor has a type that this version of the crate does not know.
#[must_use]
pub fn tensor_data(tensor: Tensor) -> TensorData {
    let (dtype, shape) = (dtype(tensor.dtype()), tensor.shape().to_vec());
    let bytes = Bytes::from_shared(tensor.into_bytes(), AllocationProperty::Other);
    TensorData::from_bytes(bytes, shape, dtype)
}

fn dtype(numbers: Numbers) -> DType {
    match numbers {
        Numbers::Bool => DType::Bool(BoolStore::Native),
        Numbers::I8 => DType::I8,
        Numbers::I16 => DType::I16,
        Numbers::I32 => DType::I32,
        Numbers::I64 => DType::I64,
        Numbers::U8 => DType::U8,
        Numbers::U16 => DType::U16,
        Numbers::U32 => DType::U32,
        Numbers::U64 => DType::U64,
        Numbers::F16 => DType::F16,
        Numbers::BF16 => DType::BF16,
        Numbers::F32 => DType::F32,
        Numbers::F64 => DType::F64,
        other => panic!("burn has no type for {other}"),
    }
}
