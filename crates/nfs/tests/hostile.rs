//! Bad input and bad clients: in each case other clients continue to be served, and memory stays bounded.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use forebay_vfs::memory::MemoryFileSystem;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Raises the limit of open files: both ends of each connection are in this process.
fn allow_open_files(count: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        limit.current = Some(limit.maximum.map_or(count, |maximum| maximum.min(count)));
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}

fn with_limits(change: impl FnOnce(&mut forebay_nfs::Limits)) -> Running {
    let mut config = config();
    change(&mut config.limits);
    Running::new(Arc::new(MemoryFileSystem::new()), config)
}

#[test]
fn random_bytes() {
    let server = Running::memory();
    let mut other = server.client();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let mut bytes = vec![0; 300];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        let mut stream = TcpStream::connect(server.address).unwrap();
        // As they are, and inside a record; the server may have closed the connection by the second write.
        stream.write_all(&bytes).unwrap();
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(&forebay_nfs::record::mark(300)).unwrap();
        stream.write_all(&bytes).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut answer = Vec::new();
        // Random bytes are not an RPC call: the server closes the connection, with or without a reset.
        assert!(stream.read_to_end(&mut answer).is_err() || answer.is_empty());
    }
    assert!(other.is_served());
}

#[test]
fn a_record_of_two_gibibytes_is_refused_before_memory_is_taken() {
    let server = Running::memory();
    let mut other = server.client();
    let before = resident();
    let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for client in &mut clients {
        client.stream.write_all(&[0xff; 4]).unwrap();
        assert!(client.is_closed());
    }
    assert!(resident() < before + (32 << 20));
    assert_eq!(server.metric("nfs_connections_broken"), 50);
    assert!(other.is_served());
}

#[test]
fn endless_fragments_end_at_the_limit() {
    let server = Running::memory();
    let mut other = server.client();
    let before = resident();
    let mut client = server.client();
    let mut fragment = (65536_u32).to_be_bytes().to_vec();
    fragment.resize(4 + 65536, 0);
    let refused = (0..100).any(|_| client.stream.write_all(&fragment).is_err());
    assert!(refused || client.is_closed());
    assert!(resident() < before + (32 << 20));
    assert!(other.is_served());
}

