//! Calls to bytes and bytes to results (RFC 4506, RFC 5531, RFC 1813).

use std::io;

use super::Handle;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// Where the transaction number lies in a call: after the record mark.
const XID_AT: usize = 4;

/// A call that is being sent: its encoded part, then its payload.
pub(crate) struct Call<'a> {
    head: Vec<u8>,
    payload: &'a [u8],
    sent: usize,
}

impl<'a> Call<'a> {
    fn new(program: u32, procedure: u32) -> Call<'a> {
        let mut head = Vec::with_capacity(256);
        // Record mark and transaction number are filled in later.
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

    pub(super) fn mount(path: &str) -> Call<'a> {
        Call::new(MOUNT, 1).opaque(path.as_bytes())
    }

    pub(crate) fn getattr(object: &Handle) -> Call<'a> {
        Call::new(NFS, 1).opaque(&object.0)
    }

    pub(super) fn lookup(directory: &Handle, name: &str) -> Call<'a> {
        Call::new(NFS, 3)
            .opaque(&directory.0)
            .opaque(name.as_bytes())
    }

    pub(crate) fn read(file: &Handle, offset: u64, count: u32) -> Call<'a> {
        Call::new(NFS, 6).opaque(&file.0).long(offset).word(count)
    }

    /// WRITE, UNSTABLE, of a multiple of four bytes.
    pub(crate) fn write(file: &Handle, offset: u64, data: &'a [u8]) -> Call<'a> {
        assert!(data.len().is_multiple_of(4), "a payload without padding");
        let len = data.len() as u32;
        let call = Call::new(NFS, 7).opaque(&file.0).long(offset);
        Call {
            payload: data,
            ..call.word(len).word(0).word(len)
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

    /// COMMIT of all of a file.
    pub(crate) fn commit(file: &Handle) -> Call<'a> {
        Call::new(NFS, 21).opaque(&file.0).long(0).word(0)
    }

    pub(super) fn mkdir(directory: &Handle, name: &str) -> Call<'a> {
        Call::new(NFS, 9)
            .opaque(&directory.0)
            .opaque(name.as_bytes())
            .no_attributes()
    }

    /// Completes the call: its length is known by now.
    pub(super) fn set_xid(&mut self, xid: u32) {
        let length = self.head.len() - XID_AT + self.payload.len();
        let mark = length as u32 | 1 << 31;
        self.head[..XID_AT].copy_from_slice(&mark.to_be_bytes());
        self.head[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
    }

    /// What is still to be sent.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let head = self.head.get(self.sent..).unwrap_or_default();
        let payload_sent = self.sent.saturating_sub(self.head.len());
        let payload = &self.payload[payload_sent..];
        [head, payload]
            .into_iter()
            .filter(|piece| !piece.is_empty())
    }

    /// Notes that of `sent` bytes those of this call are sent, and takes them off. Says whether that
    /// was all of it.
    pub(super) fn advance(&mut self, sent: &mut usize) -> bool {
        let left = self.head.len() + self.payload.len() - self.sent;
        let own = left.min(*sent);
        self.sent += own;
        *sent -= own;
        own == left
    }
}

fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_be_bytes());
}

/// What follows the status of a reply of success.
pub(super) struct Results<'a> {
    pub(super) xid: u32,
    rest: &'a [u8],
}

impl<'a> Results<'a> {
    /// Reads the header of a reply up to the status of the procedure, all of which must say that
    /// it was done.
    pub(super) fn of(reply: &'a [u8]) -> io::Result<Results<'a>> {
        let mut results = Results {
            xid: 0,
            rest: reply,
        };
        results.xid = results.word()?;
        let (message, accepted, _flavour) = (results.word()?, results.word()?, results.word()?);
        results.opaque()?;
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

    pub(super) fn opaque(&mut self) -> io::Result<Vec<u8>> {
        let len = self.word()? as usize;
        let bytes = self.take(len.next_multiple_of(4))?;
        Ok(bytes[..len].to_vec())
    }

    /// The data of a READ.
    pub(super) fn read_data(mut self) -> io::Result<Vec<u8>> {
        /// Bytes of attributes (RFC 1813, `fattr3`).
        const ATTRIBUTES: usize = 84;
        if self.word()? != 0 {
            self.take(ATTRIBUTES)?;
        }
        let (_count, _eof) = (self.word()?, self.word()?);
        self.opaque()
    }
}
