use super::super::{JpegScratch, decode, portable};
use super::*;
use proptest::prelude::*;
use std::ptr;

/// The options with which a test file is encoded.
#[derive(Debug, Clone, Copy)]
struct Kind {
    colors: tj::TJPF,
    subsampling: tj::TJSAMP,
    progressive: bool,
    /// MCU rows between restart markers; 0 without restart markers.
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

    /// A file of noise, so that a wrong neighbour of a pixel changes the result.
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
        // SAFETY: the number of pixels fits the size and the format, and the file is copied before it is
        // freed.
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
            let copy = std::slice::from_raw_parts(file, size as usize).to_vec();
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

/// A part of a rectangle, given by fractions of its sides.
fn part(of: Rect, [x, y, width, height]: [f64; 4]) -> Rect {
    let (x, y) = ((f64::from(of.width) * x) as u32, (f64::from(of.height) * y) as u32);
    let some = |most: u32, part: f64| 1 + (f64::from(most - 1) * part) as u32;
    Rect { x, y, width: some(of.width - x, width), height: some(of.height - y, height) }
}

fn fractions() -> impl Strategy<Value = [f64; 4]> {
    any::<[u16; 4]>().prop_map(|numbers| numbers.map(|number| f64::from(number) / 65536.0))
}

/// The pixels of a part of a decoded picture.
fn cut(pixels: &[u8], width: u32, channels: usize, part: Rect) -> Vec<u8> {
    let row = |y: u32| {
        let start = (y * width + part.x) as usize * channels;
        &pixels[start..start + part.width as usize * channels]
    };
    (part.y..part.bottom()).flat_map(row).copied().collect()
}

fn decoded(
    decoder: &mut TurboDecoder,
    file: &[u8],
    request: DecodeRequest,
) -> Result<(Raster, Vec<u8>), ImageError> {
    let mut pixels = vec![7; 5];
    let headers = JpegHeaders::open(file)?;
    let raster = decoder.decode(file, &headers, request, 1 << 24, &mut pixels)?;
    let of = |length: u32| length.div_ceil(raster.shrink) as usize;
    pixels.truncate(of(raster.part.width) * of(raster.part.height) * request.channels);
    Ok((raster, pixels))
}

/// Checks that a decoded window equals that part of the whole decoded picture.
fn check_window(file: &[u8], all: Rect, window: Rect, shrink: u32, channels: usize) {
    check_windows(file, all, window, shrink, channels, &[true, false]);
}

/// As [`check_window`], for each of these values of `verify`.
fn check_windows(file: &[u8], all: Rect, window: Rect, shrink: u32, channels: usize, verified: &[bool]) {
    let decoder = &mut TurboDecoder::default();
    let request = DecodeRequest { window: all, reduction: shrink.into(), channels, verify: verified[0] };
    let (raster, whole) = decoded(decoder, file, request).unwrap();
    assert_eq!(raster, Raster { shrink, part: all });

    let (left, top) = (window.x / shrink, window.y / shrink);
    let (right, bottom) = (window.right().div_ceil(shrink), window.bottom().div_ceil(shrink));
    let (width, height) = (right - left, bottom - top);
    let wanted = cut(&whole, all.width.div_ceil(shrink), channels, Rect { x: left, y: top, width, height });
    for &verify in verified {
        let (raster, some) = decoded(decoder, file, DecodeRequest { window, verify, ..request }).unwrap();
        let (x, y) = (left - raster.part.x / shrink, top - raster.part.y / shrink);
        let found = cut(&some, raster.part.width.div_ceil(shrink), channels, Rect { x, y, width, height });
        assert!(found == wanted, "{all:?} {window:?} {shrink} {verify}");
    }
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
    fn both_decoders_give_nearly_the_same_pixels(
        kind in kind().prop_filter("small", |kind| kind.width.min(kind.height) > 8),
    ) {
        let file = kind.file();
        let headers = JpegHeaders::open(&file).unwrap();
        prop_assume!(headers.unsupported().is_none());
        let request = whole(kind);
        let (_, pixels) = decoded(&mut TurboDecoder::default(), &file, request).unwrap();
        let mut other = Vec::new();
        let limit = 1 << 24;
        portable::decode(&file, &headers, request, limit, &mut Vec::new(), &mut other).unwrap();
        prop_assert_eq!(pixels.len(), other.len());
        // For halved chroma, `zune-jpeg` interpolates the last column and row with samples outside of the
        // picture.
        let inner = Rect::all(kind.width - 1, kind.height - 1);
        let [pixels, other] = [pixels, other].map(|pixels| cut(&pixels, kind.width, 3, inner));
        let differences: Vec<u8> = pixels.iter().zip(&other).map(|(a, b)| a.abs_diff(*b)).collect();
        let worst = *differences.iter().max().unwrap();
        let mean = differences.iter().copied().map(f64::from).sum::<f64>() / differences.len() as f64;
        prop_assert!(worst <= 6 && mean <= 0.5, "{worst} {mean}");
    }

    #[test]
    fn damage_is_an_error_or_a_picture(
        kind in kind(),
        at: prop::sample::Index,
        bit in 0..8u8,
        window in fractions(),
    ) {
        let mut file = kind.file();
        let at = at.index(file.len());
        file[at] ^= 1u8 << bit;
        let request = DecodeRequest { window: part(kind.all(), window), verify: bit % 2 == 0, ..whole(kind) };
        let mut decoder = TurboDecoder::default();
        if let Ok((raster, pixels)) = decoded(&mut decoder, &file, request) {
            prop_assert_eq!(pixels.len(), (raster.part.width * raster.part.height * 3) as usize);
        }
        let request = DecodeRequest { window: Kind::RGB.all(), ..request };
        prop_assert!(decoded(&mut decoder, &Kind::RGB.file(), request).is_ok(), "the next file is read");
    }
}

#[test]
fn a_window_that_is_not_in_the_picture_is_an_error() {
    let Rect { width, height, .. } = Kind::RGB.all();
    for (x, y) in [(width, 0), (width + 90, 0), (0, height), (1, 0), (0, 1)] {
        let request = DecodeRequest { window: Rect { x, y, width, height }, ..whole(Kind::RGB) };
        assert!(decoded(&mut TurboDecoder::default(), &Kind::RGB.file(), request).is_err(), "{x}, {y}");
    }
}

fn whole(kind: Kind) -> DecodeRequest {
    DecodeRequest { window: kind.all(), reduction: 1.0, channels: 3, verify: true }
}

/// The offset at which the image data of a file starts.
fn data(file: &[u8]) -> usize {
    let at = file.windows(2).position(|marker| marker == b"\xff\xda").unwrap() + 2;
    at + usize::from(u16::from_be_bytes([file[at], file[at + 1]]))
}

#[test]
fn data_that_ends_early_is_an_error_unless_it_is_not_verified() {
    for restart in [0, 1] {
        let kind = Kind { restart, ..Kind::RGB };
        let file = kind.file();
        let corner = DecodeRequest { window: Rect::all(5, 5), ..whole(kind) };
        let unverified = DecodeRequest { verify: false, ..corner };
        let decoder = &mut TurboDecoder::default();
        for end in data(&file)..file.len() - 2 {
            let cut = [&file[..end], b"\xff\xd9"].concat();
            assert!(decoded(decoder, &cut, whole(kind)).is_err(), "{end}");
            assert!(decoded(decoder, &cut, corner).is_err(), "{end}");
        }
        // Missing restart markers are detected without decoding.
        let cut = [&file[..file.len() * 3 / 4], b"\xff\xd9"].concat();
        assert_eq!(decoded(decoder, &cut, unverified).is_ok(), restart == 0);
        let cut = [&file[..data(&file) + 20], b"\xff\xd9"].concat();
        assert!(decoded(decoder, &cut, unverified).is_err());
    }
}

#[test]
fn both_decoders_detect_data_that_ends_early() {
    let mut scratch = (TurboDecoder::default(), Vec::new());
    let colors = [tj::TJPF_TJPF_RGB, tj::TJPF_TJPF_GRAY, tj::TJPF_TJPF_CMYK];
    let samplings =
        [tj::TJSAMP_TJSAMP_444, tj::TJSAMP_TJSAMP_422, tj::TJSAMP_TJSAMP_420, tj::TJSAMP_TJSAMP_440];
    let kinds = colors.into_iter().flat_map(|colors| samplings.map(|subsampling| (colors, subsampling)));
    for (colors, subsampling) in kinds {
        let subsampling = if colors == tj::TJPF_TJPF_GRAY { tj::TJSAMP_TJSAMP_GRAY } else { subsampling };
        for (progressive, restart) in [(false, 0), (false, 1), (true, 0), (true, 1), (true, 3)] {
            let kind = Kind { colors, subsampling, progressive, restart, ..Kind::RGB };
            let file = kind.file();
            let last = file.len() - 2;
            for end in (data(&file)..last).step_by(97).chain(last - 20..last) {
                let cut = [&file[..end], b"\xff\xd9"].concat();
                let Ok(headers) = JpegHeaders::open(&cut) else { continue };
                let (request, limit) = (whole(kind), 1 << 20);
                let mut to = Vec::new();
                let complete = headers.scans.complete;
                let one = scratch.0.decode(&cut, &headers, request, limit, &mut to);
                let other = portable::decode(&cut, &headers, request, limit, &mut scratch.1, &mut to);
                // If the missing bits of the last symbol are ones, the missing data is not detected.
                let undetectable = !complete || progressive && end + 2 >= last;
                assert!(undetectable || one.is_err(), "{kind:?} {end} of {last}");
                assert!(undetectable || other.is_err(), "{kind:?} {end} of {last}");
            }
        }
    }
}

#[test]
fn bytes_behind_the_last_pixel_are_an_error_unless_they_are_zeros_or_unverified() {
    let surplus = |kind: Kind, bytes: &[u8], verify: bool| {
        let file = kind.file();
        let (start, end) = file.split_at(file.len() - 2);
        let decoder = &mut TurboDecoder::default();
        let pixels = decoded(decoder, &file, whole(kind)).unwrap();
        let more = [start, bytes, end].concat();
        decoded(decoder, &more, DecodeRequest { verify, ..whole(kind) })
            .map(|found| assert_eq!(found, pixels))
    };
    for (bytes, verify, good) in [
        (&[1; 40][..], false, true),
        (&[1; 40], true, false),
        (&[1; 8], true, false),
        (&[0], true, true),
        (&[0; 40], true, true),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], true, false),
    ] {
        assert_eq!(surplus(Kind::RGB, bytes, verify).is_ok(), good, "{bytes:?} {verify}");
    }
    // If there are markers in the image data, the position of the surplus bytes is unknown.
    for kind in [Kind { restart: 1, ..Kind::RGB }, Kind { progressive: true, ..Kind::RGB }] {
        assert!(surplus(kind, &[1; 40], true).is_err());
    }
}

