//! No client stops another: beside a client that sends more than the server accepts, reads nothing, or only connects,
//! other clients are served. A file system that waits for the test determines the order; no test waits for time to
//! pass.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::gated::Gated;
use common::*;
use forebay_metrics::{Samples, Source};
use forebay_nfs::record::mark;
use forebay_nfs::{Limits, Squash};
use forebay_vfs::ClientId;
use forebay_vfs::memory::MemoryFileSystem;

const MIB: usize = 1 << 20;
const JUKEBOX: u32 = 10008;

/// Of a budget of 8 MiB one client may have 6 MiB: room for `WRITES_OF_ONE` WRITEs of 1 MiB.
const SHARED_BYTES: usize = 8 * MIB;
const WRITES_OF_ONE: u64 = 5;

const HOG: &str = "127.0.0.66";
const AT_ONCE: Duration = Duration::from_millis(1);

/// A server for all clients of this machine.
fn server(fs: &Arc<Gated>, change: impl FnOnce(&mut Limits)) -> Running {
    let mut all = config();
    all.exports = vec![export(1, "/", "127.0.0.0/8", Squash::None)];
    all.limits.shared_bytes = SHARED_BYTES;
    change(&mut all.limits);
    Running::new(fs.clone(), all)
}

/// A client with a file of 1 MiB.
fn with_file(server: &Running) -> (Client, Vec<u8>) {
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, 0, &vec![7; MIB]);
    (client, file)
}

/// Encodes a call as a record, with the given transaction id.
fn record(
    client: &Client,
    xid: u32,
    procedure: u32,
    arguments: impl FnOnce(&mut forebay_nfs::xdr::Writer),
) -> Vec<u8> {
    let mut message = client.message(NFS, 3, procedure, arguments);
    message[..4].copy_from_slice(&xid.to_be_bytes());
    [&mark(message.len())[..], &message].concat()
}

/// Sends more than the server may accept, from a separate thread, while the client lives.
fn send_all(client: &Client, records: Vec<Vec<u8>>) {
    let mut stream = client.stream.try_clone().unwrap();
    std::thread::spawn(move || {
        for record in records {
            if stream.write_all(&record).is_err() {
                return;
            }
        }
    });
}

fn writes(client: &Client, file: &[u8], count: u32, bytes: usize) -> Vec<Vec<u8>> {
    let data = vec![9; bytes];
    let write = |xid: u32| {
        let offset = u64::from(xid) * bytes as u64;
        record(client, xid, 7, |w| {
            write_arguments(w, file, offset, &data, 0)
        })
    };
    (1..=count).map(write).collect()
}

/// The transaction id and the status of the next reply.
fn reply(client: &mut Client) -> (u32, u32) {
    let reply = client.receive().unwrap();
    let xid = u32::from_be_bytes(reply[..4].try_into().unwrap());
    (xid, accepted(&reply).status())
}

/// Receives `count` successful replies; returns their transaction ids in order.
fn xids(client: &mut Client, count: usize) -> Vec<u32> {
    let mut xids: Vec<u32> = (0..count)
        .map(|_| {
            let (xid, status) = reply(client);
            assert_eq!(status, 0);
            xid
        })
        .collect();
    xids.sort_unstable();
    xids
}

