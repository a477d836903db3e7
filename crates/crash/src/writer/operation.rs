//! An operation of a writer: its entry in the ledger, and the call that executes it.
//!
//! [`choose`](super::choose) and [`sequence`](super::sequence) decide which operation comes next and make it with the
//! functions here. The [writer](super) sends its call, and sends the same call when it repeats an operation.

use forebay_client::{Create, Handle, Request, Stable};

use crate::content::DataOp;
use crate::ledger::{Ledger, Pending};
use crate::tree::{Kind, NameOp, NodeId, Place};

/// Greatest length of a small file.
pub(super) const SMALL: u64 = 48 << 10;

/// Permission bits of new objects.
pub(super) const MODE: u32 = 0o644;

/// An operation on the bytes or the mode of a file, before it is answered.
pub(super) fn data(node: NodeId, parts: Vec<usize>, op: DataOp, stable: bool) -> Pending {
    Pending::Data {
        node,
        parts,
        op,
        stable,
        done: None,
    }
}

/// The operation that makes an object.
pub(super) fn make(place: Place, node: NodeId, kind: Kind) -> NameOp {
    NameOp::Make { place, node, kind }
}

/// The call of an operation.
pub(super) fn request(ledger: &Ledger, pending: &Pending) -> Option<Request> {
    let handle = |node: &NodeId| ledger.identities.get(node).map(|found| &found.handle);
    let within = |place: &Place| -> Option<(Handle, Vec<u8>)> {
        let name = place.name.clone().into_bytes();
        Some((handle(&place.directory)?.clone(), name))
    };
    Some(match pending {
        Pending::Name { op, .. } => match op {
            NameOp::Make { place, node, kind } => {
                let (directory, name) = within(place)?;
                match kind {
                    // Depends only on the node's number, so that a repetition is the same call.
                    Kind::File => {
                        let how = match node.0 % 3 {
                            0 => Create::Unchecked,
                            1 => Create::Guarded,
                            _ => Create::Exclusive(node.0.to_be_bytes()),
                        };
                        Request::create(&directory, &name, how, MODE)
                    }
                    Kind::Directory => Request::mkdir(&directory, &name, 0o755),
                    Kind::Symlink(target) => Request::symlink(&directory, &name, target.as_bytes()),
                }
            }
            NameOp::Link { place, node } => {
                let (directory, name) = within(place)?;
                Request::link(handle(node)?, &directory, &name)
            }
            NameOp::Rename { from, to } => {
                let ((from, old), (to, new)) = (within(from)?, within(to)?);
                Request::rename(&from, &old, &to, &new)
            }
            NameOp::Remove { place } => {
                let (directory, name) = within(place)?;
                let node = ledger.tree.names.get(place);
                let kind = node.and_then(|node| ledger.tree.kinds.get(node));
                match kind {
                    Some(Kind::Directory) => Request::rmdir(&directory, &name),
                    _ => Request::remove(&directory, &name),
                }
            }
        },
        Pending::Data {
            node, op, stable, ..
        } => match op {
            DataOp::Write { offset, length, .. } => {
                let stable = match (stable, length % 2) {
                    (false, _) => Stable::Unstable,
                    (true, 0) => Stable::DataSync,
                    (true, _) => Stable::FileSync,
                };
                Request::write(handle(node)?, *offset, &op.payload(), stable)
            }
            DataOp::Resize(size) => Request::setattr(handle(node)?, None, Some(*size)),
            DataOp::Mode(mode) => Request::setattr(handle(node)?, Some(*mode), None),
        },
        Pending::Commit { node, .. } => Request::commit(handle(node)?),
        Pending::Read {
            node,
            offset,
            expected,
            ..
        } => Request::read(handle(node)?, *offset, expected.len() as u32),
    })
}