#[test]
fn files_with_odd_headers_are_decoded_in_rust() {
    let file = Kind::RGB.file();
    let (version, end) = (11, data(&file));
    let mut scratch = JpegScratch::default();
    let mut read = |file: &[u8]| {
        let (headers, mut pixels) = (JpegHeaders::open(file).unwrap(), Vec::new());
        decode(file, &headers, whole(Kind::RGB), 1 << 20, &mut scratch, &mut pixels).unwrap();
        (headers.uses_portable(), pixels)
    };
    assert!(!read(&file).0);
    let mut other = Vec::new();
    let headers = JpegHeaders::open(&file).unwrap();
    let request = whole(Kind::RGB);
    portable::decode(&file, &headers, request, 1 << 20, &mut Vec::new(), &mut other).unwrap();
    for (at, byte) in [(version, 2), (end - 2, 0)] {
        let mut odd = file.clone();
        odd[at] = byte;
        assert!(decoded(&mut TurboDecoder::default(), &odd, whole(Kind::RGB)).is_err());
        assert_eq!(read(&odd), (true, other.clone()));
    }
}

#[test]
fn layouts_that_the_rust_decoder_does_not_support_are_decoded() {
    // All components have the same sampling factors, so none is subsampled.
    let kind = Kind { subsampling: tj::TJSAMP_TJSAMP_444, ..Kind::RGB };
    let mut file = kind.file();
    let factors = file.windows(2).position(|marker| marker == b"\xff\xc0").unwrap() + 11;
    for component in 0..3 {
        assert_eq!(file[factors + 3 * component], 0x11);
        file[factors + 3 * component] = 0x12;
    }
    let window = Rect { x: 30, y: 20, width: 20, height: 20 };
    // With the changed factors, libjpeg expects more blocks than the image data has. Verification would
    // report that, so it is off.
    check_windows(&file, kind.all(), window, 1, 3, &[false]);

    // A CMYK file is decoded if its Adobe segment has the transform 0, and refused if the segment has the
    // transform 1, which contradicts CMYK.
    let mut file = Kind { colors: tj::TJPF_TJPF_CMYK, ..Kind::RGB }.file();
    let adobe = file.windows(5).position(|name| name == b"Adobe").unwrap() + 11;
    assert_eq!(file[adobe], 2);
    file[adobe] = 0;
    check_window(&file, Kind::RGB.all(), window, 1, 3);
    file[adobe] = 1;
    assert!(decoded(&mut TurboDecoder::default(), &file, whole(Kind::RGB)).is_err());
}

