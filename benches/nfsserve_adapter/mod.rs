//! Runs any of our file systems behind `nfsserve`.
//!
//! Its calls have no credentials: they are taken for root's.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_types::Inode;
use forebay_vfs::memory::MemoryFileSystem;
use forebay_vfs::{
    Attributes, CreateMode, Credentials, Error, FileKind, FileSystem, NewNode, Result,
    SetAttributes, SetTime, Stability, Timestamp,
};
use nfsserve::nfs::{
    fattr3, fileid3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, sattr3, set_atime, set_gid3,
    set_mode3, set_mtime, set_size3, set_uid3, specdata3,
};
use nfsserve::tcp::{NFSTcp, NFSTcpListener};
use nfsserve::vfs::{DirEntry, NFSFileSystem, ReadDirResult, VFSCapabilities};

use crate::server::Running;

const ROOT: Credentials = Credentials::ROOT;

/// Names read in one step of a listing.
const LISTED_AT_ONCE: usize = 1024;

/// Serves a file system on a port of the loopback.
#[allow(dead_code, reason = "not every benchmark serves in its own process")]
pub(crate) async fn start(fs: Arc<MemoryFileSystem>) -> Running {
    let listener = NFSTcpListener::bind("127.0.0.1:0", Adapter(fs)).await;
    let listener = listener.expect("a free port");
    let address = (listener.get_listen_ip(), listener.get_listen_port()).into();
    let served = tokio::spawn(async move {
        // It serves until it is aborted.
        let _ = listener.handle_forever().await;
    });
    Running::endless(address, served)
}

/// See the module.
pub(crate) struct Adapter<F>(pub(crate) Arc<F>);

type Answer<T> = std::result::Result<T, nfsstat3>;

#[async_trait]
impl<F: FileSystem> NFSFileSystem for Adapter<F> {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadWrite
    }

    fn root_dir(&self) -> fileid3 {
        Inode::ROOT.0
    }

    async fn lookup(&self, directory: fileid3, name: &filename3) -> Answer<fileid3> {
        let found = self.0.lookup(&ROOT, Inode(directory), &name.0).await;
        answer(found.map(|found| found.inode.0))
    }

    async fn getattr(&self, id: fileid3) -> Answer<fattr3> {
        answer(self.0.getattr(Inode(id)).await.map(theirs))
    }

    async fn setattr(&self, id: fileid3, set: sattr3) -> Answer<fattr3> {
        let changed = self.0.setattr(&ROOT, Inode(id), &ours(&set), None).await;
        self.after(id, changed.map(|change| change.after)).await
    }

    async fn read(&self, id: fileid3, offset: u64, count: u32) -> Answer<(Vec<u8>, bool)> {
        let read = self.0.read(&ROOT, Inode(id), offset, count).await;
        // Its interface wants a single vector.
        answer(read.map(|read| (read.data.concat(), read.eof)))
    }

    async fn write(&self, id: fileid3, offset: u64, data: &[u8]) -> Answer<fattr3> {
        let stability = Stability::Unstable;
        let written = self
            .0
            .write(&ROOT, Inode(id), offset, data, stability)
            .await;
        self.after(id, written.map(|reply| reply.change.after))
            .await
    }

    async fn create(
        &self,
        directory: fileid3,
        name: &filename3,
        set: sattr3,
    ) -> Answer<(fileid3, fattr3)> {
        let mode = CreateMode::Unchecked(ours(&set));
        let made = self.0.create(&ROOT, Inode(directory), &name.0, &mode).await;
        answer(made.map(|made| made_of(made.attributes)))
    }

    async fn create_exclusive(&self, directory: fileid3, name: &filename3) -> Answer<fileid3> {
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = self.0.create(&ROOT, Inode(directory), &name.0, &mode).await;
        answer(made.map(|made| made.attributes.inode.0))
    }

    async fn mkdir(&self, directory: fileid3, name: &filename3) -> Answer<(fileid3, fattr3)> {
        let set = SetAttributes::default();
        let node = NewNode::Directory;
        let made = self
            .0
            .make(&ROOT, Inode(directory), &name.0, node, &set)
            .await;
        answer(made.map(|made| made_of(made.attributes)))
    }

    async fn remove(&self, directory: fileid3, name: &filename3) -> Answer<()> {
        let directory = Inode(directory);
        let removed = match self.0.remove(&ROOT, directory, &name.0).await {
            // It has one method for REMOVE and RMDIR.
            Err(Error::IsDirectory) => self.0.rmdir(&ROOT, directory, &name.0).await,
            removed => removed,
        };
        answer(removed.map(drop))
    }

    async fn rename(
        &self,
        from: fileid3,
        old_name: &filename3,
        to: fileid3,
        new_name: &filename3,
    ) -> Answer<()> {
        let (from, to) = ((Inode(from), &old_name.0[..]), (Inode(to), &new_name.0[..]));
        answer(self.0.rename(&ROOT, from, to).await.map(drop))
    }

    /// `nfsserve` names the position of a listing by inode, which has to be searched for.
    async fn readdir(
        &self,
        directory: fileid3,
        start_after: fileid3,
        max_entries: usize,
    ) -> Answer<ReadDirResult> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        let mut found = start_after == 0;
        loop {
            let listing = self
                .0
                .readdir(&ROOT, Inode(directory), cookie, LISTED_AT_ONCE, true)
                .await;
            let listing = answer(listing)?;
            for entry in &listing.entries {
                cookie = entry.cookie;
                let (false, Some(attributes)) =
                    (matches!(&entry.name[..], b"." | b".."), entry.attributes)
                else {
                    continue;
                };
                if !found {
                    found = entry.inode.0 == start_after;
                    continue;
                }
                if entries.len() == max_entries {
                    return Ok(ReadDirResult {
                        entries,
                        end: false,
                    });
                }
                entries.push(DirEntry {
                    fileid: entry.inode.0,
                    name: entry.name[..].into(),
                    attr: theirs(attributes),
                });
            }
            if listing.end {
                return Ok(ReadDirResult { entries, end: true });
            }
        }
    }

    async fn symlink(
        &self,
        directory: fileid3,
        name: &filename3,
        target: &nfspath3,
        set: &sattr3,
    ) -> Answer<(fileid3, fattr3)> {
        let node = NewNode::Symlink(&target.0);
        let set = ours(set);
        let made = self
            .0
            .make(&ROOT, Inode(directory), &name.0, node, &set)
            .await;
        answer(made.map(|made| made_of(made.attributes)))
    }

    async fn readlink(&self, id: fileid3) -> Answer<nfspath3> {
        let read = self.0.readlink(&ROOT, Inode(id)).await;
        answer(read.map(|(target, _)| target[..].into()))
    }
}

