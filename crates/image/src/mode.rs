//! The channels and number types of images.

use crate::dtype::DType;
use crate::{Error, ErrorKind};
use std::fmt;
use std::str::FromStr;

/// The channels and the number type of an image. The names are those of webdataset's image specifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageMode {
    /// `l8`: grey, 0 to 255.
    L8,
    /// `rgb8`: colour, 0 to 255.
    Rgb8,
    /// `rgba8`: colour and opacity, 0 to 255.
    Rgba8,
    /// `l`: grey, 0 to 1.
    LF32,
    /// `rgb`: colour, 0 to 1.
    RgbF32,
    /// `rgba`: colour and opacity, 0 to 1.
    RgbaF32,
    /// `l16`: grey, 0 to 65535, as in depth and medical pictures. Files of 16 bits keep their values; values
    /// of fewer bits are scaled so that white becomes 65535. webdataset has no such mode.
    L16,
    /// `rgb16`: colour, 0 to 65535. Values are scaled as in [`L16`](ImageMode::L16). webdataset has no such
    /// mode.
    Rgb16,
}

impl ImageMode {
    const ALL: [Self; 8] =
        [Self::L8, Self::Rgb8, Self::Rgba8, Self::LF32, Self::RgbF32, Self::RgbaF32, Self::L16, Self::Rgb16];

    /// The number of channels of a pixel.
    #[must_use]
    pub fn channels(self) -> usize {
        match self {
            ImageMode::L8 | ImageMode::LF32 | ImageMode::L16 => 1,
            ImageMode::Rgb8 | ImageMode::RgbF32 | ImageMode::Rgb16 => 3,
            ImageMode::Rgba8 | ImageMode::RgbaF32 => 4,
        }
    }

    /// Whether the values are `u16` from 0 to 65535.
    #[must_use]
    pub fn is_wide(self) -> bool {
        matches!(self, ImageMode::L16 | ImageMode::Rgb16)
    }

    /// Whether the values are `f32` from 0 to 1.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, ImageMode::LF32 | ImageMode::RgbF32 | ImageMode::RgbaF32)
    }

    /// The number of bytes of a pixel.
    #[must_use]
    pub fn pixel_size(self) -> usize {
        let number = match self.number() {
            DType::F32 => size_of::<f32>(),
            DType::U16 => size_of::<u16>(),
            _ => 1,
        };
        self.channels() * number
    }

    /// The type of the values.
    pub(super) fn number(self) -> DType {
        match (self.is_float(), self.is_wide()) {
            (true, _) => DType::F32,
            (_, true) => DType::U16,
            _ => DType::U8,
        }
    }

    /// The name of the mode. If webdataset has the mode, the name is the same as in webdataset.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ImageMode::L8 => "l8",
            ImageMode::Rgb8 => "rgb8",
            ImageMode::Rgba8 => "rgba8",
            ImageMode::LF32 => "l",
            ImageMode::RgbF32 => "rgb",
            ImageMode::RgbaF32 => "rgba",
            ImageMode::L16 => "l16",
            ImageMode::Rgb16 => "rgb16",
        }
    }
}

impl fmt::Display for ImageMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ImageMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        ImageMode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let names = ImageMode::ALL.map(ImageMode::name).join(", ");
            ErrorKind::Config(format!("unknown image mode {name:?}; known are {names}")).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_names_of_webdataset() {
        for (name, mode) in [
            ("l8", ImageMode::L8),
            ("rgb", ImageMode::RgbF32),
            ("rgba8", ImageMode::Rgba8),
            ("l16", ImageMode::L16),
        ] {
            assert_eq!(name.parse::<ImageMode>().unwrap(), mode);
            assert_eq!(mode.to_string(), name);
        }
        assert!("RGB".parse::<ImageMode>().unwrap_err().to_string().contains("rgba8"));
    }
}
