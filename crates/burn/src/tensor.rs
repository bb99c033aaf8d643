//! Converts shardstream tensors to burn's `TensorData`.

use burn::tensor::{AllocationProperty, BoolStore, Bytes, DType, TensorData};
use shardstream::codec::DType as TensorType;
use shardstream::tensor::Tensor;

/// The data of a tensor, with the same type and shape, without a copy.
///
/// The backends `flex` and `ndarray` compute on this memory itself; other backends copy it to their device.
/// The memory returns to the loader when the last tensor over it is dropped.
///
/// `Tensor::from_data(data, (device, DType::I32))` keeps the type of the data, here `i32`.
/// `Tensor::from_data(data, device)` converts to the device's default type for integers or floats.
///
/// # Panics
/// If the tensor has a type that this version of the crate does not know.
#[must_use]
pub fn tensor_data(tensor: Tensor) -> TensorData {
    let (dtype, shape) = (dtype(tensor.dtype()), tensor.shape().to_vec());
    let bytes = Bytes::from_shared(tensor.into_bytes(), AllocationProperty::Other);
    TensorData::from_bytes(bytes, shape, dtype)
}

fn dtype(dtype: TensorType) -> DType {
    match dtype {
        TensorType::Bool => DType::Bool(BoolStore::Native),
        TensorType::I8 => DType::I8,
        TensorType::I16 => DType::I16,
        TensorType::I32 => DType::I32,
        TensorType::I64 => DType::I64,
        TensorType::U8 => DType::U8,
        TensorType::U16 => DType::U16,
        TensorType::U32 => DType::U32,
        TensorType::U64 => DType::U64,
        TensorType::F16 => DType::F16,
        TensorType::BF16 => DType::BF16,
        TensorType::F32 => DType::F32,
        TensorType::F64 => DType::F64,
        other => panic!("burn has no type for {other}"),
    }
}
