//! States that a test made, and what becomes of them.

use std::borrow::Cow;
use std::time::Duration;

use forebay_metrics::{Family, Histogram, Samples, Value, table};
use forebay_nfs::BusyFile;
use forebay_types::Inode;

use super::recent::{POINTS, Recent, STATES};
use super::state::State;
use super::*;
use crate::health::State as HealthState;

/// The values of one moment.
#[derive(Default)]
struct Moment(Samples, Vec<BusyFile>);

impl Moment {
    fn add<const N: usize>(
        mut self,
        family: &'static Family,
        labels: [&str; N],
        value: f64,
    ) -> Moment {
        let value = match family.kind {
            forebay_metrics::Kind::Gauge => Value::Gauge(value),
            _ => Value::Counter(value),
        };
        let labels = labels.map(|label| Cow::Owned(label.to_owned()));
        self.0.add(family, labels, value);
        self
    }

    fn times<const N: usize>(
        mut self,
        family: &'static Family,
        labels: [&str; N],
        millis: &[u64],
    ) -> Moment {
        let times = Histogram::of_times();
        for time in millis {
            times.observe_time(Duration::from_millis(*time));
        }
        let labels = labels.map(|label| Cow::Owned(label.to_owned()));
        let value = Value::Histogram(times.observed());
        self.0.add(family, labels, value);
        self
    }

    fn calls(self, procedure: &str, outcome: &str, millis: &[u64]) -> Moment {
        self.times(&table::NFS_CALL_DURATION, [procedure, outcome], millis)
    }

    fn file(mut self, inode: u64, place: u64, calls: u64, read_bytes: u64) -> Moment {
        self.1.push(BusyFile {
            inode: Inode(inode),
            place,
            calls,
            read_bytes,
            written_bytes: calls,
        });
        self
    }

    fn at(&self, seconds: u64) -> State {
        let at = Duration::from_secs(seconds);
        State::of(&self.0, self.1.clone(), at, 1e9 + seconds as f64)
    }
}

/// The answer after these moments, one every 2 s.
fn answer(moments: &[Moment]) -> Live {
    let mut recent = Recent::default();
    for (index, moment) in moments.iter().enumerate() {
        recent.add(moment.at(2 * index as u64));
    }
    recent.answer(0, 2e9)
}

#[test]
fn the_first_state_begins_an_interval_and_makes_no_point() {
    let live = answer(&[Moment::default()]);
    assert_eq!((live.interval_seconds, live.time), (2.0, 2e9));
    assert!(live.series.is_empty());
    let live = answer(&[Moment::default(), Moment::default()]);
    let [point] = &live.series[..] else {
        panic!("{live:?}");
    };
    assert_eq!((point.sequence, point.time), (1, 1e9 + 2.0));
    let nothing = Flow {
        bytes_per_second: Some(0.0),
        ..Flow::default()
    };
    assert_eq!((point.reads, point.writes), (nothing, nothing));
    assert_eq!(point.names, Flow::default());
    assert_eq!(point.bucket, BucketFlow::default());
    assert_eq!(point.health, HealthState::Healthy);
}

