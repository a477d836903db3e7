//! A server with a real volume behind it, its clients, and the objects that they make in it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use forebay_conformance::call::{How, Set};
use forebay_conformance::results::Attributes;
use forebay_conformance::{Call, Connection, Identity, Procedure, Rejected, Results, Status};
use forebay_fs::{Environment, FsConfig};
use forebay_nfs::{
    ClientListStore, Export, ExportAccess, Flavors, Limits, LockConfig, Rule, Server, ServerConfig,
    SourcePort, Squash,
};

use crate::metadata::Reach;
use crate::table;
use crate::volume::disk::Disk;
use crate::volume::{Bucket, Life};

/// Program number of MOUNT.
pub(crate) const MOUNT: u32 = 100_005;

/// Address of ordinary clients, and of those that may not write.
const ORDINARY: &str = "127.0.0.1";
const READ_ONLY: &str = "127.0.0.2";

/// The directory that is also an export of its own.
pub(crate) const OTHER_EXPORT: &str = "other";

/// A gateway's volume and its server.
pub(crate) struct Stack {
    pub(crate) bucket: Bucket,
    disk: Disk,
    /// Whether the metadata in the bucket are out of reach.
    away: Arc<AtomicBool>,
    running: Option<Running>,
    change: fn(&mut FsConfig),
}

struct Running {
    life: Life,
    address: SocketAddr,
}

impl Stack {
    pub(crate) fn new() -> Stack {
        Stack::with(|_| {})
    }

    /// With settings of the volume.
    pub(crate) fn with(change: fn(&mut FsConfig)) -> Stack {
        let (bucket, disk) = (Bucket::new(), Disk::default());
        let mut stack = Stack {
            bucket,
            disk,
            away: Arc::default(),
            running: None,
            change,
        };
        stack.start();
        stack
    }

    /// Serves again after a stop or a crash.
    pub(crate) fn start(&mut self) {
        let mut config = self.bucket.config();
        (self.change)(&mut config);
        let environment = self.bucket.environment(&self.disk);
        let metadata = Reach {
            real: environment.metadata.clone(),
            away: self.away.clone(),
        };
        let environment = Environment {
            metadata: Arc::new(metadata),
            ..environment
        };
        let life = self.bucket.try_start_in(config, environment).unwrap();
        let (sender, bound) = std::sync::mpsc::channel();
        life.spawn(|volume| async move {
            let config = ServerConfig {
                handle_key: volume.handle_key(),
                volume: volume.id(),
                exports: exports(),
                limits: Limits::default(),
            };
            let any = "127.0.0.1:0".parse().unwrap();
            let server = Server::bind(any, Arc::new(volume), config).await.unwrap();
            let locks = LockConfig::new(Duration::ZERO, Arc::new(NoNotes));
            let server = server.with_locks(locks).await.unwrap();
            sender.send(server.local_addr().unwrap()).unwrap();
            server.serve(std::future::pending()).await;
        });
        let address = bound.recv().unwrap();
        self.running = Some(Running { life, address });
    }

    /// The running gateway.
    pub(crate) fn life(&self) -> &Life {
        &self.running.as_ref().unwrap().life
    }

    /// Makes the metadata in the bucket unreachable, or reachable again.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// The disk of the log.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Stops in order: everything is in the bucket.
    pub(crate) fn stop(&mut self) {
        self.running.take().unwrap().life.stop();
        self.disk.kill();
    }

    /// Stops like a killed process.
    pub(crate) fn crash(&mut self) {
        self.running.take().unwrap().life.crash();
        self.disk.kill();
    }

    /// A client as root, which may do everything.
    pub(crate) fn root(&self) -> Client {
        self.client(ORDINARY, Identity::ROOT)
    }

    /// A client as a user without further groups.
    pub(crate) fn user(&self, uid: u32) -> Client {
        self.client(ORDINARY, Identity::User(uid, uid, Vec::new()))
    }

    /// A client as root on a machine whose rule is `ro`.
    pub(crate) fn read_only(&self) -> Client {
        self.client(READ_ONLY, Identity::ROOT)
    }

    fn client(&self, from: &str, caller: Identity) -> Client {
        // The server tells calls apart by client address and number.
        static NEXT_XID: AtomicU32 = AtomicU32::new(1);
        let address = self.running.as_ref().unwrap().address;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let from: SocketAddr = format!("{from}:0").parse().unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&address.into()).unwrap();
        let xid = NEXT_XID.fetch_add(1 << 20, Ordering::Relaxed);
        Client(Connection::new(socket.into(), xid, caller).unwrap())
    }
}

/// The client list of a lock manager that notifies no clients of its restarts.
struct NoNotes;

