//! Calls as a Linux client sends them, and the configuration of the gateway for them.

use std::net::SocketAddr;

use forebay_nfs::handle::{Handles, Named, Tree};
use forebay_nfs::xdr::Writer;
use forebay_nfs::{Export, Limits, Rule, ServerConfig, SourcePort};
use forebay_types::{Inode, VolumeId};
use forebay_vfs::Credentials;

const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;

pub(crate) const GETATTR: u32 = 1;
pub(crate) const SETATTR: u32 = 2;
pub(crate) const LOOKUP: u32 = 3;
pub(crate) const READ: u32 = 6;
pub(crate) const WRITE: u32 = 7;

/// Number of the only export.
const EXPORT: u32 = 1;

/// Configuration of the gateway. Its replay cache is full after few calls, as every replay cache is after a while.
pub(crate) fn config() -> ServerConfig {
    ServerConfig {
        handle_key: [7; 32],
        volume: VolumeId([7; 16]),
        exports: vec![Export {
            id: EXPORT,
            path: b"/".to_vec(),
            rules: vec![Rule {
                clients: vec!["127.0.0.0/8".parse().expect("a range")],
                source_port: SourcePort::Any,
                ..Rule::default()
            }],
        }],
        limits: Limits {
            replay_entries: 256,
            ..Limits::default()
        },
    }
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

/// The client's address.
pub(crate) fn peer() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 700))
}

/// A call, as a record without its mark. The arguments that `arguments` writes follow the handle of `inode`.
pub(crate) fn call(procedure: u32, inode: Inode, arguments: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let caller = caller();
    let mut credential = Vec::new();
    let mut writer = Writer::new(&mut credential);
    writer.u32(0);
    writer.opaque(b"workstation");
    writer.u32(caller.uid);
    writer.u32(caller.gid);
    writer.u32(caller.groups.len() as u32);
    caller.groups.iter().for_each(|group| writer.u32(*group));

    let config = config();
    let named = Named {
        export: EXPORT,
        tree: Tree::Live,
        inode,
    };
    let mut record = Vec::new();
    let mut writer = Writer::new(&mut record);
    for value in [0, 0, 2, PROGRAM, VERSION, procedure, 1] {
        writer.u32(value);
    }
    writer.opaque(&credential);
    writer.u32(0);
    writer.u32(0);
    writer.opaque(&Handles::new(config.handle_key, config.volume).encode(named));
    arguments(&mut writer);
    record
}

/// Makes the record another call of the same kind.
pub(crate) fn set_xid(record: &mut [u8], xid: u32) {
    record[..4].copy_from_slice(&xid.to_be_bytes());
}
