//! Reads the records of one segment through a buffer rather than mapped memory, so that a bad sector is an error and
//! not a SIGBUS.

use std::io;
use std::ops::Range;

use forebay_types::{Lsn, to_usize};

use super::LIMIT;
use super::rules::{self, HeaderVerdict};
use super::{Begun, Traces};
use crate::error::OpenError;
use crate::layout::{
    ALIGNMENT, RECORD_HEADER, RecordHeader, RecordKind, SEGMENT_HEADER, SegmentHeader, record_bytes,
};
use crate::seal::{LogKeys, SEAL_BYTES, SegmentOpener};
use crate::storage::{SegmentReader, Storage};

/// Bytes read at once, at least.
const READ_BYTES: usize = 256 << 10;
/// Bytes that are dropped from the page cache together: more than the record of any WRITE has.
const DROPPED: u64 = 2 << 20;

pub(crate) struct SegmentCursor {
    reader: Box<dyn SegmentReader>,
    name: String,
    header: SegmentHeader,
    /// Opens the records of a sealed segment; without it records are only counted.
    opener: Option<SegmentOpener>,
    /// The payload of the record that was opened last.
    opened: Vec<u8>,
    /// Bytes of the file.
    bytes: u64,
    buffer: Vec<u8>,
    /// The range of the file that is in the buffer.
    buffered: Range<u64>,
}

/// The result of a look at an LSN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanResult {
    /// A valid record; [`SegmentCursor::payload`] returns its payload.
    Record {
        kind: RecordKind,
        end: Lsn,
        payload: Range<usize>,
    },
    /// A whole sealed record with this many bytes of payload, whose key is missing.
    Locked {
        kind: RecordKind,
        end: Lsn,
        bytes: u64,
    },
    /// A whole record that does not authenticate.
    Forged { end: Lsn },
    /// A record that was begun here and is not whole.
    Torn,
    /// No record of this life.
    End,
}

impl SegmentCursor {
    pub(super) fn open(
        storage: &dyn Storage,
        segment: &Begun,
        keys: &LogKeys,
    ) -> Result<SegmentCursor, OpenError> {
        let name = segment.file.name.text();
        let opener = SegmentOpener::of(keys, &segment.header, &name)?;
        let reader = storage
            .read(&name)
            .map_err(OpenError::io(format!("open {name}")))?;
        let bytes = segment.file.bytes;
        let header = segment.header;
        Ok(SegmentCursor::new(reader, name, header, bytes, opener))
    }

    /// Reads the records of a file of `bytes` bytes with this header.
    pub(crate) fn new(
        reader: Box<dyn SegmentReader>,
        name: String,
        header: SegmentHeader,
        bytes: u64,
        opener: Option<SegmentOpener>,
    ) -> SegmentCursor {
        SegmentCursor {
            reader,
            name,
            header,
            opener,
            opened: Vec::new(),
            bytes,
            buffer: Vec::new(),
            buffered: 0..0,
        }
    }

    /// Applies the second table to the bytes at `lsn`.
    pub(crate) fn look(&mut self, lsn: Lsn) -> Result<ScanResult, OpenError> {
        let Some(position) = self.position(lsn) else {
            return Ok(ScanResult::End);
        };
        let after_header = position.saturating_add(RECORD_HEADER as u64);
        let room = self.bytes.checked_sub(after_header);
        let head = match room {
            Some(_) => self.head(position)?,
            None => None,
        };
        let decoded = head.as_ref().and_then(RecordHeader::decode);
        let verdict = rules::record_header(decoded, lsn, self.header.salt, room);
        let (HeaderVerdict::Claimed(record, crc), Some(head)) = (verdict, head) else {
            return Ok(ScanResult::End);
        };
        let payload = self.load(after_header, record.payload as usize)?;
        if RecordHeader::crc(&head, self.bytes(payload.clone())) != crc {
            return Ok(ScanResult::Torn);
        }
        let (kind, end) = (
            record.kind,
            lsn.advance(record_bytes(record.payload.into())),
        );
        if self.header.seal.is_none() {
            return Ok(ScanResult::Record { kind, end, payload });
        }
        let Some(opener) = &self.opener else {
            let bytes = u64::from(record.payload).saturating_sub(SEAL_BYTES);
            return Ok(ScanResult::Locked { kind, end, bytes });
        };
        // Not in place: the buffer is read again.
        self.opened.clear();
        let stored = self.buffer.get(payload).unwrap_or_default();
        self.opened.extend_from_slice(stored);
        Ok(match opener.open_record(&record, &mut self.opened) {
            Ok(opened) => ScanResult::Record {
                kind,
                end,
                payload: 0..opened.len(),
            },
            Err(_) => ScanResult::Forged { end },
        })
    }

