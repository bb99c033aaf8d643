//! The CPU time that a thread has taken.

use std::time::Duration;

/// The CPU time of this thread since it began; `None` where the system does not say.
#[cfg(unix)]
pub(crate) fn of_thread() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// The CPU time of this thread since it began; `None` where the system does not say.
#[cfg(not(unix))]
pub(crate) fn of_thread() -> Option<Duration> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn only_work_takes_cpu_time() {
        let worked = Duration::from_millis(5);
        std::thread::spawn(move || {
            let (begun, at) = (of_thread().unwrap(), Instant::now());
            std::thread::sleep(Duration::from_millis(50));
            let slept = of_thread().unwrap() - begun;
            while of_thread().unwrap() - begun < worked + slept {}
            assert!(slept < at.elapsed());
        })
        .join()
        .unwrap();
    }
}
