//! Scenarios of front-end calls.

mod attributes;
mod concurrency;
mod content;
mod names;
mod rename;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use forebay_types::Inode;

use super::MemoryFileSystem;
use crate::{
    Attributes, CreateMode, Credentials, Error, FileSystem, NewNode, Result, SetAttributes,
    Stability,
};

const ROOT: Credentials = Credentials::ROOT;

fn user(uid: u32, gid: u32) -> Credentials {
    Credentials {
        uid,
        gid,
        groups: forebay_vfs::Groups::new_const(),
        ..Credentials::default()
    }
}

/// Returns the result of an operation that never waits.
fn now<T>(operation: impl Future<Output = T>) -> T {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("an operation in memory waits"),
    }
}

/// Short forms of the first steps of most scenarios, run as root.
impl MemoryFileSystem {
    fn file(&self, directory: Inode, name: &str) -> Inode {
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = now(self.create(&ROOT, directory, name.as_bytes(), &mode));
        made.unwrap().attributes.inode
    }

    fn directory(&self, directory: Inode, name: &str) -> Inode {
        let set = SetAttributes::default();
        let made = now(self.make(&ROOT, directory, name.as_bytes(), NewNode::Directory, &set));
        made.unwrap().attributes.inode
    }

    fn find(&self, directory: Inode, name: &str) -> Result<Inode> {
        now(self.lookup(&ROOT, directory, name.as_bytes())).map(|found| found.inode)
    }

    fn put(&self, inode: Inode, offset: u64, data: &[u8]) {
        let reply = now(self.write(&ROOT, inode, offset, data, Stability::FileSync)).unwrap();
        assert_eq!(reply.count as usize, data.len());
        assert_eq!(reply.stability, Stability::FileSync);
    }

    fn get(&self, inode: Inode, offset: u64, count: u32) -> Vec<u8> {
        now(self.read(&ROOT, inode, offset, count))
            .unwrap()
            .data
            .concat()
    }

    fn attributes(&self, inode: Inode) -> Attributes {
        now(self.getattr(inode)).unwrap()
    }

    fn set(&self, inode: Inode, set: SetAttributes) {
        now(self.setattr(&ROOT, inode, &set, None)).unwrap();
    }

    fn move_to(&self, from: (Inode, &str), to: (Inode, &str)) -> Result<()> {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        now(self.rename(&ROOT, from, to)).map(drop)
    }

    /// Names in the order of their cookies, read in pieces of `at_once`.
    fn names(&self, directory: Inode, at_once: usize) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let listing = now(self.readdir(&ROOT, directory, cookie, at_once, false)).unwrap();
            assert!(listing.entries.len() <= at_once);
            for entry in listing.entries {
                assert!(entry.cookie > cookie);
                cookie = entry.cookie;
                names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            }
            if listing.end {
                return names;
            }
        }
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn size(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    }
}

#[test]
fn an_inode_that_is_gone_is_stale_to_every_operation() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    now(fs.remove(&ROOT, Inode::ROOT, b"file")).unwrap();
    let gone = |result: Result<()>| assert_eq!(result, Err(Error::Stale));
    gone(now(fs.getattr(file)).map(drop));
    gone(now(fs.setattr(&ROOT, file, &size(0), None)).map(drop));
    gone(now(fs.read(&ROOT, file, 0, 1)).map(drop));
    gone(now(fs.write(&ROOT, file, 0, b"x", Stability::Unstable)).map(drop));
    gone(now(fs.commit(&ROOT, file, 0, 0)).map(drop));
    gone(now(fs.link(&ROOT, file, Inode::ROOT, b"again")).map(drop));
    gone(now(fs.lookup(&ROOT, file, b"name")).map(drop));
    assert_ne!(fs.file(Inode::ROOT, "file"), file);
}
