//! A file system that is too simple to be wrong, and operations that run on it and on a volume alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileKind, FileSystem, NewNode, SetAttributes, Stability};

use super::{Life, ROOT, assert_bytes, pattern};

/// The largest size of a file: three blocks.
pub const MAX_SIZE: u64 = 9 << 20;

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e\xff", b"f"];

#[derive(Clone, Debug)]
pub enum Object {
    Directory(BTreeMap<&'static [u8], u64>),
    File(Arc<Vec<u8>>),
}

/// One operation. Objects and names are given by numbers, which are reduced to those that exist.
#[derive(Clone, Debug)]
pub enum Op {
    Create(u8, u8),
    Mkdir(u8, u8),
    Write {
        file: u8,
        offset: u32,
        len: u32,
        seed: u8,
        stable: bool,
    },
    Truncate {
        file: u8,
        size: u32,
    },
    Read {
        file: u8,
        offset: u32,
        len: u32,
    },
    Rename {
        from: (u8, u8),
        to: (u8, u8),
    },
    Link {
        file: u8,
        to: (u8, u8),
    },
    Remove(u8, u8),
    Rmdir(u8, u8),
}

/// The state, by inode. Clones share content.
#[derive(Clone, Debug)]
pub struct Model {
    objects: BTreeMap<u64, Object>,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            objects: BTreeMap::from([(Inode::ROOT.0, Object::Directory(BTreeMap::new()))]),
        }
    }
}

impl Model {
    fn directories(&self) -> Vec<u64> {
        let is_directory = |(_, object): &(&u64, &Object)| matches!(object, Object::Directory(_));
        self.objects
            .iter()
            .filter(is_directory)
            .map(|(inode, _)| *inode)
            .collect()
    }

    fn directory(&self, number: u8) -> u64 {
        let all = self.directories();
        all[usize::from(number) % all.len()]
    }

    fn file(&self, number: u8) -> Option<u64> {
        let is_file = |(_, object): &(&u64, &Object)| matches!(object, Object::File(_));
        let all: Vec<u64> = self
            .objects
            .iter()
            .filter(is_file)
            .map(|(inode, _)| *inode)
            .collect();
        (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
    }

    fn names(&self, directory: u64) -> &BTreeMap<&'static [u8], u64> {
        match &self.objects[&directory] {
            Object::Directory(names) => names,
            Object::File(_) => panic!("{directory} is a file"),
        }
    }

