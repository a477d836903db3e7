//! As much of an NFSv3 client as the tests need, made by hand from RFC 1813 and RFC 5531, so that
//! server and test do not share a codec. One call at a time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// A file handle.
pub(crate) type Handle = Vec<u8>;

/// A write verifier.
pub(crate) type Verifier = [u8; 8];

/// What a call was answered with other than NFS3_OK.
pub(crate) type Status = u32;

pub(crate) const NOENT: Status = 2;
pub(crate) const IO: Status = 5;
/// "Ask again later", which this client does, as all do.
const JUKEBOX: Status = 10_008;

/// How safe a write has to be (`stable_how`).
#[derive(Clone, Copy)]
pub(crate) enum Stable {
    Unstable = 0,
    FileSync = 2,
}

const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;

/// Longer than a server that works takes for any call.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    stream: TcpStream,
    xid: u32,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, xid: 1 }
    }

    /// The root directory of the export `/`.
    pub(crate) fn mount(&mut self) -> Handle {
        self.mount_at("/").unwrap()
    }

    /// MNT.
    pub(crate) fn mount_at(&mut self, path: &str) -> Result<Handle, Status> {
        let arguments = Arguments::new().opaque(path.as_bytes());
        Ok(self.call(MOUNT, 1, &arguments)?.opaque())
    }

    /// MKDIR in the root.
    pub(crate) fn mkdir(&mut self, name: &str) {
        let root = self.mount();
        // Attributes: mode 0755, no owner, no group, no size, no times.
        let arguments = Arguments::new()
            .opaque(&root)
            .opaque(name.as_bytes())
            .u32s(&[1, 0o755, 0, 0, 0, 0, 0]);
        self.call(NFS, 9, &arguments).unwrap();
    }

    /// CREATE UNCHECKED of an empty file.
    pub(crate) fn create(&mut self, directory: &[u8], name: &[u8]) -> Handle {
        // How: UNCHECKED. Attributes: mode 0644, no owner, no group, size 0, no times.
        let arguments = Arguments::new()
            .opaque(directory)
            .opaque(name)
            .u32s(&[0, 1, 0o644, 0, 0, 1, 0, 0, 0, 0]);
        let mut reply = self.call(NFS, 8, &arguments).unwrap();
        assert_eq!(reply.u32(), 1, "CREATE gave no handle");
        reply.opaque()
    }

    pub(crate) fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Handle, Status> {
        let arguments = Arguments::new().opaque(directory).opaque(name);
        Ok(self.call(NFS, 3, &arguments)?.opaque())
    }

    pub(crate) fn remove(&mut self, directory: &[u8], name: &[u8]) {
        let arguments = Arguments::new().opaque(directory).opaque(name);
        self.call(NFS, 12, &arguments).unwrap();
    }

    /// One WRITE, which must take everything.
    pub(crate) fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stable: Stable,
    ) -> Result<Verifier, Status> {
        let count = u32::try_from(data.len()).unwrap();
        let arguments = Arguments::new()
            .opaque(file)
            .u64(offset)
            .u32s(&[count, stable as u32])
            .opaque(data);
        let mut reply = self.call(NFS, 7, &arguments)?;
        reply.change();
        assert_eq!(reply.u32(), count, "a short write");
        assert!(reply.u32() >= stable as u32, "less stable than asked for");
        Ok(reply.verifier())
    }

    pub(crate) fn commit(&mut self, file: &[u8]) -> Verifier {
        let arguments = Arguments::new().opaque(file).u64(0).u32s(&[0]);
        let mut reply = self.call(NFS, 21, &arguments).unwrap();
        reply.change();
        reply.verifier()
    }

    /// One READ.
    pub(crate) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<Vec<u8>, Status> {
        let arguments = Arguments::new().opaque(file).u64(offset).u32s(&[count]);
        let mut reply = self.call(NFS, 6, &arguments)?;
        reply.attributes();
        reply.take(8);
        Ok(reply.opaque())
    }

    /// Makes a file of these bytes, stable.
    pub(crate) fn put(&mut self, name: &str, data: &[u8]) {
        let root = self.mount();
        let file = self.create(&root, name.as_bytes());
        for (index, piece) in data.chunks(1 << 20).enumerate() {
            let offset = (index as u64) << 20;
            self.write(&file, offset, piece, Stable::Unstable).unwrap();
        }
        self.commit(&file);
    }

    /// The bytes of a file, up to 1 MiB of them.
    pub(crate) fn get(&mut self, name: &str) -> Result<Vec<u8>, Status> {
        let root = self.mount();
        let file = self.lookup(&root, name.as_bytes())?;
        self.read(&file, 0, 1 << 20)
    }

    fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: &Arguments,
    ) -> Result<Reply, Status> {
        let begun = Instant::now();
        loop {
            match self.call_once(program, procedure, arguments) {
                Err(JUKEBOX) if begun.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(100));
                }
                result => return result,
            }
        }
    }

    fn call_once(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: &Arguments,
    ) -> Result<Reply, Status> {
        self.xid += 1;
        // AUTH_SYS: stamp, machine, uid 0, gid 0, no groups.
        let credential = Arguments::new().u32s(&[0]).opaque(b"test").u32s(&[0, 0, 0]);
        let head = Arguments::new()
            .u32s(&[self.xid, 0, 2, program, 3, procedure, 1])
            .opaque(&credential.0)
            .u32s(&[0, 0]);
        let length = u32::try_from(head.0.len() + arguments.0.len()).unwrap();
        let mut record = (0x8000_0000 | length).to_be_bytes().to_vec();
        record.extend(head.0);
        record.extend(&arguments.0);
        self.stream.write_all(&record).unwrap();

        let mut reply = self.receive();
        let head: Vec<_> = (0..3).map(|_| reply.u32()).collect();
        assert_eq!(
            head,
            [self.xid, 1, 0],
            "not the accepted reply to this call"
        );
        reply.u32();
        reply.opaque();
        assert_eq!(reply.u32(), 0, "not executed");
        match reply.u32() {
            0 => Ok(reply),
            status => Err(status),
        }
    }

    fn receive(&mut self) -> Reply {
        let mut bytes = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark).unwrap();
            let mark = u32::from_be_bytes(mark);
            let start = bytes.len();
            bytes.resize(start + (mark & 0x7fff_ffff) as usize, 0);
            self.stream.read_exact(&mut bytes[start..]).unwrap();
            if mark & 0x8000_0000 != 0 {
                return Reply { bytes, at: 0 };
            }
        }
    }
}

