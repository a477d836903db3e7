//! Decodes replies field by field as RFC 5531 and RFC 1813 define them, with a reader of its own: the oracle must not
//! share the engine's mistakes.

/// Longest directory listing, link target or READ that is accepted, in bytes.
const LONGEST: usize = 1 << 20;

/// The content of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// `accept_stat`; `None` if the call was denied.
    pub(crate) accepted: Option<u32>,
    /// `nfsstat3` or `mountstat3`, if the results have one.
    pub(crate) status: Option<u32>,
    /// All file handles in it.
    pub(crate) handles: Vec<Vec<u8>>,
    /// The record itself.
    pub(crate) bytes: Vec<u8>,
}

impl Reply {
    /// Reads the reply to the call `record`; `None` if any part of it is wrong.
    pub(crate) fn read(record: &[u8], bytes: &[u8]) -> Option<Reply> {
        let mut call = Fields(record);
        let xid = call.u32()?;
        let mut fields = Fields(bytes);
        let mark = fields.u32()?;
        if mark as usize != (1 << 31) + fields.0.len() || fields.u32()? != xid || fields.u32()? != 1
        {
            return None;
        }
        let mut reply = Reply {
            bytes: bytes.to_vec(),
            ..Reply::default()
        };
        match fields.u32()? {
            0 => {
                // An empty verifier.
                (fields.u64()? == 0).then_some(())?;
                let accepted = fields.u32()?;
                reply.accepted = Some(accepted);
                match accepted {
                    0 => {
                        // Type and RPC version of the call.
                        call.u64()?;
                        let target = (call.u32()?, call.u32()?, call.u32()?);
                        reply.results(target, &mut fields)?;
                    }
                    // Lowest and highest version: the server has only one.
                    2 => (fields.u32()? == 3 && fields.u32()? == 3).then_some(())?,
                    1 | 3 | 4 => {}
                    _ => return None,
                }
            }
            1 => match fields.u32()? {
                0 => (fields.u32()? == 2 && fields.u32()? == 2).then_some(())?,
                1 => (1..=5).contains(&fields.u32()?).then_some(())?,
                _ => return None,
            },
            _ => return None,
        }
        fields.end()?;
        Some(reply)
    }

    fn results(&mut self, target: (u32, u32, u32), fields: &mut Fields<'_>) -> Option<()> {
        match target {
            (100_003, 3, procedure) => self.nfs(procedure, fields),
            (100_005, 3, procedure) => self.mount(procedure, fields),
            _ => None,
        }
    }

