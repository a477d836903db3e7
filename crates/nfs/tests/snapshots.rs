//! Snapshots over the wire: `.snapshot`, its handles, numbers and rights.

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use common::trees::*;
use common::*;
use forebay_nfs::xdr::Writer;
use forebay_nfs::{ServerConfig, VirtualDirectory};
use forebay_types::SnapshotId;
use forebay_vfs::memory::MemoryFileSystem;

/// CREATE, MKDIR, SYMLINK, MKNOD.
const MAKING: [u32; 4] = [8, 9, 10, 11];

/// A file system, and an image of it from before the file `dir/file` got longer and `late` was made.
fn with_snapshot() -> (Arc<MemoryFileSystem>, SnapshotId) {
    let fill = |content: &[u8]| {
        let fs = Arc::new(MemoryFileSystem::new());
        let server = Running::new(fs.clone(), config());
        let mut client = server.client();
        let root = client.root();
        let directory = client.mkdir(&root, "dir");
        let file = client.create(&directory, "file");
        client.write(&file, 0, content);
        fs
    };
    let (live, then) = (fill(b"longer text"), fill(b"text"));
    let server = Running::new(live.clone(), config());
    let mut client = server.client();
    let root = client.root();
    client.mkdir(&root, "late");
    let id = live.add_snapshot("then", then);
    (live, id)
}

fn seen(access: VirtualDirectory, path: &str) -> ServerConfig {
    with_rule(path, |rule| rule.snapshots = access)
}

fn down(client: &mut Client, from: &[u8], names: &[&str]) -> (Vec<u8>, Attr) {
    let (mut handle, mut attributes) = (from.to_vec(), client.attributes(from));
    for name in names {
        (handle, attributes) = client.lookup(&handle, name.as_bytes()).found();
        assert_eq!(client.attributes(&handle), attributes, "{name}");
    }
    (handle, attributes)
}

#[test]
fn a_snapshot_is_the_directory_as_it_was() {
    let (fs, _) = with_snapshot();
    let server = Running::new(fs, config());
    let mut client = server.client();
    let root = client.root();
    let (file, attributes) = down(&mut client, &root, &["dir", "file"]);
    assert_eq!(attributes.size, 11);
    for way in [
        &[".snapshot", "then", "dir", "file"][..],
        &["dir", ".snapshot", "then", "file"],
        &[
            "dir",
            ".snapshot",
            "..",
            ".snapshot",
            ".",
            "then",
            ".",
            "..",
            "dir",
            "file",
        ],
    ] {
        let (then, attributes) = down(&mut client, &root, way);
        assert_eq!(attributes.size, 4);
        assert_eq!(client.read(&then, 0, 100), (b"text".to_vec(), true));
    }
    assert_eq!(client.read(&file, 0, 100).0, b"longer text");
    let (list, _) = down(&mut client, &root, &[".snapshot"]);
    assert_eq!(client.lookup(&list, b"never").failed().0, NOENT);
    // A directory that is younger than the snapshot is not in it.
    let (list, _) = down(&mut client, &root, &["late", ".snapshot"]);
    assert_eq!(names(&mut client, &list), [".", "..", "then"]);
    assert_eq!(client.lookup(&list, b"then").failed().0, NOENT);
    // Inside a snapshot there is none.
    let (then, _) = down(&mut client, &root, &[".snapshot", "then"]);
    assert_eq!(client.lookup(&then, b".snapshot").failed().0, NOENT);
    // A client may mount it.
    let mounted = client.mount("/.snapshot/then/dir").unwrap();
    let (then, _) = down(&mut client, &mounted, &["file"]);
    assert_eq!(client.read(&then, 0, 100).0, b"text");
}

#[test]
fn no_object_has_the_numbers_of_another_one() {
    let (fs, _) = with_snapshot();
    fs.add_snapshot("again", Arc::new(MemoryFileSystem::new()));
    let server = Running::new(fs, seen(VirtualDirectory::Visible, "/"));
    let mut client = server.client();
    let root = client.root();
    let live = client.attributes(&root);
    let (mut numbers, mut fileids) = (HashSet::new(), HashSet::new());
    for way in [
        &[][..],
        &["dir"],
        &["dir", "file"],
        &[".snapshot"],
        &["dir", ".snapshot"],
        &[".snapshot", "then"],
        &[".snapshot", "again"],
        &[".snapshot", "then", "dir"],
        &[".snapshot", "then", "dir", "file"],
    ] {
        let (_, attributes) = down(&mut client, &root, way);
        assert!(
            numbers.insert((attributes.fsid, attributes.fileid)),
            "{way:?}"
        );
        // Also for a client that does not look at the fsid.
        assert!(fileids.insert(attributes.fileid), "{way:?}");
        // Where a client has to see the border of a file system.
        let is_live = !way.contains(&"then") && !way.contains(&"again");
        assert_eq!(attributes.fsid == live.fsid, is_live, "{way:?}");
    }
    // Listings have the same numbers.
    for way in [&[][..], &["dir"], &[".snapshot"], &[".snapshot", "then"]] {
        let (directory, attributes) = down(&mut client, &root, way);
        for (name, fileid) in listed(&mut client, &directory) {
            let (_, found) = down(&mut client, &directory, &[&name]);
            assert_eq!(found.fileid, fileid, "{way:?} {name}");
            if name == "." {
                assert_eq!(found, attributes);
            }
        }
    }
}

