//! Every procedure of NFSv3, over TCP, with its results on success and on failure.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod common;

use std::sync::Arc;

use common::*;
use forebay_nfs::xdr::{Reader, Writer};
use forebay_vfs::memory::MemoryFileSystem;

const NOENT: u32 = 2;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const INVAL: u32 = 22;
const FBIG: u32 = 27;
const NAMETOOLONG: u32 = 63;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const BADHANDLE: u32 = 10001;
const NOT_SYNC: u32 = 10002;
const TOOSMALL: u32 = 10005;
const BADTYPE: u32 = 10007;
const JUKEBOX: u32 = 10008;

fn named(w: &mut Writer, directory: &[u8], name: &[u8]) {
    w.opaque(directory);
    w.opaque(name);
}

#[test]
fn null_answers_everybody() {
    let server = Running::memory();
    let mut client = server.client().with_identity(As::Nobody);
    assert!(client.nfs(0, |_| {}).0.is_empty());
}

#[test]
fn getattr_tells_what_lookup_found() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let (found, attributes) = client.lookup(&root, b"file").found();
    assert_eq!(found, file);
    assert_eq!(attributes, client.attributes(&file));
    assert_eq!((attributes.kind, attributes.size), (1, 0));
    assert_eq!(attributes.fsid, 0x0404_0404_0404_0404);
    let (itself, _) = client.lookup(&root, b"..").found();
    assert_eq!(itself, root);
    assert_eq!(client.lookup(&root, b"none").failed().0, NOENT);
    assert_eq!(client.lookup(&file, b"x").failed().0, NOTDIR);
}

#[test]
fn handles_that_were_not_made_here_are_refused() {
    let server = Running::memory();
    let mut client = server.client();
    let mut handle = client.root();
    assert_eq!(client.getattr(b"short").status(), BADHANDLE);
    handle[20] ^= 1;
    assert_eq!(client.getattr(&handle).status(), STALE);
    assert_eq!(client.lookup(&handle, b"x").failed(), (STALE, None));
    handle[0] ^= 1;
    assert_eq!(client.lookup(&handle, b"x").failed(), (BADHANDLE, None));
    let root = client.root();
    let file = client.create(&root, "file");
    let removed = client.nfs(12, |w| named(w, &root, b"file"));
    assert_eq!(removed.changed().0, 0);
    assert_eq!(client.getattr(&file).status(), STALE);
}

#[test]
fn setattr_sets_and_its_guard_holds() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let setattr = |w: &mut Writer, mode: u32, size: u64, guard: Option<(u32, u32)>| {
        w.opaque(&file);
        w.u32(1);
        w.u32(mode);
        w.u32(0);
        w.u32(0);
        w.u32(1);
        w.u64(size);
        w.u32(1);
        w.u32(2);
        w.u32(1234);
        w.u32(5678);
        w.bool(guard.is_some());
        if let Some((seconds, nanos)) = guard {
            w.u32(seconds);
            w.u32(nanos);
        }
    };
    let (status, after) = client.nfs(2, |w| setattr(w, 0o600, 10, None)).changed();
    let after = after.unwrap();
    assert_eq!((status, after.mode, after.size), (0, 0o600, 10));
    assert_eq!(after.mtime, (1234, 5678));
    let wrong = Some((1, 1));
    let (status, after) = client.nfs(2, |w| setattr(w, 0o644, 0, wrong)).changed();
    assert_eq!((status, after.unwrap().size), (NOT_SYNC, 10));
    let right = Some(client.attributes(&file).ctime);
    let (status, _) = client.nfs(2, |w| setattr(w, 0o644, 20, right)).changed();
    assert_eq!(status, 0);
    let (status, _) = client
        .nfs(2, |w| setattr(w, 0o644, u64::MAX, None))
        .changed();
    assert_eq!((status, client.attributes(&file).size), (FBIG, 20));
}

#[test]
fn access_tells_the_rights() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.nfs(8, |w| {
        named(w, &root, b"file");
        w.u32(1);
        w.u32(1);
        w.u32(0o640);
        (0..5).for_each(|_| w.u32(0));
    });
    let file = file.made();
    let rights = |client: &mut Client| {
        let results = client.nfs(4, |w| {
            w.opaque(&file);
            w.u32(0xffff_ffff);
        });
        let mut reader = results.reader();
        assert_eq!(reader.u32(), Ok(0));
        assert!(post_op(&mut reader).is_some());
        reader.u32().unwrap()
    };
    assert_eq!(rights(&mut client) & 0x0d, 0x0d);
    let mut group = server.client().with_identity(As::User(1000, 5, vec![0]));
    assert_eq!(rights(&mut group) & 0x0d, 0x01);
    let mut nobody = server.client().with_identity(As::Nobody);
    assert_eq!(rights(&mut nobody), 0);
}

