//! Decodes replies.

use forebay_nfs::xdr::Reader;

/// The results of a call, from their status on.
pub struct Results(pub Vec<u8>);

/// The results of an accepted and successful call.
pub fn accepted(reply: &[u8]) -> Results {
    assert_eq!(reply[4..24], [&[0, 0, 0, 1][..], &[0; 16]].concat());
    Results(reply[24..].to_vec())
}

/// `accept_stat` of an accepted call.
pub fn accept_stat(reply: &[u8]) -> u32 {
    assert_eq!(reply[4..20], [&[0, 0, 0, 1][..], &[0; 12]].concat());
    u32::from_be_bytes(reply[20..24].try_into().unwrap())
}

impl Results {
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.0)
    }

    pub fn status(&self) -> u32 {
        self.reader().u32().unwrap()
    }

    /// The handle that a creating procedure returns.
    pub fn made(&self) -> Vec<u8> {
        let mut reader = self.reader();
        assert_eq!(reader.u32(), Ok(0));
        let handle = reader.option(|r| r.opaque(64)).unwrap().unwrap().to_vec();
        assert!(post_op(&mut reader).is_some());
        let (_, after) = wcc(&mut reader);
        assert!(after.is_some());
        reader.end().unwrap();
        handle
    }

    /// The handle and attributes that LOOKUP returns.
    pub fn found(&self) -> (Vec<u8>, Attr) {
        let mut reader = self.reader();
        assert_eq!(reader.u32(), Ok(0));
        let handle = reader.opaque(64).unwrap().to_vec();
        let attributes = post_op(&mut reader).unwrap();
        assert!(post_op(&mut reader).is_some());
        reader.end().unwrap();
        (handle, attributes)
    }

    /// The status of a result in which only post-operation attributes follow.
    pub fn failed(&self) -> (u32, Option<Attr>) {
        let mut reader = self.reader();
        let status = reader.u32().unwrap();
        let attributes = post_op(&mut reader);
        reader.end().unwrap();
        (status, attributes)
    }

    /// The status of a result in which only weak cache consistency data follows.
    pub fn changed(&self) -> (u32, Option<Attr>) {
        let mut reader = self.reader();
        let status = reader.u32().unwrap();
        let (before, after) = wcc(&mut reader);
        assert!(status == 0 || !before);
        reader.end().unwrap();
        (status, after)
    }
}

/// `fattr3`, without the fields that tests ignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub device: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

pub fn fattr(r: &mut Reader) -> Attr {
    let mut number = || r.u32().unwrap();
    let [kind, mode, nlink, uid, gid] = std::array::from_fn(|_| number());
    let size = r.u64().unwrap();
    r.u64().unwrap();
    let device = (r.u32().unwrap(), r.u32().unwrap());
    let (fsid, fileid) = (r.u64().unwrap(), r.u64().unwrap());
    let mut time = || (r.u32().unwrap(), r.u32().unwrap());
    time();
    Attr {
        kind,
        mode,
        nlink,
        uid,
        gid,
        size,
        device,
        fsid,
        fileid,
        mtime: time(),
        ctime: time(),
    }
}

pub fn post_op(r: &mut Reader) -> Option<Attr> {
    r.bool().unwrap().then(|| fattr(r))
}

/// Whether there are attributes from before, and the attributes after.
pub fn wcc(r: &mut Reader) -> (bool, Option<Attr>) {
    let before = r.bool().unwrap();
    if before {
        r.array::<24>().unwrap();
    }
    (before, post_op(r))
}
