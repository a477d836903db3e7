//! Detection of damage without keys.

use forebay_types::bounded_u32;

use crate::frame::{FrameError, FrameFault};
use crate::header;
use crate::index::{
    INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, PACK_HEADER_LEN, PackError, decode_pack_header, read_index,
    sealed,
};

/// Verifies every checksum of a whole pack, sealed or not, and returns the number of its frames. It
/// needs no keys, so it detects damage, but not changes by an attacker who has repaired the checksums.
pub fn verify_checksums(pack: &[u8]) -> Result<u32, PackError> {
    let Some((volume, id)) = decode_pack_header(pack) else {
        return Err(PackError::Damaged("it does not begin with a pack header"));
    };
    let (frames, index_offset) = match read_index(pack) {
        Ok(index) if index.pack_len as usize == pack.len() => {
            let frames = index.entries.len();
            let behind = frames * INDEX_ENTRY_LEN + INDEX_FOOTER_LEN;
            (bounded_u32(frames), pack.len() - behind)
        }
        Ok(_) => return Err(PackError::Damaged("it is shorter than its index says")),
        Err(PackError::Sealed { .. }) => {
            let (frames, index_offset) = sealed::verify_crc32(pack, volume)?;
            (frames, index_offset as usize)
        }
        Err(error) => return Err(error),
    };
    let (mut at, mut found) = (PACK_HEADER_LEN, 0);
    while at < index_offset {
        let len = header::verify_crc32(&pack[at..index_offset]).map_err(|fault| FrameError {
            pack: id,
            offset: bounded_u32(at),
            fault: FrameFault::from(fault),
        })?;
        at += len;
        found += 1;
    }
    match found == frames {
        true => Ok(frames),
        false => Err(PackError::Damaged("its index names more or fewer frames")),
    }
}