impl<F: FileSystem> Adapter<F> {
    /// The attributes after a change.
    async fn after(&self, id: fileid3, changed: Result<Option<Attributes>>) -> Answer<fattr3> {
        match answer(changed)? {
            Some(attributes) => Ok(theirs(attributes)),
            None => self.getattr(id).await,
        }
    }
}

fn made_of(attributes: Attributes) -> (fileid3, fattr3) {
    (attributes.inode.0, theirs(attributes))
}

fn theirs(attributes: Attributes) -> fattr3 {
    let time = |time: Timestamp| nfstime3 {
        seconds: time.seconds as u32,
        nseconds: time.nanos,
    };
    fattr3 {
        ftype: match attributes.kind {
            FileKind::Regular => ftype3::NF3REG,
            FileKind::Directory => ftype3::NF3DIR,
            FileKind::Symlink => ftype3::NF3LNK,
            FileKind::BlockDevice => ftype3::NF3BLK,
            FileKind::CharDevice => ftype3::NF3CHR,
            FileKind::Fifo => ftype3::NF3FIFO,
            FileKind::Socket => ftype3::NF3SOCK,
        },
        mode: attributes.mode,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        used: attributes.used,
        rdev: specdata3 {
            specdata1: attributes.device.major,
            specdata2: attributes.device.minor,
        },
        fsid: 0,
        fileid: attributes.inode.0,
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
    }
}

fn ours(set: &sattr3) -> SetAttributes {
    let to = |time: nfstime3| {
        SetTime::To(Timestamp {
            seconds: i64::from(time.seconds),
            nanos: time.nseconds,
        })
    };
    SetAttributes {
        mode: match set.mode {
            set_mode3::mode(mode) => Some(mode),
            set_mode3::Void => None,
        },
        uid: match set.uid {
            set_uid3::uid(uid) => Some(uid),
            set_uid3::Void => None,
        },
        gid: match set.gid {
            set_gid3::gid(gid) => Some(gid),
            set_gid3::Void => None,
        },
        size: match set.size {
            set_size3::size(size) => Some(size),
            set_size3::Void => None,
        },
        atime: match set.atime {
            set_atime::DONT_CHANGE => SetTime::Keep,
            set_atime::SET_TO_SERVER_TIME => SetTime::Now,
            set_atime::SET_TO_CLIENT_TIME(time) => to(time),
        },
        mtime: match set.mtime {
            set_mtime::DONT_CHANGE => SetTime::Keep,
            set_mtime::SET_TO_SERVER_TIME => SetTime::Now,
            set_mtime::SET_TO_CLIENT_TIME(time) => to(time),
        },
    }
}

fn answer<T>(result: Result<T>) -> Answer<T> {
    result.map_err(|error| match error {
        Error::NotOwner => nfsstat3::NFS3ERR_PERM,
        Error::NotFound => nfsstat3::NFS3ERR_NOENT,
        Error::Io => nfsstat3::NFS3ERR_IO,
        Error::Access => nfsstat3::NFS3ERR_ACCES,
        Error::Exists => nfsstat3::NFS3ERR_EXIST,
        Error::CrossDevice => nfsstat3::NFS3ERR_XDEV,
        Error::NotDirectory => nfsstat3::NFS3ERR_NOTDIR,
        Error::IsDirectory => nfsstat3::NFS3ERR_ISDIR,
        Error::Invalid => nfsstat3::NFS3ERR_INVAL,
        Error::FileTooLarge => nfsstat3::NFS3ERR_FBIG,
        Error::NoSpace => nfsstat3::NFS3ERR_NOSPC,
        Error::ReadOnly => nfsstat3::NFS3ERR_ROFS,
        Error::TooManyLinks => nfsstat3::NFS3ERR_MLINK,
        Error::NameTooLong => nfsstat3::NFS3ERR_NAMETOOLONG,
        Error::NotEmpty => nfsstat3::NFS3ERR_NOTEMPTY,
        Error::Quota => nfsstat3::NFS3ERR_DQUOT,
        Error::Stale => nfsstat3::NFS3ERR_STALE,
        Error::BadHandle => nfsstat3::NFS3ERR_BADHANDLE,
        Error::NotSync => nfsstat3::NFS3ERR_NOT_SYNC,
        Error::NotSupported => nfsstat3::NFS3ERR_NOTSUPP,
        Error::BadType => nfsstat3::NFS3ERR_BADTYPE,
        Error::Delay => nfsstat3::NFS3ERR_JUKEBOX,
    })
}
