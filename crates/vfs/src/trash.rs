//! Removed files of a file system, as front ends see them.

use std::future::Future;

use bytes::Bytes;
use forebay_types::Inode;

use crate::{
    Access, Attributes, Change, Credentials, DirectoryEntry, Error, FileSystem, ReadReply, Result,
    Snapshots, Timestamp,
};

/// Longest name, in bytes.
const NAME_MAX: usize = 255;

/// A file system in which removed regular files stay for a while.
///
/// * A file in the trash is [`Error::Stale`] for [`FileSystem`], and has the same inode. It is [`Error::Stale`] here
///   while it is not in the trash.
/// * Root sees all files, other callers those that they own ([`crate::permission::may_see_removed`]). To others a file is not there, or
///   may not be used ([`Error::Access`]).
/// * A file has the [name](trash_name) that `below` knows: a directory, of which the trash shows the files that were in it or below.
///   Files whose directory is gone are shown below the root alone.
/// * Attributes have a link count of 1.
///
/// The default is a trash without files.
pub trait Trash: FileSystem {
    /// A time that changes whenever a file goes to the trash or leaves it.
    fn trash_changed(&self) -> Timestamp {
        Timestamp::default()
    }

    /// Reads the attributes of a file.
    fn getattr_removed(&self, inode: Inode) -> impl Future<Output = Result<Attributes>> + Send {
        let _ = inode;
        async { Err(Error::Stale) }
    }

    /// Looks up a name.
    fn lookup_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Attributes>> + Send {
        let _ = (caller, below, name);
        async { Err(Error::NotFound) }
    }

    /// Returns those of the rights `wanted` that the caller has. Nobody has the right to change a file.
    fn access_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> impl Future<Output = Result<(Access, Attributes)>> + Send {
        let _ = (caller, inode, wanted);
        async { Err(Error::Stale) }
    }

    /// Reads up to `count` bytes of a file.
    fn read_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> impl Future<Output = Result<ReadReply>> + Send {
        let _ = (caller, inode, offset, count);
        async { Err(Error::Stale) }
    }

    /// Lists the files that the caller sees with numbers above `after`, in the order of their numbers, at most `max` (at least 1),
    /// and whether these are the last. Without an entry they are the last: where many files have to be passed over,
    /// it fails with [`Error::Delay`], and a repeated call goes on from there.
    fn list_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        after: Inode,
        max: usize,
    ) -> impl Future<Output = Result<(Vec<DirectoryEntry>, bool)>> + Send {
        let _ = (caller, below, after, max);
        async { Ok((Vec::new(), true)) }
    }

    /// Deletes a file for good.
    fn delete_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (caller, below, name);
        async { Err(Error::NotFound) }
    }

    /// Gives a file a name in a directory of the file system, where the caller may make names. Never replaces anything
    /// ([`Error::Exists`]). Returns the change of the directory.
    fn bring_back(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> impl Future<Output = Result<Change>> + Send {
        let _ = (caller, from, to);
        async { Err(Error::NotFound) }
    }
}

/// A file system with all that a front end shows beside the files themselves.
pub trait Trees: Snapshots + Trash {}

impl<F: Snapshots + Trash> Trees for F {}

/// Names of files in the trash: the last name and the number of the file, which makes it unique: `report.odt.4711`.
pub mod trash_name {
    use super::{Bytes, Inode, NAME_MAX};

    /// The name of a file whose last name was `last`. Of a long one the end is missing; letters of UTF-8 stay whole.
    pub fn of(last: &[u8], inode: Inode) -> Bytes {
        let number = format!(".{inode}");
        let room = NAME_MAX - number.len();
        let mut kept = &last[..last.len().min(room)];
        if kept.len() < last.len()
            && let Err(error) = std::str::from_utf8(kept)
            && error.error_len().is_none()
        {
            kept = &kept[..error.valid_up_to()];
        }
        Bytes::from([kept, number.as_bytes()].concat())
    }

    /// The number in a name; `None` if it is not the name of any file.
    pub fn number(name: &[u8]) -> Option<Inode> {
        let dot = name.iter().rposition(|byte| *byte == b'.')?;
        let digits = std::str::from_utf8(name.get(dot + 1..)?).ok()?;
        let number = digits.parse().ok().map(Inode)?;
        // As it is written: no sign, and no zeros in front.
        (format!("{number}") == digits).then_some(number)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_has_the_number_and_at_most_255_bytes() {
            assert_eq!(of(b"report.odt", Inode(4711)), "report.odt.4711");
            assert_eq!(of(b".hidden", Inode(2)), ".hidden.2");
            assert_eq!(of(b"\xff\n.7", Inode(8)), &b"\xff\n.7.8"[..]);
            let long = of(&[b'x'; 255], Inode(u64::MAX));
            assert_eq!(long.len(), 255);
            assert_eq!(number(&long), Some(Inode(u64::MAX)));
            // Letters of three bytes; 252 bytes have room.
            let letters = "\u{20ac}".repeat(85);
            assert_eq!(
                of(letters.as_bytes(), Inode(10)),
                format!("{}.10", "\u{20ac}".repeat(84))
            );
            assert_eq!(of(letters.as_bytes(), Inode(100)).len(), 253);
            // What is no UTF-8 is cut anywhere.
            assert_eq!(of(&[0xff; 255], Inode(10)).len(), 255);
        }

        #[test]
        fn a_number_has_one_form() {
            for (name, found) in [
                (&b"a.12"[..], Some(12)),
                (b".12", Some(12)),
                (b"a.b.0", Some(0)),
                (b"a.18446744073709551615", Some(u64::MAX)),
                (b"a.18446744073709551616", None),
                (b"a.012", None),
                (b"a.+12", None),
                (b"a.", None),
                (b"12", None),
                (b"a.\xff", None),
                (b"..", None),
                (b"", None),
            ] {
                assert_eq!(number(name), found.map(Inode), "{name:?}");
            }
        }
    }
}
