//! The entries of the trash, the order in which it is emptied, and the marks of owners.

use forebay_meta::record::{InodeRecord, Kind, Record, TrashOwner, TrashRecord, TrashUntil};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;

use super::{Walk, up_to};
use crate::finding::{Finding, Sink};
use crate::judge::objects::Objects;
use crate::source::Cursor;

impl Walk {
    /// Reads the marks of the order. Each belongs to an entry.
    pub(super) async fn trash_order(&mut self) -> Result<(), StoreError> {
        let mut marks = Cursor::new(&self.source, KeyRange::trash_order());
        while let Some((key, _)) = marks.record::<TrashUntil>(&mut self.findings).await? {
            let Key::TrashUntil(until, inode) = key else {
                continue;
            };
            let key = Key::Trash(inode).encode();
            let entry = self.source.get(&key).await?;
            // What is said of an entry that cannot be read is said once.
            let ends =
                entry.map(|entry| TrashRecord::decode(&key, &entry).map(|entry| entry.until));
            let why = match ends {
                None => "is of no entry",
                Some(Ok(ends)) if ends != until => "is of an entry that ends at another time",
                Some(_) => continue,
            };
            self.findings
                .found(Finding::WrongTrashMark { inode, until, why });
        }
        Ok(())
    }

    /// Reads the marks of owners. Each belongs to a file in the trash that the user owns.
    pub(super) async fn trash_owners(&mut self) -> Result<(), StoreError> {
        let mut marks = Cursor::new(&self.source, KeyRange::trash_owners());
        while let Some((key, _)) = marks.record::<TrashOwner>(&mut self.findings).await? {
            let Key::TrashOwner(uid, inode) = key else {
                continue;
            };
            let entry = self.source.get(&Key::Trash(inode).encode()).await?;
            let why = match (entry, self.object(inode).await?) {
                (None, _) => "is of no entry",
                (Some(_), Some(object)) if object.kind() != Kind::Regular => "is of no file",
                (Some(_), Some(object)) if object.uid != uid => "is of the file of another user",
                // An entry of nothing, and an object that cannot be read, are findings by themselves.
                (Some(_), _) => continue,
            };
            let finding = Finding::WrongTrashOwner { inode, uid, why };
            self.findings.found(finding);
        }
        Ok(())
    }

    /// An object; `None` if there is none, or its record cannot be read.
    async fn object(&self, inode: Inode) -> Result<Option<InodeRecord>, StoreError> {
        let key = Key::Inode(inode).encode();
        let value = self.source.get(&key).await?;
        Ok(value.and_then(|value| InodeRecord::decode(&key, &value).ok()))
    }

    /// Reads the entries of a range of inodes. Each has an object without a name, and a mark; a file has a mark of its owner.
    pub(super) async fn trash(
        &mut self,
        objects: &mut Objects,
        first: Inode,
        next: Option<Inode>,
    ) -> Result<(), StoreError> {
        let range = up_to(KeyRange::trash_from(first), next.map(KeyRange::trash_from));
        let mut entries = Cursor::new(&self.source, range);
        while let Some((key, entry)) = entries.record::<TrashRecord>(&mut self.findings).await? {
            let Key::Trash(inode) = key else { continue };
            objects.trash(inode, &mut self.findings);
            let object = self.object(inode).await?;
            let file = object.filter(|one| one.is_in_trash() && one.kind() == Kind::Regular);
            if let Some(InodeRecord { uid, .. }) = file
                && let mark = Key::TrashOwner(uid, inode).encode()
                && self.source.get(&mark).await?.is_none()
            {
                let why = "is missing";
                self.findings
                    .found(Finding::WrongTrashOwner { inode, uid, why });
            }
            let Some(until) = entry.map(|entry| entry.until) else {
                continue;
            };
            let mark = Key::TrashUntil(until, inode).encode();
            if self.source.get(&mark).await?.is_none() {
                let why = "is missing";
                self.findings
                    .found(Finding::WrongTrashMark { inode, until, why });
            }
        }
        Ok(())
    }
}
