//! Encodes calls and decodes results (RFC 4506, RFC 5531, RFC 1813).

use std::io;

use super::Handle;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// Offset of the transaction number in a call: after the record mark.
const XID_AT: usize = 4;
/// Bytes of attributes (RFC 1813, `fattr3`), and of those before a change (`wcc_attr`).
const ATTRIBUTES: usize = 84;
const ATTRIBUTES_BEFORE: usize = 24;
/// Limits of a reply to READDIRPLUS in bytes: of the whole, and of names and cookies.
const LISTING_BYTES: u32 = 64 << 10;
/// Padding of a payload to a multiple of four bytes.
const PADDING: [u8; 3] = [0; 3];

/// A call that is being sent: its encoded part, then its payload.
pub(crate) struct Call<'a> {
    head: Vec<u8>,
    payload: &'a [u8],
    sent: usize,
}

/// Most bytes of one READ and one WRITE.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) read: u32,
    pub(crate) write: u32,
}

/// The result of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) count: u32,
    /// Whether all of it is on stable storage, so that no COMMIT is needed.
    pub(crate) stable: bool,
    pub(crate) verifier: [u8; 8],
}

/// A part of a directory.
pub(super) struct Listed {
    pub(super) verifier: [u8; 8],
    /// Cookies and names.
    pub(super) entries: Vec<(u64, Vec<u8>)>,
    pub(super) end: bool,
}