#[test]
fn a_point_has_what_happened_between_two_states() {
    let before = Moment::default()
        .calls("READ", "ok", &[90, 90, 90])
        .calls("GETATTR", "ok", &[1])
        .add(&table::NFS_READ, [], 5000.0)
        .add(&table::NFS_ERRORS, ["NFS3ERR_IO"], 1.0);
    let after = Moment::default()
        .calls("READ", "ok", &[90, 90, 90, 3, 3])
        .calls("READ", "error", &[3, 3])
        .calls("WRITE", "ok", &[1])
        .calls("COMMIT", "ok", &[40])
        .calls("GETATTR", "ok", &[1, 1])
        .calls("LOOKUP", "refused", &[1])
        .calls("NULL", "ok", &[1])
        .add(&table::NFS_READ, [], 9000.0)
        .add(&table::NFS_WRITTEN, [], 200.0)
        .add(&table::NFS_ERRORS, ["NFS3ERR_IO"], 3.0)
        .add(&table::NFS_ERRORS, ["NFS3ERR_NOENT"], 7.0)
        .add(&table::NFS_ERRORS, ["NFS3ERR_JUKEBOX"], 7.0);
    let live = answer(&[before, after]);
    let point = &live.series[0];
    let reads = Flow {
        calls_per_second: 2.0,
        bytes_per_second: Some(2000.0),
        median_seconds: Some(0.003_5),
        p99_seconds: Some(0.004_97),
    };
    assert_eq!(point.reads, reads);
    assert_eq!(point.writes.calls_per_second, 1.0);
    assert_eq!(point.writes.bytes_per_second, Some(100.0));
    assert_eq!(point.writes.median_seconds, Some(0.001));
    assert_eq!(point.names.calls_per_second, 1.0);
    assert_eq!(point.names.bytes_per_second, None);
    // Two with NFS3ERR_IO and one that was refused.
    assert_eq!(point.errors_per_second, 1.5);
    let procedures: Vec<_> = live
        .procedures
        .iter()
        .map(|row| {
            (
                &row.procedure[..],
                row.calls_per_second,
                row.errors_per_second,
            )
        })
        .collect();
    let expected = [
        ("READ", 2.0, 1.0),
        ("COMMIT", 0.5, 0.0),
        ("GETATTR", 0.5, 0.0),
        ("LOOKUP", 0.5, 0.5),
        ("NULL", 0.5, 0.0),
        ("WRITE", 0.5, 0.0),
    ];
    assert_eq!(procedures, expected);
}

#[test]
fn requests_are_joined_over_outcomes() {
    let times = &table::STORE_REQUEST_DURATION;
    let before = Moment::default().times(times, ["put", "publish", "ok"], &[3]);
    let after = Moment::default()
        .times(times, ["put", "publish", "ok"], &[3, 40, 40])
        .times(times, ["put", "publish", "throttled"], &[40, 40])
        .times(times, ["get", "fetch", "missing"], &[3])
        .add(&table::STORE_SENT, ["put", "publish"], 8000.0)
        .add(&table::STORE_RECEIVED, ["get", "fetch"], 600.0);
    let live = answer(&[before, after]);
    let bucket = BucketFlow {
        requests_per_second: 2.5,
        errors_per_second: 1.0,
        get_bytes_per_second: 300.0,
        put_bytes_per_second: 4000.0,
        p99_seconds: live.series[0].bucket.p99_seconds,
    };
    assert_eq!(live.series[0].bucket, bucket);
    let p99 = bucket.p99_seconds.unwrap();
    assert!((0.02..0.05).contains(&p99), "{p99}");
    let row = |method: &str, cause: &str| {
        let found = live
            .requests
            .iter()
            .find(|row| row.method == method && row.cause == cause);
        found.unwrap().clone()
    };
    let put = row("put", "publish");
    assert_eq!((put.requests_per_second, put.errors_per_second), (2.0, 1.0));
    assert_eq!(
        (put.bytes_per_second, put.median_seconds),
        (4000.0, Some(0.035))
    );
    let get = row("get", "fetch");
    assert_eq!((get.requests_per_second, get.errors_per_second), (0.5, 0.0));
    assert_eq!(live.requests[0], put);
}

#[test]
fn waits_are_those_of_the_last_seconds_by_kind() {
    let waits = |flushes: &[u64], turns: &[u64]| {
        Moment::default()
            .times(&table::NFS_CALL_WAIT, ["flush"], flushes)
            .times(&table::NFS_CALL_WAIT, ["turn"], turns)
    };
    let live = answer(&[waits(&[1000], &[7]), waits(&[1000, 3, 3], &[7, 400])]);
    let turn = WaitRow {
        what: "turn".to_owned(),
        calls_per_second: 0.5,
        waited_seconds_per_second: 0.2,
        median_seconds: live.waits[0].median_seconds,
        p99_seconds: live.waits[0].p99_seconds,
    };
    assert_eq!(live.waits[0], turn);
    assert!((0.2..=0.5).contains(&turn.p99_seconds.unwrap()), "{turn:?}");
    let flush = &live.waits[1];
    assert_eq!((&flush.what[..], flush.calls_per_second), ("flush", 1.0));
    assert_eq!(flush.waited_seconds_per_second, 0.003);
    assert_eq!(flush.median_seconds, Some(0.003_5));
    assert_eq!(live.waits.len(), 2);
    assert!(
        answer(&[waits(&[3], &[]), waits(&[3], &[])])
            .waits
            .is_empty()
    );
    let json = serde_json::to_value(&live).unwrap();
    assert_eq!(json["waits"][0]["for"], "turn");
}

