//! RPC as served: programs, versions, credentials, concurrency, shutdown.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::gated::Gated;
use common::*;
use forebay_nfs::record::LAST_FRAGMENT;

#[test]
fn other_versions_programs_and_procedures_are_told_apart() {
    let server = Running::memory();
    let mut client = server.client();
    for version in [2, 4] {
        let reply = client.call(NFS, version, 0, |_| {});
        assert_eq!(reply[20..], [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3]);
    }
    assert_eq!(accept_stat(&client.call(MOUNT, 1, 0, |_| {})), 2);
    // NFS_ACL and the portmapper.
    assert_eq!(accept_stat(&client.call(100_227, 3, 0, |_| {})), 1);
    assert_eq!(accept_stat(&client.call(100_000, 2, 0, |_| {})), 1);
    assert_eq!(accept_stat(&client.call(NFS, 3, 22, |_| {})), 3);
    assert_eq!(accept_stat(&client.call(MOUNT, 3, 6, |_| {})), 3);
    assert!(client.is_served());
}

#[test]
fn arguments_that_cannot_be_decoded_are_garbage() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    const GARBAGE: u32 = 4;
    for procedure in 1..22 {
        let cut_short = client.call(NFS, 3, procedure, |w| w.u32(32));
        assert_eq!(accept_stat(&cut_short), GARBAGE, "procedure {procedure}");
    }
    let left_over = client.call(NFS, 3, 1, |w| {
        w.opaque(&root);
        w.u32(0);
    });
    assert_eq!(accept_stat(&left_over), GARBAGE);
    // A handle longer than the maximum.
    let handle = client.call(NFS, 3, 1, |w| w.opaque(&[0; 65]));
    assert_eq!(accept_stat(&handle), GARBAGE);
    // A WRITE whose count and data disagree.
    let write = client.call(NFS, 3, 7, |w| {
        w.opaque(&root);
        w.u64(0);
        w.u32(5);
        w.u32(0);
        w.opaque(b"four");
    });
    assert_eq!(accept_stat(&write), GARBAGE);
    // An unknown value of `stable_how`.
    let write = client.call(NFS, 3, 7, |w| write_arguments(w, &root, 0, b"x", 3));
    assert_eq!(accept_stat(&write), GARBAGE);
    assert!(client.is_served());
}

#[test]
fn sixteen_groups_are_taken_and_seventeen_denied() {
    let server = Running::memory();
    let user = |groups: u32| As::User(5, 5, (0..groups).collect());
    assert!(server.client().with_identity(user(16)).is_served());
    let mut client = server.client().with_identity(user(17));
    let reply = client.call(NFS, 3, 0, |_| {});
    assert_eq!(reply[4..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn a_record_in_many_fragments_is_one_call() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let message = client.message(NFS, 3, 1, |w| w.opaque(&root));
    let pieces: Vec<&[u8]> = message.chunks(7).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let last = if index + 1 == pieces.len() {
            LAST_FRAGMENT
        } else {
            0
        };
        let mark = (piece.len() as u32 | last).to_be_bytes();
        client.stream.write_all(&mark).unwrap();
        client.stream.write_all(piece).unwrap();
    }
    assert_eq!(accepted(&client.receive().unwrap()).status(), 0);
}

#[test]
fn a_slow_call_does_not_hold_up_its_neighbours() {
    let fs = Gated::new(true);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, 0, b"data");
    fs.set_open(false);
    let slow = client.send(NFS, 3, 6, |w| read_arguments(w, &file, 0, 4));
    assert_eq!(client.attributes(&file).size, 4);
    fs.set_open(true);
    let reply = client.receive().unwrap();
    assert_eq!(reply[..4], slow.to_be_bytes());
    assert!(reply.ends_with(b"data"));
}

#[test]
fn what_waiting_writes_hold_is_not_written_over_by_what_comes_after_them() {
    const WAITING: u8 = 40;
    const BYTES: u64 = 4096;
    let fs = Gated::new(true);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let other = client.create(&root, "other");
    // As many in one write as one read returns, and some that are cut by its end.
    let send = |client: &mut Client, file: &[u8], first: u8, count: u8| {
        let mut stream = Vec::new();
        for number in first..first + count {
            let data = [number; BYTES as usize];
            let at = u64::from(number) * BYTES;
            let message = client.message(NFS, 3, 7, |w| write_arguments(w, file, at, &data, 0));
            stream.extend(forebay_nfs::record::mark(message.len()));
            stream.extend(message);
        }
        std::io::Write::write_all(&mut client.stream, &stream).unwrap();
    };
    fs.set_writes_open(false);
    send(&mut client, &file, 0, WAITING);
    server.wait_for("nfs_calls_waiting", |calls| calls == WAITING.into());
    // The server continues to read, and other clients send, into whatever memory is free.
    for _ in 0..100 {
        client.attributes(&other);
    }
    let mut another = server.client();
    send(&mut another, &other, 100, WAITING);
    server.wait_for("nfs_calls_waiting", |calls| calls == 2 * u64::from(WAITING));
    fs.set_writes_open(true);
    for client in [&mut client, &mut another] {
        for _ in 0..WAITING {
            assert_eq!(accepted(&client.receive().unwrap()).status(), 0);
        }
    }
    for (file, first) in [(&file, 0), (&other, 100)] {
        for number in first..first + WAITING {
            let (data, _) = client.read(file, u64::from(number) * BYTES, BYTES as u32);
            assert!(data.iter().all(|byte| *byte == number), "{number}");
            assert_eq!(data.len() as u64, BYTES);
        }
    }
}

