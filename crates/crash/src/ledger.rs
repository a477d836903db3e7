//! The ledger of a writer: its operations, and the server's answers.

use std::collections::BTreeMap;

use forebay_client::{CallId, Handle, Time, Verifier};

use crate::content::{Content, DataOp};
use crate::history::{History, Stamp, State, Step};
use crate::tree::{Kind, NameOp, NodeId, OWN, SHARED, Tree};

/// The server's identifiers of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its file handle.
    pub handle: Handle,
    /// Its inode number.
    pub fileid: u64,
}

/// A part of a file that one call at a time changes.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its states.
    pub history: History<Content>,
    /// The content with all answered steps.
    pub now: Content,
    /// The content that its client intends: with all steps, including the unanswered one.
    pub meant: Content,
    /// Whether a call is in flight.
    pub busy: bool,
}

impl Part {
    fn new(content: Content) -> Part {
        Part {
            history: History::new(content.clone()),
            now: content.clone(),
            meant: content,
            busy: false,
        }
    }
}

/// A range that was answered UNSTABLE and not committed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstable {
    /// Which part of the file.
    pub part: usize,
    /// First byte, in the file.
    pub offset: u64,
    /// Bytes.
    pub length: usize,
    /// The verifier in its answer.
    pub verifier: Verifier,
}

/// A regular file.
#[derive(Clone, Debug)]
pub struct File {
    /// One part, or one for each slot.
    pub parts: Vec<Part>,
    /// Largest size that its writer gives it.
    pub limit: u64,
    /// Bytes that a client would have to send again.
    pub unstable: Vec<Unstable>,
    /// Whether a COMMIT is in flight.
    pub committing: bool,
}

impl File {
    /// A new file: with `slots` slots of `slot` bytes, or whole if `slots` is 0.
    pub fn new(slots: u64, slot: u64, limit: u64, mode: u32) -> File {
        let parts = match slots {
            0 => vec![Part::new(Content::empty(None, mode))],
            _ => (0..slots)
                .map(|number| Part::new(Content::empty(Some((number * slot, slot)), mode)))
                .collect(),
        };
        File {
            parts,
            limit,
            unstable: Vec::new(),
            committing: false,
        }
    }

    /// Whether it is written in slots.
    pub fn is_slotted(&self) -> bool {
        self.parts.iter().any(|part| part.now.slot.is_some())
    }

    /// Whether any call on it is in flight.
    pub fn is_busy(&self) -> bool {
        self.committing || self.parts.iter().any(|part| part.busy)
    }

    /// The first range with another verifier than this one: it may be lost, and must be sent again.
    pub fn lost(&self, verifier: Verifier) -> Option<usize> {
        let lost = |range: &Unstable| range.verifier != verifier;
        self.unstable.iter().position(lost)
    }
}

/// A call that has no answer.
#[derive(Clone, Debug)]
pub enum Pending {
    /// An operation on names. `done`: whether it was found executed after a crash; `None` before.
    Name {
        /// The operation.
        op: NameOp,
        /// See above.
        done: Option<bool>,
    },
    /// An operation on content, in these parts of the file.
    Data {
        /// The file.
        node: NodeId,
        /// Its parts.
        parts: Vec<usize>,
        /// The operation.
        op: DataOp,
        /// Whether the answer promises stable storage.
        stable: bool,
        /// See above.
        done: Option<bool>,
    },
    /// COMMIT.
    Commit {
        /// The file.
        node: NodeId,
        /// Number of answered steps of each part when it was sent.
        covers: Vec<usize>,
        /// Uncommitted ranges at that time.
        ranges: usize,
    },
    /// READ of a range of a part, and the expected bytes.
    Read {
        /// The file.
        node: NodeId,
        /// The part.
        part: usize,
        /// First byte, in the file.
        offset: u64,
        /// The expected bytes.
        expected: Vec<u8>,
    },
}

/// Everything about one writer.
#[derive(Debug)]
pub struct Ledger {
    /// Its number.
    pub writer: usize,
    /// Names, all of them one object.
    pub names: History<Tree>,
    /// The names with all answered steps.
    pub tree: Tree,
    /// Whether a call about names is in flight.
    pub names_busy: bool,
    /// The server's identifiers of the objects made.
    pub identities: BTreeMap<NodeId, Identity>,
    /// Files that exist in some state since the last comparison.
    pub files: BTreeMap<NodeId, File>,
    /// Cookies of the names found by the last comparison.
    pub cookies: BTreeMap<crate::tree::Place, u64>,
    /// Calls in flight.
    pub pending: BTreeMap<CallId, Pending>,
    next_node: u64,
}

impl Ledger {
    /// A writer with an empty directory of its own.
    pub fn new(writer: usize, own: Identity, shared: Identity) -> Ledger {
        let tree = Tree {
            names: BTreeMap::new(),
            kinds: [(OWN, Kind::Directory), (SHARED, Kind::Directory)].into(),
        };
        Ledger {
            writer,
            names: History::new(tree.clone()),
            tree,
            names_busy: false,
            identities: [(OWN, own), (SHARED, shared)].into(),
            files: BTreeMap::new(),
            cookies: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_node: SHARED.0 + 1,
        }
    }

