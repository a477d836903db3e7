//! The thread that flushes: one flush for all who wait.

use parking_lot::MutexGuard;

use super::Shared;
use crate::state::{Closing, Flush, State};

pub(super) fn run(shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        loop {
            let rest = state.complete < state.next || state.flush_is_due();
            match state.closing {
                Closing::Abandon => return,
                Closing::Flush if state.failure.is_some() || !rest => return,
                _ if state.flush_is_due() => break,
                _ => shared.syncer.wait(&mut state),
            }
        }
        flush(shared, state);
    }
}

/// Flushes if somebody waits for it; says whether there was something to do.
pub(super) fn turn(shared: &Shared) -> bool {
    let state = shared.state.lock();
    let due = state.closing != Closing::Abandon && state.flush_is_due();
    if due {
        flush(shared, state);
    }
    due
}

fn flush(shared: &Shared, mut state: MutexGuard<'_, State>) {
    let Flush { upto, parts } = state.begin_flush();
    drop(state);

    // In the order of the log, so that what a later segment's header claims is true.
    let outcome = parts
        .iter()
        .try_for_each(|(map, range)| map.flush(range.clone()));
    // Before recycling, which takes over maps that nobody else holds.
    drop(parts);

    let unmap = shared.change(|state, due| {
        state.flush_done(upto, outcome, due);
        std::mem::take(&mut state.unmap)
    });
    drop(unmap);
    shared.preparer.notify_one();
}
