//! Conversion between the records of the metadata layer and the attributes that front ends see.

use bytes::Bytes;
use forebay_meta::record::{Content, CookieRecord, Device, InodeRecord, Kind, Timestamp};
use forebay_types::Inode;
use forebay_vfs as vfs;

/// Cookie of `.` in every directory.
const DOT_COOKIE: u64 = 1;
/// Cookie of `..` in every directory. No name that was made has this cookie or a lower one.
pub const DOT_DOT_COOKIE: u64 = 2;
/// Cookie of the first name that is made in a directory.
pub const FIRST_COOKIE: u64 = DOT_DOT_COOKIE + 1;

/// A time of a record as front ends see it.
pub fn timestamp(time: Timestamp) -> vfs::Timestamp {
    vfs::Timestamp {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

/// A time as records have it.
pub fn record_time(time: vfs::Timestamp) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

/// The kind of an object as front ends see it.
pub fn kind(kind: Kind) -> vfs::FileKind {
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
pub fn owned(record: &InodeRecord) -> vfs::permission::Owned {
    vfs::permission::Owned {
        kind: kind(record.kind()),
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
    }
}

/// The numbers of a device.
pub fn device(numbers: Device) -> vfs::Device {
    vfs::Device {
        major: numbers.major,
        minor: numbers.minor,
    }
}

/// The content of a new object.
pub fn content(node: vfs::NewNode<'_>, parent: Inode) -> Content {
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
            target: Bytes::copy_from_slice(target),
        },
        vfs::NewNode::Fifo => Content::Fifo,
        vfs::NewNode::Socket => Content::Socket,
        vfs::NewNode::BlockDevice(numbers) => Content::BlockDevice(device(numbers)),
        vfs::NewNode::CharDevice(numbers) => Content::CharDevice(device(numbers)),
    }
}

/// The attributes of an object; `used` are the bytes that a regular file is charged for.
pub fn attributes(inode: Inode, record: &InodeRecord, used: u64) -> vfs::Attributes {
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
        device: device(record.device()),
        atime: timestamp(record.atime),
        mtime: timestamp(record.mtime),
        ctime: timestamp(record.ctime),
    }
}

/// A name of a directory, as listings have it.
pub fn entry((cookie, record): (u64, CookieRecord)) -> vfs::DirectoryEntry {
    vfs::DirectoryEntry {
        cookie,
        inode: record.inode,
        name: record.name,
        attributes: None,
    }
}

/// The entries `.` and `..` of `directory` with a cookie above `after`; at most `limit`.
pub fn dots(
    directory: Inode,
    parent: Inode,
    after: u64,
    limit: usize,
) -> impl Iterator<Item = vfs::DirectoryEntry> {
    let dots = [
        (DOT_COOKIE, directory, &b"."[..]),
        (DOT_DOT_COOKIE, parent, b".."),
    ];
    let dots = dots.map(|(cookie, inode, name)| vfs::DirectoryEntry {
        cookie,
        inode,
        name: Bytes::from_static(name),
        attributes: None,
    });
    let wanted = dots.into_iter().filter(move |dot| dot.cookie > after);
    wanted.take(limit)
}
