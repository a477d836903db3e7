//! Protection that exports require of connections.

use std::sync::Arc;

use forebay_nfs::Transports;
use forebay_vfs::memory::MemoryFileSystem;

use crate::authority::Authority;
use crate::client::Manner;
use crate::common::*;
use crate::{Protected, TOO_WEAK, only};

const TLS: Transports = Transports {
    none: false,
    tls: true,
    mtls: true,
};
const MTLS: Transports = Transports {
    none: false,
    tls: false,
    mtls: true,
};

#[test]
fn an_export_that_wants_tls_gives_nothing_in_clear_but_the_handle_to_begin_with() {
    let at = Protected::with(only(TLS));
    let mut plain = at.server.client();
    // Linux mounts in clear, regardless of the protection that it uses afterwards.
    let root = plain.mount("/").unwrap();
    for procedure in 1..22 {
        let reply = plain.call(NFS, 3, procedure, |w| arguments(w, procedure, &root, &root));
        assert_eq!(reply[4..], TOO_WEAK, "procedure {procedure}");
    }
    let mut client = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    assert_eq!(client.mount("/"), Ok(root.clone()));
    // None of the above was executed.
    assert_eq!(client.lookup(&root, b"name").status(), 2);
    let file = client.create(&root, "name");
    assert_eq!(client.write(&file, 0, b"secret").status(), 0);
    assert_eq!(client.read(&file, 0, 10).0, b"secret");
    let reply = plain.call(NFS, 3, 6, |w| read_arguments(w, &file, 0, 10));
    assert_eq!(reply[4..], TOO_WEAK);
    // NULL is open to everyone: clients use it to check whether a server is here.
    plain.nfs(0, |_| {});
}

#[test]
fn an_export_that_wants_certificates_refuses_clients_without_and_takes_accepted_ones() {
    let at = Protected::with(only(MTLS));
    let root = at.server.client().root();
    let mut plain = at.server.client();
    let reply = plain.call(NFS, 3, 1, |w| w.opaque(&root));
    assert_eq!(reply[4..], TOO_WEAK);
    let manner = Manner::trusting(&at.authority);
    let mut anonymous = manner.connect(&at.server).unwrap();
    let reply = anonymous.call(NFS, 3, 1, |w| w.opaque(&root));
    assert_eq!(reply[4..], TOO_WEAK);
    let identity = at.client_identity();
    let mut known = manner.with(&identity).connect(&at.server).unwrap();
    assert_eq!(known.attributes(&root).kind, 2);
}

#[test]
fn a_foreign_certificate_is_no_certificate_and_ends_the_handshake() {
    let at = Protected::with(only(MTLS));
    let foreign = Authority::new("clients").issue("client.example");
    // A certificate of the server's own authority is foreign as well: that is not the authority for clients.
    let of_servers = at.authority.issue("client.example");
    for (count, identity) in [foreign, of_servers].iter().enumerate() {
        let connected = Manner::trusting(&at.authority)
            .with(identity)
            .connect(&at.server);
        // In TLS 1.3 a client sees the refusal in its first read.
        if let Ok(mut client) = connected {
            client.xid += 1;
            let null = client.message(NFS, 3, 0, |_| {});
            let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                client.send_record(&null);
            }));
            assert!(sent.is_err() || client.receive().is_err());
        }
        let failed = count as u64 + 1;
        at.server
            .wait_for("nfs_tls_handshakes_failed", |seen| seen == failed);
    }
    assert_eq!(at.server.metric("nfs_tls_handshakes"), 0);
}

#[test]
fn rules_that_change_count_for_connections_with_tls_as_for_others() {
    let fs = Arc::new(MemoryFileSystem::new());
    let (server, control) = Running::controlled(only(TLS), |_| fs.clone());
    let at = Protected::around(server);
    let mut client = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    let root = client.root();
    control.replace(only(MTLS).exports, |_| fs.clone()).unwrap();
    let reply = client.call(NFS, 3, 1, |w| w.opaque(&root));
    assert_eq!(reply[4..], TOO_WEAK);
    control.replace(only(TLS).exports, |_| fs.clone()).unwrap();
    assert_eq!(client.attributes(&root).kind, 2);
}

#[test]
fn a_certificate_counts_for_exports_that_want_tls_alone() {
    let at = Protected::with(only(Transports { mtls: false, ..TLS }));
    let identity = at.client_identity();
    let manner = Manner::trusting(&at.authority).with(&identity);
    assert!(manner.connect(&at.server).unwrap().is_served());
}