#[test]
fn levels_and_limits_are_those_of_the_last_state() {
    let before = Moment::default().add(&table::LOG, [], 5.0);
    let after = Moment::default()
        .add(&table::HEALTH, [], 1.0)
        .add(&table::LOG, [], 10.0)
        .add(&table::LOG_LIMIT, [], 100.0)
        .add(&table::MEMORY, ["blocks"], 20.0)
        .add(&table::MEMORY, ["packs"], 3.0)
        .add(&table::MEMORY, ["admitted"], 4.0)
        .add(&table::MEMORY, ["names"], 5.0)
        .add(&table::MEMORY, ["metadata"], 1000.0)
        .add(&table::MEMORY, ["calls"], 2000.0)
        .add(&table::MEMORY_LIMIT, ["blocks"], 200.0)
        .add(&table::MEMORY_LIMIT, ["names"], 50.0)
        .add(&table::MEMORY_LIMIT, ["metadata"], 5000.0)
        .add(&table::MEMORY_LIMIT, ["calls"], 6000.0)
        .add(&table::DIRTY, [], 6.0)
        .add(&table::UNPUBLISHED, [], 7.0)
        .add(&table::UNPUBLISHED_AGE, [], 1.25);
    let live = answer(&[before, after]);
    let limits = Limits {
        log_bytes: Some(100.0),
        memory_bytes: Some(200.0),
        names_bytes: Some(50.0),
        disk_cache_bytes: None,
    };
    assert_eq!(live.limits, limits);
    let json = serde_json::to_value(live.limits).unwrap();
    assert_eq!(json.get("disk_cache_bytes"), None);
    let point = &live.series[0];
    assert_eq!((point.log_bytes, point.memory_bytes), (10.0, 27.0));
    assert_eq!((point.names_bytes, point.disk_cache_bytes), (5.0, 0.0));
    assert_eq!((point.dirty_bytes, point.unpublished_bytes), (6.0, 7.0));
    assert_eq!(point.unpublished_age_seconds, 1.25);
    assert_eq!(point.health, HealthState::Degraded);
}

fn client(moment: Moment, client: &str, calls: f64, sent: f64) -> Moment {
    moment
        .add(&table::CLIENT_CALLS, [client], calls)
        .add(&table::CLIENT_CALL_SECONDS, [client], calls / 100.0)
        .add(&table::CLIENT_RECEIVED, [client], 0.0)
        .add(&table::CLIENT_SENT, [client], sent)
}

/// Address, calls and bytes that were read, of each client.
fn clients(live: &Live) -> Vec<(&str, f64, f64)> {
    let rows = live.clients.iter();
    rows.map(|row| {
        (
            &row.address[..],
            row.calls_per_second,
            row.read_bytes_per_second,
        )
    })
    .collect()
}

#[test]
fn clients_are_sorted_and_idle_ones_left_out() {
    let before = client(Moment::default(), "10.0.0.1", 50.0, 0.0);
    let before = client(before, "10.0.0.2", 10.0, 0.0);
    let after = client(Moment::default(), "10.0.0.1", 50.0, 0.0);
    let after = client(after, "10.0.0.2", 12.0, 800.0);
    let after = client(after, "10.0.0.3", 30.0, 100.0);
    let live = answer(&[before, after]);
    let expected = [("10.0.0.3", 15.0, 50.0), ("10.0.0.2", 1.0, 400.0)];
    assert_eq!(clients(&live), expected);
    assert_eq!(live.clients[0].mean_seconds, Some(0.01));
}

