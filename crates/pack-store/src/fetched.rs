//! A fetched frame in memory, and the reasons why there is none.

use std::ops::{Deref, Range};
use std::sync::Arc;

use forebay_cache::{Arrived, Lease};
use forebay_meta::FrameAddress;
use forebay_pack::Frame;
use forebay_types::{ByteRange, to_usize};

/// Why the bytes of a frame are not available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The bucket does not answer; it may later.
    #[error("{0}")]
    Unavailable(String),
    /// The bytes in the bucket are not those that were written.
    #[error("{0}")]
    Damaged(String),
}

/// Where a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedFrom {
    /// In the disk cache.
    DiskCache,
    /// In the bucket.
    Bucket,
}

/// A fetched frame. Its memory is counted until it is dropped.
#[derive(Debug)]
pub struct Fetched {
    frame: Frame,
    /// Its bytes in memory that block buffers may keep; none if they must copy them.
    arrived: Option<Arrived>,
    _lease: Option<Lease>,
    /// The lease for the gaps that came with it, if its bytes keep them in memory.
    _gaps: Option<Arc<Lease>>,
    from: FetchedFrom,
}

impl Fetched {
    /// A frame with the lease for its fetch, of which the excess is given back. `arrived` is the memory in which it
    /// came, if block buffers may keep that; `gaps` is the lease for the gaps in that memory.
    pub(crate) fn new(
        frame: Frame,
        arrived: Option<&Arrived>,
        mut lease: Option<Lease>,
        gaps: Option<&Arc<Lease>>,
        from: FetchedFrom,
    ) -> Arc<Fetched> {
        if let Some(lease) = &mut lease {
            let over = lease.bytes().saturating_sub(frame.data.len() as u64);
            lease.give_back(over);
        }
        let gaps = gaps.filter(|_| frame.is_in_stored).cloned();
        let data = frame.data.clone();
        let arrived = match (frame.is_in_stored, arrived) {
            (true, arrived) => arrived.map(|arrived| arrived.beside(data)),
            (false, _) => Some(Arrived::new(data)),
        };
        Arc::new(Fetched {
            frame,
            arrived,
            _lease: lease,
            _gaps: gaps,
            from,
        })
    }

    /// Where it was found.
    pub fn from(&self) -> FetchedFrom {
        self.from
    }

    /// The bytes of a range of the block whose map contains `address`, which must be the address of this frame.
    pub fn part(&self, address: &FrameAddress, range: ByteRange) -> Option<&[u8]> {
        self.frame.data.get(place(address, range)?)
    }

    /// The same in memory that block buffers keep, if they may.
    pub fn part_to_keep(&self, address: &FrameAddress, range: ByteRange) -> Option<Arrived> {
        let arrived = self.arrived.as_ref()?;
        let place = place(address, range)?;
        (place.end <= arrived.bytes().len()).then(|| arrived.slice(place))
    }

    /// The additional memory of block buffers that keep as much of it as they may.
    pub fn needs(&self) -> u64 {
        match &self.arrived {
            Some(arrived) if arrived.is_counted() => 0,
            Some(arrived) => arrived.memory_len(),
            None => self.frame.range.len(),
        }
    }
}

/// The position of a block's range in the frame at `address` in that block's map.
fn place(address: &FrameAddress, range: ByteRange) -> Option<Range<usize>> {
    let start = to_usize(range.start.checked_sub(u64::from(address.raw_start))?);
    Some(start..start + to_usize(range.len()))
}

impl Deref for Fetched {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.frame
    }
}
