//! Implements a custom shard format and reads shards in this format. A record has 4 little-endian bytes with
//! the length of a text, then the text.
//!
//! ```text
//! cargo run --example own_format
//! ```

use bytes::{Buf, Bytes, BytesMut};
use shardstream::formats::{Parsed, ParserStart, SamplePlace, ShardFormat, ShardParser};
use shardstream::index::AutoIndex;
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result};

#[derive(Debug)]
struct Records;

#[derive(Debug)]
struct RecordParser {
    bytes: BytesMut,
    start: ParserStart,
    length: usize,
    is_finished: bool,
}

impl ShardFormat for Records {
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser> {
        Box::new(RecordParser { bytes: BytesMut::new(), start: start.clone(), length: 0, is_finished: false })
    }
}

impl ShardParser for RecordParser {
    fn push(&mut self, chunk: Bytes) {
        self.bytes.extend_from_slice(&chunk);
    }

    fn finish(&mut self) {
        self.is_finished = true;
    }

    fn next(&mut self) -> Result<Parsed> {
        let length = self.bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        match length.filter(|length| self.bytes.len() >= 4 + length) {
            None if !self.is_finished => return Ok(Parsed::NeedInput),
            None if self.bytes.is_empty() => return Ok(Parsed::End),
            None => {
                self.bytes.clear(); // so that the next call returns the end
                let error = Error::from(ErrorKind::Format("the last record is truncated".into()));
                return Err(error.at_offset(self.start.offset));
            }
            Some(length) => self.length = length,
        }
        self.bytes.advance(4);
        let text = self.bytes.split_to(self.length).freeze();
        let key = format!("{:06}", self.start.sample);
        self.start.sample += 1;
        self.start.offset += 4 + self.length as u64;
        Ok(Parsed::Sample(Sample::new(key).with("txt", text)))
    }

    fn place(&self) -> Option<SamplePlace> {
        let (end, length) = (self.start.offset, self.length as u64);
        Some(SamplePlace::new(end - length - 4, std::iter::once(end - length..end)))
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    for shard in 0..3_u32 {
        let texts = (0..10 + shard).map(|number| format!("text {number} of shard {shard}"));
        let record = |text: String| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        std::fs::write(
            dir.path().join(format!("{shard}.records")),
            texts.flat_map(record).collect::<Vec<u8>>(),
        )?;
    }
    let pattern = format!("{}/{{0..2}}.records", dir.path().display());
    let dataset = Dataset::builder(pattern).format(Records).auto_index(AutoIndex::beside());
    let dataset = dataset.shuffle_shards(true).seed(7).build()?;
    let loader =
        Loader::builder(dataset).decode(Decoder::new()).map(|mut sample| sample.take::<String>("txt"));
    let loader = loader.shuffle(8).batch(5).build()?;
    let mut batches = loader.epoch(0);
    let first: Batch<String> = batches.next().ok_or("no batch")??;
    let state = batches.state();
    drop(batches);
    let rest = loader.restore(&state)?.map(|batch| Ok(batch?.len())).sum::<Result<usize>>()?;
    println!("{first:?}, and {rest} texts after a restore");
    assert_eq!(first.len() + rest, 33);
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
