//! Checks the trash.

use forebay_meta::record::TrashTotals;

use super::Entries;

/// Checks that the objects without links are those with an entry in the trash, that each entry has its mark, and that the
/// volume counts them.
pub(super) fn trash(entries: &Entries) -> Result<(), String> {
    let mut counted = TrashTotals::default();
    for (inode, object) in &entries.inodes {
        let entry = entries.trash.get(inode);
        if object.is_in_trash() != entry.is_some() {
            return Err(format!(
                "object {inode} has {} links, and its entry in the trash is {entry:?}",
                object.nlink
            ));
        }
        let Some(entry) = entry else { continue };
        if !entries.trash_order.contains(&(entry.until, *inode)) {
            return Err(format!("the entry of {inode} in the trash has no mark"));
        }
        counted.files += 1;
        counted.bytes += object.charged_bytes();
    }
    if (entries.trash.len(), entries.trash_order.len())
        != (counted.files as usize, counted.files as usize)
    {
        return Err("the trash has entries or marks without objects".into());
    }
    let says = entries
        .volume
        .map_or(TrashTotals::default(), |volume| volume.trash);
    match says == counted {
        true => Ok(()),
        false => Err(format!("the trash counts {says:?} and has {counted:?}")),
    }
}
