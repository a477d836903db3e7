//! Repairs names: removes those that lead nowhere, and gives one to objects without a name.

use bytes::Bytes;
use forebay_meta::record::{Content, CookieRecord, Directory, Kind, NameRecord, VolumeState};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;

use super::records::{directory_of, extent_of, new_record};
use super::work::Work;
use crate::finding::{Finding, Name, of_kind};
use crate::judge::objects::{FIRST_COOKIE, NAME_MAX, impossible_name};

/// Directory for objects without a name.
const LOST_AND_FOUND: &str = "lost+found";
/// Most names that are tried when one is taken.
const TRIES: u32 = 1000;

/// The root directory is missing, is no directory, lies in another one, or has a name.
pub(super) async fn root(work: &mut Work<'_>, finding: &Finding) -> Result<(), StoreError> {
    let key = Key::Inode(Inode::ROOT);
    let record = work.inode(Inode::ROOT).await?;
    match record.as_ref().map(|record| record.directory()) {
        // A record of a later version.
        None if work.has(&key).await? => return Ok(()),
        Some(None) if !work.accept_loss => return Ok(()),
        None | Some(None) => {
            let (own, nlink) = directory_of(work, Inode::ROOT, Inode::ROOT).await?;
            let mut record = new_record(work, Content::Directory(own), nlink);
            // As it was when the volume was made: with another mode no user could pass it.
            record.mode = 0o755;
            work.put(&key, &record);
            work.did(
                finding,
                "created the root directory again, owned by root with mode 755".to_owned(),
            );
        }
        Some(Some(own)) if own.parent != Inode::ROOT => {
            work.edit_directory(Inode::ROOT, |own| own.parent = Inode::ROOT)
                .await?;
            work.did(
                finding,
                "removed the parent of the root directory".to_owned(),
            );
        }
        Some(Some(_)) => {}
    }
    for (directory, name, _) in work.names_of(Inode::ROOT).await? {
        work.remove_name(directory, &name).await?;
        let name = Name(name);
        work.did(
            finding,
            format!(
                "removed name {name} in directory {directory}, which referred to the root directory"
            ),
        );
    }
    Ok(())
}

/// Names and cookies in an object that is no directory, or is missing.
pub(super) async fn of_no_directory(
    work: &mut Work<'_>,
    finding: &Finding,
    (directory, count): (Inode, u64),
) -> Result<(), StoreError> {
    let key = Key::Inode(directory);
    match work.inode(directory).await? {
        // A record of a later version.
        None if work.has(&key).await? => return Ok(()),
        // An earlier step of this round has made it.
        Some(record) if record.directory().is_some() => return Ok(()),
        _ => {}
    }
    let (own, nlink) = directory_of(work, directory, Inode::ROOT).await?;
    if own.entries > 0 && !work.has(&key).await? {
        let record = new_record(work, Content::Directory(own), nlink);
        work.put(&key, &record);
        work.take_number(directory).await?;
        let entries = own.entries;
        work.did(
            finding,
            format!("created directory {directory} again for its {entries} names"),
        );
        return Ok(());
    }
    // Report the step before its first batch is committed.
    work.did(
        finding,
        format!("removed {count} names and cookies in inode {directory}, which is not a directory"),
    );
    let first = KeyRange::cookies_from(directory);
    let behind = KeyRange::cookies_from(Inode(directory.0.saturating_add(1)));
    let cookies = KeyRange {
        end: behind.start,
        ..first
    };
    for range in [KeyRange::names(directory), cookies] {
        let mut entries = work.cursor(range);
        while let Some((key, _)) = entries.next().await? {
            work.delete_encoded(key);
            work.settle().await?;
        }
    }
    Ok(())
}