#[test]
fn symlink_and_readlink() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let symlink = |client: &mut Client, name: &str, path: &[u8]| {
        client.nfs(10, |w| {
            named(w, &root, name.as_bytes());
            no_attributes(w);
            w.opaque(path);
        })
    };
    let longest = vec![b'p'; 4096];
    let link = symlink(&mut client, "link", &longest).made();
    let results = client.nfs(5, |w| w.opaque(&link));
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    assert_eq!(post_op(&mut reader).unwrap().kind, 5);
    assert_eq!(reader.opaque(4096), Ok(&longest[..]));
    let too_long = symlink(&mut client, "longer", &[b'p'; 4097]);
    assert_eq!(too_long.changed().0, NAMETOOLONG);
    assert_eq!(symlink(&mut client, "empty", b"").changed().0, INVAL);
    let file = client.create(&root, "file");
    assert_eq!(client.nfs(5, |w| w.opaque(&file)).failed().0, INVAL);
}

#[test]
fn what_was_written_is_read() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let data: Vec<u8> = (0..(1 << 20)).map(|n: u32| ((n * 7) >> 3) as u8).collect();
    let results = client.write(&file, 3, &data);
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    let (before, after) = wcc(&mut reader);
    assert!(before);
    assert_eq!(after.unwrap().size, 3 + (1 << 20));
    assert_eq!(reader.u32(), Ok(1 << 20));
    assert!(reader.u32().unwrap() <= 2);
    let verifier = reader.array::<8>().unwrap();
    reader.end().unwrap();

    assert_eq!(client.read(&file, 3, 1 << 20), (data.clone(), true));
    assert_eq!(
        client.read(&file, 0, 5),
        (vec![0, 0, 0, data[0], data[1]], false)
    );
    assert_eq!(client.read(&file, 1 << 40, 5), (vec![], true));

    let results = client.nfs(21, |w| read_arguments(w, &file, 0, 0));
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    assert!(wcc(&mut reader).1.is_some());
    assert_eq!(reader.array::<8>(), Ok(verifier));
    reader.end().unwrap();
}

#[test]
fn writes_past_the_largest_file_are_refused() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    for offset in [i64::MAX as u64, u64::MAX - 1] {
        assert_eq!(client.write(&file, offset, b"xyz").changed().0, FBIG);
    }
    let (status, attributes) = client.write(&root, 0, b"x").changed();
    assert_ne!(status, 0);
    assert_eq!(attributes.unwrap().kind, 2);
}

#[test]
fn create_unchecked_guarded_and_exclusive() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    assert_eq!(client.create(&root, "file"), file);
    let guarded = client.nfs(8, |w| {
        named(w, &root, b"file");
        w.u32(1);
        no_attributes(w);
    });
    let (status, directory) = guarded.changed();
    assert_eq!((status, directory.unwrap().kind), (EXIST, 2));
    let exclusive = |client: &mut Client, verifier: &[u8; 8]| {
        client.nfs(8, |w| {
            named(w, &root, b"exclusive");
            w.u32(2);
            w.fixed(verifier);
        })
    };
    let first = exclusive(&mut client, b"12345678").made();
    assert_eq!(exclusive(&mut client, b"12345678").made(), first);
    assert_eq!(exclusive(&mut client, b"87654321").changed().0, EXIST);
}

#[test]
fn mknod_makes_special_files_and_nothing_else() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    for (kind, device) in [(3, Some((8, 1))), (4, Some((5, 2))), (6, None), (7, None)] {
        let made = client.nfs(11, |w| {
            named(w, &root, format!("node{kind}").as_bytes());
            w.u32(kind);
            no_attributes(w);
            if let Some((major, minor)) = device {
                w.u32(major);
                w.u32(minor);
            }
        });
        let attributes = client.attributes(&made.made());
        assert_eq!(attributes.kind, kind);
        assert_eq!(attributes.device, device.unwrap_or_default());
    }
    let directory = client.nfs(11, |w| {
        named(w, &root, b"directory");
        w.u32(2);
    });
    assert_eq!(directory.changed().0, BADTYPE);
}

