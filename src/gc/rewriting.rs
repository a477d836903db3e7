//! Packs that are mostly dead are rewritten by the gateway, because only it writes metadata: this sends the request,
//! and watches the progress.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::admin::{self, ClientError, GcOrder, GcReport};
use crate::fsck::bar;

/// Interval of requests for the progress.
const PERIOD: Duration = Duration::from_millis(500);
/// Maximum number of consecutive requests without an answer.
const MOST_SILENCES: u32 = 6;

/// The outcome of a request to the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Rewriting {
    /// All packs are rewritten; otherwise the gateway is still working, or there is a problem.
    pub(super) done: bool,
    /// Packs that it has rewritten since the request.
    pub(super) packs_rewritten: u64,
    /// Live bytes that were copied by that, before compression.
    pub(super) bytes_copied: u64,
    /// Packs that cannot be rewritten; the gateway's messages give the reason.
    pub(super) packs_left_alone: u64,
    /// Maximum number of bytes per second that it reads and writes for that.
    pub(super) rate_bytes: u64,
    /// Why the request was not sent, or not watched to the end.
    pub(super) problem: Option<String>,
}

/// Options of the watching.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watching {
    /// Wait until the gateway is done.
    pub(super) waits: bool,
    /// Show a line on the terminal.
    pub(super) shown: bool,
}

/// Makes the gateway that uses `data_dir` rewrite the packs of the volume in `store`.
pub(super) async fn ask(data_dir: &Path, store: &str, watching: Watching) -> Rewriting {
    match order(data_dir, store).await {
        Ok(first) => watch(data_dir, first, watching).await,
        Err(problem) => Rewriting {
            problem: Some(problem),
            ..Rewriting::default()
        },
    }
}

async fn order(data_dir: &Path, store: &str) -> Result<GcReport, String> {
    let ask = |order| admin::gc(data_dir, order);
    let is = ask(GcOrder::Status).await;
    let is = is.map_err(|error| error.to_string())?;
    if is.store != store {
        return Err(format!(
            "the gateway with data_dir = {} serves {}, and not {store}: name the folder of the one you mean with \
             --data-dir",
            data_dir.display(),
            is.store
        ));
    }
    let first = ask(GcOrder::Rewrite).await;
    first.map_err(|error| error.to_string())
}

async fn watch(data_dir: &Path, first: GcReport, watching: Watching) -> Rewriting {
    let (mut last, mut problem, mut silences) = (first.clone(), None, 0);
    while watching.waits && last.running {
        if watching.shown {
            bar::draw(&last.to_string());
        }
        tokio::time::sleep(PERIOD).await;
        match admin::gc(data_dir, GcOrder::Status).await {
            Ok(report) => (last, silences) = (report, 0),
            Err(ClientError::Silent { .. }) if silences < MOST_SILENCES => silences += 1,
            Err(error) => {
                problem = Some(error.to_string());
                break;
            }
        }
    }
    if watching.shown {
        bar::clear();
    }
    Rewriting::between(&first, &last, problem)
}

impl Rewriting {
    fn between(first: &GcReport, last: &GcReport, problem: Option<String>) -> Rewriting {
        Rewriting {
            done: !last.running && problem.is_none(),
            // The counters of a restarted gateway begin at zero.
            packs_rewritten: last.packs_rewritten.saturating_sub(first.packs_rewritten),
            bytes_copied: last.bytes_copied.saturating_sub(first.bytes_copied),
            packs_left_alone: last.packs_left_alone,
            rate_bytes: last.rate_bytes,
            problem,
        }
    }

    /// In words, as a row of its own.
    pub(super) fn described(&self) -> String {
        let size = |bytes| bytesize::ByteSize(bytes).display().iec().to_string();
        let mut text = match (&self.problem, self.done) {
            (Some(problem), _) => {
                return format!(
                    "not now: {problem}. A gateway rewrites them in the background, from its first commit on"
                );
            }
            (None, true) => format!(
                "{} packs, {} copied",
                self.packs_rewritten,
                size(self.bytes_copied)
            ),
            (None, false) => format!(
                "the gateway does it now, {}/s at most: `forebay status` shows the progress",
                size(self.rate_bytes)
            ),
        };
        if self.packs_left_alone > 0 {
            text += &format!(
                "; {} cannot be rewritten: see the gateway's messages",
                self.packs_left_alone
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(packs_rewritten: u64, running: bool) -> GcReport {
        GcReport {
            running,
            packs_rewritten,
            bytes_copied: packs_rewritten << 20,
            rate_bytes: 16 << 20,
            ..GcReport::default()
        }
    }

    #[test]
    fn what_was_done_before_it_was_asked_does_not_count() {
        let done = Rewriting::between(&report(3, true), &report(5, false), None);
        assert_eq!(done.described(), "2 packs, 2.0 MiB copied");
        let again = Rewriting::between(&report(3, true), &report(1, false), None);
        assert_eq!((again.packs_rewritten, again.bytes_copied), (0, 0));
    }

    #[test]
    fn what_is_not_done_is_not_called_done() {
        let goes_on = Rewriting::between(&report(3, true), &report(5, true), None);
        assert!(!goes_on.done);
        assert!(goes_on.described().contains("16.0 MiB/s at most"));
        let why = Some("no gateway runs".to_owned());
        let broken = Rewriting::between(&report(3, true), &report(5, false), why);
        assert!(!broken.done);
        let words = "not now: no gateway runs. A gateway rewrites them in the background";
        assert!(broken.described().starts_with(words));
    }
}
