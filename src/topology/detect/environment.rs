//! Numeric environment variables, and the topologies that they describe.

use crate::error::Result;
use crate::topology::{Launcher, Topology, bad};

pub(super) const SET_BOTH: &str = "set SHARDSTREAM_RANK and SHARDSTREAM_WORLD_SIZE";

pub(super) struct Environment<'a> {
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the metadata server may be asked.
    pub(super) on_tpu_vm: bool,
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

    /// Two numbers, of which both or neither must be set.
    pub(super) fn pair(&self, part: &str, whole: &str) -> Result<Option<(usize, usize)>> {
        match (self.number(part)?, self.number(whole)?) {
            (Some(part), Some(whole)) => {
                check_range(part, whole.value, whole.name)?;
                Ok(Some((part.value, whole.value)))
            }
            (None, None) => Ok(None),
            (given, _) => {
                let (set, unset) = if given.is_some() { (part, whole) } else { (whole, part) };
                Err(bad(format!("{set} is set, but {unset} is not: set both, or unset {set}")))
            }
        }
    }

    /// The length of a list whose items are separated by commas.
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

/// The variable with the address at which the slices of a job find each other.
pub(super) const SLICES_ADDRESS: &str = "MEGASCALE_COORDINATOR_ADDRESS";

/// The topology of a worker of a slice, which is one of `slices` if the job has several.
pub(super) fn in_slice(
    environment: &Environment,
    launcher: Launcher,
    (worker, workers): (usize, usize),
    slices: Option<(usize, usize)>,
) -> Result<Topology> {
    if slices.is_none() && environment.has(SLICES_ADDRESS) {
        return Err(bad(format!(
            "{SLICES_ADDRESS} is set, so the job has several slices, but MEGASCALE_SLICE_ID and \
             MEGASCALE_NUM_SLICES are not: set them, or {SET_BOTH}"
        )));
    }
    let (slice, slices) = slices.unwrap_or((0, 1));
    let world_size = workers.checked_mul(slices);
    let world_size = world_size.ok_or_else(|| bad(format!("MEGASCALE_NUM_SLICES={slices} is too large")))?;
    topology(launcher, slice * workers + worker, world_size)
}
