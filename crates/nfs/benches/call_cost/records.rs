//! Calls as a Linux client sends them, and the gateway that serves them.

use std::net::SocketAddr;
use std::sync::Arc;

use forebay_nfs::handle::{Handle, Handles, Named, Tree};
use forebay_nfs::record::mark;
use forebay_nfs::rpc::Credential;
use forebay_nfs::xdr::Writer;
use forebay_nfs::{Export, Limits, Rule, ServerConfig, SourcePort};
use forebay_types::{Inode, VolumeId};
use forebay_vfs::memory::MemoryFileSystem;
use forebay_vfs::{Credentials, FileSystem, SetAttributes};

const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;

pub(crate) const GETATTR: u32 = 1;
pub(crate) const SETATTR: u32 = 2;

/// The number of the only export.
const EXPORT: u32 = 1;

/// Rules for other clients; the rule for ours comes last.
const OTHER_RULES: u8 = 15;

/// Longest encoded call, with its mark.
pub(crate) const CALL_BYTES: usize = 256;

pub(crate) fn config() -> ServerConfig {
    let others = (0..OTHER_RULES).map(|net| Rule {
        clients: vec![format!("10.{net}.0.0/16").parse().expect("a range")],
        ..Rule::default()
    });
    // A common configuration: root is squashed, all other users keep their identity.
    let ours = Rule {
        clients: vec!["127.0.0.0/8".parse().expect("a range")],
        source_port: SourcePort::Any,
        ..Rule::default()
    };
    ServerConfig {
        handle_key: [7; 32],
        volume: VolumeId([7; 16]),
        exports: vec![Export {
            id: EXPORT,
            path: b"/".to_vec(),
            rules: others.chain([ours]).collect(),
        }],
        limits: Limits::default(),
    }
}

/// A file system whose root belongs to the caller, so that it has all rights to it.
pub(crate) async fn file_system() -> Arc<MemoryFileSystem> {
    let fs = Arc::new(MemoryFileSystem::new());
    let set = SetAttributes {
        uid: Some(caller().uid),
        ..SetAttributes::default()
    };
    fs.setattr(&Credentials::default(), Inode::ROOT, &set, None)
        .await
        .expect("root may do that");
    fs
}

/// The caller: an ordinary user in five groups.
pub(crate) fn caller() -> Credentials {
    Credentials {
        uid: 1000,
        gid: 1000,
        groups: [4, 24, 27, 100, 1000].as_slice().into(),
        ..Credentials::default()
    }
}

pub(crate) fn credential() -> Credential {
    Credential::Sys(caller())
}

pub(crate) fn named() -> Named {
    Named {
        export: EXPORT,
        tree: Tree::Live,
        inode: Inode::ROOT,
    }
}

pub(crate) fn handle() -> Handle {
    let config = config();
    Handles::new(config.handle_key, config.volume).encode(named())
}

/// A client's address, in a different network for each.
pub(crate) fn peer(number: usize) -> SocketAddr {
    let [.., high, low] = number.to_be_bytes();
    SocketAddr::from(([127, 1, high, low], 700))
}

/// A call on the root directory, with its record mark: GETATTR, or a SETATTR that sets nothing.
pub(crate) fn call(procedure: u32) -> Vec<u8> {
    let caller = caller();
    let mut credential = Vec::new();
    let mut writer = Writer::new(&mut credential);
    writer.u32(0);
    writer.opaque(b"workstation");
    writer.u32(caller.uid);
    writer.u32(caller.gid);
    writer.u32(caller.groups.len() as u32);
    caller.groups.iter().for_each(|group| writer.u32(*group));

    let mut wire = vec![0; 4];
    let mut writer = Writer::new(&mut wire);
    for value in [0, 0, 2, PROGRAM, VERSION, procedure, 1] {
        writer.u32(value);
    }
    writer.opaque(&credential);
    writer.u32(0);
    writer.u32(0);
    writer.opaque(&handle());
    if procedure == SETATTR {
        // Nothing is set, and there is no guard.
        (0..7).for_each(|_| writer.u32(0));
    }
    let length = wire.len() - 4;
    wire[..4].copy_from_slice(&mark(length));
    assert!(wire.len() <= CALL_BYTES);
    wire
}

/// Gives the call another transaction id, which makes it a new call.
pub(crate) fn set_xid(call: &mut [u8], xid: u32) {
    call[4..8].copy_from_slice(&xid.to_be_bytes());
}
