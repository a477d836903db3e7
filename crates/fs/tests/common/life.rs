//! One run of a gateway, and the calls of its clients.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_fs::Volume;
use forebay_object::faults::Faults;
use forebay_types::Inode;
use forebay_vfs::{
    Attributes, CreateMode, Credentials, DirectoryEntry, Error, FileSystem, NewNode, SetAttributes,
    Stability, Trouble, WriteReply,
};
use tokio::runtime::Runtime;

use super::{ROOT, TIMEOUT, pattern, random};

/// One run of a gateway. Dropping it is a crash.
pub struct Life {
    /// `None` once it has ended.
    pub(super) runtime: Option<Runtime>,
    pub volume: Volume,
    pub(super) controls: Arc<Faults>,
    /// Whether it repeats calls that are to be tried again later, as clients do.
    pub patient: bool,
    /// Whether each write is followed by a spill, so that nothing dirty stays in memory.
    pub spills: bool,
}

/// A moment that a test marks right before it ends what operations wait for.
#[derive(Clone, Default)]
pub struct Moment(Arc<AtomicBool>);

impl Moment {
    /// The moment has come.
    pub fn mark(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // The block cache of SlateDB locks itself forever if the runtime ends while a read of metadata begins; a
        // killed process has no such moment. So all requests are stopped before, at the door of the bucket.
        self.controls.everything.close();
        std::thread::sleep(Duration::from_millis(30));
        if let Some(runtime) = self.runtime.take() {
            // A test that has failed already must end at once, whatever hangs.
            let failed = std::thread::panicking();
            runtime.shutdown_timeout(if failed { Duration::ZERO } else { TIMEOUT });
        }
        self.controls.everything.open();
    }
}