#[test]
fn one_client_cannot_take_the_share_of_another_however_many_connections_it_has() {
    let fs = Gated::new(true);
    let server = server(&fs, |_| {});
    let (mut other, file) = with_file(&server);
    fs.set_writes_open(false);
    let hogs: Vec<Client> = (0..4)
        .map(|_| Client::connect_from(HOG, server.address))
        .collect();
    for hog in &hogs {
        send_all(hog, writes(hog, &file, 3, MIB));
    }
    // All wait: the first ones for the file system, the others for their share.
    server.wait_for("nfs_calls_waiting", |calls| calls == WRITES_OF_ONE);
    server.wait_for("nfs_budget_waits", |waits| waits >= 3);
    // The memory of their calls is seen, and where it ends.
    let memory = |name| server.metric_of(name, &["calls"]);
    assert!(memory("memory_bytes") >= WRITES_OF_ONE * MIB as u64);
    assert!(memory("memory_limit_bytes") >= SHARED_BYTES as u64);
    assert!(memory("memory_bytes") < memory("memory_limit_bytes"));
    // Another client reads and writes the maximum of one call at once.
    assert_eq!(other.read(&file, 0, MIB as u32).0.len(), MIB);
    let xid = other.send(NFS, 3, 7, |w| {
        write_arguments(w, &file, 0, &vec![3; MIB], 0)
    });
    server.wait_for("nfs_calls_waiting", |calls| calls == WRITES_OF_ONE + 1);
    fs.set_writes_open(true);
    assert_eq!(reply(&mut other), (xid, 0));
    server.wait_for("nfs_calls_waiting", |calls| calls == 0);
    for mut hog in hogs {
        for _ in 0..3 {
            assert_eq!(reply(&mut hog).1, 0);
        }
    }
    server.wait_for_one("memory_bytes", &["calls"], |bytes| bytes == 0);
}

#[test]
fn reads_of_what_is_in_memory_do_not_wait_for_those_of_the_bucket_though_one_client_asks_for_both()
{
    let fs = Gated::new(true);
    // More calls than may be in flight, and more than there is room for replies.
    for (bytes, limit) in [(MIB, 128), (10, 4)] {
        let server = server(&fs, |limits| limits.calls_in_flight = limit);
        let (mut client, file) = with_file(&server);
        client.write(&file, MIB as u64, &vec![8; MIB]);
        fs.set_in_memory(MIB as u64);
        fs.set_open(false);
        let far = |xid| {
            record(&client, xid, 6, |w| {
                read_arguments(w, &file, MIB as u64, bytes as u32);
            })
        };
        let far: Vec<u8> = (1..=20).flat_map(far).collect();
        client.stream.write_all(&far).unwrap();
        let most = u64::min(WRITES_OF_ONE, limit as u64);
        server.wait_for("nfs_calls_waiting", |calls| calls == most);
        let mut second = server.client();
        // Many at once; the share has room for one.
        let near = |xid| record(&client, xid, 6, |w| read_arguments(w, &file, 0, MIB as u32));
        for at in [&client, &second] {
            send_all(at, (101..=110).map(near).collect());
        }
        std::thread::scope(|scope| {
            for at in [&mut client, &mut second] {
                scope.spawn(|| assert_eq!(xids(at, 10), Vec::from_iter(101..=110)));
            }
        });
        assert_eq!(server.metric("nfs_calls_waiting"), most);
        fs.set_open(true);
        for _ in 0..20 {
            assert_eq!(reply(&mut client).1, 0);
        }
    }
}

#[test]
fn readers_that_take_nothing_leave_others_their_share() {
    let fs = Gated::new(true);
    fs.set_in_memory(MIB as u64);
    let server = server(&fs, |limits| limits.reply_timeout = FOR_EVER);
    let (mut other, file) = with_file(&server);
    let hogs: Vec<Client> = (0..6)
        .map(|_| Client::connect_from(HOG, server.address))
        .collect();
    for hog in &hogs {
        let read = |xid| record(hog, xid, 6, |w| read_arguments(w, &file, 0, MIB as u32));
        send_all(hog, (1..100).map(read).collect());
    }
    server.wait_for("nfs_budget_waits", |waits| waits > 0);
    for _ in 0..20 {
        assert_eq!(other.read(&file, 0, MIB as u32).0.len(), MIB);
        assert_eq!(other.write(&file, 0, &vec![7; MIB]).status(), 0);
    }
}

