//! Metadata that decode and are wrong: no bytes are served that no client wrote.

use std::sync::Arc;

use crate::common::metadata::Reads;
use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::record::{BlockMap, FrameAddress};
use forebay_meta::{Key, Record, StoreError};
use forebay_vfs::{Error, Stability};

/// Every block map has the address of its first frame for its second one too.
struct OnePlaceForTwoFrames;

#[async_trait]
impl Reads for OnePlaceForTwoFrames {
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        let Some(value) = found else { return Ok(None) };
        if !matches!(Key::decode(key), Ok(Key::Block(_))) {
            return Ok(Some(value));
        }
        let mut map = BlockMap::decode(key, &value)?;
        if let [first, second] = *map.extents() {
            let frame = FrameAddress {
                offset: first.frame.offset,
                ..second.frame
            };
            map.insert(second.range, frame).unwrap();
        }
        Ok(Some(map.encode()))
    }
}

#[test]
fn two_frames_in_one_place_are_an_error_and_not_zeros() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let file = life.create(b"two frames");
    let whole = life.create(b"one frame");
    life.write(file, 0, &pattern(1, 4096), Stability::Unstable);
    life.write(file, 65536, &pattern(2, 4096), Stability::Unstable);
    life.write(whole, 0, &pattern(3, 4096), Stability::Unstable);
    life.stop();
    let life = bucket.start_watched(bucket.config(), Arc::new(OnePlaceForTwoFrames));
    assert_eq!(life.try_read(file, 0, 1 << 20), Err(Error::Io));
    assert_bytes(&life.read(file, 0, 4096), &pattern(1, 4096));
    assert_eq!(life.try_read(file, 65536, 4096), Err(Error::Io));
    assert_bytes(&life.read(whole, 0, 1 << 20), &pattern(3, 4096));
}
