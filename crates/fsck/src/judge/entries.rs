//! Judges the names and cookies of one directory in which some are known to differ.
//!
//! Cookies are taken in chunks that together cover all cookies. For each chunk all names of the directory are read, and
//! those whose cookie lies in the chunk are judged.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_meta::record::{CookieRecord, NameRecord};
use forebay_types::Inode;

use crate::finding::{Finding, Name, Sink};

/// A chunk: the cookies of a range.
pub(crate) struct Entries {
    directory: Inode,
    first: u64,
    last: u64,
    cookies: BTreeMap<u64, Entry>,
}

struct Entry {
    /// `None` if it cannot be read, which was reported before.
    record: Option<CookieRecord>,
    has_name: bool,
}

impl Entries {
    /// A chunk that begins at the cookie `first`, without an end so far.
    pub(crate) fn new(directory: Inode, first: u64) -> Entries {
        Entries {
            directory,
            first,
            last: u64::MAX,
            cookies: BTreeMap::new(),
        }
    }

    /// Adds a cookie of the chunk.
    pub(crate) fn cookie(&mut self, cookie: u64, record: Option<CookieRecord>) {
        let has_name = false;
        self.cookies.insert(cookie, Entry { record, has_name });
    }

    pub(crate) fn len(&self) -> usize {
        self.cookies.len()
    }

    /// Ends the chunk at this cookie.
    pub(crate) fn end_with(&mut self, last: u64) {
        self.last = last;
    }

    /// Judges a name of the directory.
    pub(crate) fn name(&mut self, name: &Bytes, record: &NameRecord, sink: &mut dyn Sink) {
        let cookie = record.cookie;
        if cookie < self.first || cookie > self.last {
            return;
        }
        let directory = self.directory;
        let Some(entry) = self.cookies.get_mut(&cookie) else {
            let name = Name(name.clone());
            return sink.found(Finding::NameWithoutCookie {
                directory,
                name,
                cookie,
            });
        };
        let Some(found) = &entry.record else {
            return;
        };
        let why = if found.name != name {
            "the cookie is of another name"
        } else if found.inode != record.inode {
            "they refer to different objects"
        } else if found.kind != record.kind {
            "they name different kinds of objects"
        } else {
            entry.has_name = true;
            return;
        };
        // The cookie belongs to this name even if they differ: a cookie that is left over belongs to no name.
        entry.has_name |= found.name == name;
        let name = Name(name.clone());
        sink.found(Finding::NameAndCookieDiffer {
            directory,
            name,
            cookie,
            why,
        });
    }

    /// Called after the last name.
    pub(crate) fn finish(self, sink: &mut dyn Sink) {
        for (cookie, entry) in self.cookies {
            let Some(record) = entry.record.filter(|_| !entry.has_name) else {
                continue;
            };
            sink.found(Finding::CookieWithoutName {
                directory: self.directory,
                name: Name(record.name),
                cookie,
            });
        }
    }
}
