//! Forebay: frames and packs, the format of file data in the bucket.
//!
//! A [`PackWriter`] gathers dirty ranges of blocks: each becomes a *frame* (compressed where that pays, sealed if the
//! volume is, checksummed), and the frames of one *pack* are one object in the bucket. For each frame the writer
//! returns a [`FrameRef`], which the block map keeps: the range for a GET of the frame, and the checksum and lengths to
//! verify the answer. [`open_frame`] turns the fetched bytes into a [`Frame`], the only type of this crate for verified
//! bytes.
//!
//! A pack also describes itself: [`open_index`] reads from the object, with the keys, which frames of which blocks it
//! holds, for salvage, collection and checks without the metadata; [`read_index`] does so without keys for packs that
//! are not sealed, and [`verify_checksums`] finds damage in both. If the index is damaged, [`find_frames`] and
//! [`open_any_frame`] need only the frames.
//!
//! ```text
//! pack      pack header | frame | frame | ... | index entries | index footer
//! frame     frame header | payload (the raw bytes, or their zstd frame)
//! ```
//!
//! All numbers are little-endian. The layouts are drawn byte by byte in [`mod@header`] (frames) and [`mod@index`]
//! (packs). Everything is plain synchronous code without I/O and clock; the same input makes the same pack, except for
//! the salt of a sealed one.
//!
//! # Sealed packs
//!
//! With the keys of a sealed volume ([`PackKeys::sealed`]) all frames and the index are sealed under a key of the
//! pack's own (the crate `forebay-seal`), after compression and before the checksums are computed. Block, range, codec
//! and hash of a frame are hidden with its payload. Volume and pack are part of the key, and the frame's number and
//! offset are authenticated, so that a frame which was moved or comes from another volume, pack, or an earlier pack of
//! the same number is not opened.
//!
//! # Which checks run when
//!
//! Every byte of a frame, header included, is covered by a CRC32 that is kept in the frame, in the index and in the
//! [`FrameRef`], and [`open_frame`] always verifies it: at several times the speed of BLAKE3 it catches accidental
//! damage in storage and transport. The keyed BLAKE3 of the raw bytes is verified whenever the stored bytes are not the
//! raw ones, because only a check across the codec notices a wrong result of decompression. For frames stored raw it
//! would cover the same bytes that the CRC has just covered, and is left to [`Frame::verify_hash`], which scrubbing and
//! salvage call. Sealed frames are also covered by their tag, which is always verified; those that are stored raw have
//! no hash beside it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod codec;
mod fields;
pub mod formats;
mod frame;
pub mod header;
pub mod index;
mod keys;
mod memory;
mod name;
mod reference;
mod scrub;
mod walk;
mod writer;

pub use codec::{Codec, Compression};
pub use frame::{Frame, FrameError, FrameFault, open_frame};
pub use index::{IndexEntry, PackError, PackIndex, open_index, read_index};
pub use keys::{FrameHash, PackKeys};
pub use name::{PACK_PREFIX, object_name, parse_object_name};
pub use reference::{FrameRef, InvalidFrameRef};
pub use scrub::verify_checksums;
pub use walk::{FoundFrames, find_frames, open_any_frame};
pub use writer::{FinishedPack, PackWriter};

/// Maximum number of raw bytes in a frame: a whole block.
pub const MAX_FRAME_LEN: usize = forebay_types::to_usize(forebay_types::BLOCK_SIZE);

/// Maximum number of bytes in a pack, its index included: offsets in a pack have 32 bits.
pub const MAX_PACK_LEN: usize = u32::MAX as usize;
