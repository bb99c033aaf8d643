//! Reads the downloaded files of CIFAR-10: <https://www.cs.toronto.edu/~kriz/cifar.html>.
//!
//! A binary file is a sequence of records: a label, then 3072 bytes of pixels. A Python file is a pickled
//! dictionary with an array `data`, which has one row of 3072 bytes per image, and a list `labels`. In both
//! forms the bytes of an image are the red, then the green, then the blue values of its 1024 pixels.

use super::pickle::Pickle;
use crate::{Error, Result};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// Height and width of an image.
pub const SIZE: usize = 32;
/// Number of pixels of an image.
pub const PIXELS: usize = SIZE * SIZE;
/// Number of bytes of a pixel.
pub const CHANNELS: usize = 3;
/// Number of classes.
pub const CLASSES: u8 = 10;

const BYTES: usize = PIXELS * CHANNELS;
/// Maximum size of a batch in bytes, twice the size of a real batch in either form.
const MAX_FILE: u64 = 64 << 20;
const TRAIN: [&str; 5] = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"];
const TEST: [&str; 1] = ["test_batch"];
const BINARY: &str = ".bin";
/// Folders of the batches in the archives; "" if the source is itself a folder of batches.
const FOLDERS: [&str; 3] = ["", "cifar-10-batches-bin", "cifar-10-batches-py"];

/// Images and their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// The bytes of all images: for each image its red, then its green, then its blue values.
    planes: Vec<u8>,
    labels: Vec<u8>,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of an image, as (height, width, RGB), and its label.
    ///
    /// # Panics
    /// If there is no image `number`.
    pub fn get(&self, number: usize) -> (Vec<u8>, u8) {
        let planes = &self.planes[number * BYTES..][..BYTES];
        let pixel = |index: usize| (0..CHANNELS).map(move |channel| planes[channel * PIXELS + index]);
        ((0..PIXELS).flat_map(pixel).collect(), self.labels[number])
    }

    fn push(&mut self, label: i64, planes: &[u8]) -> Result<(), String> {
        let number = self.len();
        let label = u8::try_from(label).ok().filter(|label| *label < CLASSES);
        self.labels.push(label.ok_or_else(|| format!("the label of image {number} is not from 0 to 9"))?);
        self.planes.extend_from_slice(planes);
        Ok(())
    }
}

/// The training set and the test set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// The training set.
    pub train: Images,
    /// The test set.
    pub test: Images,
}

/// Reads both sets from a folder, or from the downloaded archive, compressed or not. If the source has binary
/// files and Python files, reads the binary files.
///
/// # Errors
/// [`Error::NoBatches`] if there is no batch, [`Error::Batch`] if a batch is missing or damaged, and the
/// errors of reading files.
pub fn read(source: &Path) -> Result<Sets> {
    let in_source = |error| Error::file(source, error);
    let files = match std::fs::metadata(source).map_err(in_source)?.is_dir() {
        true => from_folder(source)?,
        false => from_archive(source).map_err(in_source)?,
    };
    let suffix = if files.keys().any(|name| name.ends_with(BINARY)) { BINARY } else { "" };
    if files.is_empty() {
        return Err(Error::NoBatches(source.to_owned()));
    }
    let set = |names: &[&str]| -> Result<Images> {
        let mut images = Images::default();
        for name in names {
            let name = format!("{name}{suffix}");
            let in_batch = |what: String| Error::Batch { place: source.to_owned(), name: name.clone(), what };
            let bytes = files.get(&name).ok_or_else(|| in_batch("it is missing".into()))?;
            match suffix {
                BINARY => add_binary(bytes, &mut images).map_err(in_batch)?,
                _ => add_pickle(bytes, &mut images).map_err(in_batch)?,
            }
        }
        Ok(images)
    };
    Ok(Sets { train: set(&TRAIN)?, test: set(&TEST)? })
}

/// Whether `name` is the name of a batch's file.
fn is_batch(name: &str) -> bool {
    let name = name.strip_suffix(BINARY).unwrap_or(name);
    TRAIN.contains(&name) || TEST.contains(&name)
}

fn from_folder(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    for inner in FOLDERS {
        let mut files = BTreeMap::new();
        for name in TRAIN.iter().chain(&TEST).flat_map(|name| [format!("{name}{BINARY}"), (*name).to_owned()])
        {
            let path = folder.join(inner).join(&name);
            match File::open(&path).and_then(read_batch) {
                Ok(bytes) => drop(files.insert(name, bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::file(&path, error)),
            }
        }
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Ok(BTreeMap::new())
}

fn from_archive(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 2];
    let compressed = file.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    file.rewind()?;
    let file = BufReader::with_capacity(1 << 20, file);
    let input: Box<dyn Read> = if compressed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(input).entries()? {
        let entry = entry?;
        let name = entry.path()?.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        if let Some(name) = name.filter(|name| entry.header().entry_type().is_file() && is_batch(name)) {
            files.insert(name, read_batch(entry)?);
        }
    }
    Ok(files)
}

/// Reads a file of at most `MAX_FILE` bytes.
fn read_batch(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(io::Error::other("the file is larger than any batch of CIFAR-10")),
        false => Ok(bytes),
    }
}

fn add_binary(bytes: &[u8], images: &mut Images) -> Result<(), String> {
    const RECORD: usize = 1 + BYTES;
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if records.is_empty() || !rest.is_empty() {
        return Err(format!("it has {} bytes, which is not a number of records of {RECORD}", bytes.len()));
    }
    records.iter().try_for_each(|record| images.push(record[0].into(), &record[1..]))
}

fn add_pickle(bytes: &[u8], images: &mut Images) -> Result<(), String> {
    let pickle = Pickle::read(bytes).map_err(|error| error.to_string())?;
    let data = pickle.root().get("data").and_then(|data| data.array());
    let (shape, data) = data.ok_or("it is not a dictionary with an array `data`")?;
    let labels = pickle.root().get("labels").and_then(|labels| labels.integers());
    let labels = labels.ok_or("it has no list `labels` of whole numbers")?;
    if shape != [labels.len(), BYTES] {
        return Err(format!("its data have the shape {shape:?}, and it has {} labels", labels.len()));
    }
    labels.iter().zip(data.chunks_exact(BYTES)).try_for_each(|(label, row)| images.push(*label, row))
}
