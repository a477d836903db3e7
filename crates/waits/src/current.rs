//! The call that a thread works on.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Call;

/// The state of the thread's [`FirstPoll`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// There is none.
    No,
    /// Nothing was noted yet: the call has no record.
    Polling,
    /// The call has a record.
    Noted,
}

thread_local! {
    static FIRST: Cell<First> = const { Cell::new(First::No) };
    static CURRENT: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// The record of the call that this thread works on now; `None` outside of calls.
pub fn current() -> Option<Call> {
    let current = CURRENT.try_with(|current| {
        let mut current = current.borrow_mut();
        if current.is_none() && FIRST.get() == First::Polling {
            FIRST.set(First::Noted);
            *current = Some(Call::default());
        }
        current.clone()
    });
    // The thread ends.
    current.ok().flatten()
}

/// The record of the call that this thread works on now, if anything was noted for that call. Unlike [`current`], it makes no
/// record: a call that has not waited costs a comparison.
#[inline]
pub fn noted() -> Option<Call> {
    match FIRST.get() {
        First::Polling => None,
        First::Noted | First::No => CURRENT.try_with(|current| current.borrow().clone()).ok()?,
    }
}

/// While it lives, this thread polls a call for the first time. The record of the call is made when there is
/// something to note.
#[derive(Debug)]
#[must_use]
pub struct FirstPoll {
    /// It belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl FirstPoll {
    /// The first poll of a call begins.
    #[inline]
    pub fn begin() -> FirstPoll {
        FIRST.set(First::Polling);
        FirstPoll {
            _thread: PhantomData,
        }
    }

    /// The call is not done: returns its record, for [`Call::scope`].
    pub fn into_call(self) -> Call {
        current().unwrap_or_default()
    }
}

impl Drop for FirstPoll {
    #[inline]
    fn drop(&mut self) {
        if FIRST.replace(First::No) == First::Noted {
            forget();
        }
    }
}

#[cold]
fn forget() {
    // Without the table of the thread there is nothing to forget.
    let _ = CURRENT.try_with(RefCell::take);
}

impl Call {
    /// Does `work` as work of this call.
    pub fn scope<F: Future + Unpin>(self, work: F) -> Scoped<F> {
        Scoped { call: self, work }
    }
}

/// Future of [`Call::scope`].
#[derive(Debug)]
#[must_use]
pub struct Scoped<F> {
    call: Call,
    work: F,
}

impl<F: Future + Unpin> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _until_then = Entered::new(&self.call);
        Pin::new(&mut self.work).poll(context)
    }
}

/// The thread works on a call while this lives.
struct Entered {
    before: Option<Call>,
}

impl Entered {
    fn new(call: &Call) -> Entered {
        let before = CURRENT.try_with(|current| current.replace(Some(call.clone())));
        Entered {
            before: before.ok().flatten(),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::For;

    const SECOND: Duration = Duration::from_secs(1);

    fn waits(call: &Call) -> Vec<(For, Duration)> {
        call.summary(Instant::now()).waits
    }

    #[test]
    fn outside_of_calls_there_is_no_record() {
        assert!(current().is_none());
        drop(FirstPoll::begin());
        assert!(current().is_none());
    }

    #[test]
    fn the_record_is_made_with_the_first_note_and_goes_on_with_the_call() {
        let first = FirstPoll::begin();
        current().unwrap().waited(For::Log, SECOND);
        current().unwrap().waited(For::Log, SECOND);
        let call = first.into_call();
        assert!(current().is_none());
        let mut polls = 0;
        let mut work = pin!(call.clone().scope(Box::pin(poll_fn(|_| {
            polls += 1;
            current().unwrap().waited(For::Bucket, SECOND);
            match polls {
                1 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        }))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert!(current().is_none());
        assert!(work.as_mut().poll(&mut context).is_ready());
        assert!(current().is_none());
        let expected = [(For::Log, 2 * SECOND), (For::Bucket, 2 * SECOND)];
        assert_eq!(waits(&call), expected);
    }

    #[test]
    fn the_next_call_of_a_thread_begins_without_a_record() {
        let first = FirstPoll::begin();
        current().unwrap().waited(For::Log, SECOND);
        drop(first);
        let call = FirstPoll::begin().into_call();
        assert_eq!(waits(&call), []);
    }

    #[test]
    fn a_look_at_what_was_noted_makes_no_record() {
        assert!(noted().is_none());
        let first = FirstPoll::begin();
        assert!(noted().is_none());
        current().unwrap().waited(For::Log, SECOND);
        assert_eq!(waits(&noted().unwrap()), [(For::Log, SECOND)]);
        drop(first);
        assert!(noted().is_none());
        let call = Call::default();
        let mut work = pin!(call.scope(Box::pin(poll_fn(|_| Poll::Ready(noted().is_some())))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(work.as_mut().poll(&mut context) == Poll::Ready(true));
    }

    #[test]
    fn a_call_that_panics_leaves_nothing_behind() {
        let panicked = std::panic::catch_unwind(|| {
            let _first = FirstPoll::begin();
            current().unwrap().waited(For::Log, SECOND);
            panic!("on purpose");
        });
        assert!(panicked.is_err() && current().is_none());
    }
}
