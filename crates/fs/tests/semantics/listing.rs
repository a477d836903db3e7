//! Listing directories while they change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use forebay_meta::{KeyRange, StoreError};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes};

use super::TOP;
use crate::common::metadata::Reads;
use crate::common::*;

/// Makes many files at once, as a busy client does.
fn make_many(life: &Life, directory: Inode, names: std::ops::Range<usize>) {
    life.run(|volume| async move {
        // A flush for each of these creations is not the subject.
        let volume = volume.with_commit_mode(forebay_fs::CommitMode::Async);
        let guarded = CreateMode::Guarded(SetAttributes::default());
        for i in names {
            let name = format!("file-{i:06}");
            volume
                .create(&ROOT, directory, name.as_bytes(), &guarded)
                .await
                .unwrap();
        }
    });
}

#[test]
fn many_entries_are_listed_once_each_while_others_come_and_go() {
    // A hundred thousand take half a minute without optimisation.
    let entries = if std::env::var_os("FOREBAY_LONG_TESTS").is_some() {
        100_000
    } else {
        16_000
    };
    let bucket = Bucket::new();
    let change = |config: &mut forebay_fs::FsConfig| {
        config.log = forebay_fs::LogConfig::Disk {
            limit: 256 << 20,
            segment: 16 << 20,
        };
    };
    let life = bucket.start(change);
    let directory = life.mkdir(TOP, b"d");
    make_many(&life, directory, 0..entries * 3 / 4);
    life.flush();
    // The rest is in the overlay.
    make_many(&life, directory, entries * 3 / 4..entries);

    let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let (mut cookie, mut pieces) = (0, 0);
    let mut life = life;
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, entries / 30, false)
                .await
                .unwrap()
        });
        for entry in found.entries {
            assert!(entry.cookie > cookie, "cookies rise");
            cookie = entry.cookie;
            assert_eq!(
                seen.insert(entry.name.to_vec(), entry.cookie),
                None,
                "{:?}",
                entry.name
            );
        }
        if found.end {
            break;
        }
        pieces += 1;
        // Odd ones are removed: some that were listed and some that were not; others are added.
        for i in 0..20 {
            let number = ((pieces * 7919 + i * 4001) % entries) | 1;
            let _ = life.try_remove(directory, format!("file-{number:06}").as_bytes());
        }
        life.create_in(directory, format!("new-{pieces}").as_bytes());
        if pieces == 10 {
            life.crash();
            life = bucket.start(change);
        }
        if pieces == 20 {
            life.flush();
        }
    }
    for i in (0..entries).step_by(2) {
        let name = format!("file-{i:06}");
        assert!(
            seen.contains_key(name.as_bytes()),
            "{name} stayed and was skipped"
        );
    }
    assert!(pieces > 20);
    let attributes = life.getattr(directory).unwrap();
    let again = life.list(directory, 4096);
    assert_eq!(attributes.nlink, 2);
    for entry in again.iter().skip(2) {
        if let Some(cookie) = seen.get(&entry.name[..]) {
            assert_eq!(
                entry.cookie, *cookie,
                "the cookie of {:?} has changed",
                entry.name
            );
        }
    }
}

#[test]
fn a_directory_is_emptied_while_it_is_listed() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    make_many(&life, directory, 0..500);
    life.flush();
    make_many(&life, directory, 500..1000);
    // Like `rm -r`: list a piece, remove it, continue behind it.
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, 64, true)
                .await
                .unwrap()
        });
        for entry in &found.entries {
            cookie = entry.cookie;
            assert!(entry.attributes.is_some());
            if !matches!(&entry.name[..], b"." | b"..") {
                life.try_remove(directory, &entry.name).unwrap();
                removed += 1;
            }
        }
        if found.end {
            break;
        }
    }
    assert_eq!(removed, 1000);
    assert_eq!(life.list(directory, 10).len(), 2);
    life.rmdir(TOP, b"d").unwrap();
}

#[test]
fn listings_give_dot_and_dot_dot_first_also_one_at_a_time() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    life.create_in(directory, b"f");
    for piece in [1, 2, 3, 100] {
        let entries = life.list(directory, piece);
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (&entry.name[..], entry.inode))
            .collect();
        let file = life.try_lookup(directory, b"f").unwrap().inode;
        assert_eq!(found, [(&b"."[..], directory), (b"..", TOP), (b"f", file)]);
        assert!(entries.iter().all(|entry| entry.cookie > 0));
    }
    assert_eq!(life.try_lookup(TOP, b"..").unwrap().inode, TOP);
}

/// Lists a directory a few names at a time, and calls `act` with each listed name. Returns the number of names until
/// the end, or up to `most`.
fn list_and_do(
    life: &Life,
    directory: Inode,
    most: usize,
    mut act: impl FnMut(&Life, &[u8]),
) -> Vec<Vec<u8>> {
    let (mut cookie, mut given) = (0, Vec::new());
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, 7, false)
                .await
                .unwrap()
        });
        for entry in &found.entries {
            assert!(entry.cookie > cookie, "cookies rise");
            cookie = entry.cookie;
            if !matches!(&entry.name[..], b"." | b"..") {
                given.push(entry.name.to_vec());
                act(life, &entry.name);
            }
        }
        if found.end || given.len() > most {
            return given;
        }
    }
}

