//! Tasks that work through pieces of a range, some at the same time.

use std::collections::VecDeque;
use std::future::Future;

use forebay_meta::{KeyRange, StoreError};
use tokio::task::JoinSet;

/// Pieces that are worked on at the same time, at most: each takes memory for some pages of both moments.
const MOST: usize = 4;

/// Pieces that are worked on at the same time here.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST))
}

/// The pieces that wait for a task, and the tasks, which end when this is dropped.
pub(crate) struct Workers<T, W> {
    waiting: VecDeque<(usize, KeyRange)>,
    running: JoinSet<(usize, Result<T, StoreError>)>,
    work: W,
}

impl<T, W, F> Workers<T, W>
where
    T: Send + 'static,
    W: Fn(KeyRange) -> F,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    /// Begins with the first pieces.
    pub(crate) fn begin(pieces: Vec<KeyRange>, work: W) -> Workers<T, W> {
        let mut workers = Workers {
            waiting: pieces.into_iter().enumerate().collect(),
            running: JoinSet::new(),
            work,
        };
        for _ in 0..at_once() {
            workers.begin_one();
        }
        workers
    }

    fn begin_one(&mut self) {
        if let Some((number, piece)) = self.waiting.pop_front() {
            let work = (self.work)(piece);
            self.running.spawn(async move { (number, work.await) });
        }
    }

    /// The number and the result of a piece that is done; `None` when all are.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, T)>, StoreError> {
        let Some(ended) = self.running.join_next().await else {
            return Ok(None);
        };
        match ended {
            Ok((number, result)) => {
                self.begin_one();
                Ok(Some((number, result?)))
            }
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(StoreError::Transient(error.to_string())),
            },
        }
    }
}
