//! What each snapshot of a volume holds in the bucket, and for which clones it is kept: for `forebay gc` and `forebay fsck`.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};

use bytesize::ByteSize;
use forebay_clones::holds::{self, Hold, Standing};
use forebay_fsck::HeldBy;
use forebay_object::Store;
use forebay_types::{SnapshotId, VolumeId};
use serde::Serialize;

use crate::fsck::bar;

/// A snapshot, what it holds, and the clones that need it.
#[derive(Debug, Serialize)]
pub(crate) struct Holder<'a> {
    #[serde(flatten)]
    held: &'a HeldBy,
    /// None if the notes on clones could not be read.
    clones: Option<Vec<String>>,
}

/// The snapshots with the clones of the volume in `store` that need them. If the notes on clones cannot be read, the
/// snapshots come without, and a warning goes to standard error: a report is worth more than these names.
pub(crate) async fn holders<'a>(
    store: &Store,
    volume: VolumeId,
    held: &'a [HeldBy],
) -> Vec<Holder<'a>> {
    let clones = match held {
        // A clone needs a snapshot.
        [] => Some(Vec::new()),
        _ => match holds::list(store, volume).await {
            Ok(listed) => Some(listed),
            Err(error) => {
                if stderr().is_terminal() {
                    bar::clear();
                }
                eprintln!("forebay: cannot read which clones there are: {error}");
                None
            }
        },
    };
    let needing = |one: &HeldBy| -> Option<Vec<String>> {
        let clones = clones.as_ref()?.iter();
        let needing = clones.filter(|hold| holds_it(hold, one.snapshot));
        Some(needing.map(Hold::clone_name).collect())
    };
    let all = held.iter().map(|held| Holder {
        clones: needing(held),
        held,
    });
    all.collect()
}

fn holds_it(hold: &Hold, snapshot: u64) -> bool {
    hold.standing != Standing::Detached && hold.holds(SnapshotId(snapshot))
}

/// A line for each snapshot that holds packs or is kept for a clone.
pub(crate) fn lines(holders: &[Holder<'_>]) -> String {
    let mut out = String::new();
    for Holder { held, clones } in holders {
        let clones = clones.as_deref().unwrap_or_default();
        if held.held_bytes == 0 && clones.is_empty() {
            continue;
        }
        let bytes = ByteSize(held.held_bytes).display().iec();
        let alone = ByteSize(held.unique_bytes).display().iec();
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "  snapshot {:?} holds {bytes}, {alone} of it alone",
            held.name
        );
        if !clones.is_empty() {
            let _ = write!(out, "; kept for {}", clones.join(", "));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_meta::volume::notes::CloneNote;
    use forebay_object::RetrySettings;
    use forebay_object::faults::{FaultKind, Faults, FaultyStore, Request};
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn where_notes_on_clones_cannot_be_read_the_report_comes_without_clones() {
        let faults = Arc::new(Faults::default());
        let bucket = FaultyStore::new(Arc::new(InMemory::new()), faults.clone());
        let url = "memory://".to_owned();
        let retry = RetrySettings::default();
        let store = Store::new(Arc::new(bucket), Path::default(), url, retry);
        let note = CloneNote {
            clone: VolumeId([2; 16]),
            at: "try".to_owned(),
            snapshot: SnapshotId(1),
            name: "monday".to_owned(),
            made: 0,
        };
        note.put(&store.store, &store.root).await.unwrap();
        let held = [HeldBy {
            snapshot: 1,
            name: "monday".to_owned(),
            unique_bytes: 5,
            held_bytes: 7,
        }];
        faults.next(Request::List, "clones", FaultKind::Refused, 1);
        let volume = VolumeId([1; 16]);
        let clones = |holders: &[Holder<'_>]| serde_json::to_value(holders).unwrap()[0].clone();
        let unread = holders(&store, volume, &held).await;
        let said = clones(&unread);
        assert_eq!(
            (&said["clones"], &said["held_bytes"]),
            (&json!(null), &json!(7))
        );
        let line = "  snapshot \"monday\" holds 7 B, 5 B of it alone";
        assert_eq!(lines(&unread), format!("{line}\n"));
        let read = holders(&store, volume, &held).await;
        assert_eq!(clones(&read)["clones"], json!(["try"]));
        assert_eq!(lines(&read), format!("{line}; kept for try\n"));
        // A note that cannot be read holds every snapshot, and is named.
        let location = Path::from("clones/whose");
        store
            .store
            .put_opts(&location, "x".into(), Default::default())
            .await
            .unwrap();
        let named = holders(&store, volume, &held).await;
        let expected = json!(["try", "a clone with the note clones/whose"]);
        assert_eq!(clones(&named)["clones"], expected);
    }
}
