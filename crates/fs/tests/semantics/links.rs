//! Hard links, symbolic links and special files.

use forebay_vfs::{Device, Error, FileKind, FileSystem, NewNode, Stability};

use super::{TOP, mode};
use crate::common::*;

#[test]
fn hard_links_share_one_object_until_the_last_name_is_gone() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    let inode = life.create(b"one");
    life.link(inode, (directory, b"two")).unwrap();
    life.write(inode, 0, b"shared", Stability::FileSync);
    assert_eq!(life.getattr(inode).unwrap().nlink, 2);
    assert_eq!(life.try_lookup(directory, b"two").unwrap().inode, inode);
    assert_eq!(life.link(inode, (directory, b"two")), Err(Error::Exists));
    assert_eq!(
        life.link(directory, (TOP, b"directory")),
        Err(Error::NotOwner)
    );
    life.flush();
    life.crash();

    let life = bucket.start(|_| {});
    life.remove(b"one");
    assert_eq!(life.getattr(inode).unwrap().nlink, 1);
    assert_eq!(life.read(inode, 0, 100), b"shared");
    life.try_remove(directory, b"two").unwrap();
    assert_eq!(life.getattr(inode), Err(Error::Stale));
    assert_eq!(life.try_read(inode, 0, 100), Err(Error::Stale));
    assert_eq!(life.link(inode, (TOP, b"three")), Err(Error::Stale));
}

#[test]
fn symbolic_links_and_special_files_keep_what_they_were_made_with() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let long = vec![b'x'; 4096];
    let device = Device {
        major: 0xfff,
        minor: 0xf_ffff,
    };
    let nodes: [(&[u8], NewNode<'_>, FileKind); 6] = [
        (
            b"link",
            NewNode::Symlink(b"../\xff\xfe/target"),
            FileKind::Symlink,
        ),
        (b"long", NewNode::Symlink(&long), FileKind::Symlink),
        (b"pipe", NewNode::Fifo, FileKind::Fifo),
        (b"socket", NewNode::Socket, FileKind::Socket),
        (
            b"block",
            NewNode::BlockDevice(device),
            FileKind::BlockDevice,
        ),
        (b"char", NewNode::CharDevice(device), FileKind::CharDevice),
    ];
    for (name, node, _) in nodes {
        life.run(|volume| async move {
            volume
                .make(&ROOT, TOP, name, node, &mode(0o640))
                .await
                .unwrap();
            assert_eq!(
                volume.make(&ROOT, TOP, name, node, &mode(0o640)).await,
                Err(Error::Exists)
            );
        });
    }
    let check = |life: &Life| {
        for (name, node, kind) in nodes {
            let found = life.lookup(name);
            assert_eq!((found.kind, found.mode, found.nlink), (kind, 0o640, 1));
            let target =
                life.run(|volume| async move { volume.readlink(&ROOT, found.inode).await });
            match node {
                NewNode::Symlink(expected) => {
                    assert_eq!(target.unwrap().0, expected);
                    assert_eq!(found.size, expected.len() as u64);
                }
                NewNode::BlockDevice(_) | NewNode::CharDevice(_) => {
                    assert_eq!(found.device, device);
                }
                _ => assert_eq!(target, Err(Error::Invalid)),
            }
            assert_eq!(life.try_read(found.inode, 0, 1), Err(Error::Invalid));
        }
    };
    check(&life);
    life.run(|volume| async move {
        for (target, error) in [
            (&b""[..], Error::Invalid),
            (&[b'x'; 4097], Error::NameTooLong),
        ] {
            let made = volume
                .make(&ROOT, TOP, b"bad", NewNode::Symlink(target), &mode(0o777))
                .await;
            assert_eq!(made, Err(error));
        }
    });
    life.crash();
    let life = bucket.start(|_| {});
    check(&life);
    life.flush();
    life.crash();
    check(&bucket.start_elsewhere(|_| {}));
}