#[test]
fn trap_12_old_and_new_are_never_taken_for_one_file() {
    no_object_has_the_numbers_of_another_one();
}

#[test]
fn only_the_directory_of_a_visible_export_lists_its_snapshots() {
    let (fs, _) = with_snapshot();
    for (access, path, root_has, below_has) in [
        (VirtualDirectory::Hidden, "/", false, false),
        (VirtualDirectory::Visible, "/", true, false),
        (VirtualDirectory::Visible, "/dir", true, false),
        (VirtualDirectory::Off, "/", false, false),
    ] {
        let server = Running::new(fs.clone(), seen(access, path));
        let mut client = server.client();
        let root = client.mount(path).unwrap();
        let below = client.mkdir(&root, "below");
        let list = ".snapshot".to_owned();
        assert_eq!(names(&mut client, &root).contains(&list), root_has);
        assert_eq!(names(&mut client, &below).contains(&list), below_has);
        if root_has {
            let (then, _) = down(&mut client, &root, &[".snapshot", "then"]);
            assert!(!names(&mut client, &then).contains(&list));
        }
        client.nfs(13, |w| {
            w.opaque(&root);
            w.opaque(b"below");
        });
    }
}

#[test]
fn readdirplus_gives_handles_that_lead_where_the_names_lead() {
    let (fs, _) = with_snapshot();
    let server = Running::new(fs, seen(VirtualDirectory::Visible, "/"));
    let mut client = server.client();
    let root = client.root();
    for way in [&[][..], &[".snapshot"], &[".snapshot", "then"]] {
        let (directory, _) = down(&mut client, &root, way);
        let all = listed_as_looked_up(&mut client, &directory);
        assert!(all.len() > 2);
    }
}

#[test]
fn nothing_in_a_snapshot_can_be_changed() {
    let (fs, _) = with_snapshot();
    let server = Running::new(fs, config());
    let mut client = server.client();
    let root = client.root();
    let (list, _) = down(&mut client, &root, &[".snapshot"]);
    let (then, _) = down(&mut client, &list, &["then"]);
    let (file, _) = down(&mut client, &then, &["dir", "file"]);
    // SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
    for procedure in [2, 7, 8, 9, 10, 11, 12, 13, 14, 15] {
        for handle in [&list, &then, &file] {
            let results = client.nfs(procedure, |w| arguments(w, procedure, handle, handle));
            assert_eq!(results.status(), ROFS, "procedure {procedure}");
        }
    }
    // Of two directories one is enough.
    for (from, to) in [(&root, &then), (&then, &root)] {
        let moved = client.nfs(14, |w| arguments(w, 14, from, to));
        assert_eq!(moved.status(), ROFS);
        let linked = client.nfs(15, |w| arguments(w, 15, from, to));
        assert_eq!(linked.status(), ROFS);
    }
    for handle in [&list, &then, &file] {
        // MODIFY, EXTEND, DELETE
        let results = client.nfs(4, |w| arguments(w, 4, handle, handle));
        let mut reader = results.reader();
        assert_eq!(reader.u32(), Ok(0));
        post_op(&mut reader);
        assert_eq!(reader.u32().unwrap() & 0x1c, 0);
        // Everything is stable.
        let committed = client.nfs(21, |w| arguments(w, 21, handle, handle));
        assert_eq!(committed.status(), 0);
        // FSSTAT, FSINFO, PATHCONF
        for procedure in 18..=20 {
            let results = client.nfs(procedure, |w| w.opaque(handle));
            assert_eq!(results.status(), 0);
        }
    }
}

