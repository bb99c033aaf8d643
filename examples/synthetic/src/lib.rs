//! Writes shards of synthetic PNG images, for the example trainers and their tests.

mod images;

pub use images::{BYTES, CLASSES, SIZE, image, label};

use shardstream::prelude::*;
use shardstream::{Error, Result};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The patterns of the shards of a data set, in brace notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// The training shards.
    pub train: String,
    /// The validation shards.
    pub validation: String,
}

/// Number of images of a data set.
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
/// Seed of the images, which do not depend on the training's seed.
const DATA_SEED: u64 = 1;
/// Version of the images, a part of the directory's name. Increase it when the images change, so that shards
/// of older images are not used.
const VERSION: u32 = 1;

/// Writes shards of synthetic images below `dir`, unless they exist, and returns their patterns.
///
/// # Errors
///
/// Fails if the shards cannot be written.
pub fn shards(dir: &Path, counts: Counts) -> Result<Shards> {
    let name = format!("synthetic-v{VERSION}-{}-{}", counts.train, counts.validation);
    let home = dir.join(&name);
    // The numbers of the validation images follow the numbers of the training images, so that no image is in
    // both data sets.
    let parts = [("train", 0..counts.train), ("val", counts.train..counts.train + counts.validation)];
    if !home.exists() {
        eprintln!(
            "no --shards given: drawing a SYNTHETIC data set of {} images ({}) into {}",
            counts.train + counts.validation,
            CLASSES.join(", "),
            home.display()
        );
        let failed = |path: &Path, error| Error::from(error).in_shard(&*path.to_string_lossy());
        fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
        // The directory appears with all its shards or not at all. If several processes write the directory,
        // the directory of the process that finishes first is kept.
        let partial = tempfile::tempdir_in(dir).map_err(|error| failed(dir, error))?;
        for (part, range) in &parts {
            write(partial.path(), part, range.clone())?;
        }
        if let Err(error) = fs::rename(partial.path(), &home)
            && !home.exists()
        {
            return Err(failed(&home, error));
        }
    }
    let [train, validation] = parts.map(|(part, range)| {
        let last = (range.end - range.start).div_ceil(PER_SHARD).saturating_sub(1);
        format!("{}/{part}-{{000000..{last:06}}}.tar", home.display())
    });
    Ok(Shards { train, validation })
}

fn write(dir: &Path, part: &str, range: Range<u64>) -> Result<()> {
    let pattern = format!("{}/{part}-%06d.tar", dir.display());
    let mut writer = ShardWriter::builder(pattern).max_count(PER_SHARD).build()?;
    for index in range {
        let class = label(index);
        let pixels = image(class, index, DATA_SEED).to_vec();
        let png = Image::new(ImageMode::Rgb8, SIZE as u32, pixels)?;
        writer.write(&Sample::new(format!("{index:06}")).with("png", png).with("cls", class as i64))?;
    }
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_directory_that_cannot_be_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let e = shards(file.path(), Counts { train: 1, validation: 1 }).unwrap_err().to_string();
        assert!(e.contains(&file.path().display().to_string()), "{e}");
    }

    #[test]
    fn the_shards_have_the_drawn_images() {
        let dir = tempfile::tempdir().unwrap();
        let counts = Counts { train: 600, validation: 20 };
        let written = shards(dir.path(), counts).unwrap();
        assert_eq!(shards(dir.path(), counts).unwrap(), written, "the second call finds the shards");
        let read = |pattern: &str| {
            let dataset = Dataset::builder(pattern).build().unwrap();
            assert_eq!(dataset.shards().len(), if pattern.contains("train") { 2 } else { 1 });
            let decoder = Decoder::new().images(ImageMode::Rgb8);
            dataset.samples(0).decode(decoder).to_tuple::<(Image, i64)>(["png", "cls"]).collect::<Vec<_>>()
        };
        let train = read(&written.train);
        assert_eq!(train.len(), 600);
        for (index, sample) in train.into_iter().enumerate().step_by(37) {
            let (png, class) = sample.unwrap();
            assert_eq!(class as usize, label(index as u64));
            let pixels = image(class as usize, index as u64, DATA_SEED);
            assert_eq!(png.as_u8().unwrap(), pixels);
        }
        assert_eq!(read(&written.validation).len(), 20);
    }
}