#[test]
fn remove_and_rmdir() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let directory = client.mkdir(&root, "directory");
    client.create(&directory, "file");
    let rmdir = |client: &mut Client| client.nfs(13, |w| named(w, &root, b"directory")).changed();
    let remove = |client: &mut Client| client.nfs(12, |w| named(w, &directory, b"file")).changed();
    assert_eq!(rmdir(&mut client).0, NOTEMPTY);
    let (status, after) = remove(&mut client);
    assert_eq!((status, after.unwrap().kind), (0, 2));
    assert_eq!(remove(&mut client).0, NOENT);
    assert_eq!(rmdir(&mut client).0, 0);
    assert_eq!(remove(&mut client), (STALE, None));
}

#[test]
fn rename_replaces_and_tells_of_both_directories() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let (one, two) = (client.mkdir(&root, "one"), client.mkdir(&root, "two"));
    let file = client.create(&one, "file");
    client.create(&two, "other");
    let rename = |client: &mut Client| {
        let results = client.nfs(14, |w| {
            named(w, &one, b"file");
            named(w, &two, b"other");
        });
        let mut reader = results.reader();
        let status = reader.u32().unwrap();
        let (from, to) = (wcc(&mut reader).1.unwrap(), wcc(&mut reader).1.unwrap());
        reader.end().unwrap();
        (status, from.fileid, to.fileid)
    };
    let ids = (
        client.attributes(&one).fileid,
        client.attributes(&two).fileid,
    );
    assert_eq!(rename(&mut client), (0, ids.0, ids.1));
    assert_eq!(client.lookup(&two, b"other").found().0, file);
    assert_eq!(rename(&mut client), (NOENT, ids.0, ids.1));
}

#[test]
fn link_gives_a_further_name() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let link = |client: &mut Client| {
        let results = client.nfs(15, |w| {
            w.opaque(&file);
            named(w, &root, b"name");
        });
        let mut reader = results.reader();
        let status = reader.u32().unwrap();
        let attributes = post_op(&mut reader).unwrap();
        assert!(wcc(&mut reader).1.is_some());
        reader.end().unwrap();
        (status, attributes.nlink)
    };
    assert_eq!(link(&mut client), (0, 2));
    assert_eq!(link(&mut client), (EXIST, 2));
    assert_eq!(client.lookup(&root, b"name").found().0, file);
}

/// Names, cookies, and for READDIRPLUS handles, of one reply, and whether it is the last.
type Entries = (Vec<(String, u64, Option<Vec<u8>>)>, bool);

fn entries(results: &Results, plus: bool) -> Entries {
    let mut reader: Reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    assert_eq!(post_op(&mut reader).unwrap().kind, 2);
    assert_eq!(reader.array::<8>(), Ok([0; 8]));
    let mut entries = Vec::new();
    while reader.bool().unwrap() {
        let fileid = reader.u64().unwrap();
        let name = String::from_utf8(reader.opaque(255).unwrap().to_vec()).unwrap();
        let cookie = reader.u64().unwrap();
        let mut handle = None;
        if plus {
            assert_eq!(post_op(&mut reader).unwrap().fileid, fileid);
            handle = reader.option(|r| r.opaque(64)).unwrap().map(<[u8]>::to_vec);
            assert!(handle.is_some());
        }
        entries.push((name, cookie, handle));
    }
    let eof = reader.bool().unwrap();
    reader.end().unwrap();
    (entries, eof)
}

fn list(client: &mut Client, directory: &[u8], plus: bool, cookie: u64, count: u32) -> Results {
    client.nfs(if plus { 17 } else { 16 }, |w| {
        w.opaque(directory);
        w.u64(cookie);
        w.u64(0);
        if plus {
            w.u32(count);
        }
        w.u32(count);
    })
}

