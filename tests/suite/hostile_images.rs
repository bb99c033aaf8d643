//! Small files that would take much memory or time to decode are refused before they are decoded.

use shardstream::image::{Image, ImageError, ImageMode, Size};

fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
    [&[0xff, marker], &(content.len() as u16 + 2).to_be_bytes()[..], content].concat()
}

/// The headers of a grey JPEG, up to its first scan.
fn jpeg(frame: u8, (height, width): (u16, u16), interval: u16) -> Vec<u8> {
    let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
    let frame = segment(frame, &[&[8], &size[..], &[1, 1, 0x11, 0]].concat());
    [b"\xff\xd8".to_vec(), frame, segment(0xdd, &interval.to_be_bytes())].concat()
}

fn scan() -> Vec<u8> {
    segment(0xda, &[1, 1, 0, 0, 63, 0])
}

/// Decodes 2 MB of restart markers. In an earlier version, 134 MB of restart markers took 1.7 GB of memory.
#[test]
fn restart_markers_take_no_memory() {
    let markers: Vec<u8> = (0..1 << 20).flat_map(|number: u32| [0xff, 0xd0 + (number % 8) as u8]).collect();
    let file = [jpeg(0xc0, (65535, 65535), 1), scan(), markers, b"\xff\xd9".to_vec()].concat();
    assert_eq!(Image::size_in(&file).unwrap(), Size { height: 65535, width: 65535 });
    assert!(Image::decode(&file, ImageMode::L8).is_err());
    // The file has as many markers as the picture needs, but the limit is below the picture's size.
    let markers: Vec<u8> =
        (1..1 << 16).flat_map(|number: u32| [0xff, 0xd0 + ((number + 7) % 8) as u8]).collect();
    let file = [jpeg(0xc0, (2048, 2048), 1), scan(), markers, b"\xff\xd9".to_vec()].concat();
    let error = Image::decode_within(&file, ImageMode::L8, 1 << 19).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
}

/// A few bytes that claim a huge picture, in each format of the feature `image-formats`.
#[cfg(feature = "image-formats")]
#[test]
fn other_formats_are_bounded_before_allocation() {
    let wide = 19_000_u32;
    let bmp = [
        b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec(),
        [wide.to_le_bytes(), wide.to_le_bytes()].concat(),
        [&[1, 0, 24, 0][..], &[0; 24]].concat(),
    ];
    let side = (wide as u16).to_le_bytes();
    let picture = [&b"\x2c\0\0\0\0"[..], &side, &side, b"\0\x02\x02\x4c\x01\0\x3b"].concat();
    let gif = [b"GIF89a".to_vec(), [side, side].concat(), b"\x80\0\0\0\0\0\xff\xff\xff".to_vec(), picture];
    let qoi = [b"qoif".to_vec(), [wide.to_be_bytes(), wide.to_be_bytes()].concat(), vec![3, 0, 0xff]];
    // One strip of all rows, in 8 bits of grey, uncompressed. The file ends before the bytes of the strip.
    let entries: [(u16, u32); 8] =
        [(256, wide), (257, wide), (258, 8), (259, 1), (262, 1), (273, 8), (278, wide), (279, wide * 9)];
    let entry = |(tag, value): (u16, u32)| {
        [&tag.to_le_bytes()[..], &4_u16.to_le_bytes(), &1_u32.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    let directory = entries.into_iter().flat_map(entry).collect();
    let tiff = [b"II*\0\x08\0\0\0\x08\0".to_vec(), directory, vec![0; 4]];
    for (name, file) in
        [("bmp", bmp.concat()), ("gif", gif.concat()), ("qoi", qoi.concat()), ("tiff", tiff.concat())]
    {
        let error = Image::decode(&file, ImageMode::Rgb8).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{name}: {error:?}");
    }
}

#[test]
fn the_size_is_read_from_the_headers_alone() {
    let headers = [jpeg(0xc0, (7, 9), 0), scan()].concat();
    assert_eq!(Image::size_in(&headers).unwrap(), Size { height: 7, width: 9 });
    assert!(Image::decode(&headers, ImageMode::L8).is_err());
}

#[test]
fn progressive_files_are_bounded_in_scans_and_memory() {
    let file =
        |scans: usize| [jpeg(0xc2, (10880, 16384), 0), scan().repeat(scans), b"\xff\xd9".to_vec()].concat();
    let error = Image::decode(&file(92), ImageMode::L8).unwrap_err();
    assert!(matches!(error, ImageError::TooManyScans { .. }), "{error}");
    assert!(error.to_string().contains("jpegtran"), "{error}");
    // A progressive file needs memory for its coefficients in addition to the pixels.
    let error = Image::decode(&file(2), ImageMode::L8).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
}

/// A canvas of 8 x 8 whose picture has 14000 x 14000 pixels is refused. In an earlier version, decoding it
/// took 313 MB under a limit of 1 MB.
#[test]
fn a_webp_picture_is_as_large_as_its_canvas() {
    let chunk = |name: &[u8], content: &[u8]| {
        let pad = vec![0; content.len() % 2];
        [name, &(content.len() as u32).to_le_bytes(), content, &pad].concat()
    };
    let whole = |chunks: Vec<u8>| {
        let body = [b"WEBP".to_vec(), chunks].concat();
        [b"RIFF".to_vec(), (body.len() as u32).to_le_bytes().to_vec(), body].concat()
    };
    let number = |pixels: u32| (pixels - 1).to_le_bytes()[..3].to_vec();
    let canvas =
        |flags, pixels| chunk(b"VP8X", &[vec![flags, 0, 0, 0], number(pixels), number(pixels)].concat());
    let lossy = |pixels: u16| {
        let size = [pixels.to_le_bytes(), pixels.to_le_bytes()].concat();
        let data = [&[0x10, 0, 0, 0x9d, 0x01, 0x2a], &size[..], &[0; 40]].concat();
        chunk(b"VP8 ", &data)
    };
    let lossless = |pixels: u32| {
        let bits = (pixels - 1) | (pixels - 1) << 14;
        chunk(b"VP8L", &[&[0x2f], &bits.to_le_bytes()[..], &[0; 40]].concat())
    };
    let animated = |frame: u32, picture: Vec<u8>| {
        let head = [vec![0; 6], number(frame), number(frame), vec![0; 4]].concat();
        [canvas(2, 8), chunk(b"ANIM", &[0; 6]), chunk(b"ANMF", &[head, picture].concat())].concat()
    };
    for chunks in [
        [canvas(0, 8), lossy(14000)].concat(),
        [canvas(0, 8), lossless(14000)].concat(),
        animated(8, lossy(14000)),
        animated(8, lossless(14000)),
    ] {
        let file = whole(chunks);
        for error in [
            Image::decode_within(&file, ImageMode::Rgb8, 1 << 20).map(drop).unwrap_err(),
            Image::size_in(&file).map(drop).unwrap_err(),
        ] {
            let error = format!("{:#}", shardstream::Error::from(error));
            assert!(error.contains("contradicts itself about its size"), "{error}");
        }
    }
    let sound = Image::new(ImageMode::Rgb8, (5, 7), vec![9u8; 105]).unwrap();
    assert_eq!(Image::decode(&sound.to_webp().unwrap(), ImageMode::Rgb8).unwrap(), sound);
}
