//! Makes one call at a time over TCP and reads its reply (RFC 5531), with any credential.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_client::Malformed;
use forebay_client::xdr::{Decoder, Encoder};

use crate::rfc1813::{PROGRAM, VERSION};
use crate::{Call, Results};

/// Bit of a record mark: the fragment is the last of its record.
const LAST_FRAGMENT: u32 = 1 << 31;

/// Longer than any call may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The caller's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// AUTH_NONE.
    Nobody,
    /// AUTH_SYS with user, group and further groups.
    User(u32, u32, Vec<u32>),
}

impl Identity {
    /// The superuser.
    pub const ROOT: Identity = Identity::User(0, 0, Vec::new());
}

/// Why a call has no results (`reject_stat`, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// MSG_DENIED for its credential (`auth_stat`).
    Denied(u32),
    /// PROG_UNAVAIL.
    NoProgram,
    /// PROG_MISMATCH, with the lowest and the highest version.
    NoVersion(u32, u32),
    /// PROC_UNAVAIL.
    NoProcedure,
    /// GARBAGE_ARGS.
    Garbage,
    /// SYSTEM_ERR.
    SystemError,
}

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection has ended.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server breaks the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// A client's connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    xid: u32,
    caller: Identity,
}

impl Connection {
    /// A connection over `stream`, whose calls are numbered from `xid` on. Connections from one client address must not
    /// use the same numbers, because a server recognises repeated calls by them.
    ///
    /// # Errors
    /// The stream's options cannot be set.
    pub fn new(stream: TcpStream, xid: u32, caller: Identity) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Connection {
            stream,
            xid,
            caller,
        })
    }

    /// Makes a call of NFS.
    ///
    /// # Errors
    /// There is no reply, or one that RFC 1813 does not allow.
    pub fn call(&mut self, call: &Call) -> Result<Result<Results, Rejected>, Broken> {
        let procedure = call.procedure;
        match self.exchange(PROGRAM, VERSION, procedure as u32, &call.arguments)? {
            Ok(results) => Ok(Ok(Results::decode(procedure, results)?)),
            Err(rejected) => Ok(Err(rejected)),
        }
    }

    /// Makes a call of any program and returns its results undecoded.
    ///
    /// # Errors
    /// There is no reply, or one that RFC 5531 does not allow.
    pub fn exchange(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Result<Vec<u8>, Rejected>, Broken> {
        self.xid = self.xid.wrapping_add(1);
        let header = Encoder::default().u32s(&[self.xid, 0, 2, program, version, procedure]);
        let mut call = match &self.caller {
            Identity::Nobody => header.u32s(&[0, 0]),
            Identity::User(uid, gid, groups) => {
                let credential = Encoder::default()
                    .u32s(&[0])
                    .opaque(b"conformance")
                    .u32s(&[*uid, *gid, groups.len() as u32])
                    .u32s(groups);
                header.u32s(&[1]).opaque(&credential.0)
            }
        };
        call = call.u32s(&[0, 0]);
        call.0.extend_from_slice(arguments);
        let mark = LAST_FRAGMENT | call.0.len() as u32;
        let mut record = mark.to_be_bytes().to_vec();
        record.extend_from_slice(&call.0);
        self.stream.write_all(&record)?;
        self.reply()
    }

    fn reply(&mut self) -> Result<Result<Vec<u8>, Rejected>, Broken> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        if mark & LAST_FRAGMENT == 0 {
            return Err(Malformed("a reply in several fragments").into());
        }
        let mut record = vec![0; (mark & !LAST_FRAGMENT) as usize];
        self.stream.read_exact(&mut record)?;
        let mut header = Decoder::new(record.clone());
        if header.u32()? != self.xid || header.u32()? != 1 {
            return Err(Malformed("it is no reply to this call").into());
        }
        if header.u32()? == 1 {
            if header.u32()? != 1 {
                return Err(Malformed("the version of RPC is refused").into());
            }
            let denied = Rejected::Denied(header.u32()?);
            header.end()?;
            return Ok(Err(denied));
        }
        header.u32()?;
        header.opaque()?;
        let rejected = match header.u32()? {
            0 => {
                // The verifier is empty: the results begin at the seventh word.
                return Ok(Ok(record.split_off(24)));
            }
            1 => Rejected::NoProgram,
            2 => Rejected::NoVersion(header.u32()?, header.u32()?),
            3 => Rejected::NoProcedure,
            4 => Rejected::Garbage,
            5 => Rejected::SystemError,
            _ => return Err(Malformed("no such answer to a call").into()),
        };
        header.end()?;
        Ok(Err(rejected))
    }
}
