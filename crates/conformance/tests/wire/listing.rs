//! READDIR and READDIRPLUS (RFC 1813, sections 3.3.16 and 3.3.17): with every size of a reply, with any verifier, while
//! names are added and removed, and across restarts.

use std::collections::{BTreeMap, BTreeSet};

use forebay_conformance::call::{How, Set};
use forebay_conformance::results::Entry;
use forebay_conformance::{Call, Status};

use crate::stack::{Client, Stack};

/// Bytes of a reply without entries by the RFC's XDR: attributes, verifier, end of the list, `eof`.
const FRAME: usize = 4 + 84 + 8 + 4 + 4;
/// Bytes of attributes and a handle of 32 bytes.
const PLUS: usize = 4 + 84 + 4 + 4 + 32;
/// A limit that no listing here reaches.
const AMPLE: u32 = 1 << 16;

/// Bytes that count against `dircount`: file id, name and cookie.
fn name_bytes(name: &[u8]) -> usize {
    8 + 4 + name.len().next_multiple_of(4) + 8
}

/// Bytes of an entry in a reply.
fn entry_bytes(name: &[u8], plus: bool) -> usize {
    4 + name_bytes(name) + if plus { PLUS } else { 0 }
}

/// The procedure of a page, and its limits.
#[derive(Clone, Copy, Debug)]
enum Page {
    Plain { count: u32 },
    Plus { dircount: u32, maxcount: u32 },
}

impl Page {
    fn is_plus(self) -> bool {
        matches!(self, Page::Plus { .. })
    }

    /// Limit of the whole reply in bytes.
    fn limit(self) -> usize {
        match self {
            Page::Plain { count } => count as usize,
            Page::Plus { maxcount, .. } => maxcount as usize,
        }
    }

    fn call(self, directory: &[u8], cookie: u64, verifier: [u8; 8]) -> Call {
        match self {
            Page::Plain { count } => Call::readdir(directory, cookie, verifier, count),
            Page::Plus { dircount, maxcount } => {
                Call::readdirplus(directory, cookie, verifier, dircount, maxcount)
            }
        }
    }
}

/// A page of either procedure with this limit.
fn pages(limit: u32) -> [Page; 2] {
    let plus = Page::Plus {
        dircount: AMPLE,
        maxcount: limit,
    };
    [Page::Plain { count: limit }, plus]
}

/// The next page and whether it is the last; `None` if the limit is too small for one entry. Checks that the reply
/// keeps the limit.
#[track_caller]
fn next(
    client: &mut Client,
    directory: &[u8],
    cookie: u64,
    page: Page,
) -> Option<(Vec<Entry>, bool)> {
    let results = client.call(&page.call(directory, cookie, [0; 8]));
    match results.status() {
        Status::OK => {}
        Status::TOOSMALL => return None,
        status => panic!("{page:?}: {status}"),
    }
    let entries = results.entries;
    let computed: usize = entries
        .iter()
        .map(|entry| entry_bytes(&entry.name, page.is_plus()))
        .sum();
    assert_eq!(results.bytes, FRAME + computed, "{page:?}");
    assert!(
        results.bytes <= page.limit(),
        "{page:?}: {} bytes",
        results.bytes
    );
    if let Page::Plus { dircount, .. } = page {
        let names: usize = entries.iter().map(|entry| name_bytes(&entry.name)).sum();
        assert!(
            names <= dircount as usize || entries.len() == 1,
            "{page:?}: {names} bytes"
        );
    }
    let end = results.flags[0];
    assert!(end || !entries.is_empty(), "{page:?}: no way to go on");
    let cookies = entries.iter().map(|entry| entry.cookie);
    assert!(cookies.clone().is_sorted() && cookies.clone().all(|next| next > cookie));
    Some((entries, end))
}

/// All pages; `None` if one of them is too small for its first entry.
#[track_caller]
fn all(client: &mut Client, directory: &[u8], page: Page) -> Option<Vec<Entry>> {
    let (mut entries, mut cookie) = (Vec::new(), 0);
    loop {
        let (found, end) = next(client, directory, cookie, page)?;
        cookie = found.last().map_or(cookie, |entry| entry.cookie);
        entries.extend(found);
        if end {
            return Some(entries);
        }
    }
}

/// Makes a directory with names of mixed lengths, and returns them in the order in which they were made.
fn mixed(root: &mut Client, top: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let directory = root.directory(top, b"mixed");
    let lengths = [1, 2, 3, 4, 5, 255, 8, 100, 7, 13];
    let mut names = vec![b".".to_vec(), b"..".to_vec()];
    for (number, length) in (b'a'..).zip(lengths) {
        let name = vec![number; length];
        root.file(&directory, &name);
        names.push(name);
    }
    (directory, names)
}

