//! What each snapshot of a volume holds in the bucket, and for which clones it is kept: for `forebay gc` and `forebay fsck`.

use std::fmt::Write;

use bytesize::ByteSize;
use forebay_clones::holds::{self, Hold, Standing};
use forebay_fsck::HeldBy;
use forebay_object::Store;
use forebay_types::{SnapshotId, VolumeId};
use serde::Serialize;

/// A snapshot, what it holds, and the clones that need it.
#[derive(Debug, Serialize)]
pub(crate) struct Holder<'a> {
    #[serde(flatten)]
    held: &'a HeldBy,
    clones: Vec<String>,
}

/// The snapshots with the clones of the volume in `store` that need them.
///
/// # Errors
/// When the notes on clones cannot be read.
pub(crate) async fn holders<'a>(
    store: &Store,
    volume: VolumeId,
    held: &'a [HeldBy],
) -> Result<Vec<Holder<'a>>, String> {
    let clones = match held {
        // A clone needs a snapshot.
        [] => Vec::new(),
        _ => {
            let listed = holds::list(store, volume).await;
            listed.map_err(|error| format!("cannot read which clones there are: {error}"))?
        }
    };
    let needing = |one: &HeldBy| {
        let needing = clones.iter().filter(|hold| holds_it(hold, one.snapshot));
        needing.map(Hold::clone_name).collect()
    };
    let all = held.iter().map(|held| Holder {
        clones: needing(held),
        held,
    });
    Ok(all.collect())
}

fn holds_it(hold: &Hold, snapshot: u64) -> bool {
    hold.standing != Standing::Detached && hold.holds(SnapshotId(snapshot))
}

/// A line for each snapshot that holds packs or is kept for a clone.
pub(crate) fn lines(holders: &[Holder<'_>]) -> String {
    let mut out = String::new();
    for Holder { held, clones } in holders {
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
