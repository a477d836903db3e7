//! A small file system in memory, whose states are written as the metadata of a volume.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_meta::record::{
    BlockMap, Content, Directory, FrameAddress, InodeRecord, Kind, NameRecord, Record, Timestamp,
    TruncatedBlocks,
};
use forebay_meta::{Batch, Key};
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId};

/// Names that a tree uses: few, so that they are used again.
pub(crate) const NAMES: [&[u8]; 6] = [b"a", b"b", b"c d", b"\xff\n", b" -> ", "\u{fc}".as_bytes()];

/// A change of a tree; the numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) way: u8,
    pub(crate) one: u16,
    pub(crate) other: u16,
    pub(crate) name: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) is_directory: bool,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// Another number for each content.
    pub(crate) content: u64,
    pub(crate) mtime: i64,
    ctime: i64,
    /// The pack of its block map; 0 if it has none.
    pack: u64,
    is_truncated: bool,
    parent: u64,
}

/// A state of the file system.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) names: BTreeMap<(u64, Vec<u8>), u64>,
    next: u64,
    clock: i64,
    /// Files whose packs were rewritten.
    pub(crate) rewritten: BTreeSet<u64>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let mut tree = Tree {
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            next: 2,
            clock: 1,
            rewritten: BTreeSet::new(),
        };
        tree.nodes.insert(1, tree.node(true, 1));
        tree
    }

    fn node(&self, is_directory: bool, parent: u64) -> Node {
        Node {
            is_directory,
            mode: 0o755,
            size: 0,
            content: 0,
            mtime: self.clock,
            ctime: self.clock,
            pack: 0,
            is_truncated: false,
            parent,
        }
    }

    fn some(&self, number: u16, is_directory: bool) -> Option<u64> {
        let all = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_directory == is_directory);
        let all: Vec<u64> = all.map(|(inode, _)| *inode).collect();
        let at = usize::from(number) % all.len().max(1);
        all.get(at).copied()
    }

    fn some_name(&self, number: u16) -> Option<((u64, Vec<u8>), u64)> {
        let at = usize::from(number) % self.names.len().max(1);
        let found = self.names.iter().nth(at);
        found.map(|(name, inode)| (name.clone(), *inode))
    }

    fn is_below(&self, mut inode: u64, above: u64) -> bool {
        while inode != 1 {
            if inode == above {
                return true;
            }
            inode = self.nodes[&inode].parent;
        }
        above == 1
    }

    /// Makes a change, or none if it is not possible.
    pub(crate) fn step(&mut self, step: Step) {
        self.clock += 1;
        let clock = self.clock;
        let name = NAMES[usize::from(step.name) % NAMES.len()].to_vec();
        let Some(directory) = self.some(step.other, true) else {
            return;
        };
        let place = (directory, name);
        match step.way {
            0..4 => {
                if !self.names.contains_key(&place) {
                    let inode = self.next;
                    self.next += 1;
                    let is_directory = step.way < 2;
                    self.nodes.insert(inode, self.node(is_directory, directory));
                    self.names.insert(place, inode);
                    self.touch_directory(directory);
                }
            }
            4 => {
                if let Some((place, inode)) = self.some_name(step.one) {
                    self.remove(&place, inode);
                }
            }
            5..8 => {
                if let Some((from, inode)) = self.some_name(step.one) {
                    self.rename(from, inode, place);
                }
            }
            8 => {
                if let Some(inode) = self.some(step.one, false)
                    && !self.names.contains_key(&place)
                {
                    self.names.insert(place, inode);
                    self.change(inode, |node| node.ctime = clock);
                }
            }
            _ => self.change_object(step),
        }
    }

    fn change_object(&mut self, step: Step) {
        let clock = self.clock;
        let file = self.some(step.one, false);
        match (step.way, file) {
            (9, _) => {
                let inode = self.some(step.one, step.name.is_multiple_of(2));
                inode.into_iter().for_each(|inode| {
                    self.change(inode, |node| {
                        node.mode = 0o700 + u32::from(step.other) % 8;
                        node.ctime = clock;
                    });
                });
            }
            (10 | 11, Some(file)) => self.change(file, |node| {
                node.size = node.size.max(u64::from(step.other) % 3 + 1);
                (node.content, node.pack) = (clock as u64, clock as u64);
                (node.mtime, node.ctime, node.is_truncated) = (clock, clock, false);
            }),
            // A write whose time is put back to the old one.
            (12, Some(file)) => self.change(file, |node| {
                node.size = node.size.max(1);
                (node.content, node.pack) = (clock as u64, clock as u64);
                (node.ctime, node.is_truncated) = (clock, false);
            }),
            (13, Some(file)) => self.change(file, |node| {
                (node.mtime, node.ctime) = (i64::from(step.other), clock);
            }),
            // Cut to nothing, and made as long as before.
            (14, Some(file)) => self.change(file, |node| {
                node.content = 0;
                (node.mtime, node.ctime) = (clock, clock);
                node.is_truncated = node.pack > 0;
            }),
            (15, Some(file)) => self.change(file, |node| {
                if node.is_truncated {
                    (node.is_truncated, node.pack) = (false, 0);
                }
            }),
            (16, Some(file)) if self.nodes[&file].pack > 0 => {
                self.rewritten.insert(file);
                self.change(file, |node| node.pack = (1 << 40) + clock as u64);
            }
            _ => {}
        }
    }

    fn change(&mut self, inode: u64, change: impl FnOnce(&mut Node)) {
        change(self.nodes.get_mut(&inode).unwrap());
    }

    fn touch_directory(&mut self, directory: u64) {
        let clock = self.clock;
        self.change(directory, |node| (node.mtime, node.ctime) = (clock, clock));
    }

    fn remove(&mut self, place: &(u64, Vec<u8>), inode: u64) {
        if self.names.keys().any(|(directory, _)| *directory == inode) {
            return;
        }
        self.names.remove(place);
        self.touch_directory(place.0);
        let clock = self.clock;
        match self.names.values().any(|other| *other == inode) {
            true => self.change(inode, |node| node.ctime = clock),
            false => drop(self.nodes.remove(&inode)),
        }
    }

    fn rename(&mut self, from: (u64, Vec<u8>), inode: u64, to: (u64, Vec<u8>)) {
        let is_directory = self.nodes[&inode].is_directory;
        if is_directory && self.is_below(to.0, inode) || from == to {
            return;
        }
        if let Some(replaced) = self.names.get(&to).copied() {
            if replaced == inode || self.nodes[&replaced].is_directory != is_directory {
                return;
            }
            self.remove(&to, replaced);
            if self.names.contains_key(&to) {
                return;
            }
        }
        self.names.remove(&from);
        self.touch_directory(from.0);
        self.touch_directory(to.0);
        let clock = self.clock;
        self.change(inode, |node| {
            node.ctime = clock;
            if is_directory {
                node.parent = to.0;
            }
        });
        self.names.insert(to, inode);
    }

    /// The metadata of this state.
    pub(crate) fn entries(&self) -> BTreeMap<Bytes, Bytes> {
        let mut batch = Batch::new();
        for (inode, node) in &self.nodes {
            batch.put(&Key::Inode(Inode(*inode)), &self.record(*inode, node));
            if node.pack > 0 {
                let mut map = BlockMap::new();
                let range = ByteRange::new(0, node.size);
                map.insert(range, frame(node)).unwrap();
                let block = BlockKey {
                    inode: Inode(*inode),
                    block: BlockIndex(0),
                };
                batch.put(&Key::Block(block), &map);
            }
        }
        for ((directory, name), inode) in &self.names {
            let kind = kind(&self.nodes[inode]);
            let record = NameRecord {
                inode: Inode(*inode),
                cookie: 3,
                kind,
            };
            batch.put(&Key::Name(Inode(*directory), name.clone().into()), &record);
        }
        let changes = batch.changes().iter();
        changes
            .map(|(key, value)| (key.clone(), value.clone().value().unwrap()))
            .collect()
    }

    fn record(&self, inode: u64, node: &Node) -> InodeRecord {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let mut truncated = TruncatedBlocks::default();
        if node.is_truncated {
            truncated.add_from(BlockIndex(0));
        }
        let names = |inode| self.names.values().filter(|other| **other == inode).count();
        let entries = self
            .names
            .keys()
            .filter(|(directory, _)| *directory == inode);
        InodeRecord {
            content: match node.is_directory {
                true => Content::Directory(Directory {
                    parent: Inode(node.parent),
                    next_cookie: 3,
                    entries: entries.count() as u64,
                }),
                false => Content::Regular,
            },
            mode: node.mode,
            uid: 0,
            gid: 0,
            nlink: (names(inode) + usize::from(node.is_directory)) as u32,
            size: node.size,
            used: node.size,
            atime: at(0),
            mtime: at(node.mtime),
            ctime: at(node.ctime),
            create_verifier: None,
            tree: None,
            truncated,
        }
    }

    /// The place of a path, and the object there.
    pub(crate) fn at(&self, path: &[u8]) -> Option<((u64, Vec<u8>), u64)> {
        let mut found = ((1, Vec::new()), 1);
        for name in path.split(|byte| *byte == b'/').skip(1) {
            if name.is_empty() {
                continue;
            }
            let place = (found.1, name.to_vec());
            found = (place.clone(), *self.names.get(&place)?);
        }
        Some(found)
    }
}

fn kind(node: &Node) -> Kind {
    match node.is_directory {
        true => Kind::Directory,
        false => Kind::Regular,
    }
}

fn frame(node: &Node) -> FrameAddress {
    FrameAddress {
        pack: PackId(node.pack),
        offset: 0,
        stored_len: 10,
        raw_len: node.size as u32,
        raw_start: 0,
        crc32: 7,
        origin: None,
    }
}

/// What a record of the schema says of itself, so that a test that builds one by hand fails when it is not read back.
#[test]
fn states_can_be_read_back() {
    let mut tree = Tree::new();
    for number in 0..40 {
        tree.step(Step {
            way: number % 17,
            one: u16::from(number),
            other: 3,
            name: number,
        });
    }
    for (key, value) in tree.entries() {
        match Key::decode(&key).unwrap() {
            Key::Inode(_) => drop(InodeRecord::decode(&key, &value).unwrap()),
            Key::Name(..) => drop(NameRecord::decode(&key, &value).unwrap()),
            _ => drop(BlockMap::decode(&key, &value).unwrap()),
        }
    }
}
