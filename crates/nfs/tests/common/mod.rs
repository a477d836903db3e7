//! A server on a free port, and a client that builds its messages byte by byte.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program takes this module in and uses its own part"
)]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

pub mod gated;
mod replies;
pub mod trees;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_metrics::{Samples, Source};
use forebay_nfs::record::{LAST_FRAGMENT, mark};
use forebay_nfs::xdr::Writer;
use forebay_nfs::{
    CallWatch, Export, ExportControl, Flavors, Limits, LockConfig, Metrics, Rule, Server,
    ServerConfig, SourcePort, Squash, TlsControl, View,
};
use forebay_types::VolumeId;
use forebay_vfs::Trees;
use forebay_vfs::memory::MemoryFileSystem;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub use replies::*;

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

pub fn config() -> ServerConfig {
    ServerConfig {
        handle_key: [3; 32],
        volume: VolumeId([4; 16]),
        exports: vec![export(1, "/", "127.0.0.1", Squash::None)],
        // Long enough that no test reaches these limits by accident.
        limits: Limits {
            max_blocking: FOR_EVER,
            first_call_timeout: FOR_EVER,
            stranger_time: FOR_EVER,
            ..Limits::default()
        },
    }
}

/// Longer than any test.
pub const FOR_EVER: Duration = Duration::from_secs(3600);

/// A rule for clients that connect from any port, with or without an identity.
pub fn rule(clients: &str, squash: Squash) -> Rule {
    Rule {
        clients: vec![clients.parse().unwrap()],
        squash,
        flavors: Flavors::ANY,
        source_port: SourcePort::Any,
        ..Rule::default()
    }
}

pub fn export(id: u32, path: &str, clients: &str, squash: Squash) -> Export {
    Export {
        id,
        path: path.into(),
        rules: vec![rule(clients, squash)],
    }
}

