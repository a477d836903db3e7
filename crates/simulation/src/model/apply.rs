//! The effect of each operation on the model.

use std::sync::Arc;

use forebay_vfs::{CreateMode, Error, FileKind, SetAttributes, SetTime, Timestamp};

use super::{Body, Content, Object, ROOT, State};
use crate::operation::{NewObject, Operation};

/// The effect of an operation: a new state, or `None` if it succeeds and changes nothing. On failure, the errors of
/// which it must return one.
pub(super) type Effect = Result<Option<State>, Vec<Error>>;

fn refuse<T>(error: Error) -> Result<T, Vec<Error>> {
    Err(vec![error])
}

impl State {
    /// The effect of `operation` on this state at the time `now`. A new object gets the inode `new`.
    pub(crate) fn apply(&self, operation: &Operation, now: Timestamp, new: u64) -> Effect {
        match operation {
            Operation::Create {
                directory,
                name,
                mode,
            } => self.create(*directory, name, mode, now, new),
            Operation::Make {
                directory,
                name,
                object,
                mode,
            } => self.make(*directory, name, object, *mode, now, new),
            Operation::Link {
                inode,
                directory,
                name,
            } => self.link(*inode, *directory, name, now),
            Operation::Remove { directory, name } => self.remove(*directory, name, false, now),
            Operation::Rmdir { directory, name } => self.remove(*directory, name, true, now),
            Operation::Rename { from, old, to, new } => self.rename((*from, old), (*to, new), now),
            Operation::SetAttributes { inode, set, guard } => {
                self.set_attributes(*inode, set, *guard, now)
            }
            Operation::Write {
                inode,
                offset,
                data,
                ..
            } => {
                self.file(*inode)?;
                if data.is_empty() {
                    return Ok(None);
                }
                let mut state = self.clone();
                if let Some(object) = state.change(*inode) {
                    object.changed(now);
                    object.change_content(|content| content.write(*offset, data));
                }
                Ok(Some(state))
            }
            Operation::Commit { inode } | Operation::Read { inode, .. } => {
                self.file(*inode)?;
                Ok(None)
            }
            Operation::List { directory, .. } => {
                self.directory(*directory)?;
                Ok(None)
            }
            Operation::Lookup { directory, name } => {
                self.directory(*directory)?;
                match self.lookup(*directory, name) {
                    Some(_) => Ok(None),
                    None => refuse(Error::NotFound),
                }
            }
            Operation::Flush => Ok(None),
            Operation::Snapshot { name } => {
                let mut state = self.clone();
                let kept = State {
                    snapshots: Default::default(),
                    ..self.clone()
                };
                match state.snapshots.insert(name.clone(), Arc::new(kept)) {
                    None => Ok(Some(state)),
                    Some(_) => refuse(Error::Exists),
                }
            }
            // Another call may have deleted it.
            Operation::DeleteSnapshot { name } if self.snapshots.contains_key(name) => Ok(None),
            Operation::DeleteSnapshot { .. } => refuse(Error::NotFound),
            // Each of their records is followed by itself.
            Operation::Restore(_) | Operation::Undelete { .. } => Ok(None),
        }
    }

    fn directory(&self, inode: u64) -> Result<(), Vec<Error>> {
        match self.get(inode).map(Object::kind) {
            None => refuse(Error::Stale),
            Some(FileKind::Directory) => Ok(()),
            Some(_) => refuse(Error::NotDirectory),
        }
    }

    fn file(&self, inode: u64) -> Result<(), Vec<Error>> {
        match self.get(inode).map(Object::kind) {
            None => refuse(Error::Stale),
            Some(FileKind::Regular) => Ok(()),
            Some(FileKind::Directory) => refuse(Error::IsDirectory),
            Some(_) => refuse(Error::Invalid),
        }
    }

