//! Image data of JPEG files that is not that of their pixels: an error, whatever part of the picture is asked for.

use shardstream::image::{Frame, Image, ImageMode, Transforms};
use shardstream::{Error, Result, Rng};
use std::ops::Range;
use std::path::Path;

const END: &[u8] = b"\xff\xd9";

/// A file of each kind, by name.
fn files() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec/images");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().unwrap() == "jpg")
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    assert!(files.len() > 6);
    files.extend([("shapes".to_owned(), picture(1)), ("noise".to_owned(), picture(80))]);
    files
}

/// A picture of shapes with so much noise over them.
fn picture(noise: u64) -> Vec<u8> {
    let mut rng = Rng::new(noise, 0, 0);
    let mut pixels = Vec::new();
    for (y, x) in (0..90_i32).flat_map(|y| (0..120_i32).map(move |x| (y, x))) {
        let shape = if (x / 17 + y / 23) % 2 == 0 { 60 } else { 160 - x / 3 };
        pixels.extend([0, 20, 50].map(|color| (shape + color) as u8 + rng.below(noise) as u8 / 2));
    }
    Image::new(ImageMode::Rgb8, 120, 90, pixels).unwrap().to_jpeg(85).unwrap()
}

/// Where the image data of a file is.
fn data(file: &[u8]) -> Range<usize> {
    let scan = file.windows(2).position(|marker| marker == b"\xff\xda").unwrap() + 2;
    let start = scan + usize::from(u16::from_be_bytes([file[scan], file[scan + 1]]));
    start..file.windows(2).rposition(|marker| marker == END).unwrap()
}

fn whole(file: &[u8]) -> Result<Image> {
    Ok(Image::decode(file, ImageMode::Rgb8)?)
}

/// The pixel in the upper left corner: what takes least of the file.
fn corner(file: &[u8]) -> Result<Image> {
    let crop = |frame: &mut Frame<'_>, _: &mut Rng| Ok::<_, Error>(frame.crop(0, 0, 1, 1)?);
    Transforms::new().then(crop).image(file, ImageMode::Rgb8, &mut Rng::new(0, 0, 0))
}

/// How many of the files are read, which must be the same for any part of them.
fn read(files: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let (mut read, mut all) = (0, 0);
    for file in files {
        let is_read = whole(&file).is_ok();
        assert_eq!(is_read, corner(&file).is_ok());
        (read, all) = (read + usize::from(is_read), all + 1);
    }
    (read, all)
}

#[test]
fn data_that_ends_early_is_an_error_though_the_file_has_an_end_marker() {
    for (name, file) in files() {
        for at in data(&file) {
            let cut = [&file[..at], END].concat();
            assert!(whole(&cut).is_err() && corner(&cut).is_err(), "{name} cut at {at} of {}", file.len());
        }
    }
}

#[test]
fn a_gap_in_the_data_is_an_error() {
    for (name, file) in files() {
        let range = data(&file);
        let gaps = [3, 5, 8].map(|part| range.len() / part);
        let gaps = gaps
            .into_iter()
            .flat_map(|gap| (range.start..range.end - gap).step_by(7).map(move |at| (at, gap)));
        let (read, all) = read(gaps.map(|(at, gap)| [&file[..at], &file[at + gap..]].concat()));
        // Some leave the right number of codes: nobody can tell.
        assert!(read * 100 <= all, "{name}: {read} of {all}");
    }
}

#[test]
fn another_pictures_data_is_an_error() {
    let (one, other) = (picture(1), picture(80));
    for (one, other) in [(&one, &other), (&other, &one)] {
        let (from, to) = (data(one), data(other));
        let cuts =
            (1..300).map(|part| (from.start + from.len() * part / 300, to.start + to.len() * part / 300));
        let (read, all) = read(cuts.map(|(from, to)| [&one[..from], &other[to..]].concat()));
        assert!(read * 20 <= all, "{read} of {all}");
    }
}

#[test]
fn zeros_in_the_data_are_an_error() {
    for (name, file) in files() {
        let range = data(&file);
        let zeroed = range.clone().step_by(5).map(|at| {
            let mut file = file.clone();
            file[at..range.end].fill(0);
            file
        });
        let (read, all) = read(zeroed.take(range.len() / 5 * 3 / 4));
        assert_eq!(read, 0, "{name}: of {all}");
    }
}

#[test]
fn restart_markers_that_are_not_in_their_places_are_an_error() {
    let (_, file) = files().into_iter().find(|(name, _)| name == "restart.jpg").unwrap();
    let places: Vec<usize> =
        data(&file).filter(|at| file[*at] == 0xff && (0xd0..=0xd7).contains(&file[at + 1])).collect();
    assert!(places.len() > 1 && whole(&file).is_ok());
    let mut changed = Vec::new();
    for &at in &places {
        for number in 0..8 {
            let mut other = file.clone();
            other[at + 1] = 0xd0 + number;
            changed.push(other);
        }
        // Without the marker, with a second one, and with bytes before it.
        changed.push([&file[..at], &file[at + 2..]].concat());
        changed.push([&file[..at + 2], &file[at..]].concat());
        changed.push([&file[..at], b"\0\0", &file[at..]].concat());
    }
    for pair in places.windows(2) {
        // Without what is between two markers, and with that twice.
        changed.push([&file[..pair[0]], &file[pair[1]..]].concat());
        changed.push([&file[..pair[1]], &file[pair[0]..]].concat());
    }
    assert_eq!(read(changed.into_iter().filter(|changed| *changed != file)).0, 0);
}

#[test]
fn what_encoders_add_is_read_over() {
    for (name, file) in files() {
        let (one_scan, end) = (name != "progressive.jpg", data(&file).end);
        let wanted = whole(&file).unwrap();
        let check = |changed: Vec<u8>, reads: bool| {
            assert_eq!(whole(&changed).ok().as_ref(), reads.then_some(&wanted), "{name}");
            assert_eq!(corner(&changed).is_ok(), reads, "{name}");
        };
        let with = |bytes: &[u8]| [&file[..end], bytes, &file[end..]].concat();
        check([&file[..], b"\0\0\0more"].concat(), true);
        check([&file[..], &file].concat(), true);
        check(with(b"\xff\xff\xff\xff\xff"), true);
        check(with(b"\x7f"), one_scan);
        check(with(b"\0\0\0"), one_scan);
        check(with(b"\0\0\0\0"), false);
        check(with(b"\0\0\0\xff\xff"), one_scan);
    }
}