/// A name of a missing object.
pub(super) async fn of_nothing(
    work: &mut Work<'_>,
    finding: &Finding,
    (directory, name, inode): (Inode, &Name, Inode),
) -> Result<(), StoreError> {
    let is_there = work.has(&Key::Inode(inode)).await?;
    let key = Key::Name(directory, name.0.clone());
    let record = work.get::<NameRecord>(&key).await?;
    if is_there || record.is_none_or(|record| record.inode != inode) {
        return Ok(());
    }
    work.remove_name(directory, &name.0).await?;
    work.did(
        finding,
        format!("removed name {name} in directory {directory}: inode {inode} does not exist"),
    );
    Ok(())
}

/// A name whose kind differs from that of the object.
pub(super) async fn kind(
    work: &mut Work<'_>,
    finding: &Finding,
    (directory, name, inode): (Inode, &Name, Inode),
) -> Result<(), StoreError> {
    let key = Key::Name(directory, name.0.clone());
    let record = work.get::<NameRecord>(&key).await?;
    let object = work.inode(inode).await?;
    let (Some(record), Some(object)) = (record, object) else {
        return Ok(());
    };
    let is = object.kind();
    let own = Key::Cookie(directory, record.cookie);
    let cookie = work.get::<CookieRecord>(&own).await?;
    work.put(&key, &NameRecord { kind: is, ..record });
    if let Some(cookie) = cookie.filter(|cookie| cookie.name == name.0) {
        work.put(&own, &CookieRecord { kind: is, ..cookie });
    }
    let links = |kind| u32::from(kind == Kind::Directory);
    work.edit(directory, |holder| {
        holder.nlink = (holder.nlink.saturating_add(links(is))).saturating_sub(links(record.kind));
    })
    .await?;
    let is = of_kind(&is);
    work.did(
        finding,
        format!("set the type in name {name} in directory {directory} of inode {inode} to {is}"),
    );
    Ok(())
}

/// A name that no client can open.
pub(super) async fn unusable(
    work: &mut Work<'_>,
    finding: &Finding,
    (directory, name): (Inode, &Name),
) -> Result<(), StoreError> {
    let key = Key::Name(directory, name.0.clone());
    let Some(record) = work.get::<NameRecord>(&key).await? else {
        return Ok(());
    };
    let mut plain: Vec<u8> = name.0.to_vec();
    for byte in &mut plain {
        if matches!(byte, b'/' | 0) {
            *byte = b'_';
        }
    }
    plain.truncate(NAME_MAX - 40);
    if matches!(&plain[..], b"." | b"..") {
        plain.insert(0, b'_');
    }
    let Some(better) = free_name(work, directory, &plain).await? else {
        return Ok(());
    };
    let own = Key::Cookie(directory, record.cookie);
    let cookie = work.get::<CookieRecord>(&own).await?;
    work.delete(&key);
    work.put(&Key::Name(directory, better.clone()), &record);
    let shown = Name(better.clone());
    if let Some(cookie) = cookie.filter(|cookie| cookie.name == name.0) {
        work.put(
            &own,
            &CookieRecord {
                name: better,
                ..cookie
            },
        );
    }
    work.did(
        finding,
        format!("renamed {name} in directory {directory} to {shown}"),
    );
    Ok(())
}

