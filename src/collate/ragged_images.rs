//! `RaggedImages`: any number of pictures for each sample.

use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::column::Column;
use super::image::ImageColumn;
use crate::error::{Error, Result};
use crate::sample::Sample;
use crate::tensor::TensorPool;
use std::cmp::Ordering;

/// A column for any number of pictures of a sample, such as the pages of a document or the frames of a clip.
/// Each picture is decoded and transformed to the same size by an [`ImageColumn`].
///
/// The column makes two tensors: the pictures of all samples, `[pictures, height, width, channels]` (or in
/// another [`layout`](ImageColumn::layout)), and `.offsets`, `int64[samples + 1]`. Sample `i` has the
/// pictures from `offsets[i]` to `offsets[i + 1]`; it may have none. The shape differs from batch to batch.
/// For a device that needs a fixed shape, use [`Stack`](super::Stack), which reads a fixed number of fields
/// and has a tensor that tells which of these fields each sample has.
///
/// The field names of the image column are read differently here. Names separated by `;` are not
/// alternatives: all fields with these names are read, in the order of the names. A name may have one `*`,
/// which matches any text. Fields that match the same name are ordered by the text that the `*` matches:
/// whole numbers by value, then other text. A field that matches several names is read once.
///
/// The pictures of a sample draw the same random numbers, so pictures of the same size are cropped in the
/// same way.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, ImageColumn, RaggedImages};
/// use shardstream::image::{Image, ImageMode};
///
/// let png = |number| Image::new(ImageMode::L8, (1, 2), vec![number; 2]).and_then(|image| image.to_png());
/// let image = ImageColumn::new("*.png", (1, 2)).mode(ImageMode::L8);
/// let batch = Columns::new().with("pages", RaggedImages::new(image)).collate([
///     Sample::new("0001").with("10.png", png(3)?).with("2.png", png(1)?),
///     Sample::new("0002").with("txt", "no pictures"),
///     Sample::new("0003").with("0.png", png(7)?),
/// ])?;
/// assert_eq!(batch["pages"].shape(), [3, 1, 2, 1]);
/// assert_eq!(batch["pages"].as_slice::<u8>()?, [1, 1, 3, 3, 7, 7]);
/// assert_eq!(batch["pages.offsets"].as_slice::<i64>()?, [0, 2, 2, 3]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RaggedImages {
    image: ImageColumn,
    max: Option<usize>,
}

impl RaggedImages {
    /// Decodes and transforms the pictures of a sample with `image`.
    #[must_use]
    pub fn new(image: ImageColumn) -> Self {
        RaggedImages { image, max: None }
    }

    /// Reads at most the first `pictures` pictures of a sample; further pictures are not decoded. Default:
    /// all.
    #[must_use]
    pub fn max(mut self, pictures: usize) -> Self {
        self.max = Some(pictures);
        self
    }

    /// The names of a sample's fields that match the column's names, in the order of the pictures.
    fn fields<'a>(&'a self, sample: &'a Sample) -> Vec<&'a str> {
        let mut fields: Vec<&str> = Vec::new();
        for name in self.image.field().split(';') {
            let first = fields.len();
            let new = |field: &&str| !fields.contains(field);
            match name.split_once('*') {
                None => fields.extend(sample.get(name).map(|_| name).filter(new)),
                Some(ends) => {
                    let matches =
                        sample.fields().map(|(field, _)| field).filter(|field| middle(field, ends).is_some());
                    let new_matches: Vec<&str> = matches.filter(new).collect();
                    fields.extend(new_matches);
                    let text = |field: &'a str| middle(field, ends).unwrap_or_default();
                    fields[first..].sort_by(|one, other| by_number(text(one), text(other)));
                }
            }
        }
        fields.truncate(self.max.unwrap_or(usize::MAX));
        fields
    }
}

/// Maximum number of pictures of a sample if `max` is not set.
const MAX_PICTURES: usize = 1024;

