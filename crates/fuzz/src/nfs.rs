//! Common code of the NFS targets: a server without sockets over a file system in memory, calls for it, and the check
//! of its replies.

pub(crate) mod call;
pub(crate) mod reply;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use forebay_nfs::fuzzing::{Answer, Service, reply_bound};
use forebay_nfs::handle::{Handle, Handles, Named, Tree};
use forebay_nfs::{AddressRange, Export, Flavors, Limits, Rule, ServerConfig, Squash};
use forebay_types::{Inode, VolumeId};
use forebay_vfs::memory::MemoryFileSystem;

use crate::input::at_once;
use call::{Caller, message, put_opaque, put_u32};
use reply::Reply;

/// Key of the file handles.
pub(crate) const HANDLE_KEY: [u8; 32] = [3; 32];

const VOLUME: VolumeId = VolumeId([4; 16]);

/// Capacity of the file system in bytes: far more than an input can write.
const CAPACITY_BYTES: u64 = 256 << 20;

/// Client that may mount everything, as any user.
pub(crate) const TRUSTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Client that may mount `/dir`, as nobody.
pub(crate) const GUEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));
/// Client that may mount nothing.
pub(crate) const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

/// The handle of an object in the first export. The root directory is 1, the objects that [`World::new`] makes follow.
pub(crate) fn handle(inode: u64) -> Handle {
    Handles::new(HANDLE_KEY, VOLUME).encode(Named {
        export: 1,
        tree: Tree::Live,
        inode: Inode(inode),
    })
}

/// A server with an object of each kind.
pub(crate) struct World {
    service: Service<MemoryFileSystem>,
    now: Instant,
}

impl World {
    pub(crate) fn new() -> World {
        let fs = Arc::new(MemoryFileSystem::with_capacity(CAPACITY_BYTES));
        let export = |id, path: &str, client: IpAddr, squash| Export {
            id,
            path: path.into(),
            rules: vec![Rule {
                clients: vec![AddressRange::from(client)],
                squash,
                flavors: Flavors::ANY,
                ..Rule::default()
            }],
        };
        let config = ServerConfig {
            handle_key: HANDLE_KEY,
            volume: VOLUME,
            exports: vec![
                export(1, "/", TRUSTED, Squash::None),
                export(2, "/dir", GUEST, Squash::All),
            ],
            limits: Limits::default(),
        };
        let world = World {
            service: Service::new(fs, &config),
            now: Instant::now(),
        };
        for (xid, (procedure, name)) in [(9, "dir"), (8, "file"), (10, "link"), (11, "fifo")]
            .into_iter()
            .enumerate()
        {
            let mut arguments = Vec::new();
            put_opaque(&mut arguments, &handle(1));
            put_opaque(&mut arguments, name.as_bytes());
            match procedure {
                8 => put_u32(&mut arguments, 0),
                11 => put_u32(&mut arguments, 7),
                _ => {}
            }
            call::put_no_attributes(&mut arguments);
            if procedure == 10 {
                put_opaque(&mut arguments, b"dir/target");
            }
            let record = message(xid as u32, 100_003, 3, procedure, Caller::Root, &arguments);
            let reply = world.serve(TRUSTED, &record);
            assert_eq!(reply.map(|reply| reply.status), Some(Some(0)), "{name}");
        }
        world
    }

    /// Serves a record and checks the reply, if there is one.
    ///
    /// # Panics
    /// If the reply is not well formed, or longer than its announced maximum.
    pub(crate) fn serve(&self, from: IpAddr, record: &[u8]) -> Option<Reply> {
        match at_once(self.service.serve(from, record, self.now)) {
            Answer::Reply(bytes) => {
                let bound = reply_bound(record);
                assert!(
                    bytes.len() <= bound,
                    "a reply of {} bytes where {bound} were expected",
                    bytes.len()
                );
                let reply = Reply::read(record, &bytes);
                Some(reply.unwrap_or_else(|| panic!("a malformed reply: {bytes:02x?}")))
            }
            // Only a message that is no call stays without answer: no call is in flight while another is served.
            Answer::Silence => panic!("a call without reply"),
            Answer::Hangup => {
                let is_call = record.len() >= 24 && record[4..8] == [0; 4];
                assert!(!is_call, "hangup at a call");
                None
            }
        }
    }
}