/// Returns the name or, if it is taken, a free one that begins with it.
async fn free_name(
    work: &Work<'_>,
    directory: Inode,
    wanted: &[u8],
) -> Result<Option<Bytes>, StoreError> {
    for number in 1..=TRIES {
        let mut name = wanted.to_vec();
        if number > 1 {
            name.extend(format!("-{number}").bytes());
        }
        let name = Bytes::from(name);
        if !work.has(&Key::Name(directory, name.clone())).await? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// A name and its cookie do not agree, or the cookie is missing.
pub(super) async fn differ(
    work: &mut Work<'_>,
    finding: &Finding,
    (directory, name): (Inode, &Name),
) -> Result<(), StoreError> {
    let key = Key::Name(directory, name.0.clone());
    let Some(mut record) = work.get::<NameRecord>(&key).await? else {
        return Ok(());
    };
    let at = Key::Cookie(directory, record.cookie);
    match work.get::<CookieRecord>(&at).await? {
        None if record.cookie >= FIRST_COOKIE && !work.has(&at).await? => {
            let what = format!(
                "created the cookie of name {name} in directory {directory} again, {}",
                record.cookie
            );
            work.did(finding, what);
        }
        Some(cookie) if cookie.name == name.0 => {
            if cookie.inode == record.inode && cookie.kind == record.kind {
                return Ok(());
            }
            // A record that leads nowhere is the wrong one.
            let leads = work.has(&Key::Inode(record.inode)).await?;
            if !leads && work.has(&Key::Inode(cookie.inode)).await? {
                (record.inode, record.kind) = (cookie.inode, cookie.kind);
            }
            let inode = record.inode;
            work.did(finding, format!("name {name} in directory {directory} and its cookie now both refer to inode {inode}"));
        }
        _ => {
            let mut next = 0;
            let took = work.edit_directory(directory, |own| {
                next = own.next_cookie;
                own.next_cookie = next.saturating_add(1);
            });
            if !took.await? || work.has(&Key::Cookie(directory, next)).await? {
                return Ok(());
            }
            record.cookie = next;
            work.did(
                finding,
                format!("gave name {name} in directory {directory} a cookie of its own, {next}"),
            );
        }
    }
    let stands = (record.inode, record.kind, record.cookie);
    work.put_name(directory, &name.0, stands);
    Ok(())
}

/// A cookie whose name is missing. If the object has no other name, it gets this one back.
pub(super) async fn cookie_without_name(
    work: &mut Work<'_>,
    finding: &Finding,
    (directory, name, cookie): (Inode, &Name, u64),
) -> Result<(), StoreError> {
    let key = Key::Cookie(directory, cookie);
    let Some(record) = work.get::<CookieRecord>(&key).await? else {
        return Ok(());
    };
    let is_free = !work.has(&Key::Name(directory, record.name.clone())).await?;
    let kind = work.inode(record.inode).await?.map(|object| object.kind());
    if is_free
        && cookie >= FIRST_COOKIE
        && kind == Some(record.kind)
        && impossible_name(&record.name).is_none()
        && work.orphans.remove(&record.inode)
    {
        let inode = record.inode;
        work.put_name(directory, &record.name, (inode, record.kind, cookie));
        let is_directory = record.kind == Kind::Directory;
        work.edit(directory, |holder| {
            holder.nlink = holder.nlink.saturating_add(u32::from(is_directory));
            if let Some(own) = holder.directory_mut() {
                own.entries = own.entries.saturating_add(1);
            }
        })
        .await?;
        work.did(finding, format!("created name {name} of inode {inode} in directory {directory} again, from its cookie"));
        return Ok(());
    }
    work.delete(&key);
    work.did(
        finding,
        format!("removed cookie {cookie} in directory {directory}: its name {name} does not exist"),
    );
    Ok(())
}

/// A directory with several names.
pub(super) async fn many(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    let names = work.names_of(inode).await?;
    let own = work.inode(inode).await?;
    let Some(parent) = own.and_then(|record| Some(record.directory()?.parent)) else {
        return Ok(());
    };
    let kept = names
        .iter()
        .position(|(holder, _, _)| *holder == parent)
        .unwrap_or(0);
    for (at, (holder, name, _)) in names.iter().enumerate() {
        if at == kept {
            let holder = *holder;
            work.edit_directory(inode, |own| own.parent = holder)
                .await?;
            continue;
        }
        work.remove_name(*holder, name).await?;
        let name = Name(name.clone());
        work.did(
            finding,
            format!(
                "removed name {name} in directory {holder}: directory {inode} has several names"
            ),
        );
    }
    Ok(())
}

/// Directories that lie in each other: takes one of them out.
pub(super) async fn around(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    for (holder, name, _) in work.names_of(inode).await? {
        work.remove_name(holder, &name).await?;
    }
    shelter(work, finding, inode).await
}

/// An object without a name.
pub(super) async fn orphan(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    match work.orphans.contains(&inode) {
        true => shelter(work, finding, inode).await,
        // It got a name back from a cookie.
        false => Ok(()),
    }
}

/// Gives an object without a name one in `lost+found`.
async fn shelter(work: &mut Work<'_>, finding: &Finding, inode: Inode) -> Result<(), StoreError> {
    let Some(record) = work.inode(inode).await? else {
        return Ok(());
    };
    let Some((place, called)) = lost_and_found(work, finding).await? else {
        return Ok(());
    };
    let Some(name) = free_name(work, place, inode.to_string().as_bytes()).await? else {
        return Ok(());
    };
    let kind = record.kind();
    if !work.add_name(place, &name, inode, kind).await? {
        return Ok(());
    }
    work.edit(inode, |record| match record.directory_mut() {
        Some(own) => own.parent = place,
        None => (record.nlink, record.tree) = (1, None),
    })
    .await?;
    let (kind, name) = (of_kind(&kind), Name(name));
    work.did(
        finding,
        format!("moved inode {inode}, a {kind}, to /{called}/{name}"),
    );
    Ok(())
}

/// The directory for objects without a name. If there is none, makes it, with its name in the root directory.
async fn lost_and_found(
    work: &mut Work<'_>,
    finding: &Finding,
) -> Result<Option<(Inode, String)>, StoreError> {
    for number in 1..=TRIES {
        let called = match number {
            1 => LOST_AND_FOUND.to_owned(),
            number => format!("{LOST_AND_FOUND}-{number}"),
        };
        let name = Bytes::from(called.clone());
        let key = Key::Name(Inode::ROOT, name.clone());
        if !work.has(&key).await? {
            let made = make_directory(work, &name).await?;
            if made.is_some() {
                work.did(finding, format!("created the directory /{called}"));
            }
            return Ok(made.map(|inode| (inode, called)));
        }
        let Some(record) = work.get::<NameRecord>(&key).await? else {
            continue;
        };
        let object = work.inode(record.inode).await?;
        if object.is_some_and(|object| object.directory().is_some()) {
            return Ok(Some((record.inode, called)));
        }
    }
    Ok(None)
}

async fn make_directory(work: &mut Work<'_>, name: &Bytes) -> Result<Option<Inode>, StoreError> {
    let Some(state) = work.get::<VolumeState>(&Key::Volume).await? else {
        return Ok(None);
    };
    let inode = Inode(state.next_inode);
    let key = Key::Inode(inode);
    let root = work.inode(Inode::ROOT).await?;
    let Some(root) = root.filter(|root| root.directory().is_some()) else {
        return Ok(None);
    };
    if work.has(&key).await?
        || !work
            .add_name(Inode::ROOT, name, inode, Kind::Directory)
            .await?
    {
        return Ok(None);
    }
    let own = Directory {
        parent: Inode::ROOT,
        next_cookie: FIRST_COOKIE,
        entries: 0,
    };
    let mut record = new_record(work, Content::Directory(own), 2);
    record.tree = root.tree;
    work.put(&key, &record);
    let state = VolumeState {
        next_inode: state.next_inode.saturating_add(1),
        used_inodes: state.used_inodes.saturating_add(1),
        ..state
    };
    work.put(&Key::Volume, &state);
    Ok(Some(inode))
}

/// Block maps without an object: makes a file of their bytes.
pub(super) async fn file_of_blocks(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    let (size, used) = extent_of(work, inode).await?;
    let mut record = new_record(work, Content::Regular, 1);
    (record.size, record.used) = (size, used);
    work.put(&Key::Inode(inode), &record);
    work.take_number(inode).await?;
    work.did(
        finding,
        format!(
            "created a file of {size} bytes, owned by root, for the block maps of inode {inode}"
        ),
    );
    Ok(())
}

/// The next cookie of a directory is too low.
pub(super) async fn next_cookie(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, highest): (Inode, u64),
) -> Result<(), StoreError> {
    let next = highest.saturating_add(1).max(FIRST_COOKIE);
    if work
        .edit_directory(inode, |own| own.next_cookie = next)
        .await?
    {
        work.did(
            finding,
            format!("set the next cookie of directory {inode} to {next}"),
        );
    }
    Ok(())
}
