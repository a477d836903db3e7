//! The task that looks at a gateway once a second, and logs the messages that are due.

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{Opening, Status};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{Counters, LOOK_EVERY, Level, Notice, OpeningWatch, Wait, Watch, look};
use crate::logging;

/// Pause before a task that panicked begins again.
const BEGIN_AGAIN: Duration = Duration::from_secs(60);

/// Watches one gateway.
pub struct Watcher {
    started: Instant,
    volume: Box<dyn Fn() -> Status + Send + Sync>,
    counters: Counters,
    watch: Mutex<Watch>,
}

impl Watcher {
    /// For a gateway whose volume's state is `volume`.
    pub fn new(volume: impl Fn() -> Status + Send + Sync + 'static, counters: Counters) -> Watcher {
        Watcher {
            started: Instant::now(),
            volume: Box::new(volume),
            counters,
            watch: Mutex::default(),
        }
    }

    /// The waits of clients that have lasted long enough to be reported.
    pub fn waits(&self) -> Vec<Wait> {
        self.watch.lock().waits(self.started.elapsed())
    }

    /// Looks once a second, until it is dropped.
    pub async fn run(self: Arc<Watcher>) {
        loop {
            // The task ends with this future.
            let mut looking = JoinSet::new();
            looking.spawn(self.clone().look_forever());
            if let Some(Err(error)) = looking.join_next().await {
                tracing::error!(%error, "the task that watches for waiting clients failed; it restarts in a minute");
            }
            sleep(BEGIN_AGAIN).await;
        }
    }

    async fn look_forever(self: Arc<Watcher>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let seen = look(&(self.volume)(), &self.counters);
            let notices = self.watch.lock().look(self.started.elapsed(), seen);
            notices.iter().for_each(say);
            logging::say_what_was_held(false);
        }
    }
}

/// Logs the current step of an opening when that takes long, until it is dropped.
pub async fn watch_opening(opening: &Opening) {
    let started = Instant::now();
    let mut watch = OpeningWatch::default();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let step = opening.step();
        if let Some(text) = watch.look(started.elapsed(), step.number, &step.what) {
            tracing::warn!("{text}");
        }
        logging::say_what_was_held(false);
    }
}

fn say(notice: &Notice) {
    match notice.level {
        Level::Error => tracing::error!("{}", notice.text),
        Level::Warn => tracing::warn!("{}", notice.text),
        Level::Info => tracing::info!("{}", notice.text),
    }
}