    fn mount(&mut self, procedure: u32, fields: &mut Fields<'_>) -> Option<()> {
        match procedure {
            0 | 3 | 4 => {}
            1 => {
                let status = fields.u32()?;
                self.status = Some(status);
                match status {
                    0 => {
                        self.handle(fields)?;
                        // The export accepts AUTH_SYS and AUTH_NONE.
                        let flavors = [fields.u32()?, fields.u32()?, fields.u32()?];
                        (flavors == [2, 1, 0]).then_some(())?;
                    }
                    1 | 2 | 5 | 13 | 20 | 22 | 63 | 10004 | 10006 => {}
                    _ => return None,
                }
            }
            2 => {
                while fields.bool()? {
                    fields.opaque(255)?;
                    fields.opaque(1024)?;
                }
            }
            5 => {
                while fields.bool()? {
                    fields.opaque(1024)?;
                    while fields.bool()? {
                        fields.opaque(255)?;
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn nfs(&mut self, procedure: u32, fields: &mut Fields<'_>) -> Option<()> {
        if procedure == 0 {
            return Some(());
        }
        let status = fields.u32()?;
        self.status = Some(status);
        let good = match status {
            0 => true,
            1
            | 2
            | 5
            | 6
            | 13
            | 17..=23
            | 27
            | 28
            | 30
            | 31
            | 63
            | 66
            | 69..=71
            | 10001..=10008 => false,
            _ => return None,
        };
        match (procedure, good) {
            (1, true) => fields.attributes()?,
            (1, false) => {}
            (2, _) => fields.change()?,
            (3, true) => {
                self.handle(fields)?;
                fields.post_op()?;
                fields.post_op()?;
            }
            (4, true) => {
                fields.post_op()?;
                (fields.u32()? <= 0x3f).then_some(())?;
            }
            (5, true) => {
                fields.post_op()?;
                fields.opaque(LONGEST)?;
            }
            (6, true) => {
                fields.post_op()?;
                let count = fields.u32()? as usize;
                fields.bool()?;
                (fields.opaque(LONGEST)?.len() == count).then_some(())?;
            }
            (7, true) => {
                fields.change()?;
                fields.u32()?;
                (fields.u32()? <= 2).then_some(())?;
                fields.u64()?;
            }
            (8..=11, true) => {
                if fields.bool()? {
                    self.handle(fields)?;
                }
                fields.post_op()?;
                fields.change()?;
            }
            (7..=13 | 21, false) | (12 | 13, true) => fields.change()?,
            (14, _) => {
                fields.change()?;
                fields.change()?;
            }
            (15, _) => {
                fields.post_op()?;
                fields.change()?;
            }
            (16 | 17, true) => {
                fields.post_op()?;
                fields.u64()?;
                while fields.bool()? {
                    fields.u64()?;
                    fields.opaque(255)?;
                    fields.u64()?;
                    if procedure == 17 {
                        fields.post_op()?;
                        if fields.bool()? {
                            self.handle(fields)?;
                        }
                    }
                }
                fields.bool()?;
            }
            (18, true) => {
                fields.post_op()?;
                let [total, free, available] = [fields.u64()?, fields.u64()?, fields.u64()?];
                (free <= total && available <= free).then_some(())?;
                let [total, free, available] = [fields.u64()?, fields.u64()?, fields.u64()?];
                (free <= total && available <= free).then_some(())?;
                fields.u32()?;
            }
            (19, true) => {
                fields.post_op()?;
                for _ in 0..7 {
                    fields.u32()?;
                }
                fields.u64()?;
                fields.time()?;
                (fields.u32()? & !0x1b == 0).then_some(())?;
            }
            (20, true) => {
                fields.post_op()?;
                fields.u64()?;
                for _ in 0..4 {
                    fields.bool()?;
                }
            }
            (21, true) => {
                fields.change()?;
                fields.u64()?;
            }
            (3..=6 | 16..=20, false) => fields.post_op()?,
            _ => return None,
        }
        Some(())
    }

    fn handle(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.handles.push(fields.opaque(64)?.to_vec());
        Some(())
    }
}

/// The rest of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u32()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Opaque data, whose padding must be zeros.
    fn opaque(&mut self, limit: usize) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        if length > limit {
            return None;
        }
        let (data, rest) = self.0.split_at_checked(length)?;
        let (padding, rest) = rest.split_at_checked(length.next_multiple_of(4) - length)?;
        self.0 = rest;
        padding.iter().all(|byte| *byte == 0).then_some(data)
    }

    fn time(&mut self) -> Option<()> {
        self.u32()?;
        (self.u32()? < 1_000_000_000).then_some(())
    }

    /// `fattr3`.
    fn attributes(&mut self) -> Option<()> {
        (1..=7).contains(&self.u32()?).then_some(())?;
        (self.u32()? <= 0o7777).then_some(())?;
        // Links, owner, group; size, used, device, fsid, fileid.
        self.take::<12>()?;
        self.take::<40>()?;
        (0..3).try_for_each(|_| self.time())
    }

    /// `post_op_attr`.
    fn post_op(&mut self) -> Option<()> {
        if self.bool()? {
            self.attributes()?;
        }
        Some(())
    }

    /// `wcc_data`.
    fn change(&mut self) -> Option<()> {
        if self.bool()? {
            self.u64()?;
            self.time()?;
            self.time()?;
        }
        self.post_op()
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
