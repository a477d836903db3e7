//! Paths of objects that clients use.

use forebay_types::Inode;
use forebay_vfs::{FileSystem, Stability};

use crate::common::*;

const TOP: Inode = Inode::ROOT;

/// The path of an object, as text.
fn path(life: &Life, inode: Inode) -> Option<String> {
    let path = life.run(|volume| async move { volume.path_of(inode).await });
    path.map(|path| path.escape_ascii().to_string())
}

fn some(path: &str) -> Option<String> {
    Some(path.to_owned())
}

#[test]
fn an_object_that_was_made_has_its_path_and_follows_renames() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let home = life.mkdir(TOP, b"home");
    let ann = life.mkdir(home, b"a\n<b>\xff");
    let file = life.create_in(ann, b"file");
    assert_eq!(path(&life, TOP), some(""));
    assert_eq!(path(&life, ann), some(r"/home/a\n<b>\xff"));
    assert_eq!(path(&life, file), some(r"/home/a\n<b>\xff/file"));
    // Within a directory, into another one, and the directory above.
    life.rename((ann, b"file"), (ann, b"other")).unwrap();
    assert_eq!(path(&life, file), some(r"/home/a\n<b>\xff/other"));
    life.rename((ann, b"other"), (TOP, b"file")).unwrap();
    assert_eq!(path(&life, file), some("/file"));
    life.rename((TOP, b"file"), (ann, b"file")).unwrap();
    life.rename((home, b"a\n<b>\xff"), (TOP, b"ann")).unwrap();
    assert_eq!(path(&life, file), some("/ann/file"));
    assert_eq!(path(&life, Inode(9999)), None);
}

#[test]
fn a_name_that_is_gone_is_no_path_and_another_one_is_when_it_is_seen() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"directory");
    let file = life.create(b"first");
    life.link(file, (directory, b"second")).unwrap();
    assert_eq!(path(&life, file), some("/directory/second"));
    life.try_remove(directory, b"second").unwrap();
    assert_eq!(path(&life, file), None);
    life.lookup(b"first");
    assert_eq!(path(&life, file), some("/first"));
    // Another object under the name and the cookie.
    let new = life.create(b"new");
    life.rename((TOP, b"new"), (TOP, b"first")).unwrap();
    assert_eq!(path(&life, file), None);
    assert_eq!(path(&life, new), some("/first"));
}

#[test]
fn after_a_restart_looking_at_a_name_makes_it_known() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"directory");
    let file = life.create_in(directory, b"file");
    let listed = life.create_in(directory, b"listed");
    life.write(file, 0, b"content", Stability::Unstable);
    life.flush();
    life.stop();
    let life = bucket.start(|_| {});
    assert_eq!(path(&life, file), None);
    // In memory, but by its handle alone.
    assert_eq!(life.read(file, 0, 7), b"content");
    assert_eq!(path(&life, file), None);
    // Its directory is found by its name, although nobody has looked at that.
    life.try_lookup(directory, b"file").unwrap();
    assert_eq!(path(&life, file), some("/directory/file"));
    assert_eq!(path(&life, listed), None);
    let plus =
        life.run(|volume| async move { volume.readdir(&ROOT, directory, 0, 100, true).await });
    assert_eq!(plus.unwrap().entries.len(), 4);
    assert_eq!(path(&life, listed), some("/directory/listed"));
    assert_eq!(path(&life, directory), some("/directory"));
    assert_eq!(path(&life, TOP), some(""));
}
