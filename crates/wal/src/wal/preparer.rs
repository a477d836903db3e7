//! The thread that has the next segment ready before it is needed, and clears away what is left
//! over.

use std::io;
use std::sync::Arc;

use super::Shared;
use crate::layout::{Salt, SegmentNumber};
use crate::map::{SegmentMap, Unwritten};
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
                match shared.storage.create(&name, bytes) {
                    Ok(memory) => {
                        finish(shared, ready(&*shared.storage, number, name, bytes, memory));
                    }
                    Err(error) => {
                        let why =
                            format!("cannot create log segment {name} of {bytes} bytes: {error}");
                        not_ready(shared, why, None, bytes);
                    }
                }
            }
            Job::Reuse(spare, number) => {
                let (old, bytes) = (spare.name.clone(), spare.bytes);
                match reuse(&*shared.storage, spare, number) {
                    Ok(prepared) => finish(shared, prepared),
                    Err(Refused { error, spare, gone }) => {
                        let why = format!("cannot reuse log segment {old}: {error}");
                        not_ready(shared, why, spare, if gone { bytes } else { 0 });
                    }
                }
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
pub(super) fn is_due(state: &State) -> bool {
    let settled = state.failure.is_none() && !state.restarting && state.closing == Closing::Open;
    let may_try = state.shortage.is_none() || state.try_again;
    let source = may_try && (!state.spares.is_empty() || state.may_create());
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

fn pick(state: &mut State) -> Option<Job> {
    if !is_due(state) {
        return None;
    }
    let may_try = state.shortage.is_none() || state.try_again;
    if state.prepared.is_none() && may_try {
        // The last one in is the one most likely to be in memory still.
        let spare = state.spares.pop();
        if spare.is_some() || state.may_create() {
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

/// Why an old file was not given its next life.
struct Refused {
    error: io::Error,
    /// The file, if that can be tried again.
    spare: Option<Spare>,
    /// There is no file any more.
    gone: bool,
}

/// A file under a new name. The name is durable before the first record is, so that a record that
/// was acknowledged is found under it; the header still tells another number until the segment is
/// begun.
fn reuse(storage: &dyn Storage, spare: Spare, number: SegmentNumber) -> Result<Prepared, Refused> {
    let name = FileName::Segment(number).text();
    if let Err(error) = storage.rename(&spare.name, &name) {
        // The name may have changed all the same, and only not be durable.
        let names = storage.list();
        let found = |name: &String| names.as_ref().is_ok_and(|names| names.contains(name));
        let name = if found(&name) {
            Some(name)
        } else if names.is_err() || found(&spare.name) {
            Some(spare.name)
        } else {
            None
        };
        return Err(Refused {
            error,
            gone: name.is_none(),
            spare: name.map(|name| Spare {
                name,
                bytes: spare.bytes,
                memory: spare.memory,
            }),
        });
    }
    let memory = match spare.memory {
        Some(memory) => memory,
        None => match storage.open(&name) {
            Ok(memory) => memory,
            // A file that cannot be opened is of no more use, and its space is.
            Err(error) => {
                return Err(Refused {
                    error,
                    gone: storage.remove(&name).is_ok(),
                    spare: None,
                });
            }
        },
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
    let unwritten = Unwritten::new(memory);
    unwritten.prefault();
    Prepared {
        number,
        name,
        salt: Salt(storage.salt()),
        bytes,
        unwritten,
    }
}

fn finish(shared: &Shared, prepared: Prepared) {
    shared.change(|state, due| {
        state.preparing = false;
        state.try_again = false;
        state.shortage = None;
        state.prepared = Some(prepared);
        state.for_room.take_all(due);
    });
}

/// The disk has refused a segment. `spare` is a file that may be tried again, `freed` are bytes of a
/// file that is not there.
fn not_ready(shared: &Shared, why: String, spare: Option<Spare>, freed: u64) {
    shared.change(|state, due| {
        state.preparing = false;
        state.file_bytes -= freed;
        state.shortage = Some(why);
        if let Some(spare) = spare {
            // Behind the others.
            state.spares.insert(0, spare);
        }
        let before = state.spares.len();
        // Perhaps the current segment can be used again.
        state.recycle(forebay_types::Lsn::ZERO, due);
        // Else there is nothing new to try: whoever waits has it tried again.
        state.try_again = state.spares.len() > before;
    });
}