    /// Drops the bytes at `lsn` from the buffer and, as far as the system supports that, from the page cache.
    pub(crate) fn drop_cached(&mut self, lsn: Lsn) {
        if let Some(position) = self.position(lsn) {
            let end = position.saturating_add(DROPPED).min(self.bytes);
            self.reader.drop_cached(position..end);
            self.buffered = 0..0;
        }
    }

    /// The payload of the record that was looked at last.
    pub(crate) fn payload(&self, range: Range<usize>) -> &[u8] {
        match self.header.seal {
            Some(_) => self.opened.get(range).unwrap_or_default(),
            None => self.bytes(range),
        }
    }

    /// Traces of this life after `lsn`, up to the end of the file: behind a hole, that is.
    pub(super) fn traces_after(&mut self, lsn: Lsn) -> Result<Traces, OpenError> {
        let mut traces = Traces::default();
        let mut at = lsn;
        while let Some(found) = self.candidate(at)? {
            traces.any = true;
            at = match self.look(found)? {
                ScanResult::Record { end, .. }
                | ScanResult::Locked { end, .. }
                | ScanResult::Forged { end } => {
                    traces.beyond = Some(end);
                    end
                }
                ScanResult::Torn | ScanResult::End => found.advance(ALIGNMENT),
            };
        }
        Ok(traces)
    }

    /// The end of the last record of this life in the file, whether it is whole or not, and whatever damage precedes
    /// it.
    pub(crate) fn content_end(&mut self) -> Result<Lsn, OpenError> {
        let (mut at, mut end) = (self.header.base, self.header.base);
        while let Some(found) = self.candidate(at)? {
            let position = self.position(found).unwrap_or(u64::MAX);
            let head = self.head(position)?;
            let claimed = head.as_ref().and_then(RecordHeader::decode);
            if let Some((record, _)) = claimed {
                end = end.max(found.advance(record_bytes(record.payload.into())));
            }
            at = match self.look(found)? {
                ScanResult::Record { end, .. }
                | ScanResult::Locked { end, .. }
                | ScanResult::Forged { end } => end,
                ScanResult::Torn | ScanResult::End => found.advance(ALIGNMENT),
            };
        }
        Ok(end)
    }

    /// The first place from `lsn` on that looks like the header of a record of this life.
    fn candidate(&mut self, mut lsn: Lsn) -> Result<Option<Lsn>, OpenError> {
        loop {
            let Some(start) = self.position(lsn).filter(|start| *start < self.bytes) else {
                return Ok(None);
            };
            let window = (READ_BYTES as u64).min(self.bytes - start);
            let window = self.load(start, to_usize(window))?;
            let (bytes, salt) = (self.bytes(window), self.header.salt);
            let steps = (bytes.len().saturating_sub(RECORD_HEADER - 1))
                .div_ceil(to_usize(ALIGNMENT)) as u64;
            let found = possible_records(bytes).find(|at| {
                let header = bytes.get(*at..).and_then(<[u8]>::first_chunk);
                let header = header.and_then(RecordHeader::decode);
                header.is_some_and(|(header, _)| {
                    header.salt == salt && header.lsn.0 == lsn.0.saturating_add(*at as u64)
                })
            });
            if let Some(at) = found {
                return Ok(Some(lsn.advance(at as u64)));
            }
            if steps == 0 {
                return Ok(None);
            }
            lsn = lsn.advance(ALIGNMENT * steps);
        }
    }

