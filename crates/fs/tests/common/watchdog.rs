//! A watchdog: it fails the test if an operation makes no progress although the store does.
//!
//! Every operation is entered, and leaves when it is done or given up. Time counts only while the store answers: an
//! operation may wait while the store is unreachable, and otherwise not even a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_fs::Volume;
use parking_lot::Mutex;

use super::TIMEOUT;

const LOOK: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Entered {
    operations: BTreeMap<u64, Operation>,
    next: u64,
    /// The failure.
    verdict: Option<String>,
}

struct Operation {
    what: String,
    /// How long it has lived while the store answered.
    waited: Duration,
}

/// Watches the operations on one volume, until it is dropped.
pub struct Watchdog {
    entered: Arc<Mutex<Entered>>,
    ended: Arc<AtomicBool>,
    away: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An operation in progress, until this is dropped.
pub struct Watched {
    entered: Arc<Mutex<Entered>>,
    id: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.entered.lock().operations.remove(&self.id);
    }
}

impl Watchdog {
    pub fn new(volume: Volume) -> Watchdog {
        let entered = Arc::new(Mutex::new(Entered::default()));
        let ended = Arc::new(AtomicBool::new(false));
        let away = Arc::new(AtomicBool::new(false));
        let thread = {
            let (entered, ended, away) = (entered.clone(), ended.clone(), away.clone());
            std::thread::spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    std::thread::sleep(LOOK);
                    if !away.load(Ordering::SeqCst) {
                        look(&mut entered.lock(), &volume);
                    }
                }
            })
        };
        Watchdog {
            entered,
            ended,
            away,
            thread: Some(thread),
        }
    }

    /// Sets whether the store is unreachable: then time does not count.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Enters an operation.
    pub fn enter(&self, what: String) -> Watched {
        let mut entered = self.entered.lock();
        let id = entered.next;
        entered.next += 1;
        let waited = Duration::ZERO;
        entered.operations.insert(id, Operation { what, waited });
        Watched {
            entered: self.entered.clone(),
            id,
        }
    }

    /// Fails the test if an operation hangs.
    pub fn check(&self) {
        if let Some(verdict) = &self.entered.lock().verdict {
            panic!("{verdict}");
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn look(entered: &mut Entered, volume: &Volume) {
    for operation in entered.operations.values_mut() {
        operation.waited += LOOK;
    }
    let hangs = |operation: &&Operation| operation.waited > TIMEOUT;
    if entered.verdict.is_none()
        && let Some(hanging) = entered.operations.values().find(hangs)
    {
        let others: Vec<String> = entered
            .operations
            .values()
            .map(|operation| format!("{} ({:?})", operation.what, operation.waited))
            .collect();
        entered.verdict = Some(format!(
            "{} makes no progress though the store answers; under way: {others:#?}\n{:#?}",
            hanging.what,
            volume.status()
        ));
    }
}
