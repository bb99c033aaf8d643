//! The exit codes of the program other than 0 and 1.

/// Exit code of a training whose options contradict each other, or name a file or URL that cannot be used.
/// The same command fails again. clap uses this code too.
pub const EXIT_USAGE: u8 = 2;

/// Exit code of a training whose best validation accuracy is below `--target-accuracy`.
pub const EXIT_TARGET: u8 = 3;

/// Exit code of a training that the watchdog ended because a step took longer than `--step-timeout`. The same
/// command resumes the training.
pub const EXIT_HUNG: u8 = 4;

/// Exit code of a training that failed because the network, a store or a disk failed. When the network, store
/// or disk works again, the same command resumes the training. The number is EX_IOERR of sysexits.h.
pub const EXIT_OUTAGE: u8 = 74;

/// Exit code of a training that a signal stopped. The same command resumes the training. The number is
/// EX_TEMPFAIL of sysexits.h.
pub const EXIT_STOPPED: u8 = 75;
