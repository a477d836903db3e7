//! The time that NFS calls take, for each procedure and outcome.

use forebay_metrics::{Counter, Histogram, Samples, Value, table};

use crate::nfs3::{PROCEDURES, Status};
use crate::rpc::Answered;

/// How a call ended, in the order of the histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    Error,
    Retry,
    Refused,
}

/// Values of the label `outcome`, in the order of [`Outcome`].
const OUTCOMES: [&str; 4] = ["ok", "error", "retry", "refused"];

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Calls {
    times: [[Histogram; OUTCOMES.len()]; PROCEDURES.len()],
    /// In the order of [`Status::NAMES`], and one more for a status that is not among them.
    errors: [Counter; Status::NAMES.len() + 1],
}

impl Default for Calls {
    fn default() -> Calls {
        Calls {
            times: [const { [const { Histogram::of_times() }; OUTCOMES.len()] }; PROCEDURES.len()],
            errors: Default::default(),
        }
    }
}

impl Calls {
    /// Counts a call of a procedure of NFS that took this time.
    #[inline]
    pub(crate) fn answered(&self, procedure: u32, answered: Answered, nanos: u64) {
        let outcome = match answered {
            Answered::Status(0) => Outcome::Ok,
            Answered::Status(status) => self.failed(status),
            Answered::Refused => Outcome::Refused,
        };
        if let Some(times) = self.times.get(procedure as usize) {
            times[outcome as usize].observe(nanos);
        }
    }

    #[cold]
    fn failed(&self, status: u32) -> Outcome {
        let place = Status::NAMES.iter().position(|(known, _)| *known == status);
        self.errors[place.unwrap_or(Status::NAMES.len())].add(1);
        match Status(status) {
            Status::JUKEBOX => Outcome::Retry,
            _ => Outcome::Error,
        }
    }

    /// Adds the values of procedures and errors that there have been.
    pub(super) fn collect(&self, samples: &mut Samples) {
        for (procedure, times) in PROCEDURES.into_iter().zip(&self.times) {
            for (outcome, times) in OUTCOMES.into_iter().zip(times) {
                let observed = times.observed();
                if observed.count() > 0 {
                    let labels = [procedure.into(), outcome.into()];
                    let value = Value::Histogram(observed);
                    samples.add(&table::NFS_CALL_DURATION, labels, value);
                }
            }
        }
        let names = Status::NAMES.iter().map(|(_, name)| *name);
        for (name, errors) in names.chain(["unknown"]).zip(&self.errors) {
            if errors.get() > 0 {
                let value = Value::Counter(errors.get() as f64);
                samples.add(&table::NFS_ERRORS, [name.into()], value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_procedure_and_outcome() {
        let calls = Calls::default();
        calls.answered(1, Answered::Status(0), 1000);
        calls.answered(1, Answered::Status(0), 1000);
        calls.answered(3, Answered::Status(2), 1000);
        calls.answered(7, Answered::Status(10008), 1000);
        calls.answered(7, Answered::Status(77), 1000);
        calls.answered(7, Answered::Refused, 1000);
        // There is no such procedure.
        calls.answered(99, Answered::Status(0), 1000);
        let mut samples = Samples::default();
        calls.collect(&mut samples);
        let of =
            |procedure, outcome| samples.number("nfs_call_duration_seconds", &[procedure, outcome]);
        assert_eq!(of("GETATTR", "ok"), Some(2.0));
        assert_eq!(of("LOOKUP", "error"), Some(1.0));
        assert_eq!(of("WRITE", "retry"), Some(1.0));
        assert_eq!(of("WRITE", "error"), Some(1.0));
        assert_eq!(of("WRITE", "refused"), Some(1.0));
        assert_eq!(of("READ", "ok"), None);
        let errors = |status| samples.number("nfs_errors", &[status]);
        assert_eq!(errors("NFS3ERR_NOENT"), Some(1.0));
        assert_eq!(errors("NFS3ERR_JUKEBOX"), Some(1.0));
        assert_eq!(errors("unknown"), Some(1.0));
        assert_eq!(samples.iter().count(), 8);
    }
}
