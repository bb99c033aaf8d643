//! Tensors as arrays of the crate `ndarray`.

use super::Tensor;
use crate::sample::{ArrayError, Element};
use bytemuck::{CheckedBitPattern, NoUninit};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn};

impl Tensor {
    /// The numbers as an array of the crate [`ndarray`], without a copy.
    ///
    /// ```
    /// use shardstream::codec::DType;
    /// use shardstream::tensor::Tensor;
    ///
    /// let mut tensor = Tensor::zeros(DType::I32, vec![2, 3])?;
    /// tensor.view_mut::<i32>()?[[1, 2]] = 7;
    /// assert_eq!(tensor.view::<i32>()?.rows().into_iter().map(|row| row.sum()).collect::<Vec<_>>(), [0, 7]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArrayError::Type`] if the tensor has another type: numbers are not converted.
    pub fn view<T: Element + CheckedBitPattern>(&self) -> Result<ArrayViewD<'_, T>, ArrayError> {
        ArrayViewD::from_shape(IxDyn(&self.shape), self.as_slice()?).map_err(|_| self.too_large())
    }

    /// The numbers as a mutable array of the crate [`ndarray`], without a copy.
    ///
    /// # Errors
    /// The same errors as for [`view`](Tensor::view).
    pub fn view_mut<T: Element + CheckedBitPattern + NoUninit>(
        &mut self,
    ) -> Result<ArrayViewMutD<'_, T>, ArrayError> {
        let (shape, too_large) = (IxDyn(&self.shape), self.too_large());
        ArrayViewMutD::from_shape(shape, self.as_mut_slice()?).map_err(|_| too_large)
    }

    /// The error for a shape that `ndarray` refuses. Only a tensor without numbers can have such a shape: an
    /// axis of length 0 and a huge axis.
    fn too_large(&self) -> ArrayError {
        ArrayError::Shape { dtype: self.dtype, shape: self.shape.clone(), bytes: self.size() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::DType;

    #[test]
    fn a_view_shares_the_memory_of_the_tensor() {
        let mut tensor = Tensor::zeros(DType::F32, vec![2, 1, 3]).unwrap();
        tensor.view_mut::<f32>().unwrap()[[1, 0, 0]] = 2.5;
        assert_eq!(tensor.as_slice::<f32>().unwrap(), [0., 0., 0., 2.5, 0., 0.]);
        let view = tensor.view::<f32>().unwrap();
        assert_eq!((view.shape(), view.as_ptr().cast()), (&[2, 1, 3][..], tensor.as_bytes().as_ptr()));
        assert!(tensor.view::<i32>().is_err());
        assert_eq!(Tensor::zeros(DType::I8, vec![]).unwrap().view::<i8>().unwrap().len(), 1);
        assert_eq!(Tensor::zeros(DType::I8, vec![4, 0]).unwrap().view::<i8>().unwrap().len(), 0);
        assert!(Tensor::zeros(DType::I8, vec![0, usize::MAX]).unwrap().view::<i8>().is_err());
    }
}
