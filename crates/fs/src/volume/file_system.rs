//! The operations of front ends on a volume: each is recorded by [`Files`](crate::files::Files), and answered when it is as
//! stable as the caller and the export ask for.

use bytes::Bytes;
use forebay_types::{Inode, bounded_u32};
use forebay_vfs::{
    Access, Attributes, Change, CreateMode, Created, Credentials, FileSystem, Listing, NewNode,
    ReadReply, Result, SetAttributes, Stability, Statistics, Timestamp, Verifier, WriteReply,
};
use forebay_waits::{For, waiting};

use super::Volume;
use crate::files::durability::{CommitMode, Recorded};
use crate::files::read::Place;

impl Volume {
    /// Waits until a change that cannot be made a second time is stable; returns its reply.
    pub(super) async fn settle_once<T>(&self, recorded: Recorded<T>) -> Result<T> {
        self.files.stable_once(recorded.end, self.commit).await?;
        Ok(recorded.reply)
    }

    /// Waits until a change that may be repeated is stable; returns its reply.
    async fn settle<T>(&self, recorded: Recorded<T>) -> Result<T> {
        self.files.stable(recorded.end, self.commit).await?;
        Ok(recorded.reply)
    }

    /// The same for a stable WRITE.
    async fn settle_bytes<T>(&self, inode: Inode, recorded: Recorded<T>) -> Result<T> {
        let reply = self.settle(recorded).await?;
        if self.commit == CommitMode::Bucket {
            self.files.check_written(inode).await?;
        }
        Ok(reply)
    }
}

impl FileSystem for Volume {
    async fn getattr(&self, inode: Inode) -> Result<Attributes> {
        self.files.getattr(inode).await
    }

    async fn setattr(
        &self,
        caller: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Change> {
        let recorded = self.files.setattr(caller, inode, set, guard).await?;
        match guard {
            // If repeated, it would find the ctime that it set itself.
            Some(_) => self.settle_once(recorded).await,
            None => self.settle(recorded).await,
        }
    }

    async fn lookup(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        self.files.lookup(caller, directory, name).await
    }

    async fn access(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        self.files.access(caller, inode, wanted).await
    }

    async fn readlink(&self, _caller: &Credentials, inode: Inode) -> Result<(Bytes, Attributes)> {
        self.files.readlink(inode).await
    }

    async fn read(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        let wanted = (offset, count);
        self.files.read(caller, inode, wanted, Place::Named).await
    }

    fn read_in_memory(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        self.files.read_in_memory(caller, inode, offset, count)
    }

    async fn write(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteReply> {
        let written = self
            .files
            .write(caller, inode, offset, data, self.compression);
        let recorded = written.await?;
        let (change, reached) = match stability {
            Stability::Unstable => {
                let complete = self.files.state.journal().complete(recorded.end);
                waiting(For::Flush, complete).await;
                (recorded.reply, Stability::Unstable)
            }
            Stability::DataSync | Stability::FileSync => {
                let change = self.settle_bytes(inode, recorded).await?;
                (change, Stability::FileSync)
            }
        };
        Ok(WriteReply {
            // NFS counts the bytes of a write in 32 bits.
            count: bounded_u32(data.len()),
            stability: reached,
            verifier: self.files.state.verifier(),
            change,
        })
    }

    async fn create(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> Result<Created> {
        let recorded = self.files.create(caller, directory, name, mode).await?;
        match mode {
            CreateMode::Guarded(_) => self.settle_once(recorded).await,
            CreateMode::Unchecked(_) | CreateMode::Exclusive(_) => self.settle(recorded).await,
        }
    }

    async fn make(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.settle_once(self.files.make(caller, directory, name, node, set).await?)
            .await
    }

    async fn remove(&self, caller: &Credentials, directory: Inode, name: &[u8]) -> Result<Change> {
        self.settle_once(self.files.remove(caller, directory, name, false).await?)
            .await
    }

    async fn rmdir(&self, caller: &Credentials, directory: Inode, name: &[u8]) -> Result<Change> {
        self.settle_once(self.files.remove(caller, directory, name, true).await?)
            .await
    }

    async fn rename(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> Result<(Change, Change)> {
        self.settle_once(self.files.rename(caller, from, to).await?)
            .await
    }

    async fn link(
        &self,
        caller: &Credentials,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<(Attributes, Change)> {
        self.settle_once(self.files.link(caller, inode, directory, name).await?)
            .await
    }

    async fn readdir(
        &self,
        caller: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        self.files
            .readdir(caller, directory, cookie, max_entries, with_attributes)
            .await
    }

    async fn statistics(&self) -> Result<Statistics> {
        Ok(self.files.statistics())
    }

    async fn statistics_at(&self, inode: Inode) -> Result<Statistics> {
        self.files.statistics_at(inode).await
    }

    async fn commit(
        &self,
        _caller: &Credentials,
        inode: Inode,
        _offset: u64,
        _count: u32,
    ) -> Result<(Change, Verifier)> {
        let recorded = self.files.commit(inode).await?;
        // From before the flush: if it changes meanwhile, something was lost.
        let verifier = self.files.state.verifier();
        let node = self.settle(recorded).await?;
        // Its client may be about to forget them.
        self.files.check_written(inode).await?;
        let state = node.lock_live()?;
        let change = Change {
            before: Some(node.wcc(&state)),
            after: Some(node.attributes(&state)),
        };
        Ok((change, verifier))
    }
}
