//! XDR structures of NLM (X/Open XNFS, chapter 10 and appendix on version 4; RFC 1813, appendix II).

use crate::xdr::{Malformed, Reader, Writer};

/// Longest name, handle, cookie or other opaque value, in bytes (LM_MAXSTRLEN, MAXNETOBJ_SZ).
pub(super) const MAX_OBJECT_BYTES: usize = 1024;

/// `nlm4_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const GRANTED: Status = Status(0);
    pub(crate) const DENIED: Status = Status(1);
    pub(crate) const DENIED_NOLOCKS: Status = Status(2);
    pub(crate) const BLOCKED: Status = Status(3);
    pub(crate) const DENIED_GRACE_PERIOD: Status = Status(4);
    pub(crate) const ROFS: Status = Status(6);
    pub(crate) const STALE_FH: Status = Status(7);
    pub(crate) const FBIG: Status = Status(8);
    pub(crate) const FAILED: Status = Status(9);

    /// All that this server sends, with their names in metrics.
    pub(crate) const NAMES: [(Status, &str); 9] = [
        (Status::GRANTED, "granted"),
        (Status::DENIED, "denied"),
        (Status::DENIED_NOLOCKS, "denied_nolocks"),
        (Status::BLOCKED, "blocked"),
        (Status::DENIED_GRACE_PERIOD, "denied_grace_period"),
        (Status::ROFS, "rofs"),
        (Status::STALE_FH, "stale_fh"),
        (Status::FBIG, "fbig"),
        (Status::FAILED, "failed"),
    ];
}

/// `nlm4_lock`: file, range and owner of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock<'a> {
    pub(crate) caller: &'a [u8],
    pub(crate) handle: &'a [u8],
    pub(crate) owner: &'a [u8],
    pub(crate) process: i32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl<'a> Lock<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Lock<'a>, Malformed> {
        Ok(Lock {
            caller: object(reader)?,
            handle: object(reader)?,
            owner: object(reader)?,
            process: reader.u32()?.cast_signed(),
            offset: reader.u64()?,
            length: reader.u64()?,
        })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.caller);
        writer.opaque(self.handle);
        writer.opaque(self.owner);
        writer.u32(self.process.cast_unsigned());
        writer.u64(self.offset);
        writer.u64(self.length);
    }
}

/// A name, handle or cookie.
pub(crate) fn object<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    reader.opaque(MAX_OBJECT_BYTES)
}

/// `nlm4_testargs`.
pub(super) struct TestArguments<'a> {
    pub(super) cookie: &'a [u8],
    pub(super) exclusive: bool,
    pub(super) lock: Lock<'a>,
}

impl<'a> TestArguments<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let arguments = TestArguments {
            cookie: object(&mut reader)?,
            exclusive: reader.bool()?,
            lock: Lock::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(arguments)
    }
}

/// `nlm4_lockargs`.
pub(super) struct LockArguments<'a> {
    pub(super) cookie: &'a [u8],
    pub(super) block: bool,
    pub(super) exclusive: bool,
    pub(super) lock: Lock<'a>,
    pub(super) reclaim: bool,
    pub(super) state: i32,
}

impl<'a> LockArguments<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let arguments = LockArguments {
            cookie: object(&mut reader)?,
            block: reader.bool()?,
            exclusive: reader.bool()?,
            lock: Lock::decode(&mut reader)?,
            reclaim: reader.bool()?,
            state: reader.u32()?.cast_signed(),
        };
        reader.end()?;
        Ok(arguments)
    }
}

/// `nlm4_cancargs`; the field `block` is ignored.
pub(super) struct CancelArguments<'a> {
    pub(super) cookie: &'a [u8],
    pub(super) exclusive: bool,
    pub(super) lock: Lock<'a>,
}

impl<'a> CancelArguments<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let cookie = object(&mut reader)?;
        reader.bool()?;
        let arguments = CancelArguments {
            cookie,
            exclusive: reader.bool()?,
            lock: Lock::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(arguments)
    }
}

/// `nlm4_unlockargs`.
pub(super) struct UnlockArguments<'a> {
    pub(super) cookie: &'a [u8],
    pub(super) lock: Lock<'a>,
}

impl<'a> UnlockArguments<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let arguments = UnlockArguments {
            cookie: object(&mut reader)?,
            lock: Lock::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(arguments)
    }
}

/// `nlm4_shareargs`.
pub(super) struct ShareArguments<'a> {
    pub(super) cookie: &'a [u8],
    pub(super) caller: &'a [u8],
    pub(super) handle: &'a [u8],
    pub(super) owner: &'a [u8],
    /// Access that is denied to others: bits, 1 for reading and 2 for writing.
    pub(super) deny: u32,
    /// Access of the owner: the same bits.
    pub(super) access: u32,
    pub(super) reclaim: bool,
}

impl<'a> ShareArguments<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let bits = |value| {
            if value <= 3 {
                Ok(value)
            } else {
                Err(Malformed)
            }
        };
        let arguments = ShareArguments {
            cookie: object(&mut reader)?,
            caller: object(&mut reader)?,
            handle: object(&mut reader)?,
            owner: object(&mut reader)?,
            deny: bits(reader.u32()?)?,
            access: bits(reader.u32()?)?,
            reclaim: reader.bool()?,
        };
        reader.end()?;
        Ok(arguments)
    }
}
