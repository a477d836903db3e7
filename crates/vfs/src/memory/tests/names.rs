//! Scenarios of names: looking up, listing, creating, linking, removing.

use super::*;
use crate::{Device, FileKind};

fn make(fs: &MemoryFileSystem, name: &[u8], node: NewNode<'_>) -> Result<Attributes> {
    let made = now(fs.make(&ROOT, Inode::ROOT, name, node, &SetAttributes::default()));
    made.map(|made| made.attributes)
}

#[test]
fn cookies_stay_while_names_around_them_come_and_go() {
    let fs = MemoryFileSystem::new();
    for number in 0..10 {
        fs.file(Inode::ROOT, &format!("f{number}"));
    }
    let first = now(fs.readdir(&ROOT, Inode::ROOT, 0, 5, false)).unwrap();
    assert_eq!(first.entries[2].name, "f0");
    let cookie = first.entries[4].cookie;
    assert_eq!(first.entries[4].name, "f2");
    // One of them is the entry from which the listing continues.
    for gone in ["f0", "f2", "f5"] {
        now(fs.remove(&ROOT, Inode::ROOT, gone.as_bytes())).unwrap();
    }
    fs.file(Inode::ROOT, "new");
    let rest = now(fs.readdir(&ROOT, Inode::ROOT, cookie, 100, false)).unwrap();
    let names: Vec<_> = rest.entries.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(
        names,
        [&b"f3"[..], b"f4", b"f6", b"f7", b"f8", b"f9", b"new"]
    );
    assert!(rest.end);
}

#[test]
fn a_listing_in_pieces_is_the_listing_as_a_whole() {
    let fs = MemoryFileSystem::new();
    for number in 0..25 {
        fs.file(Inode::ROOT, &number.to_string());
    }
    let whole = fs.names(Inode::ROOT, 1000);
    assert_eq!(whole[..3], [".", "..", "0"]);
    assert_eq!(whole.len(), 27);
    for at_once in [1, 2, 3, 26, 27] {
        assert_eq!(fs.names(Inode::ROOT, at_once), whole);
    }
    let past = now(fs.readdir(&ROOT, Inode::ROOT, u64::MAX, 10, true)).unwrap();
    assert!(past.entries.is_empty() && past.end);
}

#[test]
fn a_listing_with_attributes_has_those_of_dot_and_dot_dot() {
    let fs = MemoryFileSystem::new();
    let below = fs.directory(Inode::ROOT, "below");
    fs.file(below, "file");
    let listing = now(fs.readdir(&ROOT, below, 0, 10, true)).unwrap();
    let inodes: Vec<_> = listing.entries.iter().map(|entry| entry.inode).collect();
    assert_eq!(inodes[..2], [below, Inode::ROOT]);
    for entry in &listing.entries {
        assert_eq!(entry.attributes, Some(fs.attributes(entry.inode)));
    }
    assert_eq!(listing.directory, fs.attributes(below));
}

#[test]
fn dot_and_dot_dot_are_found_and_never_made_or_removed() {
    let fs = MemoryFileSystem::new();
    let one = fs.directory(Inode::ROOT, "one");
    let two = fs.directory(one, "two");
    assert_eq!(fs.find(two, "."), Ok(two));
    assert_eq!(fs.find(two, ".."), Ok(one));
    assert_eq!(fs.find(Inode::ROOT, ".."), Ok(Inode::ROOT));
    // RFC 1813, section 3.3.13, defines which name gets which error.
    for (dot, refused) in [(&b"."[..], Error::Invalid), (b"..", Error::Exists)] {
        assert_eq!(
            make(&fs, dot, NewNode::Directory).map(drop),
            Err(Error::Exists)
        );
        assert_eq!(now(fs.rmdir(&ROOT, two, dot)).map(drop), Err(refused));
    }
}