/// A server that runs until it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub metrics: Arc<Metrics>,
    pub tls: TlsControl,
    pub watch: CallWatch,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl Running {
    pub fn memory() -> Running {
        Running::new(Arc::new(MemoryFileSystem::new()), config())
    }

    pub fn new<F: Trees>(fs: Arc<F>, config: ServerConfig) -> Running {
        Running::with_views(config, |_| fs.clone())
    }

    pub fn with_views<F: Trees>(config: ServerConfig, view: impl Fn(View) -> Arc<F>) -> Running {
        Running::controlled(config, view).0
    }

    /// Also returns the control that replaces its exports.
    pub fn controlled<F: Trees>(
        config: ServerConfig,
        view: impl Fn(View) -> Arc<F>,
    ) -> (Running, ExportControl<F>) {
        Running::start(async move |any| Server::bind_views(any, config, view).await)
    }

    fn start<F: Trees>(
        bind: impl AsyncFnOnce(SocketAddr) -> io::Result<Server<F>>,
    ) -> (Running, ExportControl<F>) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let server = runtime.block_on(bind(any)).unwrap();
        let control = server.export_control();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = Running {
            address: server.local_addr().unwrap(),
            metrics: server.metrics(),
            tls: server.tls_control(),
            watch: server.call_watch(),
            stop: Some(stop),
            served: Some(runtime.spawn(server.serve(async { _ = stopped.await }))),
            runtime: Some(runtime),
        };
        (running, control)
    }

    /// With a lock manager.
    pub fn locking<F: Trees>(fs: Arc<F>, config: ServerConfig, locks: LockConfig) -> Running {
        Running::start(async move |any| {
            let server = Server::bind(any, fs, config).await?;
            server.with_locks(locks).await
        })
        .0
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn metric(&self, name: &str) -> u64 {
        self.metric_of(name, &[])
    }

    #[expect(clippy::cast_sign_loss, reason = "values are counts")]
    pub fn metric_of(&self, name: &str, labels: &[&str]) -> u64 {
        let samples = Samples::of([&*self.metrics as &dyn Source]);
        samples.number(name, labels).unwrap() as u64
    }

    /// Waits until a metric has a value for which `right` holds.
    pub fn wait_for(&self, name: &str, right: impl FnMut(u64) -> bool) {
        self.wait_for_one(name, &[], right);
    }

    /// The same for one of the series of a metric.
    pub fn wait_for_one(&self, name: &str, labels: &[&str], mut right: impl FnMut(u64) -> bool) {
        let begin = Instant::now();
        while !right(self.metric_of(name, labels)) {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "{name} stays {}",
                self.metric_of(name, labels)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the server has sent a lot and then nothing for a while: its client does not read and the
    /// socket is full, whatever its size.
    pub fn wait_until_no_more_is_sent(&self) {
        self.wait_for("nfs_sent_bytes", |bytes| bytes > 128 << 10);
        let mut before = 0;
        self.wait_for("nfs_sent_bytes", |bytes| {
            std::thread::sleep(Duration::from_millis(50));
            std::mem::replace(&mut before, bytes) == bytes
        });
    }

    /// Asks the server to stop.
    pub fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until it has stopped.
    pub fn stopped(&mut self) {
        let served = self.served.take().unwrap();
        self.runtime.as_ref().unwrap().block_on(served).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The caller of a call.
#[derive(Clone)]
pub enum As {
    Nobody,
    User(u32, u32, Vec<u32>),
}

pub const ROOT: As = As::User(0, 0, Vec::new());

/// A connection, over TCP or a layer on top of it.
pub struct Client<S = TcpStream> {
    pub stream: S,
    pub xid: u32,
    pub caller: As,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).unwrap())
    }

    /// A client with another address of the loopback network.
    pub fn connect_from(source: &str, address: SocketAddr) -> Client {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let source: SocketAddr = format!("{source}:0").parse().unwrap();
        socket.bind(&source.into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Client::over(socket.into())
    }

    fn over(stream: TcpStream) -> Client {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Client::with_stream(stream)
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        self.stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        match self.stream.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
        }
    }
}

impl<S: Read + Write> Client<S> {
    pub fn with_stream(stream: S) -> Client<S> {
        Client {
            stream,
            // Different from those of other connections; otherwise the replay cache would take the calls for
            // repetitions.
            xid: rand(),
            caller: ROOT,
        }
    }

    pub fn with_identity(mut self, caller: As) -> Client<S> {
        self.caller = caller;
        self
    }

    /// A call as bytes, without its record mark.
    pub fn message(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Vec<u8> {
        let mut wire = Vec::new();
        let mut writer = Writer::new(&mut wire);
        for value in [self.xid, 0, 2, program, version, procedure] {
            writer.u32(value);
        }
        match &self.caller {
            As::Nobody => {
                writer.u32(0);
                writer.u32(0);
            }
            As::User(uid, gid, groups) => {
                let mut body = Vec::new();
                let mut auth = Writer::new(&mut body);
                auth.u32(0);
                auth.opaque(b"test");
                auth.u32(*uid);
                auth.u32(*gid);
                auth.u32(groups.len() as u32);
                groups.iter().for_each(|group| auth.u32(*group));
                writer.u32(1);
                writer.opaque(&body);
            }
        }
        writer.u32(0);
        writer.u32(0);
        arguments(&mut writer);
        wire
    }

    pub fn send_record(&mut self, message: &[u8]) {
        let mut record = mark(message.len()).to_vec();
        record.extend_from_slice(message);
        self.stream.write_all(&record).unwrap();
    }

    /// The next record, or why there is none.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        assert!(mark & LAST_FRAGMENT != 0);
        let mut record = vec![0; (mark & !LAST_FRAGMENT) as usize];
        self.stream.read_exact(&mut record)?;
        Ok(record)
    }

    /// Sends a call and returns its transaction id.
    pub fn send(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        let message = self.message(program, version, procedure, arguments);
        self.send_record(&message);
        self.xid
    }

    /// Sends a call and returns the whole reply.
    pub fn call(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Vec<u8> {
        let xid = self.send(program, version, procedure, arguments);
        let reply = self.receive().unwrap();
        assert_eq!(reply[..4], xid.to_be_bytes());
        reply
    }

    /// Sends an NFS call that succeeds as far as RPC is concerned.
    pub fn nfs(&mut self, procedure: u32, arguments: impl FnOnce(&mut Writer)) -> Results {
        let reply = self.call(NFS, 3, procedure, arguments);
        accepted(&reply)
    }

    /// The root handle of an export.
    pub fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let reply = self.call(MOUNT, 3, 1, |w| w.opaque(path.as_bytes()));
        let results = accepted(&reply);
        let mut reader = results.reader();
        match reader.u32().unwrap() {
            0 => Ok(reader.opaque(64).unwrap().to_vec()),
            status => Err(status),
        }
    }

    pub fn root(&mut self) -> Vec<u8> {
        self.mount("/").unwrap()
    }

    /// Creates a file, or opens an existing one.
    pub fn create(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        let results = self.nfs(8, |w| {
            w.opaque(directory);
            w.opaque(name.as_bytes());
            w.u32(0);
            no_attributes(w);
        });
        results.made()
    }

    pub fn mkdir(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        let results = self.nfs(9, |w| {
            w.opaque(directory);
            w.opaque(name.as_bytes());
            no_attributes(w);
        });
        results.made()
    }

    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Results {
        self.nfs(7, |w| write_arguments(w, file, offset, data, 0))
    }

    pub fn read(&mut self, file: &[u8], offset: u64, count: u32) -> (Vec<u8>, bool) {
        let results = self.nfs(6, |w| read_arguments(w, file, offset, count));
        let mut reader = results.reader();
        assert_eq!(reader.u32(), Ok(0));
        assert!(post_op(&mut reader).is_some());
        let count = reader.u32().unwrap();
        let eof = reader.bool().unwrap();
        let data = reader.opaque(1 << 20).unwrap();
        assert_eq!(data.len(), count as usize);
        reader.end().unwrap();
        (data.to_vec(), eof)
    }

    pub fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Results {
        self.nfs(3, |w| {
            w.opaque(directory);
            w.opaque(name);
        })
    }

    pub fn getattr(&mut self, handle: &[u8]) -> Results {
        self.nfs(1, |w| w.opaque(handle))
    }

    pub fn attributes(&mut self, handle: &[u8]) -> Attr {
        let results = self.getattr(handle);
        let mut reader = results.reader();
        assert_eq!(reader.u32(), Ok(0));
        fattr(&mut reader)
    }

    /// Whether the server serves this client.
    pub fn is_served(&mut self) -> bool {
        let root = self.root();
        self.attributes(&root).kind == 2
    }
}

/// Different at every call.
fn rand() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u32
}

