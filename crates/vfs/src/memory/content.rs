//! READ, WRITE and COMMIT.

use forebay_types::{ByteRange, Inode, bounded_u32};

use super::attributes::MAX_FILE_SIZE;
use super::{MemoryFileSystem, now};
use crate::{
    Change, Credentials, Error, ReadReply, Result, Stability, Verifier, WriteReply, permission,
};

impl MemoryFileSystem {
    pub(super) fn read_file(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        let node = self.table.find(inode)?;
        let state = node.lock()?;
        let data = state.file()?;
        permission::may_read(state.owned(), caller)?;
        let size = state.attributes.size;
        let wanted = ByteRange::at(offset, u64::from(count));
        Ok(ReadReply {
            data: data.read(wanted.intersect(ByteRange::new(0, size))),
            eof: wanted.end >= size,
            attributes: state.attributes,
        })
    }

    pub(super) fn write_file(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteReply> {
        let len = data.len() as u64;
        let node = self.table.find(inode)?;
        let mut state = node.lock()?;
        let file = state.file()?;
        permission::may_write(state.owned(), caller)?;
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= MAX_FILE_SIZE)
            .ok_or(Error::FileTooLarge)?;
        let before = state.wcc();
        if len > 0 {
            self.space.take(file.growth(ByteRange::at(offset, len)))?;
            let file = state.file_mut()?;
            file.write(offset, data);
            let used = file.allocated();
            let attributes = &mut state.attributes;
            attributes.used = used;
            attributes.size = attributes.size.max(end);
            attributes.mode = permission::mode_after_write(attributes.mode, caller);
            state.touch(now());
        }
        Ok(WriteReply {
            count: bounded_u32(data.len()),
            stability,
            verifier: self.verifier,
            change: state.change_since(before),
        })
    }

    pub(super) fn commit_file(&self, inode: Inode) -> Result<(Change, Verifier)> {
        let node = self.table.find(inode)?;
        let state = node.lock()?;
        state.file()?;
        Ok((state.no_change(), self.verifier))
    }
}
