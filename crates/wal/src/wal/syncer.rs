//! The thread that flushes: one flush for all who wait.

use super::Shared;
use crate::state::{Closing, Flush};

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
}