fn names(entries: Vec<Entry>) -> Vec<Vec<u8>> {
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn every_size_of_a_reply_lists_everything_once_or_is_too_small_for_one_name() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (directory, expected) = mixed(&mut root, &top);
    for plus in [false, true] {
        let largest = expected.iter().map(|name| entry_bytes(name, plus)).max();
        let enough = FRAME + largest.unwrap();
        let whole: usize = expected.iter().map(|name| entry_bytes(name, plus)).sum();
        for size in 0..=FRAME + whole + 1 {
            let page = pages(size as u32)[usize::from(plus)];
            let listed = all(&mut root, &directory, page);
            // TOOSMALL is returned exactly when the largest name does not fit.
            assert_eq!(listed.is_some(), size >= enough, "{page:?}");
            if let Some(listed) = listed {
                assert_eq!(names(listed), expected, "{page:?}");
            }
        }
        // The whole directory fits a reply of exactly its size.
        let exact = pages((FRAME + whole) as u32)[usize::from(plus)];
        assert!(next(&mut root, &directory, 0, exact).unwrap().1);
        for page in [AMPLE, 1 << 20, u32::MAX].map(|size| pages(size)[usize::from(plus)]) {
            assert_eq!(names(all(&mut root, &directory, page).unwrap()), expected);
        }
    }
}

#[test]
fn every_dircount_lists_everything_once_and_gives_one_name_at_least() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (directory, expected) = mixed(&mut root, &top);
    let whole: usize = expected.iter().map(|name| name_bytes(name)).sum();
    for dircount in 0..=whole as u32 + 1 {
        let page = Page::Plus {
            dircount,
            maxcount: AMPLE,
        };
        let listed = all(&mut root, &directory, page).unwrap();
        assert_eq!(names(listed), expected, "{page:?}");
    }
}

#[test]
fn behind_the_last_name_there_is_the_end_in_the_smallest_of_replies() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let empty = root.directory(&top, b"empty");
    for page in pages(AMPLE) {
        let listed = all(&mut root, &empty, page).unwrap();
        assert_eq!(listed.len(), 2, "the dots");
        let last = listed[1].cookie;
        for cookie in [last, last + 1, u64::MAX] {
            let (entries, end) = next(&mut root, &empty, cookie, page).unwrap();
            assert_eq!((entries.len(), end), (0, true), "{cookie}");
        }
    }
    for (size, fits) in [(FRAME, true), (FRAME - 1, false), (0, false)] {
        for page in pages(size as u32) {
            let found = next(&mut root, &empty, u64::MAX, page);
            assert_eq!(found.is_some(), fits, "{page:?}");
        }
    }
}

#[test]
fn the_verifier_is_always_the_same_and_any_other_is_taken() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (directory, expected) = mixed(&mut root, &top);
    let cookie = all(&mut root, &directory, pages(AMPLE)[0]).unwrap()[4].cookie;
    let check = |root: &mut Client| {
        for verifier in [[0; 8], [0xff; 8], *b"verifier"] {
            for page in pages(AMPLE) {
                let results = root.ok(&page.call(&directory, cookie, verifier));
                assert_eq!(results.eight, Some([0; 8]));
                assert_eq!(names(results.entries), expected[5..]);
            }
        }
    };
    check(&mut root);
    stack.crash();
    stack.start();
    check(&mut stack.root());
}

#[test]
fn readdirplus_gives_the_handles_and_attributes_of_lookup_and_getattr() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (directory, _) = mixed(&mut root, &top);
    root.directory(&directory, b"directory");
    let link = Call::symlink(&directory, b"link", &Set::default(), b"path");
    root.ok(&link);
    for entry in all(&mut root, &directory, pages(AMPLE)[1]).unwrap() {
        let found = root.ok(&Call::lookup(&directory, &entry.name));
        assert_eq!(entry.handle, found.handle);
        assert_eq!(entry.attributes, found.attributes[0]);
        let attributes = entry.attributes.unwrap();
        assert_eq!(entry.fileid, attributes.fileid);
        assert_eq!(attributes, root.attributes(&entry.handle.unwrap()));
    }
}

fn create(directory: &[u8], name: &str) -> Call {
    Call::create(directory, name.as_bytes(), How::Guarded(Set::default()))
}

/// Lists a directory page by page, while `meanwhile` changes it after each of them. Returns how often each name was
/// listed.
fn listed_while(
    stack: &mut Stack,
    directory: &[u8],
    page: Page,
    mut meanwhile: impl FnMut(&mut Stack, usize, &[Entry]),
) -> BTreeMap<Vec<u8>, usize> {
    let (mut seen, mut cookie) = (BTreeMap::new(), 0);
    for number in 0.. {
        let (entries, end) = next(&mut stack.root(), directory, cookie, page).unwrap();
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        meanwhile(stack, number, &entries);
        for entry in entries {
            *seen.entry(entry.name).or_default() += 1;
        }
        if end {
            break;
        }
        assert!(number < 1000, "the listing does not end");
    }
    seen
}

