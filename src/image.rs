//! Decoded images.
//!
//! [`Image::decode`] reads JPEG, PNG, WebP and PNM, and with the feature `image-formats` BMP, GIF, TIFF and
//! QOI. It detects the format from the content. Modes and conversions are the same as in Python's
//! `webdataset`, which uses Pillow. Colour is converted to grey by the weights of ITU-R 601. An alpha channel
//! is dropped without blending. A missing alpha channel is added as opaque. The EXIF orientation is not
//! applied. An animation is decoded to its first frame. There are two differences from Pillow. Pillow applies
//! the orientation tag of a TIFF; this crate ignores that tag, as it ignores the EXIF orientation. Pillow
//! fills a GIF whose first frame does not cover its canvas; here such a GIF is an error.
//!
//! 16-bit values are exact in the 16-bit modes ([`ImageMode::L16`], [`ImageMode::Rgb16`]) and divided by
//! 65535 in the `f32` modes. In the 8-bit modes they are scaled to 8 bits, where Pillow would clip grey
//! values to white.
//!
//! Arithmetic-coded and lossless JPEG files are errors. Without the feature `turbojpeg`, a few rare layouts
//! that the default decoder would misread are errors too: sequential files with subsampled chroma in separate
//! scans, more chroma than luma samples in a row, and markers that contradict each other about the colour
//! space.
//!
//! A truncated or damaged image is an error, never a partial picture, and so is an image without pixels. A
//! JPEG must contain exactly the image data that its pixels need: missing or surplus data is an error, even
//! if an end marker follows. Of these formats, only PNG has checksums. In the other formats, damage that
//! leaves a well-formed file cannot be detected.

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
