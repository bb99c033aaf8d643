//! Decoded sound, compared with libsndfile and with torchaudio's resampling formula; truncated and damaged
//! files.

use crate::support::python::stdout_of;
use crate::support::root;
use shardstream::audio::{Audio, AudioError};
use shardstream::codec::Array;
use shardstream::collate::{AudioColumn, Columns, Cut, TensorBatch};
use shardstream::{ErrorKind, Rng, Sample, Value};
use std::path::{Path, PathBuf};
use std::process::Command;

fn data() -> PathBuf {
    root().join("tests/data/audio")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file names in a folder that `is_wanted` accepts, sorted.
fn names(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| is_wanted(name));
    names.sort();
    names
}

fn sounds() -> Vec<(String, Vec<u8>)> {
    let names = names(&data(), |name| !name.ends_with(".npy"));
    names.into_iter().map(|name| (name.clone(), read(&data().join(name)))).collect()
}

/// Compares the sound files in `folder`, at least `least` of them, with the `.npy` files that
/// `tests/scripts/audio.py` wrote next to them.
fn compare(folder: &Path, least: usize) {
    let expected = names(folder, |name| name.ends_with(".npy"));
    assert!(expected.len() >= least, "{}", expected.len());
    for name in expected {
        let wanted = Array::from_npy(&read(&folder.join(&name)).into()).unwrap();
        let stem = name.strip_suffix(".npy").unwrap();
        let (file, rate) = match stem.rsplit_once('.').unwrap() {
            (file, rate) if rate.parse::<u32>().is_ok() => (file, rate.parse().ok()),
            _ => (stem, None),
        };
        let sound = Audio::decode(&read(&folder.join(file))).unwrap_or_else(|error| {
            panic!("{name}: {:#}", shardstream::Error::from(error));
        });
        let sound = rate.map_or_else(|| sound.clone(), |rate| sound.resampled(rate).unwrap());
        assert_eq!([sound.channels(), sound.frames()], wanted.shape(), "{name}");
        let wanted = wanted.to_vec::<f32>().unwrap();
        let lossy = [".mp3", ".ogg"].iter().any(|end| file.ends_with(end));
        let most = if lossy || rate.is_some() { 2e-5 } else { 0.0 };
        for (at, (ours, theirs)) in sound.samples().iter().zip(&wanted).enumerate() {
            assert!((ours - theirs).abs() <= most, "{name}: {ours} and {theirs} at {at}");
        }
    }
}

#[test]
fn decoded_sound_matches_libsndfile_and_torchaudio() {
    compare(&data(), 16);
}

#[test]
#[ignore = "needs Python with soundfile: see CONTRIBUTING.md"]
fn random_sound_matches_libsndfile_and_torchaudio() {
    let python = std::env::var("SHARDSTREAM_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("tests/scripts/audio.py");
    stdout_of(Command::new(python).arg(script).arg(folder.path()).args(["2", "20"]).output().unwrap());
    compare(folder.path(), 300);
}

#[test]
fn truncated_sound_is_an_error() {
    for (name, file) in sounds() {
        for end in (0..file.len()).step_by(3).chain([file.len() - 1]) {
            let Ok(sound) = Audio::decode(&file[..end]) else { continue };
            // The cut is not an error if no sound is lost: an MP3 whose encoder did not write its length may
            // lack frames at its end, and WAV pads an odd number of bytes.
            let whole = Audio::decode(&file).unwrap();
            assert!(sound == whole, "{name} cut to {end} of {}", file.len());
        }
    }
}

#[test]
fn damaged_sound_never_panics_and_checksums_reveal_it() {
    for (name, file) in sounds() {
        let whole = Audio::decode(&file).unwrap();
        for at in (0..file.len()).step_by(7) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x41;
            match Audio::decode_within(&damaged, 1 << 20) {
                Ok(sound) => {
                    let checked = name.ends_with("flac") || name.ends_with("ogg");
                    assert!(!checked || sound.samples() == whole.samples(), "{name} damaged at {at}");
                    assert!(sound.size() <= 1 << 20);
                }
                Err(AudioError::Format) => assert!(at < 12, "{name} damaged at {at}"),
                Err(_) => {}
            }
        }
    }
}

