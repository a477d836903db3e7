//! The trash over the wire: `.trash`, its handles, numbers and rights.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use common::trees::*;
use common::*;
use forebay_nfs::xdr::Writer;
use forebay_nfs::{ExportAccess, Rule, ServerConfig, Squash, VirtualDirectory};
use forebay_vfs::memory::MemoryFileSystem;

const PERM_DENIED: u32 = 13;

const REMOVE: u32 = 12;
const RENAME: u32 = 14;

fn kept(shown: VirtualDirectory, path: &str, change: impl FnOnce(&mut Rule)) -> ServerConfig {
    with_rule(path, |rule| {
        rule.trash = Duration::from_secs(3600);
        rule.trash_directory = shown;
        change(rule);
    })
}

fn hidden() -> ServerConfig {
    kept(VirtualDirectory::Hidden, "/", |_| {})
}

fn user(uid: u32) -> As {
    As::User(uid, uid, Vec::new())
}

fn named(client: &mut Client, procedure: u32, directory: &[u8], name: &[u8]) -> u32 {
    let results = client.nfs(procedure, |w| {
        w.opaque(directory);
        w.opaque(name);
    });
    results.status()
}

fn rename(client: &mut Client, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> u32 {
    let results = client.nfs(RENAME, |w| {
        for (directory, name) in [from, to] {
            w.opaque(directory);
            w.opaque(name);
        }
    });
    results.status()
}

/// Makes a file and removes it. Returns its handle and its name in the trash.
fn removed(client: &mut Client, directory: &[u8], name: &str, data: &[u8]) -> (Vec<u8>, String) {
    let file = client.create(directory, name);
    client.write(&file, 0, data);
    let fileid = client.attributes(&file).fileid;
    assert_eq!(named(client, REMOVE, directory, name.as_bytes()), 0);
    (file, format!("{name}.{fileid}"))
}

fn access(client: &mut Client, handle: &[u8]) -> Result<u32, u32> {
    let results = client.nfs(4, |w| arguments(w, 4, handle, handle));
    let mut reader = results.reader();
    match reader.u32().unwrap() {
        0 => {
            post_op(&mut reader);
            Ok(reader.u32().unwrap())
        }
        status => Err(status),
    }
}

#[test]
fn a_removed_file_is_read_and_comes_back_as_it_was() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs.clone(), hidden());
    let mut client = server.client();
    let root = client.root();
    let directory = client.mkdir(&root, "dir");
    let (file, name) = removed(&mut client, &directory, "file", b"content");
    assert_eq!(client.getattr(&file).status(), STALE);
    let (trash, _) = client.lookup(&root, b".trash").found();
    assert_eq!(names(&mut client, &trash), [".", "..", &name]);
    let (there, attributes) = client.lookup(&trash, name.as_bytes()).found();
    assert_ne!(there, file);
    assert_eq!(client.attributes(&there), attributes);
    assert_eq!((attributes.nlink, attributes.size), (1, 7));
    assert_eq!(client.read(&there, 0, 100), (b"content".to_vec(), true));
    // READ, LOOKUP, EXECUTE: nothing that changes it.
    assert_eq!(access(&mut client, &there).unwrap() & 0x1c, 0);
    // After a restart of the server as well.
    drop(server);
    let server = Running::new(fs, hidden());
    let mut client = server.client();
    assert_eq!(client.attributes(&there), attributes);
    client.create(&directory, "other");
    let from = (&trash[..], name.as_bytes());
    assert_eq!(rename(&mut client, from, (&directory, b"other")), EXIST);
    assert_eq!(rename(&mut client, from, (&directory, b"new")), 0);
    assert_eq!(client.getattr(&there).status(), STALE);
    let (back, attributes) = client.lookup(&directory, b"new").found();
    assert_eq!((back, attributes.size, attributes.nlink), (file, 7, 1));
    assert_eq!(names(&mut client, &trash), [".", ".."]);
    assert_eq!(rename(&mut client, from, (&directory, b"twice")), NOENT);
}

