//! Objects of a range of inodes, and the names that they have and hold.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use forebay_meta::InodeRecord;
use forebay_meta::record::{Content, CookieRecord, Garbage, Kind, NameRecord, TruncatedBlocks};
use forebay_types::Inode;

use super::totals::Totals;
use crate::finding::{Finding, Name, Sink};

/// The cookie of the first name in a directory.
pub(crate) const FIRST_COOKIE: u64 = 3;
/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
const SYMLINK_MAX: usize = 4096;
/// Number of inodes without a directory whose names are counted before they are reported.
const NO_DIRECTORY_LIMIT: usize = 10_000;

/// The meaning of an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An object.
    Object(Kind),
    /// An object whose record cannot be read.
    Unreadable,
    /// A removed file whose block maps are still to be collected.
    Garbage,
}

/// One inode.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) inode: Inode,
    pub(crate) what: What,
    pub(crate) size: u64,
    /// For an object the bytes that it counts; for garbage the first block that is still to be collected.
    pub(crate) used: u64,
    nlink: u32,
    names: u32,
    /// It has an entry in the trash.
    is_in_trash: bool,
    /// Index of its directory row, if it is a directory.
    directory: u32,
    tree: Option<Inode>,
    /// Blocks whose maps do not count.
    pub(crate) truncated: TruncatedBlocks,
}

#[derive(Debug)]
struct DirectoryRow {
    parent: Inode,
    next_cookie: u64,
    entries: u64,
    names: u64,
    cookies: u64,
    subdirectories: u64,
    highest_cookie: u64,
    /// The directory that holds its name; with several names, the last of them.
    holder: Inode,
    /// Sum of [`stand_for`] over all names less that over all cookies: zero if they agree.
    difference: u64,
    /// A name or cookie in it cannot be read.
    unreadable: bool,
}

/// Marks a row without a directory row.
const NONE: u32 = u32::MAX;

/// Bytes of memory that an object takes, and a directory in addition.
const ROW_BYTES: usize = size_of::<Row>();
const DIRECTORY_BYTES: usize = size_of::<DirectoryRow>();

/// The objects of a range of inodes.
pub(crate) struct Objects {
    /// The first inode of the range.
    from: Inode,
    /// The first inode behind the range; `None` if there is none.
    end: Option<Inode>,
    limit: usize,
    rows: Vec<Row>,
    directories: Vec<DirectoryRow>,
    /// Numbers of names and cookies in inodes that are no directories.
    in_no_directory: BTreeMap<Inode, u64>,
}

impl Objects {
    /// A range that begins at `from` and may take `limit` bytes of memory.
    pub(crate) fn new(from: Inode, limit: usize) -> Objects {
        Objects {
            from,
            end: None,
            limit,
            rows: Vec::new(),
            directories: Vec::new(),
            in_no_directory: BTreeMap::new(),
        }
    }

    /// Whether the table has no room for another object.
    pub(crate) fn is_full(&self) -> bool {
        let taken = self.rows.len() * ROW_BYTES + self.directories.len() * DIRECTORY_BYTES;
        // `NONE` is no valid index. Tables grow by doubling.
        2 * taken >= self.limit || self.directories.len() >= (NONE - 1) as usize
    }

    /// Ends the range before `next`: no more objects come.
    pub(crate) fn end_before(&mut self, next: Option<Inode>) {
        self.end = next;
    }

    /// Whether a number belongs to this range.
    pub(crate) fn holds(&self, inode: Inode) -> bool {
        self.from <= inode && self.end.is_none_or(|end| inode < end)
    }

