//! Any bytes in a field are a row of a batch or an error, whatever the column.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardstream::Sample;
use shardstream::codec::DType;
use shardstream::collate::{ArrayColumn, Column, Columns, PackedTokens, Ragged, Text, Tokens};

fn collate(data: &[u8], column: impl Column + 'static) {
    let samples = [Sample::new("a").with("x", data), Sample::new("b").with("x", data)];
    if let Ok(batch) = Columns::new().with("x", column).collate(samples) {
        assert_eq!(batch.len(), 2);
    }
}

fuzz_target!(|data: &[u8]| {
    collate(data, ArrayColumn::new("x", DType::I16, [2, 3]));
    collate(data, ArrayColumn::new("x", DType::F32, [2]).named("a"));
    collate(data, ArrayColumn::new("x", DType::U8, [8]).raw());
    collate(data, Tokens::<i32>::new("x", 4).truncate().mask());
    collate(data, Tokens::<u8>::new("x", 4).named("a"));
    collate(data, Tokens::<i64>::new("x", 4).at("/a/0"));
    collate(data, Ragged::<f32>::new("x"));
    collate(data, Ragged::<u16>::new("x").raw(DType::I32));
    collate(data, Text::new("x"));
    collate(data, PackedTokens::<u32>::new("x", 1, 4).drop_rest().truncate());
});
