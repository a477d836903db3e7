//! A server with a file to lock, and clients that are called back.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use forebay_nfs::rpc::{Call, Reply};
use forebay_nfs::xdr::Writer;
use forebay_nfs::{ClientListStore, LockConfig, Squash};
use forebay_vfs::memory::MemoryFileSystem;

pub(crate) const NLM: u32 = 100_021;
pub(crate) const NSM: u32 = 100_024;

pub(crate) const TEST: u32 = 1;
pub(crate) const LOCK: u32 = 2;
pub(crate) const CANCEL: u32 = 3;
pub(crate) const UNLOCK: u32 = 4;
pub(crate) const GRANTED_CALL: u32 = 5;
pub(crate) const SHARE: u32 = 20;
pub(crate) const UNSHARE: u32 = 21;
pub(crate) const NM_LOCK: u32 = 22;
pub(crate) const FREE_ALL: u32 = 23;

pub(crate) const GRANTED: u32 = 0;
pub(crate) const DENIED: u32 = 1;
pub(crate) const NOLOCKS: u32 = 2;
pub(crate) const BLOCKED: u32 = 3;
pub(crate) const GRACE: u32 = 4;
pub(crate) const ROFS: u32 = 6;
pub(crate) const STALE_FH: u32 = 7;
pub(crate) const FBIG: u32 = 8;
pub(crate) const FAILED: u32 = 9;

/// A client list in memory.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) content: Mutex<Option<Vec<u8>>>,
    pub(crate) is_full: AtomicBool,
}

impl ClientListStore for Page {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.content.lock().unwrap().clone())
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.content.lock().unwrap() = Some(content.to_vec());
        Ok(())
    }
}

/// A call that a client received.
pub(crate) struct Came {
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    pub(crate) arguments: Vec<u8>,
}

/// The portmapper, lock manager and status monitor of a client, on one port.
pub(crate) struct ClientSide {
    pub(crate) port: u16,
    pub(crate) came: Receiver<Came>,
    /// The answer to NLM_GRANTED.
    pub(crate) answer: Arc<AtomicU32>,
}

impl ClientSide {
    pub(crate) fn start() -> ClientSide {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, came) = channel();
        let answer = Arc::new(AtomicU32::new(GRANTED));
        let status = answer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (sender, status) = (sender.clone(), status.clone());
                std::thread::spawn(move || serve(stream.unwrap(), port, &sender, &status));
            }
        });
        ClientSide { port, came, answer }
    }

    pub(crate) fn next(&self) -> Came {
        self.came.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    pub(crate) fn nothing_came(&self) -> bool {
        let came = self.came.recv_timeout(Duration::from_millis(200));
        matches!(came, Err(RecvTimeoutError::Timeout))
    }
}

/// Answers the calls on a connection until it is closed.
pub(crate) fn serve(
    mut stream: TcpStream,
    port: u16,
    sender: &Sender<Came>,
    status: &AtomicU32,
) -> Option<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut record).ok()?;
        let call = Call::decode(&record).unwrap();
        let mut reply = Reply::accepted(call.xid, Vec::new());
        if call.program == 100_000 {
            assert_eq!((call.version, call.procedure), (2, 3));
            reply.results().u32(u32::from(port));
        } else {
            if (call.program, call.procedure) == (NLM, GRANTED_CALL) {
                let cookie = call.arguments.clone().opaque(1024).unwrap();
                reply.results().opaque(cookie);
                reply.results().u32(status.load(Ordering::Relaxed));
            }
            let came = Came {
                program: call.program,
                procedure: call.procedure,
                arguments: call.arguments.rest().to_vec(),
            };
            sender.send(came).ok()?;
        }
        stream.write_all(&reply.finish().0).ok()?;
    }
}

/// A lock request.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) caller: &'static str,
    pub(crate) process: u32,
    pub(crate) file: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) exclusive: bool,
    pub(crate) block: bool,
    pub(crate) reclaim: bool,
    pub(crate) state: u32,
}

