//! The exit codes of the program beside 0 and 1.

/// Exit code of a training whose options contradict each other, or name a place that cannot be used. The same
/// command fails again. As clap's.
pub const EXIT_USAGE: u8 = 2;

/// Exit code of a training whose best validation accuracy is below `--target-accuracy`.
pub const EXIT_TARGET: u8 = 3;

/// Exit code of a training that was ended because a step took longer than `--step-timeout`. The same command
/// resumes it.
pub const EXIT_HUNG: u8 = 4;

/// Exit code of a training that was ended by a failure of the network, a store or a disk. The same command
/// resumes it, when that is back. EX_IOERR of sysexits.h.
pub const EXIT_OUTAGE: u8 = 74;

/// Exit code of a training that was asked to stop and did: the same command resumes it. EX_TEMPFAIL of
/// sysexits.h.
pub const EXIT_STOPPED: u8 = 75;
