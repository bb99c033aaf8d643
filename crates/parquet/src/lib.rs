#![doc = include_str!("../README.md")]
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
mod schema;
mod table;
mod thrift;
mod values;

pub use format::Parquet;