#[test]
fn a_listing_ends_though_each_name_that_it_gives_is_renamed_or_replaced() {
    const NAMES: usize = 60;
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let away_and_back = |life: &Life, directory, name: &[u8]| {
        life.rename((directory, name), (directory, b"away"))
            .unwrap();
        life.rename((directory, b"away"), (directory, name))
            .unwrap();
    };
    let replace = |life: &Life, directory, name: &[u8]| {
        life.create_in(directory, b"temporary");
        life.rename((directory, b"temporary"), (directory, name))
            .unwrap();
    };
    let replace_from_outside = |life: &Life, directory, name: &[u8]| {
        life.create(b"temporary");
        life.rename((TOP, b"temporary"), (directory, name)).unwrap();
    };
    let prefix = |life: &Life, directory, name: &[u8]| {
        let longer = [b"x", name].concat();
        life.rename((directory, name), (directory, &longer))
            .unwrap();
    };
    type Act<'a> = &'a dyn Fn(&Life, Inode, &[u8]);
    let acts: [Act<'_>; 4] = [&away_and_back, &replace, &replace_from_outside, &prefix];
    for (number, act) in acts.into_iter().enumerate() {
        let directory = life.mkdir(TOP, format!("d{number}").as_bytes());
        make_many(&life, directory, 0..NAMES / 2);
        life.flush();
        // These are not in the bucket yet.
        make_many(&life, directory, NAMES / 2..NAMES);
        let mut published = false;
        let mut given = list_and_do(&life, directory, 5 * NAMES, |life, name| {
            act(life, directory, name);
            if name.ends_with(b"7") && !std::mem::replace(&mut published, true) {
                life.flush();
            }
        });
        // Each old name once, and the new ones at most once.
        given.retain(|name| name != b"temporary");
        let expected: Vec<_> = (0..NAMES)
            .map(|i| format!("file-{i:06}").into_bytes())
            .collect();
        assert_eq!(given, expected, "of program {number}");
        assert_eq!(life.list(directory, 100).len(), NAMES + 2);
    }
}

#[test]
fn a_renamed_name_keeps_its_cookie_and_a_replaced_one_leaves_it_to_what_comes() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (a, b) = (life.mkdir(TOP, b"a"), life.mkdir(TOP, b"b"));
    for name in [b"1", b"2", b"3", b"4"] {
        life.create_in(a, name);
        life.create_in(b, name);
    }
    life.mkdir(a, b"5");
    life.mkdir(a, b"6");
    life.flush();
    let cookies = |life: &Life, directory| {
        let named = |entry: &forebay_vfs::DirectoryEntry| {
            (
                String::from_utf8(entry.name.to_vec()).unwrap(),
                entry.cookie,
            )
        };
        let found: Vec<_> = life.list(directory, 3).iter().skip(2).map(named).collect();
        found
    };
    let was = cookies(&life, a);
    let cookie = |at: usize| was[at - 1].1;
    life.rename((a, b"2"), (a, b"two")).unwrap();
    life.rename((a, b"4"), (a, b"1")).unwrap();
    life.rename((a, b"5"), (a, b"6")).unwrap();
    life.rename((b, b"1"), (a, b"3")).unwrap();
    life.rename((b, b"2"), (a, b"new")).unwrap();
    // Two names of one object both stay, with their cookies.
    let three = life.try_lookup(b, b"3").unwrap().inode;
    life.link(three, (b, b"link")).unwrap();
    let linked = cookies(&life, b);
    life.rename((b, b"3"), (b, b"link")).unwrap();
    assert_eq!(cookies(&life, b), linked);
    let is = vec![
        ("1".to_owned(), cookie(1)),
        ("two".to_owned(), cookie(2)),
        ("3".to_owned(), cookie(3)),
        ("6".to_owned(), cookie(6)),
        ("new".to_owned(), cookie(6) + 1),
    ];
    assert_eq!(cookies(&life, a), is);
    life.create_in(a, b"last");
    let is = [is, vec![("last".to_owned(), cookie(6) + 2)]].concat();
    assert_eq!(cookies(&life, a), is);
    // The same from the log, and from the bucket.
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(cookies(&life, a), is);
    life.flush();
    assert_eq!(cookies(&life, a), is);
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(cookies(&life, a), is);
    assert_eq!(life.try_lookup(a, b"two").unwrap().size, 0);
    assert_eq!(life.try_lookup(a, b"2"), Err(forebay_vfs::Error::NotFound));
}

/// Counts scans of the cookies of a directory, and the cookies that they cover.
#[derive(Default)]
struct Cookies {
    directory: AtomicU64,
    scans: AtomicU64,
    cookies: AtomicU64,
}