#[test]
fn calls_behind_writes_that_wait_are_answered_and_writes_without_room_are_put_off() {
    for bytes in [MIB, 16 << 10] {
        let fs = Gated::new(true);
        let server = server(&fs, |limits| limits.max_blocking = AT_ONCE);
        let (mut client, file) = with_file(&server);
        let root = client.root();
        fs.set_writes_open(false);
        // More calls than there is room for, of any size.
        let count = 800_u32.min((1600 * MIB / bytes / 20) as u32);
        let mut calls = writes(&client, &file, count, bytes);
        calls.push(record(&client, 100_001, 1, |w| w.opaque(&file)));
        calls.push(record(&client, 100_002, 3, |w| {
            w.opaque(&root);
            w.opaque(b"file");
        }));
        calls.push(record(&client, 100_003, 6, |w| {
            read_arguments(w, &file, 0, 100)
        }));
        calls.push(record(&client, 100_004, 6, |w| {
            read_arguments(w, &file, 0, MIB as u32)
        }));
        send_all(&client, calls);
        let mut put_off = 0;
        let mut passed = Vec::new();
        while passed.len() < 4 {
            match reply(&mut client) {
                (xid, JUKEBOX) if xid <= count => put_off += 1,
                (xid, status) => {
                    assert_eq!(status, 0);
                    passed.push(xid);
                }
            }
        }
        passed.sort_unstable();
        assert_eq!(passed, [100_001, 100_002, 100_003, 100_004]);
        assert!(put_off > 0);
        // Calls that had room are completed when possible. Calls that were put off left nothing behind.
        fs.set_writes_open(true);
        let begun = count - put_off;
        for _ in 0..begun {
            let (_, status) = reply(&mut client);
            assert!([0, JUKEBOX].contains(&status), "{status}");
            put_off += u32::from(status == JUKEBOX);
        }
        assert!(put_off < count);
        assert_eq!(server.metric("nfs_calls_put_off"), u64::from(put_off));
        assert_eq!(client.write(&file, 0, &vec![1; bytes]).status(), 0);
    }
}

#[test]
fn calls_that_wait_for_the_bucket_hold_up_none_of_another_kind() {
    let fs = Gated::new(true);
    let server = server(&fs, |limits| limits.calls_in_flight = 4);
    let (mut client, file) = with_file(&server);
    fs.set_open(false);
    for xid in 1..=20 {
        let read = record(&client, xid, 6, |w| read_arguments(w, &file, 0, 10));
        client.stream.write_all(&read).unwrap();
    }
    server.wait_for("nfs_calls_waiting", |calls| calls == 4);
    // They are answered before calls that arrived earlier.
    assert_eq!(client.getattr(&file).status(), 0);
    assert_eq!(client.write(&file, 0, b"data").status(), 0);
    fs.set_open(true);
    assert_eq!(xids(&mut client, 20), Vec::from_iter(1..=20));
}

#[test]
fn a_call_that_must_not_be_done_twice_is_never_put_off() {
    let fs = Gated::new(true);
    let server = server(&fs, |limits| {
        limits.calls_in_flight = 2;
        limits.max_blocking = AT_ONCE;
    });
    let mut client = server.client();
    let root = client.root();
    fs.set_open(false);
    let create = |xid: u32| {
        record(&client, xid, 8, |w| {
            w.opaque(&root);
            w.opaque(format!("name-{xid}").as_bytes());
            w.u32(1);
            no_attributes(w);
        })
    };
    // More than can be in flight and parked.
    send_all(&client, (1..=300).map(create).collect());
    server.wait_for("nfs_calls_waiting", |calls| calls == 2);
    // Another connection of the same client is served.
    assert!(server.client().is_served());
    fs.set_open(true);
    for _ in 0..300 {
        assert_eq!(reply(&mut client).1, 0);
    }
    assert_eq!(server.metric("nfs_calls_put_off"), 0);
}

#[test]
fn a_client_that_takes_its_replies_in_drips_is_closed() {
    let fs = Gated::new(true);
    let server = server(&fs, |limits| {
        limits.reply_timeout = Duration::from_millis(300);
        limits.reply_rate = 1 << 40;
    });
    let (mut other, file) = with_file(&server);
    let mut client = Client::connect_from(HOG, server.address);
    let read = |xid| record(&client, xid, 6, |w| read_arguments(w, &file, 0, MIB as u32));
    send_all(&client, (1..2000).map(read).collect());
    // It keeps reading, byte by byte, which is always less than the server has to send.
    while std::io::Read::read(&mut client.stream, &mut [0]).is_ok_and(|bytes| bytes > 0) {}
    server.wait_for("nfs_connections_timed_out", |closed| closed == 1);
    assert!(other.is_served());
}

