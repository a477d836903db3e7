//! Answers that are shared by the requests that wait for them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::rate::Rate;

/// Computes an answer for many requests: one computation at a time, at a bounded rate. Each request gets an answer whose
/// computation began after the request arrived.
#[derive(Debug)]
pub(super) struct Shared<T> {
    /// Number of requests that have arrived.
    arrived: AtomicU64,
    rate: Rate,
    last: Mutex<Option<Last<T>>>,
}

#[derive(Debug)]
struct Last<T> {
    /// Number of requests that had arrived when its computation began.
    arrived: u64,
    answer: Arc<T>,
}

impl<T> Shared<T> {
    /// With this number of computations a second, at most.
    pub(super) fn new(per_second: u32) -> Shared<T> {
        Shared {
            arrived: AtomicU64::new(0),
            rate: Rate::new(per_second, 4),
            last: Mutex::new(None),
        }
    }

    /// The answer to a request that arrives now; `compute` computes it if needed.
    pub(super) async fn get(&self, compute: impl Future<Output = T>) -> Arc<T> {
        let own = self.arrived.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(last) = &*last
            && own < last.arrived
        {
            return last.answer.clone();
        }
        self.rate.wait().await;
        let arrived = self.arrived.load(Ordering::SeqCst);
        let answer = Arc::new(compute.await);
        *last = Some(Last {
            arrived,
            answer: answer.clone(),
        });
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::oneshot;

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn requests_that_wait_share_one_answer_and_none_gets_an_older_one() {
        let shared = Shared::new(1_000_000);
        let (send, receive) = oneshot::channel();
        let mut first = pin!(shared.get(async { receive.await.unwrap() }));
        assert!(poll(first.as_mut()).is_pending());
        // These arrive while the first answer is computed, so they need another one; they share it.
        let (send_second, receive_second) = oneshot::channel();
        let mut second = pin!(shared.get(async { receive_second.await.unwrap() }));
        let mut third = pin!(shared.get(async { unreachable!("computed twice") }));
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(third.as_mut()).is_pending());
        send.send(1).unwrap();
        assert_eq!(*first.await, 1);
        assert!(poll(second.as_mut()).is_pending());
        send_second.send(2).unwrap();
        assert_eq!(*second.await, 2);
        assert_eq!(*third.await, 2);
        assert_eq!(*shared.get(async { 3 }).await, 3);
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_leaves_no_answer_behind() {
        let shared = Shared::new(1_000_000);
        assert_eq!(*shared.get(async { 1 }).await, 1);
        {
            let mut given_up = pin!(shared.get(pending()));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(*shared.get(async { 2 }).await, 2);
    }
}