    fn names_mut(&mut self, directory: u64) -> &mut BTreeMap<&'static [u8], u64> {
        match self.objects.get_mut(&directory) {
            Some(Object::Directory(names)) => names,
            _ => panic!("{directory} is no directory"),
        }
    }

    fn content(&self, file: u64) -> &[u8] {
        match &self.objects[&file] {
            Object::File(content) => content,
            Object::Directory(_) => panic!("{file} is a directory"),
        }
    }

    fn content_mut(&mut self, file: u64) -> &mut Vec<u8> {
        match self.objects.get_mut(&file) {
            Some(Object::File(content)) => Arc::make_mut(content),
            _ => panic!("{file} is no file"),
        }
    }

    fn is_file(&self, inode: u64) -> bool {
        matches!(self.objects[&inode], Object::File(_))
    }

    fn links(&self, file: u64) -> usize {
        let names = self
            .directories()
            .into_iter()
            .flat_map(|inode| self.names(inode).values());
        names.filter(|inode| **inode == file).count()
    }

    fn is_below(&self, inode: u64, ancestor: u64) -> bool {
        inode == ancestor
            || self
                .names(ancestor)
                .values()
                .any(|child| !self.is_file(*child) && self.is_below(inode, *child))
    }

    /// Removes a name, and the object with its last one.
    fn unlink(&mut self, directory: u64, name: &'static [u8]) {
        let inode = self.names_mut(directory).remove(name).unwrap();
        if self.links(inode) == 0 {
            self.objects.remove(&inode);
        }
    }

    /// Renames if that must succeed; returns whether it must.
    fn rename(&mut self, from: (u64, &'static [u8]), to: (u64, &'static [u8])) -> bool {
        let Some(&moved) = self.names(from.0).get(from.1) else {
            return false;
        };
        if !self.is_file(moved) && self.is_below(to.0, moved) {
            return false;
        }
        if let Some(&replaced) = self.names(to.0).get(to.1) {
            if replaced == moved {
                return true;
            }
            if self.is_file(replaced) != self.is_file(moved) {
                return false;
            }
            if !self.is_file(replaced) && !self.names(replaced).is_empty() {
                return false;
            }
            self.unlink(to.0, to.1);
        }
        self.names_mut(from.0).remove(from.1);
        self.names_mut(to.0).insert(to.1, moved);
        true
    }

    /// Runs one operation on the volume and on the model; both must agree.
    pub fn step(&mut self, life: &Life, op: &Op) {
        let name = |number: u8| NAMES[usize::from(number) % NAMES.len()];
        match *op {
            Op::Create(directory, number) => {
                let (directory, name) = (self.directory(directory), name(number));
                let made = life.run(|volume| async move {
                    let mode = CreateMode::Guarded(SetAttributes::default());
                    volume.create(&ROOT, Inode(directory), name, &mode).await
                });
                let free = !self.names(directory).contains_key(name);
                assert_eq!(made.is_ok(), free, "{op:?}");
                if let Ok(made) = made {
                    let inode = made.attributes.inode.0;
                    self.names_mut(directory).insert(name, inode);
                    let known = self.objects.insert(inode, Object::File(Arc::default()));
                    assert!(known.is_none(), "inode {inode} is used again");
                }
            }
            Op::Mkdir(directory, number) => {
                let (directory, name) = (self.directory(directory), name(number));
                let made = life.run(|volume| async move {
                    let set = SetAttributes::default();
                    volume
                        .make(&ROOT, Inode(directory), name, NewNode::Directory, &set)
                        .await
                });
                let free = !self.names(directory).contains_key(name);
                assert_eq!(made.is_ok(), free, "{op:?}");
                if let Ok(made) = made {
                    let inode = made.attributes.inode.0;
                    self.names_mut(directory).insert(name, inode);
                    self.objects
                        .insert(inode, Object::Directory(BTreeMap::new()));
                }
            }
            Op::Write {
                file,
                offset,
                len,
                seed,
                stable,
            } => {
                let Some(file) = self.file(file) else { return };
                let offset = u64::from(offset) % MAX_SIZE;
                let len = u64::from(len).min(MAX_SIZE - offset) as usize;
                let data = pattern(u64::from(seed), len);
                let stability = if stable {
                    Stability::FileSync
                } else {
                    Stability::Unstable
                };
                life.write(Inode(file), offset, &data, stability);
                if len > 0 {
                    let content = self.content_mut(file);
                    let start = offset as usize;
                    content.resize(content.len().max(start + len), 0);
                    content[start..start + len].copy_from_slice(&data);
                }
            }
            Op::Truncate { file, size } => {
                let Some(file) = self.file(file) else { return };
                let size = u64::from(size) % MAX_SIZE;
                life.truncate(Inode(file), size);
                self.content_mut(file).resize(size as usize, 0);
            }
            Op::Read { file, offset, len } => {
                let Some(file) = self.file(file) else { return };
                let offset = u64::from(offset) % MAX_SIZE;
                let content = self.content(file);
                let start = content.len().min(offset as usize);
                let end = content.len().min(start + len as usize);
                assert_bytes(
                    &life.read(Inode(file), offset, len as usize),
                    &content[start..end],
                );
            }
            Op::Rename { from, to } => {
                let from = (self.directory(from.0), name(from.1));
                let to = (self.directory(to.0), name(to.1));
                let done = life.rename((Inode(from.0), from.1), (Inode(to.0), to.1));
                assert_eq!(done.is_ok(), self.rename(from, to), "{op:?}: {done:?}");
            }
            Op::Link { file, to } => {
                let Some(file) = self.file(file) else { return };
                let to = (self.directory(to.0), name(to.1));
                let done = life.link(Inode(file), (Inode(to.0), to.1));
                let free = !self.names(to.0).contains_key(to.1);
                assert_eq!(done.is_ok(), free, "{op:?}: {done:?}");
                if free {
                    self.names_mut(to.0).insert(to.1, file);
                }
            }
            Op::Remove(directory, number) | Op::Rmdir(directory, number) => {
                let (directory, name) = (self.directory(directory), name(number));
                let of_file = matches!(op, Op::Remove(..));
                let done = if of_file {
                    life.try_remove(Inode(directory), name)
                } else {
                    life.rmdir(Inode(directory), name)
                };
                let may = self.names(directory).get(name).is_some_and(|inode| {
                    self.is_file(*inode) == of_file && (of_file || self.names(*inode).is_empty())
                });
                assert_eq!(done.is_ok(), may, "{op:?}: {done:?}");
                if may {
                    self.unlink(directory, name);
                }
            }
        }
    }

    /// Checks that the volume holds exactly this.
    pub fn check(&self, life: &Life) {
        for (inode, object) in &self.objects {
            let inode = Inode(*inode);
            let attributes = life
                .getattr(inode)
                .unwrap_or_else(|error| panic!("{inode}: {error}"));
            match object {
                Object::File(content) => {
                    assert_eq!(attributes.kind, FileKind::Regular);
                    assert_eq!(attributes.size, content.len() as u64, "size of {inode}");
                    assert_eq!(attributes.nlink as usize, self.links(inode.0));
                    assert_bytes(&life.read(inode, 0, content.len() + 1), content);
                }
                Object::Directory(names) => {
                    assert_eq!(attributes.kind, FileKind::Directory);
                    let listed: BTreeMap<Vec<u8>, u64> = life
                        .list(inode, 4)
                        .into_iter()
                        .skip(2)
                        .map(|entry| (entry.name.to_vec(), entry.inode.0))
                        .collect();
                    let expected: BTreeMap<Vec<u8>, u64> = names
                        .iter()
                        .map(|(name, inode)| (name.to_vec(), *inode))
                        .collect();
                    assert_eq!(listed, expected, "names in {inode}");
                    for (name, child) in names {
                        assert_eq!(life.try_lookup(inode, name).unwrap().inode.0, *child);
                    }
                }
            }
        }
        let inodes = life.volume.status().inodes;
        assert_eq!(
            inodes,
            self.objects.len() as u64,
            "objects that are not reachable"
        );
    }
}