impl ClientListStore for NoNotes {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn replace(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// The root and one directory below it, for clients that may write and those that may not.
fn exports() -> Vec<Export> {
    let rule = |address: &str, access| Rule {
        clients: vec![address.parse().unwrap()],
        access,
        squash: Squash::None,
        flavors: Flavors::ANY,
        source_port: SourcePort::Any,
        ..Rule::default()
    };
    let export = |id, path: &str| Export {
        id,
        path: path.into(),
        rules: vec![
            rule(ORDINARY, ExportAccess::ReadWrite),
            rule(READ_ONLY, ExportAccess::ReadOnly),
        ],
    };
    vec![export(1, "/"), export(2, &format!("/{OTHER_EXPORT}"))]
}

/// A client over one connection. Every status that it receives must be in the table.
pub(crate) struct Client(pub(crate) Connection);

impl Client {
    /// Makes a call that RPC accepts.
    #[track_caller]
    pub(crate) fn call(&mut self, call: &Call) -> Results {
        let results = self.try_call(call);
        results.unwrap_or_else(|rejected| panic!("{:?}: {rejected:?}", call.procedure))
    }

    #[track_caller]
    pub(crate) fn try_call(&mut self, call: &Call) -> Result<Results, Rejected> {
        let procedure = call.procedure;
        let answer = self.0.call(call);
        let results = answer.unwrap_or_else(|broken| panic!("{procedure:?}: {broken}"))?;
        let status = results.status();
        assert!(
            status == Status::OK || table::is_shown(procedure, status),
            "{procedure:?} gives {status}, which is not in the table"
        );
        Ok(results)
    }

    /// Makes a call that must succeed.
    #[track_caller]
    pub(crate) fn ok(&mut self, call: &Call) -> Results {
        let results = self.call(call);
        assert_eq!(results.status(), Status::OK, "{:?}", call.procedure);
        results
    }

    /// Makes a call and returns its status.
    #[track_caller]
    pub(crate) fn status(&mut self, call: &Call) -> Status {
        self.call(call).status()
    }

    /// MNT: the handle, or the status.
    pub(crate) fn mount(&mut self, path: &[u8]) -> Result<Vec<u8>, u32> {
        let path = forebay_client::xdr::Encoder::default().opaque(path);
        let results = self.0.exchange(MOUNT, 3, 1, &path.0).unwrap().unwrap();
        let mut results = forebay_client::xdr::Decoder::new(results);
        match results.u32().unwrap() {
            0 => {}
            status => {
                results.end().unwrap();
                return Err(status);
            }
        }
        let handle = results.opaque().unwrap();
        for _ in 0..results.u32().unwrap() {
            results.u32().unwrap();
        }
        results.end().unwrap();
        Ok(handle)
    }

    /// The handle of the root.
    pub(crate) fn top(&mut self) -> Vec<u8> {
        self.mount(b"/").unwrap()
    }

    #[track_caller]
    pub(crate) fn attributes(&mut self, object: &[u8]) -> Attributes {
        let mut results = self.ok(&Call::getattr(object));
        results.attributes.remove(0).unwrap()
    }

    #[track_caller]
    pub(crate) fn made(&mut self, call: &Call) -> Vec<u8> {
        self.ok(call).handle.expect("a handle of what was made")
    }

    /// Makes a file, which must be new.
    #[track_caller]
    pub(crate) fn file(&mut self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        self.made(&Call::create(directory, name, How::Guarded(Set::default())))
    }

    /// Makes a directory, which must be new.
    #[track_caller]
    pub(crate) fn directory(&mut self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        self.made(&Call::mkdir(directory, name, &Set::default()))
    }

    /// Makes an object of the kind that `procedure` is for, under a free name: a directory for names and listings, a
    /// symbolic link for READLINK, a file for all others.
    #[track_caller]
    pub(crate) fn object(
        &mut self,
        procedure: Procedure,
        directory: &[u8],
        name: &[u8],
    ) -> Vec<u8> {
        if is_of_directories(procedure) {
            self.directory(directory, name)
        } else if procedure == Procedure::Readlink {
            self.made(&Call::symlink(directory, name, &Set::default(), b"path"))
        } else {
            self.file(directory, name)
        }
    }

    /// Changes the mode.
    #[track_caller]
    pub(crate) fn chmod(&mut self, object: &[u8], mode: u32) {
        let set = Set {
            mode: Some(mode),
            ..Set::default()
        };
        self.ok(&Call::setattr(object, &set, None));
    }
}

/// Whether the first handle among the arguments is that of a directory.
pub(crate) fn is_of_directories(procedure: Procedure) -> bool {
    use Procedure::*;
    matches!(
        procedure,
        Lookup | Create | Mkdir | Symlink | Mknod | Remove | Rmdir | Rename | Readdir | Readdirplus
    )
}
