//! The built-in images as PNG shards, written through the library's own writer.

use crate::error::{Error, Result};
use crate::progress::Task;
use crate::synthetic::{self, SIZE};
use shardstream::prelude::*;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The shards of the two parts of a data set, in brace notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// The training part.
    pub train: String,
    /// The validation part.
    pub validation: String,
}

/// Number of images of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Training images.
    pub train: u64,
    /// Validation images.
    pub validation: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { train: 4096, validation: 1000 }
    }
}

const PER_SHARD: u64 = 512;
/// The images do not depend on the training's seed.
const DATA_SEED: u64 = 1;
/// Part of the directory's name. Change it with the images, so that older ones are not used in their place.
const VERSION: u32 = 1;

/// The shards of the synthetic images below `dir`, written if they are not there yet.
pub fn synthetic(dir: &Path, counts: Counts) -> Result<Shards> {
    let name = format!("synthetic-v{VERSION}-{}-{}", counts.train, counts.validation);
    let home = dir.join(&name);
    // Validation images come after those of the training, so that none is in both.
    let parts = [("train", 0..counts.train), ("val", counts.train..counts.train + counts.validation)];
    if !home.exists() {
        eprintln!(
            "no --shards given: drawing a SYNTHETIC data set of {} images ({}) into {}",
            counts.train + counts.validation,
            synthetic::CLASSES.join(", "),
            home.display()
        );
        fs::create_dir_all(dir).map_err(|source| Error::Folder { path: dir.into(), source })?;
        // The directory appears with all its shards or not at all; the first process to finish wins.
        let partial =
            tempfile::tempdir_in(dir).map_err(|source| Error::Folder { path: dir.into(), source })?;
        let task = Task::count("writing shards", counts.train + counts.validation);
        for (part, range) in &parts {
            write(partial.path(), part, range.clone(), &task)?;
        }
        task.done();
        if let Err(source) = fs::rename(partial.path(), &home)
            && !home.exists()
        {
            return Err(Error::Folder { path: home, source });
        }
    }
    let [train, validation] = parts.map(|(part, range)| {
        let last = (range.end - range.start).div_ceil(PER_SHARD).saturating_sub(1);
        format!("{}/{part}-{{000000..{last:06}}}.tar", home.display())
    });
    Ok(Shards { train, validation })
}

fn write(dir: &Path, part: &str, range: Range<u64>, task: &Task) -> Result<()> {
    let pattern = format!("{}/{part}-%06d.tar", dir.display());
    let mut writer = ShardWriter::builder(pattern).max_count(PER_SHARD).build()?;
    for index in range {
        let label = synthetic::label(index);
        let pixels = synthetic::image(label, index, DATA_SEED);
        let image =
            Image::new(ImageMode::Rgb8, SIZE as u32, pixels.to_vec()).map_err(shardstream::Error::from)?;
        writer.write(&Sample::new(format!("{index:06}")).with("png", image).with("cls", label as i64))?;
        task.add(1);
    }
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let e = synthetic(file.path(), Counts { train: 1, validation: 1 }).unwrap_err().to_string();
        assert!(e.contains(&file.path().display().to_string()), "{e}");
    }

    #[test]
    fn the_shards_hold_the_images() {
        let dir = tempfile::tempdir().unwrap();
        let counts = Counts { train: 600, validation: 20 };
        let shards = synthetic(dir.path(), counts).unwrap();
        assert_eq!(synthetic(dir.path(), counts).unwrap(), shards, "the second time they are there");
        let read = |pattern: &str| {
            let dataset = Dataset::builder(pattern).build().unwrap();
            assert_eq!(dataset.shards().len(), if pattern.contains("train") { 2 } else { 1 });
            let decoder = Decoder::new().images(ImageMode::Rgb8);
            dataset.samples(0).decode(decoder).to_tuple::<(Image, i64)>(["png", "cls"]).collect::<Vec<_>>()
        };
        let train = read(&shards.train);
        assert_eq!(train.len(), 600);
        for (index, sample) in train.into_iter().enumerate().step_by(37) {
            let (image, label) = sample.unwrap();
            assert_eq!(label as usize, synthetic::label(index as u64));
            let pixels = synthetic::image(label as usize, index as u64, DATA_SEED);
            assert_eq!(image.as_u8().unwrap(), pixels);
        }
        assert_eq!(read(&shards.validation).len(), 20);
    }
}