impl Model {
    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Adds the tree that `then` has, which was restored under this name in the root.
    pub fn adopt(&mut self, life: &Life, then: &Model, name: &'static [u8]) {
        let top = life.lookup(name).inode.0;
        self.names_mut(Inode::ROOT.0).insert(name, top);
        let mut copies = BTreeMap::new();
        let mut below = vec![(Inode::ROOT.0, top)];
        while let Some((from, to)) = below.pop() {
            let object = match &then.objects[&from] {
                Object::Directory(names) => {
                    let mut own = BTreeMap::new();
                    for (name, child) in names {
                        let made = life.try_lookup(Inode(to), name).unwrap().inode.0;
                        own.insert(*name, made);
                        match copies.insert(*child, made) {
                            Some(other) => assert_eq!(made, other, "names of one file"),
                            None => below.push((*child, made)),
                        }
                    }
                    Object::Directory(own)
                }
                file => file.clone(),
            };
            self.objects.insert(to, object);
        }
    }

    /// Compares a file system that is read only, such as a snapshot, with the model.
    pub async fn check_read_only(&self, files: &impl FileSystem) {
        for (inode, object) in &self.objects {
            let inode = Inode(*inode);
            let attributes = files.getattr(inode).await;
            let attributes = attributes.unwrap_or_else(|error| panic!("{inode}: {error}"));
            match object {
                Object::File(content) => {
                    assert_eq!(attributes.kind, FileKind::Regular);
                    assert_eq!(attributes.size, content.len() as u64, "size of {inode}");
                    assert_eq!(attributes.nlink as usize, self.links(inode.0));
                    let read = super::read(files, inode, 0, content.len() + 1).await;
                    assert_bytes(&read.unwrap(), content);
                }
                Object::Directory(names) => {
                    assert_eq!(attributes.kind, FileKind::Directory);
                    let listed = files.readdir(&ROOT, inode, 0, 100, false).await.unwrap();
                    assert!(listed.end);
                    let listed = listed.entries.iter().skip(2);
                    let listed: BTreeMap<Vec<u8>, u64> = listed
                        .map(|entry| (entry.name.to_vec(), entry.inode.0))
                        .collect();
                    let expected = names.iter().map(|(name, inode)| (name.to_vec(), *inode));
                    assert_eq!(listed, expected.collect(), "names in {inode}");
                    for (name, child) in names {
                        let found = files.lookup(&ROOT, inode, name).await.unwrap();
                        assert_eq!(found.inode.0, *child);
                    }
                }
            }
        }
    }
}

/// Operations drawn with proptest.
pub mod draw {
    use proptest::prelude::*;

    use super::{MAX_SIZE, Op};

    /// Offsets: often at the edges of blocks and pieces.
    fn offset() -> impl Strategy<Value = u32> {
        let edges = prop::sample::select(vec![
            0,
            1,
            4095,
            65_536,
            (4 << 20) - 10_000,
            (4 << 20) - 1,
            4 << 20,
            (8 << 20) - 3,
        ]);
        prop_oneof![edges, 0..MAX_SIZE as u32, 0..200_000u32]
    }

    fn len() -> impl Strategy<Value = u32> {
        prop_oneof![4 => 1..5000u32, 2 => 60_000..70_000u32, 1 => 0..2_000_000u32]
    }

    pub fn op() -> impl Strategy<Value = Op> {
        let place = || (any::<u8>(), any::<u8>());
        prop_oneof![
            3 => place().prop_map(|(directory, name)| Op::Create(directory, name)),
            1 => place().prop_map(|(directory, name)| Op::Mkdir(directory, name)),
            8 => (any::<u8>(), offset(), len(), any::<u8>(), any::<bool>()).prop_map(
                |(file, offset, len, seed, stable)| Op::Write { file, offset, len, seed, stable }
            ),
            3 => (any::<u8>(), offset()).prop_map(|(file, size)| Op::Truncate { file, size }),
            4 => (any::<u8>(), offset(), len())
                .prop_map(|(file, offset, len)| Op::Read { file, offset, len }),
            3 => (place(), place()).prop_map(|(from, to)| Op::Rename { from, to }),
            1 => (any::<u8>(), place()).prop_map(|(file, to)| Op::Link { file, to }),
            2 => place().prop_map(|(directory, name)| Op::Remove(directory, name)),
            1 => place().prop_map(|(directory, name)| Op::Rmdir(directory, name)),
        ]
    }
}