#[test]
fn a_user_has_a_directory_of_its_own_and_sees_nothing_of_others() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs, hidden());
    let mut client = server.client();
    let root = client.root();
    let (_, roots) = removed(&mut client, &root, "roots", b"secret");
    let mut ann = server.client().with_identity(user(7));
    let (_, own) = removed(&mut ann, &root, "own", b"of ann");
    let (all, all_attributes) = client.lookup(&root, b".trash").found();
    let (few, few_attributes) = ann.lookup(&root, b".trash").found();
    assert_ne!(all, few, "a client keeps what it lists for all its users");
    assert_eq!(all_attributes.fileid, few_attributes.fileid);
    assert_eq!(names(&mut client, &all), [".", "..", &roots, &own]);
    assert_eq!(names(&mut ann, &few), [".", "..", &own]);
    assert_eq!(ann.lookup(&few, roots.as_bytes()).failed().0, NOENT);
    assert_eq!(named(&mut ann, REMOVE, &few, roots.as_bytes()), NOENT);
    let from = (&few[..], roots.as_bytes());
    assert_eq!(rename(&mut ann, from, (&root, b"stolen")), NOENT);
    // With the directory of another user nothing can be done but to ask for the own one.
    for (client, other) in [(&mut ann, &all), (&mut client, &few)] {
        assert_eq!(access(client, other), Err(STALE));
        for procedure in [3, 12, 14, 16, 17] {
            let results = client.nfs(procedure, |w| arguments(w, procedure, other, &root));
            assert_eq!(results.status(), STALE, "procedure {procedure}");
        }
    }
    // Nor with the handle of a file.
    let (secret, _) = client.lookup(&all, roots.as_bytes()).found();
    assert_eq!(access(&mut ann, &secret), Ok(0));
    let read = ann.nfs(6, |w| read_arguments(w, &secret, 0, 10));
    assert_eq!(read.status(), PERM_DENIED);
    // Owners and root delete for good.
    let (there, _) = ann.lookup(&few, own.as_bytes()).found();
    assert_eq!(named(&mut ann, REMOVE, &few, own.as_bytes()), 0);
    assert_eq!(ann.getattr(&there).status(), STALE);
    assert_eq!(named(&mut client, REMOVE, &all, roots.as_bytes()), 0);
    assert_eq!(names(&mut client, &all), [".", ".."]);
}

#[test]
fn nothing_else_is_changed_there() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs.clone(), hidden());
    let mut client = server.client();
    let root = client.root();
    let (_, name) = removed(&mut client, &root, "name", b"content");
    let (trash, before) = client.lookup(&root, b".trash").found();
    let (file, attributes) = client.lookup(&trash, name.as_bytes()).found();
    for procedure in [2, 7, 8, 9, 10, 11, 13, 15] {
        for handle in [&trash, &file] {
            let results = client.nfs(procedure, |w| arguments(w, procedure, handle, handle));
            assert_eq!(results.status(), ROFS, "procedure {procedure}");
        }
    }
    let from = (&trash[..], name.as_bytes());
    assert_eq!(rename(&mut client, from, (&trash, b"name")), ROFS);
    client.create(&root, "live");
    assert_eq!(
        rename(&mut client, (&root, b"live"), (&trash, b"live")),
        ROFS
    );
    for (file, directory) in [(&file, &root), (&root, &trash)] {
        let linked = client.nfs(15, |w| arguments(w, 15, file, directory));
        assert_eq!(linked.status(), ROFS);
    }
    assert_eq!(client.attributes(&file), attributes);
    assert_eq!(client.attributes(&trash).mtime, before.mtime);
    for handle in [&trash, &file] {
        let committed = client.nfs(21, |w| arguments(w, 21, handle, handle));
        assert_eq!(committed.status(), 0);
        // FSSTAT, FSINFO, PATHCONF
        for procedure in 18..=20 {
            let results = client.nfs(procedure, |w| w.opaque(handle));
            assert_eq!(results.status(), 0);
        }
    }
    // Under an export that is read-only nothing is taken out.
    let closed = kept(VirtualDirectory::Hidden, "/", |rule| {
        rule.access = ExportAccess::ReadOnly;
    });
    let closed = Running::new(fs, closed);
    let mut client = closed.client();
    assert_eq!(client.read(&file, 0, 10).0, b"content");
    assert_eq!(rename(&mut client, from, (&root, b"name")), ROFS);
    assert_eq!(named(&mut client, REMOVE, &trash, name.as_bytes()), ROFS);
    assert_eq!(access(&mut client, &trash).unwrap() & 0x1c, 0);
}