    /// All rows, by inode.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds an object; `None` for its record if that cannot be read. Objects and [`garbage`](Objects::garbage) come in
    /// the order of their inodes.
    pub(crate) fn object(
        &mut self,
        inode: Inode,
        record: Option<&InodeRecord>,
        totals: &mut Totals,
        sink: &mut dyn Sink,
    ) {
        totals.object(inode, record);
        let mut row = Row {
            inode,
            what: What::Unreadable,
            size: 0,
            used: 0,
            nlink: 0,
            names: 0,
            is_in_trash: false,
            directory: NONE,
            tree: None,
            truncated: TruncatedBlocks::default(),
        };
        if let Some(record) = record {
            if let Some(why) = impossible(record) {
                sink.found(Finding::BadAttributes { inode, why });
            }
            row.what = What::Object(record.kind());
            row.size = record.size;
            row.used = record.used;
            row.nlink = record.nlink;
            row.tree = record.tree;
            row.truncated = record.truncated.clone();
            if let Some(own) = record.directory() {
                row.directory = u32::try_from(self.directories.len()).unwrap_or(NONE);
                self.directories.push(DirectoryRow {
                    parent: own.parent,
                    next_cookie: own.next_cookie,
                    entries: own.entries,
                    names: 0,
                    cookies: 0,
                    subdirectories: 0,
                    highest_cookie: 0,
                    holder: inode,
                    difference: 0,
                    unreadable: false,
                });
            }
        }
        self.rows.push(row);
    }

    /// Adds a removed file; `None` for its record if that cannot be read.
    pub(crate) fn garbage(
        &mut self,
        inode: Inode,
        record: Option<&Garbage>,
        totals: &mut Totals,
        sink: &mut dyn Sink,
    ) {
        totals.garbage(inode);
        if self.rows.last().is_some_and(|row| row.inode == inode) {
            sink.found(Finding::GarbageOfLiving { inode });
            return;
        }
        self.rows.push(Row {
            inode,
            what: match record {
                Some(_) => What::Garbage,
                None => What::Unreadable,
            },
            size: record.map_or(u64::MAX, |record| record.size),
            used: record.map_or(0, |record| record.first_block.0),
            nlink: 0,
            names: 0,
            is_in_trash: false,
            directory: NONE,
            tree: None,
            truncated: TruncatedBlocks::default(),
        });
    }

    /// The tree that a directory of this range counts in; `None` if that is not known.
    pub(crate) fn tree_of(&self, directory: Inode) -> Option<Option<Inode>> {
        let row = self.rows.get(self.find(directory)?)?;
        (row.directory != NONE).then_some(row.tree)
    }

    /// The parent of a directory; `None` if it is not known in this range.
    pub(crate) fn parent_of(&self, directory: Inode) -> Option<Inode> {
        let row = self.rows.get(self.find(directory)?)?;
        let own = self.directories.get(row.directory as usize)?;
        Some(own.parent)
    }

    /// Takes a name; `None` for its record if that cannot be read. `holder` is the tree that its directory counts in,
    /// if that is known. Every range receives all names.
    pub(crate) fn name(
        &mut self,
        directory: Inode,
        name: &Bytes,
        record: Option<&NameRecord>,
        holder: Option<Option<Inode>>,
        (totals, sink): (&mut Totals, &mut dyn Sink),
    ) {
        if self.holds(directory) {
            totals.names += 1;
            if let Some(why) = impossible_name(name) {
                let name = Name(name.clone());
                sink.found(Finding::BadName {
                    directory,
                    name,
                    why,
                });
            }
            self.name_in(directory, name, record, sink);
        }
        if let Some(record) = record
            && self.holds(record.inode)
        {
            self.name_of(directory, name, record, holder, (totals, sink));
        }
    }

    /// Takes a name in a directory of this range.
    fn name_in(
        &mut self,
        directory: Inode,
        name: &[u8],
        record: Option<&NameRecord>,
        sink: &mut dyn Sink,
    ) {
        let Some(own) = self.directory(directory, sink) else {
            return;
        };
        own.names += 1;
        let Some(record) = record else {
            own.unreadable = true;
            return;
        };
        own.highest_cookie = own.highest_cookie.max(record.cookie);
        own.subdirectories += u64::from(record.kind == Kind::Directory);
        let stands = stand_for(record.cookie, name, record.inode, record.kind);
        own.difference = own.difference.wrapping_add(stands);
    }

