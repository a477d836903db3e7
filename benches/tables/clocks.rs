//! Processor time of the threads of this process, and the order of times.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of this thread.
pub(crate) fn own_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Processor time of all threads but the current one.
pub(crate) fn others() -> Duration {
    read(ClockId::ProcessCPUTime).saturating_sub(own_time())
}

/// Waits until all other threads have been idle for a while; for a second at most.
pub(crate) fn wait_for_quiet() {
    const WHILE: Duration = Duration::from_millis(10);
    const NOTHING: Duration = Duration::from_micros(200);
    let until = Instant::now() + Duration::from_secs(1);
    let mut before = others();
    while Instant::now() < until {
        std::thread::sleep(WHILE);
        let now = others();
        if now.saturating_sub(before) < NOTHING {
            return;
        }
        before = now;
    }
}

/// The smallest value that `hundredths` percent of the values, which ascend, do not exceed.
pub(crate) fn percentile(sorted: &[f64], hundredths: usize) -> f64 {
    let at = (sorted.len() * hundredths).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or_default()
}
