//! Scenarios of RENAME.

use super::*;

#[test]
fn a_rename_takes_the_place_of_what_was_there() {
    let fs = MemoryFileSystem::new();
    let (new, old) = (fs.file(Inode::ROOT, "new"), fs.file(Inode::ROOT, "old"));
    fs.put(old, 0, &[1; 4096]);
    fs.move_to((Inode::ROOT, "new"), (Inode::ROOT, "old"))
        .unwrap();
    assert_eq!(fs.find(Inode::ROOT, "old"), Ok(new));
    assert_eq!(fs.find(Inode::ROOT, "new"), Err(Error::NotFound));
    assert_eq!(now(fs.getattr(old)), Err(Error::Stale));
    assert_eq!(fs.names(Inode::ROOT, 10), [".", "..", "old"]);
}

#[test]
fn a_replaced_file_keeps_its_other_names() {
    let fs = MemoryFileSystem::new();
    fs.file(Inode::ROOT, "new");
    let old = fs.file(Inode::ROOT, "old");
    now(fs.link(&ROOT, old, Inode::ROOT, b"other")).unwrap();
    fs.move_to((Inode::ROOT, "new"), (Inode::ROOT, "old"))
        .unwrap();
    assert_eq!(fs.attributes(old).nlink, 1);
    assert_eq!(fs.find(Inode::ROOT, "other"), Ok(old));
}

#[test]
fn two_names_of_one_file_both_stay() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "one");
    now(fs.link(&ROOT, file, Inode::ROOT, b"other")).unwrap();
    fs.move_to((Inode::ROOT, "one"), (Inode::ROOT, "other"))
        .unwrap();
    fs.move_to((Inode::ROOT, "one"), (Inode::ROOT, "one"))
        .unwrap();
    assert_eq!(fs.names(Inode::ROOT, 10), [".", "..", "one", "other"]);
    assert_eq!(fs.attributes(file).nlink, 2);
}

#[test]
fn a_directory_moves_with_its_parent_and_link_counts() {
    let fs = MemoryFileSystem::new();
    let (one, two) = (
        fs.directory(Inode::ROOT, "one"),
        fs.directory(Inode::ROOT, "two"),
    );
    let moved = fs.directory(one, "moved");
    let empty = fs.directory(two, "taken");
    fs.move_to((one, "moved"), (two, "taken")).unwrap();
    assert_eq!(fs.find(two, "taken"), Ok(moved));
    assert_eq!(fs.find(moved, ".."), Ok(two));
    assert_eq!((fs.attributes(one).nlink, fs.attributes(two).nlink), (2, 3));
    assert_eq!(now(fs.getattr(empty)), Err(Error::Stale));
    // Within one directory as well.
    fs.directory(two, "another");
    fs.move_to((two, "taken"), (two, "another")).unwrap();
    assert_eq!(fs.attributes(two).nlink, 3);
}

#[test]
fn a_directory_does_not_go_below_itself() {
    let fs = MemoryFileSystem::new();
    let one = fs.directory(Inode::ROOT, "one");
    let two = fs.directory(one, "two");
    for to in [one, two] {
        assert_eq!(
            fs.move_to((Inode::ROOT, "one"), (to, "x")),
            Err(Error::Invalid)
        );
    }
    assert_eq!(fs.find(two, ".."), Ok(one));
}

#[test]
fn only_like_replaces_like_and_only_empty_directories_go() {
    let fs = MemoryFileSystem::new();
    let full = fs.directory(Inode::ROOT, "full");
    let inner = fs.directory(full, "inner");
    fs.file(full, "file");
    fs.file(Inode::ROOT, "file");
    fs.directory(Inode::ROOT, "empty");
    let root = Inode::ROOT;
    assert_eq!(
        fs.move_to((root, "empty"), (root, "file")),
        Err(Error::NotDirectory)
    );
    assert_eq!(
        fs.move_to((root, "file"), (root, "empty")),
        Err(Error::IsDirectory)
    );
    assert_eq!(
        fs.move_to((root, "empty"), (root, "full")),
        Err(Error::NotEmpty)
    );
    // Over the directory that it lies in.
    assert_eq!(
        fs.move_to((full, "inner"), (root, "full")),
        Err(Error::NotEmpty)
    );
    assert_eq!(
        fs.move_to((full, "file"), (root, "full")),
        Err(Error::IsDirectory)
    );
    assert_eq!(
        fs.move_to((root, "nothing"), (root, "file")),
        Err(Error::NotFound)
    );
    assert_eq!(
        fs.move_to((root, "file"), (root, "..")),
        Err(Error::Invalid)
    );
    assert_eq!(fs.find(full, "inner"), Ok(inner));
    assert_eq!(fs.names(root, 10), [".", "..", "full", "file", "empty"]);
}

#[test]
fn both_directories_tell_before_and_after() {
    let fs = MemoryFileSystem::new();
    let (one, two) = (
        fs.directory(Inode::ROOT, "one"),
        fs.directory(Inode::ROOT, "two"),
    );
    fs.file(one, "file");
    let before = (fs.attributes(one), fs.attributes(two));
    let (from, to) = now(fs.rename(&ROOT, (one, b"file"), (two, b"file"))).unwrap();
    assert_eq!(
        (from.before, to.before),
        (Some((&before.0).into()), Some((&before.1).into()))
    );
    assert_eq!(
        (from.after, to.after),
        (Some(fs.attributes(one)), Some(fs.attributes(two)))
    );
}
