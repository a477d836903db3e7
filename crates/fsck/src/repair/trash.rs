//! Repairs of the trash.

use forebay_meta::record::{Kind, TrashOwner, TrashRecord, TrashUntil};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;

use super::work::Work;
use crate::finding::Finding;

/// An entry of an object that is not in the trash.
pub(super) async fn of_nothing(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    let key = Key::Trash(inode);
    if let Some(entry) = work.get::<TrashRecord>(&key).await? {
        work.delete(&Key::TrashUntil(entry.until, inode));
    }
    work.delete(&key);
    // One of another user is a finding by itself.
    if let Some(object) = work.inode(inode).await?
        && let mark = Key::TrashOwner(object.uid, inode)
        && work.has(&mark).await?
    {
        work.delete(&mark);
    }
    work.did(
        finding,
        format!("removed the entry in the trash for inode {inode}"),
    );
    Ok(())
}

/// An entry that cannot be read: it goes with its mark, and its object gets a name in `lost+found`.
pub(super) async fn unreadable(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    let mut marks = work.cursor(KeyRange::trash_order());
    while let Some((key, _)) = marks.next().await? {
        if let Ok(mark @ Key::TrashUntil(_, of)) = Key::decode(&key)
            && of == inode
        {
            work.delete(&mark);
        }
    }
    work.delete(&Key::Trash(inode));
    remove_owners(work, inode).await?;
    work.did(
        finding,
        format!("removed the entry in the trash for inode {inode}, which is lost"),
    );
    Ok(())
}

/// A mark that is missing, or that belongs to no entry.
pub(super) async fn mark(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, until): (Inode, u64),
) -> Result<(), StoreError> {
    let key = Key::TrashUntil(until, inode);
    let entry = work.get::<TrashRecord>(&Key::Trash(inode)).await?;
    if entry.is_some_and(|entry| entry.until == until) {
        work.put(&key, &TrashUntil);
        work.did(
            finding,
            format!("wrote the mark that inode {inode} stays in the trash"),
        );
    } else {
        work.delete(&key);
        work.did(
            finding,
            format!("removed the mark that inode {inode} stays in the trash"),
        );
    }
    Ok(())
}

/// Removes all marks of an owner for an object that is not in the trash.
async fn remove_owners(work: &mut Work<'_>, inode: Inode) -> Result<(), StoreError> {
    let mut marks = work.cursor(KeyRange::trash_owners());
    while let Some((key, _)) = marks.next().await? {
        if let Ok(mark @ Key::TrashOwner(_, of)) = Key::decode(&key)
            && of == inode
        {
            work.delete(&mark);
        }
    }
    Ok(())
}

/// A mark of an owner that is missing, or that belongs to no file of this user in the trash.
pub(super) async fn owner(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, uid): (Inode, u32),
) -> Result<(), StoreError> {
    let key = Key::TrashOwner(uid, inode);
    let object = work.inode(inode).await?;
    let is_own = object
        .is_some_and(|one| one.is_in_trash() && one.kind() == Kind::Regular && one.uid == uid);
    if is_own && work.has(&Key::Trash(inode)).await? {
        work.put(&key, &TrashOwner);
        work.did(
            finding,
            format!("wrote the mark that inode {inode} in the trash belongs to user {uid}"),
        );
    } else {
        work.delete(&key);
        work.did(
            finding,
            format!("removed the mark that inode {inode} in the trash belongs to user {uid}"),
        );
    }
    Ok(())
}
