//! The background tasks of a volume: one for each engine, each with a name.
//!
//! A task that panics stops the volume, and the message names it. The log has the unfinished changes, and they are
//! published after a restart. All tasks end with the volume.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use forebay_object::{Cause, caused};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::state::{Signals, Stopped};

/// The work of a task, for as long as the volume runs or until it is done.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Engine {
    pub(crate) fn new(
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Engine {
        Engine {
            name,
            work: Box::pin(work),
        }
    }

    /// The same, with a cause of the requests that it makes to the bucket.
    pub(crate) fn causing(self, cause: Cause) -> Engine {
        // The future in the box is not copied.
        let work = Box::pin(caused(cause, self.work));
        Engine { work, ..self }
    }
}

/// The tasks of one volume.
pub(crate) struct Tasks {
    signals: Arc<Signals>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Tasks {
    pub(crate) fn new(signals: Arc<Signals>) -> Tasks {
        Tasks {
            signals,
            running: Mutex::default(),
        }
    }

    /// Starts the task of an engine. On a runtime of one thread, tasks begin in the order in which they are started,
    /// so that a simulation is repeatable.
    pub(crate) fn start(&self, engine: Engine) {
        let watch = Watch {
            name: engine.name,
            signals: self.signals.clone(),
        };
        let task = tokio::spawn(async move {
            let _watch = watch;
            engine.work.await;
        });
        self.running.lock().push(task);
    }

    /// Ends all tasks at their next await, and returns when they have ended.
    pub(crate) async fn end(&self) {
        let running = std::mem::take(&mut *self.running.lock());
        for task in &running {
            task.abort();
        }
        for task in running {
            // It ends by the abort or has ended already.
            let _ = task.await;
        }
    }
}

/// Stops the volume if its task panics: nothing must wait for that task in vain.
struct Watch {
    name: &'static str,
    signals: Arc<Signals>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.signals.stop(Stopped::Failed(format!(
                "the task `{}` has ended by a fault of the program; changes that are not in the bucket are in the log, and the next start publishes them",
                self.name
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_names_its_task_and_stops_the_volume() {
        let signals = Arc::new(Signals::new());
        let tasks = Tasks::new(signals.clone());
        tasks.start(Engine::new("idle", std::future::pending()));
        tasks.start(Engine::new("scrub", async { panic!("on purpose") }));
        let mut stopped = signals.watch_stopped();
        let why = stopped.wait_for(Option::is_some).await.unwrap().clone();
        let why = why.unwrap().to_string();
        assert!(why.contains("`scrub`"), "{why}");
        tasks.end().await;
    }

    #[tokio::test]
    async fn tasks_that_end_or_are_ended_stop_nothing() {
        let signals = Arc::new(Signals::new());
        let tasks = Tasks::new(signals.clone());
        tasks.start(Engine::new("idle", std::future::pending()));
        tasks.start(Engine::new("learner", async {}));
        tokio::task::yield_now().await;
        tasks.end().await;
        assert_eq!(signals.is_stopped(), None);
    }
}