pub fn write_arguments(w: &mut Writer, file: &[u8], offset: u64, data: &[u8], stable: u32) {
    w.opaque(file);
    w.u64(offset);
    w.u32(data.len() as u32);
    w.u32(stable);
    w.opaque(data);
}

pub fn read_arguments(w: &mut Writer, file: &[u8], offset: u64, count: u32) {
    w.opaque(file);
    w.u64(offset);
    w.u32(count);
}

/// A `sattr3` that sets nothing.
pub fn no_attributes(w: &mut Writer) {
    (0..6).for_each(|_| w.u32(0));
}

/// Valid arguments of any procedure except NULL, for the object of `handle`. RENAME and
/// LINK have a second handle: `other`.
pub fn arguments(w: &mut Writer, procedure: u32, handle: &[u8], other: &[u8]) {
    let name = |w: &mut Writer| w.opaque(b"name");
    w.opaque(handle);
    match procedure {
        // SETATTR: nothing, without guard.
        2 => (0..7).for_each(|_| w.u32(0)),
        // LOOKUP, REMOVE, RMDIR
        3 | 12 | 13 => name(w),
        // ACCESS: everything.
        4 => w.u32(0x3f),
        // READ
        6 => (0..3).for_each(|_| w.u32(0)),
        // WRITE: one byte.
        7 => {
            w.u64(0);
            w.u32(1);
            w.u32(0);
            w.opaque(b"x");
        }
        // CREATE (unchecked), MKDIR
        8 => {
            name(w);
            w.u32(0);
            no_attributes(w);
        }
        9 => {
            name(w);
            no_attributes(w);
        }
        // SYMLINK
        10 => {
            name(w);
            no_attributes(w);
            w.opaque(b"target");
        }
        // MKNOD: a fifo.
        11 => {
            name(w);
            w.u32(7);
            no_attributes(w);
        }
        // RENAME
        14 => {
            name(w);
            w.opaque(other);
            w.opaque(b"new");
        }
        // LINK
        15 => {
            w.opaque(other);
            w.opaque(b"new");
        }
        // READDIR, READDIRPLUS: cookie, verifier, sizes.
        16 | 17 => {
            w.u64(0);
            w.u64(0);
            (16..=procedure).for_each(|_| w.u32(4096));
        }
        // COMMIT: everything.
        21 => (0..3).for_each(|_| w.u32(0)),
        // GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF
        _ => {}
    }
}
