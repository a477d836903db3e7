//! Bytes of files that are in the log alone.

use std::sync::Arc;

use forebay_cache::{Arrived, Lease};
use forebay_meta::log_record::DataHeader;
use forebay_types::{ByteRange, Inode, Lsn, bounded_u32};
use forebay_wal::{ReadFailed, Record, RecordKind, RecordReader};
use tokio::sync::OwnedSemaphorePermit;

use super::{Memory, State};

/// Records of a file that are read together. Each has at most the bytes of a WRITE, 1 MiB.
pub(crate) const RECORDS_AT_ONCE: usize = 8;
/// Records of all files that may be in memory at once.
pub(super) const RECORDS_IN_MEMORY: usize = 4 * RECORDS_AT_ONCE;

/// The bytes that a record wrote into its file.
pub(crate) struct LoggedBytes {
    /// The record.
    pub(crate) lsn: Lsn,
    /// The offset of its first byte in the file.
    pub(crate) offset: u64,
    pub(crate) data: Arrived,
    /// The memory of `data`.
    _lease: Option<Lease>,
    /// Lets others be read when it is dropped, with those that were read together.
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl LoggedBytes {
    /// Of a record that is in no log.
    #[cfg(test)]
    pub(crate) fn invented(lsn: Lsn, offset: u64, data: Arrived) -> LoggedBytes {
        LoggedBytes {
            lsn,
            offset,
            data,
            _lease: None,
            _permit: None,
        }
    }

    /// The part of `range`, of the file, that it has.
    pub(crate) fn part(&self, range: ByteRange) -> (ByteRange, &[u8]) {
        let bytes = self.data.bytes();
        let all = ByteRange::at(self.offset, bytes.len() as u64);
        let within = range.intersect(all);
        let from = within.start.saturating_sub(self.offset);
        let part = std::ops::Range::<usize>::from(ByteRange::at(from, within.len()));
        (within, bytes.get(part).unwrap_or_default())
    }
}

impl State {
    /// Reads the writes into a file that have these records, which ascend: verified, and checked to be of that file. For each
    /// the bytes or the reason why the log cannot return them, in the same order.
    pub(crate) async fn read_logged(
        &self,
        inode: Inode,
        records: Vec<Lsn>,
    ) -> Vec<Result<LoggedBytes, ReadFailed>> {
        let Some(log) = self.own_log.get() else {
            return records.iter().map(|_| Err(ReadFailed::Gone)).collect();
        };
        let (reader, count) = (log.reader(), records.len());
        let memory = self.memory.clone();
        // No more than there are; the semaphore is never closed. Nobody waits here who has some.
        let permits = bounded_u32(count.min(RECORDS_IN_MEMORY));
        let permit = self.log_reads.clone().acquire_many_owned(permits).await;
        let permit = permit.ok().map(Arc::new);
        let read = self
            .environment
            .compute
            .run(move || read(&reader, &memory, inode, &records, permit.as_ref()));
        read.await.unwrap_or_else(|error| {
            let failed = ReadFailed::NotOpened {
                segment: "of any number".to_owned(),
                why: error.to_string(),
            };
            (0..count).map(|_| Err(failed.clone())).collect()
        })
    }
}

fn read(
    reader: &RecordReader,
    memory: &Memory,
    inode: Inode,
    records: &[Lsn],
    permit: Option<&Arc<OwnedSemaphorePermit>>,
) -> Vec<Result<LoggedBytes, ReadFailed>> {
    let mut found = Vec::with_capacity(records.len());
    reader.read(records, |lsn, record| {
        found.push(record.and_then(|record| {
            let bytes = bytes_of(memory, inode, lsn, &record)?;
            Ok(LoggedBytes {
                _permit: permit.cloned(),
                ..bytes
            })
        }));
    });
    found
}

fn bytes_of(
    memory: &Memory,
    inode: Inode,
    lsn: Lsn,
    record: &Record<'_>,
) -> Result<LoggedBytes, ReadFailed> {
    let write = DataHeader::decode(record.payload);
    let write =
        write.filter(|(header, _)| record.kind == RecordKind::Data && header.inode == inode);
    match write {
        Some((header, data)) => Ok(LoggedBytes {
            lsn,
            offset: header.offset,
            // Before the copy takes it.
            _lease: Some(memory.lease(data.len() as u64)),
            _permit: None,
            data: Arrived::new(data.to_vec().into()),
        }),
        None => Err(ReadFailed::Damaged {
            segment: "of the log".to_owned(),
            why: format!("the record at LSN {lsn} is no write into inode {inode}"),
        }),
    }
}
