//! Forebay: frames and packs, the form in which file data lies in the bucket.
//!
//! A [`PackWriter`] gathers dirty ranges of blocks: each becomes a *frame* (compressed where that
//! pays, checksummed, one day sealed), and the frames of one *pack* are one object in the bucket.
//! What the writer hands back for each frame, a [`FrameRef`], is what the block map keeps: where a
//! ranged GET finds the frame, and what the answer must look like. [`open_frame`] turns the fetched
//! bytes into a [`Frame`], the only type of this crate that stands for bytes that were verified.
//!
//! A pack also explains itself: [`read_index`] tells from the object alone which frames of which
//! blocks it holds, for salvage, collection and checks without the metadata.
//!
//! ```text
//! pack      pack header | frame | frame | ... | index entries | index footer
//! frame     frame header | payload (the raw bytes, or what zstd made of them)
//! ```
//!
//! All numbers are little-endian. The layouts are drawn byte by byte in [`mod@header`] (frames) and
//! [`mod@index`] (packs). Everything is plain synchronous code without I/O, clock or randomness:
//! the same input makes the same pack.
//!
//! # What is verified when
//!
//! Every byte of a frame, header included, is under a CRC32 that is kept in the frame, in the index
//! and in the [`FrameRef`], and [`open_frame`] always verifies it: at several times the speed
//! of BLAKE3 it catches what storage and transport do by accident. The keyed BLAKE3 of the raw bytes
//! is verified whenever the stored bytes are not the raw ones, because only a check across the
//! codec notices that decompression gave back something else. For frames stored raw it would look at
//! the very bytes that the CRC has just covered, and is left to [`Frame::verify_hash`], which
//! scrubbing and salvage call.

mod codec;
mod fields;
mod frame;
pub mod header;
pub mod index;
mod keys;
mod name;
mod reference;
mod writer;

pub use codec::{Codec, Compression};
pub use frame::{Frame, FrameError, FrameFault, open_frame};
pub use index::{IndexEntry, PackError, PackIndex, read_index};
pub use keys::PackKeys;
pub use name::{PACK_PREFIX, object_name, parse_object_name};
pub use reference::{FrameRef, InvalidFrameRef};
pub use writer::{FinishedPack, PackWriter};

/// Most raw bytes in a frame: a whole block.
pub const MAX_FRAME_LEN: usize = forebay_types::BLOCK_SIZE as usize;

/// Most bytes in a pack, its index included: offsets in a pack have 32 bits.
pub const MAX_PACK_LEN: usize = u32::MAX as usize;
