//! The downloaded files: <https://www.cs.toronto.edu/~kriz/cifar.html>.
//!
//! In the binary form a record is the label and 3072 bytes of pixels. In the Python form a batch is a pickled
//! dictionary with an array `data` of rows of 3072 bytes, and a list `labels`. In both, a row has 1024 reds,
//! 1024 greens and 1024 blues.

use super::pickle::Pickle;
use crate::{Error, Result};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// Width and height of an image.
pub const SIZE: usize = 32;
/// Pixels of an image.
pub const PIXELS: usize = SIZE * SIZE;
/// Bytes of a pixel.
pub const CHANNELS: usize = 3;
/// Number of classes.
pub const CLASSES: u8 = 10;

const BYTES: usize = PIXELS * CHANNELS;
/// Twice the size of a batch in either form.
const MAX_FILE: u64 = 64 << 20;
const TRAIN: [&str; 5] = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"];
const TEST: [&str; 1] = ["test_batch"];
const BINARY: &str = ".bin";
/// The folders in the archives.
const FOLDERS: [&str; 3] = ["", "cifar-10-batches-bin", "cifar-10-batches-py"];

/// Images and their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// Pixels as in the files: colour by colour.
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

    /// The pixels of an image, row by row, each red, green, blue; and its label.
    ///
    /// # Panics
    /// If there is no image `number`.
    pub fn get(&self, number: usize) -> (Vec<u8>, u8) {
        let planes = &self.planes[number * BYTES..][..BYTES];
        let pixel = |at: usize| (0..CHANNELS).map(move |channel| planes[channel * PIXELS + at]);
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

/// Both sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// The training set.
    pub train: Images,
    /// The test set.
    pub test: Images,
}

/// Reads both sets from a folder or from the downloaded archive, compressed or not. If it has both forms, the
/// binary one is read.
///
/// # Errors
/// [`Error::NoBatches`] and [`Error::Batch`], which name what is missing or wrong, and the errors of reading.
pub fn read(source: &Path) -> Result<Sets> {
    let at = |error| Error::file(source, error);
    let files = match std::fs::metadata(source).map_err(at)?.is_dir() {
        true => from_folder(source)?,
        false => from_archive(source).map_err(at)?,
    };
    let suffix = if files.keys().any(|name| name.ends_with(BINARY)) { BINARY } else { "" };
    if files.is_empty() {
        return Err(Error::NoBatches(source.to_owned()));
    }
    let set = |names: &[&str]| -> Result<Images> {
        let mut images = Images::default();
        for name in names {
            let name = format!("{name}{suffix}");
            let batch = |what: String| Error::Batch { place: source.to_owned(), name: name.clone(), what };
            let bytes = files.get(&name).ok_or_else(|| batch("it is missing".into()))?;
            let added = match suffix {
                BINARY => binary(bytes, &mut images),
                _ => python(bytes, &mut images),
            };
            added.map_err(batch)?;
        }
        Ok(images)
    };
    Ok(Sets { train: set(&TRAIN)?, test: set(&TEST)? })
}

/// Whether a file of this name is a batch.
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
            let read = File::open(&path).and_then(bounded);
            match read {
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
            files.insert(name, bounded(entry)?);
        }
    }
    Ok(files)
}

/// Reads a file, which may be at most as large as a batch.
fn bounded(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(io::Error::other("a batch of CIFAR-10 is not so large")),
        false => Ok(bytes),
    }
}

fn binary(bytes: &[u8], images: &mut Images) -> Result<(), String> {
    const RECORD: usize = 1 + BYTES;
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if records.is_empty() || !rest.is_empty() {
        return Err(format!("it has {} bytes, which are not records of {RECORD}", bytes.len()));
    }
    records.iter().try_for_each(|record| images.push(record[0].into(), &record[1..]))
}

fn python(bytes: &[u8], images: &mut Images) -> Result<(), String> {
    let pickle = Pickle::read(bytes).map_err(|error| error.to_string())?;
    let data = pickle.root().get("data").and_then(|data| data.array());
    let (shape, data) = data.ok_or("it is no dictionary with an array `data`")?;
    let labels = pickle.root().get("labels").and_then(|labels| labels.integers());
    let labels = labels.ok_or("it has no list `labels` of whole numbers")?;
    if shape != [labels.len(), BYTES] {
        return Err(format!("its data are of the shape {shape:?}, and it has {} labels", labels.len()));
    }
    labels.iter().zip(data.chunks_exact(BYTES)).try_for_each(|(label, row)| images.push(*label, row))
}
