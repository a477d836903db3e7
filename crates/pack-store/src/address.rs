//! The addresses of frames in packs.

use forebay_meta::FrameAddress;
use forebay_types::PackId;

/// Identifies a frame: its pack, and its offset in it.
pub fn address_key(address: &FrameAddress) -> (PackId, u32) {
    (address.pack, address.offset)
}
