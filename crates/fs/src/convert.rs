//! Conversion between the records of the metadata layer and the attributes that front ends see.

use forebay_meta::record::{Content, Device, InodeRecord, Kind, Timestamp};
use forebay_types::Inode;
use forebay_vfs as vfs;

/// Cookie of the first name that is made in a directory; those of `.` and `..` precede it.
pub(crate) const FIRST_COOKIE: u64 = 3;

pub(crate) fn timestamp(time: Timestamp) -> vfs::Timestamp {
    vfs::Timestamp {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

pub(crate) fn record_time(time: vfs::Timestamp) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

pub(crate) fn kind(kind: Kind) -> vfs::FileKind {
    match kind {
        Kind::Regular => vfs::FileKind::Regular,
        Kind::Directory => vfs::FileKind::Directory,
        Kind::BlockDevice => vfs::FileKind::BlockDevice,
        Kind::CharDevice => vfs::FileKind::CharDevice,
        Kind::Symlink => vfs::FileKind::Symlink,
        Kind::Socket => vfs::FileKind::Socket,
        Kind::Fifo => vfs::FileKind::Fifo,
    }
}

/// The attributes that permission checks need.
pub(crate) fn owned(record: &InodeRecord) -> vfs::permission::Owned {
    vfs::permission::Owned {
        kind: kind(record.kind()),
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
    }
}

/// The content of a new object.
pub(crate) fn content(node: vfs::NewNode<'_>, parent: Inode) -> Content {
    let device = |device: vfs::Device| Device {
        major: device.major,
        minor: device.minor,
    };
    match node {
        vfs::NewNode::Directory => Content::Directory(forebay_meta::record::Directory {
            parent,
            next_cookie: FIRST_COOKIE,
            entries: 0,
        }),
        vfs::NewNode::Symlink(target) => Content::Symlink {
            target: bytes::Bytes::copy_from_slice(target),
        },
        vfs::NewNode::Fifo => Content::Fifo,
        vfs::NewNode::Socket => Content::Socket,
        vfs::NewNode::BlockDevice(numbers) => Content::BlockDevice(device(numbers)),
        vfs::NewNode::CharDevice(numbers) => Content::CharDevice(device(numbers)),
    }
}

/// The attributes of an object; `used` are the bytes that a regular file is charged for.
pub(crate) fn attributes(inode: Inode, record: &InodeRecord, used: u64) -> vfs::Attributes {
    let device = record.device();
    let used = match record.kind() {
        Kind::Regular => used,
        Kind::Directory => 4096,
        _ => record.size.next_multiple_of(512),
    };
    vfs::Attributes {
        inode,
        kind: kind(record.kind()),
        mode: record.mode,
        nlink: record.nlink,
        uid: record.uid,
        gid: record.gid,
        size: if record.kind() == Kind::Directory {
            4096
        } else {
            record.size
        },
        used,
        device: vfs::Device {
            major: device.major,
            minor: device.minor,
        },
        atime: timestamp(record.atime),
        mtime: timestamp(record.mtime),
        ctime: timestamp(record.ctime),
    }
}
