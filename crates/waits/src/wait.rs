//! The places where a call may wait.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::{Call, For, current};

/// Does `work`, and notes that the current call waits from the first poll that does not complete it until the end, or
/// until this is dropped. Costs a comparison if there is no wait.
#[inline]
pub fn waiting<F: Future>(what: For, work: F) -> WaitingFor<F> {
    waiting_by(what, work, Instant::now)
}

/// Like [`waiting`], with this clock.
#[inline]
pub fn waiting_by<F: Future>(what: For, work: F, clock: fn() -> Instant) -> WaitingFor<F> {
    WaitingFor {
        work,
        noted: Noted {
            what,
            clock,
            call: None,
        },
    }
}

/// Takes a lock that blocks the thread: `at_once` tries, and if it returns nothing, `wait` waits for it, which is noted for
/// the current call.
#[inline]
pub fn blocking<T>(what: For, at_once: impl FnOnce() -> Option<T>, wait: impl FnOnce() -> T) -> T {
    match at_once() {
        Some(done) => done,
        None => blocked(what, wait),
    }
}

#[cold]
#[inline(never)]
fn blocked<T>(what: For, wait: impl FnOnce() -> T) -> T {
    let mut noted = Noted {
        what,
        clock: Instant::now,
        call: None,
    };
    noted.begin();
    let done = wait();
    drop(noted);
    done
}

/// Notes that the current call has waited this long.
pub fn add(what: For, time: Duration) {
    if let Some(call) = current() {
        call.waited(what, time);
    }
}

pin_project! {
    /// Future of [`waiting`].
    #[derive(Debug)]
    #[must_use]
    pub struct WaitingFor<F> {
        #[pin]
        work: F,
        noted: Noted,
    }
}

impl<F: Future> Future for WaitingFor<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.work.poll(context);
        match polled {
            Poll::Pending => this.noted.begin(),
            Poll::Ready(_) => this.noted.end(),
        }
        polled
    }
}

/// A wait, noted in the record of a call from its beginning on.
#[derive(Debug)]
struct Noted {
    what: For,
    clock: fn() -> Instant,
    call: Option<Call>,
}

impl Noted {
    #[cold]
    fn begin(&mut self) {
        if self.call.is_none()
            && let Some(call) = current()
        {
            call.begin(self.what, (self.clock)());
            self.call = Some(call);
        }
    }

    #[inline]
    fn end(&mut self) {
        if let Some(call) = self.call.take() {
            call.end(self.what, (self.clock)());
        }
    }
}

impl Drop for Noted {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn, ready};
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::FirstPoll;

    thread_local! {
        static START: Instant = Instant::now();
        static SECONDS: Cell<u64> = const { Cell::new(0) };
    }

    /// The clock of this thread, which moves only by hand.
    fn by_hand() -> Instant {
        START.with(|start| *start + Duration::from_secs(SECONDS.get()))
    }

    fn waits(call: &Call) -> Vec<(For, u64)> {
        let waits = call.summary(by_hand()).waits.into_iter();
        waits.map(|(what, time)| (what, time.as_secs())).collect()
    }

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn a_wait_lasts_from_the_first_pending_poll_to_the_end() {
        let mut left = 3;
        let mut work = pin!(waiting_by(
            For::Bucket,
            poll_fn(|_| {
                left -= 1;
                if left == 0 {
                    Poll::Ready(7)
                } else {
                    Poll::Pending
                }
            }),
            by_hand,
        ));
        SECONDS.set(10);
        let first = FirstPoll::begin();
        assert!(work.as_mut().poll(&mut context()).is_pending());
        let call = first.into_call();
        let mut work = pin!(call.clone().scope(work));
        SECONDS.set(12);
        assert!(work.as_mut().poll(&mut context()).is_pending());
        assert_eq!(waits(&call), [(For::Bucket, 2)], "it waits still");
        SECONDS.set(15);
        assert_eq!(work.as_mut().poll(&mut context()), Poll::Ready(7));
        SECONDS.set(99);
        assert_eq!(waits(&call), [(For::Bucket, 5)]);
    }

    #[test]
    fn work_that_is_done_at_once_is_no_wait() {
        let first = FirstPoll::begin();
        let mut work = pin!(waiting_by(For::Bucket, ready(7), by_hand));
        assert_eq!(work.as_mut().poll(&mut context()), Poll::Ready(7));
        assert_eq!(blocking(For::NodeLock, || Some(1), || 2), 1);
        assert_eq!(waits(&first.into_call()), []);
    }

    #[test]
    fn a_wait_that_is_given_up_ends_with_its_future() {
        SECONDS.set(1);
        let first = FirstPoll::begin();
        let mut work = Box::pin(waiting_by(For::Log, pending::<()>(), by_hand));
        assert!(work.as_mut().poll(&mut context()).is_pending());
        SECONDS.set(4);
        drop(work);
        SECONDS.set(9);
        assert_eq!(waits(&first.into_call()), [(For::Log, 3)]);
    }

    #[test]
    fn waits_outside_of_calls_are_nobodys() {
        let mut work = pin!(waiting_by(For::Log, pending::<()>(), by_hand));
        assert!(work.as_mut().poll(&mut context()).is_pending());
        assert_eq!(blocking(For::NodeLock, || None, || 2), 2);
        add(For::Turn, Duration::from_secs(1));
        assert_eq!(waits(&FirstPoll::begin().into_call()), []);
    }

    #[test]
    fn a_lock_that_is_not_free_and_time_that_has_passed_are_noted() {
        let first = FirstPoll::begin();
        add(For::Turn, Duration::from_secs(3));
        let taken = blocking(
            For::NodeLock,
            || None,
            || {
                // The record has it while it lasts.
                let open = current()
                    .unwrap()
                    .summary(Instant::now() + Duration::from_secs(60));
                open.waits.last().map(|(what, _)| *what)
            },
        );
        assert_eq!(taken, Some(For::NodeLock));
        assert_eq!(waits(&first.into_call())[0], (For::Turn, 3));
    }
}
