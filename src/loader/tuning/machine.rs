//! The idle time of the machine's cores.

use std::fs;
use std::time::Duration;

/// The idle time of all cores since the machine was started, summed over the cores. A core also counts as
/// idle while it waits for a disk or does work of a lower priority (`nice`). The time is only known on Linux,
/// where `/proc/stat` (`proc_stat(5)`) has it in hundredths of a second.
pub(super) fn idle_cores() -> Option<Duration> {
    idle(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the first line of `/proc/stat`: `cpu  user nice system idle iowait …`.
fn idle(stat: &str) -> Option<Duration> {
    let mut numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut number = || numbers.next()?.parse::<u64>().ok();
    let (_user, nice, _system, idle, waiting) = (number()?, number()?, number()?, number()?, number()?);
    Some(Duration::from_millis(nice.saturating_add(idle).saturating_add(waiting).saturating_mul(10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_waits_for_a_disk_is_idle() {
        let stat = "cpu  100 2 30 4000 50 6 7 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(idle(stat), Some(Duration::from_millis(40_520)));
        for stat in ["", "cpu0 1 2 3 4 5", "cpu  1 2 3", "cpu  a b c d e", "intr 1 2 3 4 5 6"] {
            assert_eq!(idle(stat), None, "{stat}");
        }
        assert_eq!(idle_cores().is_some(), cfg!(target_os = "linux"));
    }
}
