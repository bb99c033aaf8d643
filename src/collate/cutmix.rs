//! `CutMix`: mixes the pictures of a batch by pasting a part of one picture into another.

use super::batch::TensorBatch;
use super::mixup::{check_options, check_rows, mix_labels, one_hot, with_previous};
use crate::Rng;
use crate::error::Result;
use crate::image::Layout;
use crate::sample::ArrayError;
use std::ops::Range;

/// Pastes a box of the previous picture into each picture of a batch, and mixes their labels in proportion to
/// the area (Yun et al., *CutMix*, 2019), like torchvision's `v2.CutMix`.
///
/// One number λ, drawn from Beta(`alpha`, `alpha`), and one box are used for the whole batch. The box's
/// centre is drawn uniformly from the picture. The box is √(1 − λ) times as wide and as high as the picture,
/// and clipped at the picture's borders. The weight of a picture's own label is the fraction of its area that
/// is kept. Pictures may have any number type. Labels and padding rows are treated as in
/// [`Mixup`](super::Mixup).
///
/// To apply either `Mixup` or `CutMix` to each batch, choose between them with a seed that neither of them
/// uses, for example with `batch.rng(1).below(2)` if their seeds are 2 and 3.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, CutMix, Scalar};
///
/// let columns = Columns::new()
///     .with_fn("image", [8, 8, 3], |sample: &Sample, pixels: &mut [u8]| {
///         Ok(pixels.fill(sample.key().len() as u8))
///     })
///     .with("label", Scalar::<i32>::new("cls"));
/// let samples = [Sample::new("a").with("cls", 0), Sample::new("bb").with("cls", 1)];
/// let mut batch = columns.collate(samples)?;
/// let kept = CutMix::new(1.0, 2)?.apply(&mut batch, "image", "label", 42)?;
/// let own = batch["image"].as_slice::<u8>()?[..192].iter().filter(|pixel| **pixel == 1).count();
/// assert_eq!(own as f64 / 192., kept);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CutMix {
    alpha: f64,
    classes: usize,
    layout: Layout,
}

impl CutMix {
    /// CutMix for `classes` classes. Both parameters of the beta distribution are `alpha`.
    ///
    /// # Errors
    /// The same as for [`Mixup::new`](super::Mixup::new).
    pub fn new(alpha: f64, classes: usize) -> Result<Self> {
        check_options("CutMix", alpha, classes)?;
        Ok(CutMix { alpha, classes, layout: Layout::Hwc })
    }

    /// Sets the layout of the pictures. Default: [`Layout::Hwc`], the same as for
    /// [`ImageColumn`](super::ImageColumn).
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Mixes the pictures and labels of a batch, and returns the fraction of each picture that was kept. The
    /// random numbers are those of [`batch.rng(seed)`](TensorBatch::rng), the same on every run and after a
    /// restore.
    ///
    /// # Errors
    /// The same as for [`Mixup::apply`](super::Mixup::apply), and [`ArrayError::Shape`] for pictures that do
    /// not have three axes.
    pub fn apply(&self, batch: &mut TensorBatch, image: &str, label: &str, seed: u64) -> Result<f64> {
        let mut rng = batch.rng(seed);
        self.apply_with(batch, image, label, &mut rng)
    }

    /// Like [`apply`](CutMix::apply), with random numbers from `rng`.
    ///
    /// # Errors
    /// The same as for [`apply`](CutMix::apply).
    pub fn apply_with(
        &self,
        batch: &mut TensorBatch,
        image: &str,
        label: &str,
        rng: &mut Rng,
    ) -> Result<f64> {
        let mut labels = one_hot(batch, label, self.classes)?;
        let (all, valid) = (batch.len(), batch.valid());
        let images = batch.tensor_mut(image)?;
        check_rows(images, all)?;
        let &[rows, first, second, third] = images.shape() else {
            let (shape, dtype, bytes) = (images.shape().to_vec(), images.dtype(), images.size());
            return Err(ArrayError::Shape { dtype, shape, bytes }.into());
        };
        let item = images.dtype().size();
        let (planes, height, width, values) = self.layout.planes([first, second, third]);
        let pixel = values * item;
        let (xs, ys) = draw(rng, self.alpha, width, height);
        let kept = 1.0 - (xs.len() * ys.len()) as f64 / (width * height).max(1) as f64;
        with_previous(images.as_bytes_mut(), rows, valid, |this, before| {
            for line in (0..planes).flat_map(|plane| ys.clone().map(move |y| plane * height + y)) {
                let part = (line * width + xs.start) * pixel..(line * width + xs.end) * pixel;
                this[part.clone()].copy_from_slice(&before[part]);
            }
        });
        mix_labels(&mut labels, valid, kept)?;
        batch.set(label, labels);
        Ok(kept)
    }
}

