//! The preparer thread: prepares segments before they are needed, and removes surplus files.
//!
//! Normally one is ready. If appends were faster and had to wait for a segment, more are kept ready, up to a limit.
//! They are made from old files, of which several get their new names with one flush of the folder, which is most of
//! the cost of a segment on the disk: the faster segments are used up, the more of them share a flush. A crash leaves
//! any number of prepared segments behind; their headers show that they were not begun.

use std::io;
use std::sync::Arc;

use super::shared::Shared;
use crate::layout::{Salt, SegmentNumber};
use crate::map::{SegmentMap, Unwritten};
use crate::seal::SegmentSealer;
use crate::segment::{FileName, Prepared, Spare};
use crate::state::{Closing, State};
use crate::storage::Storage;

/// One job, done without the lock.
enum Job {
    /// Make a new file.
    Create(SegmentNumber),
    /// Reuse old files under new numbers.
    Reuse(Vec<(Spare, SegmentNumber)>),
    /// Delete a surplus file.
    Remove(Spare),
    /// Drop maps.
    Unmap(Vec<Arc<SegmentMap>>),
}

pub(super) fn run(shared: &Shared) {
    loop {
        work_off(shared);
        let mut state = shared.state.lock();
        if state.closing > Closing::Open {
            return;
        }
        if !is_due(&state) {
            shared.preparer.wait(&mut state);
        }
    }
}

/// Does all jobs that are due now.
pub(super) fn work_off(shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        let bytes = state.options.segment_bytes;
        let Some(job) = pick(&mut state) else { return };
        state.preparing = true;
        drop(state);
        match job {
            Job::Create(number) => {
                let name = FileName::Segment(number).text();
                match shared.storage.create(&name, bytes) {
                    Ok(memory) => {
                        finish(shared, ready(shared, number, name, bytes, memory));
                        shared.change(|state, _| {
                            state.preparing = false;
                            state.stats.segments_made += 1;
                        });
                    }
                    Err(error) => {
                        let why =
                            format!("cannot create log segment {name} of {bytes} bytes: {error}");
                        not_ready(shared, why, Vec::new(), bytes);
                    }
                }
            }
            Job::Reuse(files) => match reuse(shared, files) {
                Ok(()) => shared.change(|state, _| state.preparing = false),
                Err(Refused { why, spares, freed }) => not_ready(shared, why, spares, freed),
            },
            Job::Remove(spare) => {
                drop(spare.memory);
                // A file that cannot be removed keeps counting against the limit and is found again at the next
                // start.
                let removed = shared.storage.remove(&spare.name).is_ok();
                shared.change(|state, _| {
                    state.preparing = false;
                    state.file_bytes -= if removed { spare.bytes } else { 0 };
                });
            }
            Job::Unmap(maps) => {
                drop(maps);
                shared.change(|state, _| state.preparing = false);
            }
        }
    }
}

/// Whether [`pick`] would find a job.
pub(super) fn is_due(state: &State) -> bool {
    let settled = state.failure.is_none() && !state.restarting && state.closing == Closing::Open;
    let may_try = state.shortage.is_none() || state.try_again;
    let source = may_try && (!state.spares.is_empty() || state.may_create());
    settled
        && (!state.unmap.is_empty()
            || (are_wanted(state) && source)
            || state.spares.len() > spares_kept(state))
}

/// Whether segments should be prepared: once half of the wanted ones are used up, so that several share a flush.
fn are_wanted(state: &State) -> bool {
    let prepared = state.prepared.len();
    prepared < state.ahead && 2 * prepared <= state.ahead
}

/// Number of spares that are kept rather than deleted. With all prepared segments but one, they are a quarter of the
/// log, so that the files of one checkpoint are ready for the next burst, but the disk space is not held for ever.
fn spares_kept(state: &State) -> usize {
    let quarter = state.options.limit_bytes / 4 / state.options.segment_bytes;
    let kept = usize::try_from(quarter).unwrap_or(usize::MAX).max(1);
    kept.saturating_sub(state.prepared.len().saturating_sub(1))
}

fn pick(state: &mut State) -> Option<Job> {
    if !is_due(state) {
        return None;
    }
    let may_try = state.shortage.is_none() || state.try_again;
    if are_wanted(state) && may_try {
        // The last ones added are most likely still in memory.
        let left = state.spares.len();
        let taken = state.ahead.saturating_sub(state.prepared.len()).min(left);
        let spares = state.spares.split_off(left - taken);
        if !spares.is_empty() {
            let files = spares.into_iter().rev().map(|spare| {
                state.numbers += 1;
                (spare, SegmentNumber(state.numbers))
            });
            return Some(Job::Reuse(files.collect()));
        }
        if state.may_create() {
            state.numbers += 1;
            state.file_bytes += state.options.segment_bytes;
            return Some(Job::Create(SegmentNumber(state.numbers)));
        }
    }
    if !state.unmap.is_empty() {
        return Some(Job::Unmap(std::mem::take(&mut state.unmap)));
    }
    // The oldest one, for the reason above.
    (state.spares.len() > spares_kept(state)).then(|| Job::Remove(state.spares.remove(0)))
}

