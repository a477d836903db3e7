//! Signals between calls and background tasks: the volume has stopped, the publisher is needed, memory was freed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_vfs::{Error, Result};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

/// Why a volume takes no more changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// Another gateway has opened it.
    #[error(
        "another gateway has taken over this volume; this one has stopped writing. Its unpublished changes are in its log alone"
    )]
    Fenced,
    /// The bucket or the metadata in it cannot be used.
    #[error("the volume has stopped: {0}")]
    Failed(String),
}

/// The signals of one volume.
pub(crate) struct Signals {
    stopped: watch::Sender<Option<Stopped>>,
    /// Recovery is done, and clients are served.
    serving: AtomicBool,
    /// Wakes the publisher.
    publisher: Notify,
    /// A writer waits for memory or log space that a checkpoint gives back.
    pressed: AtomicBool,
    /// Wakes tasks that wait for memory.
    freed: Notify,
    /// Calls that wait until something is in the bucket.
    waiting: AtomicUsize,
}

/// Counts a call that waits for the bucket; its drop ends the count, also when the wait is cancelled.
pub(crate) struct WaitsForBucket<'a>(&'a AtomicUsize);

impl Drop for WaitsForBucket<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Signals {
    pub(crate) fn new() -> Signals {
        Signals {
            stopped: watch::Sender::new(None),
            serving: AtomicBool::new(false),
            publisher: Notify::new(),
            pressed: AtomicBool::new(false),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Makes the publisher check again whether it has work.
    pub(crate) fn wake_publisher(&self) {
        self.publisher.notify_one();
    }

    /// The same for a writer that waits for room: makes the open checkpoint close.
    pub(crate) fn press(&self) {
        self.pressed.store(true, Ordering::Release);
        self.wake_publisher();
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Acquire)
    }

    /// A call begins to wait until something is in the bucket.
    pub(crate) fn wait_for_bucket(&self) -> WaitsForBucket<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitsForBucket(&self.waiting)
    }

    /// Whether a call waits for room, or until something is in the bucket.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_pressed() || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The open checkpoint is about to close.
    pub(crate) fn relieve(&self) {
        self.pressed.store(false, Ordering::Release);
    }

    /// Returns when the publisher is needed.
    pub(crate) fn publisher_needed(&self) -> Notified<'_> {
        self.publisher.notified()
    }

    /// Notes that memory was freed: tasks that wait for it check again.
    pub(crate) fn memory_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Returns when memory is freed. Counts from the first poll, or from [`Notified::enable`].
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// The same, after `time` at the latest.
    pub(crate) async fn freed_within(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.freed()).await;
    }

    /// Recovery is done.
    pub(crate) fn begin_serving(&self) {
        self.serving.store(true, Ordering::Release);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// Stops the volume: it takes no more changes. The first reason counts, and is logged.
    pub(crate) fn stop(&self, why: Stopped) {
        if self.set_stopped(&why) {
            tracing::error!("{why}");
        }
    }

    /// Stops the volume in an orderly way: nothing is wrong.
    pub(crate) fn stop_quietly(&self) {
        self.set_stopped(&Stopped::Failed("the gateway is stopping".into()));
    }

    fn set_stopped(&self, why: &Stopped) -> bool {
        let first = self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert_with(|| why.clone());
            first
        });
        self.memory_freed();
        self.wake_publisher();
        first
    }

    pub(crate) fn is_stopped(&self) -> Option<Stopped> {
        self.stopped.borrow().clone()
    }

    pub(crate) fn watch_stopped(&self) -> watch::Receiver<Option<Stopped>> {
        self.stopped.subscribe()
    }

    /// [`Error::Delay`] once the volume has stopped: the client waits for a gateway that works.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.stopped.borrow().is_some() {
            Err(Error::Delay)
        } else {
            Ok(())
        }
    }
}
