//! The thread that has the next segment ready before it is needed, and clears away what is left
//! over.

use std::io;
use std::sync::Arc;

use super::Shared;
use crate::layout::{Salt, SegmentNumber};
use crate::map::SegmentMap;
use crate::segment::{FileName, Prepared, Spare};
use crate::state::{Closing, State};
use crate::storage::Storage;

/// One piece of work, done without the lock.
enum Job {
    /// Make a new file.
    Create(SegmentNumber),
    /// Give an old file its next life.
    Reuse(Spare, SegmentNumber),
    /// Delete a file that is one too many.
    Remove(Spare),
    /// Give up maps.
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

/// Does all work that there is now.
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
                let made = shared.storage.create(&name, bytes);
                let outcome =
                    made.map(|memory| ready(&*shared.storage, number, name.clone(), bytes, memory));
                finish(shared, outcome, |error| {
                    format!("cannot create log segment {name} of {bytes} bytes: {error}")
                });
            }
            Job::Reuse(spare, number) => {
                let old = spare.name.clone();
                let outcome = reuse(&*shared.storage, spare, number);
                finish(shared, outcome, |error| {
                    format!("cannot reuse log segment {old}: {error}")
                });
            }
            Job::Remove(spare) => {
                drop(spare.memory);
                // What cannot be removed keeps counting against the limit and is met again at the
                // next start.
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

/// Whether [`pick`] would find something.
fn is_due(state: &State) -> bool {
    let settled = state.failure.is_none() && !state.restarting && state.closing == Closing::Open;
    let source = !state.spares.is_empty() || can_create(state);
    settled
        && (!state.unmap.is_empty()
            || (state.prepared.is_none() && source)
            || state.spares.len() > spares_kept(state))
}

/// Spares that are kept rather than deleted: a quarter of the log, so that what one
/// checkpoint gives back is there for the next burst, and the disk is not held for ever.
fn spares_kept(state: &State) -> usize {
    let quarter = state.options.limit_bytes / 4 / state.options.segment_bytes;
    usize::try_from(quarter).unwrap_or(usize::MAX).max(1)
}

fn can_create(state: &State) -> bool {
    state.may_create() && (state.shortage.is_none() || state.try_again)
}

fn pick(state: &mut State) -> Option<Job> {
    if !is_due(state) {
        return None;
    }
    if state.prepared.is_none() {
        // The last one in is the one most likely to be in memory still.
        let spare = state.spares.pop();
        if spare.is_some() || can_create(state) {
            state.numbers += 1;
            let number = SegmentNumber(state.numbers);
            return Some(match spare {
                Some(spare) => Job::Reuse(spare, number),
                None => {
                    state.file_bytes += state.options.segment_bytes;
                    Job::Create(number)
                }
            });
        }
    }
    if !state.unmap.is_empty() {
        return Some(Job::Unmap(std::mem::take(&mut state.unmap)));
    }
    // The oldest, for the reason above.
    (state.spares.len() > spares_kept(state)).then(|| Job::Remove(state.spares.remove(0)))
}

/// A file under a new name. The name is durable before the first record is, so that a record that
/// was acknowledged is found under it; the header still tells another number until the segment is
/// begun.
fn reuse(storage: &dyn Storage, spare: Spare, number: SegmentNumber) -> io::Result<Prepared> {
    let name = FileName::Segment(number).text();
    storage.rename(&spare.name, &name)?;
    let memory = match spare.memory {
        Some(memory) => memory,
        None => storage.open(&name)?,
    };
    Ok(ready(storage, number, name, spare.bytes, memory))
}

pub(super) fn ready(
    storage: &dyn Storage,
    number: SegmentNumber,
    name: String,
    bytes: u64,
    memory: Box<dyn crate::storage::SegmentMemory>,
) -> Prepared {
    let map = Arc::new(SegmentMap::new(memory));
    map.prefault();
    Prepared {
        number,
        name,
        salt: Salt(storage.salt()),
        bytes,
        map,
    }
}

fn finish(
    shared: &Shared,
    outcome: io::Result<Prepared>,
    describe: impl FnOnce(io::Error) -> String,
) {
    shared.change(|state, due| {
        state.preparing = false;
        state.try_again = false;
        match outcome {
            Ok(prepared) => {
                state.shortage = None;
                state.prepared = Some(prepared);
                state.for_room.take_all(due);
            }
            Err(error) => {
                // The file, if there is one, is given up until the next start.
                state.file_bytes -= state.options.segment_bytes;
                state.shortage = Some(describe(error));
                // Perhaps the current segment can be used again.
                state.recycle(forebay_types::Lsn::ZERO, due);
                state.try_again = false;
            }
        }
    });
}
