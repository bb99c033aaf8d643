//! Exports tensors of batches to Python by DLPack and by the buffer protocol, both without a copy.
//!
//! An `Arc<Memory>` owns a tensor's memory. Each DLPack capsule has a clone of the `Arc`. Each buffer holds
//! the Python object, which has a clone too. When the last clone is dropped, on any thread, the memory
//! returns to the loader's pool.
//!
//! Consumers may write to the memory, and several consumers may share it, as with any array in Python. Rust
//! therefore makes no reference to the memory while a consumer can reach it: it keeps only the address.
#![allow(unsafe_code, reason = "the protocols pass addresses")]

use crate::process::Owned;
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::producer::{DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};
use shardstream::codec::DType;
use std::ffi::{CStr, c_int, c_long};
use std::ptr;
use std::sync::Arc;

/// The memory of a tensor.
struct Memory {
    data: *mut u8,
    /// Owns the memory at `data`.
    _tensor: Owned<shardstream::tensor::Tensor>,
}

// SAFETY: the address may be used on any thread, and Rust neither reads nor writes the memory.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A tensor of a batch: numbers of one type in row-major order. NumPy, PyTorch and JAX share its memory
/// without a copy.
///
/// `numpy.asarray(tensor)`, `torch.from_dlpack(tensor)`, `jax.numpy.from_dlpack(tensor)` and
/// `memoryview(tensor)` share the memory. The loader reuses the memory when the tensor and all arrays that
/// share it are gone.
#[pyclass(frozen, module = "shardstream", weakref)]
pub(crate) struct Tensor {
    memory: Arc<Memory>,
    dtype: DType,
    size: usize,
    shape: Vec<isize>,
    /// The strides in bytes, as the buffer protocol expects them.
    strides: Vec<isize>,
}

impl Tensor {
    pub(crate) fn new(mut tensor: shardstream::tensor::Tensor) -> Self {
        let (dtype, size) = (tensor.dtype(), tensor.size());
        // The length of an axis is at most `isize::MAX`, since the tensor's memory has no more bytes than
        // that. The exception is a tensor that has no bytes because the length of another axis is 0.
        let shape: Vec<isize> =
            tensor.shape().iter().map(|axis| isize::try_from(*axis).unwrap_or(isize::MAX)).collect();
        let mut strides = vec![0; shape.len()];
        let mut stride = dtype.size() as isize;
        for (axis, length) in strides.iter_mut().zip(&shape).rev() {
            *axis = stride;
            stride = stride.wrapping_mul(*length);
        }
        let data = tensor.as_bytes_mut().as_mut_ptr();
        let memory = Arc::new(Memory { data, _tensor: Owned::new(tensor) });
        Tensor { memory, dtype, size, shape, strides }
    }

    fn managed<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let tensor = Dynamic::compact(&self.shape[..]).initialize_as::<M>(Arc::clone(&self.memory));
        let mut tensor = tensor.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        tensor.set_data(self.memory.data.cast()).set_device(DLDevice::CPU).set_dtype(data_type(self.dtype));
        // SAFETY: `data` is the address of the tensor's memory, which stays valid until the last clone of the
        // `Arc` is dropped; the managed tensor has a clone, which its deleter drops. The memory has the size
        // that type and shape say, is in row-major order, and begins at a multiple of 256.
        Ok(unsafe { tensor.finish() })
    }
}

fn data_type(dtype: DType) -> DLDataType {
    let code = match dtype {
        DType::Bool => DLDataTypeCode::BOOL,
        DType::BF16 => DLDataTypeCode::BFLOAT,
        DType::F16 | DType::F32 | DType::F64 => DLDataTypeCode::FLOAT,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => DLDataTypeCode::UINT,
        _ => DLDataTypeCode::INT,
    };
    DLDataType { code, bits: 8 * dtype.size() as u8, lanes: 1 }
}

/// The type in the notation of Python's module `struct`; `None` for bfloat16, for which `struct` has no
/// notation.
fn format(dtype: DType) -> Option<&'static CStr> {
    // Where C's `long` has 64 bits, NumPy's int64 is `l` and not `q`.
    let long = size_of::<c_long>() == 8;
    Some(match dtype {
        DType::Bool => c"?",
        DType::I8 => c"b",
        DType::U8 => c"B",
        DType::I16 => c"h",
        DType::U16 => c"H",
        DType::I32 => c"i",
        DType::U32 => c"I",
        DType::I64 if long => c"l",
        DType::U64 if long => c"L",
        DType::I64 => c"q",
        DType::U64 => c"Q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        _ => return None,
    })
}

