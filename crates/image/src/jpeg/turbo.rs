//! The libjpeg-turbo decoder: only the requested window, at the smallest scale that suffices.
//!
//! The decoder skips rows above the window, and does not transform columns beside it. It decodes the rows
//! below the window if these rows have to be verified, and ignores them otherwise. The pixels in the window
//! are exactly the same as if the whole picture had been decoded at this scale.
//!
//! libjpeg warns about damage and continues. Here every warning is an error, with one exception: zeros after
//! the last pixel are allowed. If nothing has to be verified, any bytes are allowed there.
#![allow(unsafe_code)]

use super::JpegHeaders;
use super::request::DecodeRequest;
use crate::ImageError;
use crate::checks::checked_size;
use crate::convert::{cmyk_to_rgb, convert_in_place};
use crate::raster::{Raster, first_bytes};
use crate::rectangle::Rect;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr::NonNull;
use turbojpeg_sys as tj;

/// Maximum number of scans of a progressive file, the same as in the decoder in Rust.
const SCANS: c_int = 100;

// The bindings assume that `size_t` has the size of `usize`. On 64-bit Windows it does not, and the calls
// would be wrong.
const _: () = assert!(size_of::<tj::size_t>() == size_of::<usize>(), "turbojpeg is not for this platform");

/// Decodes files one after the other with the same TurboJPEG instance.
#[derive(Default)]
pub(super) struct TurboDecoder(Option<Handle>);

impl TurboDecoder {
    pub(super) fn decode(
        &mut self,
        file: &[u8],
        headers: &JpegHeaders,
        request: DecodeRequest,
        limit: usize,
        to: &mut Vec<u8>,
    ) -> Result<Raster, ImageError> {
        // After an error the instance is dropped: it may still be in the middle of its file.
        let mut handle = self.0.take().map_or_else(Handle::new, Ok)?;
        let raster = handle.decode(file, headers, request, limit, to)?;
        self.0 = Some(handle);
        Ok(raster)
    }
}

/// An instance of TurboJPEG's decompressor.
struct Handle(NonNull<std::ffi::c_void>);

// SAFETY: an instance is an object on the heap that belongs to no thread, and this is the only pointer to it.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the instance is alive, and is not used after this.
        unsafe { tj::tj3Destroy(self.0.as_ptr()) }
    }
}

