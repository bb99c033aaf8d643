//! Counts the samples of a pattern's shards and the bytes of their fields, as `examples/throughput.rs` does,
//! but with the crate `webdataset`.

use webdataset::{Value, WebDataset};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pattern = std::env::args().nth(1).ok_or("usage: rival PATTERN")?;
    let (mut samples, mut bytes) = (0, 0);
    for sample in WebDataset::builder(pattern).build()?.iter() {
        samples += 1;
        for (_, value) in sample?.iter() {
            if let Value::Bytes(value) = value {
                bytes += value.len();
            }
        }
    }
    println!("{samples} samples, {bytes} bytes");
    Ok(())
}
