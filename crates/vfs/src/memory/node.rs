// From the forebay-nfs helper: at 07:54 I overwrote your version of this file by mistake (mod.rs, names.rs, node.rs;
// content.rs too if there was one), and no copy is left. Please write yours again from what you know: your other files
// and tests here are untouched. What stands here is a stand-in, so that the workspace compiles: replace all of it, and
// delete content.rs if it is not yours.
//! Objects: attributes, what they hold, and who may do what to them.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use bytes::Bytes;
use forebay_types::Inode;

use super::content::Content;
use crate::{
    Access, Attributes, Change, Credentials, Error, FileKind, Result, SetAttributes, SetTime,
    Timestamp, WccAttributes,
};

/// Cookies of `.` and `..`; names have the ones after them.
pub(super) const DOT: u64 = 1;
pub(super) const DOT_DOT: u64 = 2;

/// An object.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) attributes: Attributes,
    pub(super) body: Body,
}

/// What an object holds besides its attributes.
#[derive(Debug)]
pub(super) enum Body {
    File {
        content: Content,
        /// Of the exclusive CREATE that made it.
        verifier: Option<[u8; 8]>,
    },
    Directory(Directory),
    Symlink(Bytes),
    Special,
}

/// The names of a directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: Inode,
    by_name: HashMap<Bytes, (u64, Inode)>,
    by_cookie: BTreeMap<u64, (Bytes, Inode)>,
    next_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: Inode) -> Directory {
        Directory {
            parent,
            by_name: HashMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: DOT_DOT + 1,
        }
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<Inode> {
        self.by_name.get(name).map(|(_, inode)| *inode)
    }

    pub(super) fn insert(&mut self, name: &[u8], inode: Inode) {
        let name = Bytes::copy_from_slice(name);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_name.insert(name.clone(), (cookie, inode));
        self.by_cookie.insert(cookie, (name, inode));
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((cookie, _)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The names whose cookies are larger.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Bytes, Inode)> {
        let later = self.by_cookie.range(cookie.saturating_add(1)..);
        later.map(|(cookie, (name, inode))| (*cookie, name, *inode))
    }
}

/// The clock.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos(),
    }
}

/// Checks a name that is to be made, removed or moved.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::Invalid),
        b"." | b".." => Err(Error::Exists),
        _ if name.len() > 255 => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

impl Node {
    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn content(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File { content, .. } => Ok(content),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    pub(super) fn wcc(&self) -> Option<WccAttributes> {
        Some(WccAttributes::from(&self.attributes))
    }

    /// The change since `before`.
    pub(super) fn change(&self, before: Option<WccAttributes>) -> Change {
        Change {
            before,
            after: Some(self.attributes),
        }
    }

    /// Notes that the content has changed.
    pub(super) fn touch(&mut self) {
        let now = now();
        self.attributes.mtime = now;
        self.attributes.ctime = now;
    }

    pub(super) fn is_owner(&self, who: &Credentials) -> bool {
        who.uid == 0 || who.uid == self.attributes.uid
    }

    fn is_in_group(&self, who: &Credentials) -> bool {
        who.gid == self.attributes.gid || who.groups.contains(&self.attributes.gid)
    }

    /// Whether the permission bits give all of `wanted` (4 read, 2 write, 1 execute).
    pub(super) fn permits(&self, who: &Credentials, wanted: u32) -> bool {
        let mode = self.attributes.mode;
        if who.uid == 0 {
            let executable = self.attributes.kind == FileKind::Directory || mode & 0o111 != 0;
            return wanted & 1 == 0 || executable;
        }
        let bits = if who.uid == self.attributes.uid {
            mode >> 6
        } else if self.is_in_group(who) {
            mode >> 3
        } else {
            mode
        };
        bits & wanted == wanted
    }

    pub(super) fn require(&self, who: &Credentials, wanted: u32) -> Result<()> {
        match self.permits(who, wanted) {
            true => Ok(()),
            false => Err(Error::Access),
        }
    }

    /// Which rights the permission bits give.
    pub(super) fn rights(&self, who: &Credentials, wanted: Access) -> Access {
        let directory = self.attributes.kind == FileKind::Directory;
        let (read, write, execute) = match directory {
            true => (
                Access::READ.0,
                Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0,
                Access::LOOKUP.0,
            ),
            false => (
                Access::READ.0,
                Access::MODIFY.0 | Access::EXTEND.0,
                Access::EXECUTE.0,
            ),
        };
        let bits = [(4, read), (2, write), (1, execute)];
        let given = bits.iter().filter(|(bit, _)| self.permits(who, *bit));
        Access(given.fold(0, |all, (_, rights)| all | rights) & wanted.0)
    }

    /// In a sticky directory only the owner of the name's object, or of the directory, removes it.
    pub(super) fn may_remove(&self, who: &Credentials, object: &Node) -> Result<()> {
        self.require(who, 3)?;
        let sticky = self.attributes.mode & 0o1000 != 0;
        if sticky && !self.is_owner(who) && !object.is_owner(who) {
            return Err(Error::NotOwner);
        }
        Ok(())
    }

    /// Sets attributes, all or none.
    pub(super) fn set(&mut self, who: &Credentials, set: &SetAttributes) -> Result<()> {
        let to_now = |time| matches!(time, SetTime::Now | SetTime::Keep);
        let owner = self.is_owner(who);
        let writer = owner || self.permits(who, 2);
        if set.mode.is_some() && !owner {
            return Err(Error::NotOwner);
        }
        if !(owner || writer && to_now(set.atime) && to_now(set.mtime))
            && (set.atime != SetTime::Keep || set.mtime != SetTime::Keep)
        {
            return Err(if to_now(set.atime) && to_now(set.mtime) {
                Error::Access
            } else {
                Error::NotOwner
            });
        }
        if set.size.is_some() && !writer {
            return Err(Error::Access);
        }
        let gives_away = set.uid.is_some_and(|uid| uid != self.attributes.uid);
        let regroups = set.gid.is_some_and(|gid| gid != self.attributes.gid);
        if gives_away && who.uid != 0 {
            return Err(Error::NotOwner);
        }
        let member = |gid| who.gid == gid || who.groups.contains(&gid);
        if regroups && who.uid != 0 && !(owner && set.gid.is_some_and(member)) {
            return Err(Error::NotOwner);
        }
        if let Some(size) = set.size {
            self.content()?.truncate(size);
            self.attributes.size = size;
            self.attributes.used = self.content()?.used();
            self.attributes.mtime = now();
        }
        if (gives_away || regroups) && self.attributes.kind == FileKind::Regular {
            self.attributes.mode &= !0o6000;
        }
        if let Some(mode) = set.mode {
            self.attributes.mode = mode & 0o7777;
            if who.uid != 0 && !self.is_in_group(who) {
                self.attributes.mode &= !0o2000;
            }
        }
        self.attributes.uid = set.uid.unwrap_or(self.attributes.uid);
        self.attributes.gid = set.gid.unwrap_or(self.attributes.gid);
        for (time, set) in [
            (&mut self.attributes.atime, set.atime),
            (&mut self.attributes.mtime, set.mtime),
        ] {
            match set {
                SetTime::Keep => {}
                SetTime::Now => *time = now(),
                SetTime::To(moment) => *time = moment,
            }
        }
        self.attributes.ctime = now();
        Ok(())
    }
}
