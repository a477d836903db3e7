//! Repeated calls: done once, answered every time.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::gated::Gated;
use common::*;
use forebay_nfs::xdr::Writer;

fn remove(w: &mut Writer, directory: &[u8]) {
    w.opaque(directory);
    w.opaque(b"file");
}

#[test]
fn a_remove_repeated_over_a_new_connection_gets_its_first_reply_and_runs_once() {
    let fs = Gated::new(true);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    client.create(&root, "file");
    let before = fs.changes.load(Ordering::Relaxed);
    let call = client.message(NFS, 3, 12, |w| remove(w, &root));
    client.send_record(&call);
    let first = client.receive().unwrap();
    assert_eq!(accepted(&first).changed().0, 0);
    drop(client);
    let mut again = server.client();
    for _ in 0..3 {
        again.send_record(&call);
        assert_eq!(again.receive().unwrap(), first);
    }
    assert_eq!(fs.changes.load(Ordering::Relaxed), before + 1);
    assert_eq!(server.metric("nfs_replays_answered"), 3);
    // A new call with the same arguments is not a repetition.
    let fresh = again.nfs(12, |w| remove(w, &root));
    assert_eq!(fresh.changed().0, 2);
}

#[test]
fn a_create_whose_connection_broke_is_finished_and_answered_over_the_next() {
    let fs = Gated::new(false);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let create = |w: &mut Writer| {
        w.opaque(&root);
        w.opaque(b"file");
        w.u32(1);
        no_attributes(w);
    };
    let call = client.message(NFS, 3, 8, create);
    client.send_record(&call);
    server.wait_for("nfs_calls_waiting", |calls| calls == 1);
    // The connection breaks: the server closes it, because these bytes are not a call. The call continues.
    client.send_record(b"not a call of any program");
    assert!(client.is_closed());
    assert_eq!(server.metric("nfs_calls_waiting"), 1);
    // The call is repeated while the first is in flight: it joins that one.
    let mut again = server.client();
    again.send_record(&call);
    server.wait_for("nfs_replays_joined", |joined| joined == 1);
    fs.set_open(true);
    // A guarded create that ran twice would report that the file exists.
    accepted(&again.receive().unwrap()).made();
    assert_eq!(fs.changes.load(Ordering::Relaxed), 1);
    // And once more afterwards.
    let mut third = server.client();
    third.send_record(&call);
    accepted(&third.receive().unwrap()).made();
    assert_eq!(fs.changes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_repetition_on_the_same_connection_does_not_run_beside_the_first() {
    let fs = Gated::new(false);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let call = client.message(NFS, 3, 8, |w| {
        w.opaque(&root);
        w.opaque(b"file");
        w.u32(1);
        no_attributes(w);
    });
    client.send_record(&call);
    client.send_record(&call);
    server.wait_for("nfs_replays_joined", |joined| joined == 1);
    fs.set_open(true);
    let replies = [client.receive().unwrap(), client.receive().unwrap()];
    assert_eq!(replies[0], replies[1]);
    accepted(&replies[0]).made();
    assert_eq!(fs.changes.load(Ordering::Relaxed), 1);
}

#[test]
fn an_old_call_is_done_again() {
    let fs = Gated::new(true);
    let mut short = config();
    short.limits.replay_age = Duration::ZERO;
    let server = Running::new(fs.clone(), short);
    let mut client = server.client();
    let root = client.root();
    client.create(&root, "file");
    let call = client.message(NFS, 3, 12, |w| remove(w, &root));
    client.send_record(&call);
    assert_eq!(accepted(&client.receive().unwrap()).changed().0, 0);
    client.send_record(&call);
    assert_eq!(accepted(&client.receive().unwrap()).changed().0, 2);
}
