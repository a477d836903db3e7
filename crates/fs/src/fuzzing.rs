//! What only this crate reads and writes, for the fuzz targets. Each function reads, and gives what it read as it would
//! be written.

use crate::change::{DataHeader, decode_truncate, encode_truncate};
use crate::local::LocalState;

/// The local state.
///
/// # Errors
/// What is wrong with it.
pub fn local_state(text: &str) -> Result<String, &'static str> {
    LocalState::decode(text).map(|state| state.encode())
}

/// The payload of a data record of the log.
pub fn data_record(payload: &[u8]) -> Option<Vec<u8>> {
    let (header, data) = DataHeader::decode(payload)?;
    let mut written = header.encode().to_vec();
    written.extend_from_slice(data);
    Some(written)
}

/// The payload of a truncate record of the log.
pub fn truncate_record(payload: &[u8]) -> Option<Vec<u8>> {
    let (inode, record) = decode_truncate(payload)?;
    Some(encode_truncate(inode, &record))
}
