//! The names and cookies of one directory that is known to have some that do not agree.
//!
//! Cookies are taken up in chunks that together hold every cookie there can be; for each of them all names of the
//! directory are looked at, and those judged whose cookie is the chunk's.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_meta::record::{CookieRecord, NameRecord};
use forebay_types::Inode;

use crate::finding::{Finding, Name, Sink};

/// The cookies of a range.
pub(crate) struct Entries {
    directory: Inode,
    first: u64,
    last: u64,
    cookies: BTreeMap<u64, Entry>,
}

struct Entry {
    /// None if it cannot be read, which was said already.
    record: Option<CookieRecord>,
    has_name: bool,
}

impl Entries {
    /// A chunk that begins at the cookie `first`, without end so far.
    pub(crate) fn new(directory: Inode, first: u64) -> Entries {
        Entries {
            directory,
            first,
            last: u64::MAX,
            cookies: BTreeMap::new(),
        }
    }

    /// A cookie of the chunk.
    pub(crate) fn cookie(&mut self, cookie: u64, record: Option<CookieRecord>) {
        let has_name = false;
        self.cookies.insert(cookie, Entry { record, has_name });
    }

    pub(crate) fn len(&self) -> usize {
        self.cookies.len()
    }

    /// The chunk ends with this cookie.
    pub(crate) fn end_with(&mut self, last: u64) {
        self.last = last;
    }

    /// A name of the directory.
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
            "they stand for different objects"
        } else if found.kind != record.kind {
            "they name different kinds of objects"
        } else {
            entry.has_name = true;
            return;
        };
        // Of the name, whatever it says of it: what is left over belongs to none.
        entry.has_name |= found.name == name;
        let name = Name(name.clone());
        sink.found(Finding::NameAndCookieDiffer {
            directory,
            name,
            cookie,
            why,
        });
    }

    /// All names were told.
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
