//! `Mixup`: mixes the pictures of a batch pixel by pixel.

use super::batch::TensorBatch;
use super::check::config_error;
use crate::Rng;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{ArrayError, DType, Element};
use crate::tensor::Tensor;
use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};

/// Mixes each picture and label of a batch with the previous picture and label (Zhang et al., *mixup*, 2018),
/// like torchvision's `v2.MixUp`.
///
/// For the whole batch, one weight λ is drawn from Beta(`alpha`, `alpha`). Each picture and label has the
/// weight λ, and the previous picture and label have the weight 1 − λ. The first picture and label are mixed
/// with the last ones. Pictures are `float32`, `bfloat16`, `float16` or `uint8`, and keep their type
/// (torchvision converts `uint8` to `float32`). Labels are whole numbers from 0 to less than `classes`, and
/// become `float32[samples, classes]`. Labels that already have this form, such as smoothed labels, are mixed
/// directly. Padding rows of a batch are not mixed.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, Mixup, Scalar};
///
/// let columns = Columns::new()
///     .with_fn("image", [1], |sample: &Sample, pixel: &mut [f32]| Ok(pixel.fill(sample.key().len() as f32)))
///     .with("label", Scalar::<i32>::new("cls"));
/// let samples = [Sample::new("a").with("cls", 0), Sample::new("bbb").with("cls", 2)];
/// let mut batch = columns.collate(samples)?;
/// let kept = Mixup::new(1.0, 3)?.apply(&mut batch, "image", "label", 42)?;
/// let (kept, other) = (kept as f32, (1. - kept) as f32);
/// let pixels = batch["image"].as_slice::<f32>()?;
/// assert!((pixels[0] - (kept * 1. + other * 3.)).abs() < 1e-6);
/// assert_eq!(batch["label"].as_slice::<f32>()?, [kept, 0., other, other, 0., kept]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mixup {
    alpha: f64,
    classes: usize,
}

impl Mixup {
    /// Mixup for `classes` classes. Both parameters of the beta distribution are `alpha`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `alpha` is not a finite number above 0, if `classes` is 0, or if a tensor
    /// cannot have that many classes.
    pub fn new(alpha: f64, classes: usize) -> Result<Self> {
        check_options("Mixup", alpha, classes)?;
        Ok(Mixup { alpha, classes })
    }

    /// Mixes the pictures and labels of a batch, and returns λ, the weight of each sample's own picture and
    /// label. The random numbers are those of [`batch.rng(seed)`](TensorBatch::rng), the same on every run
    /// and after a restore.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] if the batch lacks one of the two tensors; [`ErrorKind::Array`] if one of
    /// the two tensors has an unsupported type or shape; [`ErrorKind::Config`] for a label that is not a
    /// class. The batch is then unchanged.
    pub fn apply(&self, batch: &mut TensorBatch, image: &str, label: &str, seed: u64) -> Result<f64> {
        let mut rng = batch.rng(seed);
        self.apply_with(batch, image, label, &mut rng)
    }

    /// Like [`apply`](Mixup::apply), with random numbers from `rng`.
    ///
    /// # Errors
    /// The same as for [`apply`](Mixup::apply).
    pub fn apply_with(
        &self,
        batch: &mut TensorBatch,
        image: &str,
        label: &str,
        rng: &mut Rng,
    ) -> Result<f64> {
        let mut labels = one_hot(batch, label, self.classes)?;
        let (rows, valid, kept) = (batch.len(), batch.valid(), rng.beta(self.alpha));
        let images = batch.tensor_mut(image)?;
        check_rows(images, rows)?;
        let (keep, other) = (kept as f32, (1.0 - kept) as f32);
        let mix = |a: f32, b: f32| b * other + a * keep;
        match images.dtype() {
            DType::F32 => mix_rows(images, valid, mix)?,
            DType::BF16 => {
                mix_rows(images, valid, |a: bf16, b: bf16| bf16::from_f32(mix(a.into(), b.into())))?
            }
            DType::F16 => mix_rows(images, valid, |a: f16, b: f16| f16::from_f32(mix(a.into(), b.into())))?,
            DType::U8 => {
                mix_rows(images, valid, |a: u8, b: u8| mix(a.into(), b.into()).round() as u8)?;
            }
            found => return Err(ArrayError::Type { wanted: DType::F32, found }.into()),
        }
        mix_labels(&mut labels, valid, kept)?;
        batch.set(label, labels);
        Ok(kept)
    }
}