#[test]
fn an_ogg_file_is_read_to_its_last_page() {
    let (_, file) = sounds().into_iter().find(|(name, _)| name.ends_with("ogg")).unwrap();
    let last = file.windows(4).rposition(|word| word == b"OggS").unwrap();
    for at in [last + 8, last + 24, file.len() - 1] {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        assert!(matches!(Audio::decode(&damaged), Err(AudioError::Checksum)), "{at}");
    }
    assert!(matches!(Audio::decode(&file[..file.len() - 1]), Err(AudioError::Unfinished)));
    assert!(matches!(Audio::decode(&file[..last]), Err(AudioError::Unfinished)));
}

#[test]
fn sound_is_bounded_before_allocation() {
    for (name, file) in sounds() {
        let size = Audio::decode(&file).unwrap().size();
        assert!(Audio::decode_within(&file, size).is_ok(), "{name}");
        let error = Audio::decode_within(&file, size - 1).unwrap_err();
        assert!(matches!(error, AudioError::TooLarge { .. }), "{name}: {error}");
    }
    for other in [&b""[..], b"RIFF\0\0\0\0AVI ", b"ID3\x04\0\0\x7f\x7f\x7f\x7f", b"\xff\xd8\xff\xe0", b"cat"]
    {
        let error = Audio::decode(other).unwrap_err();
        assert!(matches!(error, AudioError::Format), "{error:?}");
    }
    // A header that claims 4 GB of samples.
    let claims = [
        &b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x02\0\x40\x1f\0\0\0\x7d\0\0\x04\0\x10\0"[..],
        b"data\xf0\xff\xff\xff\0\0\0\0",
    ];
    let error = Audio::decode(&claims.concat()).unwrap_err();
    assert!(matches!(error, AudioError::TooLarge { .. }), "{error:?}");
}

#[test]
fn tags_before_and_after_the_sound_are_skipped() {
    let (_, mp3) = sounds().into_iter().find(|(name, _)| name.ends_with("mp3")).unwrap();
    let (_, flac) = sounds().into_iter().find(|(name, _)| name.ends_with("flac")).unwrap();
    let tag = [b"ID3\x04\0\0\0\0\x02\x05".to_vec(), vec![0xff; 2 * 128 + 5]].concat();
    let behind = [b"TAG".to_vec(), vec![b'x'; 125]].concat();
    for file in [mp3, flac] {
        let tagged = [&tag[..], &file, &behind].concat();
        assert_eq!(Audio::decode(&tagged).unwrap(), Audio::decode(&file).unwrap());
    }
}

#[test]
fn an_mp3_without_a_length_is_read_to_its_end() {
    let file = read(&data().join("0-mpeg_layer_iii.mp3"));
    // Two of the file's frames, of 1152 samples each. The file's first frame, which holds the number of
    // frames, is left out.
    let (large, small) = (&file[384..1152], &file[1920..]);
    for (first, then) in [(large, small), (small, large)] {
        let file = [first.repeat(20), then.repeat(60)].concat();
        assert_eq!(Audio::decode(&file).unwrap().frames(), 80 * 1152, "{} bytes first", first.len());
    }
}

/// A CRC as FLAC and Ogg compute it.
fn checksum(bytes: &[u8], bits: u32, polynomial: u32) -> u32 {
    let shift = |value: u32| (value << 1) ^ if value >> (bits - 1) & 1 == 1 { polynomial } else { 0 };
    let add =
        |value: u32, byte: &u8| (0..8).fold(value ^ u32::from(*byte) << (bits - 8), |value, _| shift(value));
    bytes.iter().fold(0, add) & (u32::MAX >> (32 - bits))
}

