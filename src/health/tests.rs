//! One test for each state and for each problem.

use std::time::Duration;

use forebay_fs::{CompressionStatus, DiskCacheStatus, Stage};
use forebay_types::{CheckpointId, Epoch, Lsn, VolumeId};

use super::*;

/// A volume without problems.
pub(crate) fn well() -> Status {
    Status {
        volume: VolumeId([7; 16]),
        epoch: Epoch(3),
        checkpoint: CheckpointId(9),
        stage: Stage::Idle,
        uploads: 0,
        published: Lsn(4096),
        end: Lsn(8192),
        durable: Lsn(8192),
        oldest_unpublished: Some(Duration::from_secs(2)),
        checkpoint_interval: Duration::from_secs(5),
        publication_rate: Some(1 << 20),
        dirty_bytes: 4096,
        spilled_bytes: 0,
        waiting_checkpoints: 0,
        admitted_bytes: 0,
        memory_bytes: 1 << 20,
        leased_bytes: 0,
        memory_limit: 1 << 30,
        names_bytes: 1 << 20,
        names_limit: 64 << 20,
        log: Some((32 << 20, 4 << 30)),
        compression: CompressionStatus {
            level: None,
            raw_bytes: 0,
            stored_bytes: 0,
        },
        metadata_cache: None,
        disk_cache: Some(DiskCacheStatus {
            used_bytes: 0,
            limit_bytes: 1 << 30,
            hits: 0,
            misses: 0,
            damaged: 0,
            failed: false,
        }),
        damaged_frames: 0,
        dedup: None,
        used_bytes: 1 << 30,
        snapshots: 0,
        unpublished_snapshots: 0,
        held_bytes: 0,
        trash_entries: 0,
        trash_bytes: 0,
        trash_expired: 0,
        trash_displaced: 0,
        collector: Default::default(),
        inodes: 12,
        nodes: 12,
        store_trouble: None,
        gone: None,
        log_trouble: None,
        stopped: None,
    }
}

/// State and names of the problems of a healthy volume after `change`.
fn judged(change: impl FnOnce(&mut Status)) -> (State, Vec<String>, String) {
    let mut status = well();
    change(&mut status);
    let health = Health::of(&status, Vec::new());
    let line = health.to_string();
    let names = health.problems.into_iter().map(|problem| problem.name);
    (health.state, names.collect(), line)
}

#[test]
fn a_volume_with_which_nothing_is_wrong_is_healthy() {
    let (state, names, line) = judged(|_| {});
    assert_eq!((state, names.len()), (State::Healthy, 0));
    assert_eq!((line.as_str(), state.code()), ("healthy", 0));
}

#[test]
fn a_fenced_gateway_is_failing() {
    let (state, names, line) = judged(|status| status.stopped = Some(Stopped::Fenced));
    assert_eq!(state.code(), 2);
    assert_eq!(names, ["fenced"]);
    assert!(line.starts_with("failing: another gateway"), "{line}");
}

#[test]
fn a_volume_whose_objects_are_gone_is_failing() {
    let what = "meta/compacted/1.sst is gone from the bucket";
    let (state, names, line) = judged(|status| {
        status.gone = Some((what.to_owned(), Duration::ZERO));
        status.store_trouble = status.gone.clone();
    });
    assert_eq!(
        (state, names),
        (State::Failing, vec!["objects_gone".to_owned()])
    );
    assert!(
        line.contains(what) && line.contains("publishing stops"),
        "{line}"
    );
}

#[test]
fn a_volume_that_has_stopped_is_failing() {
    let stopped = Stopped::Failed("the manifest is damaged".to_owned());
    let (state, names, line) = judged(|status| status.stopped = Some(stopped));
    assert_eq!(
        (state, &names[..]),
        (State::Failing, &["stopped".to_owned()][..])
    );
    assert!(line.contains("the manifest is damaged"), "{line}");
}

#[test]
fn a_log_that_refuses_writes_is_failing_and_one_without_a_disk_is_degraded() {
    let failed = |since| {
        let trouble = Some(("No space left on device".to_owned(), since));
        judged(|status| status.log_trouble = trouble)
    };
    let (state, names, _) = failed(Some(Duration::from_secs(3)));
    assert_eq!(
        (state, &names[..]),
        (State::Failing, &["log_failed".to_owned()][..])
    );
    let (state, names, line) = failed(None);
    assert_eq!(
        (state, &names[..]),
        (State::Degraded, &["log_disk_full".to_owned()][..])
    );
    assert!(line.contains("No space left on device"), "{line}");
}

