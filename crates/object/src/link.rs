//! Limits on the link: bytes per second that go to the store and come from it.
//!
//! The limits apply to the bodies of requests and of answers, piece by piece, next to the connection: a wrapper around
//! the store would get a pack of 64 MiB as one value, and could only hold back or release all of it. So the store on S3
//! asks for a [permit for each piece](Permits) (see `s3::stall`). Before that [`crate::retry`] has asked whether the body
//! may [begin](Link::begin): before the request gets its own permission, so that the wait takes none from other
//! requests, and before it is signed, since a signature is valid for minutes. The decisions are in [`queue`], which has
//! no clock and does no I/O. Each direction has a queue of its own: readers do not wait for uploads.
//!
//! **No request fails because of a limit.** Time in which a body waits for its permit does not count against the
//! connection, and the limits for whole requests, which [`crate::retry`] has, do not run while any body waits here:
//! [`Link::held`].

mod limit;
mod queue;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chrono::Timelike;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

pub use limit::{Hours, LinkLimit};

use queue::{Answer, Class, Queue, Ticket};

pub(crate) use queue::PIECE;

/// Bodies up to this size are small: metadata, small files, and the frames that one READ needs, which are 1 MiB and one
/// more frame. Larger ones are packs, and blocks of read-ahead.
const SMALL: u64 = (1 << 20) + (256 << 10);

fn class_of(len: u64) -> Class {
    if len <= SMALL {
        Class::Small
    } else {
        Class::Large
    }
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the store.
    Up,
    /// From the store.
    Down,
}

/// The link to a store, with its limits.
#[derive(Debug)]
pub(crate) struct Link {
    up: Option<Mutex<Lane>>,
    down: Option<Mutex<Lane>>,
    /// Returns the minute of the day.
    minute: fn() -> u16,
}

/// One direction of the link.
#[derive(Debug)]
struct Lane {
    queue: Queue,
    wakers: HashMap<Ticket, Waker>,
}

impl Lane {
    fn wake_next(&mut self, now: Instant) {
        let next = [
            self.queue.next(now),
            self.queue.next_to_begin(Class::Small, now),
            self.queue.next_to_begin(Class::Large, now),
        ];
        for next in next.into_iter().flatten() {
            if let Some(waker) = self.wakers.get(&next) {
                waker.wake_by_ref();
            }
        }
    }
}

impl Link {
    /// The link with these limits, in the machine's local time; `None` without any limit.
    pub(crate) fn new(up: &LinkLimit, down: &LinkLimit) -> Option<Arc<Link>> {
        Link::with_clock(up, down, || {
            let now = chrono::Local::now();
            // A day has 1440 minutes.
            u16::try_from(now.hour() * 60 + now.minute()).unwrap_or_default()
        })
    }

    fn with_clock(up: &LinkLimit, down: &LinkLimit, minute: fn() -> u16) -> Option<Arc<Link>> {
        let lane = |limit: &LinkLimit| {
            (!limit.is_none()).then(|| {
                Mutex::new(Lane {
                    queue: Queue::new(limit.clone(), Instant::now()),
                    wakers: HashMap::new(),
                })
            })
        };
        let (up, down) = (lane(up), lane(down));
        (up.is_some() || down.is_some()).then(|| Arc::new(Link { up, down, minute }))
    }

    fn lane(&self, direction: Direction) -> Option<&Mutex<Lane>> {
        match direction {
            Direction::Up => self.up.as_ref(),
            Direction::Down => self.down.as_ref(),
        }
    }

    /// Whether bytes in this direction are limited.
    pub(crate) fn limits(&self, direction: Direction) -> bool {
        self.lane(direction).is_some()
    }

    /// Bytes per second allowed in this direction now; `None` for no limit.
    pub(crate) fn rate(&self, direction: Direction) -> Option<u64> {
        let minute = (self.minute)();
        self.lane(direction)?.lock().queue.rate(minute)
    }

    /// Total time in which bodies were held back so far, in both directions.
    pub(crate) fn held(&self) -> Duration {
        let both = [Direction::Up, Direction::Down].map(|direction| self.held_in(direction));
        both.into_iter().flatten().sum()
    }

    /// Total time in which bodies were held back so far in this direction; `None` if it has no limit.
    pub(crate) fn held_in(&self, direction: Direction) -> Option<Duration> {
        let lane = self.lane(direction)?.lock();
        Some(lane.queue.held(Instant::now()))
    }
}

/// A body that waits on one direction of the link.
#[derive(Debug)]
struct Waiting {
    link: Arc<Link>,
    direction: Direction,
    place: Option<Ticket>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    fn new(link: &Arc<Link>, direction: Direction) -> Waiting {
        Waiting {
            link: Arc::clone(link),
            direction,
            place: None,
            pause: None,
        }
    }