/// Checks that `alpha` is valid for a beta distribution, and that a tensor can have `classes` classes.
pub(super) fn check_options(name: &str, alpha: f64, classes: usize) -> Result<()> {
    if !(alpha > 0.0 && alpha.is_finite()) {
        return Err(config_error(format!(
            "{name} with an alpha of {alpha}: make it more than 0, such as 0.2"
        )));
    }
    if !(1..=isize::MAX as usize / 8).contains(&classes) {
        return Err(config_error(format!(
            "{name} with {classes} classes: give the number of classes of the labels, at least 1"
        )));
    }
    Ok(())
}

/// The labels of a batch as `float32[samples, classes]`.
pub(super) fn one_hot(batch: &TensorBatch, name: &str, classes: usize) -> Result<Tensor> {
    let labels = batch.tensor(name)?;
    if labels.dtype() == DType::F32 && labels.shape() == [batch.len(), classes] {
        return Ok(labels.clone());
    }
    if labels.shape() != [batch.len()] {
        let (found, found_shape) = (labels.dtype(), labels.shape().to_vec());
        let (wanted, wanted_shape) = (DType::F32, vec![batch.len(), classes]);
        return Err(ArrayError::Mismatch { wanted, wanted_shape, found, found_shape }.into());
    }
    let mut hot = Tensor::zeros(DType::F32, vec![batch.len(), classes])?;
    let to = hot.as_mut_slice::<f32>()?;
    match labels.dtype() {
        DType::I8 => set_ones(labels.as_slice::<i8>()?, classes, to),
        DType::I16 => set_ones(labels.as_slice::<i16>()?, classes, to),
        DType::I32 => set_ones(labels.as_slice::<i32>()?, classes, to),
        DType::I64 => set_ones(labels.as_slice::<i64>()?, classes, to),
        DType::U8 => set_ones(labels.as_slice::<u8>()?, classes, to),
        DType::U16 => set_ones(labels.as_slice::<u16>()?, classes, to),
        DType::U32 => set_ones(labels.as_slice::<u32>()?, classes, to),
        DType::U64 => set_ones(labels.as_slice::<u64>()?, classes, to),
        found => Err(ArrayError::Type { wanted: DType::I64, found }.into()),
    }?;
    Ok(hot)
}

fn set_ones<T: Copy + TryInto<usize> + std::fmt::Display>(
    labels: &[T],
    classes: usize,
    to: &mut [f32],
) -> Result<()> {
    for (row, label) in labels.iter().enumerate() {
        let class: Option<usize> = (*label).try_into().ok().filter(|class| *class < classes);
        match class.and_then(|class| to.get_mut(row * classes + class)) {
            Some(one) => *one = 1.0,
            None => return Err(no_class(label, classes)),
        }
    }
    Ok(())
}

/// Checks that the tensor has one row for each sample. A ragged tensor cannot be mixed.
pub(super) fn check_rows(images: &Tensor, rows: usize) -> Result<()> {
    if images.shape().first() == Some(&rows) {
        return Ok(());
    }
    let (shape, dtype, bytes) = (images.shape().to_vec(), images.dtype(), images.size());
    Err(ArrayError::Shape { dtype, shape, bytes }.into())
}

fn no_class(label: impl std::fmt::Display, classes: usize) -> Error {
    ErrorKind::Config(format!("the label {label} is none of {classes} classes")).into()
}

/// Mixes each label with the previous label. The label itself has the weight `kept`, and the previous label
/// has the weight `1 - kept`.
pub(super) fn mix_labels(labels: &mut Tensor, valid: usize, kept: f64) -> Result<()> {
    let (keep, other) = (kept as f32, (1.0 - kept) as f32);
    mix_rows(labels, valid, |a: f32, b: f32| b * other + a * keep)
}

fn mix_rows<T>(tensor: &mut Tensor, valid: usize, mix: impl Fn(T, T) -> T) -> Result<()>
where
    T: Element + CheckedBitPattern + NoUninit,
{
    let rows = tensor.shape().first().copied().unwrap_or_default();
    with_previous(tensor.as_mut_slice::<T>()?, rows, valid, |row, before| {
        row.iter_mut().zip(before).for_each(|(a, b)| *a = mix(*a, *b));
    });
    Ok(())
}

