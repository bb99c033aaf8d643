//! `ImageColumn`: decoded and transformed pictures.

use super::boxes::Boxes;
use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::column::Column;
use super::mask::Mask;
use crate::error::{Error, ErrorKind, Result, ValueType};
use crate::image::{
    Frame, FrameOptions, FrameScratch, Geometry, ImageError, ImageMode, Layout, PixelWriter, Size, Transform,
    Transforms,
};
use crate::sample::{DType, Sample, Value};
use std::cell::RefCell;

/// A column of pictures: the file of a field is decoded, transformed and written into the sample's slot.
///
/// As far as possible, the decoder decodes only the pixels that the transforms need. With the feature
/// `turbojpeg`, a picture that the transforms make much smaller is decoded at a scale of 1/2, 1/4 or 1/8 (see
/// [`reducing_gap`](ImageColumn::reducing_gap)). The image data of a JPEG is still read to its end, so that
/// damage is an error. For files that are known to be good, [`verify(false)`](ImageColumn::verify) saves the
/// time for this check.
///
/// The random numbers of the transforms depend on the seed, the epoch, the sample and the name of the column
/// (see [`Columns`](super::Columns)). So two columns that crop one field at random give two different views
/// of the picture. [`boxes`](ImageColumn::boxes) and a label image ([`mask`](ImageColumn::mask)) follow the
/// transforms of the picture; [`same_as`](ImageColumn::same_as) crops a second picture in the same way.
///
/// By default, the tensor is `uint8[samples, height, width, 3]`, with values from 0 to 255.
///
/// ```
/// use shardstream::codec::DType;
/// use shardstream::collate::{Columns, ImageColumn};
/// use shardstream::image::{Image, ImageMode, Layout};
/// use shardstream::Sample;
///
/// let column = ImageColumn::new("jpg;png", (1, 2))
///     .layout(Layout::Chw)
///     .dtype(DType::F32)
///     .normalize([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]);
/// let png = Image::new(ImageMode::Rgb8, (1, 2), vec![255, 255, 255, 0, 0, 0])?.to_png()?;
/// let batch = Columns::new().with("image", column).collate([Sample::new("0001").with("png", png)])?;
/// assert_eq!(batch["image"].shape(), [1, 3, 1, 2]);
/// assert_eq!(batch["image"].as_slice::<f32>()?, [1., -1., 1., -1., 1., -1.]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ImageColumn {
    field: String,
    size: Size,
    transforms: Transforms,
    layout: Layout,
    dtype: DType,
    normalize: Option<(Vec<f32>, Vec<f32>)>,
    options: FrameOptions,
    writer: Result<PixelWriter, String>,
    boxes: Option<Boxes>,
    mask: Option<Mask>,
    /// The column whose random numbers this column draws; `None` if it draws its own.
    follows: Option<String>,
}

thread_local! {
    /// Memory for decoding, reused by the pictures of a thread.
    static SCRATCH: RefCell<FrameScratch> = RefCell::default();
}

impl ImageColumn {
    /// Reads `field`, which may be several alternatives separated by semicolons. `size` is the size of
    /// pictures after the transforms: `(height, width)`, or one number for a square. A transformed picture of
    /// another size is an error.
    #[must_use]
    pub fn new(field: &str, size: impl Into<Size>) -> Self {
        let options = FrameOptions {
            mode: ImageMode::Rgb8,
            keep_wide: false,
            apply_orientation: false,
            reducing_gap: 2.0,
            verify: true,
            limit: 512 << 20,
        };
        ImageColumn {
            field: field.into(),
            size: size.into(),
            transforms: Transforms::new(),
            layout: Layout::Hwc,
            dtype: DType::U8,
            normalize: None,
            options,
            writer: Err(String::new()),
            boxes: None,
            mask: None,
            follows: None,
        }
        .with_writer()
    }

