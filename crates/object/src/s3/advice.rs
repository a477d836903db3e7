//! The meaning of the answers of S3 servers, and the remedy for each.
//!
//! [`ANSWERS`] has a row for each code of AWS's list of errors that can answer a request of this program, for codes
//! that other servers have added, and for each status that comes without a code. [`FAILURES`] has a row for each way in
//! which there is no answer at all. The tables in `docs/s3.md` are made from these, and a test compares them.

mod answers;
mod failures;

use crate::Fault;

pub use answers::ANSWERS;
pub use failures::FAILURES;
pub(super) use failures::{SILENT, Stage, failure};

/// The program's own reaction to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The answer belongs to the protocol; the caller expects it.
    Expected,
    /// The request is repeated, if that does no harm: its outcome is not known.
    Again,
    /// The request is repeated: the server did nothing.
    Untouched,
    /// No request is sent for a while, and fewer in parallel afterwards.
    SlowDown,
    /// The credentials are read again, and the request is repeated if they have changed. Else it fails.
    Credentials,
    /// The request fails until a setting of this program or of the bucket changes.
    Configuration,
    /// The request fails until somebody changes the bucket or the server.
    Permanent,
    /// The request fails for this object; others are not affected.
    Object,
}

impl Kind {
    /// The word for it in the documentation.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Expected => "expected",
            Kind::Again => "retry",
            Kind::Untouched => "retry, nothing was done",
            Kind::SlowDown => "retry, slower",
            Kind::Credentials => "credentials",
            Kind::Configuration => "configuration",
            Kind::Permanent => "permanent",
            Kind::Object => "one object",
        }
    }
}

/// A row of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// The code of the answer; in [`FAILURES`] a name for the failure. Empty for a status without a code.
    pub code: &'static str,
    /// The HTTP status of the answer; 0 if there is no answer. The code takes precedence over the status.
    pub status: u16,
    /// The program's own reaction.
    pub kind: Kind,
    /// The class of the problem.
    pub fault: Fault,
    /// Its meaning, as a clause.
    pub means: &'static str,
    /// The remedy.
    pub advice: &'static str,
}

/// The row of an answer: of its code, else of its status; an unknown code counts as its status.
pub(super) fn answer(code: Option<&str>, status: u16) -> &'static Advice {
    let by_code = code.and_then(|code| ANSWERS.iter().find(|row| row.code == code));
    by_code.unwrap_or_else(|| of_status(status))
}

/// The row of a status without a code, or with one that is in no table.
fn of_status(status: u16) -> &'static Advice {
    let exact = ANSWERS
        .iter()
        .find(|row| row.code.is_empty() && row.status == status);
    exact.unwrap_or(match status {
        300..=399 => &answers::OTHER_REDIRECT,
        400..=499 => &answers::OTHER_REFUSAL,
        _ => &answers::OTHER_FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_code_has_two_rows_and_no_row_is_without_advice() {
        let mut seen = HashSet::new();
        for row in ANSWERS.iter().chain(FAILURES) {
            assert!(seen.insert((row.code, if row.code.is_empty() { row.status } else { 0 })));
            assert!(!row.means.is_empty() && !row.advice.is_empty(), "{row:?}");
            assert!(!row.advice.ends_with('.'), "{row:?}");
            assert!(!row.code.is_empty() || row.status != 0, "{row:?}");
        }
    }

    #[test]
    fn what_is_repeated_is_what_may_change_by_itself() {
        for row in ANSWERS.iter().chain(FAILURES) {
            let repeated = matches!(row.kind, Kind::Again | Kind::Untouched | Kind::SlowDown);
            // A wrong clock, and a certificate, stay wrong; but a body that waited in transit is late as well.
            let stays = matches!(row.fault, Fault::Clock | Fault::Untrusted);
            assert_eq!(repeated, row.fault.is_transient() || stays, "{row:?}");
        }
    }

    #[test]
    fn an_unknown_code_counts_as_its_status() {
        assert_eq!(answer(Some("NeverHeardOf"), 503).kind, Kind::SlowDown);
        assert_eq!(answer(Some("NeverHeardOf"), 500).kind, Kind::Again);
        assert_eq!(answer(Some("NeverHeardOf"), 418).fault, Fault::Refused);
        assert_eq!(answer(Some("NeverHeardOf"), 599).kind, Kind::Again);
        assert_eq!(answer(None, 302).fault, Fault::NotS3);
        assert_eq!(answer(Some("QuotaExceeded"), 403).fault, Fault::Full);
    }
}
