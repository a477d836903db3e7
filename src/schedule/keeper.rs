//! Carries the plan out.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_fs::{SnapshotError, Volume};
use forebay_metrics::{Counter, Samples, Source, table};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::plan::{Plan, plan};
use super::{Known, MADE_BY, Schedule};

/// The longest pause between two looks: the clock may be set meanwhile, and what failed is tried again.
const PAUSE: Duration = Duration::from_secs(60);

/// The snapshots of a volume.
trait Shelf {
    /// The time, in seconds since 1970.
    fn now(&self) -> i64;

    /// All snapshots that are not being deleted.
    fn known(&self) -> Vec<Known>;

    /// Makes one with this name.
    async fn make(&self, name: &str) -> Result<(), SnapshotError>;

    /// Deletes the one with this name. While the bucket does not answer, it waits.
    async fn delete(&self, name: &str) -> Result<(), SnapshotError>;
}

impl Shelf for Volume {
    fn now(&self) -> i64 {
        Volume::now(self).seconds
    }

    fn known(&self) -> Vec<Known> {
        let listed = self.listed_snapshots().into_iter();
        let known = listed.map(|one| Known {
            name: one.name,
            made_by: one.made_by,
            is_published: one.is_published,
        });
        known.collect()
    }

    async fn make(&self, name: &str) -> Result<(), SnapshotError> {
        self.make_snapshot(name, MADE_BY).await.map(drop)
    }

    async fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        self.delete_snapshot(name).await
    }
}

/// Keeps the snapshots of a volume as the schedules say.
pub(crate) struct Keeper {
    schedules: watch::Sender<Vec<Schedule>>,
    failures: Counter,
    /// Expired snapshots that clones need, and that were logged.
    cloned: Mutex<BTreeSet<String>>,
    /// What failed last, until it works again.
    trouble: Mutex<Option<String>>,
}

impl Keeper {
    pub(crate) fn new(schedules: Vec<Schedule>) -> Keeper {
        Keeper {
            schedules: watch::Sender::new(schedules),
            failures: Counter::default(),
            cloned: Mutex::default(),
            trouble: Mutex::default(),
        }
    }

    /// Changes the schedules.
    pub(crate) fn set(&self, schedules: Vec<Schedule>) {
        self.schedules.send_replace(schedules);
    }

    /// When the next snapshot is due, in seconds since 1970; `None` without schedules.
    pub(crate) fn next(&self, now: i64) -> Option<i64> {
        plan(now, &self.schedules.borrow(), &[]).next
    }

    /// Makes and deletes snapshots when they are due. Never returns.
    pub(crate) async fn run(&self, volume: &Volume) {
        self.keep(volume).await;
    }

    async fn keep(&self, shelf: &impl Shelf) {
        let mut changes = self.schedules.subscribe();
        loop {
            changes.mark_unchanged();
            let look_again = async {
                let plan = self.make(shelf).await;
                let until = Instant::now() + pause(shelf.now(), plan.next);
                // The next snapshot does not wait for a deletion: that goes on in the volume, or is tried again.
                let _ = timeout_at(until, self.delete(shelf, plan.delete)).await;
                tokio::time::sleep_until(until).await;
            };
            tokio::select! {
                () = look_again => {}
                // The sender lives as long as this.
                _ = changes.changed() => {}
            }
        }
    }

    /// Makes the snapshot that is due, if one is. Returns the rest of the plan.
    async fn make(&self, shelf: &impl Shelf) -> Plan {
        let schedules = self.schedules.borrow().clone();
        let mut plan = plan(shelf.now(), &schedules, &shelf.known());
        if let Some(name) = plan.make.take() {
            match shelf.make(&name).await {
                Ok(()) => self.worked(),
                Err(error) => self.failed(format!("snapshot {name} was not made: {error}")),
            }
        }
        plan
    }

    /// Deletes these, one after the other.
    async fn delete(&self, shelf: &impl Shelf, expired: Vec<String>) {
        // Others are gone, or do not expire any more.
        let still: BTreeSet<&String> = expired.iter().collect();
        self.cloned.lock().retain(|name| still.contains(name));
        for name in expired {
            match shelf.delete(&name).await {
                Ok(()) => tracing::info!("snapshot {name:?} has expired (snapshot_schedule)"),
                // A person may have been faster.
                Err(SnapshotError::NotFound(_)) => {}
                // It expires when the clone does not need it any more.
                Err(error @ SnapshotError::Cloned { .. }) => {
                    if self.cloned.lock().insert(name) {
                        tracing::info!("{error}; the schedule deletes it after that");
                    }
                }
                Err(error) => self.failed(format!("snapshot {name} was not deleted: {error}")),
            }
        }
    }

    /// Logs the first failure of several.
    fn failed(&self, why: String) {
        self.failures.add(1);
        if self.trouble.lock().replace(why.clone()).is_none() {
            tracing::warn!("{why}; tried again each minute (snapshot_schedule)");
        }
    }

    fn worked(&self) {
        if self.trouble.lock().take().is_some() {
            tracing::info!("scheduled snapshots are made again");
        }
    }
}

/// Until the next look, when a snapshot is due at `next`.
fn pause(now: i64, next: Option<i64>) -> Duration {
    let left = next.map(|next| Duration::from_secs(u64::try_from(next - now).unwrap_or(0)));
    left.map_or(PAUSE, |left| left.clamp(Duration::from_secs(1), PAUSE))
}

impl Source for Keeper {
    fn collect(&self, samples: &mut Samples) {
        samples.counter(&table::SNAPSHOT_FAILURES, &self.failures);
    }
}

#[cfg(test)]
mod tests;
