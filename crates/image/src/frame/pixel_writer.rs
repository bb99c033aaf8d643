//! Writes pixels into slots, in any layout and element type.

use crate::dtype::DType;
use crate::{ImageError, ImageMode, Size};
use half::{bf16, f16};

/// The order of a picture's axes in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// Height, width, channels: the channels of a pixel are adjacent, as on TPUs and in TensorFlow.
    #[default]
    #[doc(alias = "NHWC")]
    #[doc(alias = "channels_last")]
    Hwc,
    /// Channels, height, width: one plane for each channel, as in PyTorch.
    #[doc(alias = "NCHW")]
    #[doc(alias = "channels_first")]
    Chw,
}

impl Layout {
    /// Another name of [`Chw`](Layout::Chw): the usual one for batches of pictures.
    pub const NCHW: Layout = Layout::Chw;
    /// Another name of [`Hwc`](Layout::Hwc): the usual one for batches of pictures.
    pub const NHWC: Layout = Layout::Hwc;

    /// The shape of a picture.
    #[doc(hidden)]
    #[must_use]
    pub fn shape(self, size: Size, channels: usize) -> [usize; 3] {
        let (height, width) = (size.height as usize, size.width as usize);
        match self {
            Layout::Hwc => [height, width, channels],
            Layout::Chw => [channels, height, width],
        }
    }

    /// Divides a picture of this shape into planes. Returns the number of planes, the height, the width, and
    /// the number of values per pixel of a plane. With the channels last there is a single plane, and each of
    /// its pixels has all channels.
    #[doc(hidden)]
    #[must_use]
    pub fn planes(self, [first, second, third]: [usize; 3]) -> (usize, usize, usize, usize) {
        match self {
            Layout::Hwc => (1, first, second, third),
            Layout::Chw => (first, second, third, 1),
        }
    }
}

/// Writes pictures of one size into slots.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct PixelWriter {
    size: Size,
    channels: usize,
    layout: Layout,
    tables: PixelTables,
    /// Mean and standard deviation of each channel, for pixels of 16 bits.
    statistics: Vec<(f32, f32)>,
}

/// The element type of the slots. For floats, each channel has a lookup table with the normalised result for
/// each of its 256 values. A table is as fast as arithmetic, and gives exactly the same results as
/// torchvision's arithmetic.
#[derive(Debug, Clone)]
enum PixelTables {
    U8,
    /// Pixels of 16 bits, written unchanged.
    U16,
    F32(Vec<[f32; 256]>),
    Bf16(Vec<[bf16; 256]>),
    F16(Vec<[f16; 256]>),
}

/// The mean and the standard deviation of each channel.
pub(super) type Statistics<'a> = (&'a [f32], &'a [f32]);

impl PixelWriter {
    /// Values of type `u8` are 0 to 255, and of `u16` 0 to 65535. Values of the float types are 0 to 1, minus
    /// the mean and divided by the deviation if `normalize` is given. Returns `None` for a type that pixels
    /// of the mode cannot have.
    pub fn new(
        size: Size,
        mode: ImageMode,
        layout: Layout,
        dtype: DType,
        normalize: Option<Statistics<'_>>,
    ) -> Option<Self> {
        let channels = mode.channels();
        let tables = match dtype {
            DType::U8 if !mode.is_wide() => PixelTables::U8,
            DType::U16 if mode.is_wide() => PixelTables::U16,
            DType::F32 => PixelTables::F32(tables(channels, normalize, |number| number)),
            DType::BF16 => PixelTables::Bf16(tables(channels, normalize, bf16::from_f32)),
            DType::F16 => PixelTables::F16(tables(channels, normalize, f16::from_f32)),
            _ => return None,
        };
        let statistics = (0..channels).map(|channel| of_channel(normalize, channel)).collect();
        Some(PixelWriter { size, channels, layout, tables, statistics })
    }

