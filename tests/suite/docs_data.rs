//! Writes the files in `docs/data`, which the examples of the documentation read, and tests that they are
//! unchanged.
//!
//! `SHARDSTREAM_BLESS=1 cargo test --test suite docs_data` writes the files again. `docs/data/README.md`
//! describes their content.

use shardstream::Result;
use shardstream::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const BLESS: &str = "SHARDSTREAM_BLESS";
const NAMES: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/// The digits 0 to 9: seven rows of five pixels each, a bit for each pixel.
const GLYPHS: [[u8; 7]; 10] = [
    [0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e],
    [0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e],
    [0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f],
    [0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e],
    [0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02],
    [0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e],
    [0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e],
    [0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08],
    [0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e],
    [0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c],
];

const WEB: [&str; 16] = [
    "Open today until nine",
    "Hello, world!",
    "How to sharpen a kitchen knife",
    "Results 1 to 10 of about 4,000",
    "Subscribe",
    "Rain in the morning, sun in the afternoon",
    "Ten walks along the river",
    "Sold out",
    "Frequently asked questions about trains",
    "Read more",
    "The library is closed on public holidays",
    "A recipe for bread with four ingredients",
    "Contact us",
    "The match ended without a goal",
    "Cheap flights",
    "The capital of Australia is Canberra, and not Sydney",
];

/// Each entry has two lines of one poem. The poets, in order: Blake, Shakespeare, Frost, Wordsworth,
/// Dickinson (two poems), Lear, Carroll, Poe, Whitman, Coleridge, Byron, Kipling, Sandburg, Keats and Eliot.
const BOOKS: [&str; 16] = [
    "Tyger Tyger, burning bright,\nIn the forests of the night;",
    "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:",
    "Two roads diverged in a yellow wood,\nAnd sorry I could not travel both",
    "I wandered lonely as a cloud\nThat floats on high o'er vales and hills,",
    "Because I could not stop for Death,\nHe kindly stopped for me;",
    "Hope is the thing with feathers\nThat perches in the soul,",
    "The Owl and the Pussy-cat went to sea\nIn a beautiful pea-green boat,",
    "'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:",
    "Once upon a midnight dreary,\nwhile I pondered, weak and weary,",
    "O Captain! my Captain! our fearful trip is done,\nThe ship has weather'd every rack,",
    "Water, water, every where,\nNor any drop to drink.",
    "She walks in beauty, like the night\nOf cloudless climes and starry skies;",
    "If you can keep your head when all about you\nAre losing theirs and blaming it on you,",
    "The fog comes\non little cat feet.",
    "A thing of beauty is a joy for ever:\nIts loveliness increases;",
    "Do I dare\nDisturb the universe?",
];

/// A grey picture of digits on black.
struct Picture {
    size: (u32, u32),
    pixels: Vec<u8>,
}

impl Picture {
    fn black(height: u32, width: u32) -> Self {
        Picture { size: (height, width), pixels: vec![0; (height * width) as usize] }
    }

    /// Draws a digit whose upper left corner is at (`left`, `top`). Each pixel of the glyph becomes a square
    /// with sides of `scale` pixels. Returns the digit's box: left, top, right, bottom.
    fn draw(&mut self, digit: usize, scale: usize, left: usize, top: usize, white: u8) -> [usize; 4] {
        let (width, height) = (5 * scale, 7 * scale);
        for y in 0..height {
            for x in 0..width {
                if GLYPHS[digit][y / scale] >> (4 - x / scale) & 1 == 1 {
                    self.pixels[(top + y) * self.size.1 as usize + left + x] = white;
                }
            }
        }
        [left, top, left + width, top + height]
    }

    fn png(self) -> Result<Vec<u8>> {
        Ok(Image::new(ImageMode::L8, self.size, self.pixels)?.to_png()?)
    }
}

/// Writes the samples into shards of `count` samples.
fn write(folder: &Path, name: &str, count: u64, samples: impl IntoIterator<Item = Sample>) -> Result<()> {
    let pattern = folder.join(name).to_str().unwrap().to_owned();
    let mut writer = ShardWriter::builder(pattern).max_count(count).build()?;
    for sample in samples {
        writer.write(&sample)?;
    }
    writer.finish().map(drop)
}

fn key(number: usize) -> String {
    format!("{number:06}")
}