/// A server with exports for this address only.
fn for_one(change: impl FnOnce(&mut Limits)) -> Running {
    let mut one = config();
    change(&mut one.limits);
    Running::new(Arc::new(MemoryFileSystem::new()), one)
}

#[test]
fn strangers_get_a_few_connections_and_take_none_of_those_of_clients() {
    let server = for_one(|limits| limits.connections = 20);
    let mut strangers: Vec<Client> = (0..60)
        .map(|_| Client::connect_from("127.0.0.9", server.address))
        .collect();
    server.wait_for("nfs_connections_refused", |refused| refused == 44);
    // A client with another address gets a refusal.
    let mut second = Client::connect_from("127.0.0.10", server.address);
    let denied = second.call(NFS, 3, 1, |w| w.opaque(&[0; 16]));
    assert_eq!(denied[8..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]);
    let mut clients: Vec<Client> = (0..18).map(|_| server.client()).collect();
    assert!(clients.iter_mut().all(Client::is_served));
    // A stranger has no reason to send a long record.
    second.stream.write_all(&mark(2000)).unwrap();
    assert!(second.is_closed());
    let open = strangers.iter_mut().filter(|stranger| {
        stranger.stream.set_nonblocking(true).unwrap();
        let read = std::io::Read::read(&mut &stranger.stream, &mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert_eq!(open.count(), 16);
}

#[test]
fn a_stranger_is_gone_after_a_while_whatever_it_does() {
    let server = for_one(|limits| limits.stranger_time = Duration::from_millis(100));
    let mut other = server.client();
    let mut stranger = Client::connect_from("127.0.0.9", server.address);
    let mut idle = Client::connect_from("127.0.0.9", server.address);
    let null = stranger.message(NFS, 3, 0, |_| {});
    let null = [&mark(null.len())[..], &null].concat();
    while stranger.stream.write_all(&null).is_ok() && stranger.receive().is_ok() {}
    assert!(idle.is_closed());
    server.wait_for("nfs_connections_timed_out", |closed| closed == 2);
    assert!(other.is_served());
}

#[test]
fn a_connection_without_a_call_is_closed_and_one_that_has_made_one_stays() {
    let server = for_one(|limits| limits.first_call_timeout = Duration::from_millis(300));
    let mut silent = server.client();
    let mut used = loop {
        // It has to be in time, even on a busy machine.
        let mut client = server.client();
        if client.stream.write_all(&null(&client)).is_ok() && client.receive().is_ok() {
            break client;
        }
    };
    assert!(silent.is_closed());
    let mut later = server.client();
    assert!(later.is_closed());
    assert!(used.is_served());
}

fn null(client: &Client) -> Vec<u8> {
    record(client, 5, 0, |_| {})
}

#[test]
fn one_client_leaves_connections_for_others() {
    let fs = Gated::new(true);
    let server = server(&fs, |limits| limits.connections = 64);
    let hogs: Vec<Client> = (0..64)
        .map(|_| Client::connect_from(HOG, server.address))
        .collect();
    server.wait_for("nfs_connections_refused", |refused| refused == 8);
    let mut others: Vec<Client> = (1..=8)
        .map(|i| Client::connect_from(&format!("127.0.0.{i}"), server.address))
        .collect();
    assert!(others.iter_mut().all(Client::is_served));
    drop(hogs);
}

#[test]
fn half_sent_records_count_in_the_share_of_their_client() {
    let fs = Gated::new(true);
    let server = server(&fs, |limits| limits.resting_bytes = 2 * MIB);
    let (mut other, file) = with_file(&server);
    let data = vec![5; 40_000];
    let whole = record(&other, 7, 7, |w| write_arguments(w, &file, 0, &data, 0));
    let (half, rest) = whole.split_at(30_000);
    let mut slow = server.client();
    slow.stream.write_all(half).unwrap();
    // Small records, and large ones of which enough has arrived to request a buffer.
    let mut hogs: Vec<Client> = (0..200)
        .map(|_| Client::connect_from(HOG, server.address))
        .collect();
    for (i, hog) in hogs.iter_mut().enumerate() {
        let mut bytes = mark([60_000, MIB][i % 2]).to_vec();
        bytes.resize(40_000, 0);
        // Some are closed before they have sent all.
        drop(hog.stream.write_all(&bytes));
    }
    server.wait_for("nfs_connections_over_share", |closed| closed > 100);
    // Another client's share is available.
    assert!(other.is_served());
    assert_eq!(other.read(&file, 0, MIB as u32).0.len(), MIB);
    slow.stream.write_all(rest).unwrap();
    assert_eq!(reply(&mut slow), (7, 0));
    let ended = server.metric("nfs_connections_over_share");
    assert!(server.metric("nfs_connections") >= 202 - ended);
    drop(hogs);
    // All of the share is returned.
    server.wait_for("nfs_connections", |open| open == 2);
    let mut late = Client::connect_from(HOG, server.address);
    late.stream.write_all(half).unwrap();
    late.stream.write_all(rest).unwrap();
    assert_eq!(reply(&mut late), (7, 0));
}

#[test]
fn a_write_says_which_client_it_is_from_whoever_its_user_is() {
    let fs = Gated::new(true);
    let (_, file) = with_file(&server(&fs, |_| {}));
    for squash in [Squash::None, Squash::Root, Squash::All] {
        let mut all = config();
        all.exports = vec![export(1, "/", "127.0.0.0/8", squash)];
        let server = Running::new(fs.clone(), all);
        let from = |source: &str, caller: As| {
            let mut client = Client::connect_from(source, server.address).with_identity(caller);
            // The call reaches the file system whether or not the user may write.
            client.write(&file, 0, b"x");
            fs.writer.lock().unwrap().client
        };
        let one = from("127.0.0.1", ROOT);
        assert_ne!(one, ClientId::default());
        for caller in [ROOT, As::User(1000, 100, vec![]), As::Nobody] {
            assert_eq!(from("127.0.0.1", caller.clone()), one, "{squash:?}");
            assert_ne!(from(HOG, caller), one, "{squash:?}");
        }
    }
}

/// A source of metrics that stops in the middle of a scrape, until the test lets it go.
struct Stops {
    reached: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Source for Stops {
    fn collect(&self, _samples: &mut Samples) {
        self.reached.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
    }
}

#[test]
fn a_scrape_that_is_held_up_holds_up_no_call_and_a_call_that_waits_holds_up_no_scrape() {
    let fs = Gated::new(true);
    let server = server(&fs, |_| {});
    let (mut client, file) = with_file(&server);
    let (reached, arrived) = channel();
    let (let_go, go) = channel();
    let stops = Stops {
        reached,
        go: Mutex::new(go),
    };
    std::thread::scope(|scope| {
        // Everything has been read once when it stops, and is read again when it goes on.
        let (metrics, stops) = (&*server.metrics as &dyn Source, &stops);
        let scrape = scope.spawn(move || Samples::of([metrics, stops as &dyn Source, metrics]));
        arrived.recv().unwrap();
        // Calls of each kind, of a connection that it has seen and of a new one, are answered meanwhile.
        let mut fresh = Client::connect_from(HOG, server.address);
        for at in [&mut client, &mut fresh] {
            at.write(&file, 0, &vec![5; MIB]);
            assert_eq!(at.read(&file, 0, MIB as u32).0, vec![5; MIB]);
            assert_eq!(at.call(NFS, 3, 1, |w| w.opaque(&file)).len() % 4, 0);
        }
        let answered = server.metric_of("nfs_call_duration_seconds", &["WRITE", "ok"]);
        let_go.send(()).unwrap();
        let samples = scrape.join().unwrap();
        let counts = samples.iter().filter_map(|sample| match &sample.value {
            forebay_metrics::Value::Histogram(observed) if sample.labels == ["WRITE", "ok"] => {
                Some(observed.count())
            }
            _ => None,
        });
        assert_eq!(counts.collect::<Vec<_>>(), [answered - 2, answered]);
    });

    // Scrapes go on beside calls that wait in the file system.
    fs.set_writes_open(false);
    send_all(&client, writes(&client, &file, 2, MIB));
    server.wait_for("nfs_calls_waiting", |calls| calls == 2);
    fs.set_writes_open(true);
    assert_eq!(xids(&mut client, 2), [1, 2]);
}
