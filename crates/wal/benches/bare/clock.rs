//! Processor time: other load of the machine affects it less than wall time.

use std::time::Duration;

/// Processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    now(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of all threads of this process.
pub(crate) fn process_cpu() -> Duration {
    now(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn now(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a `timespec` that is written only during the call.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(outcome, 0, "Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
