//! Writes shards from a folder of images, one folder per class: `ROOT/CLASS/*.jpg`.
//!
//! ```text
//! cargo run --example write_shards -- imagenet/train 'out/train-%06d.tar'
//! ```
//!
//! The pattern may be the URL of a bucket, with the feature of its store. Images are copied, not decoded: a sample
//! has the bytes of the file (`jpg`, or whatever its extension) and the number of its class (`cls`).

use indicatif::{ProgressBar, ProgressStyle};
use shardstream::write::ShardWriter;
use shardstream::{Rng, Sample};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Small enough that every worker gets several, large enough to stream well.
const SHARD_BYTES: u64 = 500_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, pattern] = &arguments[..] else { return Err("usage: write_shards ROOT PATTERN".into()) };

    let classes: Vec<PathBuf> = sorted(Path::new(root))?.into_iter().filter(|path| path.is_dir()).collect();
    let mut files = Vec::new();
    for (class, dir) in classes.iter().enumerate() {
        let images: Vec<PathBuf> =
            sorted(dir)?.into_iter().filter(|path| extension(path).is_some()).collect();
        println!(
            "class {class}: {} ({} images)",
            dir.file_name().unwrap_or_default().display(),
            images.len()
        );
        files.extend(images.into_iter().map(|path| (class, path)));
    }
    // A shuffle buffer mixes what is near; what stands far apart must be mixed here.
    Rng::new(0, 0, 0).shuffle(&mut files);

    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} images, {per_sec}, {eta} left {msg}")?;
    let progress = ProgressBar::new(files.len() as u64).with_style(style);
    let shown = progress.clone();
    let mut writer = ShardWriter::builder(pattern)
        .max_bytes(SHARD_BYTES)
        .on_shard(move |shard| shown.set_message(format!("(wrote {})", shard.url)))
        .build()?;
    for (number, (class, path)) in progress.wrap_iter(files.iter().enumerate()) {
        let image = fs::read(path)?;
        let name = extension(path).expect("only files with an extension were taken");
        // A number makes a key without the dots that a file name may have, which would cut it.
        writer.write(&Sample::new(format!("{number:09}")).with(name, image).with("cls", *class as i64))?;
    }
    progress.finish_and_clear();

    for shard in writer.finish()? {
        println!("{}: {} samples, {} bytes", shard.url, shard.samples, shard.bytes);
    }
    Ok(())
}

/// What is in a folder, in an order that does not depend on the file system.
fn sorted(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The extension in lower case, if it is that of an image.
fn extension(path: &Path) -> Option<String> {
    let extension = path.extension()?.to_str()?.to_lowercase();
    matches!(&*extension, "jpg" | "jpeg" | "png" | "webp").then_some(extension)
}
