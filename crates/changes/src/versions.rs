//! The versions of one path across moments.

use forebay_meta::record::{InodeRecord, NameRecord, Timestamp};
use forebay_meta::{Catalog, Key, StoreError};
use forebay_types::Inode;

/// What a path refers to at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The object.
    pub inode: Inode,
    /// Its kind.
    pub kind: forebay_meta::record::Kind,
    /// Its size in bytes.
    pub size: u64,
    /// The last change of its content.
    pub mtime: Timestamp,
    /// The last change of content or attributes. Every change sets it.
    pub ctime: Timestamp,
}

impl Found {
    fn of(inode: Inode, record: &InodeRecord) -> Found {
        Found {
            inode,
            kind: record.kind(),
            size: record.size,
            mtime: record.mtime,
            ctime: record.ctime,
        }
    }
}

/// A path at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment<M> {
    /// The moment.
    pub moment: M,
    /// What the path referred to; `None` if nothing had it.
    pub found: Option<Found>,
}

/// Consecutive moments at which a path referred to the same version of the same object, or to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<M> {
    /// The first of the moments.
    pub first: M,
    /// The last one.
    pub last: M,
    /// How many they are.
    pub moments: usize,
    /// The version; `None` if there was nothing.
    pub found: Option<Found>,
}

/// The versions of a path, from moments in the order of time. Two moments have the same version if the object is the same, with the same
/// times and size. Where its bytes are in the bucket does not matter: packs are rewritten without a change of the file.
pub fn versions<M: Clone>(moments: impl IntoIterator<Item = Moment<M>>) -> Vec<Version<M>> {
    let mut versions: Vec<Version<M>> = Vec::new();
    for Moment { moment, found } in moments {
        match versions.last_mut() {
            Some(version) if version.found == found => {
                version.last = moment;
                version.moments += 1;
            }
            _ => versions.push(Version {
                first: moment.clone(),
                last: moment,
                moments: 1,
                found,
            }),
        }
    }
    versions
}

/// What a path from the root refers to; symbolic links are not followed. `None` if there is nothing.
///
/// # Errors
/// Those of the metadata.
pub async fn find(catalog: &Catalog, path: &[u8]) -> Result<Option<Found>, StoreError> {
    let mut inode = Inode::ROOT;
    let names = path.split(|byte| *byte == b'/');
    for name in names.filter(|name| !name.is_empty() && *name != b".") {
        let key = Key::Name(inode, name.to_vec().into());
        let Some(record) = catalog.record::<NameRecord>(&key).await? else {
            return Ok(None);
        };
        inode = record.inode;
    }
    let record = catalog.inode(inode).await?;
    Ok(record.map(|record| Found::of(inode, &record)))
}
