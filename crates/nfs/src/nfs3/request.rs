//! The context of a call, as its procedure sees it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_types::Inode;
use forebay_vfs::{Access, Attributes, Change, Credentials, Trees};

use super::{Status, wire};
use crate::exports::{Client, Exports, Grant};
use crate::handle::{BadHandle, Handle, Handles, Named, Tree};
use crate::metrics::Metrics;
use crate::object::{ListedBeside, Object, Shows, TRASH_NAME};
use crate::rpc::Credential;
use crate::{FileIds, Rule};

/// Context of a call: the file system, the caller and its client.
pub(crate) struct Request<'a, F> {
    pub(crate) handles: &'a Handles,
    pub(crate) metrics: &'a Metrics,
    pub(crate) exports: &'a Exports<F>,
    pub(crate) client: &'a Client,
    /// The caller as the call claims; [`Request::identity`] is authoritative.
    pub(crate) claimed: &'a Credential,
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
    /// In the file system for the export's clients.
    pub(crate) object: Object<'a, F>,
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

impl<'a, F> Target<'a, F> {
    fn is_read_only(&self) -> bool {
        self.rule.is_read_only() || self.object.is_read_only()
    }

    /// Returns the object for a change of it or of something in it.
    pub(crate) fn to_change(self) -> Result<(&'a F, Inode), Status> {
        Ok((self.object.to_change()?, self.object.inode))
    }

    /// Checks the name of an entry that is to be made in the directory.
    pub(crate) fn check_new_name(&self, name: &[u8]) -> Result<(), Status> {
        wire::check_name(name)?;
        match self.object.is_virtual(name) {
            true => Err(Status::EXIST),
            false => Ok(()),
        }
    }

    /// Checks the name of an entry that is to be removed from the directory.
    pub(crate) fn check_old_name(&self, name: &[u8]) -> Result<(), Status> {
        wire::check_name(name)?;
        match self.object.is_virtual(name) {
            true => Err(Status::ROFS),
            false => Ok(()),
        }
    }
}

impl<'a, F: Trees> Request<'a, F> {
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
        let Named {
            export,
            tree,
            inode,
        } = named;
        let grant = self.client.grant(export).ok_or(Status::STALE)?;
        let (rule, fs) = self.exports.granted(grant).ok_or(Status::STALE)?;
        let protected = self.in_clear || rule.transports.admit(self.client.transport);
        if !rule.takes(self.claimed) || !protected {
            self.too_weak.store(true, Ordering::Relaxed);
            return Err(Status::ACCES);
        }
        // The answer for a deleted snapshot.
        let object = Object::seen(fs, tree, inode, Shows::of(rule)).ok_or(Status::STALE)?;
        Ok(Target {
            object,
            grant,
            rule,
        })
    }

    /// Returns the handle of an object that was reached from `target`.
    pub(crate) fn handle(&self, target: Target<'_, F>, object: Object<'_, F>) -> Handle {
        self.handles.encode(Named {
            export: target.grant.export(),
            tree: object.tree,
            inode: object.inode,
        })
    }

    /// How attributes name an object of the target's tree. Without a target there are no attributes.
    pub(crate) fn ids(&self, target: Result<Target<'_, F>, Status>) -> FileIds {
        let tree = target.map_or(Tree::Live, |target| target.object.tree);
        self.handles.ids(tree)
    }

    /// Returns the caller's identity towards the target, if the rules allow the call. Every operation
    /// on behalf of a client needs an identity, so no change can bypass the rules.
    pub(crate) fn identity(&self, target: Target<'_, F>) -> Result<Cow<'_, Credentials>, Status> {
        if self.changes && target.is_read_only() {
            return Err(Status::ROFS);
        }
        Ok(target.rule.identity(self.claimed, self.client.id))
    }

    /// Returns those of these rights that the export's rules allow.
    pub(crate) fn allowed(&self, target: Target<'_, F>, rights: Access) -> Access {
        let changing = Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0;
        match target.is_read_only() {
            true => Access(rights.0 & !changing),
            false => rights,
        }
    }

    /// Whether `..` of the target must be hidden from the client.
    pub(crate) async fn leads_out(&self, target: Target<'_, F>) -> Result<bool, Status> {
        let leads_out = self.exports.leads_out(target.grant, target.object);
        Ok(leads_out.await?)
    }

    /// The directories beside its own that the listing of the target has.
    pub(crate) async fn listed_beside(
        &self,
        target: Target<'_, F>,
    ) -> Result<ListedBeside, Status> {
        let listed = target.object.listed_in_top();
        if listed == ListedBeside::default() {
            return Ok(listed);
        }
        match self.exports.is_top(target.grant, target.object).await? {
            true => Ok(listed),
            false => Ok(ListedBeside::default()),
        }
    }

    /// The target of a call that uses this name in it: the export's own directory has the name `.trash`, unless the rule says
    /// otherwise.
    pub(crate) async fn with_name(
        &self,
        target: Target<'a, F>,
        name: &[u8],
    ) -> Result<Target<'a, F>, Status> {
        if name != TRASH_NAME || !self.exports.is_top(target.grant, target.object).await? {
            return Ok(target);
        }
        Ok(Target {
            object: target.object.as_top(),
            ..target
        })
    }

    /// Returns the attributes of the object that a handle names, and how they name it.
    pub(crate) async fn getattr(&self, handle: &[u8]) -> Result<(FileIds, Attributes), Status> {
        let target = self.target(handle)?;
        Ok((self.ids(Ok(target)), target.object.getattr().await?))
    }

    /// Returns the attributes for an error reply; `None` when the target itself is the error.
    pub(crate) async fn attributes(
        &self,
        target: Result<Target<'_, F>, Status>,
    ) -> Option<Attributes> {
        let target = target.ok()?;
        target.object.getattr().await.ok()
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
