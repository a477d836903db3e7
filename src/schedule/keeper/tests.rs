use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::*;
use crate::schedule::{HOUR, MINUTE};

/// 2026-11-27, 00:00 UTC.
const FRIDAY: i64 = 1_795_737_600;

/// Snapshots in memory, under the clock of the test.
struct Fake {
    /// The time when the test began, and the moment of that in the runtime's clock, which passes only while all wait.
    began: (AtomicI64, Instant),
    known: Mutex<Vec<Known>>,
    refuses: Mutex<Option<SnapshotError>>,
    /// A snapshot that a clone needs.
    cloned: Mutex<Option<String>>,
    deletes: AtomicBool,
}

impl Fake {
    fn at(seconds: i64) -> Fake {
        Fake {
            began: (AtomicI64::new(seconds), Instant::now()),
            known: Mutex::default(),
            refuses: Mutex::default(),
            cloned: Mutex::default(),
            deletes: AtomicBool::new(true),
        }
    }

    fn names(&self) -> Vec<String> {
        let known = self.known.lock();
        known.iter().map(|one| one.name.clone()).collect()
    }
}

impl Shelf for Fake {
    fn now(&self) -> i64 {
        let (seconds, then) = &self.began;
        seconds.load(Ordering::SeqCst) + i64::try_from(then.elapsed().as_secs()).unwrap()
    }

    fn known(&self) -> Vec<Known> {
        self.known.lock().clone()
    }

    async fn make(&self, name: &str) -> Result<(), SnapshotError> {
        if let Some(error) = self.refuses.lock().clone() {
            return Err(error);
        }
        self.known.lock().push(Known {
            name: name.to_owned(),
            made_by: MADE_BY.to_owned(),
            is_published: true,
        });
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        if !self.deletes.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.cloned.lock().as_deref() == Some(name) {
            return Err(SnapshotError::Cloned {
                name: name.to_owned(),
                clones: "try".to_owned(),
            });
        }
        self.known.lock().retain(|one| one.name != name);
        Ok(())
    }
}

fn every(seconds: i64, keep: usize) -> Vec<Schedule> {
    vec![Schedule::new(seconds, keep).unwrap()]
}

/// Lets it work for this long in the runtime's clock, which costs no time.
async fn work(keeper: &Keeper, shelf: &Fake, seconds: i64) {
    let limit = Duration::from_secs(seconds.unsigned_abs());
    let _ = tokio::time::timeout(limit, keeper.keep(shelf)).await;
}

#[tokio::test(start_paused = true)]
async fn snapshots_come_when_they_are_due_and_the_oldest_go() {
    let (keeper, shelf) = (Keeper::new(every(15 * MINUTE, 2)), Fake::at(FRIDAY + 7));
    // The third goes with the look after the one that makes the last.
    work(&keeper, &shelf, HOUR + 2 * MINUTE).await;
    let quarters = ["auto-2026-11-27T00:45:00Z", "auto-2026-11-27T01:00:00Z"];
    assert_eq!(shelf.names(), quarters);
    assert_eq!(keeper.failures.get(), 0);
    assert_eq!(keeper.next(shelf.now()), Some(FRIDAY + HOUR + 15 * MINUTE));
}

#[tokio::test(start_paused = true)]
async fn an_event_says_which_snapshot_has_expired_once_it_is_deleted() {
    let (subscriber, events) = crate::logging::into_events();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (keeper, shelf) = (Keeper::new(every(15 * MINUTE, 1)), Fake::at(FRIDAY + 7));
    let messages = || -> Vec<String> {
        let events = events.since(0).into_iter();
        events.map(|event| event.message).collect()
    };
    // As long as the deletion waits for the bucket, the snapshot has not expired.
    shelf.deletes.store(false, Ordering::SeqCst);
    work(&keeper, &shelf, 20 * MINUTE).await;
    assert_eq!(shelf.names().len(), 2);
    assert_eq!(messages(), Vec::<String>::new());
    shelf.deletes.store(true, Ordering::SeqCst);
    work(&keeper, &shelf, 2 * MINUTE).await;
    assert_eq!(shelf.names(), ["auto-2026-11-27T00:15:00Z"]);
    let expired = "snapshot \"auto-2026-11-27T00:00:00Z\" has expired (snapshot_schedule)";
    assert_eq!(messages(), [expired]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_each_minute_and_said_once() {
    let (keeper, shelf) = (Keeper::new(every(HOUR, 2)), Fake::at(FRIDAY));
    *shelf.refuses.lock() = Some(SnapshotError::TooMany);
    work(&keeper, &shelf, 10 * MINUTE + 30).await;
    assert_eq!(keeper.failures.get(), 11);
    let why = keeper.trouble.lock().clone().unwrap();
    assert!(why.contains("too many snapshots wait"), "{why}");
    *shelf.refuses.lock() = None;
    work(&keeper, &shelf, 2 * MINUTE).await;
    assert_eq!(shelf.names(), ["auto-2026-11-27T00:10:30Z"]);
    assert_eq!(*keeper.trouble.lock(), None);
    assert_eq!(keeper.failures.get(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_for_the_bucket_keeps_no_snapshot_from_being_made() {
    let (keeper, shelf) = (Keeper::new(every(MINUTE, 1)), Fake::at(FRIDAY));
    shelf.deletes.store(false, Ordering::SeqCst);
    work(&keeper, &shelf, 5 * MINUTE + 5).await;
    assert_eq!(shelf.names().len(), 6);
    shelf.deletes.store(true, Ordering::SeqCst);
    work(&keeper, &shelf, 3 * MINUTE).await;
    // The newest, and the one that goes with the next look.
    assert_eq!(shelf.names().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_clone_needs_stays_and_is_no_failure() {
    let (keeper, shelf) = (Keeper::new(every(MINUTE, 1)), Fake::at(FRIDAY));
    work(&keeper, &shelf, 30).await;
    let first = shelf.names()[0].clone();
    *shelf.cloned.lock() = Some(first.clone());
    work(&keeper, &shelf, 5 * MINUTE).await;
    // With the newest one, and perhaps the one that goes with the next look.
    assert!(shelf.names().len() <= 3 && shelf.names()[0] == first);
    assert_eq!(keeper.failures.get(), 0);
    assert_eq!(*keeper.trouble.lock(), None);
    assert_eq!(*keeper.cloned.lock(), [first.clone()].into());
    *shelf.cloned.lock() = None;
    work(&keeper, &shelf, 2 * MINUTE).await;
    assert!(!shelf.names().contains(&first));
    assert!(keeper.cloned.lock().is_empty(), "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn other_schedules_are_in_force_at_once_and_a_clock_that_is_set_soon() {
    let (keeper, shelf) = (Keeper::new(Vec::new()), Fake::at(FRIDAY + 30));
    assert_eq!(keeper.next(shelf.now()), None);
    let changes = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shelf.names().is_empty());
        keeper.set(every(HOUR, 8));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shelf.names(), ["auto-2026-11-27T00:00:00Z"]);
        shelf.began.0.fetch_add(5 * HOUR, Ordering::SeqCst);
        tokio::time::sleep(PAUSE).await;
        assert_eq!(shelf.names().len(), 2);
    };
    tokio::select! {
        () = keeper.keep(&shelf) => {}
        () = changes => {}
    }
}