#[test]
fn calls_beyond_the_limit_wait_their_turn_and_none_is_lost() {
    let fs = Gated::new(true);
    let mut few = config();
    few.limits.calls_in_flight = 4;
    let server = Running::new(fs.clone(), few);
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, 0, b"data");
    fs.set_open(false);
    let mut sent: Vec<u32> = (0..50)
        .map(|_| client.send(NFS, 3, 6, |w| read_arguments(w, &file, 0, 4)))
        .collect();
    // A call of another lane, sent after them, is answered after the server has begun or parked all of them.
    assert_eq!(client.attributes(&file).size, 4);
    assert_eq!(server.metric("nfs_calls_waiting"), 4);
    assert!(server.client().is_served());
    fs.set_open(true);
    let mut answered: Vec<u32> = (0..50)
        .map(|_| {
            let reply = client.receive().unwrap();
            assert!(reply.ends_with(b"data"));
            u32::from_be_bytes(reply[..4].try_into().unwrap())
        })
        .collect();
    sent.sort();
    answered.sort();
    assert_eq!(sent, answered);
}

#[test]
fn many_large_reads_at_once_stay_within_the_reply_bytes_and_all_arrive() {
    let fs = Gated::new(true);
    let mut tight = config();
    tight.limits.reply_bytes = 3 << 20;
    tight.limits.shared_bytes = 6 << 20;
    let server = Running::new(fs.clone(), tight);
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, 0, &vec![7; 1 << 20]);
    fs.set_open(false);
    for _ in 0..30 {
        client.send(NFS, 3, 6, |w| read_arguments(w, &file, 0, 1 << 20));
    }
    // A call of another lane, sent after them, is answered after the server has begun or parked all of them.
    assert_eq!(client.attributes(&file).size, 1 << 20);
    assert_eq!(server.metric("nfs_calls_waiting"), 2);
    fs.set_open(true);
    for _ in 0..30 {
        assert!(client.receive().unwrap().len() > 1 << 20);
    }
}

#[test]
fn two_connections_share_a_budget_that_only_one_could_use() {
    let mut tight = config();
    tight.limits.shared_bytes = tight.limits.record_bytes * 4;
    let server = Running::new(
        std::sync::Arc::new(forebay_vfs::memory::MemoryFileSystem::new()),
        tight,
    );
    let root = server.client().root();
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let mut client = server.client();
            let root = root.clone();
            std::thread::spawn(move || {
                let file = client.create(&root, &format!("file{number}"));
                let data = vec![number; 1 << 20];
                for turn in 0..20 {
                    assert_eq!(client.write(&file, turn << 20, &data).status(), 0);
                    assert_eq!(client.read(&file, turn << 20, 1 << 20).0, data);
                }
            })
        })
        .collect();
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
}

#[test]
fn calls_sent_before_the_client_closed_its_side_are_answered() {
    let fs = Gated::new(true);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    fs.set_open(false);
    client.send(NFS, 3, 6, |w| read_arguments(w, &file, 0, 4));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    server.wait_for("nfs_calls_waiting", |calls| calls == 1);
    fs.set_open(true);
    assert_eq!(accepted(&client.receive().unwrap()).status(), 0);
    assert!(client.is_closed());
}

#[test]
fn shutdown_answers_what_was_read_and_closes() {
    let fs = Gated::new(true);
    let mut server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let mut idle = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    fs.set_open(false);
    client.send(NFS, 3, 6, |w| read_arguments(w, &file, 0, 4));
    server.wait_for("nfs_calls_waiting", |calls| calls == 1);
    server.begin_stop();
    assert!(idle.is_closed());
    fs.set_open(true);
    assert_eq!(accepted(&client.receive().unwrap()).status(), 0);
    assert!(client.is_closed());
    server.stopped();
    assert!(std::net::TcpStream::connect(server.address).is_err());
    assert_eq!(server.metric("nfs_connections"), 0);
}

#[test]
fn shutdown_does_not_wait_longer_than_its_grace() {
    let fs = Gated::new(false);
    let mut short = config();
    short.limits.grace = Duration::from_millis(100);
    let mut server = Running::new(fs.clone(), short);
    let mut client = server.client();
    let root = client.root();
    client.send(NFS, 3, 8, |w| {
        w.opaque(&root);
        w.opaque(b"file");
        w.u32(0);
        no_attributes(w);
    });
    server.wait_for("nfs_calls_waiting", |calls| calls == 1);
    server.begin_stop();
    server.stopped();
    // No call survives: the file system has one owner again.
    assert!(client.is_closed());
    let begin = Instant::now();
    while std::sync::Arc::strong_count(&fs) > 1 {
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::yield_now();
    }
}
