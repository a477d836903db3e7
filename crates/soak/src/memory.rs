//! The memory that a process has allocated.

use std::fs;
use std::time::Instant;

/// Bytes that the process itself has allocated (RssAnon + RssShmem); pages of files such as the mapped log do not
/// count, since the kernel takes them back. `None` if there is no such process.
pub fn allocated(process_id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:")?) << 10)
}

/// Files that the process has open. `None` if there is no such process.
pub fn open_files(process_id: u32) -> Option<usize> {
    let files = fs::read_dir(format!("/proc/{process_id}/fd")).ok()?;
    Some(files.count())
}

/// Ticks of a second in what the kernel tells of processes: 100 on each Linux (USER_HZ).
const CLOCK_TICKS: f64 = 100.0;

/// Seconds of processor that the process has used. `None` if there is no such process.
pub fn processor_time(process_id: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    // The name, in brackets, may have blanks; user and system time are the 14th and 15th value, in clock ticks.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut values = behind.split_whitespace().skip(11);
    let mut ticks = || values.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / CLOCK_TICKS)
}

/// Samples of a run.
#[derive(Clone, Debug)]
pub struct Samples {
    began: Instant,
    /// Number of samples.
    pub count: u64,
    /// The most allocated bytes that were seen.
    pub peak: u64,
    /// Seconds from the beginning to that sample.
    pub peak_second: f64,
    /// The allocated bytes of the last sample.
    pub last: u64,
    /// The most open files that were seen.
    pub files: usize,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples {
            began: Instant::now(),
            count: 0,
            peak: 0,
            peak_second: 0.0,
            last: 0,
            files: 0,
        }
    }
}

impl Samples {
    /// Looks at the process now.
    pub fn take(&mut self, process_id: u32) {
        let Some(bytes) = allocated(process_id) else {
            return;
        };
        self.count += 1;
        self.last = bytes;
        if bytes > self.peak {
            self.peak = bytes;
            self.peak_second = self.began.elapsed().as_secs_f64();
        }
        // Each look at the files costs more than one at the memory.
        if self.count % 10 == 1 {
            self.files = self.files.max(open_files(process_id).unwrap_or(0));
        }
    }
}
