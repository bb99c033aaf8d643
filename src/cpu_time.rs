//! The CPU time that a thread has used.

use std::time::Duration;

/// The CPU time of this thread since it began; `None` on systems that do not report it.
#[cfg(unix)]
pub(crate) fn of_thread() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// The CPU time of this thread since it began; `None` on systems that do not report it.
#[cfg(not(unix))]
pub(crate) fn of_thread() -> Option<Duration> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_sleeping_thread_uses_no_cpu_time() {
        let work = Duration::from_millis(5);
        std::thread::spawn(move || {
            let cpu_start = of_thread().unwrap();
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(50));
            let cpu_of_sleep = of_thread().unwrap() - cpu_start;
            while of_thread().unwrap() - cpu_start < work + cpu_of_sleep {}
            assert!(cpu_of_sleep < start.elapsed());
        })
        .join()
        .unwrap();
    }
}
