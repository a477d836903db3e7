//! The entries of the trash, and the order in which it is emptied.

use forebay_meta::record::{Record, TrashRecord, TrashUntil};
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

    /// Reads the entries of a range of inodes. Each has an object without a name, and a mark.
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