impl Ask {
    pub(crate) fn lock(&self, w: &mut Writer) {
        w.opaque(self.caller.as_bytes());
        w.opaque(&self.file);
        w.opaque(format!("{}@{}", self.process, self.caller).as_bytes());
        w.u32(self.process);
        w.u64(self.offset);
        w.u64(self.length);
    }

    /// The arguments of TEST, LOCK, CANCEL and UNLOCK.
    pub(crate) fn arguments(&self, procedure: u32, w: &mut Writer) {
        w.opaque(b"cookie");
        match procedure {
            TEST => w.bool(self.exclusive),
            LOCK | CANCEL | NM_LOCK => {
                w.bool(self.block);
                w.bool(self.exclusive);
            }
            _ => {}
        }
        self.lock(w);
        if matches!(procedure, LOCK | NM_LOCK) {
            w.bool(self.reclaim);
            w.u32(self.state);
        }
    }

    pub(crate) fn waiting(mut self) -> Ask {
        self.block = true;
        self
    }

    pub(crate) fn at(mut self, offset: u64, length: u64) -> Ask {
        (self.offset, self.length) = (offset, length);
        self
    }
}

/// An exclusive lock of the whole file.
pub(crate) fn ask(caller: &'static str, file: &[u8]) -> Ask {
    Ask {
        caller,
        process: 7,
        file: file.to_vec(),
        offset: 0,
        length: 0,
        exclusive: true,
        block: false,
        reclaim: false,
        state: 3,
    }
}

/// The status, from results that are only cookie and status.
pub(crate) fn status(results: &Results) -> u32 {
    let mut reader = results.reader();
    assert_eq!(reader.opaque(1024), Ok(&b"cookie"[..]));
    let status = reader.u32().unwrap();
    reader.end().unwrap();
    status
}

impl Client {
    pub(crate) fn nlm(&mut self, procedure: u32, ask: &Ask) -> u32 {
        let reply = self.call(NLM, 4, procedure, |w| ask.arguments(procedure, w));
        status(&accepted(&reply))
    }

    pub(crate) fn share(
        &mut self,
        procedure: u32,
        file: &[u8],
        caller: &str,
        deny: u32,
        access: u32,
    ) -> u32 {
        let reply = self.call(NLM, 4, procedure, |w| {
            [&b"cookie"[..], caller.as_bytes(), file, b"owner"]
                .iter()
                .for_each(|part| w.opaque(part));
            w.u32(deny);
            w.u32(access);
            w.bool(false);
        });
        let results = accepted(&reply);
        let mut reader = results.reader();
        assert_eq!(reader.opaque(1024), Ok(&b"cookie"[..]));
        let status = reader.u32().unwrap();
        // The sequence.
        reader.u32().unwrap();
        reader.end().unwrap();
        status
    }
}

/// A server with a file to lock.
pub(crate) struct Scene {
    pub(crate) server: Running,
    pub(crate) fs: Arc<MemoryFileSystem>,
    pub(crate) page: Arc<Page>,
    pub(crate) side: ClientSide,
    pub(crate) client: Client,
    pub(crate) file: Vec<u8>,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut LockConfig)) -> Scene {
        let (fs, page) = (Arc::new(MemoryFileSystem::new()), Arc::new(Page::default()));
        Scene::start(fs, page, change)
    }

    pub(crate) fn start(
        fs: Arc<MemoryFileSystem>,
        page: Arc<Page>,
        change: impl FnOnce(&mut LockConfig),
    ) -> Scene {
        let side = ClientSide::start();
        let mut locks = LockConfig::new(Duration::from_secs(600), page.clone());
        locks.portmapper = side.port;
        locks.name = "server.example.org".into();
        change(&mut locks);
        let mut all = config();
        all.exports
            .push(export(2, "/others", "192.0.2.0/24", Squash::None));
        let server = Running::locking(fs.clone(), all, locks);
        let mut client = server.client();
        let root = client.root();
        let file = client.create(&root, "file");
        Scene {
            server,
            fs,
            page,
            side,
            client,
            file,
        }
    }

    /// The server crashes; another one starts.
    pub(crate) fn restarted(self, change: impl FnOnce(&mut LockConfig)) -> Scene {
        drop(self.server);
        Scene::start(self.fs, self.page, change)
    }
}