#[test]
fn names_are_any_bytes_but_slash_and_nul_up_to_255() {
    let fs = MemoryFileSystem::new();
    for good in [&[0xff; 255][..], b"\x80\n ", b"..."] {
        let made = make(&fs, good, NewNode::Fifo).unwrap();
        assert_eq!(now(fs.lookup(&ROOT, Inode::ROOT, good)), Ok(made));
    }
    let cases = [
        (&[b'a'; 256][..], Error::NameTooLong),
        (b"", Error::Invalid),
        (b"a/b", Error::Invalid),
        (b"a\0", Error::Invalid),
    ];
    for (bad, error) in cases {
        assert_eq!(make(&fs, bad, NewNode::Fifo).map(drop), Err(error));
        assert_eq!(
            now(fs.lookup(&ROOT, Inode::ROOT, bad)).map(drop),
            Err(error)
        );
        assert_eq!(
            now(fs.remove(&ROOT, Inode::ROOT, bad)).map(drop),
            Err(error)
        );
    }
}

#[test]
fn every_kind_is_made_with_what_belongs_to_it() {
    let fs = MemoryFileSystem::new();
    let device = Device { major: 8, minor: 1 };
    let cases = [
        (NewNode::Fifo, FileKind::Fifo, Device::default()),
        (NewNode::Socket, FileKind::Socket, Device::default()),
        (NewNode::BlockDevice(device), FileKind::BlockDevice, device),
        (NewNode::CharDevice(device), FileKind::CharDevice, device),
        (NewNode::Directory, FileKind::Directory, Device::default()),
    ];
    for (number, (node, kind, device)) in cases.into_iter().enumerate() {
        let made = make(&fs, number.to_string().as_bytes(), node).unwrap();
        assert_eq!((made.kind, made.device), (kind, device));
        assert_eq!(
            make(&fs, number.to_string().as_bytes(), node).map(drop),
            Err(Error::Exists)
        );
    }
}

#[test]
fn a_symbolic_link_holds_1_to_4096_bytes() {
    let fs = MemoryFileSystem::new();
    let long = [b'x'; 4096];
    let link = make(&fs, b"link", NewNode::Symlink(&long)).unwrap();
    assert_eq!((link.size, link.mode), (4096, 0o777));
    let (target, attributes) = now(fs.readlink(&ROOT, link.inode)).unwrap();
    assert_eq!((&target[..], attributes), (&long[..], link));
    let too_long = [b'x'; 4097];
    assert_eq!(
        make(&fs, b"no", NewNode::Symlink(&too_long)).map(drop),
        Err(Error::NameTooLong)
    );
    assert_eq!(
        make(&fs, b"no", NewNode::Symlink(b"")).map(drop),
        Err(Error::Invalid)
    );
    assert_eq!(
        now(fs.readlink(&ROOT, Inode::ROOT)).map(drop),
        Err(Error::Invalid)
    );
}

#[test]
fn an_exclusive_create_that_is_repeated_finds_its_own_file() {
    let fs = MemoryFileSystem::new();
    let create = |verifier| {
        now(fs.create(
            &ROOT,
            Inode::ROOT,
            b"file",
            &CreateMode::Exclusive(verifier),
        ))
    };
    let first = create([1; 8]).unwrap().attributes;
    assert_eq!(create([1; 8]).unwrap().attributes, first);
    assert_eq!(create([2; 8]), Err(Error::Exists));
}

#[test]
fn create_of_a_name_that_exists_goes_by_its_mode() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    fs.put(file, 0, b"content");
    let create = |name: &[u8], mode| {
        now(fs.create(&ROOT, Inode::ROOT, name, &mode)).map(|made| made.attributes.inode)
    };
    let empty = SetAttributes::default();
    assert_eq!(
        create(b"file", CreateMode::Guarded(empty)),
        Err(Error::Exists)
    );
    assert_eq!(
        create(b"file", CreateMode::Exclusive([0; 8])),
        Err(Error::Exists)
    );
    assert_eq!(create(b"file", CreateMode::Unchecked(empty)), Ok(file));
    assert_eq!(fs.get(file, 0, 10), b"content");
    assert_eq!(create(b"file", CreateMode::Unchecked(size(3))), Ok(file));
    assert_eq!(fs.get(file, 0, 10), b"con");
    fs.directory(Inode::ROOT, "directory");
    assert_eq!(
        create(b"directory", CreateMode::Unchecked(empty)),
        Err(Error::Exists)
    );
}