#[test]
fn the_directory_is_in_the_top_of_the_export_alone_and_shown_as_the_rule_says() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs.clone(), hidden());
    let mut client = server.client();
    let root = client.root();
    let top = client.mkdir(&root, "top");
    let deep = client.mkdir(&top, "deep");
    let (_, name) = removed(&mut client, &deep, "file", b"1");
    let (_, outside) = removed(&mut client, &root, "outside", b"1");
    drop(server);
    for (shown, path, time) in [
        (VirtualDirectory::Hidden, "/", 1),
        (VirtualDirectory::Visible, "/", 1),
        (VirtualDirectory::Visible, "/top", 1),
        (VirtualDirectory::Hidden, "/top", 1),
        (VirtualDirectory::Off, "/", 1),
        // Without a trash there is none to see.
        (VirtualDirectory::Visible, "/", 0),
    ] {
        let config = kept(shown, path, |rule| rule.trash = Duration::from_secs(time));
        let server = Running::new(fs.clone(), config);
        let mut client = server.client();
        let own = client.mount(path).unwrap();
        let is_on = shown != VirtualDirectory::Off && time > 0;
        let is_listed = is_on && shown == VirtualDirectory::Visible;
        let all = listed(&mut client, &own);
        let entry = all.iter().find(|(name, _)| name == ".trash");
        assert_eq!(entry.is_some(), is_listed, "{shown:?} {path}");
        for other in [&top, &deep, &root]
            .into_iter()
            .filter(|other| **other != own)
        {
            assert_eq!(client.lookup(other, b".trash").failed().0, NOENT);
            assert!(!names(&mut client, other).contains(&".trash".to_owned()));
        }
        if !is_on {
            assert_eq!(client.lookup(&own, b".trash").failed().0, NOENT);
            continue;
        }
        let (trash, attributes) = client.lookup(&own, b".trash").found();
        if let Some((_, fileid)) = entry {
            assert_eq!(*fileid, attributes.fileid);
        }
        let found = names(&mut client, &trash);
        let expected: &[&str] = match path {
            "/" => &[".", "..", &name, &outside],
            _ => &[".", "..", &name],
        };
        assert_eq!(found, expected);
        let (_, up) = client.lookup(&trash, b"..").found();
        assert_eq!(up, client.attributes(&own));
        // Nobody mounts it, as it would be of one user.
        assert!(client.mount(&format!("{path}/.trash")).is_err());
    }
}

#[test]
fn listings_with_attributes_give_the_handles_that_look_ups_give() {
    let fs = Arc::new(MemoryFileSystem::new());
    let config = kept(VirtualDirectory::Visible, "/", |rule| {
        rule.snapshots = VirtualDirectory::Visible;
    });
    let server = Running::new(fs, config);
    let mut client = server.client().with_identity(user(7));
    let root = client.root();
    for number in 0..5 {
        removed(&mut client, &root, &format!("file-{number}"), b"1");
    }
    let (trash, _) = client.lookup(&root, b".trash").found();
    let mut seen = HashSet::new();
    for directory in [&root, &trash] {
        for (name, fileid) in listed_as_looked_up(&mut client, directory) {
            if !name.starts_with(b".") || name.len() > 2 {
                assert!(seen.insert(fileid));
            }
        }
    }
    // `.snapshot`, `.trash` and five files, each with a number of its own.
    assert_eq!(seen.len(), 7);
}

