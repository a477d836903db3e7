//! Packs in flight, as reported to the [`Planner`].

use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::planner::{Next, Planner};
use super::{Compression, Levels};

/// The status of compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStatus {
    /// The level that was planned for the last pack; none before the first one, and for a pack without compressed
    /// parts.
    pub level: Option<u8>,
    /// Bytes of files in the packs since the start, before encoding.
    pub raw_bytes: u64,
    /// And after it, with headers and indexes of the packs.
    pub stored_bytes: u64,
}

/// All packs of a volume in flight.
#[derive(Debug)]
pub struct Packs {
    state: Mutex<State>,
    since: Instant,
}

#[derive(Debug)]
struct State {
    planner: Planner,
    status: CompressionStatus,
}

impl Packs {
    /// With at most this many of them on the link at the same time.
    pub fn new(parallel: usize) -> Arc<Packs> {
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
        Arc::new(Packs {
            state: Mutex::new(State {
                planner: Planner::new(threads, parallel),
                status: CompressionStatus::default(),
            }),
            since: Instant::now(),
        })
    }

    /// The current status of compression.
    pub fn status(&self) -> CompressionStatus {
        self.state.lock().status
    }

    /// Begins the encoding of a pack of this many bytes, whose files have these settings.
    pub fn encode(
        self: &Arc<Self>,
        raw_bytes: u64,
        files: impl Iterator<Item = Compression>,
        link_limit: Option<u64>,
    ) -> Encoding {
        let levels = files.filter_map(|file| match file {
            Compression::Off => None,
            Compression::Auto(levels) => Some(levels),
        });
        let levels = levels.reduce(Levels::and);
        let level = levels.map(|levels| {
            let next = Next {
                raw_bytes,
                levels,
                link_limit,
            };
            self.state.lock().planner.level(&next)
        });
        Encoding {
            packs: self.clone(),
            level,
            raw_bytes,
            began: Instant::now(),
        }
    }

    fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

/// A pack that is being encoded.
pub struct Encoding {
    packs: Arc<Packs>,
    level: Option<u8>,
    raw_bytes: u64,
    began: Instant,
}

impl Encoding {
    /// The level for those of its frames that are compressed.
    pub fn level(&self) -> u8 {
        self.level.unwrap_or(Levels::ONE.lowest())
    }

    /// Notes that it is encoded, and waits for the link.
    pub fn done(self, stored_bytes: u64) -> Sending {
        let mut state = self.packs.state.lock();
        let took = self.began.elapsed();
        let level = self.level;
        state
            .planner
            .encoded(level, self.raw_bytes, stored_bytes, took);
        let status = &mut state.status;
        status.level = level;
        status.raw_bytes += self.raw_bytes;
        status.stored_bytes += stored_bytes;
        drop(state);
        Sending {
            began: self.packs.elapsed(),
            packs: self.packs,
            has_arrived: false,
        }
    }
}

/// A pack that waits for the link, or is on it.
pub struct Sending {
    packs: Arc<Packs>,
    began: Duration,
    has_arrived: bool,
}

impl Sending {
    /// Notes that the bucket has it.
    pub fn arrived(mut self, stored_bytes: u64) {
        self.has_arrived = true;
        let now = self.packs.elapsed();
        let planner = &mut self.packs.state.lock().planner;
        planner.arrived(stored_bytes, self.began, now);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.has_arrived {
            self.packs.state.lock().planner.given_up();
        }
    }
}