#[test]
fn a_credential_of_four_gibibytes_is_denied() {
    let server = Running::memory();
    let mut client = server.client();
    for length in [401_u32, 1 << 20, u32::MAX] {
        let mut message = client.message(NFS, 3, 0, |_| {});
        message[28..32].copy_from_slice(&length.to_be_bytes());
        client.send_record(&message);
        let reply = client.receive().unwrap();
        assert_eq!(reply[4..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    }
    assert!(client.is_served());
}

#[test]
fn a_half_sent_record_is_given_up_and_holds_nobody() {
    let server = with_limits(|limits| limits.record_timeout = Duration::from_millis(300));
    let mut other = server.client();
    let mut halves: Vec<Client> = (0..100).map(|_| server.client()).collect();
    for (index, half) in halves.iter_mut().enumerate() {
        let mut bytes = forebay_nfs::record::mark(1 << 20).to_vec();
        bytes.resize([2, 4, 100, 40_000][index % 4], 0);
        half.stream.write_all(&bytes).unwrap();
    }
    for _ in 0..20 {
        assert!(other.is_served());
    }
    assert!(halves.iter_mut().all(Client::is_closed));
    assert_eq!(server.metric("nfs_connections_timed_out"), 100);
    assert!(other.is_served());
}

#[test]
fn bytes_that_trickle_do_not_keep_a_record_alive() {
    let server = with_limits(|limits| limits.record_timeout = Duration::from_millis(300));
    let mut client = server.client();
    client
        .stream
        .write_all(&forebay_nfs::record::mark(1 << 20))
        .unwrap();
    // One system call per byte: the time is over before all are sent.
    while client.stream.write_all(&[0]).is_ok() {}
    server.wait_for("nfs_connections_timed_out", |closed| closed == 1);
    assert!(server.client().is_served());
}

#[test]
fn thousands_of_connections_reset_at_once() {
    let server = Running::memory();
    let mut other = server.client();
    for _ in 0..3000 {
        let stream = TcpStream::connect(server.address).unwrap();
        // Closing with unread or unsent data and no linger sends a reset.
        socket2::SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
    assert!(other.is_served());
    assert!(server.client().is_served());
    drop(other);
    server.wait_for("nfs_connections", |open| open <= 1);
}

#[test]
fn many_idle_connections_cost_little() {
    const IDLE: usize = 3000;
    allow_open_files(2 * IDLE as u64 + 1000);
    let server = Running::memory();
    let mut first = server.client();
    let idle: Vec<Client> = (0..IDLE).map(|_| server.client()).collect();
    server.wait_for("nfs_connections", |open| open == IDLE as u64 + 1);
    let before = resident();
    let mut used: Vec<Client> = idle;
    assert!(used.iter_mut().all(Client::is_served));
    // Earlier use leaves them as small as before.
    assert!(resident() < before + IDLE as u64 * (32 << 10));
    assert!(first.is_served());
    assert!(server.client().is_served());
}

#[test]
fn connections_beyond_the_cap_are_closed_and_the_others_stay() {
    let server = with_limits(|limits| limits.connections = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    server.wait_for("nfs_connections", |open| open == 3);
    let mut refused = server.client();
    assert!(refused.is_closed());
    assert!(clients.iter_mut().all(Client::is_served));
    clients.pop();
    server.wait_for("nfs_connections", |open| open == 2);
    assert!(server.client().is_served());
    assert_eq!(server.metric("nfs_connections_refused"), 1);
}

#[test]
fn an_idle_connection_is_closed_when_that_is_wanted() {
    let fs = common::gated::Gated::new(true);
    let mut strict = config();
    strict.limits.idle_timeout = Some(Duration::from_millis(200));
    let server = Running::new(fs.clone(), strict);
    // The handle comes from a server with the same key, which closes nothing.
    let root = Running::new(fs.clone(), config()).client().root();
    fs.set_open(false);
    // Its call has to arrive in time, even on a busy machine.
    let mut busy = loop {
        let closed = server.metric("nfs_connections_timed_out");
        let mut busy = server.client();
        let create = busy.message(NFS, 3, 8, |w| {
            w.opaque(&root);
            w.opaque(b"file");
            w.u32(0);
            no_attributes(w);
        });
        let create = [&forebay_nfs::record::mark(create.len())[..], &create].concat();
        drop(busy.stream.write_all(&create));
        server.wait_for("nfs_connections_timed_out", |now| {
            now > closed || server.metric("nfs_calls_waiting") == 1
        });
        if server.metric("nfs_calls_waiting") == 1 {
            break busy;
        }
    };
    assert!(server.client().is_closed());
    // A connection with a call in flight is not idle, however long the call takes.
    fs.set_open(true);
    accepted(&busy.receive().unwrap()).made();
}

/// Sends reads of 1 MiB and never reads a reply, until the server takes no more.
fn never_reads(server: &Running, file: &[u8]) -> Client {
    let mut client = server.client();
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let message = client.message(NFS, 3, 6, |w| read_arguments(w, file, 0, 1 << 20));
    let mut record = forebay_nfs::record::mark(message.len()).to_vec();
    record.extend(message);
    let many = record.repeat(100);
    for _ in 0..1000 {
        if client.stream.write_all(&many).is_err() {
            break;
        }
    }
    client
}

#[test]
fn a_client_that_never_reads_its_replies_is_held_and_closed() {
    let server = with_limits(|limits| {
        limits.reply_timeout = Duration::from_millis(1500);
        limits.reply_bytes = 4 << 20;
    });
    let mut other = server.client();
    let root = other.root();
    let file = other.create(&root, "file");
    other.write(&file, 0, &vec![1; 1 << 20]);
    let before = resident();
    let mut stuck: Vec<Client> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| never_reads(&server, &file)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(other.is_served());
    assert_eq!(other.read(&file, 0, 1 << 20).0.len(), 1 << 20);
    assert!(resident() < before + (64 << 20));
    server.wait_for("nfs_connections_timed_out", |closed| closed == 4);
    // Data that the kernel had accepted can still be read; then the stream ends.
    for client in &mut stuck {
        client
            .stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut rest = Vec::new();
        _ = client.stream.read_to_end(&mut rest);
        assert!(rest.len() < 64 << 20);
    }
    assert!(other.is_served());
}

#[test]
fn stuck_clients_that_hold_the_whole_budget_are_closed_early() {
    let server = with_limits(|limits| {
        limits.shared_bytes = 8 << 20;
        limits.reply_bytes = 8 << 20;
        limits.reply_timeout = Duration::from_secs(20);
    });
    let mut other = server.client();
    let root = other.root();
    let file = other.create(&root, "file");
    other.write(&file, 0, &vec![1; 1 << 20]);
    let stuck: Vec<Client> = (0..3).map(|_| never_reads(&server, &file)).collect();
    server.wait_for("nfs_budget_waits", |waits| waits > 0);
    // Small calls do not need the budget: no connection had to be closed for them.
    assert!(other.is_served());
    assert_eq!(server.metric("nfs_connections_timed_out"), 0);
    // Large calls get budget after a tenth of the timeout; the full timeout is longer than any test.
    assert_eq!(other.read(&file, 0, 1 << 20).0.len(), 1 << 20);
    assert!(server.metric("nfs_connections_timed_out") > 0);
    drop(stuck);
}

#[test]
fn a_read_of_two_gibibytes_is_a_short_read() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, (3 << 20) - 1, b"x");
    for count in [1 << 31, u32::MAX] {
        let (data, eof) = client.read(&file, 0, count);
        assert_eq!((data.len(), eof), (1 << 20, false));
    }
    assert!(client.is_served());
}

#[test]
fn a_large_record_that_is_no_write_is_garbage() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let reply = client.call(NFS, 3, 6, |w| {
        read_arguments(w, &root, 0, 1);
        w.fixed(&vec![0xff; 1 << 20]);
    });
    assert_eq!(accept_stat(&reply), 4);
    assert!(client.is_served());
}

/// Breaks a connection like a client that vanishes.
fn vanish(client: Client) {
    socket2::SockRef::from(&client.stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

#[test]
fn clients_that_vanish_while_their_writes_wait_give_everything_back() {
    const EACH: usize = 3;
    let fs = common::gated::Gated::new(true);
    let mut few = config();
    few.limits.connections = 4;
    few.limits.shared_bytes = 8 << 20;
    few.limits.replay_age = Duration::from_millis(100);
    let server = Running::new(fs.clone(), few);
    let mut other = server.client();
    let root = other.root();
    let file = other.create(&root, "file");
    fs.set_writes_open(false);
    let data = vec![1; 1 << 20];
    let before = resident();
    // Often enough to take every connection and all of the budget many times over.
    for _ in 0..20 {
        let mut client = server.client();
        for _ in 0..EACH {
            client.send(NFS, 3, 7, |w| write_arguments(w, &file, 0, &data, 0));
        }
        // There is room for all of them: earlier ones have returned theirs.
        server.wait_for("nfs_calls_waiting", |calls| calls == EACH as u64);
        vanish(client);
        server.wait_for("nfs_connections", |open| open == 1);
        assert!(other.is_served());
    }
    // The file system has let none of them continue.
    assert_eq!(server.metric("nfs_calls_waiting"), 0);
    assert!(resident() < before + (48 << 20));
    fs.set_writes_open(true);
    // Every connection and all of the budget is available to others.
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                for _ in 0..10 {
                    client.write(&file, 0, &data);
                }
            });
        }
    });
    assert_eq!(other.read(&file, 0, 1 << 20).0, data);
    assert_eq!(server.metric("nfs_connections"), 4);
}