#[test]
fn listings_honour_their_size_and_miss_nothing() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let names: Vec<String> = (0..300)
        .map(|n| format!("name-{n:0width$}", width = n % 40))
        .collect();
    let handles: Vec<_> = names
        .iter()
        .map(|name| client.create(&root, name))
        .collect();
    for plus in [false, true] {
        for count in [700, 4096, 65536, u32::MAX] {
            let (mut all, mut cookie) = (Vec::new(), 0);
            loop {
                let results = list(&mut client, &root, plus, cookie, count);
                // The count is the number of bytes of the results after their status.
                assert!(results.0.len() - 4 <= count as usize);
                let (entries, eof) = entries(&results, plus);
                cookie = entries.last().map_or(cookie, |(_, cookie, _)| *cookie);
                all.extend(entries);
                if eof {
                    break;
                }
            }
            let found: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(found[..2], [".", ".."]);
            let mut sorted = [
                found[2..].to_vec(),
                names.iter().map(String::as_str).collect(),
            ];
            sorted.iter_mut().for_each(|names| names.sort());
            assert_eq!(sorted[0], sorted[1]);
            if plus {
                let (name, _, handle) = &all[10];
                let index = names.iter().position(|made| made == name).unwrap();
                assert_eq!(handle.as_deref(), Some(&handles[index][..]));
            }
        }
        for tiny in [0, 50, 110] {
            let (status, directory) = list(&mut client, &root, plus, 0, tiny).failed();
            assert_eq!((status, directory.unwrap().kind), (TOOSMALL, 2));
        }
    }
    let file = client.create(&root, "file");
    assert_eq!(list(&mut client, &file, false, 0, 4096).failed().0, NOTDIR);
}

#[test]
fn fsstat_fsinfo_pathconf() {
    let fs = Arc::new(MemoryFileSystem::with_capacity(1 << 30));
    let server = Running::new(fs, config());
    let mut client = server.client();
    let root = client.root();
    let mut skip = |procedure| {
        let results = client.nfs(procedure, |w| w.opaque(&root));
        let mut reader = results.reader();
        assert_eq!(reader.u32(), Ok(0));
        assert!(post_op(&mut reader).is_some());
        reader.rest().to_vec()
    };
    let stat = skip(18);
    assert_eq!(stat[..8], (1_u64 << 30).to_be_bytes());
    assert_eq!(stat.len(), 6 * 8 + 4);
    let info = skip(19);
    let mut reader = Reader::new(&info);
    let sizes: [u32; 7] = std::array::from_fn(|_| reader.u32().unwrap());
    let mib = 1 << 20;
    assert_eq!(sizes, [mib, mib, 4096, mib, mib, 4096, 65536]);
    assert_eq!(reader.u64(), Ok(i64::MAX as u64));
    assert_eq!(reader.array(), Ok([0, 0, 0, 0, 0, 0, 0, 1]));
    assert_eq!(reader.u32(), Ok(0x1b));
    reader.end().unwrap();
    let conf = skip(20);
    let mut reader = Reader::new(&conf);
    assert_eq!(
        (reader.u32(), reader.u32()),
        (Ok(forebay_vfs::LINK_MAX), Ok(255))
    );
    let flags: [bool; 4] = std::array::from_fn(|_| reader.bool().unwrap());
    assert_eq!(flags, [true, true, false, true]);
    reader.end().unwrap();
}

#[test]
fn fsstat_says_the_sizes_of_what_the_object_counts_in() {
    let server = Running::new(common::gated::Gated::new(true), config());
    let mut client = server.client();
    let root = client.root();
    let results = client.nfs(18, |w| w.opaque(&root));
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    let inode = post_op(&mut reader).unwrap().fileid;
    for expected in [6000 + inode, 5000, 4000, 3000, 2000, 1000] {
        assert_eq!(reader.u64(), Ok(expected));
    }
    assert_eq!(reader.u32(), Ok(0), "never to be kept");
    reader.end().unwrap();
}

#[test]
fn impossible_names_are_refused_and_the_server_goes_on() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let long = vec![b'n'; 256];
    for name in [
        &b""[..],
        b".",
        b"..",
        b"a/b",
        b"a\0b",
        &long,
        &[b'n'; 100_000],
    ] {
        let created = client.nfs(8, |w| {
            named(w, &root, name);
            w.u32(0);
            no_attributes(w);
        });
        let (status, _) = created.changed();
        assert_ne!(status, 0);
        if name.len() > 255 {
            assert_eq!(status, NAMETOOLONG);
        }
        let removed = client.nfs(12, |w| named(w, &root, name));
        assert_ne!(removed.changed().0, 0);
        let made = client.nfs(9, |w| {
            named(w, &root, name);
            no_attributes(w);
        });
        assert_ne!(made.changed().0, 0);
    }
    let longest = String::from_utf8(vec![b'n'; 255]).unwrap();
    client.create(&root, &longest);
    assert_eq!(client.attributes(&root).kind, 2);
}

#[test]
fn a_delay_becomes_jukebox() {
    let server = Running::new(common::gated::Gated::new(true), config());
    let mut client = server.client();
    let root = client.root();
    assert_eq!(client.lookup(&root, b"later").failed().0, JUKEBOX);
}