/// Four shards of the ten digits: each shard has the digits at a different position and in a different shade
/// of grey.
fn digits() -> Result<Vec<Sample>> {
    let digit = |number: usize| {
        let (shard, digit) = (number / 10, number % 10);
        let mut picture = Picture::black(28, 28);
        picture.draw(digit, 3, 4 + shard, 2 + shard, 255 - 40 * shard as u8);
        Ok(Sample::new(key(number)).with("png", picture.png()?).with("cls", digit as i64))
    };
    (0..40).map(digit).collect()
}

/// The digits' captions. Each shard lacks the caption of the digit 3.
fn captions() -> impl Iterator<Item = Sample> {
    let captioned = (0..40).filter(|number| number % 10 != 3);
    captioned.map(|number| Sample::new(key(number)).with("txt", format!("the digit {}", NAMES[number % 10])))
}

/// Pictures of three sizes. Each has two digits, with their boxes and labels.
fn scenes() -> Result<Vec<Sample>> {
    let scene = |number: usize| {
        let (height, width) = [(40, 60), (60, 40), (50, 50)][number % 3];
        let mut picture = Picture::black(height, width);
        let labels = [number, (3 * number + 1) % 10];
        let boxes = [
            picture.draw(labels[0], 2, 3 + number, 4, 255),
            picture.draw(labels[1], 3, width as usize - 17, height as usize - 23, 200),
        ];
        let json = format!(r#"{{"boxes": {boxes:?}, "labels": {labels:?}}}"#);
        Ok(Sample::new(key(number)).with("png", picture.png()?).with("json", json))
    };
    (0..6).map(scene).collect()
}

/// WAV files of tones, with 8,000 frames per second and one byte per frame.
fn sounds() -> impl Iterator<Item = Sample> {
    (0..4_usize).map(|number| {
        let frames: usize = 1200 + 300 * number;
        // A triangle wave.
        let wave = (0..frames).map(|at| 128 + ((at * (2 + number) * 4 % 256).abs_diff(128)) as u8 / 2);
        let mut wav = Vec::new();
        wav.extend(b"RIFF");
        wav.extend((36 + frames as u32).to_le_bytes());
        wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data");
        wav.extend((frames as u32).to_le_bytes());
        wav.extend(wave);
        Sample::new(key(number)).with("wav", wav)
    })
}

/// Ten labels. Nine labels are numbers, and one is a word.
fn bad_label() -> impl Iterator<Item = Sample> {
    let label = |number: usize| if number == 5 { "five".to_owned() } else { number.to_string() };
    (0..10).map(move |number| Sample::new(key(number)).with("cls", label(number).into_bytes()))
}

fn write_all(folder: &Path) -> Result<()> {
    let texts = |name: &'static str, texts: [&'static str; 16]| {
        let sample = move |(number, text)| Sample::new(format!("{name}/{number:02}")).with("txt", text);
        texts.into_iter().enumerate().map(sample)
    };
    write(folder, "digits-%06d.tar", 10, digits()?)?;
    write(folder, "captions-%06d.tar", 9, captions())?;
    write(folder, "scenes-%06d.tar", 10, scenes()?)?;
    write(folder, "web-%06d.tar", 8, texts("web", WEB))?;
    write(folder, "books-%06d.tar", 8, texts("books", BOOKS))?;
    write(folder, "sounds-%06d.tar", 10, sounds())?;
    write(folder, "bad-label-%06d.tar", 10, bad_label())?;
    for (number, texts) in WEB.chunks(8).enumerate() {
        let lines: String = texts.iter().map(|text| format!("{{\"text\": {text:?}}}\n")).collect();
        fs::write(folder.join(format!("texts-{number}.jsonl")), lines)?;
    }
    Ok(())
}

/// The files of a folder by name, without its README.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = paths.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    let data = named.filter(|(name, _)| name != "README.md");
    data.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

#[test]
fn the_data_of_the_documentation_can_be_written_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/data");
    if std::env::var(BLESS).as_deref() == Ok("1") {
        write_all(&folder).unwrap();
    }
    let written = tempfile::tempdir().unwrap();
    write_all(written.path()).unwrap();
    let (expected, found) = (files(written.path()), files(&folder));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&expected), names(&found));
    for (name, bytes) in expected {
        assert!(found[&name] == bytes, "docs/data/{name} differs: {BLESS}=1 writes it again");
    }
}