#[test]
fn a_client_that_becomes_one_of_the_others_makes_them_no_busier() {
    let before = client(Moment::default(), "10.0.0.1", 50.0, 0.0);
    let before = client(before, "other", 10.0, 0.0);
    let after = client(Moment::default(), "other", 64.0, 0.0);
    assert_eq!(clients(&answer(&[before, after])), [("other", 2.0, 0.0)]);
    // It is counted apart again, from 0.
    let before = client(Moment::default(), "10.0.0.1", 50.0, 0.0);
    let after = client(Moment::default(), "10.0.0.1", 4.0, 0.0);
    assert_eq!(clients(&answer(&[before, after])), [("10.0.0.1", 2.0, 0.0)]);
}

#[test]
fn files_are_counted_by_their_place() {
    let before = Moment::default().file(7, 1, 10, 5000).file(8, 2, 10, 0);
    let after = Moment::default()
        .file(7, 1, 12, 9000)
        .file(8, 2, 10, 0)
        // It had a place before, and lost it.
        .file(9, 3, 4, 8_000_000);
    let live = answer(&[before, after]);
    let rows: Vec<_> = live
        .files
        .iter()
        .map(|row| {
            let bytes = (row.read_bytes_per_second, row.written_bytes_per_second);
            (row.fileid, row.calls_per_second, bytes)
        })
        .collect();
    let expected = [(9, 2.0, (4_000_000.0, 2.0)), (7, 1.0, (2000.0, 1.0))];
    assert_eq!(rows, expected);
    let mut many = Moment::default();
    for inode in 1..=50 {
        many = many.file(inode, inode, inode, 0);
    }
    let live = answer(&[Moment::default(), many]);
    assert_eq!((live.files.len(), live.files[0].fileid), (20, 50));
}

#[test]
fn counters_of_a_new_run_count_from_zero() {
    let before = Moment::default()
        .calls("READ", "ok", &[3; 9])
        .add(&table::NFS_READ, [], 9000.0);
    let after = Moment::default()
        .calls("READ", "ok", &[3, 3])
        .add(&table::NFS_READ, [], 400.0);
    let live = answer(&[before, after]);
    assert_eq!(live.series[0].reads.calls_per_second, 1.0);
    assert_eq!(live.series[0].reads.bytes_per_second, Some(200.0));
}

#[test]
fn two_states_of_the_same_moment_make_no_infinite_rates() {
    let mut recent = Recent::default();
    recent.add(Moment::default().at(5));
    recent.add(Moment::default().calls("READ", "ok", &[3]).at(5));
    let live = recent.answer(0, 0.0);
    assert!(live.series[0].reads.calls_per_second.is_finite());
}

#[test]
fn tables_are_averages_over_ten_seconds() {
    // A call in each interval, and then none for ten seconds.
    let reads = |calls: usize| Moment::default().calls("READ", "ok", &vec![3; calls]);
    let moments: Vec<_> = (0..=STATES).map(reads).collect();
    assert_eq!(answer(&moments).procedures[0].calls_per_second, 0.5);
    let moments: Vec<_> = (0..2 * STATES)
        .map(|index| reads(index.min(STATES)))
        .collect();
    assert!(answer(&moments).procedures.is_empty());
}

#[test]
fn the_ring_keeps_ten_minutes_and_after_leaves_out_what_was_seen() {
    let mut recent = Recent::default();
    for second in 0..=POINTS as u64 + 10 {
        recent.add(Moment::default().at(2 * second));
    }
    let sequences = |after| {
        let live = recent.answer(after, 0.0);
        let series = live.series.iter().map(|point| point.sequence);
        series.collect::<Vec<_>>()
    };
    assert_eq!(sequences(0), (11..=310).collect::<Vec<_>>());
    assert_eq!(sequences(307), [308, 309, 310]);
    assert_eq!(sequences(310), Vec::<u64>::new());
    // The number is of an earlier run: the client starts over.
    assert_eq!(sequences(311).len(), POINTS);
}

#[test]
fn the_answer_survives_json() {
    let before = client(Moment::default(), "10.0.0.1", 50.0, 0.0);
    let after = client(Moment::default(), "10.0.0.1", 51.0, 0.0).calls("READ", "ok", &[3]);
    let live = answer(&[before, after]);
    let json = serde_json::to_string(&live).unwrap();
    assert_eq!(serde_json::from_str::<Live>(&json).unwrap(), live);
    assert!(json.contains(r#""health":"healthy""#), "{json}");
}