#[test]
fn the_name_of_the_list_is_taken_unless_it_is_off() {
    let (fs, _) = with_snapshot();
    let named = |w: &mut Writer, procedure: u32, directory: &[u8]| {
        w.opaque(directory);
        w.opaque(b".snapshot");
        match procedure {
            8 => {
                w.u32(0);
                no_attributes(w);
            }
            9 => no_attributes(w),
            10 => {
                no_attributes(w);
                w.opaque(b"target");
            }
            // A socket.
            11 => {
                w.u32(6);
                no_attributes(w);
            }
            _ => {}
        }
    };
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    for procedure in MAKING {
        let results = client.nfs(procedure, |w| named(w, procedure, &root));
        assert_eq!(results.status(), EXIST, "procedure {procedure}");
    }
    for procedure in [12, 13] {
        let results = client.nfs(procedure, |w| named(w, procedure, &root));
        assert_eq!(results.status(), ROFS, "procedure {procedure}");
    }
    let rename = |w: &mut Writer, from: &[u8], to: &[u8]| {
        for name in [from, to] {
            w.opaque(&root);
            w.opaque(name);
        }
    };
    let to = client.nfs(14, |w| rename(w, b"dir", b".snapshot"));
    assert_eq!(to.status(), EXIST);
    let from = client.nfs(14, |w| rename(w, b".snapshot", b"new"));
    assert_eq!(from.status(), ROFS);
    drop(server);

    let server = Running::new(fs, seen(VirtualDirectory::Off, "/"));
    let mut client = server.client();
    assert_eq!(client.lookup(&root, b".snapshot").failed().0, NOENT);
    let made = client.nfs(9, |w| named(w, 9, &root));
    assert_eq!(made.status(), 0, "a name as every other one");
    let (own, _) = client.lookup(&root, b".snapshot").found();
    assert_eq!(names(&mut client, &own), [".", ".."]);
}

#[test]
fn handles_survive_a_restart_and_are_stale_when_the_snapshot_is_deleted() {
    let (fs, id) = with_snapshot();
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let (list, before) = down(&mut client, &root, &[".snapshot"]);
    let (file, attributes) = down(&mut client, &list, &["then", "dir", "file"]);
    drop(server);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    assert_eq!(client.attributes(&file), attributes);
    // Under an export that does not show snapshots they are as stale as those of deleted snapshots.
    let closed = Running::new(fs.clone(), seen(VirtualDirectory::Off, "/"));
    for handle in [&list, &file] {
        assert_eq!(closed.client().getattr(handle).status(), STALE);
    }
    fs.delete_snapshot(id);
    // Another one with the same name has other handles.
    fs.add_snapshot("then", Arc::new(MemoryFileSystem::new()));
    for procedure in [1, 2, 3, 4, 5, 6, 7, 12, 14, 16, 17, 18, 19, 20] {
        let results = client.nfs(procedure, |w| arguments(w, procedure, &file, &file));
        let refused = [STALE, ROFS].contains(&results.status());
        assert!(refused, "procedure {procedure}");
    }
    assert_eq!(client.getattr(&file).status(), STALE);
    let (_, after) = down(&mut client, &root, &[".snapshot"]);
    assert_ne!(before.mtime, after.mtime, "clients list it again");
    let (then, _) = down(&mut client, &root, &[".snapshot", "then"]);
    assert_eq!(names(&mut client, &then), [".", ".."]);
}

#[test]
fn an_export_below_the_root_is_not_left_through_its_snapshots() {
    let (fs, _) = with_snapshot();
    let server = Running::new(fs, seen(VirtualDirectory::Hidden, "/dir"));
    let mut client = server.client();
    let top = client.mount("/dir").unwrap();
    let (then, attributes) = down(&mut client, &top, &[".snapshot", "then"]);
    let (_, up) = down(&mut client, &then, &[".."]);
    assert_eq!(up, attributes, "as `..` of a root");
    assert_eq!(listed(&mut client, &then)[1].1, attributes.fileid);
    let (_, up) = down(&mut client, &top, &[".snapshot", ".."]);
    assert_eq!(up, client.attributes(&top));
}

#[test]
fn users_without_the_right_to_search_a_directory_do_not_reach_its_snapshots() {
    let (fs, _) = with_snapshot();
    let server = Running::new(fs, config());
    let mut root_user = server.client();
    let root = root_user.root();
    let (directory, _) = down(&mut root_user, &root, &["dir"]);
    let (list, _) = down(&mut root_user, &directory, &[".snapshot"]);
    let set_mode = |client: &mut Client, mode: u32| {
        let set = client.nfs(2, |w| {
            w.opaque(&directory);
            w.u32(1);
            w.u32(mode);
            (0..6).for_each(|_| w.u32(0));
        });
        assert_eq!(set.status(), 0);
    };
    let mut user = server
        .client()
        .with_identity(As::User(500, 500, Vec::new()));
    // Searching is not listing.
    set_mode(&mut root_user, 0o711);
    assert_eq!(user.attributes(&list).mode, 0o511);
    user.lookup(&list, b"then").found();
    let refused = user.nfs(16, |w| arguments(w, 16, &list, &list));
    assert_eq!(refused.failed().0, 13);
    set_mode(&mut root_user, 0o700);
    assert_eq!(user.lookup(&directory, b".snapshot").failed().0, 13);
    assert_eq!(user.lookup(&list, b"then").failed().0, 13);
    root_user.lookup(&list, b"then").found();
}