    /// Whether the slots get the pixels unchanged.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.tables, PixelTables::U8) && (self.layout == Layout::Hwc || self.channels == 1)
    }

    /// Checks that a picture of this size fills the slot.
    pub(super) fn check(&self, found: Size, slot: &[u8]) -> Result<(), ImageError> {
        let item = match self.tables {
            PixelTables::U8 => 1,
            PixelTables::F32(_) => 4,
            PixelTables::U16 | PixelTables::Bf16(_) | PixelTables::F16(_) => 2,
        };
        let wanted = self.size;
        let bytes = wanted.value_count(self.channels * item);
        let fits = found == wanted && bytes == Some(slot.len() as u64);
        if fits { Ok(()) } else { Err(ImageError::Size { found, wanted }) }
    }

    /// Writes pixels of 8 bits, or of 16 if `wide` is set, into a slot, mirrored if `mirror` is set.
    pub(super) fn write(
        &self,
        pixels: &[u8],
        wide: bool,
        mirror: bool,
        slot: &mut [u8],
    ) -> Result<(), ImageError> {
        let arrangement = Arrangement {
            width: self.size.width as usize,
            channels: self.channels,
            layout: self.layout,
            mirror,
        };
        match wide {
            true => self.write_wide(pixels, arrangement, slot),
            false => self.write_narrow(pixels, arrangement, slot),
        }
    }

    fn write_wide(&self, pixels: &[u8], arrangement: Arrangement, slot: &mut [u8]) -> Result<(), ImageError> {
        let pixels: &[[u8; 2]] = pixels.as_chunks().0;
        let float = |channel: usize, number: [u8; 2]| {
            let (mean, deviation) = self.statistics.get(channel).copied().unwrap_or((0.0, 1.0));
            (f32::from(u16::from_ne_bytes(number)) / 65535.0 - mean) / deviation
        };
        // Slots are aligned for any type.
        match &self.tables {
            PixelTables::U16 => {
                arrange(pixels, arrangement, bytemuck::cast_slice_mut(slot), |_, number| {
                    u16::from_ne_bytes(number)
                });
            }
            PixelTables::F32(_) => arrange(pixels, arrangement, bytemuck::cast_slice_mut(slot), float),
            PixelTables::Bf16(_) => {
                arrange(pixels, arrangement, bytemuck::cast_slice_mut(slot), |channel, number| {
                    bf16::from_f32(float(channel, number))
                })
            }
            PixelTables::F16(_) => {
                arrange(pixels, arrangement, bytemuck::cast_slice_mut(slot), |channel, number| {
                    f16::from_f32(float(channel, number))
                })
            }
            PixelTables::U8 => return Err(wrong_depth()),
        }
        Ok(())
    }

    fn write_narrow(
        &self,
        pixels: &[u8],
        arrangement: Arrangement,
        slot: &mut [u8],
    ) -> Result<(), ImageError> {
        match &self.tables {
            PixelTables::U8 => arrange(pixels, arrangement, slot, |_, number| number),
            PixelTables::U16 => return Err(wrong_depth()),
            PixelTables::F32(tables) => typed(pixels, arrangement, slot, tables),
            PixelTables::Bf16(tables) => typed(pixels, arrangement, slot, tables),
            PixelTables::F16(tables) => typed(pixels, arrangement, slot, tables),
        }
        Ok(())
    }
}

/// The error if the slots have another depth than the pixels. `Frame` prevents it.
fn wrong_depth() -> ImageError {
    ImageError::Decode("the slots have another depth than the pixels".into())
}

/// The mean and the deviation of a channel.
fn of_channel(normalize: Option<Statistics<'_>>, channel: usize) -> (f32, f32) {
    let of = |list: &[f32], default| list.get(channel).or(list.last()).copied().unwrap_or(default);
    normalize.map_or((0.0, 1.0), |(mean, deviation)| (of(mean, 0.0), of(deviation, 1.0)))
}

/// The table of each channel, computed in the order of torchvision's `ToTensor` and `Normalize`.
fn tables<T: Copy + Default>(
    channels: usize,
    normalize: Option<Statistics<'_>>,
    number: fn(f32) -> T,
) -> Vec<[T; 256]> {
    let table = |channel: usize| {
        let (mean, deviation) = of_channel(normalize, channel);
        std::array::from_fn(|byte| number((byte as f32 / 255.0 - mean) / deviation))
    };
    (0..channels).map(table).collect()
}

/// How the pixels of a picture are arranged in a slot.
#[derive(Clone, Copy)]
struct Arrangement {
    width: usize,
    channels: usize,
    layout: Layout,
    mirror: bool,
}

fn typed<T: bytemuck::Pod>(pixels: &[u8], arrangement: Arrangement, slot: &mut [u8], tables: &[[T; 256]]) {
    // Slots are aligned for any type.
    let slot: &mut [T] = bytemuck::cast_slice_mut(slot);
    match tables {
        [table] => arrange(pixels, arrangement, slot, |_, number| table[usize::from(number)]),
        [r, g, b, ..] => {
            let tables = [r, g, b];
            arrange(pixels, arrangement, slot, |channel, number| tables[channel][usize::from(number)]);
        }
        _ => {}
    }
}

fn arrange<P: Copy, T>(
    pixels: &[P],
    Arrangement { width, channels, layout, mirror }: Arrangement,
    slot: &mut [T],
    number: impl Fn(usize, P) -> T,
) {
    match (channels, layout) {
        (1, _) => interleaved::<1, P, T>(pixels, width, mirror, slot, number),
        (_, Layout::Hwc) => interleaved::<3, P, T>(pixels, width, mirror, slot, number),
        (_, Layout::Chw) => planar(pixels, width, mirror, slot, number),
    }
}

fn interleaved<const N: usize, P: Copy, T>(
    pixels: &[P],
    width: usize,
    mirror: bool,
    slot: &mut [T],
    number: impl Fn(usize, P) -> T,
) {
    let draw = |(to, from): (&mut [T; N], &[P; N])| {
        for channel in 0..N {
            to[channel] = number(channel, from[channel]);
        }
    };
    let rows = pixels.as_chunks::<N>().0.chunks_exact(width.max(1));
    for (to, from) in slot.as_chunks_mut::<N>().0.chunks_exact_mut(width.max(1)).zip(rows) {
        if mirror {
            to.iter_mut().rev().zip(from).for_each(draw);
        } else {
            to.iter_mut().zip(from).for_each(draw);
        }
    }
}

