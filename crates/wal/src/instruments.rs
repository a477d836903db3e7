//! Instruments of a log: the time of flushes, and how much each of them makes durable.

use std::time::Duration;

use forebay_metrics::{Histogram, Samples, Source, table};

/// See the module's documentation. They count from the opening of the log on.
#[derive(Debug)]
pub struct Instruments {
    flushed: Histogram,
    failed: Histogram,
    records: Histogram,
    bytes: Histogram,
}

impl Default for Instruments {
    fn default() -> Instruments {
        Instruments {
            flushed: Histogram::of_times(),
            failed: Histogram::of_times(),
            records: Histogram::of_numbers(),
            bytes: Histogram::of_bytes(),
        }
    }
}

impl Instruments {
    /// Counts a flush of these records and bytes that succeeded.
    pub(crate) fn flushed(&self, time: Duration, records: u64, bytes: u64) {
        self.flushed.observe_time(time);
        self.records.observe(records);
        self.bytes.observe(bytes);
    }

    /// Counts a flush that failed.
    pub(crate) fn failed(&self, time: Duration) {
        self.failed.observe_time(time);
    }
}

impl Source for Instruments {
    fn collect(&self, samples: &mut Samples) {
        samples.histogram_of(&table::LOG_FLUSH_DURATION, "ok", &self.flushed);
        samples.histogram_of(&table::LOG_FLUSH_DURATION, "failed", &self.failed);
        samples.histogram(&table::LOG_FLUSH_RECORDS, &self.records);
        samples.histogram(&table::LOG_FLUSH_BYTES, &self.bytes);
    }
}
