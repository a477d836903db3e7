//! Processor time: what others do on the machine counts less there than on the wall.

use std::time::Duration;

/// What this thread has had.
pub(crate) fn thread_cpu() -> Duration {
    now(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What all threads of this process have had.
pub(crate) fn process_cpu() -> Duration {
    now(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn now(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer leads to a `timespec` that is written during the call only.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(outcome, 0, "Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