impl Handle {
    fn new() -> Result<Self, ImageError> {
        // SAFETY: the only argument is a number.
        let instance = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let handle = Handle(
            NonNull::new(instance)
                .ok_or_else(|| failed("libjpeg-turbo cannot create a decoder: out of memory"))?,
        );
        handle.set(tj::TJPARAM_TJPARAM_STOPONWARNING, 1)?;
        handle.set(tj::TJPARAM_TJPARAM_SCANLIMIT, SCANS)?;
        // By default, libjpeg-turbo would copy colour profiles.
        handle.set(tj::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        Ok(handle)
    }

    fn decode(
        &mut self,
        file: &[u8],
        headers: &JpegHeaders,
        request: DecodeRequest,
        limit: usize,
        to: &mut Vec<u8>,
    ) -> Result<Raster, ImageError> {
        let length = file.len() as tj::size_t;
        // SAFETY: the instance is alive, and `length` is the length of `file`.
        let done = unsafe { tj::tj3DecompressHeader(self.0.as_ptr(), file.as_ptr(), length) };
        self.checked(done)?;
        let of = |number: c_int| u32::try_from(number).unwrap_or_default();
        let width = of(self.get(tj::TJPARAM_TJPARAM_JPEGWIDTH));
        let height = of(self.get(tj::TJPARAM_TJPARAM_JPEGHEIGHT));
        if (width, height) != (headers.width.into(), headers.height.into()) || width == 0 || height == 0 {
            return Err(failed(
                "the JPEG file is of an unsupported kind, or contradicts itself about its size",
            ));
        }
        if request.window.right() > width || request.window.bottom() > height {
            return Err(failed("the requested part is not inside of the picture"));
        }
        let (format, channels) = match of(self.get(tj::TJPARAM_TJPARAM_COLORSPACE)) {
            tj::TJCS_TJCS_GRAY => (tj::TJPF_TJPF_GRAY, 1),
            tj::TJCS_TJCS_CMYK | tj::TJCS_TJCS_YCCK => (tj::TJPF_TJPF_CMYK, 4),
            _ => (tj::TJPF_TJPF_RGB, 3),
        };
        // libjpeg holds all coefficients of a file of several scans in memory.
        if !headers.is_one_pass() {
            checked_size(width, height, channels.max(request.channels), limit)?;
        }

        let shrink =
            [8, 4, 2].into_iter().find(|shrink| f64::from(*shrink) <= request.reduction).unwrap_or(1);
        let scale = tj::tjscalingfactor { num: 1, denom: shrink as c_int };
        // SAFETY: the instance is alive.
        let done = unsafe { tj::tj3SetScalingFactor(self.0.as_ptr(), scale) };
        self.checked(done)?;
        let all = Rect::all(width.div_ceil(shrink), height.div_ceil(shrink));
        let mut region = region(request.window, shrink, headers.unit_width(), all);
        // In a file of one scan, libjpeg does not read the data below the region. So the region is extended
        // to the last row if that data must be verified. In a file of several scans, libjpeg always reads all
        // data first.
        if request.verify && headers.is_one_pass() {
            region.height = all.height - region.y;
        }
        let region = if region != all && self.crop(region) {
            region
        } else {
            self.uncrop()?;
            all
        };

        let size = checked_size(region.width, region.height, channels.max(request.channels), limit)?;
        let pixels = region.width as usize * region.height as usize;
        let to = first_bytes(to, size);
        let size = pixels * channels;
        // SAFETY: the instance is alive, `length` is the length of `file`, and the file has not changed since
        // its header was read. `to` has room for the region's pixels in `format`, without gaps between the
        // rows: the region is a part of the picture at that scale, or the whole picture.
        let done =
            unsafe { tj::tj3Decompress8(self.0.as_ptr(), file.as_ptr(), length, to.as_mut_ptr(), 0, format) };
        if done != 0 {
            let surplus = self.surplus().filter(|_| headers.is_one_pass());
            let harmless =
                surplus.is_some_and(|surplus| !request.verify || headers.is_filled_up(file, surplus));
            if !harmless {
                return Err(self.error());
            }
        }
        if channels == 4 {
            cmyk_to_rgb(&mut to[..size]);
        }
        convert_in_place(to, pixels, channels.min(3), request.channels);
        Ok(Raster { shrink, part: unscaled(region, shrink, width, height) })
    }

    /// Limits decoding to a region. Returns whether the file permits that.
    fn crop(&self, region: Rect) -> bool {
        let region = tj::tjregion {
            x: region.x as c_int,
            y: region.y as c_int,
            w: region.width as c_int,
            h: region.height as c_int,
        };
        // SAFETY: the instance is alive.
        unsafe { tj::tj3SetCroppingRegion(self.0.as_ptr(), region) == 0 }
    }

    fn uncrop(&self) -> Result<(), ImageError> {
        if self.crop(Rect::all(0, 0)) { Ok(()) } else { Err(self.error()) }
    }

    fn set(&self, parameter: c_uint, value: c_int) -> Result<(), ImageError> {
        // SAFETY: the instance is alive.
        self.checked(unsafe { tj::tj3Set(self.0.as_ptr(), parameter as c_int, value) })
    }

    fn get(&self, parameter: c_uint) -> c_int {
        // SAFETY: the instance is alive.
        unsafe { tj::tj3Get(self.0.as_ptr(), parameter as c_int) }
    }

    fn checked(&self, done: c_int) -> Result<(), ImageError> {
        if done == 0 { Ok(()) } else { Err(self.error()) }
    }

    fn error(&self) -> ImageError {
        failed(self.message())
    }

    /// The number of bytes between the last pixel and the end marker, if the error is only a warning about
    /// these bytes. Decoding stops at the first warning, so there was no earlier warning, and all pixels have
    /// been written.
    fn surplus(&self) -> Option<usize> {
        // SAFETY: the instance is alive.
        let code = unsafe { tj::tj3GetErrorCode(self.0.as_ptr()) };
        let message = self.message();
        let count = message.strip_suffix(" extraneous bytes before marker 0xd9")?.rsplit(' ').next()?;
        count.parse().ok().filter(|_| code == tj::TJERR_TJERR_WARNING as c_int)
    }

    /// The message of the last error.
    fn message(&self) -> String {
        // SAFETY: the instance is alive, and the text is copied before another call can change it.
        let text = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.0.as_ptr())) };
        text.to_string_lossy().into_owned()
    }
}

/// The region to decode for a window, in the coordinates of the picture reduced by `shrink`. `all` is the
/// rectangle of the reduced picture. The region starts at an MCU, and includes the neighbours of the window
/// that chroma interpolation reads.
fn region(window: Rect, shrink: u32, unit: u32, all: Rect) -> Rect {
    const NEIGHBOURS: u32 = 2;
    let unit = (unit / shrink).max(1);
    let left = (window.x / shrink).saturating_sub(NEIGHBOURS) / unit * unit;
    let right = (window.right().div_ceil(shrink) + NEIGHBOURS).min(all.width);
    let top = window.y / shrink;
    let bottom = window.bottom().div_ceil(shrink).min(all.height);
    Rect { x: left, y: top, width: right - left, height: bottom - top }
}

/// Converts a region of the reduced picture to the part of the full picture, which has `width` x `height`
/// pixels.
fn unscaled(region: Rect, shrink: u32, width: u32, height: u32) -> Rect {
    let (x, y) = (region.x * shrink, region.y * shrink);
    let right = (region.right() * shrink).min(width);
    let bottom = (region.bottom() * shrink).min(height);
    Rect { x, y, width: right - x, height: bottom - y }
}

fn failed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ImageError {
    ImageError::Decode(why.into())
}

#[cfg(test)]
mod tests;