impl<'a> Call<'a> {
    fn new(program: u32, procedure: u32) -> Call<'a> {
        let mut head = Vec::with_capacity(256);
        // Record mark and transaction number are set later.
        for word in [0, 0, 0, 2, program, 3, procedure] {
            put(&mut head, word);
        }
        // AUTH_SYS: no stamp, no machine name, root, no further groups; and no verifier.
        for word in [1, 20, 0, 0, 0, 0, 0, 0, 0] {
            put(&mut head, word);
        }
        Call {
            head,
            payload: &[],
            sent: 0,
        }
    }

    fn word(mut self, word: u32) -> Call<'a> {
        put(&mut self.head, word);
        self
    }

    fn long(mut self, long: u64) -> Call<'a> {
        self.head.extend_from_slice(&long.to_be_bytes());
        self
    }

    fn opaque(mut self, bytes: &[u8]) -> Call<'a> {
        put(&mut self.head, bytes.len() as u32);
        self.head.extend_from_slice(bytes);
        self.head.resize(self.head.len().next_multiple_of(4), 0);
        self
    }

    /// Attributes to be set: none.
    fn no_attributes(self) -> Call<'a> {
        (0..6).fold(self, |call, _| call.word(0))
    }

    /// Attributes to be set: the mode, nothing else.
    fn mode(self, mode: u32) -> Call<'a> {
        (0..5).fold(self.word(1).word(mode), |call, _| call.word(0))
    }

    pub(super) fn fsinfo(root: &Handle) -> Call<'a> {
        Call::new(NFS, 19).opaque(&root.0)
    }

    pub(super) fn mount(path: &str) -> Call<'a> {
        Call::new(MOUNT, 1).opaque(path.as_bytes())
    }

    pub(crate) fn getattr(object: &Handle) -> Call<'a> {
        Call::new(NFS, 1).opaque(&object.0)
    }

    /// SETATTR of the time of modification, and of access to the same; without a guard.
    pub(crate) fn set_times(object: &Handle, seconds: u32) -> Call<'a> {
        let call = Call::new(NFS, 2).opaque(&object.0);
        // Mode, owner, group and size stay.
        let call = (0..4).fold(call, |call, _| call.word(0));
        let call = call.word(2).word(seconds).word(0);
        call.word(2).word(seconds).word(0).word(0)
    }

    pub(crate) fn lookup(directory: &Handle, name: &str) -> Call<'a> {
        Call::new(NFS, 3)
            .opaque(&directory.0)
            .opaque(name.as_bytes())
    }

    pub(crate) fn read(file: &Handle, offset: u64, count: u32) -> Call<'a> {
        Call::new(NFS, 6).opaque(&file.0).long(offset).word(count)
    }

    /// WRITE, UNSTABLE.
    pub(crate) fn write(file: &Handle, offset: u64, data: &'a [u8]) -> Call<'a> {
        Call::write_as(file, offset, data, 0)
    }

    /// WRITE, FILE_SYNC.
    pub(crate) fn write_stable(file: &Handle, offset: u64, data: &'a [u8]) -> Call<'a> {
        Call::write_as(file, offset, data, 2)
    }

    fn write_as(file: &Handle, offset: u64, data: &'a [u8], how: u32) -> Call<'a> {
        let len = data.len() as u32;
        let call = Call::new(NFS, 7).opaque(&file.0).long(offset);
        Call {
            payload: data,
            ..call.word(len).word(how).word(len)
        }
    }

    /// CREATE, UNCHECKED.
    pub(crate) fn create(directory: &Handle, name: &str) -> Call<'a> {
        Call::new(NFS, 8)
            .opaque(&directory.0)
            .opaque(name.as_bytes())
            .word(0)
            .no_attributes()
    }

    /// CREATE, GUARDED, with a mode.
    pub(crate) fn create_new(directory: &Handle, name: &str, mode: u32) -> Call<'a> {
        let call = Call::new(NFS, 8).opaque(&directory.0);
        call.opaque(name.as_bytes()).word(1).mode(mode)
    }

    /// MKDIR with a mode.
    pub(crate) fn make_directory(directory: &Handle, name: &str, mode: u32) -> Call<'a> {
        let call = Call::new(NFS, 9).opaque(&directory.0);
        call.opaque(name.as_bytes()).mode(mode)
    }

    pub(crate) fn remove(directory: &Handle, name: &str) -> Call<'a> {
        let call = Call::new(NFS, 12).opaque(&directory.0);
        call.opaque(name.as_bytes())
    }

    pub(crate) fn rmdir(directory: &Handle, name: &str) -> Call<'a> {
        let call = Call::new(NFS, 13).opaque(&directory.0);
        call.opaque(name.as_bytes())
    }

    pub(super) fn readdirplus(directory: &Handle, cookie: u64, verifier: [u8; 8]) -> Call<'a> {
        let call = Call::new(NFS, 17).opaque(&directory.0).long(cookie);
        let call = call.long(u64::from_be_bytes(verifier));
        call.word(LISTING_BYTES).word(LISTING_BYTES)
    }

    /// COMMIT of a whole file.
    pub(crate) fn commit(file: &Handle) -> Call<'a> {
        Call::new(NFS, 21).opaque(&file.0).long(0).word(0)
    }

    pub(super) fn mkdir(directory: &Handle, name: &str) -> Call<'a> {
        Call::new(NFS, 9)
            .opaque(&directory.0)
            .opaque(name.as_bytes())
            .no_attributes()
    }

    /// Completes the call, whose length is known by now.
    pub(super) fn set_xid(&mut self, xid: u32) {
        let length = self.bytes() - XID_AT;
        let mark = length as u32 | 1 << 31;
        self.head[..XID_AT].copy_from_slice(&mark.to_be_bytes());
        self.head[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
    }

    fn padding(&self) -> &'static [u8] {
        &PADDING[..self.payload.len().next_multiple_of(4) - self.payload.len()]
    }

    /// Number of bytes of the whole call.
    fn bytes(&self) -> usize {
        self.head.len() + self.payload.len().next_multiple_of(4)
    }

    /// The bytes that are still to be sent.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let mut sent = self.sent;
        let pieces = [&self.head[..], self.payload, self.padding()];
        let left = pieces.map(|piece| {
            let own = sent.min(piece.len());
            sent -= own;
            &piece[own..]
        });
        left.into_iter().filter(|piece| !piece.is_empty())
    }

    /// Takes the bytes of this call off `sent`, the number of bytes sent. Returns whether the call is sent completely.
    pub(super) fn advance(&mut self, sent: &mut usize) -> bool {
        let left = self.bytes() - self.sent;
        let own = left.min(*sent);
        self.sent += own;
        *sent -= own;
        own == left
    }
}

fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_be_bytes());
}

/// The results behind the status of a successful reply.
pub(crate) struct Results<'a> {
    pub(super) xid: u32,
    rest: &'a [u8],
}

