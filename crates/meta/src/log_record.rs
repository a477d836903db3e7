//! Payloads of the log's records for writes, truncates and snapshots. Those of changes of names are
//! [batches](crate::Batch).

use forebay_types::{Inode, MAX_FILE_SIZE, SnapshotId};

use crate::key::Key;
use crate::record::{InodeRecord, Record, SnapshotRecord, Timestamp};

/// Header of a data record's payload; the bytes follow it.
///
/// ```text
///  0  inode: 8   offset: 8   seconds: 8   nanoseconds: 4   mode: 4
/// 32  data
/// ```
pub struct DataHeader {
    /// The file.
    pub inode: Inode,
    /// The first byte that is written.
    pub offset: u64,
    /// The file's new mtime and ctime.
    pub time: Timestamp,
    /// The file's mode after the write.
    pub mode: u32,
}

impl DataHeader {
    /// Length, in bytes.
    pub const LEN: usize = 32;

    /// The header's bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.inode.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.time.seconds.to_le_bytes());
        out[24..28].copy_from_slice(&self.time.nanos.to_le_bytes());
        out[28..].copy_from_slice(&self.mode.to_le_bytes());
        out
    }

    /// The header and the data behind it; nothing if the payload is cut off, or would write beyond
    /// the largest file.
    pub fn decode(payload: &[u8]) -> Option<(DataHeader, &[u8])> {
        let (inode, rest) = payload.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let (nanos, rest) = rest.split_first_chunk()?;
        let (mode, data) = rest.split_first_chunk()?;
        let header = DataHeader {
            inode: Inode(u64::from_le_bytes(*inode)),
            offset: u64::from_le_bytes(*offset),
            time: Timestamp {
                seconds: i64::from_le_bytes(*seconds),
                nanos: u32::from_le_bytes(*nanos),
            },
            mode: u32::from_le_bytes(*mode),
        };
        let end = header.offset.checked_add(data.len() as u64)?;
        (end <= MAX_FILE_SIZE).then_some((header, data))
    }
}

/// Payload of a truncate record: the inode, then its record with the new size.
pub fn encode_truncate(inode: Inode, record: &InodeRecord) -> Vec<u8> {
    let mut payload = inode.0.to_le_bytes().to_vec();
    payload.extend_from_slice(&record.without_maps().encode());
    payload
}

/// Reads what [`encode_truncate`] wrote.
pub fn decode_truncate(payload: &[u8]) -> Option<(Inode, InodeRecord)> {
    let (inode, rest) = payload.split_first_chunk()?;
    let inode = Inode(u64::from_le_bytes(*inode));
    let record = InodeRecord::decode(&Key::Inode(inode).encode(), rest).ok()?;
    Some((inode, record))
}

/// Payload of a snapshot's record: its number, then its record, in which commit, position and counts are zero.
pub fn encode_snapshot(id: SnapshotId, record: &SnapshotRecord) -> Vec<u8> {
    let mut payload = id.0.to_le_bytes().to_vec();
    payload.extend_from_slice(&record.encode());
    payload
}

/// Reads what [`encode_snapshot`] wrote.
pub fn decode_snapshot(payload: &[u8]) -> Option<(SnapshotId, SnapshotRecord)> {
    let (id, rest) = payload.split_first_chunk()?;
    let id = SnapshotId(u64::from_le_bytes(*id));
    let record = SnapshotRecord::decode(&Key::Snapshot(id).encode(), rest).ok()?;
    Some((id, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_header_is_read_back_and_short_ones_are_refused() {
        let header = DataHeader {
            inode: Inode(7),
            offset: 1 << 40,
            time: Timestamp {
                seconds: -3,
                nanos: 9,
            },
            mode: 0o644,
        };
        let mut payload = header.encode().to_vec();
        payload.extend_from_slice(b"abc");
        let (read, data) = DataHeader::decode(&payload).unwrap();
        assert_eq!(
            (read.inode, read.offset, read.time, read.mode),
            (Inode(7), 1 << 40, header.time, 0o644)
        );
        assert_eq!(data, b"abc");
        assert!(DataHeader::decode(&payload[..31]).is_none());
    }

    #[test]
    fn a_data_record_that_writes_beyond_the_largest_file_is_refused() {
        let record = |offset: u64| {
            let header = DataHeader {
                inode: Inode(7),
                offset,
                time: Timestamp::default(),
                mode: 0,
            };
            [&header.encode()[..], b"abc"].concat()
        };
        assert!(DataHeader::decode(&record(MAX_FILE_SIZE - 3)).is_some());
        for offset in [MAX_FILE_SIZE - 2, u64::MAX - 1] {
            assert!(DataHeader::decode(&record(offset)).is_none(), "{offset}");
        }
    }
}
