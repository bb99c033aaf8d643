use super::super::{Scratch, decode};
use super::*;
use proptest::prelude::*;
use std::ptr;

/// What a file is made with.
#[derive(Debug, Clone, Copy)]
struct Kind {
    colors: tj::TJPF,
    subsampling: tj::TJSAMP,
    progressive: bool,
    /// Rows of units between the markers to restart from.
    restart: c_int,
    width: u32,
    height: u32,
}

impl Kind {
    const RGB: Self = Kind {
        colors: tj::TJPF_TJPF_RGB,
        subsampling: tj::TJSAMP_TJSAMP_420,
        progressive: false,
        restart: 0,
        width: 67,
        height: 53,
    };

    /// A file of edges and noise: what neighbours look like matters.
    fn file(self) -> Vec<u8> {
        let channels = [1, 3, 4][usize::from(self.colors == tj::TJPF_TJPF_RGB)
            + 2 * usize::from(self.colors == tj::TJPF_TJPF_CMYK)];
        let count = self.width * self.height * channels;
        let mut state = self.width * 977 + self.height;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let pixels: Vec<u8> = (0..count).map(step).collect();
        let (mut file, mut size) = (ptr::null_mut(), 0);
        // SAFETY: the pixels are as many as they have to be, and the file is copied before it is freed.
        unsafe {
            let handle = tj::tj3Init(tj::TJINIT_TJINIT_COMPRESS as c_int);
            for (parameter, value) in [
                (tj::TJPARAM_TJPARAM_QUALITY, 80),
                (tj::TJPARAM_TJPARAM_SUBSAMP, self.subsampling),
                (tj::TJPARAM_TJPARAM_PROGRESSIVE, self.progressive.into()),
                (tj::TJPARAM_TJPARAM_RESTARTROWS, self.restart),
            ] {
                assert_eq!(tj::tj3Set(handle, parameter as c_int, value), 0);
            }
            let (width, height) = (self.width as c_int, self.height as c_int);
            let pixels = pixels.as_ptr();
            let done =
                tj::tj3Compress8(handle, pixels, width, 0, height, self.colors, &raw mut file, &raw mut size);
            assert_eq!(done, 0);
            let copy = std::slice::from_raw_parts(file, size).to_vec();
            tj::tj3Free(file.cast());
            tj::tj3Destroy(handle);
            copy
        }
    }

    fn all(self) -> Rect {
        Rect::all(self.width, self.height)
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let colors = prop_oneof![
        4 => Just(tj::TJPF_TJPF_RGB),
        1 => Just(tj::TJPF_TJPF_GRAY),
        1 => Just(tj::TJPF_TJPF_CMYK)
    ];
    let subsampling = (0..7).prop_filter("grey has no colours", |of| *of != tj::TJSAMP_TJSAMP_GRAY);
    (colors, subsampling, any::<bool>(), 0..3, 1..150u32, 1..150u32).prop_map(
        |(colors, subsampling, progressive, restart, width, height)| {
            let grey = colors == tj::TJPF_TJPF_GRAY;
            let subsampling = if grey { tj::TJSAMP_TJSAMP_GRAY } else { subsampling };
            Kind { colors, subsampling, progressive, restart, width, height }
        },
    )
}

/// A part of a picture, by fractions of what there is.
fn part(of: Rect, [x, y, width, height]: [f64; 4]) -> Rect {
    let (x, y) = ((f64::from(of.width) * x) as u32, (f64::from(of.height) * y) as u32);
    let some = |most: u32, part: f64| 1 + (f64::from(most - 1) * part) as u32;
    Rect { x, y, width: some(of.width - x, width), height: some(of.height - y, height) }
}

fn fractions() -> impl Strategy<Value = [f64; 4]> {
    any::<[u16; 4]>().prop_map(|numbers| numbers.map(|number| f64::from(number) / 65536.0))
}

/// The pixels of a part of a picture that is in memory.
fn cut(pixels: &[u8], width: u32, channels: usize, part: Rect) -> Vec<u8> {
    let row = |y: u32| {
        let start = (y * width + part.x) as usize * channels;
        &pixels[start..start + part.width as usize * channels]
    };
    (part.y..part.bottom()).flat_map(row).copied().collect()
}

fn decoded(decoder: &mut Decoder, file: &[u8], ask: Ask) -> Result<(Raster, Vec<u8>), ImageError> {
    let mut pixels = vec![7; 5];
    let headers = Headers::read(file).ok_or(ImageError::Truncated)?;
    let raster = decoder.decode(file, &headers, ask, 1 << 24, &mut pixels)?;
    Ok((raster, pixels))
}

/// A window, where it is asked for, is what stands there when everything is decoded.
fn check_window(file: &[u8], all: Rect, window: Rect, shrink: u32, channels: usize) {
    let decoder = &mut Decoder::default();
    let ask = Ask { window: all, reduction: shrink.into(), channels };
    let (raster, whole) = decoded(decoder, file, ask).unwrap();
    assert_eq!(raster, Raster { shrink, part: all });
    let (raster, some) = decoded(decoder, file, Ask { window, ..ask }).unwrap();

    let (left, top) = (window.x / shrink, window.y / shrink);
    let (right, bottom) = (window.right().div_ceil(shrink), window.bottom().div_ceil(shrink));
    let (width, height) = (right - left, bottom - top);
    let wanted = cut(&whole, all.width.div_ceil(shrink), channels, Rect { x: left, y: top, width, height });
    let (x, y) = (left - raster.part.x / shrink, top - raster.part.y / shrink);
    let found = cut(&some, raster.part.width.div_ceil(shrink), channels, Rect { x, y, width, height });
    assert!(found == wanted, "{all:?} {window:?} {shrink}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_window_is_a_part_of_the_picture(
        kind in kind(),
        window in fractions(),
        shrink in proptest::sample::select(vec![1, 2, 4, 8]),
        grey: bool,
    ) {
        let window = part(kind.all(), window);
        check_window(&kind.file(), kind.all(), window, shrink, if grey { 1 } else { 3 });
    }

    #[test]
    fn the_other_decoder_sees_the_same(kind in kind()) {
        let file = kind.file();
        let headers = Headers::read(&file).unwrap();
        prop_assume!(headers.fault().is_none());
        let ask = Ask { window: kind.all(), reduction: 1.0, channels: 3 };
        let (_, pixels) = decoded(&mut Decoder::default(), &file, ask).unwrap();
        let mut other = Vec::new();
        let limit = 1 << 24;
        super::super::portable::decode(&file, &headers, ask, limit, &mut Vec::new(), &mut other).unwrap();
        let off = pixels.iter().zip(&other).map(|(a, b)| a.abs_diff(*b));
        let worst = off.clone().max().unwrap();
        let mean = off.map(f64::from).sum::<f64>() / pixels.len() as f64;
        prop_assert!(pixels.len() == other.len() && worst <= 8 && mean <= 1.0, "{worst} {mean}");
    }

    #[test]
    fn damage_is_an_error_or_a_picture(kind in kind(), at: prop::sample::Index, bit in 0..8, window in fractions()) {
        let mut file = kind.file();
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        let ask = Ask { window: part(kind.all(), window), reduction: 1.0, channels: 3 };
        let mut decoder = Decoder::default();
        if let Ok((raster, pixels)) = decoded(&mut decoder, &file, ask) {
            prop_assert_eq!(pixels.len(), (raster.part.width * raster.part.height * 3) as usize);
        }
        let ask = Ask { window: Kind::RGB.all(), ..ask };
        prop_assert!(decoded(&mut decoder, &Kind::RGB.file(), ask).is_ok(), "the next file is read");
    }
}
