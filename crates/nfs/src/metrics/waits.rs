//! The time that NFS calls wait, by kind.

use std::time::Duration;

use forebay_metrics::{Histogram, Samples, table};
use forebay_waits::{Call, For};

/// See the module's documentation. In the order of [`For::ALL`].
#[derive(Debug)]
pub(crate) struct Waits([Histogram; For::ALL.len()]);

impl Default for Waits {
    fn default() -> Waits {
        Waits([const { Histogram::of_times() }; For::ALL.len()])
    }
}

impl Waits {
    /// Counts what an answered call has waited for.
    pub(crate) fn answered(&self, call: &Call) {
        call.ended(|what, time| self.waited(what, time));
    }

    fn waited(&self, what: For, time: Duration) {
        // The kinds are numbered in order.
        if let Some(times) = self.0.get(what as usize) {
            times.observe_time(time);
        }
    }

    /// Adds the times of kinds that there have been.
    pub(super) fn collect(&self, samples: &mut Samples) {
        for ((_, name), times) in For::ALL.iter().zip(&self.0) {
            samples.histogram_of(&table::NFS_CALL_WAIT, name, times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_a_call_counts_once_with_all_of_its_time() {
        let waits = Waits::default();
        let call = Call::default();
        for _ in 0..3 {
            call.waited(For::Flush, Duration::from_secs(1));
        }
        call.waited(For::NodeLock, Duration::from_secs(1));
        waits.answered(&call);
        waits.answered(&Call::default());
        let mut samples = Samples::default();
        waits.collect(&mut samples);
        let of = |kind| samples.number("nfs_call_wait_seconds", &[kind]);
        assert_eq!((of("flush"), of("node_lock")), (Some(1.0), Some(1.0)));
        assert_eq!(samples.iter().count(), 2);
        let flush = &waits.0[For::Flush as usize];
        assert!((flush.observed().sum() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_table_names_all_kinds() {
        for (_, name) in For::ALL {
            let named = format!("`{name}`");
            assert!(table::NFS_CALL_WAIT.meaning.contains(&named), "{name}");
        }
    }
}