#[test]
fn the_name_is_taken_where_the_directory_is() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs.clone(), hidden());
    let mut client = server.client();
    let root = client.root();
    let below = client.mkdir(&root, "below");
    let made = |client: &mut Client, directory: &[u8]| {
        let results = client.nfs(9, |w: &mut Writer| {
            w.opaque(directory);
            w.opaque(b".trash");
            no_attributes(w);
        });
        results.status()
    };
    assert_eq!(made(&mut client, &root), EXIST);
    assert_eq!(
        rename(&mut client, (&root, b"below"), (&root, b".trash")),
        EXIST
    );
    assert_eq!(
        rename(&mut client, (&root, b".trash"), (&root, b"new")),
        ROFS
    );
    for procedure in [12, 13] {
        assert_eq!(named(&mut client, procedure, &root, b".trash"), ROFS);
    }
    // Elsewhere it is a name as every other one, and so where it is off.
    assert_eq!(made(&mut client, &below), 0);
    drop(server);
    let off = kept(VirtualDirectory::Off, "/", |_| {});
    let server = Running::new(fs.clone(), off);
    let mut client = server.client();
    assert_eq!(made(&mut client, &root), 0);
    let (own, _) = client.lookup(&root, b".trash").found();
    client.create(&own, "file");
    drop(server);
    // An object that has the name is behind the directory of the trash: the name is listed once, and names that.
    for shown in [VirtualDirectory::Hidden, VirtualDirectory::Visible] {
        let server = Running::new(fs.clone(), kept(shown, "/", |_| {}));
        let mut client = server.client();
        let (trash, attributes) = client.lookup(&root, b".trash").found();
        assert_ne!(trash, own);
        assert_eq!(names(&mut client, &trash), [".", ".."]);
        let all = listed(&mut client, &root);
        let all: Vec<_> = all.iter().filter(|(name, _)| name == ".trash").collect();
        match shown {
            VirtualDirectory::Visible => {
                assert_eq!(all, [&(".trash".to_owned(), attributes.fileid)])
            }
            _ => assert!(all.is_empty()),
        }
        listed_as_looked_up(&mut client, &root);
        for procedure in [12, 13] {
            assert_eq!(named(&mut client, procedure, &root, b".trash"), ROFS);
        }
        let to = (&root[..], &b"moved"[..]);
        assert_eq!(rename(&mut client, (&root, b".trash"), to), ROFS);
        // Who has it open goes on.
        assert_eq!(names(&mut client, &own), [".", "..", "file"]);
    }
    // Where the trash is off it is removed as any other.
    let server = Running::new(fs, kept(VirtualDirectory::Off, "/", |_| {}));
    let mut client = server.client();
    assert_eq!(client.lookup(&root, b".trash").found().0, own);
    assert_eq!(named(&mut client, REMOVE, &own, b"file"), 0);
    assert_eq!(named(&mut client, 13, &root, b".trash"), 0);
    assert_eq!(client.lookup(&root, b".trash").failed().0, NOENT);
}

#[test]
fn handles_are_stale_where_the_trash_is_off() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs.clone(), hidden());
    let mut client = server.client();
    let root = client.root();
    let (_, name) = removed(&mut client, &root, "file", b"1");
    let (trash, _) = client.lookup(&root, b".trash").found();
    let (file, _) = client.lookup(&trash, name.as_bytes()).found();
    let off = kept(VirtualDirectory::Off, "/", |_| {});
    let off = Running::new(fs, off);
    for handle in [&trash, &file] {
        assert_eq!(off.client().getattr(handle).status(), STALE);
        assert_eq!(client.getattr(handle).status(), 0);
    }
}

#[test]
fn squashed_root_sees_the_files_of_the_anonymous_user_alone() {
    let fs = Arc::new(MemoryFileSystem::new());
    let server = Running::new(fs.clone(), hidden());
    let mut client = server.client();
    let root = client.root();
    removed(&mut client, &root, "roots", b"secret");
    let squashed = kept(VirtualDirectory::Hidden, "/", |rule| {
        rule.squash = Squash::Root;
    });
    let server = Running::new(fs, squashed);
    let mut client = server.client();
    let (_, own) = removed(&mut client, &root, "own", b"1");
    let (trash, _) = client.lookup(&root, b".trash").found();
    assert_eq!(names(&mut client, &trash), [".", "..", &own]);
}