    /// Ready when `ask`, which gets the place, the time and the minute of the day, grants the permit.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        ask: impl Fn(&mut Queue, &mut Option<Ticket>, Instant, u16) -> Answer,
    ) -> Poll<()> {
        loop {
            let Some(until) = self.ask(cx.waker(), &ask) else {
                return Poll::Ready(());
            };
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep_until(until)));
            pause.as_mut().reset(until);
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// The time of the next question; `None` if the permit was granted.
    fn ask(
        &mut self,
        waker: &Waker,
        ask: impl Fn(&mut Queue, &mut Option<Ticket>, Instant, u16) -> Answer,
    ) -> Option<Instant> {
        let lane = self.link.lane(self.direction)?;
        let (now, minute) = (Instant::now(), (self.link.minute)());
        let mut lane = lane.lock();
        let before = self.place;
        match ask(&mut lane.queue, &mut self.place, now, minute) {
            Answer::Wait(until) => {
                if let Some(place) = self.place {
                    lane.wakers.insert(place, waker.clone());
                }
                Some(until)
            }
            Answer::Granted => {
                if let Some(place) = before {
                    lane.wakers.remove(&place);
                }
                lane.wake_next(now);
                None
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(place) = self.place else {
            return;
        };
        if let Some(lane) = self.link.lane(self.direction) {
            let now = Instant::now();
            let mut lane = lane.lock();
            lane.wakers.remove(&place);
            lane.queue.take(&mut self.place, now);
            lane.wake_next(now);
        }
    }
}

/// The permits of one body, whose pieces cross the link one after the other.
#[derive(Debug)]
pub(crate) struct Permits {
    waiting: Waiting,
    class: Class,
    /// Bytes until it counts as a large body, if its length is not known.
    until_large: Option<u64>,
}

impl Permits {
    /// For a body of `len` bytes, if that is known; `None` if this direction has no limit.
    pub(crate) fn new(link: &Arc<Link>, direction: Direction, len: Option<u64>) -> Option<Permits> {
        link.lane(direction)?;
        Some(Permits {
            waiting: Waiting::new(link, direction),
            class: len.map_or(Class::Small, class_of),
            until_large: len.is_none().then_some(SMALL),
        })
    }

    /// Ready when a piece of `bytes` bytes, [`PIECE`] at most, may go.
    pub(crate) fn poll(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<()> {
        let class = self.class;
        std::task::ready!(self.waiting.poll(cx, |queue, place, now, minute| {
            queue.ask(place, class, bytes, now, minute)
        }));
        if let Some(left) = &mut self.until_large {
            *left = left.saturating_sub(bytes as u64);
            if *left == 0 {
                self.class = Class::Large;
            }
        }
        Poll::Ready(())
    }
}

/// A body in transit, until this is dropped.
#[derive(Debug)]
pub(crate) struct InTransit {
    link: Arc<Link>,
    direction: Direction,
    class: Class,
}

impl Link {
    /// Waits until a body of `len` bytes may begin. Returns at once if there is no limit, or nothing to move.
    pub(crate) async fn begin(
        link: Option<&Arc<Link>>,
        direction: Direction,
        len: u64,
    ) -> Option<InTransit> {
        let link = link.filter(|link| len > 0 && link.limits(direction))?;
        let class = class_of(len);
        let mut waiting = Waiting::new(link, direction);
        std::future::poll_fn(|cx| {
            waiting.poll(cx, |queue, place, now, minute| {
                queue.begin(place, class, now, minute)
            })
        })
        .await;
        Some(InTransit {
            link: Arc::clone(link),
            direction,
            class,
        })
    }
}

impl Drop for InTransit {
    fn drop(&mut self) {
        if let Some(lane) = self.link.lane(self.direction) {
            let mut lane = lane.lock();
            lane.queue.end(self.class);
            lane.wake_next(Instant::now());
        }
    }
}

/// Waits for `what` for at most `limit`, not counting the time in which the link held any body back; `None` if the time
/// was not enough.
pub(crate) async fn in_time<T>(
    link: Option<&Link>,
    limit: Duration,
    what: impl Future<Output = T>,
) -> Option<T> {
    let held = || link.map(Link::held).unwrap_or_default();
    let mut what = std::pin::pin!(what);
    let mut counted = held();
    let mut deadline = Instant::now() + limit;
    loop {
        if let Ok(answer) = tokio::time::timeout_at(deadline, &mut what).await {
            return Some(answer);
        }
        let held = held();
        if held <= counted {
            return None;
        }
        deadline += held - counted;
        counted = held;
    }
}

#[cfg(test)]
mod tests;
