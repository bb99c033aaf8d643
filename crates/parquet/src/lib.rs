//! Parquet files as shards of [`shardstream`]: rows are samples, in a shuffled order that resumes anywhere, on
//! any number of ranks, mixed with other datasets, joined, packed and batched.
//!
//! [`Parquet`] is a format of shards, given to
//! [`Dataset::builder(..).format(..)`](shardstream::dataset::DatasetBuilder::format). The footers are read
//! when the dataset is built, so that lengths and steps are exact.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod columns;
mod decompress;
mod delta;
mod format;
mod incoming;
mod options;
mod pages;
mod parser;
mod row_group;
mod table;
mod thrift;
mod values;

pub use format::Parquet;
