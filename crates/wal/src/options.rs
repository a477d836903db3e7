//! Settings of a log.

use forebay_seal::Sealing;
use forebay_types::{Epoch, VolumeId};

use crate::error::OpenError;
use crate::layout::{RECORD_HEADER, SEGMENT_HEADER};
use crate::seal::{self, SEAL_BYTES};

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
}

impl Options {
    /// The defaults: segments of 32 MiB, 4 GiB in total.
    pub fn new(volume: VolumeId, epoch: Epoch) -> Options {
        Options {
            segment_bytes: 32 << 20,
            limit_bytes: 4 << 30,
            volume,
            epoch,
            sealing: None,
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

    /// Full segments are flushed without a request once they add up to this many bytes. Not each at once: a segment
    /// that is published and recycled before that costs the disk nothing, and flushing everything would slow appends
    /// down to the disk's pace (the next segment's name has to reach the disk behind it). Not later: this bounds the
    /// bytes that a commit may have to flush, and the memory that is mapped.
    pub(crate) fn flush_backlog(&self) -> u64 {
        (self.limit_bytes / 16).min(64 << 20)
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
