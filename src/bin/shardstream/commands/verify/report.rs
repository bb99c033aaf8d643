//! What was found in a shard: also how it is noted, to resume.

use crate::text;
use serde::{Deserialize, Serialize};
use shardstream::Error;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) shard: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// What is wrong, in a word: the name of a kind of errors, or one of this command's own.
    pub(super) kind: String,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn of(error: &Error, shard: &str) -> Self {
        let place = error.location();
        let mut message = error.kind().to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Finding {
            shard: shard.to_owned(),
            offset: place.offset(),
            member: place.member().map(str::to_owned),
            key: place.key().map(str::to_owned),
            kind: error.kind().name().to_owned(),
            message,
        }
    }
}

/// `train-000001.tar: byte 10240, sample 000005, member 000005.jpg: truncated: …`
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.shard)?;
        let mut place = Vec::new();
        place.extend(self.offset.map(|offset| format!("byte {offset}")));
        place.extend(self.key.as_ref().map(|key| format!("sample {}", text::printable(key))));
        place.extend(self.member.as_ref().map(|member| format!("member {}", text::printable(member))));
        if !place.is_empty() {
            write!(f, "{}: ", place.join(", "))?;
        }
        write!(f, "{}: {}", self.kind, text::printable(&self.message))
    }
}

/// How many samples have these fields and no others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FieldSet {
    /// In the order of the alphabet.
    pub(super) fields: Vec<String>,
    pub(super) samples: u64,
    /// Where the first of them is.
    pub(super) shard: String,
    pub(super) key: String,
}

/// The sizes of the images of a field.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ImageSizes {
    images: u64,
    height: (u32, u32),
    width: (u32, u32),
}

impl ImageSizes {
    pub(super) fn add(&mut self, height: u32, width: u32) {
        self.merge(&ImageSizes { images: 1, height: (height, height), width: (width, width) });
    }

    pub(super) fn merge(&mut self, other: &ImageSizes) {
        match (self.images, other.images) {
            (_, 0) => {}
            (0, _) => *self = other.clone(),
            _ => {
                self.images += other.images;
                self.height = (self.height.0.min(other.height.0), self.height.1.max(other.height.1));
                self.width = (self.width.0.min(other.width.0), self.width.1.max(other.width.1));
            }
        }
    }
}

impl fmt::Display for ImageSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ImageSizes { images, height: (lowest, highest), width: (narrowest, widest) } = self;
        write!(
            f,
            "{} decoded, height {lowest} to {highest}, width {narrowest} to {widest}",
            text::number(*images)
        )
    }
}

/// What was found in one shard.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ShardReport {
    /// Without what is secret.
    pub(super) url: String,
    /// Which URL it is, for the log.
    pub(super) place: String,
    pub(super) bytes: u64,
    pub(super) version: Option<String>,
    pub(super) samples: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) fields: Vec<FieldSet>,
    pub(super) images: BTreeMap<String, ImageSizes>,
    /// Hashes of the keys, with the keys, where they must differ over all shards.
    #[serde(skip)]
    pub(super) keys: Vec<(u64, String)>,
    /// Whether it is a report of an earlier run.
    #[serde(skip)]
    pub(super) resumed: bool,
    /// Why the shard could not be read, where that is no fault of its own.
    #[serde(skip)]
    pub(super) unread: Option<String>,
}
