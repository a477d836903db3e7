//! Measures the memory that a process has allocated.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes that the process itself has allocated (RssAnon + RssShmem). Pages of files such as the mapped log do not
/// count, because the kernel can reclaim them. `None` if there is no such process.
pub fn allocated(process_id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:")?) << 10)
}

/// Number of files that the process has open. `None` if there is no such process.
pub fn open_files(process_id: u32) -> Option<usize> {
    let files = fs::read_dir(format!("/proc/{process_id}/fd")).ok()?;
    Some(files.count())
}

/// Ticks per second in the kernel's files on processes: 100 on each Linux (USER_HZ).
const CLOCK_TICKS: f64 = 100.0;

/// Processor time that the process has used, in seconds. `None` if there is no such process.
pub fn processor_time(process_id: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    // The name, in brackets, may have blanks; user and system time are the 14th and 15th value, in clock ticks.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut values = behind.split_whitespace().skip(11);
    let mut ticks = || values.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / CLOCK_TICKS)
}

/// Pause between two samples.
const PAUSE: Duration = Duration::from_millis(100);

/// Statistics of the samples of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Samples {
    /// Number of samples.
    pub count: u64,
    /// Most allocated bytes in a sample.
    pub peak: u64,
    /// Time of that sample since the beginning.
    pub peak_after: Duration,
    /// The allocated bytes of the last sample.
    pub last: u64,
    /// Most open files in a sample.
    pub files: usize,
}

impl Samples {
    /// Samples the process now.
    fn take(&mut self, process_id: u32, began: Instant) {
        let Some(bytes) = allocated(process_id) else {
            return;
        };
        self.count += 1;
        self.last = bytes;
        if bytes > self.peak {
            self.peak = bytes;
            self.peak_after = began.elapsed();
        }
        // Counting the files costs more than reading the memory.
        if self.count % 10 == 1 {
            self.files = self.files.max(open_files(process_id).unwrap_or(0));
        }
    }
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    process_id: AtomicU32,
    ends: AtomicBool,
    samples: Mutex<Samples>,
}

/// A thread that samples a process every 100 ms, independently of all other threads.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread; it does not sample any process yet.
    pub fn start() -> Sampler {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            process_id: AtomicU32::new(0),
            ends: AtomicBool::new(false),
            samples: Mutex::default(),
        });
        let of_thread = shared.clone();
        let thread = thread::spawn(move || {
            while !of_thread.ends.load(Ordering::Relaxed) {
                let process_id = of_thread.process_id.load(Ordering::Relaxed);
                let samples = of_thread.samples.lock();
                let mut samples = samples.unwrap_or_else(PoisonError::into_inner);
                samples.take(process_id, of_thread.began);
                drop(samples);
                thread::sleep(PAUSE);
            }
        });
        Sampler {
            shared,
            thread: Some(thread),
        }
    }

    /// Samples this process from now on; a process that does not exist has no samples.
    pub fn watch(&self, process_id: u32) {
        self.shared.process_id.store(process_id, Ordering::Relaxed);
    }

    /// The samples so far.
    pub fn samples(&self) -> Samples {
        let samples = self.shared.samples.lock();
        *samples.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It returns nothing.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_taken_is_seen() {
        let process_id = std::process::id();
        let mut samples = Samples::default();
        let began = Instant::now();
        samples.take(process_id, began);
        let before = samples.peak;
        // Pages of zeros would be promised and not allocated.
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        samples.take(process_id, began);
        assert!(samples.peak > before + (48 << 20), "{samples:?}");
        assert!(samples.files > 2, "{samples:?}");
        drop(memory);
        samples.take(u32::MAX, began);
        assert_eq!(samples.count, 2);
    }

    #[test]
    fn the_thread_looks_at_the_process_that_it_is_told() {
        let sampler = Sampler::start();
        sampler.watch(std::process::id());
        while sampler.samples().count < 2 {
            thread::sleep(PAUSE);
        }
        assert!(sampler.samples().last > 0);
    }
}