impl<'a> Results<'a> {
    /// Reads the header of a reply up to the status of the procedure. Fails unless all of it says success.
    pub(crate) fn of(reply: &'a [u8]) -> io::Result<Results<'a>> {
        let mut results = Results {
            xid: 0,
            rest: reply,
        };
        results.xid = results.word()?;
        let (message, accepted, _flavour) = (results.word()?, results.word()?, results.word()?);
        let _verifier = results.opaque()?;
        let (state, status) = (results.word()?, results.word()?);
        if (message, accepted, state, status) != (1, 0, 0, 0) {
            let problem = format!(
                "a reply with message type {message}, reply state {accepted}, accept state {state}, status {status}"
            );
            return Err(io::Error::other(problem));
        }
        Ok(results)
    }

    fn take(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.rest = rest;
        Ok(taken)
    }

    fn word(&mut self) -> io::Result<u32> {
        let bytes = self.take(4)?.try_into();
        bytes
            .map(u32::from_be_bytes)
            .map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    fn long(&mut self) -> io::Result<u64> {
        let high = u64::from(self.word()?);
        Ok(high << 32 | u64::from(self.word()?))
    }

    fn verifier(&mut self) -> io::Result<[u8; 8]> {
        self.long().map(u64::to_be_bytes)
    }

    pub(super) fn opaque(&mut self) -> io::Result<&'a [u8]> {
        let len = self.word()? as usize;
        let bytes = self.take(len.next_multiple_of(4))?;
        Ok(&bytes[..len])
    }

    /// Skips an optional field of `len` bytes.
    fn skip_optional(&mut self, len: usize) -> io::Result<()> {
        if self.word()? != 0 {
            self.take(len)?;
        }
        Ok(())
    }

    /// Skips the attributes before and after a change.
    fn skip_change(&mut self) -> io::Result<()> {
        self.skip_optional(ATTRIBUTES_BEFORE)?;
        self.skip_optional(ATTRIBUTES)
    }

    /// The handle of the object that a CREATE or MKDIR has made.
    pub(crate) fn made(mut self) -> io::Result<Handle> {
        if self.word()? == 0 {
            return Err(io::Error::other("the handle of a new object is not told"));
        }
        Ok(Handle(self.opaque()?.to_vec()))
    }

    /// The result of a WRITE.
    pub(crate) fn written(mut self) -> io::Result<Written> {
        self.skip_change()?;
        Ok(Written {
            count: self.word()?,
            stable: self.word()? == 2,
            verifier: self.verifier()?,
        })
    }

    /// The verifier of a COMMIT.
    pub(crate) fn committed(mut self) -> io::Result<[u8; 8]> {
        self.skip_change()?;
        self.verifier()
    }

    /// The size in a GETATTR reply.
    pub(crate) fn size(mut self) -> io::Result<u64> {
        let before = 5 * 4;
        self.take(before)?;
        self.long()
    }

    /// The data of a READ.
    pub(crate) fn read_data(mut self) -> io::Result<&'a [u8]> {
        self.skip_optional(ATTRIBUTES)?;
        let (_count, _eof) = (self.word()?, self.word()?);
        self.opaque()
    }

    /// The number of bytes that a READ returned, and those of them that were kept.
    pub(crate) fn read_begun(mut self) -> io::Result<(usize, &'a [u8])> {
        self.skip_optional(ATTRIBUTES)?;
        let (_count, _eof, len) = (self.word()?, self.word()?, self.word()? as usize);
        Ok((len, &self.rest[..len.min(self.rest.len())]))
    }

    /// The limits of READ and WRITE in an FSINFO reply.
    pub(super) fn limits(mut self) -> io::Result<Limits> {
        self.skip_optional(ATTRIBUTES)?;
        let (read, _preferred, _multiple) = (self.word()?, self.word()?, self.word()?);
        let write = self.word()?;
        Ok(Limits { read, write })
    }

    /// The names in a READDIRPLUS reply.
    pub(super) fn entries(mut self) -> io::Result<Listed> {
        self.skip_optional(ATTRIBUTES)?;
        let verifier = self.verifier()?;
        let mut entries = Vec::new();
        while self.word()? != 0 {
            let _file = self.long()?;
            let name = self.opaque()?.to_vec();
            entries.push((self.long()?, name));
            self.skip_optional(ATTRIBUTES)?;
            if self.word()? != 0 {
                self.opaque()?;
            }
        }
        let end = self.word()? != 0;
        Ok(Listed {
            verifier,
            entries,
            end,
        })
    }
}
