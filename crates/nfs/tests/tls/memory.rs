//! Memory held by TLS counts in the share of its client.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

use forebay_nfs::Squash;
use forebay_vfs::memory::MemoryFileSystem;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

use crate::Protected;
use crate::client::{Manner, probe, records, told_to_start};
use crate::common::{Client, FOR_EVER, NFS, Running, config, export, read_arguments};

const MIB: usize = 1 << 20;
const HOG: &str = "127.0.0.66";

/// Bytes that all connections of one client may hold.
const SHARE: usize = 3 * MIB / 2;

fn tight() -> Protected {
    let mut all = config();
    all.exports = vec![export(1, "/", "127.0.0.0/8", Squash::None)];
    all.limits.resting_bytes = 2 * MIB;
    all.limits.reply_timeout = FOR_EVER;
    all.limits.handshake_timeout = FOR_EVER;
    Protected::around(Running::new(Arc::new(MemoryFileSystem::new()), all))
}

fn hog(at: &Protected) -> Client {
    Client::connect_from(HOG, at.server.address)
}

/// Connects and has the server wait for a handshake.
fn started(at: &Protected) -> io::Result<Client> {
    let mut client = hog(at);
    client.send_record(&probe(client.xid, NFS, 3, 0));
    assert_eq!(client.receive()?, told_to_start(client.xid));
    Ok(client)
}

/// The same, and completes the handshake.
fn secure(at: &Protected) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let manner = Manner::trusting(&at.authority);
    Ok(manner.handshake(started(at)?)?.stream)
}

#[test]
fn handshakes_that_do_not_end_are_counted() {
    let at = tight();
    // A ClientHello of 60,000 bytes, of which 48 KiB arrive, in records of 16 KiB.
    let mut greeting = vec![1, 0, 0xea, 0x60];
    greeting.resize(48 << 10, 0);
    let parts = greeting.chunks(16 << 10).flat_map(|part| {
        let length = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1][..], &length, part].concat()
    });
    let parts: Vec<u8> = parts.collect();
    let mut hogs = Vec::new();
    for _ in 0..100 {
        let mut client = started(&at).unwrap();
        // The server may have closed the connection already.
        drop(client.stream.write_all(&parts));
        hogs.push(client);
    }
    // Each holds at least 48 KiB.
    ends_well(&at, hogs, 100 - SHARE / (48 << 10));
}

#[test]
fn parts_of_records_are_counted() {
    let at = tight();
    let mut hogs = Vec::new();
    for _ in 0..200 {
        // Some are refused before this point.
        let Ok(mut client) = secure(&at) else {
            continue;
        };
        let mut sealed = Vec::new();
        client.conn.writer().write_all(&[0; 16 << 10]).unwrap();
        client.conn.write_tls(&mut sealed).unwrap();
        sealed.truncate(15 << 10);
        drop(client.sock.write_all(&sealed));
        hogs.push(client);
    }
    ends_well(&at, hogs, 200 - SHARE / (15 << 10));
}

#[test]
fn what_is_sealed_and_not_taken_is_counted() {
    let at = tight();
    let mut first = at.server.client();
    let root = first.root();
    let file = first.create(&root, "file");
    first.write(&file, 0, &vec![7; MIB]);
    let call = first.message(NFS, 3, 6, |w| read_arguments(w, &file, 0, MIB as u32));
    let call = records(&[call]);
    drop(first);
    let mut hogs = Vec::new();
    for _ in 0..40 {
        let Ok(mut client) = secure(&at) else {
            continue;
        };
        // The receive buffer holds less than one reply.
        SockRef::from(&client.sock)
            .set_recv_buffer_size(4096)
            .unwrap();
        drop(client.write_all(&call).and_then(|()| client.flush()));
        hogs.push(client);
    }
    ends_well(&at, hogs, 40 - SHARE / (64 << 10));
}

/// At least `closed` of the hogs are closed, other clients are served meanwhile, and all memory is returned.
fn ends_well<T>(at: &Protected, hogs: Vec<T>, closed: usize) {
    let right = |over| over >= closed as u64;
    at.server.wait_for("nfs_connections_over_share", right);
    let manner = Manner::trusting(&at.authority);
    assert!(manner.connect(&at.server).unwrap().is_served());
    assert!(at.server.client().is_served());
    drop(hogs);
    at.server.wait_for("nfs_connections", |open| open == 0);
    for _ in 0..20 {
        secure(at).unwrap();
    }
}
