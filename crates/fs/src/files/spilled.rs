//! Bytes of a READ that are in the log alone.

use std::collections::BTreeMap;

use forebay_types::{ByteRange, Lsn};
use forebay_vfs::{Error, Result};
use forebay_waits::{For, waiting};
use forebay_wal::ReadFailed;

use super::Files;
use super::read::Reply;
use crate::state::{LoggedBytes, Node, RECORDS_AT_ONCE};

impl Files {
    /// Puts bytes that are in the log alone into a reply, and back into memory if there is room. Returns false if the log
    /// does not have a record any more: its bytes were published meanwhile, and a new plan is needed.
    pub(super) async fn read_spilled(
        &self,
        node: &Node,
        spilled: &[(ByteRange, Lsn)],
        reply: &mut Reply,
    ) -> Result<bool> {
        let mut wanted: BTreeMap<Lsn, Vec<ByteRange>> = BTreeMap::new();
        for (range, lsn) in spilled {
            wanted.entry(*lsn).or_default().push(*range);
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        for some in wanted.chunks(RECORDS_AT_ONCE) {
            let records = some.iter().map(|(lsn, _)| *lsn).collect();
            let read = self.state.read_logged(node.inode, records);
            let read = waiting(For::LogRead, read).await;
            for (read, (lsn, ranges)) in read.into_iter().zip(some) {
                let bytes = match read {
                    Ok(bytes) => bytes,
                    Err(ReadFailed::Gone) => return Ok(false),
                    Err(error) => return Err(self.log_read_failed(node, *lsn, ranges, &error)),
                };
                for range in ranges {
                    let (within, part) = bytes.part(*range);
                    if within != *range {
                        let error = ReadFailed::Damaged {
                            segment: "of the log".to_owned(),
                            why: format!("the record at LSN {lsn} does not have these bytes"),
                        };
                        return Err(self.log_read_failed(node, *lsn, ranges, &error));
                    }
                    reply.paste_logged(range.start, part)?;
                }
                self.take_in_logged(node, &bytes);
            }
        }
        Ok(true)
    }

    /// Keeps bytes of the log in memory, if there is room without delaying writers.
    fn take_in_logged(&self, node: &Node, bytes: &LoggedBytes) {
        if let Some(_lease) = self.state.memory.try_lease(bytes.data.memory_len()) {
            // From here on the block buffers themselves count these bytes.
            let blocks = &mut node.lock().blocks;
            blocks.fill_logged(bytes.lsn, bytes.offset, &bytes.data);
        }
    }

    fn log_read_failed(
        &self,
        node: &Node,
        lsn: Lsn,
        ranges: &[ByteRange],
        error: &ReadFailed,
    ) -> Error {
        let first = ranges.first().map_or(0, |range| range.start);
        tracing::error!(
            "inode {}, bytes from {first} on, cannot be read: they are in the log alone, at LSN {lsn}: {error}. Check the disk of the log",
            node.inode
        );
        Error::Io
    }
}
