//! Arguments of every procedure (RFC 1813, section 3.3).

use forebay_client::xdr::Encoder;

use crate::results::Time;
use crate::rfc1813::Procedure::{self, *};

/// A call: procedure and arguments, without the header that identifies the caller.
#[derive(Clone, Debug)]
pub struct Call {
    /// The procedure.
    pub procedure: Procedure,
    /// The handles among the arguments, in their order.
    pub handles: Vec<Vec<u8>>,
    /// The arguments, encoded.
    pub arguments: Vec<u8>,
}

/// A time to set (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Do not change.
    #[default]
    Keep,
    /// The server's clock.
    Now,
    /// A given time.
    To(Time),
}

/// `sattr3`; the default sets nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are RFC 1813's")]
pub struct Set {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

/// `createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are RFC 1813's")]
pub enum How {
    Unchecked(Set),
    Guarded(Set),
    Exclusive([u8; 8]),
}

/// `mknoddata3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A block device.
    Block(Set, u32, u32),
    /// A character device.
    Character(Set, u32, u32),
    /// A socket.
    Socket(Set),
    /// A named pipe.
    Fifo(Set),
    /// Anything else (`ftype3`), which has no data.
    Other(u32),
}

/// `stable_how`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are RFC 1813's")]
pub enum Stable {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

fn put_set(encoder: Encoder, set: &Set) -> Encoder {
    let number = |encoder: Encoder, value: Option<u32>| match value {
        Some(value) => encoder.u32s(&[1, value]),
        None => encoder.u32s(&[0]),
    };
    let time = |encoder: Encoder, time: SetTime| match time {
        SetTime::Keep => encoder.u32s(&[0]),
        SetTime::Now => encoder.u32s(&[1]),
        SetTime::To((seconds, nanos)) => encoder.u32s(&[2, seconds, nanos]),
    };
    let encoder = number(number(number(encoder, set.mode), set.uid), set.gid);
    let encoder = match set.size {
        Some(size) => encoder.u32s(&[1]).u64(size),
        None => encoder.u32s(&[0]),
    };
    time(time(encoder, set.atime), set.mtime)
}

impl Call {
    /// A call of `procedure` on the object of a handle, which is the first argument of all procedures but NULL; `more`
    /// appends the other arguments.
    pub fn new(procedure: Procedure, handle: &[u8], more: impl FnOnce(Encoder) -> Encoder) -> Call {
        Call {
            procedure,
            handles: vec![handle.to_vec()],
            arguments: more(Encoder::default().opaque(handle)).0,
        }
    }

    /// Adds a second handle, which `more` has put among the arguments.
    fn and(mut self, handle: &[u8]) -> Call {
        self.handles.push(handle.to_vec());
        self
    }

    /// GETATTR.
    pub fn getattr(object: &[u8]) -> Call {
        Call::new(Getattr, object, |e| e)
    }

    /// SETATTR, with the ctime of its guard, if any.
    pub fn setattr(object: &[u8], set: &Set, guard: Option<Time>) -> Call {
        Call::new(Setattr, object, |e| {
            let e = put_set(e, set);
            match guard {
                Some((seconds, nanos)) => e.u32s(&[1, seconds, nanos]),
                None => e.u32s(&[0]),
            }
        })
    }

    /// LOOKUP.
    pub fn lookup(directory: &[u8], name: &[u8]) -> Call {
        Call::new(Lookup, directory, |e| e.opaque(name))
    }

    /// ACCESS.
    pub fn access(object: &[u8], rights: u32) -> Call {
        Call::new(Access, object, |e| e.u32s(&[rights]))
    }

    /// READLINK.
    pub fn readlink(link: &[u8]) -> Call {
        Call::new(Readlink, link, |e| e)
    }

    /// READ.
    pub fn read(file: &[u8], offset: u64, count: u32) -> Call {
        Call::new(Read, file, |e| e.u64(offset).u32s(&[count]))
    }

    /// WRITE.
    pub fn write(file: &[u8], offset: u64, data: &[u8], stable: Stable) -> Call {
        Call::new(Write, file, |e| {
            let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
            e.u64(offset).u32s(&[count, stable as u32]).opaque(data)
        })
    }

    /// CREATE.
    pub fn create(directory: &[u8], name: &[u8], how: How) -> Call {
        Call::new(Create, directory, |e| {
            let e = e.opaque(name);
            match how {
                How::Unchecked(set) => put_set(e.u32s(&[0]), &set),
                How::Guarded(set) => put_set(e.u32s(&[1]), &set),
                How::Exclusive(verifier) => e.u32s(&[2]).fixed(&verifier),
            }
        })
    }

