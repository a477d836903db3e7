//! READDIR and READDIRPLUS.

use std::collections::{HashMap, HashSet};

use forebay_meta::StoreError;
use forebay_meta::record::{CookieRecord, InodeRecord};
use forebay_types::Inode;
use forebay_vfs::{Attributes, Credentials, DirectoryEntry, Listing, Result, Trouble, permission};
use forebay_view::convert::{DOT_DOT_COOKIE, dots, entry, owned};
use forebay_waits::{For, waiting};
use futures_util::StreamExt;

use crate::files::Files;
use crate::state::{Node, SHORT};

/// The largest gap between inodes that are read with one scan. Reading the records in between takes about as long as a
/// look-up, and is one request for many.
const GAP: u64 = 64;

/// How many inodes one scan covers at most: about a request of 1 MiB. The next scan runs beside it.
const LONGEST: u64 = 4096;

/// Concurrent scans of inodes for one listing: objects that were made at different times need a round trip to the
/// bucket each.
pub(in crate::files) const SCANS: usize = 128;

/// How many cookies the first scan of a listing covers, and the longest one: where there are no names, each cookie
/// may be a deletion that is walked over.
const FIRST_STRETCH: u64 = 4096;
const LAST_STRETCH: u64 = 8 * FIRST_STRETCH;

impl Files {
    pub(crate) async fn readdir(
        &self,
        caller: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        let directory = self.directory(directory).await?;
        let (attributes, parent, may_search) = {
            let state = directory.lock_directory()?;
            permission::may_list(owned(&state.record), caller)?;
            let parent = state
                .record
                .directory()
                .map_or(Inode::ROOT, |own| own.parent);
            let may_search = permission::may_search(owned(&state.record), caller).is_ok();
            (directory.attributes(&state), parent, may_search)
        };
        let max_entries = max_entries.max(1);
        let mut entries: Vec<_> = dots(directory.inode, parent, cookie, max_entries).collect();
        let wanted = max_entries - entries.len();
        let mut end = false;
        if wanted > 0 {
            let from = cookie.max(DOT_DOT_COOKIE);
            let found;
            let reading = self.names_after(&directory, from, wanted);
            let reading = self.state.troubles.during(Trouble::Bucket, reading);
            (found, end) = waiting(For::Bucket, reading).await?;
            entries.extend(found.into_iter().map(entry));
        }
        // A caller that may only read the names gets nothing about the named objects, not even handles.
        if with_attributes && may_search {
            self.add_attributes(directory.inode, &mut entries).await;
        }
        Ok(Listing {
            directory: attributes,
            entries,
            end,
        })
    }

    /// The next names after a cookie, at most `wanted`, and whether there are no more. Walks over the cookies in
    /// stretches, and notes which of them are empty.
    async fn names_after(
        &self,
        directory: &Node,
        mut cookie: u64,
        wanted: usize,
    ) -> Result<(Vec<(u64, CookieRecord)>, bool)> {
        let mut found: Vec<(u64, CookieRecord)> = Vec::new();
        let mut stretch = FIRST_STRETCH;
        loop {
            let (from, last, given_out) = {
                let state = directory.lock();
                let next = state.record.directory().map_or(0, |own| own.next_cookie);
                let passed = state.passed.as_deref();
                let from = passed.map_or(cookie, |passed| passed.pass(cookie));
                let until = passed.and_then(|passed| passed.until(from));
                let last = from.saturating_add(stretch).min(until.unwrap_or(u64::MAX));
                let given_out = next.saturating_sub(1);
                // To the very end, even if the directory does not know how many cookies it has assigned.
                let last = if last < given_out { last } else { u64::MAX };
                (from, last, given_out)
            };
            let left = wanted - found.len();
            let names = self
                .state
                .catalog
                .cookies_between(directory.inode, from, last, left)
                .await
                .map_err(|error| self.state.store_failed(error))?;
            let is_full = names.len() >= left;
            let end = match names.last() {
                Some((cookie, _)) if is_full => *cookie,
                _ => last,
            };
            let end = end.min(given_out);
            note_passed(
                directory,
                from,
                names.iter().map(|(cookie, _)| *cookie),
                end,
            );
            found.extend(names);
            if is_full || last == u64::MAX {
                return Ok((found, !is_full));
            }
            cookie = last;
            stretch = (2 * stretch).min(LAST_STRETCH);
            // Walking over deletions never pauses by itself: yield to other tasks.
            tokio::task::yield_now().await;
        }
    }