    fn create(
        &self,
        directory: u64,
        name: &[u8],
        mode: &CreateMode,
        now: Timestamp,
        new: u64,
    ) -> Effect {
        self.directory(directory)?;
        if let Some(inode) = self.lookup(directory, name) {
            let existing = self.get(inode);
            return match mode {
                CreateMode::Exclusive(verifier)
                    if existing.is_some_and(|object| object.verifier == Some(*verifier)) =>
                {
                    Ok(None)
                }
                CreateMode::Guarded(_) | CreateMode::Exclusive(_) => refuse(Error::Exists),
                CreateMode::Unchecked(_)
                    if existing.is_some_and(|object| object.kind() != FileKind::Regular) =>
                {
                    refuse(Error::Exists)
                }
                CreateMode::Unchecked(SetAttributes {
                    size: Some(size), ..
                }) => {
                    let only_size = SetAttributes {
                        size: Some(*size),
                        ..SetAttributes::default()
                    };
                    self.set_attributes(inode, &only_size, None, now)
                }
                CreateMode::Unchecked(_) => Ok(None),
            };
        }
        let (set, verifier) = match mode {
            CreateMode::Unchecked(set) | CreateMode::Guarded(set) => (*set, None),
            CreateMode::Exclusive(verifier) => (SetAttributes::default(), Some(*verifier)),
        };
        let content = Content::of_size(set.size.unwrap_or(0));
        let mut object = Object::new(Body::Regular(content), set.mode.unwrap_or(0o644), now);
        object.verifier = verifier;
        self.enter(directory, name, object, now, new)
    }

    fn make(
        &self,
        directory: u64,
        name: &[u8],
        new_object: &NewObject,
        mode: Option<u32>,
        now: Timestamp,
        new: u64,
    ) -> Effect {
        self.directory(directory)?;
        if self.lookup(directory, name).is_some() {
            return refuse(Error::Exists);
        }
        let (body, default) = match new_object {
            NewObject::Directory => (
                Body::Directory {
                    parent: directory,
                    next_cookie: 3,
                    entries: Default::default(),
                },
                0o755,
            ),
            NewObject::Symlink(target) => (Body::Symlink(target.clone()), 0o777),
            NewObject::Special(kind, device) => (Body::Special(*kind, *device), 0o644),
        };
        let object = Object::new(body, mode.unwrap_or(default), now);
        self.enter(directory, name, object, now, new)
    }

    fn enter(
        &self,
        directory: u64,
        name: &[u8],
        object: Object,
        now: Timestamp,
        new: u64,
    ) -> Effect {
        let mut state = self.clone();
        state.count_in(directory, name, new, object.kind(), None, now);
        state.objects.insert(new, Arc::new(object));
        Ok(Some(state))
    }

    /// Adds a name to a directory, under `cookie` or, without it, a new one.
    pub(super) fn count_in(
        &mut self,
        directory: u64,
        name: &[u8],
        inode: u64,
        kind: FileKind,
        cookie: Option<u64>,
        now: Timestamp,
    ) {
        let Some(object) = self.change(directory) else {
            return;
        };
        object.changed(now);
        object.nlink += u32::from(kind == FileKind::Directory);
        if let Body::Directory {
            next_cookie,
            entries,
            ..
        } = &mut object.body
        {
            let cookie = cookie.unwrap_or_else(|| {
                *next_cookie += 1;
                *next_cookie - 1
            });
            entries.insert(cookie, (name.to_vec(), inode));
        }
    }

    /// Removes a name from a directory. Returns its cookie.
    fn count_out(
        &mut self,
        directory: u64,
        name: &[u8],
        kind: FileKind,
        now: Timestamp,
    ) -> Option<u64> {
        let object = self.change(directory)?;
        object.changed(now);
        object.nlink -= u32::from(kind == FileKind::Directory);
        let Body::Directory { entries, .. } = &mut object.body else {
            return None;
        };
        let (cookie, _) = entries.iter().find(|(_, (own, _))| own == name)?;
        let cookie = *cookie;
        entries.remove(&cookie);
        Some(cookie)
    }

    /// Removes this name of the object, perhaps its last.
    fn drop_name(&mut self, inode: u64, name: (u64, &[u8]), now: Timestamp) {
        let last = self
            .get(inode)
            .is_none_or(|object| object.kind() == FileKind::Directory || object.nlink <= 1);
        if last {
            self.lose(inode, name, now);
        } else if let Some(object) = self.change(inode) {
            object.nlink -= 1;
            object.ctime = now;
        }
    }

