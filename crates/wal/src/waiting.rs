//! Tasks that wait for the log to reach an LSN.

use std::collections::BTreeMap;
use std::task::Waker;

use forebay_types::Lsn;

/// Waiting tasks, ordered by the LSN that they wait for, so that the first one shows whether any task is due.
#[derive(Default)]
pub(crate) struct Waiters {
    waiting: BTreeMap<Ticket, Waker>,
    tickets: u64,
}

/// The place of a task in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    upto: Lsn,
    number: u64,
}

impl Waiters {
    /// Enters a task, or renews its waker if it has a ticket. Returns true if the task is new.
    pub(crate) fn enter(&mut self, upto: Lsn, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        let new = ticket.is_none();
        let ticket = *ticket.get_or_insert_with(|| {
            self.tickets += 1;
            Ticket {
                upto,
                number: self.tickets,
            }
        });
        match self.waiting.get_mut(&ticket) {
            Some(known) => known.clone_from(waker),
            None => {
                self.waiting.insert(ticket, waker.clone());
            }
        }
        new
    }

    /// Removes a task that no longer waits.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Whether no task waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of waiting tasks.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether any task waits for `upto` or less.
    pub(crate) fn any_due(&self, upto: Lsn) -> bool {
        self.waiting
            .first_key_value()
            .is_some_and(|(first, _)| first.upto <= upto)
    }

    /// Moves the wakers of all tasks that wait for `upto` or less to `due`. The caller wakes them without the lock.
    pub(crate) fn take_due(&mut self, upto: Lsn, due: &mut Vec<Waker>) {
        while let Some(first) = self
            .waiting
            .first_entry()
            .filter(|first| first.key().upto <= upto)
        {
            due.push(first.remove());
        }
    }

    /// Moves all wakers to `due`.
    pub(crate) fn take_all(&mut self, due: &mut Vec<Waker>) {
        due.extend(std::mem::take(&mut self.waiting).into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_are_due_are_taken_and_the_others_stay() {
        let mut waiters = Waiters::default();
        let (mut late, mut early, mut gone) = (None, None, None);
        assert!(waiters.enter(Lsn(20), &mut late, Waker::noop()));
        assert!(waiters.enter(Lsn(10), &mut early, Waker::noop()));
        assert!(!waiters.enter(Lsn(10), &mut early, Waker::noop()));
        assert!(waiters.enter(Lsn(5), &mut gone, Waker::noop()));
        waiters.leave(gone.expect("entered"));
        assert!(!waiters.any_due(Lsn(9)));
        let mut due = Vec::new();
        waiters.take_due(Lsn(10), &mut due);
        assert!(due.len() == 1 && !waiters.is_empty());
        waiters.take_all(&mut due);
        assert!(due.len() == 2 && waiters.is_empty());
    }
}
