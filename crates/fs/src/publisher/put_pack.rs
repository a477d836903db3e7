//! A pack that was built, and the addresses of its frames in the metadata.

use std::sync::Arc;

use forebay_meta::record::{FrameAddress, KnownFrame, Origin, PackRecord};
use forebay_pack::{FrameHash, FrameRef};
use forebay_reduction::dedup::Fingerprint;
use forebay_types::{BlockKey, PackId};

/// A pack that is not published, in the bucket or in flight.
pub(crate) struct PutPack {
    pub(crate) id: PackId,
    /// Its account if all of it were referred to.
    pub(crate) record: PackRecord,
    /// Its frames with their fingerprints, except lost ones; empty without deduplication.
    pub(crate) known: Vec<KnownFrame>,
    /// Its frames that stand for lost bytes.
    pub(crate) lost: Vec<LostFrame>,
}

/// A frame that stands for bytes which the log could not return.
pub(crate) struct LostFrame {
    pub(crate) block: BlockKey,
    pub(crate) address: FrameAddress,
    pub(crate) why: Arc<str>,
}

/// The address of a frame in the metadata.
pub(crate) fn address(frame: &FrameRef) -> FrameAddress {
    FrameAddress {
        pack: frame.pack,
        offset: frame.offset,
        stored_len: frame.stored_len,
        raw_len: frame.raw_len,
        raw_start: frame.start,
        crc32: frame.crc32,
        origin: None,
    }
}

/// The record of a frame that was put into a pack, with its fingerprint.
pub(crate) fn known_frame(
    block: BlockKey,
    frame: &FrameRef,
    fingerprint: &Fingerprint,
    hash: Option<FrameHash>,
) -> KnownFrame {
    KnownFrame {
        hash: hash.map(|FrameHash(hash)| hash),
        head_crc32: fingerprint.head_crc32,
        raw_crc32: fingerprint.raw_crc32,
        offset: frame.offset,
        stored_len: frame.stored_len,
        raw_len: frame.raw_len,
        crc32: frame.crc32,
        origin: Origin {
            block,
            start: frame.start,
        },
    }
}
