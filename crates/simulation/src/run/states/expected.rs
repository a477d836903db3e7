//! The result that a recovery must have.

use super::Judge;
use crate::audit;
use crate::bucket::BucketImage;
use crate::life::Stop;
use crate::plan::{Journal, Left};

/// The result that a recovery must have.
pub(super) struct Expected {
    /// Any position from `from` to `to`, or exactly `or`.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) or: Option<u64>,
    /// The verifier must be this one.
    pub(super) verifier: Option<[u8; 8]>,
    /// The verifier must not be one of a write that was lost.
    pub(super) honest: usize,
}

impl Expected {
    /// Exactly this position.
    pub(super) fn exactly(position: u64) -> Expected {
        Expected {
            from: position,
            to: position,
            or: None,
            verifier: None,
            honest: 0,
        }
    }
}

impl Judge<'_> {
    /// The result that a recovery from `left` must have.
    pub(super) fn expected(
        &self,
        stop: &Stop,
        before: Option<&Stop>,
        left: Left,
        bucket: &BucketImage,
    ) -> Result<Expected, String> {
        let ledger = &stop.ledger;
        let published = audit::published(bucket)?;
        if published < ledger.bucket {
            return Err(format!(
                "the bucket is at {published}, and {} was acknowledged as being there",
                ledger.bucket
            ));
        }
        let acknowledged = ledger.acknowledged;
        if self.plan.journal == Journal::Bucket && !ledger.fenced && published < acknowledged {
            return Err(format!(
                "the bucket is at {published}, and {acknowledged} was acknowledged as stable, which is to say in the bucket"
            ));
        }
        // A task may have emptied the trash.
        let newest = match ledger.polling || self.plan.keep.seconds > 0 {
            true => self.history.next_after(ledger.end).unwrap_or(ledger.end),
            false => ledger.end,
        };
        let honest = ledger.unstable;
        let only_bucket = Expected {
            from: published,
            to: published,
            or: None,
            verifier: None,
            honest,
        };
        let logged = self.plan.journal != Journal::None && !ledger.fenced;
        let or = ledger.contested.then_some(published);
        let certain = ledger.verifier.filter(|_| !ledger.contested);
        Ok(match left {
            Left::Elsewhere | Left::FormerMachine(_) => only_bucket,
            _ if !logged => {
                if !ledger.fenced && published < ledger.stable {
                    return Err(format!(
                        "the bucket is at {published}, and {} was acknowledged as stable on a volume without a log",
                        ledger.stable
                    ));
                }
                only_bucket
            }
            Left::SameMachine => Expected {
                from: ledger.end.max(published),
                to: newest.max(published),
                or,
                verifier: certain,
                honest,
            },
            Left::TornCopy(_) => Expected {
                from: before.map_or(0, |before| before.ledger.end).max(published),
                to: newest.max(published),
                or,
                verifier: certain,
                honest,
            },
            Left::PowerCut(_) => {
                let promised = ledger.survives_power_cut(self.plan.journal);
                Expected {
                    from: promised.max(published),
                    to: newest.max(published),
                    or,
                    verifier: certain.filter(|_| ledger.closed),
                    honest,
                }
            }
        })
    }
}
