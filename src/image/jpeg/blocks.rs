//! Passes over the coefficients of blocks, and the restart markers between them.

use super::huffman::{BAD_CODE, Bits, END, Fault, SHORT, Table};

pub(super) const BAD_RUN: &str = "a block of its image data has more coefficients than fit";

/// Counts units up to the next restart marker.
pub(super) struct Restarts {
    interval: usize,
    left: usize,
    number: u8,
}

impl Restarts {
    pub(super) fn new(interval: usize) -> Self {
        Restarts { interval, left: interval, number: 0 }
    }

    /// To be called before each unit; returns whether there was a marker.
    #[inline]
    pub(super) fn unit(&mut self, bits: &mut Bits<'_>) -> Result<bool, Fault> {
        let restart = self.interval > 0 && self.left == 0;
        if restart {
            bits.restart(self.number)?;
            self.number = (self.number + 1) & 7;
            self.left = self.interval;
        }
        self.left = self.left.wrapping_sub(1);
        Ok(restart)
    }
}

/// Passes over the coefficients of a block of a sequential file.
#[inline]
pub(super) fn block(dc: &Table, ac: &Table, bits: &mut Bits<'_>) -> Result<(), Fault> {
    first_coefficient(dc, bits)?;
    let mut at = 1;
    while at < 64 {
        bits.fill();
        let steps = ac.steps(bits);
        let (used, next) = (steps & 0xff, at + (steps >> 8 & 0xff));
        if used > 0 && next < 64 {
            bits.skip(used);
            if steps & END > 0 {
                return Ok(());
            }
            at = next;
            continue;
        }
        let symbol = ac.symbol(bits)?;
        match (symbol >> 4, symbol & 15) {
            (0, 0) => return Ok(()),
            (15, 0) => at += 16,
            (_, 0) => return Err(BAD_CODE),
            (run, size) => {
                bits.skip(size.into());
                at += u32::from(run) + 1;
            }
        }
        if at > 64 {
            return Err(BAD_RUN);
        }
    }
    Ok(())
}

/// Passes over the first coefficient of a block.
#[inline]
pub(super) fn first_coefficient(dc: &Table, bits: &mut Bits<'_>) -> Result<(), Fault> {
    let size = dc.symbol(bits)?;
    if size > 15 {
        return Err(BAD_CODE);
    }
    bits.skip(size.into());
    Ok(())
}

/// Passes over a progressive file's first scan of some coefficients.
pub(super) fn first(
    band: (u8, u8),
    table: &Table,
    blocks: &mut [u64],
    interval: usize,
    bits: &mut Bits<'_>,
) -> Result<(), Fault> {
    let end = u32::from(band.1) + 1;
    let mut restarts = Restarts::new(interval);
    let mut empty = 0;
    for nonzero in blocks {
        if restarts.unit(bits)? && empty > 0 {
            return Err(BAD_RUN);
        }
        if empty > 0 {
            empty -= 1;
            continue;
        }
        let mut at = u32::from(band.0);
        while at < end {
            let symbol = table.symbol(bits)?;
            match (symbol >> 4, symbol & 15) {
                (15, 0) => at += 16,
                (run, 0) => {
                    empty = (1 << run) + bits.number(run.into()) - 1;
                    break;
                }
                (run, size) => {
                    bits.skip(size.into());
                    at += u32::from(run);
                    *nonzero |= 1_u64.checked_shl(at).unwrap_or_default();
                    at += 1;
                }
            }
            if at > end {
                return Err(BAD_RUN);
            }
        }
        if bits.is_short() {
            return Err(SHORT);
        }
    }
    if empty > 0 { Err(BAD_RUN) } else { Ok(()) }
}

/// Passes over a progressive file's scan of one more bit of some coefficients.
pub(super) fn refined(
    band: (u8, u8),
    table: &Table,
    blocks: &mut [u64],
    interval: usize,
    bits: &mut Bits<'_>,
) -> Result<(), Fault> {
    let end = u32::from(band.1) + 1;
    let mut restarts = Restarts::new(interval);
    let mut empty = 0;
    for nonzero in blocks {
        if restarts.unit(bits)? && empty > 0 {
            return Err(BAD_RUN);
        }
        let mut at = u32::from(band.0);
        while empty == 0 && at < end {
            let symbol = table.symbol(bits)?;
            let (run, size) = (symbol >> 4, symbol & 15);
            match (run, size) {
                (15, 0) => {}
                (_, 0) => {
                    empty = (1 << run) + bits.number(run.into());
                    break;
                }
                // Its sign.
                (_, 1) => bits.skip(1),
                _ => return Err(BAD_CODE),
            }
            // Coefficients that are not zero have a bit each, and do not count.
            let mut zeros = run;
            while at < end && (*nonzero >> at & 1 > 0 || zeros > 0) {
                if *nonzero >> at & 1 > 0 {
                    bits.skip_many(1);
                } else {
                    zeros -= 1;
                }
                at += 1;
            }
            if at == end {
                return Err(BAD_RUN);
            }
            *nonzero |= u64::from(size) << at;
            at += 1;
        }
        if empty > 0 {
            // A block that is full has no rest.
            let rest = (at < end).then(|| (*nonzero & (u64::MAX >> (64 - end))) >> at);
            bits.skip_many(rest.map_or(0, u64::count_ones));
            empty -= 1;
        }
        if bits.is_short() {
            return Err(SHORT);
        }
    }
    if empty > 0 { Err(BAD_RUN) } else { Ok(()) }
}
