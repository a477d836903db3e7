//! Processor time of threads: other load on the machine distorts it less than elapsed
//! time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of the process.
pub(crate) fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Measured cost of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerCall {
    /// Processor time of one call, in nanoseconds.
    pub(crate) cpu_ns: f64,
    /// Calls per second of elapsed time, in thousands.
    pub(crate) thousand_a_second: f64,
}

impl PerCall {
    pub(crate) fn new(calls: u64, wall: Duration, cpu: Duration) -> PerCall {
        PerCall {
            cpu_ns: cpu.as_nanos() as f64 / calls as f64,
            thousand_a_second: calls as f64 / wall.as_secs_f64() / 1e3,
        }
    }
}
