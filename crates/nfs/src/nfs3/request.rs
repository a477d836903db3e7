//! The context of a call, as its procedure sees it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_types::Inode;
use forebay_vfs::{Access, Attributes, Change, Credentials, FileSystem};

use super::Status;
use crate::Rule;
use crate::exports::{Client, Exports, Grant};
use crate::handle::{BadHandle, HANDLE_BYTES, Handles, Named};
use crate::metrics::Metrics;
use crate::rpc::Credential;

/// Context of a call: the file system, the caller and its client.
pub(crate) struct Request<'a, F> {
    pub(crate) handles: &'a Handles,
    pub(crate) metrics: &'a Metrics,
    pub(crate) exports: &'a Exports<F>,
    pub(crate) client: &'a Client,
    /// The caller as the call claims; [`Request::identity`] is authoritative.
    pub(crate) claimed: Credential,
    /// Whether the procedure changes something.
    pub(crate) changes: bool,
    /// Whether the call is exempt from the protection that an export requires of connections: lockd of Linux clients
    /// does not support TLS.
    pub(crate) in_clear: bool,
    /// Set when the credential or the connection is not good enough for the export of a handle: then the call is
    /// denied as a whole, whatever its results are.
    pub(crate) too_weak: AtomicBool,
}

/// The object that a handle of the call names. The checks are done: this server made the handle, and the client may
/// use its export.
pub(crate) struct Target<'a, F> {
    /// The file system for the export's clients.
    pub(crate) fs: &'a F,
    pub(crate) inode: Inode,
    pub(crate) grant: Grant,
    rule: &'a Rule,
}

// Not derived: a derived impl would require `F: Clone`.
impl<F> Clone for Target<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Target<'_, F> {}

impl<'a, F: FileSystem> Request<'a, F> {
    /// Checks a handle and returns its target.
    pub(crate) fn target(&self, handle: &[u8]) -> Result<Target<'a, F>, Status> {
        // A handle that this server did not make, one for another export or volume, one whose export no longer
        // exists and one whose object was deleted all get the same error. The file system is not asked before the
        // client is known to have access.
        let named = self.handles.decode(handle).map_err(|bad| match bad {
            BadHandle::Malformed => Status::BADHANDLE,
            BadHandle::Forged => Status::STALE,
        })?;
        self.admitted(named)
    }

    /// Returns the target of a valid handle, if the export's rules allow this client to use it.
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

    /// Returns the handle of an object that was reached from `target`.
    pub(crate) fn handle(&self, target: Target<'_, F>, inode: Inode) -> [u8; HANDLE_BYTES] {
        let export = target.grant.export();
        self.handles.encode(Named { export, inode })
    }

    /// Returns the caller's identity towards the target, if the rules allow the call. Every operation
    /// on behalf of a client needs an identity, so no change can bypass the rules.
    pub(crate) fn identity(&self, target: Target<'_, F>) -> Result<Cow<'_, Credentials>, Status> {
        if self.changes && target.rule.is_read_only() {
            return Err(Status::ROFS);
        }
        Ok(target.rule.identity(&self.claimed, self.client.id))
    }

    /// Returns those of these rights that the export's rules allow.
    pub(crate) fn allowed(&self, target: Target<'_, F>, rights: Access) -> Access {
        let changing = Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0;
        match target.rule.is_read_only() {
            true => Access(rights.0 & !changing),
            false => rights,
        }
    }

    /// Whether `..` of the target must be hidden from the client.
    pub(crate) async fn leads_out(&self, target: Target<'_, F>) -> Result<bool, Status> {
        let leads_out = self.exports.leads_out(target.grant, target.inode);
        Ok(leads_out.await?)
    }

    /// Returns the attributes of the object that a handle names.
    pub(crate) async fn getattr(&self, handle: &[u8]) -> Result<Attributes, Status> {
        let target = self.target(handle)?;
        Ok(target.fs.getattr(target.inode).await?)
    }

    /// Returns the attributes for an error reply; `None` when the target itself is the error.
    pub(crate) async fn attributes(
        &self,
        target: Result<Target<'_, F>, Status>,
    ) -> Option<Attributes> {
        let target = target.ok()?;
        target.fs.getattr(target.inode).await.ok()
    }

    /// Returns the current attributes as a [`Change`] of an object that, as far as the caller may rely on it, did
    /// not change.
    pub(crate) async fn unchanged(&self, target: Result<Target<'_, F>, Status>) -> Change {
        Change {
            before: None,
            after: self.attributes(target).await,
        }
    }
}
