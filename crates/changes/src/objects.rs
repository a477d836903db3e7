//! The objects that differ, found by their records.

use std::sync::atomic::{AtomicU8, Ordering};

use forebay_meta::record::{Content, InodeRecord};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;

use crate::contents::{Look, look_into};
use crate::pair::{Difference, Pair};
use crate::workers::Workers;

/// Files whose block maps are compared together.
const LOOKS: usize = 4096;

/// What is known about an object that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    pub(crate) const MADE: Marks = Marks(1);
    pub(crate) const REMOVED: Marks = Marks(2);
    pub(crate) const CONTENT: Marks = Marks(4);
    pub(crate) const ATTRIBUTES: Marks = Marks(8);
    /// One of its changes has been yielded: of an object that was made or removed, the first name.
    pub(crate) const SHOWN: Marks = Marks(16);
    pub(crate) const DIRECTORY: Marks = Marks(32);
    /// Its time of modification differs: an attribute, unless the content differs as well.
    const TIME: Marks = Marks(64);

    pub(crate) fn has(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }

    fn with_if(self, is_so: bool, marks: Marks) -> Marks {
        Marks(if is_so { self.0 | marks.0 } else { self.0 })
    }

    /// Whether its content or its attributes changed, and it is in both moments.
    pub(crate) fn is_changed(self) -> bool {
        self.has(Marks(Marks::CONTENT.0 | Marks::ATTRIBUTES.0))
    }
}

/// The objects that differ, by number: made, removed, or with another content or attributes. Marks are set while others read them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    // Apart, for 9 bytes each.
    inodes: Vec<u64>,
    marks: Vec<AtomicU8>,
}

impl Objects {
    /// Compares all records of objects.
    pub(crate) async fn find(pair: &Pair) -> Result<Objects, StoreError> {
        let pieces = pair.pieces(&KeyRange::inodes());
        let mut found: Vec<Objects> = pieces.iter().map(|_| Objects::default()).collect();
        let mut workers = Workers::begin(pieces, |piece| {
            let pair = pair.clone();
            async move { Objects::find_in(&pair, &piece).await }
        });
        while let Some((number, objects)) = workers.next().await? {
            if let Some(place) = found.get_mut(number) {
                *place = objects;
            }
        }
        let mut all = Objects::default();
        for objects in found {
            all.inodes.extend(objects.inodes);
            all.marks.extend(objects.marks);
        }
        Ok(all)
    }

    /// The same for a range.
    async fn find_in(pair: &Pair, range: &KeyRange) -> Result<Objects, StoreError> {
        let (mut objects, mut looks) = (Objects::default(), Vec::new());
        let mut walk = pair.walk(range);
        while let Some(differences) = walk.next().await? {
            for difference in differences {
                objects.add(&difference, &mut looks)?;
            }
            if looks.len() >= LOOKS {
                objects.look(pair, std::mem::take(&mut looks)).await?;
            }
        }
        objects.look(pair, looks).await?;
        objects.finish();
        Ok(objects)
    }

    fn marks_of(&self, inode: Inode) -> Option<&AtomicU8> {
        let at = self.inodes.binary_search(&inode.0).ok()?;
        self.marks.get(at)
    }

    /// The marks of an object; none if it is the same in both.
    pub(crate) fn get(&self, inode: Inode) -> Marks {
        let marks = self.marks_of(inode).map(load);
        marks.unwrap_or_default()
    }

    pub(crate) fn set(&self, inode: Inode, marks: Marks) {
        if let Some(known) = self.marks_of(inode) {
            known.fetch_or(marks.0, Ordering::Relaxed);
        }
    }

    /// All, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Inode, Marks)> {
        let inodes = self.inodes.iter().map(|inode| Inode(*inode));
        inodes.zip(self.marks.iter().map(load))
    }

    fn add(&mut self, difference: &Difference, looks: &mut Vec<Look>) -> Result<(), StoreError> {
        let Key::Inode(inode) = Key::decode(&difference.key)? else {
            return Ok(());
        };
        // An object in the trash has been removed.
        let (old, new) = difference.records::<InodeRecord>()?;
        let live = |record: &InodeRecord| !record.is_in_trash();
        let marks = match (old.filter(live), new.filter(live)) {
            (None, None) => Marks::default(),
            (None, Some(record)) => of_kind(&record, Marks::MADE),
            (Some(record), None) => of_kind(&record, Marks::REMOVED),
            (Some(old), Some(new)) => {
                let (marks, look) = changed(inode, old, new);
                looks.extend(look);
                marks
            }
        };
        self.inodes.push(inode.0);
        self.marks.push(AtomicU8::new(marks.0));
        Ok(())
    }

    async fn look(&mut self, pair: &Pair, looks: Vec<Look>) -> Result<(), StoreError> {
        for inode in look_into(pair, looks).await? {
            self.set(inode, Marks::CONTENT);
        }
        Ok(())
    }

    /// Forgets objects without a change that anybody sees.
    fn finish(&mut self) {
        for own in &mut self.marks {
            let marks = Marks(*own.get_mut());
            let is_touched = marks.has(Marks::TIME) && !marks.has(Marks::CONTENT);
            *own.get_mut() = marks.with_if(is_touched, Marks::ATTRIBUTES).0;
        }
        let mut marks = self.marks.iter().map(load);
        self.inodes
            .retain(|_| marks.next().is_some_and(Marks::is_told));
        self.marks.retain(|marks| load(marks).is_told());
    }
}

fn load(marks: &AtomicU8) -> Marks {
    Marks(marks.load(Ordering::Relaxed))
}

impl Marks {
    fn is_told(self) -> bool {
        self.is_changed() || self.has(Marks(Marks::MADE.0 | Marks::REMOVED.0))
    }
}

fn of_kind(record: &InodeRecord, marks: Marks) -> Marks {
    marks.with_if(record.directory().is_some(), Marks::DIRECTORY)
}

/// How an object changed that is in both moments, and whether block maps have to tell if its content is the same.
fn changed(inode: Inode, old: InodeRecord, new: InodeRecord) -> (Marks, Option<Look>) {
    let owned = |record: &InodeRecord| (record.mode, record.uid, record.gid);
    let marks =
        of_kind(&new, Marks::default()).with_if(owned(&old) != owned(&new), Marks::ATTRIBUTES);
    match (&old.content, &new.content) {
        (Content::Directory(_), Content::Directory(_)) => (marks, None),
        (Content::Regular, Content::Regular) => {
            let marks = marks.with_if(old.mtime != new.mtime, Marks::TIME);
            // Whatever changes the content sets this time. Collection of truncated blocks does not.
            let is_touched = old.ctime != new.ctime;
            let is_truncated = !new.truncated.is_empty() && old.truncated != new.truncated;
            let is_other = old.size != new.size || is_touched && is_truncated;
            let look = (is_touched && !is_other).then_some(Look {
                inode,
                old_truncated: old.truncated,
                new_truncated: new.truncated,
            });
            (marks.with_if(is_other, Marks::CONTENT), look)
        }
        (one, other) => {
            let marks = marks.with_if(old.mtime != new.mtime, Marks::TIME);
            (marks.with_if(one != other, Marks::CONTENT), None)
        }
    }
}
