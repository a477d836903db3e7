//! Names in directories: each is stored twice, by name and by cookie.

use bytes::Bytes;
use forebay_types::Inode;

use super::inode::Kind;
use super::{Record, ValueReader};
use crate::codec::put_bytes;
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// The object that a name refers to; found by the name.
///
/// ```text
/// version: 1 (1)   kind: 1   inode: 8   cookie: 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// The object.
    pub inode: Inode,
    /// The cookie under which the name's [`CookieRecord`] stands.
    pub cookie: u64,
    /// Kind of the object.
    pub kind: Kind,
}

impl Record for NameRecord {
    const TAG: u8 = tag::NAME;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(18);
        out.extend([VERSION, self.kind as u8]);
        out.extend(self.inode.0.to_le_bytes());
        out.extend(self.cookie.to_le_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(NameRecord {
            kind: Kind::read(fields)?,
            inode: Inode(fields.u64()?),
            cookie: fields.u64()?,
        })
    }
}

/// A name and the object that it refers to; found by the cookie, in the order in which READDIR lists.
///
/// ```text
/// version: 1 (1)   kind: 1   inode: 8   name length: 4   name
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieRecord {
    /// The object.
    pub inode: Inode,
    /// Kind of the object.
    pub kind: Kind,
    /// The name.
    pub name: Bytes,
}

impl Record for CookieRecord {
    const TAG: u8 = tag::COOKIE;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(14 + self.name.len());
        out.extend([VERSION, self.kind as u8]);
        out.extend(self.inode.0.to_le_bytes());
        put_bytes(&mut out, &self.name);
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(CookieRecord {
            kind: Kind::read(fields)?,
            inode: Inode(fields.u64()?),
            name: fields.bytes()?,
        })
    }
}
