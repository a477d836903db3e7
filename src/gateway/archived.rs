//! The archived logs of a gateway, counted from time to time: a scrape does not wait for the disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_metrics::{Gauge, Samples, Source, table};
use forebay_salvage::logs;
use tokio::time::sleep;

/// The pause between two counts.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// Number and bytes of the archived logs in a local folder.
pub(super) struct Archived {
    data_dir: PathBuf,
    logs: Gauge,
    bytes: Gauge,
}

impl Archived {
    /// Counts those in `data_dir`.
    pub(super) fn new(data_dir: &Path) -> Archived {
        let archived = Archived {
            data_dir: data_dir.to_owned(),
            logs: Gauge::default(),
            bytes: Gauge::default(),
        };
        archived.set(count(data_dir));
        archived
    }

    fn set(&self, (logs, bytes): (u64, u64)) {
        self.logs.set(logs);
        self.bytes.set(bytes);
    }

    /// Counts them every ten seconds. Never returns.
    pub(super) async fn run(&self) {
        loop {
            sleep(COUNT_EVERY).await;
            let data_dir = self.data_dir.clone();
            if let Ok(counts) = tokio::task::spawn_blocking(move || count(&data_dir)).await {
                self.set(counts);
            }
        }
    }
}

/// Number and bytes. A folder that cannot be read has none: `forebay log` has the error.
fn count(data_dir: &Path) -> (u64, u64) {
    let archived = logs::archived(data_dir).unwrap_or_default();
    (archived.logs, archived.bytes)
}

impl Source for Archived {
    fn collect(&self, samples: &mut Samples) {
        samples.gauge(&table::ARCHIVED_LOGS, &self.logs);
        samples.gauge(&table::ARCHIVED_LOG, &self.bytes);
    }
}