    /// Takes a name of an object of this range.
    fn name_of(
        &mut self,
        directory: Inode,
        name: &Bytes,
        record: &NameRecord,
        holder: Option<Option<Inode>>,
        (totals, sink): (&Totals, &mut dyn Sink),
    ) {
        let inode = record.inode;
        let found = self.find(inode).and_then(|at| self.rows.get_mut(at));
        let Some(row) = found.filter(|row| row.what != What::Garbage) else {
            let name = Name(name.clone());
            sink.found(Finding::NameWithoutObject {
                directory,
                name,
                inode,
            });
            return;
        };
        row.names = row.names.saturating_add(1);
        let What::Object(kind) = row.what else {
            return;
        };
        if kind != record.kind {
            let name = Name(name.clone());
            sink.found(Finding::WrongKind {
                directory,
                name,
                inode,
                says: record.kind,
                is: kind,
            });
        }
        // A file may have names on both sides of a border that was drawn later; a directory has one name.
        if let Some(own) = self.directories.get_mut(row.directory as usize) {
            own.holder = directory;
            if let Some(is) = holder
                && row.tree != is
                && row.tree != Some(inode)
                && !totals.is_unsettled(row.tree)
                && !totals.is_unsettled(is)
            {
                let says = row.tree;
                sink.found(Finding::WrongTree {
                    inode,
                    directory,
                    says,
                    is,
                });
            }
        }
    }

    /// Takes a cookie of a directory of this range; `None` for its record if that cannot be read.
    pub(crate) fn cookie(
        &mut self,
        directory: Inode,
        cookie: u64,
        record: Option<&CookieRecord>,
        sink: &mut dyn Sink,
    ) {
        let Some(own) = self.directory(directory, sink) else {
            return;
        };
        own.cookies += 1;
        own.highest_cookie = own.highest_cookie.max(cookie);
        let Some(record) = record else {
            own.unreadable = true;
            return;
        };
        let stands = stand_for(cookie, &record.name, record.inode, record.kind);
        own.difference = own.difference.wrapping_sub(stands);
    }

    /// Takes an entry of the trash, after the names.
    pub(crate) fn trash(&mut self, inode: Inode, sink: &mut dyn Sink) {
        let found = self.find(inode).and_then(|at| self.rows.get_mut(at));
        let why = match found {
            None => "which does not exist",
            Some(row) => match row.what {
                What::Unreadable => return,
                What::Garbage => "which was deleted",
                What::Object(_) if row.names > 0 => "which has a name",
                What::Object(_) if row.nlink > 0 => "which counts links",
                What::Object(_) => {
                    row.is_in_trash = true;
                    return;
                }
            },
        };
        sink.found(Finding::TrashOfNothing { inode, why });
    }

    /// Called after the last record. Returns the directories whose names and cookies differ.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) -> Vec<Inode> {
        self.report_in_no_directory(sink);
        if self.holds(Inode::ROOT) && self.find(Inode::ROOT).is_none() {
            let why = "does not exist";
            sink.found(Finding::BadRoot { why });
        }
        let mut differ = Vec::new();
        for row in &self.rows {
            let What::Object(kind) = row.what else {
                continue;
            };
            let own = self.directories.get(row.directory as usize);
            judge_links(row, kind, own, sink);
            if let Some(own) = own {
                judge_directory(row.inode, own, sink);
                if !own.unreadable && (own.difference != 0 || own.names != own.cookies) {
                    differ.push(row.inode);
                }
            }
        }
        differ
    }

    /// Directories whose parent has no smaller number: every loop contains one of them.
    pub(crate) fn climbers(&self) -> impl Iterator<Item = Inode> {
        let climbs = |row: &&Row| {
            let own = self.directories.get(row.directory as usize);
            own.is_some_and(|own| own.parent >= row.inode && row.inode != Inode::ROOT)
        };
        self.rows.iter().filter(climbs).map(|row| row.inode)
    }

    fn find(&self, inode: Inode) -> Option<usize> {
        self.rows.binary_search_by_key(&inode, |row| row.inode).ok()
    }

    /// The row of a directory. If there is none, counts the entry as one in no directory and returns `None`.
    fn directory(&mut self, inode: Inode, sink: &mut dyn Sink) -> Option<&mut DirectoryRow> {
        let row = self.find(inode).and_then(|at| self.rows.get(at));
        let at = match row {
            Some(row) if row.what == What::Unreadable => return None,
            Some(row) if row.directory != NONE => row.directory as usize,
            _ => {
                *self.in_no_directory.entry(inode).or_default() += 1;
                if self.in_no_directory.len() > NO_DIRECTORY_LIMIT {
                    self.report_in_no_directory(sink);
                }
                return None;
            }
        };
        self.directories.get_mut(at)
    }

    fn report_in_no_directory(&mut self, sink: &mut dyn Sink) {
        for (directory, entries) in std::mem::take(&mut self.in_no_directory) {
            sink.found(Finding::NamesInNoDirectory { directory, entries });
        }
    }
}

