//! The times that checkpoints take from their end to their publication.

use forebay_metrics::{Histogram, Samples, Source, table};
use tokio::time::Instant;

/// See the module's documentation. Only published checkpoints count.
#[derive(Debug)]
pub(crate) struct CheckpointTimes {
    uploading: Histogram,
    publishing: Histogram,
    all: Histogram,
}

impl Default for CheckpointTimes {
    fn default() -> CheckpointTimes {
        CheckpointTimes {
            uploading: Histogram::of_times(),
            publishing: Histogram::of_times(),
            all: Histogram::of_times(),
        }
    }
}

impl CheckpointTimes {
    /// Counts a checkpoint that is published now.
    pub(super) fn published(&self, closed: Instant, uploaded: Instant) {
        self.uploading.observe_time(uploaded - closed);
        self.publishing.observe_time(uploaded.elapsed());
        self.all.observe_time(closed.elapsed());
    }
}

impl Source for CheckpointTimes {
    fn collect(&self, samples: &mut Samples) {
        let stages = &table::CHECKPOINT_STAGE_DURATION;
        samples.histogram_of(stages, "uploading", &self.uploading);
        samples.histogram_of(stages, "publishing", &self.publishing);
        samples.histogram(&table::CHECKPOINT_DURATION, &self.all);
    }
}