impl DlpackExporter for Tensor {
    fn device(&self) -> DLDevice {
        DLDevice::CPU
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _: Python<'_>, _: &ExportRequest<'_>) -> PyResult<()> {
        Ok(())
    }

    fn export_legacy(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.managed()
    }

    fn export_versioned(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.managed()
    }
}

#[pymethods]
impl Tensor {
    /// The name of the type of the numbers, such as `float32` or `bfloat16`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// The length of each axis; the first axis is the batch.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.size
    }

    fn __len__(&self) -> usize {
        self.shape.first().map_or(0, |rows| *rows as usize)
    }

    fn __repr__(&self) -> String {
        format!("shardstream.Tensor({}{:?})", self.dtype, self.shape)
    }

    /// A DLPack capsule.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(stream, max_version, dl_device, copy)?)
    }

    /// The device of the memory: the CPU.
    fn __dlpack_device__(&self) -> (u32, i32) {
        (DLDevice::CPU.device_type.0, 0)
    }

    /// A NumPy array that shares the memory. bfloat16 needs the package `ml_dtypes`, which comes with JAX.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let numpy = py.import(intern!(py, "numpy"))?;
        let tensor = slf.get();
        if tensor.dtype != DType::BF16 {
            let view = py.import(intern!(py, "builtins"))?.call_method1(intern!(py, "memoryview"), (slf,))?;
            return numpy.call_method1(intern!(py, "asarray"), (view,));
        }
        let dtype = py.import("ml_dtypes")?.getattr("bfloat16")?;
        let shape = tensor.shape(py)?;
        if tensor.size == 0 {
            return numpy.call_method1("empty", (shape, dtype));
        }
        numpy.call_method1("frombuffer", (slf, dtype))?.call_method1("reshape", (shape,))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(slf.py());
        options.set_item("copy", copy)?;
        let array = Tensor::numpy(slf)?;
        slf.py().import("numpy")?.call_method("array", (array, dtype), Some(&options))
    }

    /// # Safety
    /// `view` must be the address of a `Py_buffer`. The interpreter, the only caller, passes one.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let tensor = slf.get();
        // SAFETY: the interpreter passes a buffer to fill in.
        let view = unsafe { &mut *view };
        view.obj = ptr::null_mut();
        let has_flag = |flag: c_int| flags & flag == flag;
        let format = match (format(tensor.dtype), has_flag(ffi::PyBUF_FORMAT)) {
            (Some(format), true) => format.as_ptr().cast_mut(),
            (None, true) => {
                return Err(PyBufferError::new_err(
                    "buffers have no format for bfloat16: use `numpy()`, or `from_dlpack` of torch or JAX",
                ));
            }
            (_, false) => ptr::null_mut(),
        };
        let row_major = has_flag(ffi::PyBUF_C_CONTIGUOUS) || has_flag(ffi::PyBUF_ANY_CONTIGUOUS);
        let is_both = tensor.size == 0 || tensor.shape.iter().filter(|axis| **axis > 1).count() < 2;
        if has_flag(ffi::PyBUF_F_CONTIGUOUS) && !row_major && !is_both {
            let what = "the tensor is in row-major order, not in Fortran's order: copy it";
            return Err(PyBufferError::new_err(what));
        }
        view.buf = tensor.memory.data.cast();
        view.len = tensor.size as isize;
        view.readonly = 0;
        view.itemsize = tensor.dtype.size() as isize;
        view.format = format;
        // Consumers do not write to the shape and the strides, which are valid as long as `obj`. A consumer
        // that does not want a shape gets a buffer of bytes with one axis.
        let shaped = has_flag(ffi::PyBUF_ND);
        view.ndim = if shaped { tensor.shape.len() as c_int } else { 1 };
        view.shape = if shaped { tensor.shape.as_ptr().cast_mut() } else { ptr::null_mut() };
        let strided = has_flag(ffi::PyBUF_STRIDES);
        view.strides = if strided { tensor.strides.as_ptr().cast_mut() } else { ptr::null_mut() };
        view.suboffsets = ptr::null_mut();
        view.internal = ptr::null_mut();
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }
}
