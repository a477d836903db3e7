//! The content of a file, or of one of its slots, and the operations on it.

use std::sync::Arc;

use crate::history::State;
use crate::random::content;

/// Where the bytes of a write come from.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Random bytes of this seed.
    Seed(u64),
    /// These bytes, which a client sends again.
    Bytes(Arc<[u8]>),
}

/// An operation on a file's content. Offsets are those of the file.
#[derive(Clone, Debug)]
pub enum DataOp {
    /// WRITE.
    Write {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: usize,
        /// The bytes.
        payload: Payload,
    },
    /// SETATTR of the size.
    Resize(u64),
    /// SETATTR of the permission bits.
    Mode(u32),
}

impl DataOp {
    /// The bytes of a write.
    pub fn payload(&self) -> Vec<u8> {
        match self {
            DataOp::Write {
                length,
                payload: Payload::Seed(seed),
                ..
            } => content(*seed, *length),
            DataOp::Write {
                payload: Payload::Bytes(bytes),
                ..
            } => bytes.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Content of a file, or of the part of it that lies in `slot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Offset and length of the slot; `None` for a whole file.
    pub slot: Option<(u64, u64)>,
    /// Permission bits.
    pub mode: u32,
    /// The bytes, from the beginning of the file or slot.
    pub bytes: Vec<u8>,
}

impl Content {
    /// An empty file.
    pub fn empty(slot: Option<(u64, u64)>, mode: u32) -> Content {
        Content {
            slot,
            mode,
            bytes: Vec::new(),
        }
    }

    /// Offset in the file of the first byte.
    pub fn start(&self) -> u64 {
        self.slot.map_or(0, |(start, _)| start)
    }

    /// The part of a file's bytes that this content covers.
    pub fn part_of<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        let Some((start, length)) = self.slot else {
            return file;
        };
        let start = (start as usize).min(file.len());
        let end = (start + length as usize).min(file.len());
        file.get(start..end).unwrap_or_default()
    }

    /// The bytes of a range of the file, as far as it has any.
    pub fn range(&self, offset: u64, length: usize) -> &[u8] {
        let start = (offset.saturating_sub(self.start()) as usize).min(self.bytes.len());
        let end = (start + length).min(self.bytes.len());
        self.bytes.get(start..end).unwrap_or_default()
    }
}

impl State for Content {
    type Op = DataOp;

    fn apply(&mut self, op: &DataOp) {
        match op {
            DataOp::Write { offset, length, .. } => {
                let start = offset.saturating_sub(self.start()) as usize;
                let end = start + length;
                if self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                if let Some(place) = self.bytes.get_mut(start..end) {
                    place.copy_from_slice(&op.payload());
                }
            }
            DataOp::Resize(size) => {
                let length = size.saturating_sub(self.start());
                let length = self.slot.map_or(length, |(_, slot)| length.min(slot));
                self.bytes.resize(length as usize, 0);
            }
            DataOp::Mode(mode) => self.mode = *mode,
        }
    }
}