#[test]
fn a_bucket_that_is_a_minute_and_two_intervals_behind_is_a_problem() {
    let behind = |age, interval| {
        judged(|status| {
            status.oldest_unpublished = Some(Duration::from_secs(age));
            status.checkpoint_interval = Duration::from_secs(interval);
        })
    };
    let (state, names, line) = behind(71, 5);
    assert_eq!(
        (state, &names[..]),
        (State::Degraded, &["bucket_behind".to_owned()][..])
    );
    assert!(line.contains("1m 11s behind"), "{line}");
    assert!(line.contains("checkpoint_interval of 5s"), "{line}");
    assert_eq!(behind(70, 5).0, State::Healthy);
    assert_eq!(behind(3600, 3600).0, State::Healthy);
    // Who publishes more often is behind sooner, but not at once.
    assert_eq!(behind(14, 1).0, State::Healthy);
    assert_eq!(behind(15, 1).0, State::Degraded);
    assert_eq!(behind(5, 0).0, State::Healthy);
    assert_eq!(behind(6, 0).0, State::Degraded);
    let (_, _, line) = judged(|status| {
        status.oldest_unpublished = Some(Duration::from_secs(71));
        status.end = Lsn(status.published.0 + (600 << 20));
        status.publication_rate = Some(1 << 20);
    });
    let left =
        "it takes 1.0 MiB of the log a second, and needs 10m for the 600.0 MiB that it lacks";
    assert!(line.contains(left), "{line}");
    let (_, _, line) = judged(|status| {
        status.oldest_unpublished = Some(Duration::from_secs(71));
        status.publication_rate = Some(0);
    });
    assert!(line.contains("it has taken nothing lately"), "{line}");
    // The cause is enough.
    let (_, names, _) = judged(|status| {
        status.oldest_unpublished = Some(Duration::from_secs(1000));
        status.store_trouble = Some(("503".to_owned(), Duration::from_secs(1000)));
    });
    assert_eq!(names, ["bucket_away"]);
}

#[test]
fn a_gateway_whose_bucket_is_away_is_degraded() {
    let away = Some(("connection refused".to_owned(), Duration::from_secs(61)));
    let (state, names, line) = judged(|status| status.store_trouble = away);
    assert_eq!(
        (state.code(), &names[..]),
        (1, &["bucket_away".to_owned()][..])
    );
    assert_eq!(
        line,
        "degraded: the bucket does not answer: connection refused"
    );
}

#[test]
fn a_log_is_nearly_full_from_nine_tenths_on() {
    let (state, names, _) = judged(|status| status.log = Some((90, 100)));
    assert_eq!(
        (state, &names[..]),
        (State::Degraded, &["log_nearly_full".to_owned()][..])
    );
    for log in [Some((89, 100)), None] {
        assert_eq!(
            judged(|status| status.log = log).0,
            State::Healthy,
            "{log:?}"
        );
    }
}

#[test]
fn lost_bytes_and_a_failed_disk_cache_degrade() {
    let (state, names, _) = judged(|status| {
        status.damaged_frames = 2;
        status.disk_cache.as_mut().unwrap().failed = true;
    });
    assert_eq!(state, State::Degraded);
    assert_eq!(names, ["bytes_lost", "disk_cache_failed"]);
}

#[test]
fn the_worst_problem_decides_and_comes_first() {
    let mut status = well();
    status.store_trouble = Some(("503".to_owned(), Duration::ZERO));
    status.stopped = Some(Stopped::Fenced);
    let waits = vec![Problem::new(
        State::Degraded,
        "log_full",
        "4 calls wait for room in the log".to_owned(),
    )];
    let health = Health::of(&status, waits);
    let names: Vec<_> = health.problems.iter().map(|one| &one.name[..]).collect();
    assert_eq!(names, ["fenced", "bucket_away", "log_full"]);
    assert_eq!(health.state, State::Failing);
}
