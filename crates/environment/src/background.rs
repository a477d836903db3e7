//! Threads for work that takes the processor for milliseconds and that no caller waits for: building packs.
//!
//! There are as many as processors, and they have a higher nice value than the others: if there is too little
//! processor time for all, callers are answered first. Uploads that fall behind hold memory and log space; then
//! writers wait for room, and leave the processor to the uploads.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// How much higher their nice value is: they get a third of the processor time that as many busy threads of callers
/// get.
const NICER: i32 = 5;

type Work = Box<dyn FnOnce() + Send>;

/// The error of work that did not complete: it panicked, or there is no thread.
#[derive(Debug, thiserror::Error)]
#[error("it panicked, or no thread could be started")]
pub struct Ended;

/// Runs `work` in one of the threads, which all volumes of the process share.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Ended> {
    static THREADS: OnceLock<Sender<Work>> = OnceLock::new();
    let (done, result) = oneshot::channel();
    let work = Box::new(move || {
        // No task waits for the result when the volume has ended.
        let _ = done.send(work());
    });
    // The threads live as long as the process.
    let _ = THREADS.get_or_init(start).send(work);
    result.await.map_err(|_| Ended)
}

fn start() -> Sender<Work> {
    let (sender, receiver) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    for i in 0..threads {
        let receiver = receiver.clone();
        let thread = thread::Builder::new().name(format!("background-{i}"));
        if let Err(error) = thread.spawn(move || work_off(&receiver)) {
            tracing::error!("a thread for uploads cannot be started: {error}");
        }
    }
    sender
}

fn work_off(queue: &Mutex<Receiver<Work>>) {
    // On Linux, this changes only the current thread.
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!("cannot lower the priority of upload threads: {error}");
    }
    loop {
        let work = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = work else { return };
        // The waiting task gets an error after a panic, and the thread goes on.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_a_nicer_thread() {
        let here = rustix::process::nice(0).unwrap();
        let there = run(|| rustix::process::nice(0).unwrap()).await.unwrap();
        assert_eq!(there, (here + NICER).min(19));
        assert_eq!(rustix::process::nice(0).unwrap(), here);
    }

    #[tokio::test]
    async fn work_that_panics_ends_itself_and_nothing_else() {
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
        for _ in 0..2 * threads {
            assert!(run(|| panic!("on purpose")).await.is_err());
        }
        assert_eq!(run(|| 7).await.unwrap(), 7);
    }
}
