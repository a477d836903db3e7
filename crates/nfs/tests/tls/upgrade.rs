//! From the probe to the end of the handshake, and what must not happen between them.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_nfs::xdr::Writer;
use forebay_vfs::memory::MemoryFileSystem;

use crate::client::{Manner, Secure, probe, programs, records, send, told_to_start};
use crate::common::gated::Gated;
use crate::common::*;
use crate::{BAD_CREDENTIAL, Protected, TOO_WEAK, with_limits};

const NOENT: u32 = 2;

fn create(w: &mut Writer, directory: &[u8]) {
    w.opaque(directory);
    w.opaque(b"injected");
    w.u32(0);
    no_attributes(w);
}

/// Whether the call that [`create`] makes was executed.
fn was_created(server: &Running) -> bool {
    let mut client = server.client();
    let root = client.root();
    client.lookup(&root, b"injected").status() != NOENT
}

#[test]
fn a_server_without_tls_refuses_the_probe_and_goes_on_in_clear() {
    let server = Running::memory();
    let mut client = server.client();
    let probe = probe(client.xid, NFS, 3, 0);
    client.send_record(&probe);
    assert_eq!(client.receive().unwrap()[4..], BAD_CREDENTIAL);
    assert!(client.is_served());
}

#[test]
fn everything_works_inside_tls_and_in_clear_beside_it() {
    let at = Protected::new();
    let mut client = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"sunrpc"[..]));
    let root = client.root();
    assert_eq!(client.attributes(&root).kind, 2);
    let file = client.create(&root, "file");
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| ((at * 7) >> 3) as u8).collect();
    assert_eq!(client.write(&file, 0, &data).status(), 0);
    let (read, eof) = client.read(&file, 0, 1 << 20);
    assert!(read == data && eof);
    // The same in clear on another connection.
    let mut plain = at.server.client();
    assert!(plain.read(&file, 0, 1 << 20).0 == data);
    assert!(client.is_served());
    assert_eq!(at.server.metric("nfs_tls_handshakes"), 1);
    // A client whose kernel takes over after the handshake has no use for tickets.
    assert_eq!(client.stream.conn.tls13_tickets_received(), 0);
}

#[test]
fn replies_that_wait_for_a_slow_client_all_arrive_inside_tls() {
    let at = Protected::new();
    let mut client = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    let root = client.root();
    let file = client.create(&root, "file");
    let data = vec![7; 1 << 20];
    client.write(&file, 0, &data);
    let calls: Vec<u32> = (0..24)
        .map(|_| client.send(NFS, 3, 6, |w| read_arguments(w, &file, 0, 1 << 20)))
        .collect();
    // More than sockets and buffers hold; the server cannot continue until the client reads.
    at.server.wait_until_no_more_is_sent();
    for xid in calls {
        let reply = client.receive().unwrap();
        assert_eq!(reply[..4], xid.to_be_bytes());
        assert!(reply.ends_with(&data));
    }
    assert!(client.is_served());
}

/// Requests reads of `bytes` one after the other without receiving a reply, until `calls` were answered or the
/// server can send no more; returns the transaction ids of those that were answered.
fn ask_without_reading(
    server: &Running,
    client: &mut Secure,
    file: &[u8],
    bytes: u32,
    calls: usize,
) -> Vec<u32> {
    let mut answered = Vec::new();
    while answered.len() < calls {
        let before = server.metric("nfs_sent_bytes");
        let xid = client.send(NFS, 3, 6, |w| read_arguments(w, file, 0, bytes));
        let sent = || server.metric("nfs_sent_bytes") >= before + u64::from(bytes);
        let given_up = Instant::now() + Duration::from_secs(3);
        while !sent() && Instant::now() < given_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !sent() {
            break;
        }
        answered.push(xid);
    }
    answered
}

