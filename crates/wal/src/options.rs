//! Settings of a log.

use forebay_seal::Sealing;
use forebay_types::{Epoch, VolumeId};

use crate::error::OpenError;
use crate::layout::{RECORD_HEADER, SEGMENT_HEADER};
use crate::seal::{self, SEAL_BYTES};

/// When the log begins to write records to the disk. Records are durable after a flush either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// In steps of this many bytes, when all records of a step are complete. Less is left for a flush, and the disk's queue
    /// never holds one long burst. Storages that cannot do that make it [`Late`](Self::Late).
    Early(u64),
    /// When they are flushed. Segments that are published and recycled before that cost the disk nothing.
    Late,
}

impl Default for WriteBack {
    /// Steps of 4 MiB: long enough for a disk to write them at its full speed.
    fn default() -> WriteBack {
        WriteBack::Early(4 << 20)
    }
}

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a segment's file, header included. A multiple of 4096. No record is larger.
    pub segment_bytes: u64,
    /// Limit for the bytes of all segment files together, spare ones included. At least
    /// two segments.
    pub limit_bytes: u64,
    /// The volume whose log this is.
    pub volume: VolumeId,
    /// The epoch under which new segments are written.
    pub epoch: Epoch,
    /// What new segments are sealed with, each under a key of its own; `None` leaves them unsealed. Existing segments
    /// stay as they are.
    pub sealing: Option<Sealing>,
    /// When records are begun to be written to the disk.
    pub write_back: WriteBack,
}

impl Options {
    /// The defaults: segments of 32 MiB, 4 GiB in total, written back early.
    pub fn new(volume: VolumeId, epoch: Epoch) -> Options {
        Options {
            segment_bytes: 32 << 20,
            limit_bytes: 4 << 30,
            volume,
            epoch,
            sealing: None,
            write_back: WriteBack::default(),
        }
    }

    /// Refuses settings that could never work.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let page = SEGMENT_HEADER as u64;
        if self.segment_bytes < 2 * page
            || !self.segment_bytes.is_multiple_of(page)
            || self.segment_bytes > u64::from(u32::MAX)
        {
            return Err(OpenError::Options(format!(
                "a segment of {} bytes: must be a multiple of {page} from {} to 4 GiB",
                self.segment_bytes,
                2 * page
            )));
        }
        if self.limit_bytes < 2 * self.segment_bytes {
            return Err(OpenError::Options(format!(
                "a limit of {} bytes: must hold at least two segments of {} bytes",
                self.limit_bytes, self.segment_bytes
            )));
        }
        match &self.sealing {
            Some(sealing) => seal::check(&sealing.keys, self.volume),
            None => Ok(()),
        }
    }

    /// Bytes that sealing adds to each payload.
    pub(crate) fn seal_bytes(&self) -> u64 {
        match self.sealing {
            Some(_) => SEAL_BYTES,
            None => 0,
        }
    }

    /// Full segments are flushed without a request once they add up to this many bytes, whether they were written back early
    /// or not. A log that writes late flushes none before: a segment that is published and recycled by then costs the disk
    /// nothing. Not later: this bounds the memory that is mapped, and what a commit has to flush, unless the disk is slower
    /// than the appends.
    pub(crate) fn flush_backlog(&self) -> u64 {
        (self.limit_bytes / 16).min(64 << 20)
    }

    /// Bytes of a step of the write-back. In a small log no more than what may wait for a flush without a request.
    pub(crate) fn write_back_step(&self) -> Option<u64> {
        match self.write_back {
            WriteBack::Early(bytes) => Some(bytes.min(self.flush_backlog()).max(1)),
            WriteBack::Late => None,
        }
    }

    /// Maximum number of segments that are prepared ahead, for appends that use them up faster than one at a time can
    /// be prepared. Four, because each takes a segment's bytes of page cache. At most a quarter of the log, because
    /// they are a part of the segments that are kept rather than deleted.
    pub(crate) fn most_prepared(&self) -> usize {
        let quarter = (self.limit_bytes / 4 / self.segment_bytes).clamp(1, 4);
        quarter as usize
    }

    /// Payload bytes of the largest record that fits into a segment.
    pub(crate) fn largest_payload(&self) -> u64 {
        self.segment_bytes - (SEGMENT_HEADER + RECORD_HEADER) as u64 - self.seal_bytes()
    }
}