    /// Appends a transform.
    #[doc(alias = "transform")]
    #[doc(alias = "compose")]
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.transforms = self.transforms.then(transform);
        self
    }

    /// Sets the layout of pictures. Default: [`Layout::Hwc`].
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self.with_writer()
    }

    /// Sets the type of the values. `F32`, `BF16` and `F16` have values from 0 to 1. `U8` has values from 0
    /// to 255; in a [mode](ImageColumn::mode) of 16 bits, use `U16`, from 0 to 65535, instead. Default: `U8`.
    ///
    /// For `F32`, `BF16` and `F16`, the values of a file of 16 bits are divided by 65535. In a mode of 8
    /// bits, a transform that works on pixels of 8 bits, such as `ColorJitter`, first scales the pixels of a
    /// 16-bit file to 8 bits.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self.with_writer()
    }

    /// Subtracts the mean of each channel and divides by its standard deviation, where mean and deviation are
    /// given for values from 0 to 1. The `f32` results are exactly those of torchvision's `Normalize`; for
    /// `BF16` and `F16`, these results are rounded. Values of type `U8` and `U16` cannot be normalized.
    #[must_use]
    pub fn normalize(mut self, mean: impl Into<Vec<f32>>, deviation: impl Into<Vec<f32>>) -> Self {
        self.normalize = Some((mean.into(), deviation.into()));
        self.with_writer()
    }

    /// Sets the mode of the decoded pictures, in which the transforms work: `Rgb8` or `L8`. For files of 16
    /// bits, such as depth images, the mode may also be `L16` or `Rgb16`. In these two modes, pictures can be
    /// cropped, resized and flipped. A transform that needs pixels of 8 bits makes the sample fail. Default:
    /// `Rgb8`.
    #[must_use]
    pub fn mode(mut self, mode: ImageMode) -> Self {
        self.options.mode = mode;
        self.with_writer()
    }

    /// Applies the EXIF orientation. Default: false, the same as in torchvision and Pillow.
    #[must_use]
    pub fn apply_orientation(mut self, apply: bool) -> Self {
        self.options.apply_orientation = apply;
        self
    }

    /// Sets how small a JPEG may be decoded before it is resized. The decoder uses a scale of 1/2, 1/4 or 1/8
    /// if the decoded picture is still at least `times` as wide and as high as the requested size. Decoding
    /// is fastest with 1, the minimum. From about 3 on, the result looks the same as if the JPEG had been
    /// decoded at its full size. Default: 2, the same as in Pillow's `thumbnail`.
    #[must_use]
    pub fn reducing_gap(mut self, times: f64) -> Self {
        self.options.reducing_gap = times;
        self
    }

    /// Sets whether a JPEG is decoded to its last row, even if the transforms do not need all rows. If so,
    /// image data that is too short or too long is always an error. Default: true.
    ///
    /// If false, the rows below the needed part are not decoded. That saves an eighth of the time if pictures
    /// are cropped (`docs/benchmarks/2026-11-pixels.md`). Use it for files that are known to be good. A file
    /// without an end marker, data that ends inside the needed part, and restart markers out of order are
    /// still errors. Most other damage is not detected, even inside the needed part, because such damage is
    /// found only at the end of the data, as a wrong length. Other formats are always decoded as a whole.
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Self {
        self.options.verify = verify;
        self
    }

    /// Refuses pictures that take more than this number of bytes when decoded. Default: 512 MiB.
    #[must_use]
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.options.limit = bytes;
        self
    }

    /// Adds the bounding boxes of the picture, which are cropped, flipped, resized and rotated together with
    /// it. Their tensors have the suffix `.boxes` and, if there are labels, `.labels` (see [`Boxes`]). The
    /// coordinates in the field refer to the decoded picture, after the EXIF orientation if
    /// [`apply_orientation`](ImageColumn::apply_orientation) is set.
    ///
    /// Boxes also follow your own transforms, if these crop, flip or resize the picture or call
    /// [`functional`](crate::image::functional). If a transform calls [`Frame::redraw`], the sample fails,
    /// because boxes cannot follow this change.
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::collate::{Boxes, Columns, ImageColumn};
    /// use shardstream::image::{CenterCrop, Image, ImageMode};
    ///
    /// let boxes = Boxes::new("json").at("/boxes").labels_at("json", "/labels").min_visible(0.2);
    /// let image = ImageColumn::new("png", 10).then(CenterCrop::new(10)?).boxes(boxes);
    /// let png = Image::new(ImageMode::Rgb8, (20, 20), vec![0; 1200])?.to_png()?;
    /// let json = r#"{"boxes": [[0, 0, 6, 6], [3, 8, 9, 12], [4, 9, 12, 19]], "labels": [7, 8, 9]}"#;
    /// let sample = Sample::new("0001").with("png", png).with("json", json);
    /// let batch = Columns::new().with("image", image).collate([sample])?;
    /// assert_eq!(batch["image"].shape(), [1, 10, 10, 3]);
    /// assert_eq!(batch["image.boxes"].as_slice::<f32>()?, [0., 3., 4., 7., 0., 4., 7., 10.]);
    /// assert_eq!(batch["image.boxes.offsets"].as_slice::<i64>()?, [0, 2]);
    /// assert_eq!(batch["image.labels"].as_slice::<i64>()?, [8, 9]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn boxes(mut self, boxes: Boxes) -> Self {
        self.boxes = Some(boxes);
        self
    }

    /// Adds the label image of the picture, which is cropped, flipped, resized and rotated together with it.
    /// Its tensor has the suffix `.mask` (see [`Mask`]). The label image follows the same transforms as
    /// [`boxes`](ImageColumn::boxes); [`RandomErasing`](crate::image::RandomErasing) leaves it unchanged.
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::codec::Array;
    /// use shardstream::collate::{Columns, ImageColumn, Mask};
    /// use shardstream::image::{CenterCrop, Image, ImageMode};
    ///
    /// let image = ImageColumn::new("png", 2).then(CenterCrop::new(2)?).mask(Mask::new("seg.npy"));
    /// let png = Image::new(ImageMode::Rgb8, (4, 4), vec![0; 48])?.to_png()?;
    /// let labels = Array::from_vec(vec![4, 4], (0..16u8).collect())?;
    /// let sample = Sample::new("0001").with("png", png).with("seg.npy", labels);
    /// let batch = Columns::new().with("image", image).collate([sample])?;
    /// assert_eq!(batch["image.mask"].as_slice::<u8>()?, [5, 6, 9, 10]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = Some(mask);
        self
    }

    /// Draws the same random numbers as the column with this name. Two columns with the same transforms in
    /// the same order then crop pictures of the same size in the same way. For example, the two columns may
    /// read a picture and its depth image, or two frames of a video. A transform that only one of the columns
    /// has, such as `ColorJitter`, must come last.
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::collate::{Columns, ImageColumn};
    /// use shardstream::image::{Image, ImageMode, RandomCrop};
    ///
    /// let crop = || Ok::<_, shardstream::Error>(ImageColumn::new("png", 2).then(RandomCrop::new(2)?));
    /// let columns = Columns::new()
    ///     .with("image", crop()?)
    ///     .with("pair", crop()?.same_as("image"))
    ///     .with("view", crop()?);
    /// let png = Image::new(ImageMode::Rgb8, (8, 8), (0..192).collect::<Vec<u8>>())?.to_png()?;
    /// let batch = columns.collate([Sample::new("0001").with_position(0, 1).with("png", png)])?;
    /// assert_eq!(batch["pair"], batch["image"]);
    /// assert_ne!(batch["view"], batch["image"]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn same_as(mut self, column: &str) -> Self {
        self.follows = Some(column.into());
        self
    }

    fn with_writer(mut self) -> Self {
        self.options.keep_wide = self.dtype != DType::U8;
        self.writer = self.make_writer();
        self
    }

    fn make_writer(&self) -> Result<PixelWriter, String> {
        let (mode, dtype) = (self.options.mode, self.dtype);
        if !matches!(mode, ImageMode::L8 | ImageMode::Rgb8 | ImageMode::L16 | ImageMode::Rgb16) {
            return Err(format!("`mode` {mode}: take l8, rgb8, l16 or rgb16"));
        }
        let statistics = self.normalize.as_ref().map(|(mean, deviation)| (&mean[..], &deviation[..]));
        if let Some((mean, deviation)) = statistics {
            check::statistics(mean, deviation, mode, dtype).map_err(|what| format!("`normalize` {what}"))?;
        }
        PixelWriter::new(self.size, mode, self.layout, dtype, statistics).ok_or_else(|| {
            match (mode.is_wide(), dtype) {
                (true, _) => {
                    format!("`dtype` {dtype} in `mode` {mode}: take uint16, float32, bfloat16 or float16")
                }
                (false, DType::U16) => {
                    format!("`dtype` {dtype} in `mode` {mode}: set `mode` to l16 or rgb16")
                }
                (false, _) => format!("`dtype` {dtype}: take uint8, float32, bfloat16 or float16"),
            }
        })
    }

    /// Decodes a field of the sample, transforms the picture and writes it into the slot. Returns how the
    /// transforms moved its pixels.
    pub(super) fn draw(&self, sample: &Sample, field: &str, seed: u64, slot: &mut [u8]) -> Result<Geometry> {
        let writer = self.writer.as_ref().map_err(config_error)?;
        let file = match sample.field(field)? {
            Value::Bytes(file) => file,
            other => {
                let (wanted, found) = (ValueType::Named("the raw bytes of a picture"), other.value_type());
                return Err(ErrorKind::WrongType { field: field.into(), wanted, found }.into());
            }
        };
        let decode = |error| Error::decode(field, error);
        SCRATCH.with(|scratch| {
            // If this function was called by a transform of another picture, that picture is using the
            // thread's shared memory.
            let mut own = FrameScratch::default();
            let mut shared = scratch.try_borrow_mut();
            let scratch = shared.as_deref_mut().unwrap_or(&mut own);
            // Trim here and not at the end of the function: if there is an error, the function returns early.
            scratch.trim();
            let mut frame = Frame::open(file, self.options, scratch).map_err(decode)?;
            let rng = &mut sample.rng(seed);
            self.transforms.apply(&mut frame, rng).map_err(|error| error.in_field::<ImageError>(field))?;
            frame.write(writer, slot).map_err(decode)?;
            Ok(frame.geometry().clone())
        })
    }

    /// The output of the pictures.
    pub(super) fn picture(&self) -> Output {
        Output::fixed(self.dtype, self.layout.shape(self.size, self.options.mode.channels()))
    }

    /// Whether the column has boxes or a mask.
    pub(super) fn has_followers(&self) -> bool {
        self.boxes.is_some() || self.mask.is_some()
    }

    /// The field, or several alternatives separated by semicolons.
    pub(super) fn field(&self) -> &str {
        &self.field
    }

    /// Checks that the sizes of pictures are within the limit, and that the transforms make pictures of the
    /// column's size.
    fn check_sizes(&self) -> Result<()> {
        let size = self.size;
        if size.height == 0 || size.width == 0 {
            return Err(config_error(format!("the size {size}: make both at least 1")));
        }
        let (pixel, limit) = (self.options.mode.pixel_size(), self.options.limit);
        for size in self.transforms.sizes().chain([size]) {
            let bytes = size.value_count(pixel).unwrap_or(u64::MAX);
            if bytes > limit as u64 {
                return Err(config_error(format!(
                    "`max_size` of {limit} bytes, and a picture of {size} takes {bytes}: raise it, or make \
                     the picture smaller"
                )));
            }
        }
        match self.transforms.size_after(None) {
            Some(made) if made != size => Err(config_error(format!(
                "the size {size}, and the transforms make pictures of {made}: make both the same"
            ))),
            _ => Ok(()),
        }
    }
}

