//! Reads of metadata that give up while the bucket does not answer.

use std::time::Duration;

use forebay_meta::StoreError;

use crate::state::State;

/// How long a read may take while the bucket answers: longer than the store repeats a request.
const ANSWERING: Duration = Duration::from_secs(60);

/// How long a read may take while it does not: enough for metadata that are in memory or on the local disk.
const AWAY: Duration = Duration::from_secs(2);

/// The same after a failure.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// After this many failures nothing more is read.
const FAILURES: u32 = 20;

/// The reads of one walk.
pub(super) struct Reading<'a> {
    state: &'a State,
    failures: u32,
    /// Why the first one has failed.
    pub(super) why: Option<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(state: &'a State) -> Reading<'a> {
        Reading {
            state,
            failures: 0,
            why: None,
        }
    }

    /// The result of a read; `None` if there is none.
    pub(super) async fn read<T>(
        &mut self,
        reading: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<T> {
        let limit = match (self.failures, self.state.trouble.current()) {
            (FAILURES.., _) => return None,
            (1.., _) => AFTER_FAILURE,
            (0, Some(_)) => AWAY,
            (0, None) => ANSWERING,
        };
        let why = match tokio::time::timeout(limit, reading).await {
            Ok(Ok(read)) => return Some(read),
            Ok(Err(error @ (StoreError::Corrupt(_) | StoreError::Gone(_)))) => {
                // Others may be sound.
                self.why.get_or_insert_with(|| error.to_string());
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the bucket does not answer".to_owned(),
        };
        self.failures += 1;
        self.why.get_or_insert(why);
        None
    }

    /// Why something is not known.
    pub(super) fn why(&self) -> String {
        let unknown = || "the metadata cannot be read".to_owned();
        self.why.clone().unwrap_or_else(unknown)
    }
}
