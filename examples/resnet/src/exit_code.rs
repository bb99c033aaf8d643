//! The exit codes of the program beside 0, 1 and 2.

/// Exit code of a training whose best validation accuracy is below `--target-accuracy`.
pub const EXIT_TARGET: u8 = 3;

/// Exit code of a training that was ended because a step took longer than `--step-timeout`. The same command
/// resumes it.
pub const EXIT_HUNG: u8 = 4;

/// Exit code of a training that was asked to stop and did: the same command resumes it. EX_TEMPFAIL of
/// sysexits.h.
pub const EXIT_STOPPED: u8 = 75;
