//! Restarts a log after a failed flush.

use std::io;
use std::sync::atomic::Ordering;

use forebay_types::Lsn;

use super::preparer;
use super::shared::Shared;
use crate::layout::{SEGMENT_HEADER, SegmentHeader, SegmentNumber};
use crate::segment::{FileName, Prepared, Spare};
use crate::state::{Closing, Settled, State};

pub(super) fn restart(shared: &Shared, at: Lsn) -> io::Result<()> {
    let invalid = |reason: &str| {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            reason.to_owned(),
        ))
    };
    let mut state = shared.state.lock();
    if state.failure.is_none() || state.restarting {
        return invalid("the log has not failed, or is being restarted already");
    }
    if state.closing > Closing::Open {
        return invalid("the log was closed");
    }
    if at < state.next {
        return invalid("the log cannot begin again before its next LSN");
    }
    state.restarting = true;
    while !state.in_flight.is_empty()
        || state.preparing
        || state.flushing_below.is_some()
        || state.is_writing_back()
        || state.is_read()
    {
        shared.restarter.wait(&mut state);
    }
    drop(state);
    let outcome = clear(shared).and_then(|()| begin(shared, at));
    shared.change(|state, _| state.restarting = false);
    shared.preparer.notify_one();
    outcome
}

/// Deletes every file: the bytes that the failed flush has left in them must never be read again.
fn clear(shared: &Shared) -> io::Result<()> {
    loop {
        let mut state = shared.state.lock();
        let Some(spare) = take_file(&mut state) else {
            return Ok(());
        };
        drop(state);
        drop(spare.memory);
        let removed = match shared.storage.remove(&spare.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let mut state = shared.state.lock();
        match removed {
            Ok(()) => state.file_bytes -= spare.bytes,
            Err(error) => {
                state.spares.push(Spare {
                    memory: None,
                    ..spare
                });
                return Err(error);
            }
        }
    }
}

fn take_file(state: &mut State) -> Option<Spare> {
    state.unmap.clear();
    if let Some(Prepared { name, bytes, .. }) = state.prepared.pop_front() {
        return Some(Spare {
            name,
            bytes,
            memory: None,
        });
    }
    if let Some(segment) = state.retained.pop_front() {
        return Some(Spare {
            name: segment.name,
            bytes: segment.bytes,
            memory: None,
        });
    }
    state.spares.pop()
}

/// Begins a new segment at `at` and proves with a flush that the disk accepts it.
fn begin(shared: &Shared, at: Lsn) -> io::Result<()> {
    let mut state = shared.state.lock();
    state.numbers += 1;
    let number = SegmentNumber(state.numbers);
    let bytes = state.options.segment_bytes;
    let (volume, epoch) = (state.options.volume, state.options.epoch);
    let (previous, previous_end) = (state.last, state.next);
    let previous_key = state.last_key;
    drop(state);

    let name = FileName::Segment(number).text();
    let memory = shared.storage.create(&name, bytes)?;
    let mut fresh = preparer::ready(shared, number, name, bytes, memory);
    let mut header = SegmentHeader {
        volume,
        epoch,
        number,
        base: at,
        salt: fresh.salt,
        previous,
        previous_end,
        durable: at,
        seal: None,
    };
    if let Some(sealer) = &fresh.sealer {
        header = sealer.seal_header(header, previous_key);
    }
    if let Some(mut page) = fresh.unwritten.reserve(SEGMENT_HEADER) {
        header.write(page.bytes(), bytes);
    }
    if let Err(error) = fresh.unwritten.share().flush(0..SEGMENT_HEADER) {
        // Report the failure of the flush; the file is void and is found at the next start.
        let _ = shared.storage.remove(&fresh.name);
        return Err(error);
    }
    shared.settled.store(at.0, Ordering::Release);
    shared.change(|state, due| {
        state.file_bytes += bytes;
        state.next = at;
        state.complete = at;
        state.flushed = at;
        state.durable = at;
        state.settled = Settled::at(at);
        state.failure = None;
        state.begin(fresh, Some(header));
        state.shortage = None;
        state.for_complete.take_due(at, due);
        state.for_durable.take_due(at, due);
        state.for_room.take_all(due);
    });
    Ok(())
}