    fn link(&self, inode: u64, directory: u64, name: &[u8], now: Timestamp) -> Effect {
        let Some(object) = self.get(inode) else {
            // Which error comes first depends on whether the object is still in memory.
            let mut errors = vec![Error::Stale];
            errors.extend(self.directory(directory).err().into_iter().flatten());
            if self.lookup(directory, name).is_some() {
                errors.push(Error::Exists);
            }
            return Err(errors);
        };
        let kind = object.kind();
        self.directory(directory)?;
        if self.lookup(directory, name).is_some() {
            return refuse(Error::Exists);
        }
        if kind == FileKind::Directory {
            return refuse(Error::NotOwner);
        }
        let mut state = self.clone();
        state.count_in(directory, name, inode, kind, None, now);
        if let Some(object) = state.change(inode) {
            object.nlink += 1;
            object.ctime = now;
        }
        Ok(Some(state))
    }

    fn remove(&self, directory: u64, name: &[u8], of_directory: bool, now: Timestamp) -> Effect {
        self.directory(directory)?;
        let Some((inode, object)) = self.named(directory, name) else {
            return refuse(Error::NotFound);
        };
        let kind = object.kind();
        match (kind == FileKind::Directory, of_directory) {
            (true, false) => return refuse(Error::IsDirectory),
            (false, true) => return refuse(Error::NotDirectory),
            _ if object.is_full_directory() => return refuse(Error::NotEmpty),
            _ => {}
        }
        let mut state = self.clone();
        state.count_out(directory, name, kind, now);
        state.drop_name(inode, (directory, name), now);
        Ok(Some(state))
    }

    fn named(&self, directory: u64, name: &[u8]) -> Option<(u64, &Object)> {
        let inode = self.lookup(directory, name)?;
        Some((inode, self.get(inode)?))
    }

    fn rename(&self, (from, old): (u64, &[u8]), (to, new): (u64, &[u8]), now: Timestamp) -> Effect {
        self.directory(from)?;
        self.directory(to)?;
        let Some((moved, object)) = self.named(from, old) else {
            return refuse(Error::NotFound);
        };
        let kind = object.kind();
        let is_directory = kind == FileKind::Directory;
        if is_directory && self.is_below(to, moved) {
            return refuse(Error::Invalid);
        }
        let replaced = self.named(to, new);
        if let Some((inode, object)) = replaced {
            if inode == moved {
                return Ok(None);
            }
            match (is_directory, object.kind() == FileKind::Directory) {
                (true, false) => return refuse(Error::NotDirectory),
                (false, true) => return refuse(Error::IsDirectory),
                _ if object.is_full_directory() => return refuse(Error::NotEmpty),
                _ => {}
            }
        }
        let mut state = self.clone();
        let own = state.count_out(from, old, kind, now);
        // A name that replaces another takes its cookie; a name moved within its directory keeps its own.
        let mut cookie = own.filter(|_| from == to);
        if let Some((inode, object)) = replaced {
            cookie = state.count_out(to, new, object.kind(), now);
            state.drop_name(inode, (to, new), now);
        }
        state.count_in(to, new, moved, kind, cookie, now);
        if let Some(object) = state.change(moved) {
            object.ctime = now;
            if let Body::Directory { parent, .. } = &mut object.body {
                *parent = to;
            }
        }
        Ok(Some(state))
    }

    fn is_below(&self, mut inode: u64, ancestor: u64) -> bool {
        while inode != ancestor {
            match self.get(inode).map(|object| &object.body) {
                Some(Body::Directory { parent, .. }) if inode != ROOT => inode = *parent,
                _ => return false,
            }
        }
        true
    }

    fn set_attributes(
        &self,
        inode: u64,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        now: Timestamp,
    ) -> Effect {
        let Some(object) = self.get(inode) else {
            return refuse(Error::Stale);
        };
        if guard.is_some_and(|guard| guard != object.ctime) {
            return refuse(Error::NotSync);
        }
        if set.size.is_some() {
            self.file(inode)?;
        }
        let mut state = self.clone();
        let Some(object) = state.change(inode) else {
            return refuse(Error::Stale);
        };
        if let Some(size) = set.size {
            object.change_content(|content| content.truncate(size));
            object.mtime = now;
        }
        object.uid = set.uid.unwrap_or(object.uid);
        object.gid = set.gid.unwrap_or(object.gid);
        object.mode = set.mode.unwrap_or(object.mode);
        for (time, set) in [
            (&mut object.atime, set.atime),
            (&mut object.mtime, set.mtime),
        ] {
            match set {
                SetTime::Keep => {}
                SetTime::Now => *time = now,
                SetTime::To(moment) => *time = moment,
            }
        }
        object.ctime = now;
        Ok(Some(state))
    }
}
