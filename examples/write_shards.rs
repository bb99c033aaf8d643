//! Writes shards: any samples, into a series that is cut by count or size.
//!
//! ```text
//! cargo run --example write_shards -- 'out/train-%06d.tar'
//! cargo run --features gcs --example write_shards -- 'gs://bucket/train-%06d.tar'
//! ```
//!
//! For folders of images and for CIFAR-10 there are whole programs: `examples/make_shards`.

use shardstream::SecretUrl;
use shardstream::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pattern = std::env::args().nth(1).ok_or("usage: write_shards PATTERN")?;
    let mut writer = ShardWriter::builder(pattern).max_count(1000).max_bytes(500_000_000).build()?;
    for n in 0..2500_i64 {
        // A field is raw bytes, such as those of a file, or a value that is encoded by the field's name.
        let pixels = (0..32 * 32 * 3).map(|at| (at * n / 97) as u8).collect::<Vec<u8>>();
        let image = Image::new(ImageMode::Rgb8, 32, pixels)?;
        let sample = Sample::new(format!("{n:06}")).with("png", image).with("cls", n % 10);
        writer.write(&sample.with("txt", format!("picture {n}")))?;
    }
    for shard in writer.finish()? {
        println!("{}: {} samples, {} bytes", SecretUrl::from(shard.url), shard.samples, shard.bytes);
    }
    Ok(())
}
