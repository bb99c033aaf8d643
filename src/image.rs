//! Decoded images.
//!
//! [`Image::decode`] reads JPEG, PNG, WebP and PNM, which it tells apart by their content, and with the
//! feature `image-formats` BMP, GIF, TIFF and QOI. Modes and conversions are those of Python's `webdataset`
//! (that is, of Pillow): colour is converted to grey by the weights of ITU-R 601, transparency is dropped
//! without blending or added as opaque, the EXIF orientation is not applied, and the first picture of an
//! animation is taken. Two things differ: the orientation of a TIFF is treated as that of EXIF, where Pillow
//! applies it, and a GIF whose first picture does not cover its canvas is an error, where Pillow fills the
//! rest.
//!
//! Values of 16 bits are exact in the modes of 16 bits ([`ImageMode::L16`], [`ImageMode::Rgb16`]) and divided
//! by 65535 in the modes of `f32`. In the modes of 8 bits they are scaled to 8 bits, where Pillow would clip
//! grey ones to white.
//!
//! Arithmetic-coded and lossless JPEG files are errors. So are, without the feature `turbojpeg`, a few rare
//! layouts that the default decoder would misread: sequential files with subsampled chroma in separate scans,
//! more chroma than luma samples in a row, and markers that contradict each other about the colour space.
//!
//! A truncated or damaged image is an error, never a partial picture; so is an image without pixels. The
//! image data of a JPEG must be exactly as much as its pixels need: data that ends early or is left over is
//! an error, even if an end marker follows. No reader can detect damage to formats other than PNG that leaves
//! a well-formed file, since these formats have no checksums.

#[doc(inline)]
pub use shardstream_image::{
    AutoAugment, AutoAugmentPolicy, CenterCrop, ColorJitter, Filter, Frame, GaussianBlur, Image, ImageError,
    ImageMode, KeptReason, Layout, Pad, PaddingMode, Pixels, RandAugment, RandomAffine, RandomApply,
    RandomCrop, RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomPerspective, RandomResizedCrop,
    RandomRotation, RandomVerticalFlip, Resize, Shrink, Shrunk, Size, Transform, Transforms,
    TrivialAugmentWide, five_crop, functional, ten_crop,
};
pub(crate) use shardstream_image::{
    Corners, EXTENSIONS, FrameOptions, FrameScratch, Geometry, LabelImage, PixelWriter,
};