/// Why old files could not be reused.
struct Refused {
    why: String,
    /// Files that can be tried again.
    spares: Vec<Spare>,
    /// Bytes of files that no longer exist.
    freed: u64,
}

impl Refused {
    fn because(spare: &Spare, error: &io::Error) -> Refused {
        Refused {
            why: format!("cannot reuse log segment {}: {error}", spare.name),
            spares: Vec::new(),
            freed: 0,
        }
    }
}

/// Reuses files under new names. The names are durable before the first record is, so that an acknowledged record is
/// found under them; the header has another number until the segment is begun. Each segment is available to appends
/// as soon as it is in memory.
fn reuse(shared: &Shared, files: Vec<(Spare, SegmentNumber)>) -> Result<(), Refused> {
    let storage = &*shared.storage;
    let name = |number: SegmentNumber| FileName::Segment(number).text();
    let names = files
        .iter()
        .map(|(spare, number)| (spare.name.clone(), name(*number)));
    if let Err(error) = storage.rename_all(&names.collect::<Vec<_>>()) {
        return Err(keep_what_is_there(storage, files, &error));
    }
    let mut refused = None;
    for (mut spare, number) in files {
        let memory = match spare.memory.take() {
            Some(memory) => Ok(memory),
            None => storage.open(&name(number)),
        };
        match memory {
            Ok(memory) => finish(
                shared,
                ready(shared, number, name(number), spare.bytes, memory),
            ),
            // A file that cannot be opened is of no use, but its space is.
            Err(error) => {
                let refused = refused.get_or_insert_with(|| Refused::because(&spare, &error));
                if storage.remove(&name(number)).is_ok() {
                    refused.freed += spare.bytes;
                }
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// After a failed rename: the names may have changed nevertheless, but not durably.
fn keep_what_is_there(
    storage: &dyn Storage,
    files: Vec<(Spare, SegmentNumber)>,
    error: &io::Error,
) -> Refused {
    let names = storage.list();
    let found = |name: &String| names.as_ref().is_ok_and(|names| names.contains(name));
    let mut refused: Option<Refused> = None;
    for (spare, number) in files {
        let refused = refused.get_or_insert_with(|| Refused::because(&spare, error));
        let renamed = FileName::Segment(number).text();
        if found(&renamed) {
            refused.spares.push(Spare {
                name: renamed,
                ..spare
            });
        } else if names.is_err() || found(&spare.name) {
            refused.spares.push(spare);
        } else {
            refused.freed += spare.bytes;
        }
    }
    refused.unwrap_or(Refused {
        why: error.to_string(),
        spares: Vec::new(),
        freed: 0,
    })
}

/// A mapped segment with its salts and its key.
pub(super) fn ready(
    shared: &Shared,
    number: SegmentNumber,
    name: String,
    bytes: u64,
    memory: Box<dyn crate::storage::SegmentMemory>,
) -> Prepared {
    let unwritten = Unwritten::new(memory);
    unwritten.prefault();
    Prepared {
        number,
        name,
        salt: Salt(shared.storage.salt()),
        bytes,
        unwritten,
        sealer: shared
            .sealing
            .as_ref()
            .map(|sealing| Arc::new(SegmentSealer::new(sealing, number))),
    }
}

fn finish(shared: &Shared, prepared: Prepared) {
    shared.change(|state, due| {
        state.try_again = false;
        state.shortage = None;
        state.prepared.push_back(prepared);
        state.for_room.take_all(due);
    });
}

/// The disk has refused a segment. `spares` are files that can be tried again, `freed` are bytes of files that no
/// longer exist.
fn not_ready(shared: &Shared, why: String, spares: Vec<Spare>, freed: u64) {
    shared.change(|state, due| {
        state.preparing = false;
        state.file_bytes -= freed;
        state.shortage = Some(why);
        // Behind the other spares.
        state.spares.splice(0..0, spares);
        let before = state.spares.len();
        // Perhaps the current segment can be used again.
        state.recycle(forebay_types::Lsn::ZERO, due);
        // Otherwise there is nothing new to try: a waiting task triggers the next attempt.
        state.try_again = state.spares.len() > before;
    });
}