    /// MKDIR.
    pub fn mkdir(directory: &[u8], name: &[u8], set: &Set) -> Call {
        Call::new(Mkdir, directory, |e| put_set(e.opaque(name), set))
    }

    /// SYMLINK.
    pub fn symlink(directory: &[u8], name: &[u8], set: &Set, path: &[u8]) -> Call {
        Call::new(Symlink, directory, |e| {
            put_set(e.opaque(name), set).opaque(path)
        })
    }

    /// MKNOD.
    pub fn mknod(directory: &[u8], name: &[u8], node: Node) -> Call {
        Call::new(Mknod, directory, |e| {
            let e = e.opaque(name);
            match node {
                Node::Block(set, major, minor) => put_set(e.u32s(&[3]), &set).u32s(&[major, minor]),
                Node::Character(set, major, minor) => {
                    put_set(e.u32s(&[4]), &set).u32s(&[major, minor])
                }
                Node::Socket(set) => put_set(e.u32s(&[6]), &set),
                Node::Fifo(set) => put_set(e.u32s(&[7]), &set),
                Node::Other(kind) => e.u32s(&[kind]),
            }
        })
    }

    /// REMOVE.
    pub fn remove(directory: &[u8], name: &[u8]) -> Call {
        Call::new(Remove, directory, |e| e.opaque(name))
    }

    /// RMDIR.
    pub fn rmdir(directory: &[u8], name: &[u8]) -> Call {
        Call::new(Rmdir, directory, |e| e.opaque(name))
    }

    /// RENAME.
    pub fn rename(from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Call {
        let call = Call::new(Rename, from.0, |e| {
            e.opaque(from.1).opaque(to.0).opaque(to.1)
        });
        call.and(to.0)
    }

    /// LINK.
    pub fn link(object: &[u8], directory: &[u8], name: &[u8]) -> Call {
        let call = Call::new(Link, object, |e| e.opaque(directory).opaque(name));
        call.and(directory)
    }

    /// READDIR.
    pub fn readdir(directory: &[u8], cookie: u64, verifier: [u8; 8], count: u32) -> Call {
        Call::new(Readdir, directory, |e| {
            e.u64(cookie).fixed(&verifier).u32s(&[count])
        })
    }

    /// READDIRPLUS.
    pub fn readdirplus(
        directory: &[u8],
        cookie: u64,
        verifier: [u8; 8],
        dircount: u32,
        maxcount: u32,
    ) -> Call {
        Call::new(Readdirplus, directory, |e| {
            e.u64(cookie).fixed(&verifier).u32s(&[dircount, maxcount])
        })
    }

    /// FSSTAT.
    pub fn fsstat(object: &[u8]) -> Call {
        Call::new(Fsstat, object, |e| e)
    }

    /// FSINFO.
    pub fn fsinfo(object: &[u8]) -> Call {
        Call::new(Fsinfo, object, |e| e)
    }

    /// PATHCONF.
    pub fn pathconf(object: &[u8]) -> Call {
        Call::new(Pathconf, object, |e| e)
    }

    /// COMMIT.
    pub fn commit(file: &[u8], offset: u64, count: u32) -> Call {
        Call::new(Commit, file, |e| e.u64(offset).u32s(&[count]))
    }

    /// A call of any procedure that fails only because of the object, the name or `other`. `other` is the second
    /// directory of RENAME, and the directory of LINK.
    pub fn any(procedure: Procedure, object: &[u8], name: &[u8], other: &[u8]) -> Call {
        let set = Set::default();
        match procedure {
            Null => Call {
                procedure,
                handles: Vec::new(),
                arguments: Vec::new(),
            },
            Setattr => Call::setattr(object, &set, None),
            Lookup => Call::lookup(object, name),
            Access => Call::access(object, 0x3f),
            Read => Call::read(object, 0, 10),
            Write => Call::write(object, 0, b"data", Stable::FileSync),
            Create => Call::create(object, name, How::Guarded(set)),
            Mkdir => Call::mkdir(object, name, &set),
            Symlink => Call::symlink(object, name, &set, b"path"),
            Mknod => Call::mknod(object, name, Node::Fifo(set)),
            Remove => Call::remove(object, name),
            Rmdir => Call::rmdir(object, name),
            Rename => Call::rename((object, name), (other, b"new")),
            Link => Call::link(object, other, name),
            Readdir => Call::readdir(object, 0, [0; 8], 8192),
            Readdirplus => Call::readdirplus(object, 0, [0; 8], 8192, 8192),
            Commit => Call::commit(object, 0, 0),
            Getattr | Readlink | Fsstat | Fsinfo | Pathconf => Call::new(procedure, object, |e| e),
        }
    }
}