#[test]
fn what_stays_is_listed_once_while_names_are_made_removed_and_renamed_between_pages() {
    const STAYING: usize = 120;
    for page in pages(1200) {
        let mut stack = Stack::new();
        let mut root = stack.root();
        let top = root.top();
        // Names that are removed, between names that stay.
        for number in 0..STAYING {
            root.ok(&create(&top, &format!("stays-{number:03}")));
            root.ok(&create(&top, &format!("goes-{number:03}")));
        }
        // Names that were removed before the listing reached them, and names that it has passed.
        let (mut removed, mut passed) = (BTreeSet::new(), BTreeSet::new());
        let seen = listed_while(&mut stack, &top, page, |stack, number, entries| {
            let mut root = stack.root();
            passed.extend(entries.iter().map(|entry| entry.name.clone()));
            if number < 20 {
                root.ok(&create(&top, &format!("new-{number}")));
            }
            // Remove the last listed name, where the listing may continue, and one that is still to come.
            if let Some(last) = entries
                .iter()
                .rfind(|entry| entry.name.starts_with(b"goes"))
            {
                root.ok(&Call::remove(&top, &last.name));
            }
            let later = format!("goes-{:03}", STAYING - 1 - number % STAYING).into_bytes();
            let is_gone = root.status(&Call::remove(&top, &later)) == Status::OK;
            if is_gone && !passed.contains(&later) {
                removed.insert(later);
            }
            let (old, new) = (
                format!("goes-{:03}", 60 + number),
                format!("renamed-{number}"),
            );
            root.call(&Call::rename(
                (&top, old.as_bytes()),
                (&top, new.as_bytes()),
            ));
        });
        for number in 0..STAYING {
            let name = format!("stays-{number:03}").into_bytes();
            assert_eq!(seen.get(&name), Some(&1), "{page:?} stays-{number:03}");
        }
        assert!(
            seen.values().all(|times| *times == 1),
            "{page:?}: no name comes twice"
        );
        assert!(!removed.is_empty());
        for name in &removed {
            assert_eq!(seen.get(name), None, "{page:?}: it was gone before");
        }
        // Names made behind the listing's position are found by it.
        assert_eq!(seen.get(&b"new-0"[..]), Some(&1));
    }
}

#[test]
fn a_directory_that_is_emptied_while_it_is_listed_ends_empty() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let directory = root.directory(&top, b"directory");
    for number in 0..200 {
        root.ok(&create(&directory, &format!("file-{number}")));
    }
    let seen = listed_while(
        &mut stack,
        &directory,
        pages(1000)[0],
        |stack, _, entries| {
            let mut root = stack.root();
            for entry in entries.iter().filter(|entry| !entry.name.starts_with(b".")) {
                root.ok(&Call::remove(&directory, &entry.name));
            }
        },
    );
    assert_eq!(seen.len(), 202);
    let mut root = stack.root();
    root.ok(&Call::rmdir(&top, b"directory"));
    // A client that is listing the directory gets an error.
    for page in pages(1000) {
        assert_eq!(
            root.status(&page.call(&directory, 5, [0; 8])),
            Status::STALE
        );
    }
}

#[test]
fn cookies_are_good_after_every_kind_of_restart() {
    for page in pages(900) {
        let mut stack = Stack::new();
        let mut root = stack.root();
        let top = root.top();
        for number in 0..90 {
            root.ok(&create(&top, &format!("file-{number}")));
        }
        let cookies = |root: &mut Client| -> Vec<(Vec<u8>, u64)> {
            let entries = all(root, &top, page).unwrap().into_iter();
            entries.map(|entry| (entry.name, entry.cookie)).collect()
        };
        let before = cookies(&mut root);
        let seen = listed_while(&mut stack, &top, page, |stack, number, entries| {
            let last = entries.last().map(|entry| entry.name.clone());
            if number == 1 {
                // The listing continues after a name that was removed.
                stack.root().ok(&Call::remove(&top, &last.unwrap()));
            }
            match number % 3 {
                0 => stack.crash(),
                _ => stack.stop(),
            }
            stack.start();
        });
        assert_eq!(seen.len(), 92);
        assert!(seen.values().all(|times| *times == 1), "{page:?}");
        let after = cookies(&mut stack.root());
        let stayed = before.into_iter().filter(|(name, _)| {
            let mut after = after.iter();
            after.any(|(other, _)| other == name)
        });
        assert_eq!(stayed.collect::<Vec<_>>(), after);
        assert_eq!(after.len(), 91);
    }
}
