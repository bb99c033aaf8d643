//! `RankPart`: the state of one rank's data. Each rank except rank 0 writes its `RankPart` as one object of
//! the checkpoint.

use super::version::{VERSION, Versioned};
use crate::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream::{ErrorKind, State};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankPart {
    pub(super) step: u64,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) data: State,
}

#[derive(Serialize, Deserialize)]
struct PartDocument {
    version: u64,
    part: RankPart,
    /// Sha256 of the serialized part.
    sha256: String,
}

/// An error of decoding a part.
#[derive(Debug)]
pub(super) enum PartError {
    Damaged(String),
    Version(u64),
}

impl RankPart {
    pub(super) fn encode(self) -> shardstream::Result<Vec<u8>> {
        let encode = || {
            let document = PartDocument { version: VERSION, sha256: self.digest()?, part: self };
            serde_json::to_vec(&document)
        };
        encode().map_err(|e| ErrorKind::Encode { field: "part".into(), source: e.into() }.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, PartError> {
        let bad = |e: serde_json::Error| PartError::Damaged(e.to_string());
        let Versioned { version } = serde_json::from_slice(bytes).map_err(bad)?;
        if version != VERSION {
            return Err(PartError::Version(version));
        }
        let PartDocument { part, sha256, .. } = serde_json::from_slice(bytes).map_err(bad)?;
        if part.digest().map_err(bad)? != sha256 {
            return Err(PartError::Damaged("its sha256 does not match its contents".into()));
        }
        Ok(part)
    }

    fn digest(&self) -> serde_json::Result<String> {
        Ok(hex(&Sha256::digest(serde_json::to_vec(self)?)))
    }
}