    /// The first valid record behind `lsn`, wherever the sequence is broken before it. For the inspection of a
    /// damaged log; replay never continues behind the first break.
    pub(crate) fn find_after(&mut self, lsn: Lsn) -> Result<Option<Lsn>, OpenError> {
        let mut from = lsn.advance(8);
        while let Some(start) = self.position(from).filter(|start| *start < self.bytes) {
            let window = READ_BYTES.min(to_usize(self.bytes - start));
            let window = self.load(start, window)?;
            let candidates: Vec<u64> = possible_records(self.bytes(window.clone()))
                .map(|at| from.0 + at as u64)
                .collect();
            for lsn in candidates.into_iter().map(Lsn) {
                let place = self.look(lsn)?;
                if matches!(place, ScanResult::Record { .. } | ScanResult::Locked { .. }) {
                    return Ok(Some(lsn));
                }
            }
            if window.len() < 8 {
                break;
            }
            from = from.advance(window.len() as u64 / 8 * 8);
        }
        Ok(None)
    }

    /// Bytes that were loaded last.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    fn position(&self, lsn: Lsn) -> Option<u64> {
        lsn.0
            .checked_sub(self.header.base.0)?
            .checked_add(SEGMENT_HEADER as u64)
    }

    fn head(&mut self, position: u64) -> Result<Option<[u8; RECORD_HEADER]>, OpenError> {
        let range = self.load(position, RECORD_HEADER)?;
        Ok(self.bytes(range).first_chunk().copied())
    }

    /// Loads these bytes of the file into the buffer and returns where they are; fewer if the file has become
    /// shorter. `count` was checked against the size of the file.
    fn load(&mut self, position: u64, count: usize) -> Result<Range<usize>, OpenError> {
        let end = position.saturating_add(count as u64);
        if position < self.buffered.start || end > self.buffered.end {
            let ahead = to_usize(self.bytes.saturating_sub(position).min(READ_BYTES as u64));
            let wanted = count.max(ahead);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            let mut read = |count: usize| {
                let buffer = self.buffer.get_mut(..count).unwrap_or_default();
                self.reader.read_at(position, buffer)
            };
            // A bad sector further on must not hide the bytes before it.
            let filled = read(wanted)
                .or_else(|_| read(count))
                .map_err(OpenError::io(format!("read {}", self.name)))?;
            self.buffered = position..position + filled as u64;
        }
        let start = to_usize(position - self.buffered.start);
        let available = to_usize((self.buffered.end - position).min(count as u64));
        Ok(start..start + available)
    }
}

/// Bytes that are checked together: enough for the processor to compare several words at once.
const STRIDE: usize = 128;

/// Offsets at which records could begin in these bytes, of which the first is aligned. Behind the end of a log nearly
/// everything is skipped, at the speed of memory.
fn possible_records(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let within = |stride: &[u8]| {
        let mut found = false;
        for bytes in stride.as_chunks().0 {
            found |= RecordHeader::may_begin_with(bytes);
        }
        found
    };
    let strides = bytes.chunks(STRIDE).enumerate();
    strides
        .filter(move |(_, stride)| within(stride))
        .flat_map(|(number, stride)| {
            let places = stride.as_chunks().0.iter().enumerate();
            places
                .filter(|(_, bytes)| RecordHeader::may_begin_with(bytes))
                .map(move |(step, _)| number * STRIDE + step * to_usize(ALIGNMENT))
        })
}

/// LSN and end of the first record in a file without a header, if that record is whole.
pub(crate) fn first_record(
    reader: &dyn SegmentReader,
    bytes: u64,
) -> io::Result<Option<(Lsn, Lsn)>> {
    let mut head = [0; RECORD_HEADER];
    let start = SEGMENT_HEADER as u64;
    let whole = reader.read_at(start, &mut head)? == head.len();
    let Some((record, crc)) = RecordHeader::decode(&head).filter(|_| whole) else {
        return Ok(None);
    };
    let payload_start = start + RECORD_HEADER as u64;
    // No log reaches this LSN, and counting on from it would overflow.
    if record.lsn.0 >= LIMIT || u64::from(record.payload) > bytes.saturating_sub(payload_start) {
        return Ok(None);
    }
    let mut payload = vec![0; record.payload as usize];
    let filled = reader.read_at(payload_start, &mut payload)?;
    if filled < payload.len() || RecordHeader::crc(&head, &payload) != crc {
        return Ok(None);
    }
    let end = record.lsn.advance(record_bytes(record.payload.into()));
    Ok(Some((record.lsn, end)))
}
