//! The time of day for SlateDB.
//!
//! SlateDB numbers tables and merges by the time of day and refuses to go back behind the latest time that a volume has
//! seen. A machine whose clock is behind that of the previous machine could not commit anything until it has caught up.
//! So the clock here starts at the volume's latest time, if that is later than the machine's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use slatedb::Db;
use slatedb_common::clock::{DefaultSystemClock, SystemClock, SystemClockTicker};

/// Minimum distance between a volume's last time and the next one, in milliseconds.
const STEP_MS: i64 = 1000;

/// The machine's time of day, moved forward if a volume has seen a later one. It runs evenly even if the machine's
/// clock is set meanwhile.
#[derive(Debug, Default)]
pub(super) struct VolumeClock {
    machine: DefaultSystemClock,
    ahead_ms: AtomicI64,
}

impl VolumeClock {
    /// Continues from the latest time that the volume, which was just opened, has seen.
    pub(super) fn follow(&self, db: &Db) {
        let manifest = db.manifest();
        let tables = manifest.l0().iter().map(|table| table.id.timestamp_ms());
        let merged = manifest.last_compacted_l0_sst_id();
        let seen = tables
            .chain(merged.map(|id| id.timestamp_ms()))
            .filter_map(|ms| i64::try_from(ms).ok())
            .chain([manifest.last_l0_clock_tick()])
            .max();
        let now = self.machine.now().timestamp_millis();
        if let Some(seen) = seen.filter(|seen| *seen >= now) {
            let ahead = seen.saturating_sub(now).saturating_add(STEP_MS);
            tracing::warn!(
                "this machine's clock is {} s behind the one that wrote the metadata last; set it right",
                ahead / 1000
            );
            self.ahead_ms.store(ahead, Ordering::Release);
        }
    }
}

impl SystemClock for VolumeClock {
    fn now(&self) -> DateTime<Utc> {
        let ahead = TimeDelta::milliseconds(self.ahead_ms.load(Ordering::Acquire));
        let now = self.machine.now();
        now.checked_add_signed(ahead).unwrap_or(now)
    }

    fn sleep<'a>(
        &'a self,
        duration: Duration,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.machine.sleep(duration)
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}