#[test]
fn what_tls_holds_back_for_a_full_socket_gets_out_without_another_call() {
    const BYTES: u32 = 16 << 10;
    let at = Protected::new();
    let manner = Manner::trusting(&at.authority);
    let mut client = manner.connect(&at.server).unwrap();
    let root = client.root();
    let file = client.create(&root, "file");
    client.write(&file, 0, &[7; BYTES as usize]);
    // TLS accepts this many replies while the client does not read; it still holds the last of them.
    let most = ask_without_reading(&at.server, &mut client, &file, BYTES, usize::MAX).len();
    for fewer in 0..4 {
        let mut client = manner.connect(&at.server).unwrap();
        let calls = ask_without_reading(&at.server, &mut client, &file, BYTES, most - fewer);
        assert!(calls.len() > 8);
        for xid in calls {
            let reply = client.receive().unwrap();
            assert_eq!(reply[..4], xid.to_be_bytes(), "{fewer} fewer");
        }
    }
}

#[test]
fn null_of_any_program_here_is_a_probe_and_nothing_else_is() {
    let at = Protected::new();
    for (program, version) in programs() {
        let mut client = at.server.client();
        let probe = probe(client.xid, program, version, 0);
        client.send_record(&probe);
        assert_eq!(client.receive().unwrap(), told_to_start(client.xid));
    }
    // On the same connection one after the other: a refused probe begins no handshake.
    let mut client = at.server.client();
    let (root, xid) = (client.root(), client.xid);
    let mut getattr = probe(xid, NFS, 3, 1);
    Writer::new(&mut getattr).opaque(&root);
    client.send_record(&getattr);
    assert_eq!(client.receive().unwrap()[4..], BAD_CREDENTIAL);
    client.send_record(&probe(xid, MOUNT, 3, 1));
    assert_eq!(client.receive().unwrap()[4..], BAD_CREDENTIAL);
    client.send_record(&probe(xid, NFS, 4, 0));
    assert_eq!(accept_stat(&client.receive().unwrap()), 2);
    client.send_record(&probe(xid, 100_021, 4, 0));
    assert_eq!(accept_stat(&client.receive().unwrap()), 1);
    let with_arguments = [probe(xid, NFS, 3, 0), vec![0; 4]].concat();
    client.send_record(&with_arguments);
    assert_eq!(accept_stat(&client.receive().unwrap()), 4);
    assert!(client.is_served());
    // After all of that the connection can still switch to TLS.
    client.send_record(&probe(xid, NFS, 3, 0));
    assert_eq!(client.receive().unwrap(), told_to_start(xid));
    let mut secure = Manner::trusting(&at.authority).handshake(client).unwrap();
    assert!(secure.is_served());
}

#[test]
fn a_probe_inside_tls_is_refused_and_the_connection_goes_on() {
    let at = Protected::new();
    let mut client = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    for (program, version) in programs() {
        let probe = probe(client.xid, program, version, 0);
        client.send_record(&probe);
        assert_eq!(client.receive().unwrap()[4..], BAD_CREDENTIAL);
    }
    assert!(client.is_served());
}

#[test]
fn a_client_that_can_mount_nothing_gets_no_handshake() {
    let at = Protected::new();
    let mut client = Client::connect_from("127.0.0.9", at.server.address);
    let probe = probe(client.xid, NFS, 3, 0);
    client.send_record(&probe);
    assert_eq!(client.receive().unwrap()[4..], TOO_WEAK);
}

#[test]
fn calls_in_clear_behind_the_probe_are_neither_executed_nor_answered() {
    let at = Protected::new();
    let mut client = at.server.client();
    let root = client.root();
    let call = client.message(NFS, 3, 8, |w| create(w, &root));
    let probe = probe(client.xid, NFS, 3, 0);
    let both = records(&[probe.clone(), call]);
    let begun = records(&[probe]).len() + 1;
    // A whole call behind the probe, a piece of one, and a single byte.
    for end in [both.len(), both.len() - 3, begun] {
        let mut client = at.server.client();
        send(&mut client, &both[..end]);
        assert!(client.is_closed(), "{end} of {} bytes", both.len());
    }
    assert!(!was_created(&at.server));
    assert_eq!(at.server.metric("nfs_tls_handshakes"), 0);
    assert!(at.server.metric("nfs_connections_broken") >= 3);
}

#[test]
fn calls_in_clear_after_the_answer_to_the_probe_are_not_executed() {
    let at = Protected::new();
    let mut client = at.server.client();
    let root = client.root();
    let call = client.message(NFS, 3, 8, |w| create(w, &root));
    let probe = probe(client.xid, NFS, 3, 0);
    client.send_record(&probe);
    assert_eq!(client.receive().unwrap(), told_to_start(client.xid));
    send(&mut client, &records(&[call]));
    // TLS rejects these bytes with an alert, and closes.
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 16, "{rest:?}");
    assert!(!was_created(&at.server));
    at.server
        .wait_for("nfs_tls_handshakes_failed", |failed| failed == 1);
}