/// Calls `change(row, previous)` for each valid row. `numbers` contains `rows` rows, and the first `valid` of
/// them are valid. `previous` is the unchanged previous row; for the first row, it is the last valid row.
pub(super) fn with_previous<T: Copy>(
    numbers: &mut [T],
    rows: usize,
    valid: usize,
    change: impl Fn(&mut [T], &[T]),
) {
    let (size, valid) = (numbers.len() / rows.max(1), valid.min(rows));
    // A single row has no previous row.
    if valid < 2 || size == 0 {
        return;
    }
    let last = numbers[(valid - 1) * size..valid * size].to_vec();
    // Change the last row first, so that the previous row of each row is still unchanged.
    for row in (1..valid).rev() {
        let (before, this) = numbers.split_at_mut(row * size);
        change(&mut this[..size], &before[(row - 1) * size..]);
    }
    change(&mut numbers[..size], &last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Columns, Scalar};
    use crate::sample::Sample;

    /// A batch with one row for each label. It has tensors of several types, with two numbers per row.
    fn batch(labels: &[i32]) -> TensorBatch {
        let size = |sample: &Sample| sample.key().len() as u8;
        let columns = Columns::new()
            .with_fn("f32", [2], move |sample: &Sample, to: &mut [f32]| {
                to.fill(size(sample).into());
                Ok(())
            })
            .with_fn("bf16", [2], move |sample: &Sample, to: &mut [bf16]| {
                to.fill(size(sample).into());
                Ok(())
            })
            .with_fn("u8", [2], move |sample: &Sample, to: &mut [u8]| {
                to.fill(size(sample) * 10);
                Ok(())
            })
            .with_fn("i64", [2], |_: &Sample, _: &mut [i64]| Ok(()))
            .with("label", Scalar::<i32>::new("cls"));
        let sample = |(at, label): (usize, &i32)| Sample::new("k".repeat(at + 1)).with("cls", *label);
        columns.collate(labels.iter().enumerate().map(sample)).unwrap()
    }

    #[test]
    fn each_row_is_mixed_with_the_previous_one() {
        for name in ["f32", "bf16", "u8"] {
            let mut batch = batch(&[0, 1, 2]);
            let kept = Mixup::new(0.4, 3).unwrap().apply(&mut batch, name, "label", 7).unwrap() as f32;
            let wanted = [(1., 3.), (2., 1.), (3., 2.)].map(|(a, b)| kept * a + (1. - kept) * b);
            for (row, wanted) in wanted.into_iter().enumerate() {
                let found = match name {
                    "f32" => batch[name].as_slice::<f32>().unwrap()[2 * row + 1],
                    "bf16" => batch[name].as_slice::<bf16>().unwrap()[2 * row + 1].into(),
                    _ => f32::from(batch[name].as_slice::<u8>().unwrap()[2 * row + 1]) / 10.0,
                };
                assert!((found - wanted).abs() < 0.051, "{name}: {found} {wanted}");
            }
            let labels = batch["label"].as_slice::<f32>().unwrap();
            assert_eq!(batch["label"].shape(), [3, 3]);
            let rest = (1.0 - f64::from(kept)) as f32;
            for (at, label) in labels.iter().enumerate() {
                let wanted = if at % 4 == 0 {
                    kept
                } else if [2, 3, 7].contains(&at) {
                    rest
                } else {
                    0.0
                };
                assert!((label - wanted).abs() < 1e-6, "{labels:?}");
            }
            // Mix again, with labels that are already `float32[samples, classes]`.
            Mixup::new(0.4, 3).unwrap().apply(&mut batch, name, "label", 8).unwrap();
            let sums = batch["label"].as_slice::<f32>().unwrap().chunks(3).map(|row| row.iter().sum::<f32>());
            assert!(sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-6));
        }
    }

    #[test]
    fn padding_and_single_rows_are_unchanged() {
        let mut numbers = [1, 2, 3, 4, 5, 6, 7, 8];
        with_previous(&mut numbers, 4, 3, |this, before| this.copy_from_slice(before));
        assert_eq!(numbers, [5, 6, 1, 2, 3, 4, 7, 8]);
        with_previous(&mut numbers, 4, 1, |_, _| panic!("a single row"));
        let mut empty: [u8; 0] = [];
        with_previous(&mut empty, 4, 4, |_, _| panic!("no numbers"));
    }

    #[test]
    fn an_error_leaves_the_batch_unchanged() {
        for (labels, name, label) in [
            (&[0, 3][..], "f32", "label"),
            (&[0, -1], "f32", "label"),
            (&[0, 1], "i64", "label"),
            (&[0, 1], "none", "label"),
            (&[0, 1], "f32", "none"),
            (&[0, 1], "f32", "u8"),
        ] {
            let mut batch = batch(labels);
            let error = Mixup::new(1.0, 3).unwrap().apply(&mut batch, name, label, 7).unwrap_err();
            assert!(!error.to_string().is_empty());
            assert_eq!(batch["label"].as_slice::<i32>().unwrap(), labels);
            assert_eq!(batch["f32"].as_slice::<f32>().unwrap(), [1., 1., 2., 2.]);
        }
    }
}
