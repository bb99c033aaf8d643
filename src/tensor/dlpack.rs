//! Exports tensors to other frameworks in the same process, with DLPack.

use super::Tensor;
use crate::sample::{ArrayError, DType};
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Dynamic;
use dlpark::{Managed, ManagedTensorBase};

impl Tensor {
    /// Converts the tensor, without a copy, to a [DLPack](https://dmlc.github.io/dlpack) tensor, for PyTorch,
    /// JAX, numpy, CuPy and other frameworks that support DLPack. The result is in CPU memory and writable.
    /// Its deleter may be called on any thread, and returns the memory to its pool.
    ///
    /// [Pinned](super::BatchMemory) memory is exported as CPU memory too (`kDLCPU`): PyTorch refuses
    /// `kDLCUDAHost`, and detects pinned memory by asking the driver.
    ///
    /// The crate [`dlpark`] has two forms of a DLPack tensor: `dlpark::versioned::Dlpack`, and
    /// `dlpark::legacy::Dlpack` for frameworks that do not support versions yet. With the feature `pyo3` of
    /// that crate, both convert to Python capsules.
    ///
    /// ```
    /// use shardstream::codec::DType;
    /// use shardstream::tensor::{Tensor, dlpark};
    ///
    /// let tensor = Tensor::zeros(DType::F32, vec![2, 3])?;
    /// let dlpack: dlpark::versioned::Dlpack = tensor.into_dlpack()?;
    /// assert_eq!(dlpack.validate()?.shape(), [2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ArrayError::Shape`] if the length of an axis does not fit into an `i64`, the type that DLPack uses
    /// for lengths.
    pub fn into_dlpack<M: ManagedTensorBase>(self) -> Result<Managed<M>, ArrayError> {
        let Tensor { dtype, shape, buffer } = self;
        let mut owner = Box::new(buffer);
        let (data, bytes) = (owner.as_mut().as_mut().as_mut_ptr(), owner.as_ref().as_ref().len());
        let mut made = match Dynamic::compact(&shape[..]).initialize_as::<M>(owner) {
            Ok(made) => made,
            Err(_) => return Err(ArrayError::Shape { dtype, shape, bytes }),
        };
        made.set_data(data.cast()).set_device(DLDevice::CPU).set_dtype(data_type(dtype));
        // SAFETY: `data` points to the buffer's bytes, which do not move until `owner` is dropped. Only the
        // deleter that `initialize_as` installed drops `owner`. The buffer of a tensor has exactly the length
        // that the tensor's type and shape need, and is aligned for every type of number. The strides are
        // those of row-major order. The buffer was not copied, and no other reference to it exists, so the
        // flags "copied" and "read-only" stay unset.
        #[allow(unsafe_code, reason = "DLPack lets the producer vouch for the tensor")]
        Ok(unsafe { made.finish() })
    }
}

fn data_type(dtype: DType) -> DLDataType {
    match dtype {
        DType::Bool => DLDataType::BOOL,
        DType::I8 => DLDataType::I8,
        DType::I16 => DLDataType::I16,
        DType::I32 => DLDataType::I32,
        DType::I64 => DLDataType::I64,
        DType::U8 => DLDataType::U8,
        DType::U16 => DLDataType::U16,
        DType::U32 => DLDataType::U32,
        DType::U64 => DLDataType::U64,
        DType::F16 => DLDataType::F16,
        DType::BF16 => DLDataType::BF16,
        DType::F32 => DLDataType::F32,
        DType::F64 => DLDataType::F64,
        // `DType` is defined in another crate and non-exhaustive; a test covers all its types.
        other => unreachable!("{other} has no DLPack type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{TensorBuffer, TensorPool};
    use dlpark::{legacy, versioned};

    #[test]
    #[allow(unsafe_code, reason = "DLPack lets the consumer vouch for the tensor")]
    fn an_exported_tensor_has_the_same_memory_and_shape() {
        let mut tensor = Tensor::zeros(DType::I16, vec![2, 3]).unwrap();
        tensor.as_mut_slice::<i16>().unwrap().copy_from_slice(&[1, -2, 3, -4, 5, -6]);
        let address = tensor.as_bytes().as_ptr();
        let mut dlpack: versioned::Dlpack = tensor.into_dlpack().unwrap();
        {
            let seen = dlpack.validate_export().unwrap();
            assert_eq!((seen.shape(), seen.strides()), (&[2, 3][..], Some(&[3, 1][..])));
            assert_eq!(seen.data_ptr().cast(), address);
            assert!(seen.is_compact().unwrap());
            // SAFETY: the tensor was made above.
            assert_eq!(unsafe { seen.cpu_slice::<i16>() }.unwrap(), [1, -2, 3, -4, 5, -6]);
        }
        // SAFETY: no other reference to the tensor exists.
        unsafe { dlpack.validate_mut().unwrap().cpu_slice_mut::<i16>().unwrap()[0] = 9 };
        let raw = versioned::Dlpack::into_raw(dlpack);
        // SAFETY: `raw` comes from `into_raw`.
        let dlpack = unsafe { versioned::Dlpack::from_raw(raw) }.unwrap();
        // SAFETY: the tensor was made above.
        assert_eq!(unsafe { dlpack.validate().unwrap().cpu_slice::<i16>() }.unwrap()[0], 9);
    }

    #[test]
    fn the_deleter_returns_the_memory_to_the_pool() {
        let pool = TensorPool::new(64);
        let tensor = || Tensor::new(DType::F32, vec![16], TensorBuffer::pooled(pool.take(), &pool)).unwrap();
        let dlpack: legacy::Dlpack = tensor().into_dlpack().unwrap();
        let address = dlpack.validate().unwrap().data_ptr();
        let other = tensor();
        assert_ne!(other.as_bytes().as_ptr().cast(), address);
        std::thread::spawn(move || drop(dlpack)).join().unwrap();
        assert_eq!(tensor().as_bytes().as_ptr().cast(), address);
    }

    #[test]
    fn each_type_has_a_dlpack_type_of_its_size() {
        for dtype in DType::ALL {
            let DLDataType { bits, lanes, .. } = data_type(dtype);
            assert_eq!((usize::from(bits), lanes), (8 * dtype.size(), 1), "{dtype}");
        }
    }

    #[test]
    fn empty_and_huge_shapes_are_exported_or_refused() {
        for shape in [vec![], vec![0], vec![3, 0, 2]] {
            let dlpack: versioned::Dlpack =
                Tensor::zeros(DType::BF16, shape.clone()).unwrap().into_dlpack().unwrap();
            let wanted: Vec<i64> = shape.iter().map(|axis| *axis as i64).collect();
            assert_eq!(dlpack.validate_export().unwrap().shape(), wanted);
        }
        let absurd = Tensor::zeros(DType::U8, vec![0, usize::MAX]).unwrap();
        assert!(absurd.into_dlpack::<dlpark::ffi::DLManagedTensor>().is_err());
    }
}
