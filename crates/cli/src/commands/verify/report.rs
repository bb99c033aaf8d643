//! The report of a shard, with its findings. It is printed, and saved in the log.

use crate::text;
use serde::{Deserialize, Serialize};
use shardstream::Error;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;

/// A fault of a shard, with its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) shard: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// The kind of the fault: the name of an [`ErrorKind`](shardstream::ErrorKind), or of a fault that only
    /// this command finds.
    pub(super) kind: String,
    pub(super) message: String,
}

impl Finding {
    /// The finding for an error in a shard.
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
        place.extend(self.key.as_ref().map(|key| format!("sample {key}")));
        place.extend(self.member.as_ref().map(|member| format!("member {member}")));
        if !place.is_empty() {
            write!(f, "{}: ", place.join(", "))?;
        }
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// The samples that have exactly the same fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FieldSet {
    /// The names of the fields, sorted.
    pub(super) fields: Vec<String>,
    /// Number of samples.
    pub(super) samples: u64,
    /// The shard of the first sample.
    pub(super) shard: String,
    /// The key of the first sample.
    pub(super) key: String,
    /// The keys of all samples, with `--to-list`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<String>,
}

/// The sizes of the images of a field.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ImageSizes {
    /// Number of images.
    images: u64,
    /// Minimum and maximum height.
    height: (u32, u32),
    /// Minimum and maximum width.
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

/// The findings in one shard, with its statistics.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ShardReport {
    /// The URL without secrets.
    pub(super) url: String,
    /// The shard's [place](super::log::VerifyLog::place) in the log, if there is a log.
    pub(super) place: Option<String>,
    pub(super) bytes: u64,
    pub(super) version: Option<String>,
    pub(super) samples: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) fields: Vec<FieldSet>,
    pub(super) images: BTreeMap<String, ImageSizes>,
    /// The keys with their hashes, if keys must be unique over all shards.
    #[serde(skip)]
    pub(super) keys: Vec<(u64, String)>,
    /// Whether the report is from an earlier run.
    #[serde(skip)]
    pub(super) resumed: bool,
    /// The error if the shard could not be read for a reason that is not damage.
    #[serde(skip)]
    pub(super) unread: Option<String>,
}