#[test]
fn link_counts_follow_names_and_subdirectories() {
    let fs = MemoryFileSystem::new();
    let nlink = |inode| fs.attributes(inode).nlink;
    let one = fs.directory(Inode::ROOT, "one");
    assert_eq!((nlink(Inode::ROOT), nlink(one)), (3, 2));
    let file = fs.file(one, "file");
    let (attributes, change) = now(fs.link(&ROOT, file, Inode::ROOT, b"other")).unwrap();
    assert_eq!(
        (attributes.nlink, nlink(file), nlink(Inode::ROOT)),
        (2, 2, 3)
    );
    assert_eq!(change.after, Some(fs.attributes(Inode::ROOT)));
    assert_eq!(
        now(fs.link(&ROOT, file, Inode::ROOT, b"other")),
        Err(Error::Exists)
    );
    assert_eq!(
        now(fs.link(&ROOT, one, Inode::ROOT, b"two")),
        Err(Error::NotOwner)
    );
    now(fs.remove(&ROOT, one, b"file")).unwrap();
    assert_eq!(nlink(file), 1);
    now(fs.rmdir(&ROOT, Inode::ROOT, b"one")).unwrap();
    assert_eq!(nlink(Inode::ROOT), 2);
}

#[test]
fn remove_and_rmdir_each_take_only_their_kind() {
    let fs = MemoryFileSystem::new();
    let directory = fs.directory(Inode::ROOT, "directory");
    let file = fs.file(directory, "file");
    assert_eq!(
        now(fs.remove(&ROOT, Inode::ROOT, b"directory")),
        Err(Error::IsDirectory)
    );
    assert_eq!(
        now(fs.rmdir(&ROOT, directory, b"file")),
        Err(Error::NotDirectory)
    );
    assert_eq!(
        now(fs.rmdir(&ROOT, Inode::ROOT, b"directory")),
        Err(Error::NotEmpty)
    );
    assert_eq!(
        now(fs.remove(&ROOT, Inode::ROOT, b"nothing")),
        Err(Error::NotFound)
    );
    assert_eq!(now(fs.remove(&ROOT, file, b"x")), Err(Error::NotDirectory));
    now(fs.remove(&ROOT, directory, b"file")).unwrap();
    now(fs.rmdir(&ROOT, Inode::ROOT, b"directory")).unwrap();
    let create = CreateMode::Guarded(SetAttributes::default());
    assert_eq!(
        now(fs.create(&ROOT, directory, b"late", &create)),
        Err(Error::Stale)
    );
}

#[test]
fn changes_of_names_tell_the_directory_before_and_after() {
    let fs = MemoryFileSystem::new();
    let before = fs.attributes(Inode::ROOT);
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = now(fs.create(&ROOT, Inode::ROOT, b"file", &mode)).unwrap();
    assert_eq!(made.directory.before, Some((&before).into()));
    assert_eq!(made.directory.after, Some(fs.attributes(Inode::ROOT)));
    assert!(fs.attributes(Inode::ROOT).mtime >= before.mtime);
    assert_eq!(made.attributes, fs.attributes(made.attributes.inode));
}

#[test]
fn a_renamed_name_keeps_its_cookie_and_a_replaced_one_leaves_it_to_what_comes() {
    let fs = MemoryFileSystem::new();
    let other = fs.directory(Inode::ROOT, "other");
    for name in ["a", "b", "c"] {
        fs.file(Inode::ROOT, name);
    }
    let cookies = || {
        let listing = now(fs.readdir(&ROOT, Inode::ROOT, 2, 100, false)).unwrap();
        let entries = listing.entries.iter();
        let named = entries.map(|entry| (entry.cookie, entry.name.escape_ascii().to_string()));
        named.collect::<Vec<_>>()
    };
    let root = Inode::ROOT;
    let first = cookies()[0].0;
    let expected = |names: &[(u64, &str)]| {
        let names = names.iter();
        let named = names.map(|(at, name)| (first + at, (*name).to_owned()));
        named.collect::<Vec<_>>()
    };
    fs.move_to((root, "b"), (root, "x")).unwrap();
    fs.move_to((root, "c"), (root, "a")).unwrap();
    assert_eq!(cookies(), expected(&[(0, "other"), (1, "a"), (2, "x")]));
    fs.file(other, "d");
    fs.file(other, "e");
    fs.move_to((other, "d"), (root, "a")).unwrap();
    fs.move_to((other, "e"), (root, "e")).unwrap();
    fs.file(root, "f");
    assert_eq!(
        cookies(),
        expected(&[(0, "other"), (1, "a"), (2, "x"), (4, "e"), (5, "f")])
    );
}