    /// Adds the attributes of all entries, except those of objects that were removed meanwhile, and those that the
    /// bucket does not return now.
    async fn add_attributes(&self, directory: Inode, entries: &mut [DirectoryEntry]) {
        // An object that is not in memory now has no unpublished change. Before a new change of it can be published,
        // the object must be loaded and changed, and a checkpoint with the change must close.
        let closings = self.state.catalog.overlay().closings();
        let holds = || self.state.catalog.overlay().closings() == closings;
        let mut cold = Vec::new();
        for entry in entries.iter_mut() {
            match self.state.nodes.peek(entry.inode) {
                Some(node) => entry.attributes = live_attributes(&node, directory, entry.cookie),
                None => cold.push(entry.inode),
            }
        }
        if cold.is_empty() {
            return;
        }
        let (records, damaged) = self.read_inodes(&cold).await;
        let cold: HashSet<Inode> = cold.into_iter().collect();
        for entry in entries.iter_mut() {
            let node = match records.get(&entry.inode) {
                Some(record) => self.state.node_from(entry.inode, record, holds).await,
                // A damaged record beside it is no reason to leave it out.
                None if damaged && cold.contains(&entry.inode) => {
                    self.state.node(entry.inode).await
                }
                None => continue,
            };
            let node = node.ok();
            entry.attributes =
                node.and_then(|node| live_attributes(&node, directory, entry.cookie));
        }
    }

    /// The published records of these objects, and whether some could not be read because of damage. Objects made
    /// together have adjoining inodes, so one scan, and one GET, returns many.
    pub(in crate::files) async fn read_inodes(
        &self,
        inodes: &[Inode],
    ) -> (HashMap<Inode, InodeRecord>, bool) {
        let scans = stretches(inodes.to_vec())
            .into_iter()
            .map(|(first, last)| self.state.catalog.inodes_between(first, last));
        let mut scans = futures_util::stream::iter(scans).buffer_unordered(SCANS);
        let (mut found, mut damaged) = (HashMap::new(), false);
        while let Some(scan) = waiting(For::Bucket, scans.next()).await {
            match scan {
                Ok(records) => found.extend(records),
                Err(StoreError::Corrupt(_) | StoreError::Gone(_)) => damaged = true,
                Err(error) => {
                    // The others would wait as long in vain.
                    self.state.store_failed(error);
                    break;
                }
            }
        }
        (found, damaged)
    }
}

/// Notes that between `from` and `end`, inclusive, only these cookies have names. Every cookie up to `end` had been
/// assigned before the scan, so none of the others gets a name any more.
fn note_passed(directory: &Node, from: u64, names: impl Iterator<Item = u64>, end: u64) {
    let mut before = from;
    let mut empty = Vec::new();
    let names = names.take_while(|name| *name <= end);
    for name in names.chain([end.saturating_add(1)]) {
        if name.saturating_sub(before) > SHORT {
            empty.push((before + 1, name - 1));
        }
        before = name;
    }
    if !empty.is_empty() {
        let mut state = directory.lock();
        let passed = state.passed.get_or_insert_default();
        empty
            .into_iter()
            .for_each(|(first, last)| passed.add(first, last));
    }
}

/// The attributes of an object that an entry of a directory names.
fn live_attributes(node: &Node, directory: Inode, cookie: u64) -> Option<Attributes> {
    let state = node.lock_live().ok()?;
    // `.` and `..` are no names.
    if cookie > DOT_DOT_COOKIE {
        node.seen(directory, cookie);
    }
    Some(node.attributes(&state))
}

/// The inodes as stretches from the first to the last one, in ascending order, none with a gap of more than [`GAP`] or longer
/// than [`LONGEST`].
pub(in crate::files) fn stretches(mut inodes: Vec<Inode>) -> Vec<(Inode, Inode)> {
    inodes.sort_unstable();
    let mut stretches: Vec<(Inode, Inode)> = Vec::new();
    for inode in inodes {
        match stretches.last_mut() {
            Some((first, last)) if inode.0 - last.0 <= GAP && inode.0 - first.0 < LONGEST => {
                *last = inode;
            }
            _ => stretches.push((inode, inode)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_near_one_another_are_read_together() {
        let inodes = [3 * GAP, 3, 3 + GAP, 3, 4 + 2 * GAP].map(Inode).to_vec();
        let found = stretches(inodes);
        let expected = [(3, 3 + GAP), (4 + 2 * GAP, 3 * GAP)];
        assert_eq!(
            found,
            expected.map(|(first, last)| (Inode(first), Inode(last)))
        );
        assert_eq!(stretches(Vec::new()), Vec::new());
        let many: Vec<_> = (0..2 * LONGEST + 3).map(Inode).collect();
        let expected = [
            (0, LONGEST - 1),
            (LONGEST, 2 * LONGEST - 1),
            (2 * LONGEST, 2 * LONGEST + 2),
        ];
        let expected = expected.map(|(first, last)| (Inode(first), Inode(last)));
        assert_eq!(stretches(many), expected);
    }
}
