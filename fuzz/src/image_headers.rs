//! Decoding an image file takes little memory and time, whatever size its header claims.
//!
//! The first byte of the input chooses the format. The file consists of the format's signature, the other
//! bytes of the input, and the format's end marker if the format has one.

use crate::memory::within;
use shardstream::image::{Image, ImageMode};

const LIMIT: usize = 1 << 20;
/// Limit on all allocated memory. Before the WebP decoder reads a partition, it allocates as many bytes as
/// the partition claims to have: up to 16 MiB.
const MAX_MEMORY: u64 = 24 << 20;

pub fn run(data: &[u8]) {
    let &[format, ref rest @ ..] = data else { return };
    let (before, after): (&[u8], &[u8]) = match format % 8 {
        0 => (b"\xff\xd8", b"\xff\xd9"),
        1 => (b"\x89PNG\r\n\x1a\n", b""),
        2 => (b"RIFF\xff\xff\0\0WEBP", b""),
        4 => (b"BM", b""),
        5 => (b"GIF89a", b"\0\x3b"),
        6 => (b"II*\0", b""),
        7 => (b"qoif", b"\0\0\0\0\0\0\0\x01"),
        // A chunk of an extended WebP, with a canvas of 8 x 8.
        _ => (b"RIFF\xff\xff\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x07\0\0\x07\0\0", b""),
    };
    let file = [before, rest, after].concat();
    let size = Image::size_in(&file);
    for mode in [ImageMode::L8, ImageMode::Rgb16, ImageMode::RgbaF32] {
        within(MAX_MEMORY, || {
            if let Ok(image) = Image::decode_within(&file, mode, LIMIT) {
                assert!(image.size() <= LIMIT);
                assert_eq!(size.as_ref().ok(), Some(&(image.height(), image.width()).into()));
            }
        });
    }
}