#[test]
fn vorbis_codebooks_are_limited_in_size() {
    let file = read(&data().join("0-vorbis.ogg"));
    let pages: Vec<usize> = memchr::memmem::find_iter(&file, b"OggS").collect();
    let (comment, setup) = {
        let page = &file[pages[1]..pages[2]];
        let setup = memchr::memmem::find(page, b"\x05vorbis").unwrap();
        (&page[27 + usize::from(page[26])..setup], &page[setup..])
    };
    // A codebook of 131,072 equal codes of 17 bits, with vectors of 31 numbers.
    let fields: [(u128, u32); 11] = [
        (0x56_43_42, 24),
        (31, 16),
        (1 << 17, 24),
        (1, 1),
        (16, 5),
        (1 << 17, 18),
        (1, 4),
        (0, 64),
        (6, 4),
        (0, 1),
        (0, 7),
    ];
    let (mut book, mut length) = (Vec::new(), 0);
    let mut bits = 0_u128;
    for (value, width) in fields {
        bits |= value << length;
        length += width;
        while length >= 8 {
            book.push(bits as u8);
            bits >>= 8;
            length -= 8;
        }
    }
    assert_eq!((book.len(), length), (21, 0));
    let before = usize::from(setup[7]);
    let with = |books: usize| {
        let setup = [&setup[..7], &[(before + books) as u8], &book.repeat(books), &setup[8..]].concat();
        let mut lengths = Vec::new();
        for packet in [comment, &setup] {
            lengths.extend(vec![255; packet.len() / 255]);
            lengths.push((packet.len() % 255) as u8);
        }
        let head = [&file[pages[1]..pages[1] + 22], &[0; 4], &[lengths.len() as u8]].concat();
        let mut page = [&head[..], &lengths, comment, &setup].concat();
        let sum = checksum(&page, 32, 0x04c1_1db7);
        page[22..26].copy_from_slice(&sum.to_le_bytes());
        [&file[..pages[1]], &page, &file[pages[2]..]].concat()
    };
    assert_eq!(with(0), file);
    let error = shardstream::Error::from(Audio::decode(&with(20)).unwrap_err());
    assert!(format!("{error:#}").contains("its codebooks take"), "{error:#}");
}

#[test]
fn a_lost_flac_frame_is_an_error_even_without_a_sample_count() {
    // Blocks of 192 frames, 8000 frames per second, 16 bits. The header has neither a sample count nor a
    // checksum of the sound.
    let head = [&b"fLaC\x80\0\0\x22\0\xc0\0\xc0\0\0\0\0\0\0\x01\xf4\0\xf0\0\0\0\0"[..], &[0; 16]].concat();
    let block = |number: u8| {
        let mut block = vec![0xff, 0xf8, 0x60, 0, number, 191];
        block.push(checksum(&block, 8, 0x07) as u8);
        // A constant subframe: its header and one value of 16 bits.
        block.extend([0, 1, number]);
        let sum = checksum(&block, 16, 0x8005) as u16;
        [&block[..], &sum.to_be_bytes()].concat()
    };
    let file =
        |numbers: &[u8]| [head.clone(), numbers.iter().flat_map(|number| block(*number)).collect()].concat();
    assert_eq!(Audio::decode(&file(&[0, 1, 2, 3, 4, 5, 6, 7])).unwrap().frames(), 8 * 192);
    for numbers in [&[0, 1, 2, 4, 5, 6, 7][..], &[1, 2, 3, 4]] {
        assert!(matches!(Audio::decode(&file(numbers)), Err(AudioError::Checksum)), "{numbers:?}");
    }
    let mut damaged = file(&[0, 1, 2, 3, 4, 5, 6, 7]);
    damaged[head.len() + 3 * 12 + 9] ^= 1;
    assert!(matches!(Audio::decode(&damaged), Err(AudioError::Checksum)));
}

/// A sample at position `at` whose sound is a ramp.
fn sample(at: u64, frames: usize, channels: usize) -> Sample {
    let ramp = (0..channels * frames).map(|value| value as f32).collect();
    let sound = Audio::new(8_000, channels, ramp).unwrap();
    Sample::new("k").with_position(0, at).with("wav", Value::other(sound))
}

fn collate(column: AudioColumn, samples: Vec<Sample>) -> TensorBatch {
    Columns::new().with("x", column).seed(5).collate(samples).unwrap()
}

