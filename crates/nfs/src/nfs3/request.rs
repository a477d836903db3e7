//! What a procedure knows of its call.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_types::Inode;
use forebay_vfs::{Access, Attributes, Change, Credentials, FileSystem};

use super::Status;
use crate::Rule;
use crate::exports::{Client, Exports, Grant};
use crate::handle::{BadHandle, HANDLE_BYTES, Handles, Named};
use crate::rpc::Credential;

/// A call's surroundings: the file system, and who asks from where.
pub(crate) struct Request<'a, F> {
    pub(crate) handles: &'a Handles,
    pub(crate) exports: &'a Exports<F>,
    pub(crate) client: &'a Client,
    /// As the call says; [`Request::identity`] is what counts.
    pub(crate) claimed: Credential,
    /// Whether the procedure is one that changes something.
    pub(crate) changes: bool,
    /// Whether the protection that an export wants of connections is not asked for: lockd of Linux clients
    /// knows no TLS.
    pub(crate) in_clear: bool,
    /// Set when the credential or the connection is not good enough for what a handle names: then the call is
    /// denied as a whole, whatever its results are.
    pub(crate) too_weak: AtomicBool,
}

/// What a handle of the call names, checked: it is ours, and the client may use its export.
pub(crate) struct Target<'a, F> {
    /// The file system as the export's clients have it.
    pub(crate) fs: &'a F,
    pub(crate) inode: Inode,
    pub(crate) grant: Grant,
    rule: &'a Rule,
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
        // A handle that was not made here, one for another export or volume, one whose export is
        // gone and one whose object is gone: all look the same. Nothing is asked of the file system before the
        // client is known to be allowed to know.
        let named = self.handles.decode(handle).map_err(|bad| match bad {
            BadHandle::Malformed => Status::BADHANDLE,
            BadHandle::Forged => Status::STALE,
        })?;
        self.admitted(named)
    }

    /// What a handle of ours names, if the export's rules let this client call for it.
    pub(crate) fn admitted(&self, named: Named) -> Result<Target<'a, F>, Status> {
        let Named { export, inode } = named;
        let grant = self.client.grant(export).ok_or(Status::STALE)?;
        let rule = self.exports.rule(grant).ok_or(Status::STALE)?;
        let fs = self.exports.fs(grant).ok_or(Status::STALE)?;
        let protected = self.in_clear || rule.transports.admit(self.client.transport);
        if !rule.takes(&self.claimed) || !protected {
            self.too_weak.store(true, Ordering::Relaxed);
            return Err(Status::ACCES);
        }
        Ok(Target {
            fs,
            inode,
            grant,
            rule,
        })
    }

    /// The handle of an object that was reached from `target`.
    pub(crate) fn handle(&self, target: Target<'_, F>, inode: Inode) -> [u8; HANDLE_BYTES] {
        let export = target.grant.export();
        self.handles.encode(Named { export, inode })
    }

    /// The identity that the caller has towards the target, if the call is one that the rules allow:
    /// whatever is asked of the file system in a client's name needs one, so no change passes by here.
    pub(crate) fn identity(&self, target: Target<'_, F>) -> Result<Cow<'_, Credentials>, Status> {
        if self.changes && target.rule.is_read_only() {
            return Err(Status::ROFS);
        }
        Ok(target.rule.identity(&self.claimed, self.client.id))
    }

    /// Of these rights those that the export's rules leave.
    pub(crate) fn allowed(&self, target: Target<'_, F>, rights: Access) -> Access {
        let changing = Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0;
        match target.rule.is_read_only() {
            true => Access(rights.0 & !changing),
            false => rights,
        }
    }

    /// Whether `..` of the target is not for the client to see.
    pub(crate) async fn leads_out(&self, target: Target<'_, F>) -> Result<bool, Status> {
        let leads_out = self.exports.leads_out(target.grant, target.inode);
        Ok(leads_out.await?)
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
