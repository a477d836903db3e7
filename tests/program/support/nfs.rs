//! The NFSv3 client of `crates/client`, one call at a time, for tests in which every call must be answered.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use forebay_client::{Create, Failure, Link, LinkError, Reply, Request, Steady};
pub(crate) use forebay_client::{Handle, Stable, Status, Verifier};

pub(crate) const NOENT: Status = Status::NOENT;
pub(crate) const IO: Status = Status::IO;

/// Longer than any call takes on a working server.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    link: Link<Steady>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        Client::connect_for(port, TIMEOUT)
    }

    /// A client that waits `limit` for each answer other than JUKEBOX.
    fn connect_for(port: u16, limit: Duration) -> Client {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // The server takes a call with the number of an earlier one for its repetition, whatever connection and process
        // it comes from.
        let first = RandomState::new().build_hasher().finish() as u32;
        Client {
            link: Link::new(Steady::new(address), first, limit),
        }
    }

    /// Its connection, for calls that need not be answered.
    pub(crate) fn into_link(self) -> Link<Steady> {
        self.link
    }

    /// The root directory of the export `/`.
    pub(crate) fn mount(&mut self) -> Handle {
        self.mount_at("/").unwrap()
    }

    /// Reads a file for a second; every answer must be JUKEBOX.
    #[track_caller]
    pub(crate) fn is_put_off(port: u16, file: &Handle) {
        let mut client = Client::connect_for(port, Duration::from_secs(1));
        let answer = client.link.call(&Request::read(file, 0, 1 << 10));
        assert!(matches!(answer, Err(LinkError::Stuck { .. })), "{answer:?}");
    }

    /// The directory of an export.
    pub(crate) fn mount_at(&mut self, path: &str) -> Result<Handle, Status> {
        self.call(&Request::mount(path.as_bytes()), Reply::mounted)
    }

    /// MKDIR in the root.
    pub(crate) fn mkdir(&mut self, name: &str) {
        let root = self.mount();
        let request = Request::mkdir(&root, name.as_bytes(), 0o755);
        self.call(&request, Reply::made).unwrap();
    }

    /// CREATE UNCHECKED of an empty file.
    pub(crate) fn create(&mut self, directory: &Handle, name: &[u8]) -> Handle {
        let request = Request::create(directory, name, Create::Unchecked, 0o644);
        self.call(&request, Reply::made).unwrap().handle
    }

    pub(crate) fn lookup(&mut self, directory: &Handle, name: &[u8]) -> Result<Handle, Status> {
        let found = self.call(&Request::lookup(directory, name), Reply::found)?;
        Ok(found.handle)
    }

    pub(crate) fn remove(&mut self, directory: &Handle, name: &[u8]) {
        self.call(&Request::remove(directory, name), Reply::done)
            .unwrap();
    }

    pub(crate) fn rmdir(&mut self, directory: &Handle, name: &[u8]) {
        self.call(&Request::rmdir(directory, name), Reply::done)
            .unwrap();
    }

    pub(crate) fn rename(&mut self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) {
        self.call(&Request::rename(from.0, from.1, to.0, to.1), Reply::done)
            .unwrap();
    }

    pub(crate) fn link(&mut self, file: &Handle, directory: &Handle, name: &[u8]) {
        self.call(&Request::link(file, directory, name), Reply::done)
            .unwrap();
    }

    pub(crate) fn chmod(&mut self, object: &Handle, mode: u32) {
        self.call(&Request::setattr(object, Some(mode), None), Reply::done)
            .unwrap();
    }

    /// One WRITE, which must take everything.
    pub(crate) fn write(
        &mut self,
        file: &Handle,
        offset: u64,
        data: &[u8],
        stable: Stable,
    ) -> Result<Verifier, Status> {
        let request = Request::write(file, offset, data, stable);
        let written = self.call(&request, Reply::written)?;
        assert_eq!(written.count as usize, data.len(), "a short write");
        assert!(written.stable >= stable, "less stable than asked for");
        Ok(written.verifier)
    }

    /// Bytes of the file system, and those that are free.
    pub(crate) fn space(&mut self) -> (u64, u64) {
        let root = self.mount();
        let space = self.call(&Request::fsstat(&root), Reply::space).unwrap();
        (space.total_bytes, space.free_bytes)
    }

    pub(crate) fn commit(&mut self, file: &Handle) -> Verifier {
        self.call(&Request::commit(file), Reply::committed).unwrap()
    }

    /// One READ.
    pub(crate) fn read(
        &mut self,
        file: &Handle,
        offset: u64,
        count: u32,
    ) -> Result<Vec<u8>, Status> {
        let (data, _) = self.call(&Request::read(file, offset, count), Reply::data)?;
        Ok(data)
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

    /// Makes a call, and repeats it after JUKEBOX, as all clients do.
    fn call<T>(
        &mut self,
        request: &Request,
        results: impl FnOnce(Reply) -> Result<T, Failure>,
    ) -> Result<T, Status> {
        results(self.link.call(request).unwrap()).map_err(|failure| match failure {
            Failure::Status(status) => status,
            Failure::Malformed(why) => panic!("{}: {why}", request.name),
        })
    }
}