fn judge_links(row: &Row, kind: Kind, own: Option<&DirectoryRow>, sink: &mut dyn Sink) {
    let inode = row.inode;
    let names = u64::from(row.names);
    if row.is_in_trash {
        return;
    }
    if inode == Inode::ROOT {
        let why = match own {
            None => Some("is not a directory"),
            Some(own) if own.parent != Inode::ROOT => Some("has a parent"),
            Some(_) if names > 0 => Some("has a name"),
            Some(_) => None,
        };
        if let Some(why) = why {
            sink.found(Finding::BadRoot { why });
        }
    } else if names == 0 {
        sink.found(Finding::Orphan { inode, kind });
    }
    let is = match own {
        // Its name and its ".", and the ".." of each subdirectory. The root has its own ".." for a name.
        Some(own) if !own.unreadable => 2 + own.subdirectories,
        Some(_) => return,
        None if names == 0 => return,
        None => names,
    };
    if u64::from(row.nlink) != is {
        let says = row.nlink;
        sink.found(Finding::WrongLinkCount { inode, says, is });
    }
    let Some(own) = own.filter(|_| inode != Inode::ROOT) else {
        return;
    };
    if names > 1 {
        sink.found(Finding::ManyNames { inode, names });
    } else if names == 1 && own.parent != own.holder {
        let (says, is) = (own.parent, own.holder);
        sink.found(Finding::WrongParent { inode, says, is });
    }
}

fn judge_directory(inode: Inode, own: &DirectoryRow, sink: &mut dyn Sink) {
    if own.entries != own.names {
        let (says, is) = (own.entries, own.names);
        sink.found(Finding::WrongEntryCount { inode, says, is });
    }
    if own.next_cookie <= own.highest_cookie || own.next_cookie < FIRST_COOKIE {
        sink.found(Finding::NextCookieTooLow {
            inode,
            next: own.next_cookie,
            highest: own.highest_cookie,
        });
    }
}

/// A hash of one entry of a directory. Sums of hashes differ for different sets of entries, but for one accident in
/// 2^64.
fn stand_for(cookie: u64, name: &[u8], inode: Inode, kind: Kind) -> u64 {
    let mut hasher = DefaultHasher::new();
    (cookie, name, inode, kind).hash(&mut hasher);
    hasher.finish()
}

fn impossible(record: &InodeRecord) -> Option<&'static str> {
    if record.mode & !0o7777 != 0 {
        return Some("its mode has bits that no permission has");
    }
    match &record.content {
        Content::Regular => None,
        _ if record.used != 0 => Some("it counts bytes in block maps, but is not a file"),
        Content::Symlink { target } if target.len() > SYMLINK_MAX => {
            Some("its target is too long for a path")
        }
        Content::Symlink { target } if target.len() as u64 != record.size => {
            Some("its size is not the length of its target")
        }
        _ => None,
    }
}

pub(crate) fn impossible_name(name: &[u8]) -> Option<&'static str> {
    match name {
        b"." | b".." => {
            Some("is reserved for a directory itself or its parent, and cannot be opened")
        }
        _ if name.len() > NAME_MAX => Some("is too long, and cannot be opened"),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => {
            Some("has a byte that is not allowed in names, and cannot be opened")
        }
        _ => None,
    }
}