#[test]
fn factors_of_a_single_component_have_no_effect() {
    let kind = Kind { colors: tj::TJPF_TJPF_GRAY, subsampling: tj::TJSAMP_TJSAMP_GRAY, ..Kind::RGB };
    let mut file = kind.file();
    let (_, wanted) = decoded(&mut TurboDecoder::default(), &file, whole(kind)).unwrap();
    let factors = file.windows(2).position(|marker| marker == b"\xff\xc0").unwrap() + 11;
    for both in [0x22, 0x21, 0x12, 0x41] {
        file[factors] = both;
        assert_eq!(decoded(&mut TurboDecoder::default(), &file, whole(kind)).unwrap().1, wanted);
        let window = Rect { x: 33, y: 21, width: 9, height: 20 };
        for shrink in [1, 2, 4, 8] {
            check_window(&file, kind.all(), window, shrink, 1);
        }
    }
}

#[test]
fn decoding_beyond_the_memory_limit_is_an_error() {
    for progressive in [false, true] {
        let kind = Kind { progressive, ..Kind::RGB };
        let file = kind.file();
        let headers = JpegHeaders::read(&file).unwrap();
        let (mut decoder, mut pixels) = (TurboDecoder::default(), Vec::new());
        let mut read = |request, limit| decoder.decode(&file, &headers, request, limit, &mut pixels);
        let size = 67 * 53 * 3;
        assert!(read(whole(kind), size).is_ok());
        assert!(matches!(read(whole(kind), size - 1), Err(ImageError::TooLarge { .. })));
        // libjpeg holds files of several scans in memory as a whole.
        let corner = DecodeRequest { window: Rect::all(5, 5), ..whole(kind) };
        assert_eq!(read(corner, size - 1).is_ok(), !progressive);
    }
}
