//! What a rank other than the first adds to a checkpoint: the state of its own data.

use super::document::VERSION;
use crate::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream::{ErrorKind, State};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) step: u64,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) data: State,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u64,
    part: Part,
    /// Of the part, as it is written: a document has no checksum of its own.
    sha256: String,
}

/// Told apart from damage.
#[derive(Debug)]
pub(super) enum Refused {
    Damaged(String),
    Version(u64),
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl Part {
    pub(super) fn encode(self) -> shardstream::Result<Vec<u8>> {
        let encode = || {
            let document = Document { version: VERSION, sha256: self.digest()?, part: self };
            serde_json::to_vec(&document)
        };
        encode().map_err(|e| ErrorKind::Encode { field: "part".into(), source: e.into() }.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Refused> {
        let bad = |e: serde_json::Error| Refused::Damaged(e.to_string());
        let Versioned { version } = serde_json::from_slice(bytes).map_err(bad)?;
        if version != VERSION {
            return Err(Refused::Version(version));
        }
        let Document { part, sha256, .. } = serde_json::from_slice(bytes).map_err(bad)?;
        if part.digest().map_err(bad)? != sha256 {
            return Err(Refused::Damaged("its contents do not have its sha256".into()));
        }
        Ok(part)
    }

    fn digest(&self) -> serde_json::Result<String> {
        Ok(hex(&Sha256::digest(serde_json::to_vec(self)?)))
    }
}
