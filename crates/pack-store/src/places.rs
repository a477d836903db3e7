//! A number of places, and a queue for them.

use forebay_metrics::Gauge;
use tokio::sync::{Semaphore, SemaphorePermit};

/// See the module's documentation. The queue is fair.
#[derive(Debug)]
pub(crate) struct Places {
    free: Semaphore,
    all: usize,
    /// Tasks in the queue.
    waiting: Gauge,
}

/// Counts a task in the queue, until it has a place or gives up.
struct InQueue<'a>(&'a Gauge);

impl Places {
    pub(crate) fn new(all: usize) -> Places {
        Places {
            free: Semaphore::new(all),
            all,
            waiting: Gauge::default(),
        }
    }

    /// Waits for a place, which is taken until the result is dropped.
    pub(crate) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.add(1);
        let _counted = InQueue(&self.waiting);
        // Never closed.
        self.free.acquire().await.ok()
    }

    /// Whether any place is taken.
    pub(crate) fn are_in_use(&self) -> bool {
        self.free.available_permits() < self.all
    }

    /// The length of the queue.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.get()
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.subtract(1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn those_that_wait_are_counted_until_they_have_a_place_or_give_up() {
        let places = Places::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(places.take()).poll(&mut context) else {
            panic!("there is a place");
        };
        assert_eq!((places.waiting(), places.are_in_use()), (0, true));
        let mut second = pin!(places.take());
        assert!(second.as_mut().poll(&mut context).is_pending());
        {
            let mut third = pin!(places.take());
            assert!(third.as_mut().poll(&mut context).is_pending());
            assert_eq!(places.waiting(), 2);
        }
        assert_eq!(places.waiting(), 1);
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
        assert_eq!((places.waiting(), places.are_in_use()), (0, false));
    }
}
