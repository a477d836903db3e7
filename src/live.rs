//! The last ten minutes of a gateway: throughput, latency and fill levels as a series, and what clients, procedures and
//! requests to the bucket do now. `GET /api/v1/live`, and the request `live` of the control socket.
//!
//! ```text
//!   registry of metrics --every 2 s--> State --+--> difference of the last two: one Point of the series
//!                                              +--> difference of the last 10 s: the tables
//! ```
//!
//! * `state`: what is needed of the values of one moment.
//! * `difference`: points and tables from two states; pure.
//! * `recent`: keeps the last 300 points and the last six states.
//! * `answer`: the types of the answer, in JSON.
//!
//! The memory is bounded: 300 points of some 400 bytes, and six states with at most 256 clients. Between two ticks
//! nothing is done, and a tick takes no lock that a call waits for.

mod answer;
mod difference;
mod recent;
mod state;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_fs::Volume;
use forebay_types::Inode;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

pub use answer::{
    BucketFlow, ClientRow, FileRow, Flow, Limits, Live, Point, ProcedureRow, RequestRow, WaitRow,
};

use crate::metrics::Metrics;
use recent::Recent;
use state::State;

/// The interval of points.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// The time in which the paths of the busiest files are looked up.
const FOR_PATHS: Duration = Duration::from_millis(250);

/// Takes a point every [`INTERVAL`] while it runs.
pub struct Recorder {
    started: Instant,
    metrics: Metrics,
    calls: Arc<forebay_nfs::Metrics>,
    volume: Volume,
    recent: Mutex<Recent>,
}

impl Recorder {
    /// For a gateway with these metrics, which has `volume` and counts its calls in `calls`.
    pub fn new(metrics: Metrics, calls: Arc<forebay_nfs::Metrics>, volume: Volume) -> Recorder {
        Recorder {
            started: Instant::now(),
            metrics,
            calls,
            volume,
            recent: Mutex::default(),
        }
    }

    /// Takes points, until it is dropped.
    pub async fn run(&self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (samples, files) = (self.metrics.samples(), self.calls.busy_files());
            let state = State::of(&samples, files, self.started.elapsed(), unix_time());
            self.recent.lock().add(state);
        }
    }

    /// The points with a sequence number above `after`, and the tables. All points if there is no such number yet.
    pub async fn live(&self, after: u64) -> Live {
        let mut live = self.recent.lock().answer(after, unix_time());
        let name = async {
            for file in &mut live.files {
                let path = self.volume.path_of(Inode(file.fileid)).await;
                // As in messages: a name must not send control characters to a terminal.
                file.path = path.map(|path| path.escape_ascii().to_string());
            }
        };
        // The paths that are missing then appear in a later answer.
        let _ = timeout(FOR_PATHS, name).await;
        live
    }
}

/// Now, in seconds since 1970.
fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
