//! Calls are seen as they are answered, with what they waited for; and a watcher that takes nothing holds up none.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use common::gated::Gated;
use common::*;
use forebay_metrics::{Samples, Source};
use forebay_nfs::{CallFilter, Seen, SeenCall, SeenCalls};
use forebay_waits::For;

fn next(calls: &mut SeenCalls) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(calls.next()).unwrap()
}

fn call(calls: &mut SeenCalls) -> SeenCall {
    match next(calls) {
        Seen::Call(call) => *call,
        Seen::Lost(count) => panic!("{count} calls are left out"),
    }
}

fn waits(call: &SeenCall) -> Vec<For> {
    let waits = call.summary.waits.iter();
    waits.map(|(what, _)| *what).collect()
}

/// The number of answered calls that have waited for this.
fn waited(server: &Running, kind: &str) -> f64 {
    let samples = Samples::of([&*server.metrics as &dyn Source]);
    let count = samples.number("nfs_call_wait_seconds", &[kind]);
    count.unwrap_or(0.0)
}

#[test]
fn a_call_is_seen_with_what_it_is_about_and_what_it_waited_for() {
    let fs = Gated::new(true);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client().with_identity(As::User(0, 7, vec![]));
    let root = client.root();
    let mut calls = server.watch.watch(CallFilter::default(), 100);
    let file = client.create(&root, "file\n");
    client.write(&file, 3, b"data");
    fs.set_open(false);
    client.send(NFS, 3, 6, |w| read_arguments(w, &file, 1, 10));
    server.wait_for("nfs_calls_waiting", |waiting| waiting == 1);
    fs.set_open(true);
    client.receive().unwrap();
    assert_eq!(client.lookup(&root, b"absent").status(), 2);

    let create = call(&mut calls);
    assert_eq!((create.procedure, create.result), ("CREATE", "ok"));
    assert_eq!(create.name.as_deref(), Some(&b"file\n"[..]));
    assert_eq!(create.client, std::net::Ipv4Addr::LOCALHOST);
    assert_eq!(create.user, Some(0));
    let write = call(&mut calls);
    assert_eq!(
        (write.procedure, write.offset, write.size),
        ("WRITE", Some(3), Some(4))
    );
    assert_eq!(waits(&write), []);
    let read = call(&mut calls);
    assert_eq!(
        (read.procedure, read.offset, read.size),
        ("READ", Some(1), Some(10))
    );
    assert_eq!(read.fileid, write.fileid);
    assert_eq!(waits(&read), [For::Bucket]);
    assert!(read.summary.waits[0].1 <= read.time);
    assert_eq!(waited(&server, "bucket"), 1.0);
    let lookup = call(&mut calls);
    assert_eq!(
        (lookup.procedure, lookup.result),
        ("LOOKUP", "NFS3ERR_NOENT")
    );
    assert_eq!(lookup.fileid, create.fileid, "both name the directory");
    assert_eq!(waits(&lookup), []);
}

#[test]
fn a_call_behind_too_many_others_waits_for_its_turn() {
    let fs = Gated::new(true);
    let mut config = config();
    config.limits.calls_in_flight = 1;
    let server = Running::new(fs.clone(), config);
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, 0, b"data");
    let filter = CallFilter {
        procedure: Some("READ"),
        ..CallFilter::default()
    };
    let mut calls = server.watch.watch(filter, 100);
    fs.set_open(false);
    for offset in 0..2 {
        client.send(NFS, 3, 6, |w| read_arguments(w, &file, offset, 1));
    }
    // It is behind both of them.
    client.getattr(&file);
    server.wait_for("nfs_calls_waiting", |waiting| waiting == 1);
    fs.set_open(true);
    for _ in 0..2 {
        client.receive().unwrap();
    }
    let (first, second) = (call(&mut calls), call(&mut calls));
    assert_eq!((first.offset, waits(&first)), (Some(0), vec![For::Bucket]));
    assert_eq!(second.offset, Some(1));
    assert_eq!(waits(&second)[0], For::Turn);
    assert!(waited(&server, "turn") >= 1.0);
}

#[test]
fn calls_that_do_not_wait_count_no_waits() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    // A watcher makes the record of each call, which stays empty.
    let _calls = server.watch.watch(CallFilter::default(), 100);
    let file = client.create(&root, "file");
    client.write(&file, 0, b"data");
    client.getattr(&file);
    for (_, kind) in For::ALL {
        assert_eq!(waited(&server, kind), 0.0, "{kind}");
    }
}

#[test]
fn a_watcher_that_takes_nothing_loses_calls_and_holds_up_none() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let mut lazy = server.watch.watch(CallFilter::default(), 2);
    let mut other = server.watch.watch(CallFilter::default(), 100);
    for _ in 0..10 {
        client.getattr(&root);
    }
    for _ in 0..10 {
        assert_eq!(call(&mut other).procedure, "GETATTR");
    }
    assert!(matches!(next(&mut lazy), Seen::Lost(8)));
    for _ in 0..2 {
        call(&mut lazy);
    }
    client.lookup(&root, b"absent");
    assert_eq!(call(&mut lazy).procedure, "LOOKUP");
}

#[test]
fn slow_calls_are_counted_from_the_limit_on() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    client.getattr(&root);
    assert_eq!(server.metric("nfs_slow_calls"), 0);
    server.watch.count_slow(Some(std::time::Duration::ZERO));
    client.getattr(&root);
    client.lookup(&root, b"absent");
    server.watch.count_slow(Some(std::time::Duration::MAX));
    client.getattr(&root);
    server.watch.count_slow(None);
    client.getattr(&root);
    assert_eq!(server.metric("nfs_slow_calls"), 2);
}