/// Draws the box: its range of columns and its range of rows.
fn draw(rng: &mut Rng, alpha: f64, width: usize, height: usize) -> (Range<usize>, Range<usize>) {
    let half = 0.5 * (1.0 - rng.beta(alpha)).sqrt();
    let mut side = |length: usize| {
        let (centre, half) = (rng.below(length as u64) as usize, (half * length as f64) as usize);
        centre.saturating_sub(half)..(centre + half).min(length)
    };
    let xs = side(width);
    (xs, side(height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Columns, Scalar};
    use crate::sample::Sample;

    #[test]
    fn both_layouts_get_the_same_box() {
        let (height, width, channels) = (7, 9, 3);
        // Each value is 1000 times the number of its picture, plus the value's CHW index in the picture.
        let number = move |sample: &Sample, c: usize, y: usize, x: usize| {
            (sample.key().len() * 1000 + (c * height + y) * width + x) as f32
        };
        let columns = Columns::new()
            .with_fn("hwc", [height, width, channels], move |sample: &Sample, to: &mut [f32]| {
                for (at, to) in to.iter_mut().enumerate() {
                    *to = number(sample, at % channels, at / channels / width, at / channels % width);
                }
                Ok(())
            })
            .with_fn("chw", [channels, height, width], move |sample: &Sample, to: &mut [f32]| {
                to.iter_mut().enumerate().for_each(|(at, to)| *to = number(sample, 0, 0, at));
                Ok(())
            })
            .with("label", Scalar::<u8>::new("cls"))
            .with("label2", Scalar::<i64>::new("cls"));
        for seed in 0..50 {
            let samples = ["a", "bb", "ccc"].map(|key| Sample::new(key).with("cls", key.len() as i64 - 1));
            let mut batch = columns.collate(samples).unwrap();
            let cutmix = CutMix::new(1.0, 3).unwrap();
            let kept = cutmix.apply(&mut batch, "hwc", "label", seed).unwrap();
            let same = cutmix.clone().layout(Layout::Chw).apply(&mut batch, "chw", "label2", seed).unwrap();
            assert_eq!(kept, same);
            assert_eq!(batch["label"], batch["label2"]);
            let (hwc, chw) =
                (batch["hwc"].as_slice::<f32>().unwrap(), batch["chw"].as_slice::<f32>().unwrap());
            let size = height * width * channels;
            for (row, own) in [1.0, 2.0, 3.0].into_iter().enumerate() {
                let (hwc, chw) = (&hwc[row * size..][..size], &chw[row * size..][..size]);
                let mut transposed: Vec<f32> = hwc.to_vec();
                transposed.sort_by_key(|n| *n as u32 % 1000);
                assert_eq!(transposed, chw);
                let stays = chw.iter().filter(|n| (**n / 1000.0).floor() == own).count();
                assert!((stays as f64 / size as f64 - kept).abs() < 1e-12);
                assert!((batch["label"].as_slice::<f32>().unwrap()[row * 4] - kept as f32).abs() < 1e-6);
                // No pixel moves.
                assert!(chw.iter().enumerate().all(|(at, n)| *n as usize % 1000 == at));
            }
        }
        let mut batch = columns.collate([Sample::new("a").with("cls", 0)]).unwrap();
        assert!(CutMix::new(1.0, 3).unwrap().apply(&mut batch, "label", "label2", 0).is_err());
    }

    #[test]
    fn the_mean_area_of_boxes_is_the_expected_one() {
        let mut rng = Rng::new(1, 2, 3);
        let mut area = 0.0;
        for _ in 0..20_000 {
            let (xs, ys) = draw(&mut rng, 1.0, 224, 224);
            area += (xs.len() * ys.len()) as f64 / (224.0 * 224.0);
        }
        // A box of side s has an area of (s - s²/4)² inside the picture, on average over its positions. s² is
        // 1 - λ, which is uniformly distributed. `wanted` is the average of the area for all these s².
        let wanted: f64 = (0..1000)
            .map(|i| (f64::from(i) + 0.5) / 1000.0)
            .map(|l| l.sqrt() - l / 4.0)
            .map(|s| s * s / 1000.0)
            .sum();
        assert!((area / 20_000.0 - wanted).abs() < 0.01, "{} {wanted}", area / 20_000.0);
        assert_eq!(draw(&mut rng, 1.0, 0, 0), (0..0, 0..0));
    }
}
