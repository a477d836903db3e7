//! Futures that wait for the log without an async runtime: plain wakers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use forebay_types::Lsn;

use super::shared::Shared;
use crate::error::LogFailed;
use crate::state::{Closing, State};
use crate::waiting::{Ticket, Waiters};

/// A place in one of the log's lists. Dropping the future removes it.
struct WaiterSlot {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
    list: fn(&mut State) -> &mut Waiters,
}

impl WaiterSlot {
    fn new(shared: &Arc<Shared>, list: fn(&mut State) -> &mut Waiters) -> WaiterSlot {
        WaiterSlot {
            shared: Arc::clone(shared),
            ticket: None,
            list,
        }
    }

    /// Asks the state; enters the list if the state has no answer yet.
    fn poll<T>(
        &mut self,
        upto: Lsn,
        cx: &Context<'_>,
        answer: impl FnOnce(&State) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.shared.state.lock();
        if let Some(answer) = answer(&state) {
            if let Some(ticket) = self.ticket.take() {
                (self.list)(&mut state).leave(ticket);
            }
            return Poll::Ready(answer);
        }
        (self.list)(&mut state).enter(upto, &mut self.ticket, cx.waker());
        if state.flush_may_begin() {
            self.shared.syncer.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            (self.list)(&mut self.shared.state.lock()).leave(ticket);
        }
    }
}

/// Made by [`Wal::complete`](super::Wal::complete). May be dropped at any time.
#[must_use = "futures do nothing unless polled"]
pub struct Complete {
    upto: Lsn,
    /// None if there was nothing to wait for.
    place: Option<WaiterSlot>,
}

/// Number of checks whether other threads have filled their records meanwhile: one to four microseconds, the time of
/// a 32 KiB copy. Sleeping and waking takes longer, for both threads.
const LOOKS: u32 = 64;

/// Whether everything before `upto` is complete, now or after a short spin.
#[inline]
fn is_complete_soon(shared: &Shared, upto: Lsn) -> bool {
    let is_complete = || upto.0 <= shared.complete.load(Ordering::Acquire);
    is_complete()
        || (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            is_complete()
        })
}

impl Complete {
    #[inline]
    pub(super) fn new(shared: &Arc<Shared>, upto: Lsn) -> Complete {
        let waits = !is_complete_soon(shared, upto);
        let place = waits.then(|| WaiterSlot::new(shared, |state| &mut state.for_complete));
        Complete { upto, place }
    }
}

impl Future for Complete {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let upto = self.upto;
        let Some(place) = &mut self.place else {
            return Poll::Ready(());
        };
        if upto.0 <= place.shared.complete.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        place.poll(upto, cx, |state| (upto <= state.complete).then_some(()))
    }
}

/// Made by [`Wal::durable`](super::Wal::durable). May be dropped at any time; the flush goes on.
#[must_use = "futures do nothing unless polled"]
pub struct Durable {
    upto: Lsn,
    /// None if there was nothing to wait for.
    place: Option<WaiterSlot>,
}

impl Durable {
    #[inline]
    pub(super) fn new(shared: &Arc<Shared>, upto: Lsn) -> Durable {
        let waits = upto.0 > shared.durable.load(Ordering::Acquire);
        let place = waits.then(|| WaiterSlot::new(shared, |state| &mut state.for_durable));
        Durable { upto, place }
    }
}

impl Future for Durable {
    type Output = Result<(), LogFailed>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let upto = self.upto;
        let Some(place) = &mut self.place else {
            return Poll::Ready(Ok(()));
        };
        if upto.0 <= place.shared.durable.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        place.poll(upto, cx, |state| state.durability(upto))
    }
}

/// Made by [`Wal::failed`](super::Wal::failed). May be dropped at any time.
#[must_use = "futures do nothing unless polled"]
pub struct Failed {
    place: WaiterSlot,
}

impl Failed {
    pub(super) fn new(shared: &Arc<Shared>) -> Failed {
        Failed {
            place: WaiterSlot::new(shared, |state| &mut state.for_failure),
        }
    }
}

impl Future for Failed {
    type Output = LogFailed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LogFailed> {
        self.place
            .poll(Lsn::ZERO, cx, |state| state.failure.clone())
    }
}

/// Made by [`Wal::room`](super::Wal::room). May be dropped at any time.
#[must_use = "futures do nothing unless polled"]
pub struct Room {
    bytes: u64,
    place: WaiterSlot,
}

impl Room {
    pub(super) fn new(shared: &Arc<Shared>, bytes: u64) -> Room {
        Room {
            bytes,
            place: WaiterSlot::new(shared, |state| &mut state.for_room),
        }
    }
}

impl Future for Room {
    type Output = Result<(), LogFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let bytes = self.bytes;
        let answer = self.place.poll(Lsn::ZERO, cx, |state| {
            if let Some(failure) = &state.failure {
                Some(Err(failure.clone()))
            } else if state.closing > Closing::Open {
                Some(Err(state.closed()))
            } else {
                state.has_room(bytes).then_some(Ok(()))
            }
        });
        if answer.is_pending() {
            self.place.shared.look_again();
        }
        answer
    }
}