#[test]
fn a_probe_while_calls_are_under_way_ends_the_connection() {
    let fs = Gated::new(false);
    let at = Protected::around(Running::new(fs.clone(), config()));
    let mut client = at.server.client();
    let root = client.root();
    client.send(NFS, 3, 8, |w| create(w, &root));
    at.server.wait_for("nfs_calls_waiting", |calls| calls == 1);
    let probe = probe(client.xid, NFS, 3, 0);
    client.send_record(&probe);
    // Its reply would come in TLS, although the call came in clear.
    assert!(client.is_closed());
    fs.set_open(true);
    at.server.wait_for("nfs_calls_waiting", |calls| calls == 0);
}

#[test]
fn a_handshake_that_does_not_end_is_cut_off_and_hinders_nobody() {
    let limits = with_limits(|limits| limits.handshake_timeout = Duration::from_secs(2));
    let at = Protected::with(limits);
    let manner = Manner::trusting(&at.authority);
    let mut through = manner.connect(&at.server).unwrap();
    // One that sends nothing, and one that stops inside a TLS record.
    let mut stalled = Vec::new();
    for begun in [&[][..], &[22, 3, 1, 2, 0, 1, 0]] {
        let mut client = at.server.client();
        let probe = probe(client.xid, NFS, 3, 0);
        client.send_record(&probe);
        assert_eq!(client.receive().unwrap(), told_to_start(client.xid));
        send(&mut client, begun);
        stalled.push(client);
    }
    assert!(manner.connect(&at.server).unwrap().is_served());
    assert!(at.server.client().is_served());
    for mut client in stalled {
        assert!(client.is_closed());
    }
    at.server
        .wait_for("nfs_connections_timed_out", |closed| closed == 2);
    // A connection that has completed its handshake outlives that timeout.
    assert!(through.is_served());
}

#[test]
fn a_server_that_stops_says_so_inside_tls() {
    let mut at = Protected::new();
    let mut client = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    assert!(client.is_served());
    // A connection in the middle of its handshake does not delay the shutdown.
    let mut midway = at.server.client();
    let probe = probe(midway.xid, NFS, 3, 0);
    midway.send_record(&probe);
    midway.receive().unwrap();
    at.server.begin_stop();
    at.server.stopped();
    // An end without the closure alert would be an error here, as after a truncation by an attacker.
    assert_eq!(client.stream.read(&mut [0; 16]).unwrap(), 0);
    assert!(midway.is_closed());
}

#[test]
fn a_repeated_call_gets_its_first_reply_over_a_new_connection_with_tls_and_over_none_without() {
    let at = Protected::around(Running::new(Arc::new(MemoryFileSystem::new()), config()));
    let manner = Manner::trusting(&at.authority);
    let mut client = manner.connect(&at.server).unwrap();
    let root = client.root();
    client.create(&root, "file");
    let remove = |w: &mut Writer| {
        w.opaque(&root);
        w.opaque(b"file");
    };
    let call = client.message(NFS, 3, 12, remove);
    client.send_record(&call);
    let first = client.receive().unwrap();
    assert_eq!(accepted(&first).changed().0, 0);
    drop(client);
    let mut again = manner.connect(&at.server).unwrap();
    again.send_record(&call);
    assert_eq!(again.receive().unwrap(), first);
    assert_eq!(at.server.metric("nfs_replays_answered"), 1);
    // An eavesdropper that has read the call does not get the reply in clear.
    let mut plain = at.server.client();
    plain.send_record(&call);
    assert_eq!(accepted(&plain.receive().unwrap()).changed().0, NOENT);
    assert_eq!(at.server.metric("nfs_replays_answered"), 1);
}

#[test]
fn a_client_that_speaks_tls_at_once_is_no_client() {
    let at = Protected::new();
    // Without the probe the server does not expect TLS, unlike a wrapper around the port.
    let failed = Manner::trusting(&at.authority).handshake(at.server.client());
    assert!(failed.is_err());
    assert!(at.server.client().is_served());
}