impl Column for ImageColumn {
    fn outputs(&self) -> Vec<Output> {
        let mut outputs = vec![self.picture()];
        outputs.extend(self.boxes.iter().flat_map(Boxes::outputs));
        outputs.extend(self.mask.iter().map(|mask| mask.output(self.size)));
        outputs
    }

    fn check(&self) -> Result<()> {
        check::field(&self.field)?;
        if let Err(what) = &self.writer {
            return Err(config_error(what));
        }
        let gap = self.options.reducing_gap;
        if gap.is_nan() || gap < 1.0 {
            return Err(config_error(format!("`reducing_gap` of {gap}: make it at least 1")));
        }
        self.transforms.check()?;
        self.check_sizes()?;
        self.boxes.as_ref().map_or(Ok(()), Boxes::check)?;
        self.mask.as_ref().map_or(Ok(()), Mask::check)
    }

    fn follows(&self) -> Option<&str> {
        self.follows.as_deref()
    }

    fn is_picture(&self) -> bool {
        true
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let (cell, cells) = cells.split_first_mut().ok_or_else(check::wrong_cells)?;
        let geometry = self.draw(sample, &self.field, seed, cell.bytes())?;
        if !geometry.is_known() && self.has_followers() {
            return Err(config_error(
                "a transform calls `Frame::redraw`, which boxes and masks cannot follow: use `crop`, \
                 `resize`, `flip_horizontal` and `image::functional`, or change `pixels` where nothing is \
                 moved",
            ));
        }
        // The mask has the last cell.
        let mask_at = cells.len().saturating_sub(usize::from(self.mask.is_some()));
        let (boxes_to, mask_to) = cells.split_at_mut(mask_at);
        if let Some(boxes) = &self.boxes {
            boxes.write(sample, &geometry, boxes_to)?;
        }
        match (&self.mask, mask_to) {
            (Some(mask), [cell]) => mask.write(sample, &geometry, self.options.limit, cell),
            (None, []) => Ok(()),
            _ => Err(check::wrong_cells()),
        }
    }
}
