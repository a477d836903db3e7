//! What a procedure knows of its call.

use std::borrow::Cow;

use forebay_types::Inode;
use forebay_vfs::{Attributes, Change, Credentials, FileSystem};

use super::Status;
use crate::exports::{Client, ExportIndex, Exports};
use crate::handle::{BadHandle, HANDLE_BYTES, Handles, Named};

/// A call's surroundings: the file system, and who asks from where.
pub(crate) struct Request<'a, F> {
    pub(crate) handles: &'a Handles,
    pub(crate) exports: &'a Exports<F>,
    pub(crate) client: &'a Client,
    /// As the call says; [`Request::identity`] is what counts.
    pub(crate) claimed: Credentials,
}

/// What a handle of the call names, checked: it is ours, and the client may use its export.
pub(crate) struct Target<'a, F> {
    /// The file system as the export's clients have it.
    pub(crate) fs: &'a F,
    pub(crate) inode: Inode,
    pub(crate) export: ExportIndex,
}

// Not derived: that would ask it of the file system too.
impl<F> Clone for Target<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Target<'_, F> {}

impl<'a, F: FileSystem> Request<'a, F> {
    /// What a handle names.
    pub(crate) fn target(&self, handle: &[u8]) -> Result<Target<'a, F>, Status> {
        let Named { export, inode } = self.handles.decode(handle).map_err(|bad| match bad {
            BadHandle::Forged => Status::BADHANDLE,
            BadHandle::OtherVolume => Status::STALE,
        })?;
        let export = self.exports.by_id(export).ok_or(Status::STALE)?;
        if !self.client.may_use(export) {
            return Err(Status::ACCES);
        }
        let fs = self.exports.fs(export).ok_or(Status::STALE)?;
        Ok(Target { fs, inode, export })
    }

    /// The handle of an object that was reached from `target`.
    pub(crate) fn handle(&self, target: Target<'_, F>, inode: Inode) -> [u8; HANDLE_BYTES] {
        let export = self.exports.id(target.export);
        self.handles.encode(Named { export, inode })
    }

    /// The identity that the caller has towards the target.
    pub(crate) fn identity(&self, target: Target<'_, F>) -> Cow<'_, Credentials> {
        self.exports.squash(target.export, &self.claimed)
    }

    /// Whether the target is where its export begins.
    pub(crate) async fn is_export_root(&self, target: Target<'_, F>) -> Result<bool, Status> {
        let is_root = self.exports.is_root(target.export, target.inode);
        Ok(is_root.await?)
    }

    /// The attributes of what a handle names.
    pub(crate) async fn getattr(&self, handle: &[u8]) -> Result<Attributes, Status> {
        let target = self.target(handle)?;
        Ok(target.fs.getattr(target.inode).await?)
    }

    /// The attributes to tell beside an error; none when the target is the error.
    pub(crate) async fn attributes(
        &self,
        target: Result<Target<'_, F>, Status>,
    ) -> Option<Attributes> {
        let target = target.ok()?;
        target.fs.getattr(target.inode).await.ok()
    }

    /// The same as the change of an object to which, as far as the caller may rely on it, nothing
    /// happened.
    pub(crate) async fn unchanged(&self, target: Result<Target<'_, F>, Status>) -> Change {
        Change {
            before: None,
            after: self.attributes(target).await,
        }
    }
}
