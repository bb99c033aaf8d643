//! Numeric environment variables, and the topologies that they describe.

use crate::error::Result;
use crate::topology::{Launcher, Topology, bad};

pub(super) const SET_BOTH: &str = "set SHARDSTREAM_RANK and SHARDSTREAM_WORLD_SIZE";

pub(super) struct Environment<'a> {
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the metadata server may be queried.
    pub(super) on_tpu_vm: bool,
}

/// One of `count` things that are numbered from 0, such as one of the ranks of a job.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) number: usize,
    pub(super) count: usize,
}

/// A number and the variable that holds it.
#[derive(Clone, Copy)]
pub(super) struct NumericVariable<'a> {
    pub(super) name: &'a str,
    pub(super) value: usize,
}

impl Environment<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        (self.lookup)(name).is_some()
    }

    pub(super) fn number<'n>(&self, name: &'n str) -> Result<Option<NumericVariable<'n>>> {
        let Some(text) = (self.lookup)(name) else { return Ok(None) };
        match text.trim().parse() {
            Ok(value) => Ok(Some(NumericVariable { name, value })),
            Err(_) => Err(bad(format!("{name}={text:?} is not a number: set it to one, or unset it"))),
        }
    }

    pub(super) fn first<'n>(&self, names: &[&'n str]) -> Result<Option<NumericVariable<'n>>> {
        names.iter().find_map(|name| self.number(name).transpose()).transpose()
    }

    /// The values of the variables `number` and `count`. Either both variables or neither of them must be
    /// set.
    pub(super) fn pair(&self, number: &str, count: &str) -> Result<Option<Member>> {
        match (self.number(number)?, self.number(count)?) {
            (Some(number), Some(count)) => {
                check_range(number, count.value, count.name)?;
                Ok(Some(Member { number: number.value, count: count.value }))
            }
            (None, None) => Ok(None),
            (given, _) => {
                let (set, unset) = if given.is_some() { (number, count) } else { (count, number) };
                Err(bad(format!("{set} is set, but {unset} is not: set both, or unset {set}")))
            }
        }
    }

    /// The length of the comma-separated list in the variable `name`.
    pub(super) fn list_length(&self, name: &str) -> Result<usize> {
        let list = (self.lookup)(name).unwrap_or_default();
        if list.split(',').any(|item| item.trim().is_empty()) {
            return Err(bad(format!("{name}={list:?} is not a list of hosts: set it to one, or unset it")));
        }
        Ok(list.split(',').count())
    }
}

pub(super) fn check_range(part: NumericVariable<'_>, whole: usize, whole_name: &str) -> Result<()> {
    let NumericVariable { name, value } = part;
    if value < whole {
        return Ok(());
    }
    Err(bad(format!("{name}={value} must be less than {whole_name}={whole}, since the first is 0")))
}

pub(super) fn topology(launcher: Launcher, rank: usize, world_size: usize) -> Result<Topology> {
    Ok(Topology { launcher, ..Topology::new(rank, world_size)? })
}

/// In a job with several TPU slices, this variable has the coordinator's address.
pub(super) const SLICES_ADDRESS: &str = "MEGASCALE_COORDINATOR_ADDRESS";

/// The topology of a worker of a TPU slice. In a job of several slices, `slice` has the number of the
/// worker's slice and the total number of slices.
pub(super) fn in_slice(
    environment: &Environment,
    launcher: Launcher,
    worker: Member,
    slice: Option<Member>,
) -> Result<Topology> {
    if slice.is_none() && environment.has(SLICES_ADDRESS) {
        return Err(bad(format!(
            "{SLICES_ADDRESS} is set, so the job has several slices, but MEGASCALE_SLICE_ID and \
             MEGASCALE_NUM_SLICES are not: set them, or {SET_BOTH}"
        )));
    }
    let slice = slice.unwrap_or(Member { number: 0, count: 1 });
    let Some(world_size) = worker.count.checked_mul(slice.count) else {
        return Err(bad(format!("MEGASCALE_NUM_SLICES={} is too large", slice.count)));
    };
    topology(launcher, slice.number * worker.count + worker.number, world_size)
}
