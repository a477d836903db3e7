//! The operations of NFS over one moment. Permissions to read are checked as in a volume that is written; changes fail
//! as NFS3ERR_ROFS (RFC 1813 section 2.6) before anything else is looked at.

use bytes::Bytes;
use forebay_meta::StoreError;
use forebay_meta::record::{Content, InodeRecord, Kind};
use forebay_types::{ByteRange, Inode};
use forebay_vfs::{
    Access, Attributes, Change, CreateMode, Created, Credentials, Error, FileSystem, Listing,
    NewNode, Pieces, ReadReply, Result, SetAttributes, Stability, Statistics, Timestamp, Verifier,
    WriteReply, permission,
};

use crate::convert::{DOT_DOT_COOKIE, attributes, dots, entry, owned};
use crate::moment::{View, ViewError};

/// The answer to a client for an error of the bucket.
fn answer(error: ViewError) -> Error {
    match error {
        ViewError::Metadata(StoreError::Transient(why)) | ViewError::Unavailable(why) => {
            tracing::debug!("{why}; the client tries again");
            Error::Delay
        }
        error => {
            tracing::error!("cannot read the published state: {error}");
            Error::Io
        }
    }
}

fn store_answer(error: StoreError) -> Error {
    answer(error.into())
}

impl View {
    async fn live(&self, inode: Inode) -> Result<InodeRecord> {
        let record = self.record(inode).await.map_err(answer)?;
        // An object in the trash has no name.
        let live = record.filter(|record| !record.is_in_trash());
        live.ok_or(Error::Stale)
    }

    /// A directory and its parent.
    async fn live_directory(&self, inode: Inode) -> Result<(InodeRecord, Inode)> {
        let record = self.live(inode).await?;
        let parent = record.directory().map(|own| own.parent);
        Ok((record, parent.ok_or(Error::NotDirectory)?))
    }
}

fn seen(inode: Inode, record: &InodeRecord) -> Attributes {
    attributes(inode, record, record.charged_bytes())
}

impl FileSystem for View {
    async fn getattr(&self, inode: Inode) -> Result<Attributes> {
        Ok(seen(inode, &self.live(inode).await?))
    }

    async fn setattr(
        &self,
        _caller: &Credentials,
        _inode: Inode,
        _set: &SetAttributes,
        _guard: Option<Timestamp>,
    ) -> Result<Change> {
        Err(Error::ReadOnly)
    }

    async fn lookup(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        let (record, parent) = self.live_directory(directory).await?;
        permission::may_search(owned(&record), caller)?;
        let inode = match name {
            b"." => directory,
            b".." => parent,
            _ => {
                let entry = self.catalog().name(directory, name).await;
                let entry = entry.map_err(store_answer)?;
                entry.ok_or(Error::NotFound)?.inode
            }
        };
        Ok(seen(inode, &self.live(inode).await?))
    }

    /// Grants no right to change anything, to nobody.
    async fn access(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        let record = self.live(inode).await?;
        let readable = Access(wanted.0 & (Access::READ.0 | Access::LOOKUP.0 | Access::EXECUTE.0));
        let rights = permission::access(owned(&record), caller, readable);
        Ok((rights, seen(inode, &record)))
    }

    async fn readlink(&self, _caller: &Credentials, inode: Inode) -> Result<(Bytes, Attributes)> {
        let record = self.live(inode).await?;
        match &record.content {
            Content::Symlink { target } => Ok((target.clone(), seen(inode, &record))),
            _ => Err(Error::Invalid),
        }
    }

    async fn read(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        let record = self.live(inode).await?;
        match record.kind() {
            Kind::Regular => {}
            Kind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        permission::may_read(owned(&record), caller)?;
        let asked = ByteRange::at(offset, u64::from(count));
        let wanted = asked.intersect(ByteRange::new(0, record.size));
        let mut data = Pieces::default();
        if !wanted.is_empty() {
            let bytes = self.read_range(inode, &record, wanted).await;
            data.push(Bytes::from(bytes.map_err(answer)?));
        }
        Ok(ReadReply {
            data,
            eof: offset.saturating_add(u64::from(count)) >= record.size,
            attributes: seen(inode, &record),
        })
    }

    async fn write(
        &self,
        _caller: &Credentials,
        _inode: Inode,
        _offset: u64,
        _data: &[u8],
        _stability: Stability,
    ) -> Result<WriteReply> {
        Err(Error::ReadOnly)
    }

    async fn create(
        &self,
        _caller: &Credentials,
        _directory: Inode,
        _name: &[u8],
        _mode: &CreateMode,
    ) -> Result<Created> {
        Err(Error::ReadOnly)
    }

    async fn make(
        &self,
        _caller: &Credentials,
        _directory: Inode,
        _name: &[u8],
        _node: NewNode<'_>,
        _set: &SetAttributes,
    ) -> Result<Created> {
        Err(Error::ReadOnly)
    }

    async fn remove(
        &self,
        _caller: &Credentials,
        _directory: Inode,
        _name: &[u8],
    ) -> Result<Change> {
        Err(Error::ReadOnly)
    }

    async fn rmdir(
        &self,
        _caller: &Credentials,
        _directory: Inode,
        _name: &[u8],
    ) -> Result<Change> {
        Err(Error::ReadOnly)
    }

    async fn rename(
        &self,
        _caller: &Credentials,
        _from: (Inode, &[u8]),
        _to: (Inode, &[u8]),
    ) -> Result<(Change, Change)> {
        Err(Error::ReadOnly)
    }

    async fn link(
        &self,
        _caller: &Credentials,
        _inode: Inode,
        _directory: Inode,
        _name: &[u8],
    ) -> Result<(Attributes, Change)> {
        Err(Error::ReadOnly)
    }

    async fn readdir(
        &self,
        caller: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        let (record, parent) = self.live_directory(directory).await?;
        permission::may_list(owned(&record), caller)?;
        let max_entries = max_entries.max(1);
        let mut entries: Vec<_> = dots(directory, parent, cookie, max_entries).collect();
        let wanted = max_entries - entries.len();
        let mut end = false;
        if wanted > 0 {
            let from = cookie.max(DOT_DOT_COOKIE);
            let found = self.catalog().cookies_after(directory, from, wanted).await;
            let found = found.map_err(store_answer)?;
            end = found.len() < wanted;
            entries.extend(found.into_iter().map(entry));
        }
        // A caller that may only read the names gets nothing about the named objects.
        if with_attributes && permission::may_search(owned(&record), caller).is_ok() {
            for entry in &mut entries {
                let record = self.record(entry.inode).await.map_err(answer)?;
                entry.attributes = record.map(|record| seen(entry.inode, &record));
            }
        }
        Ok(Listing {
            directory: seen(directory, &record),
            entries,
            end,
        })
    }

    async fn statistics(&self) -> Result<Statistics> {
        let state = self.state().await.map_err(answer)?.ok_or(Error::Io)?;
        Ok(Statistics {
            total_bytes: state.charged_bytes.unwrap_or(state.used_bytes),
            free_bytes: 0,
            available_bytes: 0,
            total_files: state.used_inodes,
            free_files: 0,
            available_files: 0,
        })
    }

    /// There is nothing that is not stable.
    async fn commit(
        &self,
        _caller: &Credentials,
        _inode: Inode,
        _offset: u64,
        _count: u32,
    ) -> Result<(Change, Verifier)> {
        Err(Error::ReadOnly)
    }
}