impl Cookies {
    fn take(&self) -> (u64, u64) {
        [&self.scans, &self.cookies]
            .map(|count| count.swap(0, Ordering::SeqCst))
            .into()
    }
}

#[async_trait]
impl Reads for Cookies {
    async fn scanned(&self, range: &KeyRange) -> Result<(), StoreError> {
        // The first and the last cookie follow the directory, which follows the tag.
        let number = |key: &[u8], at: usize| {
            let bytes = key.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        let directory = number(&range.start, 1);
        if range.start.first() != Some(&b'c')
            || directory != Some(self.directory.load(Ordering::SeqCst))
        {
            return Ok(());
        }
        self.scans.fetch_add(1, Ordering::SeqCst);
        let first = number(&range.start, 9).unwrap_or(0);
        // A range without an end goes to the last cookie, which the test knows.
        let last = number(&range.end, 9).unwrap_or(GIVEN_OUT).min(GIVEN_OUT);
        self.cookies
            .fetch_add(last.saturating_sub(first), Ordering::SeqCst);
        Ok(())
    }
}

/// The approximate number of names that a directory had, and so its last cookie.
const GIVEN_OUT: u64 = 9000;

#[test]
fn a_listing_passes_removed_names_by() {
    let bucket = Bucket::new();
    let counts = Arc::new(Cookies::default());
    let life = bucket.start_watched(bucket.config(), counts.clone());
    let directory = life.mkdir(TOP, b"spool");
    counts.directory.store(directory.0, Ordering::SeqCst);
    let all = GIVEN_OUT as usize;
    let names = |life: &Life| life.list(directory, 100).len() - 2;
    let remove = |life: &Life, numbers: Vec<usize>| {
        life.run(|volume| async move {
            let volume = volume.with_commit_mode(forebay_fs::CommitMode::Async);
            for number in numbers {
                let name = format!("file-{number:06}");
                volume
                    .remove(&ROOT, directory, name.as_bytes())
                    .await
                    .unwrap();
            }
        });
    };
    // In the order in which they were made, except for some that stay for now.
    let stays = |number: &usize| [0, 3000, all - 1].contains(number);
    make_many(&life, directory, 0..all);
    life.flush();
    remove(&life, (0..all).filter(|i| !stays(i)).collect());
    counts.take();
    for published in [false, true] {
        if published {
            life.flush();
        }
        assert_eq!(names(&life), 3);
        let (scans, cookies) = counts.take();
        assert!(scans <= 5, "{scans} scans");
        assert!(cookies <= 10, "{cookies} cookies");
    }
    remove(&life, vec![0, all - 1]);
    assert_eq!(names(&life), 1);
    assert!(counts.take().1 <= 10);
    life.stop();

    // A gateway that has not seen the removals walks over their deletions, once.
    let life = bucket.start_watched(bucket.config(), counts.clone());
    counts.take();
    assert_eq!(names(&life), 1);
    let (scans, cookies) = counts.take();
    assert!((2..=5).contains(&scans), "{scans} scans");
    assert!(cookies >= GIVEN_OUT - 10, "{cookies} cookies");
    for _ in 0..3 {
        assert_eq!(names(&life), 1);
        let (scans, cookies) = counts.take();
        assert!(
            scans <= 3 && cookies <= 10,
            "{scans} scans, {cookies} cookies"
        );
    }
    // Names behind them are listed.
    make_many(&life, directory, all..all + 300);
    assert_eq!(names(&life), 301);
    remove(&life, vec![3000]);
    assert_eq!(names(&life), 300);
    life.flush();
    assert_eq!(names(&life), 300);
}

#[test]
fn a_listing_of_names_that_went_in_any_order_is_whole() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    let all = 1200;
    make_many(&life, directory, 0..all);
    let mut left: std::collections::BTreeSet<usize> = (0..all).collect();
    let list = |life: &Life, left: &std::collections::BTreeSet<usize>| {
        let found = life.list(directory, 50);
        let found: Vec<_> = found.iter().skip(2).map(|entry| &entry.name[..]).collect();
        let expected: Vec<_> = left.iter().map(|i| format!("file-{i:06}")).collect();
        assert_eq!(
            found,
            expected.iter().map(String::as_bytes).collect::<Vec<_>>()
        );
    };
    for (turn, at) in (0..all).map(|i| i * 7919 % all).enumerate() {
        // In stretches, and some names stay.
        if at % 100 < 3 {
            continue;
        }
        life.try_remove(directory, format!("file-{at:06}").as_bytes())
            .unwrap();
        left.remove(&at);
        if turn % 150 == 0 {
            list(&life, &left);
        }
        if turn % 400 == 0 {
            life.flush();
        }
    }
    list(&life, &left);
    assert_eq!(left.len(), 36);
    for at in (0..all).filter(|at| at % 300 > 2) {
        if left.remove(&at) {
            life.try_remove(directory, format!("file-{at:06}").as_bytes())
                .unwrap();
        }
    }
    list(&life, &left);
}