    /// A number for a new object.
    pub fn new_node(&mut self) -> NodeId {
        self.next_node += 1;
        NodeId(self.next_node)
    }

    /// A part of a file.
    pub fn part(&mut self, node: NodeId, part: usize) -> Option<&mut Part> {
        self.files.get_mut(&node)?.parts.get_mut(part)
    }

    /// Notes a call that is about to be sent.
    pub fn invoke(&mut self, call: CallId, pending: Pending, now: Stamp) {
        match &pending {
            Pending::Name { op, .. } => {
                self.names_busy = true;
                self.names.steps.push(step(op.clone(), now));
            }
            Pending::Data {
                node, parts, op, ..
            } => {
                for part in parts {
                    if let Some(part) = self.part(*node, *part) {
                        part.busy = true;
                        part.meant.apply(op);
                        part.history.steps.push(step(op.clone(), now));
                    }
                }
            }
            Pending::Commit { node, .. } => {
                if let Some(file) = self.files.get_mut(node) {
                    file.committing = true;
                }
            }
            Pending::Read { node, part, .. } => {
                if let Some(part) = self.part(*node, *part) {
                    part.busy = true;
                }
            }
        }
        self.pending.insert(call, pending);
    }

    /// Records that the unanswered operation on names was answered as executed. With `in_base`, a comparison has found
    /// it executed before, so that the base contains it.
    pub fn name_answered(&mut self, op: &NameOp, in_base: bool, now: Stamp) {
        self.names_busy = false;
        if in_base {
            return;
        }
        self.tree.apply(op);
        if let Some(last) = self.names.steps.last_mut() {
            last.answered = Some(now);
        }
        // Changes of names are stable before their answer (RFC 1813, section 4.8).
        self.names.stable = self.names.steps.len();
    }

    /// The same for an operation on content.
    pub fn data_answered(&mut self, pending: &Pending, now: Stamp, mtime: Option<Time>) {
        let Pending::Data {
            node,
            parts,
            op,
            stable,
            done,
        } = pending
        else {
            return;
        };
        for part in parts {
            let Some(part) = self.part(*node, *part) else {
                continue;
            };
            part.busy = false;
            // The mtime of a slotted file is that of the slot written last.
            let mtime = mtime.filter(|_| part.now.slot.is_none());
            if *done == Some(true) {
                part.history.base_mtime = mtime;
                continue;
            }
            part.now.apply(op);
            if let Some(last) = part.history.steps.last_mut() {
                last.answered = Some(now);
                last.mtime = mtime;
            }
            if *stable {
                part.history.stable = part.history.steps.len();
            }
        }
    }

    /// Forgets what was stable: the stable storage is lost.
    pub fn nothing_stable(&mut self) {
        self.names.stable = 0;
        for part in self.files.values_mut().flat_map(|file| &mut file.parts) {
            part.history.stable = 0;
        }
    }

    /// Makes the state found the base: names after `names` steps, and each part after its number of steps. With `keep`,
    /// unanswered calls stay in flight; otherwise they are forgotten. With `resend` the client still intends its files
    /// to be as they were.
    pub fn settle(
        &mut self,
        names: usize,
        parts: &BTreeMap<(NodeId, usize), usize>,
        keep: bool,
        resend: bool,
    ) {
        let name_done = self.names.settle(names, keep);
        self.tree = self.names.base.clone();
        self.names_busy &= keep;
        let named = self.tree.kinds.clone();
        let mut done = BTreeMap::new();
        for (node, file) in &mut self.files {
            for (index, part) in file.parts.iter_mut().enumerate() {
                // A file that is in no state of the names has no state of its own.
                let count = parts.get(&(*node, index)).copied().unwrap_or_default();
                done.insert((*node, index), part.history.settle(count, keep));
                part.now = part.history.base.clone();
                part.busy &= keep;
                if !keep && !resend {
                    part.meant = part.now.clone();
                }
            }
            if !keep {
                file.committing = false;
                if !resend {
                    file.unstable.clear();
                }
            }
        }
        if !keep {
            self.pending.clear();
        }
        let mut wanted: Vec<NodeId> = named.keys().copied().collect();
        for pending in self.pending.values_mut() {
            match pending {
                Pending::Name { op, done } => {
                    // Without a step it was found executed before, and stays so.
                    *done = name_done.or(*done);
                    if let NameOp::Make { node, .. } = op {
                        wanted.push(*node);
                    }
                }
                Pending::Data {
                    node,
                    parts,
                    done: known,
                    ..
                } => {
                    let first = parts.first().copied().unwrap_or_default();
                    *known = done.get(&(*node, first)).copied().flatten().or(*known);
                    wanted.push(*node);
                }
                Pending::Commit { covers, .. } => covers.fill(0),
                Pending::Read { .. } => {}
            }
        }
        self.files.retain(|node, _| wanted.contains(node));
        self.identities.retain(|node, _| wanted.contains(node));
    }
}

fn step<O>(op: O, invoked: Stamp) -> Step<O> {
    Step {
        op,
        invoked,
        answered: None,
        mtime: None,
    }
}
