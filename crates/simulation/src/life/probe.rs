//! Looks at a volume between two polls, without giving tasks a turn: whatever changed just now is in memory.

use std::task::{Context, Poll, Waker};

use forebay_fs::Volume;
use forebay_types::Inode;
use forebay_vfs::{Attributes, Error, FileSystem};

use crate::operation;

/// The result of a call that needs no request; `None` if it needs one.
fn at_once<T>(call: impl Future<Output = T>) -> Option<T> {
    let mut call = std::pin::pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    match call.as_mut().poll(&mut context) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// The object of a name.
pub(super) fn found(volume: &Volume, directory: u64, name: &[u8]) -> Option<u64> {
    match at_once(volume.lookup(&operation::ROOT, Inode(directory), name)) {
        Some(Ok(attributes)) => Some(attributes.inode.0),
        _ => None,
    }
}

/// Whether there is no such name.
pub(super) fn is_free(volume: &Volume, directory: u64, name: &[u8]) -> bool {
    let looked = at_once(volume.lookup(&operation::ROOT, Inode(directory), name));
    matches!(looked, Some(Err(Error::NotFound)))
}

/// The attributes of an object that has a name.
pub(super) fn attributes(volume: &Volume, inode: u64) -> Option<Attributes> {
    at_once(volume.getattr(Inode(inode)))?.ok()
}