/// XDR values, one after the other.
struct Arguments(Vec<u8>);

impl Arguments {
    fn new() -> Arguments {
        Arguments(Vec::new())
    }

    fn u32s(mut self, values: &[u32]) -> Arguments {
        self.0
            .extend(values.iter().flat_map(|value| value.to_be_bytes()));
        self
    }

    fn u64(mut self, value: u64) -> Arguments {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn opaque(self, bytes: &[u8]) -> Arguments {
        let mut arguments = self.u32s(&[u32::try_from(bytes.len()).unwrap()]);
        arguments.0.extend(bytes);
        arguments.0.resize(arguments.0.len().next_multiple_of(4), 0);
        arguments
    }
}

/// The results of a call, taken one after the other.
struct Reply {
    bytes: Vec<u8>,
    at: usize,
}

impl Reply {
    fn take(&mut self, length: usize) -> &[u8] {
        let start = self.at;
        self.at += length.next_multiple_of(4);
        &self.bytes[start..start + length]
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn opaque(&mut self) -> Vec<u8> {
        let length = self.u32() as usize;
        self.take(length).to_vec()
    }

    fn verifier(&mut self) -> Verifier {
        self.take(8).try_into().unwrap()
    }

    /// `post_op_attr`.
    fn attributes(&mut self) {
        if self.u32() != 0 {
            self.take(84);
        }
    }

    /// `wcc_data`.
    fn change(&mut self) {
        if self.u32() != 0 {
            self.take(24);
        }
        self.attributes();
    }
}