#[test]
fn changes_whose_clients_vanished_are_done_once_and_leave_no_call_behind() {
    let fs = common::gated::Gated::new(false);
    let server = Running::new(fs.clone(), config());
    let mut other = server.client();
    let root = other.root();
    let create = |client: &Client, name: &str| {
        let mut call = client.message(NFS, 3, 8, |w| {
            w.opaque(&root);
            w.opaque(name.as_bytes());
            w.u32(1);
            no_attributes(w);
        });
        // A different transaction id for each call.
        call[..4].copy_from_slice(&name.as_bytes()[..4]);
        call
    };
    for i in 0..40 {
        let mut client = server.client();
        let call = create(&client, &format!("{i:04}"));
        client.send_record(&call);
        server.wait_for("nfs_calls_waiting", |calls| calls == i + 1);
        vanish(client);
    }
    fs.set_open(true);
    server.wait_for("nfs_calls_waiting", |calls| calls == 0);
    server.wait_for("nfs_connections", |open| open == 1);
    let changes = fs.changes.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(changes, 40);
    // A client that reconnects and repeats the call gets the first answer.
    let mut back = server.client();
    for i in 0..40 {
        let call = create(&back, &format!("{i:04}"));
        back.send_record(&call);
        accepted(&back.receive().unwrap()).made();
    }
    assert_eq!(server.metric("nfs_replays_answered"), 40);
    let again = fs.changes.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(again, 40);
}