impl Life {
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it has not ended")
    }

    /// Runs operations on the volume.
    pub fn run<T, F: Future<Output = T>>(&self, operations: impl FnOnce(Volume) -> F) -> T {
        let operations = operations(self.volume.clone());
        self.runtime()
            .block_on(async { tokio::time::timeout(TIMEOUT, operations).await })
            .expect("the operation hangs")
    }

    /// Runs one operation on the volume, and repeats it as this client does.
    fn ask<T, F>(&self, mut operation: impl FnMut(Volume) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let patient = self.patient;
        self.run(|volume| async move {
            loop {
                match operation(volume.clone()).await {
                    Err(Error::Delay) if patient => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    result => return result,
                }
            }
        })
    }

    /// Runs operations on the volume beside the test.
    pub fn spawn<T, F>(&self, operations: impl FnOnce(Volume) -> F) -> tokio::task::JoinHandle<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.runtime().spawn(operations(self.volume.clone()))
    }

    /// Like [`Life::spawn`]; the task also returns whether the moment had come when the operations ended.
    pub fn spawn_until<T, F>(
        &self,
        moment: &Moment,
        operations: impl FnOnce(Volume) -> F,
    ) -> tokio::task::JoinHandle<(T, bool)>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let moment = moment.clone();
        let operations = operations(self.volume.clone());
        self.runtime().spawn(async move {
            let result = operations.await;
            (result, moment.has_come())
        })
    }

    /// Number of calls that wait now because of this trouble.
    pub fn waiting(&self, trouble: Trouble) -> u64 {
        self.volume.troubles().counts(trouble).waiting
    }

    /// Waits for the result of a spawned task.
    pub fn join<T>(&self, task: tokio::task::JoinHandle<T>) -> T {
        self.run(|_| task).unwrap()
    }

    /// Ends like a killed process: without a stop, and without publishing. The system keeps the log's pages.
    pub fn crash(self) {
        drop(self);
    }

    /// Stops in order.
    pub fn stop(self) {
        self.run(|volume| async move { volume.close(Duration::from_secs(60)).await });
        self.crash();
    }

    pub fn flush(&self) {
        self.run(|volume| async move { volume.flush().await.unwrap() });
    }

    pub fn create(&self, name: &[u8]) -> Inode {
        self.create_in(Inode::ROOT, name)
    }

    pub fn create_in(&self, directory: Inode, name: &[u8]) -> Inode {
        let created = self.ask(|volume| async move {
            let mode = CreateMode::Guarded(SetAttributes::default());
            volume.create(&ROOT, directory, name, &mode).await
        });
        created.unwrap().attributes.inode
    }

    pub fn mkdir(&self, directory: Inode, name: &[u8]) -> Inode {
        let made = self.ask(|volume| async move {
            let set = SetAttributes::default();
            volume
                .make(&ROOT, directory, name, NewNode::Directory, &set)
                .await
        });
        made.unwrap().attributes.inode
    }

    pub fn lookup(&self, name: &[u8]) -> Attributes {
        self.try_lookup(Inode::ROOT, name).unwrap()
    }

    pub fn try_lookup(&self, directory: Inode, name: &[u8]) -> Result<Attributes, Error> {
        self.ask(|volume| async move { volume.lookup(&ROOT, directory, name).await })
    }

    pub fn getattr(&self, inode: Inode) -> Result<Attributes, Error> {
        self.ask(|volume| async move { volume.getattr(inode).await })
    }

    pub fn set(&self, caller: &Credentials, inode: Inode, set: SetAttributes) -> Result<(), Error> {
        self.ask(|volume| async move { volume.setattr(caller, inode, &set, None).await.map(drop) })
    }

    pub fn remove(&self, name: &[u8]) {
        self.try_remove(Inode::ROOT, name).unwrap();
    }

    pub fn try_remove(&self, directory: Inode, name: &[u8]) -> Result<(), Error> {
        self.ask(|volume| async move { volume.remove(&ROOT, directory, name).await.map(drop) })
    }

    pub fn rmdir(&self, directory: Inode, name: &[u8]) -> Result<(), Error> {
        self.ask(|volume| async move { volume.rmdir(&ROOT, directory, name).await.map(drop) })
    }

    pub fn rename(&self, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(), Error> {
        self.ask(|volume| async move { volume.rename(&ROOT, from, to).await.map(drop) })
    }

    pub fn link(&self, inode: Inode, to: (Inode, &[u8])) -> Result<(), Error> {
        self.ask(|volume| async move { volume.link(&ROOT, inode, to.0, to.1).await.map(drop) })
    }

    pub fn truncate(&self, inode: Inode, size: u64) {
        self.set(
            &ROOT,
            inode,
            SetAttributes {
                size: Some(size),
                ..Default::default()
            },
        )
        .unwrap();
    }

    pub fn commit(&self, inode: Inode) {
        self.ask(|volume| async move { volume.commit(&ROOT, inode, 0, 0).await.map(drop) })
            .unwrap();
    }

    /// Writes in calls of up to 1 MiB, as a client does.
    pub fn write(&self, inode: Inode, offset: u64, data: &[u8], stability: Stability) {
        let mut at = offset;
        for part in data.chunks(1 << 20) {
            let written = self
                .ask(|volume| async move { volume.write(&ROOT, inode, at, part, stability).await });
            let reply = written.unwrap();
            assert_eq!(reply.count as usize, part.len());
            assert!(reply.stability >= stability);
            at += part.len() as u64;
        }
        if self.spills {
            self.spill();
        }
    }

    /// Drops the memory of all dirty bytes that the log has.
    pub fn spill(&self) {
        self.run(|volume| async move { volume.spill_all().await });
    }

    pub fn try_write(&self, inode: Inode, offset: u64, data: &[u8]) -> Result<WriteReply, Error> {
        self.run(|volume| async move {
            volume
                .write(&ROOT, inode, offset, data, Stability::Unstable)
                .await
        })
    }

    /// Reads in calls of up to 1 MiB, up to the end of the file.
    pub fn read(&self, inode: Inode, offset: u64, len: usize) -> Vec<u8> {
        self.try_read(inode, offset, len).unwrap()
    }

    pub fn try_read(&self, inode: Inode, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.ask(|volume| async move { read(&volume, inode, offset, len).await })
    }

    /// Names in a directory, with their cookies, listed in pieces.
    pub fn list(&self, directory: Inode, piece: usize) -> Vec<DirectoryEntry> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let found = self
                .ask(|volume| async move {
                    volume.readdir(&ROOT, directory, cookie, piece, false).await
                })
                .unwrap();
            cookie = found.entries.last().map_or(cookie, |entry| entry.cookie);
            entries.extend(found.entries);
            if found.end {
                return entries;
            }
        }
    }

    /// Makes the cache evict as much as possible, by reading another file that fills it. The memory limit must be
    /// small: 16 MiB.
    pub fn evict(&self) {
        let limit = self.volume.status().memory_limit;
        assert!(limit <= 32 << 20, "with a large cache nothing is evicted");
        let name = format!("evictor-{:x}", random());
        let inode = self.create(name.as_bytes());
        for i in 0..limit >> 20 {
            self.write(inode, i << 20, &pattern(i, 1 << 20), Stability::Unstable);
        }
        self.remove(name.as_bytes());
        self.flush();
    }
}

pub async fn write(volume: &Volume, inode: Inode, offset: u64, data: &[u8], stability: Stability) {
    let mut at = offset;
    for part in data.chunks(1 << 20) {
        let reply = volume
            .write(&ROOT, inode, at, part, stability)
            .await
            .unwrap();
        assert_eq!(reply.count as usize, part.len());
        assert!(reply.stability >= stability);
        at += part.len() as u64;
    }
}

pub async fn read(
    volume: &impl FileSystem,
    inode: Inode,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let count = (len - bytes.len()).min(1 << 20) as u32;
        let at = offset + bytes.len() as u64;
        let reply = volume.read(&ROOT, inode, at, count).await?;
        reply
            .data
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        if reply.eof {
            break;
        }
    }
    Ok(bytes)
}
