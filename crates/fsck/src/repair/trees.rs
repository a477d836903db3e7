//! Repairs quotas: which objects count in which tree.

use bytes::Bytes;
use forebay_meta::record::{Kind, NameRecord, QuotaRecord, Record, Recount, UsageRecord};
use forebay_meta::{InodeRecord, Key, KeyRange, StoreError};
use forebay_types::Inode;

use super::work::Work;
use crate::finding::{Finding, Nobody};

/// Names that are read at a time.
const PAGE: usize = 256;
/// Bytes of them; a name has 300 at most.
const PAGE_BYTES: usize = 1 << 20;
/// Deeper than any path of a client; a limit against loops.
const DEPTH: usize = 512;

/// A quota of an object that is no directory, or does not count in its own tree.
pub(super) async fn quota(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    let key = Key::Quota(inode);
    let Some(quota) = work.get::<QuotaRecord>(&key).await? else {
        return Ok(());
    };
    let record = work.inode(inode).await?;
    let is_directory = record.is_some_and(|record| record.directory().is_some());
    if !is_directory || quota.recount == Recount::Leaving {
        work.delete(&key);
        work.did(finding, format!("removed the quota of inode {inode}"));
        return Ok(());
    }
    work.edit(inode, |record| record.tree = Some(inode)).await?;
    let recount = Recount::Joining;
    work.put(&key, &QuotaRecord { recount, ..quota });
    work.did(
        finding,
        format!(
            "directory {inode} counts in its own tree; the next gateway counts the objects below it"
        ),
    );
    Ok(())
}

/// Repairs the recorded usage of a tree.
pub(super) async fn usage(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, is): (Inode, UsageRecord),
) -> Result<(), StoreError> {
    let key = Key::Usage(inode);
    if is == UsageRecord::default() && !work.has(&Key::Quota(inode)).await? {
        work.delete(&key);
    } else {
        work.put(&key, &is);
    }
    let UsageRecord { bytes, files } = is;
    work.did(
        finding,
        format!("set the usage of the tree of inode {inode} to {bytes} bytes and {files} objects"),
    );
    Ok(())
}

/// Objects count in a tree that has no quota: each moves to the tree of its directory. Directories count in none for
/// now; where that is wrong, it is found as `wrong-tree`, whose repair takes everything below along.
pub(super) async fn without_quota(
    work: &mut Work<'_>,
    finding: &Finding,
    (root, files): (Inode, u64),
) -> Result<(), StoreError> {
    // Report the step before its first batch is committed.
    work.did(
        finding,
        format!("{files} objects no longer count in the tree of inode {root}, which has no quota"),
    );
    let mut names = work.cursor(KeyRange::all_names());
    let mut holder = None;
    while let Some((key, record)) = names.record::<NameRecord>(&mut Nobody).await? {
        let (Key::Name(directory, _), Some(name)) = (key, record) else {
            continue;
        };
        let Some(object) = work.inode(name.inode).await? else {
            continue;
        };
        if object.tree != Some(root) || object.directory().is_some() {
            continue;
        }
        let tree = match holder {
            Some((inode, tree)) if inode == directory => tree,
            _ => {
                let record = work.inode(directory).await?;
                record
                    .and_then(|record| record.tree)
                    .filter(|tree| *tree != root)
            }
        };
        holder = Some((directory, tree));
        work.edit(name.inode, |object| object.tree = tree).await?;
        work.settle().await?;
    }
    let mut objects = work.cursor(KeyRange::inodes());
    while let Some((key, record)) = objects.record::<InodeRecord>(&mut Nobody).await? {
        let (Key::Inode(inode), Some(record)) = (key, record) else {
            continue;
        };
        // The files may have changed since the page was read.
        if record.tree == Some(root) && record.directory().is_some() {
            work.edit(inode, |object| object.tree = None).await?;
            work.settle().await?;
        }
    }
    Ok(())
}

/// A directory on the walk's path, and the last name that was read in it.
struct WalkedDirectory {
    directory: Inode,
    last: Option<Bytes>,
}

/// A directory counts in another tree than its parent: moves it and everything below it to the parent's tree. The
/// directory itself comes last, so that it is found again if the repair is cut off.
pub(super) async fn wrong(
    work: &mut Work<'_>,
    finding: &Finding,
    (top, tree): (Inode, Option<Inode>),
) -> Result<(), StoreError> {
    if work.has(&Key::Quota(top)).await? {
        return Ok(());
    }
    let now = match tree {
        Some(tree) => format!("the tree of inode {tree}"),
        None => "no tree".to_owned(),
    };
    // Report the step before its first batch is committed.
    work.did(
        finding,
        format!("directory {top} and everything below it count in {now}"),
    );
    let mut places = vec![WalkedDirectory {
        directory: top,
        last: None,
    }];
    while let Some(mut place) = places.pop() {
        let mut range = KeyRange::names(place.directory);
        if let Some(last) = &place.last {
            range = range.after(last);
        }
        let page = work.source.page(&range, PAGE, PAGE_BYTES).await?;
        let mut below = None;
        let is_end = page.is_empty();
        for (key, value) in page {
            let name = NameRecord::decode(&key, &value);
            place.last = Some(key);
            let Ok(name) = name else { continue };
            let object = work.inode(name.inode).await?;
            let Some(object) = object.filter(|object| object.tree != tree) else {
                continue;
            };
            if object.kind() != Kind::Directory {
                work.edit(name.inode, |object| object.tree = tree).await?;
            } else if !work.has(&Key::Quota(name.inode)).await? {
                below = Some(name.inode);
                break;
            }
        }
        if let Some(directory) = below {
            if places.len() >= DEPTH {
                return Ok(());
            }
            places.push(place);
            places.push(WalkedDirectory {
                directory,
                last: None,
            });
        } else if is_end {
            work.edit(place.directory, |own| own.tree = tree).await?;
        } else {
            places.push(place);
        }
        work.settle().await?;
    }
    Ok(())
}