#[test]
fn columns_cut_and_pad_sound() {
    let column = || AudioColumn::new("flac;wav", 8_000, 4);
    let batch = collate(column(), vec![sample(0, 9, 1), sample(1, 2, 1), sample(2, 4, 2)]);
    assert_eq!(batch["x"].shape(), [3, 1, 4]);
    assert_eq!(batch["x"].as_slice::<f32>().unwrap(), [0., 1., 2., 3., 0., 1., 0., 0., 2., 3., 4., 5.]);
    assert_eq!(batch["x.lengths"].as_slice::<i32>().unwrap(), [4, 2, 4]);
    let batch = collate(column().channels(2).cut(Cut::Center), vec![sample(0, 9, 2), sample(1, 1, 2)]);
    assert_eq!(batch["x"].as_slice::<f32>().unwrap()[..8], [2., 3., 4., 5., 11., 12., 13., 14.]);
    assert_eq!(batch["x"].as_slice::<f32>().unwrap()[8..], [0., 0., 0., 0., 1., 0., 0., 0.]);
}

#[test]
fn random_cuts_depend_only_on_seed_and_sample() {
    let column = || AudioColumn::new("wav", 8_000, 4).cut(Cut::Random);
    let samples = || (0..600).map(|at| sample(at, 9, 1)).collect::<Vec<_>>();
    let first = |batch: &TensorBatch| -> Vec<f32> {
        batch["x"].as_slice::<f32>().unwrap().chunks(4).map(|part| part[0]).collect()
    };
    let starts = first(&collate(column(), samples()));
    assert_eq!(starts, first(&collate(column(), samples())));
    let mut reversed = samples();
    reversed.reverse();
    let mut again = first(&collate(column(), reversed));
    again.reverse();
    assert_eq!(starts, again);
    for place in 0..6 {
        let count = starts.iter().filter(|start| **start == place as f32).count();
        assert!((70..130).contains(&count), "{count} of 600 at {place}");
    }
    let other = Columns::new().with("x", column()).seed(6).collate(samples()).unwrap();
    assert_ne!(starts, first(&other));
}

#[test]
fn a_cut_at_another_rate_is_a_part_of_the_whole() {
    let noise: Vec<f32> = {
        let mut rng = Rng::new(1, 2, 3);
        (0..4_410).map(|_| rng.unit() as f32).collect()
    };
    let sound = Audio::new(44_100, 1, noise).unwrap();
    let whole = sound.resampled(16_000).unwrap();
    let sample = Sample::new("k").with("wav", Value::other(sound));
    let batch = collate(AudioColumn::new("wav", 16_000, 500).cut(Cut::Center), vec![sample]);
    let start = (whole.frames() - 500) / 2;
    assert_eq!(batch["x"].as_slice::<f32>().unwrap(), &whole.samples()[start..start + 500]);
}

#[test]
fn bad_sound_and_bad_options_are_errors_that_say_where() {
    let error = |column: AudioColumn, sample: Sample| {
        format!("{:#}", Columns::new().with("x", column).collate([sample]).unwrap_err())
    };
    let column = || AudioColumn::new("wav", 8_000, 4);
    let cut = [
        &b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data"[..],
        b"\x08\0\0\0\0\x40",
    ];
    let text = error(column(), Sample::new("k7").with("wav", cut.concat()));
    assert!(text.contains("k7") && text.contains("\"wav\""), "{text}");
    let text = error(column(), Sample::new("k7").with("wav", 7));
    assert!(text.contains("the raw bytes of a sound file"), "{text}");
    let text = error(column().channels(2), sample(0, 4, 1));
    assert!(text.contains("sound of 1 channels in a column of 2"), "{text}");
    for bad in [
        AudioColumn::new("wav", 0, 4),
        AudioColumn::new("wav", 8_000, 0),
        AudioColumn::new("", 8_000, 4),
        column().channels(0),
        column().max_size(0),
    ] {
        let error = Columns::new().with("x", bad).check().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(what) if what.contains("\"x\"")), "{error}");
    }
}
