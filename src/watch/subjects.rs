//! The texts for each kind of trouble that is counted, and when they are logged. `docs/operations.md` has a row for
//! each.

use std::time::Duration;

use forebay_vfs::Trouble;

use crate::health::State;

/// When a message is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The meaning of the counts.
    pub counting: Counting,
    /// In how many looks it has to be present before it is logged; 1 is at once.
    pub looks: u32,
    /// How long it must be absent to be over.
    pub over: Duration,
    /// Whether other code logs its beginning and end.
    pub said_elsewhere: bool,
}

/// The kind of events that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Calls that wait: it is present as long as one does.
    Waits,
    /// Clients or requests that are refused: it is present if one was refused since the last look.
    Refusals,
    /// Calls that wait, which they also do without a problem.
    Others,
}

/// The events that are counted for a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Calls of clients that wait or are refused.
    Calls(Trouble),
    /// Requests that the store answered with "slow down" (429, 503).
    Throttled,
}

/// The texts of a kind of trouble.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The counter.
    pub kind: Counted,
    /// Its name for programs.
    pub name: &'static str,
    /// The state of the gateway meanwhile; [`State::Healthy`] for problems of the clients.
    pub state: State,
    /// The sentence about it, without its full stop.
    pub what: &'static str,
    /// The remedy.
    pub advice: &'static str,
    /// When it is logged.
    pub manner: Manner,
}

/// A call that waits for a moment is not a problem.
const WAITS: Manner = Manner {
    counting: Counting::Waits,
    looks: 5,
    over: Duration::from_secs(10),
    said_elsewhere: false,
};

const REFUSALS: Manner = Manner {
    counting: Counting::Refusals,
    looks: 1,
    over: Duration::from_secs(60),
    said_elsewhere: false,
};

/// For problems in the state of the volume.
const STANDS: Manner = Manner {
    counting: Counting::Others,
    looks: 1,
    over: Duration::from_secs(3),
    said_elsewhere: false,
};

/// All kinds with messages of their own.
pub const SUBJECTS: &[Subject] = &[
    Subject {
        kind: Counted::Calls(Trouble::LogFull),
        name: "log_full",
        state: State::Degraded,
        what: "calls wait for room in the log; each checkpoint that reaches the bucket frees some",
        advice: "If uploads are slower than the writers, a larger log_limit bridges longer bursts",
        manner: WAITS,
    },
    Subject {
        kind: Counted::Calls(Trouble::MemoryFull),
        name: "memory_full",
        state: State::Degraded,
        what: "writes wait for memory, which is full of bytes that are not in the bucket yet",
        advice: "If uploads are slower than the writers, a log_limit of eight times checkpoint_bytes or more lets bursts go to the log; else a larger memory_limit bridges longer ones",
        manner: WAITS,
    },
    Subject {
        kind: Counted::Calls(Trouble::NamesFull),
        name: "names_full",
        state: State::Degraded,
        what: "changes of names wait for memory, which is full of names that are not in the bucket yet",
        advice: "If publishing is slower than the changes, a larger memory_limit leaves more room for names",
        manner: WAITS,
    },
    Subject {
        kind: Counted::Calls(Trouble::MountAddress),
        name: "mounts_refused",
        state: State::Healthy,
        what: "mounts are refused, since no export includes the client's address",
        advice: "`forebay exports` shows which addresses may mount; add the client to `clients` if it is yours",
        manner: REFUSALS,
    },
    Subject {
        kind: Counted::Calls(Trouble::MountPort),
        name: "mounts_refused_port",
        state: State::Healthy,
        what: "mounts are refused, since the client's port is not privileged (below 1024)",
        advice: "Mount as root and without the option noresvport, or give the export source_port = \"insecure\"",
        manner: REFUSALS,
    },
    Subject {
        kind: Counted::Calls(Trouble::Connections),
        name: "connections_refused",
        state: State::Degraded,
        what: "connections are refused, since their number has reached a limit: of all connections, or of one client",
        advice: "Look for a client that opens too many, or raise max_connections and the limit of open files",
        manner: REFUSALS,
    },
    Subject {
        kind: Counted::Throttled,
        name: "bucket_throttles",
        state: State::Degraded,
        what: "the store asks for fewer requests (SlowDown), which are repeated at a lower rate",
        advice: "If it persists, ask the store's operator for a higher limit",
        manner: Manner {
            counting: Counting::Refusals,
            looks: 1,
            over: Duration::from_secs(60),
            said_elsewhere: false,
        },
    },
];

/// When a problem in the state of the volume is logged.
pub(super) fn manner(problem: &str) -> Manner {
    Manner {
        // The code that detects these problems logs them at once, with more details: the gateway may end with them.
        said_elsewhere: matches!(
            problem,
            "fenced" | "stopped" | "log_failed" | "bytes_lost" | "disk_cache_failed"
        ),
        ..STANDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_but_calls_that_wait_for_the_bucket_has_its_words() {
        for kind in Trouble::ALL {
            let found = SUBJECTS
                .iter()
                .filter(|subject| subject.kind == Counted::Calls(*kind));
            assert_eq!(
                found.count(),
                usize::from(*kind != Trouble::Bucket),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn the_page_for_operators_has_a_row_for_each() {
        let page = include_str!("../../docs/operations.md");
        for subject in SUBJECTS {
            assert!(
                page.contains(&format!("| `{}` |", subject.name)),
                "{}",
                subject.name
            );
        }
    }
}
