//! Reads single files in random order, as a baseline for sharded data.
//!
//! The samples of an epoch are the files of `FOLDER/CLASS/` in one random permutation. Each file is opened,
//! read and closed when its sample is due, which is slow over a network or on a disk that seeks. There is no
//! state to resume from.

use super::batch::HostBatches;
use super::columns;
use super::options::DataOptions;
use super::sets::Split;
use super::sharded::host_batch;
use crate::error::{Error, Result};
use shardstream::adapters::IteratorExt;
use shardstream::collate::Columns;
use shardstream::{ErrorKind, Rng, Sample};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// Images in folders, one folder for each class.
#[derive(Debug, Clone)]
pub struct Folder {
    files: Arc<[File]>,
    columns: Columns,
    split: Split,
    options: DataOptions,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// The extension, which is the name of the image's field.
    extension: String,
    class: i64,
}

impl Folder {
    /// Lists the images in the folders of `root`. Classes are numbered in the order of the folders' names.
    pub fn open(root: &Path, split: Split, options: &DataOptions) -> Result<Self> {
        let failed = |path: &Path, source| Error::Folder { path: path.into(), source };
        let mut files = Vec::new();
        let folders = sorted(root).map_err(|e| failed(root, e))?.into_iter().filter(|path| path.is_dir());
        for (class, folder) in folders.enumerate() {
            let images = sorted(&folder).map_err(|e| failed(&folder, e))?.into_iter();
            for path in images {
                let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else {
                    continue;
                };
                let extension = extension.to_lowercase();
                if columns::IMAGE.split(';').any(|field| field == extension) {
                    files.push(File { path, extension, class: class as i64 });
                }
            }
        }
        if files.is_empty() {
            return Err(failed(root, io::Error::other("there are no images in folders named after classes")));
        }
        let columns = columns::columns(split, options.size, options.classes)?.seed(options.seed);
        Ok(Self { files: files.into(), columns, split, options: options.clone() })
    }

    /// Number of batches of an epoch on each rank.
    pub fn steps(&self) -> u64 {
        let (files, global) = (self.files.len(), self.options.batch * self.options.topology.world_size());
        let steps = if self.split == Split::Train { files / global } else { files.div_ceil(global) };
        steps as u64
    }

    /// The number of images.
    pub fn samples(&self) -> u64 {
        self.files.len() as u64
    }

    /// The batches of one epoch. Training has only full batches; the last validation batch is padded.
    pub fn batches(&self, epoch: u64) -> HostBatches {
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        if self.split == Split::Train {
            Rng::new(self.options.seed, epoch, 0).shuffle(&mut order);
        }
        let (rank, ranks) = (self.options.topology.rank(), self.options.topology.world_size());
        let batch = self.options.batch;
        let numbers_of_batches = (0..self.steps() as usize).map(move |step| {
            // Position `p` of the permutation belongs to rank `p % ranks`.
            let positions = (step * batch..(step + 1) * batch).map(|position| position * ranks + rank);
            Ok(positions.filter_map(|position| order.get(position).copied()).collect::<Vec<usize>>())
        });
        let this = self.clone();
        let batches = numbers_of_batches.pipeline().par_map(self.options.workers(), move |numbers| {
            // Padding is a copy of the first image.
            let padding = std::iter::repeat_n(0, batch - numbers.len());
            let padded = numbers.iter().copied().chain(padding);
            let samples =
                padded.map(|number| this.sample(epoch, number)).collect::<shardstream::Result<Vec<_>>>()?;
            host_batch(this.columns.collate(samples)?, Some(numbers.len()))
        });
        Box::new(batches)
    }

    fn sample(&self, epoch: u64, number: usize) -> shardstream::Result<Sample> {
        let File { path, extension, class } = &self.files[number];
        let name = path.display().to_string();
        let image = fs::read(path).map_err(|e| shardstream::Error::from(ErrorKind::Io(e)).with_key(&name))?;
        let sample = Sample::new(name).with(extension.as_str(), image).with(columns::CLASS, *class);
        Ok(sample.with_position(epoch, number as u64))
    }
}

/// The entries of a folder, sorted by name.
fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::options;
    use shardstream::Topology;
    use shardstream::codec::Encoder;
    use shardstream::prelude::*;
    use std::collections::BTreeMap;

    /// A folder of 100 images of one colour each. The last digit of the colour is the class.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100u8 {
            let class = dir.path().join(format!("class {}", number % 10));
            fs::create_dir_all(&class).unwrap();
            let image = Image::new(ImageMode::Rgb8, 32, vec![number; 32 * 32 * 3]).unwrap();
            let sample = Sample::new("x").with("png", image);
            let png = Encoder::new().encode("png", sample.get("png").unwrap()).unwrap();
            fs::write(class.join(format!("{number}.PNG")), png).unwrap();
        }
        dir
    }

    fn all(folder: &Folder, epoch: u64) -> Vec<super::super::HostBatch> {
        folder.batches(epoch).map(std::result::Result::unwrap).collect()
    }

    #[test]
    fn validation_has_each_image_once_with_its_class_and_padding() {
        let dir = folder();
        let folder = Folder::open(dir.path(), Split::Validation, &options()).unwrap();
        let batches = all(&folder, 0);
        assert_eq!(batches.iter().map(|b| b.valid).collect::<Vec<_>>(), [96, 4]);
        assert_eq!((folder.steps(), folder.samples()), (2, 100));
        let mut seen = BTreeMap::new();
        for batch in &batches {
            let images = batch.images.chunks(32 * 32 * 3);
            for (image, label) in images.zip(&batch.labels).take(batch.valid) {
                assert_eq!(*label, i32::from(image[0] % 10));
                *seen.entry(image[0]).or_insert(0) += 1;
            }
            assert!(batch.labels[batch.valid..].iter().all(|label| *label == -1));
        }
        assert_eq!(seen.into_values().collect::<Vec<_>>(), [1; 100]);
    }

    #[test]
    fn ranks_share_an_epoch_and_each_epoch_has_another_order() {
        let dir = folder();
        let open = |rank, ranks| {
            let topology = Topology::new(rank, ranks).unwrap();
            let options = DataOptions { batch: 24 / ranks, topology, ..options() };
            Folder::open(dir.path(), Split::Train, &options).unwrap()
        };
        let labels = |folder: &Folder, epoch| -> Vec<Vec<i32>> {
            all(folder, epoch).into_iter().map(|b| b.labels).collect()
        };
        let one = labels(&open(0, 1), 0);
        assert_eq!(one.len(), 4);
        assert_eq!(labels(&open(0, 1), 0), one);
        assert_ne!(labels(&open(0, 1), 1), one);
        let two = [labels(&open(0, 2), 0), labels(&open(1, 2), 0)];
        for (step, batch) in one.iter().enumerate() {
            let merged: Vec<i32> = (0..24).map(|position| two[position % 2][step][position / 2]).collect();
            assert_eq!(merged, *batch);
        }
    }

    #[test]
    fn an_empty_folder_and_a_missing_file_are_errors_that_name_them() {
        let dir = tempfile::tempdir().unwrap();
        let error = Folder::open(dir.path(), Split::Train, &options()).unwrap_err();
        assert!(matches!(error, Error::Folder { .. }), "{error}");
        let dir = folder();
        let opened = Folder::open(dir.path(), Split::Validation, &options()).unwrap();
        fs::remove_file(dir.path().join("class 3/13.PNG")).unwrap();
        let error = opened.batches(0).find_map(std::result::Result::err).unwrap();
        assert!(error.to_string().contains("13.PNG"), "{error}");
    }
}