/// The text of `field` between `begin` and `end`; `None` if the field's name does not begin with `begin` and
/// end with `end`.
fn middle<'a>(field: &'a str, (begin, end): (&str, &str)) -> Option<&'a str> {
    field.strip_prefix(begin)?.strip_suffix(end)
}

/// Orders whole numbers by value, before other text. Equal numbers such as `1` and `01` are ordered as text.
fn by_number(one: &str, other: &str) -> Ordering {
    let number = |text: &str| -> Option<(usize, String)> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.trim_start_matches('0');
        digits.then(|| (value.len(), value.to_owned()))
    };
    match (number(one), number(other)) {
        (Some(small), Some(large)) => small.cmp(&large).then_with(|| one.cmp(other)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

impl Column for RaggedImages {
    fn outputs(&self) -> Vec<Output> {
        let picture = self.image.picture();
        vec![Output::ragged_rows(picture.dtype, picture.row())]
    }

    fn follows(&self) -> Option<&str> {
        self.image.follows()
    }

    fn is_picture(&self) -> bool {
        true
    }

    fn check(&self) -> Result<()> {
        check::field(self.image.field())?;
        self.image.check()?;
        if self.image.has_followers() {
            return Err(config_error(
                "`boxes` and `mask` of any number of pictures are not supported: take a `Stack` of image \
                 columns",
            ));
        }
        if self.max == Some(0) {
            return Err(config_error("`max` of 0 pictures: make it at least 1, or leave the column out"));
        }
        match self.image.field().split(';').find(|name| name.matches('*').count() > 1) {
            Some(name) => Err(config_error(format!("the field {name:?}: write at most one `*` in a name"))),
            None => Ok(()),
        }
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let [cell] = cells else {
            return Err(check::wrong_cells());
        };
        let fields = self.fields(sample);
        if self.max.is_none() && fields.len() > MAX_PICTURES {
            let what = format!("{} pictures of one sample: set `max` to the number to read", fields.len());
            return Err(Error::decode(self.image.field(), what));
        }
        if let Some(field) = fields.iter().find(|field| field.contains(';')) {
            return Err(Error::decode(*field, "a name with `;` cannot be told from two names"));
        }
        let too_many =
            || config_error(format!("{} pictures of a sample are larger than any memory", fields.len()));
        let size = self.image.picture().row_size().ok_or_else(too_many)?;
        let all = fields.len().checked_mul(size).filter(|all| TensorPool::is_possible(*all));
        let mut pictures = TensorPool::unpooled(all.ok_or_else(too_many)?);
        for (field, slot) in fields.iter().zip(pictures.chunks_exact_mut(size.max(1))) {
            self.image.draw(sample, field, seed, slot)?;
        }
        cell.put(pictures.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Columns, Mask, TensorBatch};
    use crate::error::ErrorKind;
    use crate::image::{Image, ImageMode, Layout, RandomCrop};
    use crate::sample::DType;

    fn png(number: u8) -> Vec<u8> {
        Image::new(ImageMode::Rgb8, (2, 3), vec![number; 18]).unwrap().to_png().unwrap()
    }

    fn image(field: &str) -> ImageColumn {
        ImageColumn::new(field, (2, 3))
    }

    /// For each sample, the first number of each of its pictures.
    fn firsts(column: RaggedImages, samples: Vec<Sample>) -> Vec<Vec<u8>> {
        let batch = Columns::new().with("x", column).collate(samples).unwrap();
        let firsts = |piece: &[u8]| piece.chunks(18).map(|picture| picture[0]).collect();
        batch.pieces::<u8>("x").unwrap().map(firsts).collect()
    }

    #[test]
    fn all_pictures_of_a_sample_are_read_in_the_order_of_their_numbers() {
        let sample = |fields: &[&str]| {
            let fields = fields.iter().zip(0..);
            fields.fold(Sample::new("k").with("txt", "a"), |sample, (field, at)| sample.with(*field, png(at)))
        };
        let samples = || {
            vec![
                sample(&["10.png", "9.png", "front.png", "010.png", "back.png", "png", "x.jpg"]),
                sample(&[]),
                sample(&["x.jpg", "1.png"]),
            ]
        };
        let found = firsts(RaggedImages::new(image("*.png")), samples());
        assert_eq!(found, [vec![1, 3, 0, 4, 2], vec![], vec![1]]);
        let found = firsts(RaggedImages::new(image("x.jpg;*.png;9.png;x.jpg")), samples());
        assert_eq!(found, [vec![6, 1, 3, 0, 4, 2], vec![], vec![0, 1]]);
        let found = firsts(RaggedImages::new(image("front.png;back.png;*.png")).max(3), samples());
        assert_eq!(found, [vec![2, 4, 1], vec![], vec![1]]);
    }

    #[test]
    fn each_picture_is_the_one_of_an_image_column() {
        let pixels: Vec<u8> = (0..60).map(|at| at * 4).collect();
        let file = Image::new(ImageMode::Rgb8, (4, 5), pixels).unwrap().to_png().unwrap();
        let column = |field: &str| {
            let column = image(field).then(RandomCrop::new((2, 3)).unwrap()).layout(Layout::Chw);
            column.dtype(DType::F32).normalize([0.5; 3], [0.25; 3])
        };
        let columns = Columns::new()
            .with("all", RaggedImages::new(column("*.png")))
            .with("one", column("0.png").same_as("all"));
        let sample = |at| {
            Sample::new("k").with_position(0, at).with("0.png", file.clone()).with("1.png", file.clone())
        };
        let batch = columns.seed(3).collate((0..4).map(sample)).unwrap();
        assert_eq!(batch["all"].to_string(), "float32[8, 3, 2, 3]");
        assert_eq!(batch["all.offsets"].as_slice::<i64>().unwrap(), [0, 2, 4, 6, 8]);
        let one = batch["one"].as_slice::<f32>().unwrap().chunks(18);
        for (all, one) in batch.pieces::<f32>("all").unwrap().zip(one) {
            assert_eq!(all, [one, one].concat());
        }
    }

    #[test]
    fn no_pictures_are_valid_and_damaged_ones_are_errors() {
        let columns = Columns::new().with("x", RaggedImages::new(image("*.png")));
        let collate = |samples: &[Sample]| columns.collate(samples.iter().cloned());
        let none: TensorBatch = collate(&[Sample::new("k"), Sample::new("l")]).unwrap();
        assert_eq!(none["x"].to_string(), "uint8[0, 2, 3, 3]");
        assert_eq!(none["x.offsets"].as_slice::<i64>().unwrap(), [0, 0, 0]);
        let damaged = Sample::new("k").with("0.png", png(1)).with("1.png", &png(2)[..40]);
        let error = format!("{:#}", collate(&[damaged]).unwrap_err());
        assert!(error.contains("\"1.png\"") && error.contains("sample k"), "{error}");
        let error = collate(&[Sample::new("k").with("0.png", "text")]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WrongType { .. }), "{error}");
        let error = collate(&[Sample::new("k")
            .with("0.png", png(1))
            .with("7.png", Image::new(ImageMode::L8, (1, 1), vec![0]).unwrap().to_png().unwrap())]);
        assert!(format!("{:#}", error.unwrap_err()).contains("the slots of the batch have 2 x 3"));
    }

    #[test]
    fn invalid_options_are_errors() {
        for (column, wanted) in [
            (RaggedImages::new(image("*.png")).max(0), "`max` of 0"),
            (RaggedImages::new(image("*.*")), "at most one `*`"),
            (RaggedImages::new(image("*.png").mask(Mask::new("npy"))), "take a `Stack`"),
            (RaggedImages::new(image("*.png;")), "the field \"*.png;\""),
            (RaggedImages::new(image("*.png").dtype(DType::I32)), "`dtype` int32"),
        ] {
            let error = Columns::new().with("x", column).check().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