/// Writes one plane after the other. That takes half the time of writing all three planes at once.
fn planar<P: Copy, T>(
    pixels: &[P],
    width: usize,
    mirror: bool,
    slot: &mut [T],
    number: impl Fn(usize, P) -> T,
) {
    let (width, size) = (width.max(1), (slot.len() / 3).max(1));
    for (channel, plane) in slot.chunks_exact_mut(size).enumerate().take(3) {
        let rows = pixels.as_chunks::<3>().0.chunks_exact(width);
        for (to, from) in plane.chunks_exact_mut(width).zip(rows) {
            let draw = |(to, from): (&mut T, &[P; 3])| *to = number(channel, from[channel]);
            if mirror {
                to.iter_mut().zip(from.iter().rev()).for_each(draw);
            } else {
                to.iter_mut().zip(from).for_each(draw);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of three pixels.
    const PIXELS: [u8; 18] = [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42, 50, 51, 52];

    fn written(layout: Layout, mirror: bool) -> Vec<u8> {
        let writer = PixelWriter::new(Size::from((2, 3)), ImageMode::Rgb8, layout, DType::U8, None).unwrap();
        let mut slot = vec![0; 18];
        writer.write(&PIXELS, false, mirror, &mut slot).unwrap();
        slot
    }

    #[test]
    fn pixels_are_written_in_each_layout_and_mirrored() {
        assert_eq!(written(Layout::Hwc, false), PIXELS);
        let mirrored = [20, 21, 22, 10, 11, 12, 0, 1, 2, 50, 51, 52, 40, 41, 42, 30, 31, 32];
        assert_eq!(written(Layout::Hwc, true), mirrored);
        let planes = [0, 10, 20, 30, 40, 50, 1, 11, 21, 31, 41, 51, 2, 12, 22, 32, 42, 52];
        assert_eq!(written(Layout::Chw, false), planes);
        let mirrored = [20, 10, 0, 50, 40, 30, 21, 11, 1, 51, 41, 31, 22, 12, 2, 52, 42, 32];
        assert_eq!(written(Layout::Chw, true), mirrored);
    }

    #[test]
    fn values_are_normalized_exactly_and_rounded() {
        let (mean, deviation) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        let normal =
            |byte: u8, channel: usize| (f32::from(byte) / 255.0 - mean[channel]) / deviation[channel];
        let slot = |dtype: DType| {
            let writer = PixelWriter::new(
                Size::from((2, 3)),
                ImageMode::Rgb8,
                Layout::Hwc,
                dtype,
                Some((&mean, &deviation)),
            )
            .unwrap();
            let mut slot = vec![0; 18 * dtype.size()];
            writer.write(&PIXELS, false, false, &mut slot).unwrap();
            slot
        };
        let wanted: Vec<f32> = PIXELS.iter().enumerate().map(|(at, byte)| normal(*byte, at % 3)).collect();
        let read = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        assert_eq!(slot(DType::F32).chunks(4).map(read).collect::<Vec<_>>(), wanted);
        let short = |bytes: &[u8]| u16::from_le_bytes(bytes.try_into().unwrap());
        let rounded: Vec<u16> = wanted.iter().map(|number| bf16::from_f32(*number).to_bits()).collect();
        assert_eq!(slot(DType::BF16).chunks(2).map(short).collect::<Vec<_>>(), rounded);
        let rounded: Vec<u16> = wanted.iter().map(|number| f16::from_f32(*number).to_bits()).collect();
        assert_eq!(slot(DType::F16).chunks(2).map(short).collect::<Vec<_>>(), rounded);
        assert!(
            PixelWriter::new(Size::from((2, 3)), ImageMode::Rgb8, Layout::Hwc, DType::I64, None).is_none()
        );
    }

    #[test]
    fn grey_pictures_have_the_same_bytes_in_both_layouts() {
        let writer =
            PixelWriter::new(Size::from((1, 2)), ImageMode::L8, Layout::Chw, DType::F32, None).unwrap();
        let mut slot = [0; 8];
        writer.write(&[0, 255], false, true, &mut slot).unwrap();
        assert_eq!(slot, [0, 0, 128, 63, 0, 0, 0, 0]);
    }

    #[test]
    fn a_picture_of_another_size_is_an_error() {
        let writer =
            PixelWriter::new(Size::from((2, 3)), ImageMode::Rgb8, Layout::Hwc, DType::U8, None).unwrap();
        assert!(writer.check(Size::from((2, 3)), &[0; 18]).is_ok());
        assert!(writer.check(Size::from((3, 2)), &[0; 18]).is_err());
        assert!(writer.check(Size::from((2, 3)), &[0; 17]).is_err());
    }
}
