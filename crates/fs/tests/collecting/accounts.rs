//! The collector compares what it finds of a pack with the pack's account.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use forebay_meta::record::PackRecord;
use forebay_meta::{Key, Record, StoreError};
use forebay_types::{BlockIndex, BlockKey, Inode, PackId};

use super::{MIB, eager, nudge, unhurried, write};
use crate::common::metadata::Reads;
use crate::common::{Bucket, Life, eventually, pattern};

/// A file of one block, and the pack that has a quarter of it; the rest was written again.
fn with_a_dead_pack(bucket: &Bucket) -> (Inode, PathBuf) {
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    write(&life, inode, 0, 1, 4 * MIB);
    life.flush();
    let (pack, _) = bucket.packs().pop().unwrap();
    write(&life, inode, MIB, 2, 3 * MIB);
    life.flush();
    life.stop();
    (inode, pack)
}

/// Makes the collector begin.
fn collect_with(bucket: &Bucket, reads: Arc<dyn Reads>) -> Life {
    let mut config = bucket.config();
    eager(&mut config);
    let life = bucket.start_watched(config, reads);
    nudge(&life);
    life
}

/// The number of a pack's object.
fn pack_of(path: &Path) -> PackId {
    let digits = path.file_stem().unwrap().to_str().unwrap();
    PackId(u64::from_str_radix(digits, 16).unwrap())
}

/// Hides the map of a block, as if the index of its pack did not name it.
struct Hidden {
    key: bytes::Bytes,
    hides: AtomicBool,
}

impl Hidden {
    /// Hides the map of the first block of a file.
    fn map_of(inode: Inode) -> Hidden {
        let block = BlockIndex(0);
        Hidden {
            key: Key::Block(BlockKey { inode, block }).encode(),
            hides: AtomicBool::new(true),
        }
    }
}

#[async_trait]
impl Reads for Hidden {
    async fn got(
        &self,
        key: &[u8],
        found: Option<bytes::Bytes>,
    ) -> Result<Option<bytes::Bytes>, StoreError> {
        let hides = self.hides.load(Ordering::Relaxed) && key == self.key;
        Ok(found.filter(|_| !hides))
    }
}

#[test]
fn a_pack_of_which_less_is_found_than_its_account_says_is_left_alone() {
    let bucket = Bucket::new();
    let (inode, pack) = with_a_dead_pack(&bucket);
    let hidden = Arc::new(Hidden::map_of(inode));
    let life = collect_with(&bucket, hidden.clone());
    eventually("it is left alone", || {
        life.volume.status().collector.left_alone == 1
    });
    hidden.hides.store(false, Ordering::Relaxed);
    nudge(&life);
    assert!(pack.exists());
    assert!(life.read(inode, 0, MIB as usize) == pattern(1, MIB as usize));
}

/// Hides the map of a block while a pack is examined for the first time, and reports that its account has become
/// larger meanwhile.
struct Growing {
    hidden: Hidden,
    account: bytes::Bytes,
    looks: AtomicU64,
}

#[async_trait]
impl Reads for Growing {
    async fn got(
        &self,
        key: &[u8],
        found: Option<bytes::Bytes>,
    ) -> Result<Option<bytes::Bytes>, StoreError> {
        let found = self.hidden.got(key, found).await?;
        let Some(value) = found.as_ref().filter(|_| key == self.account) else {
            return Ok(found);
        };
        if self.looks.fetch_add(1, Ordering::Relaxed) > 0 {
            self.hidden.hides.store(false, Ordering::Relaxed);
            return Ok(found);
        }
        let mut record = PackRecord::decode(key, value).unwrap();
        record.live_bytes -= 1;
        Ok(Some(record.encode()))
    }
}

#[test]
fn a_pack_that_is_given_more_to_hold_while_it_is_looked_through_is_looked_through_again() {
    let bucket = Bucket::new();
    let (inode, pack) = with_a_dead_pack(&bucket);
    let growing = Arc::new(Growing {
        hidden: Hidden::map_of(inode),
        account: Key::Pack(pack_of(&pack)).encode(),
        looks: AtomicU64::new(0),
    });
    let life = collect_with(&bucket, growing.clone());
    eventually("it has gone", || !pack.exists());
    assert!(growing.looks.load(Ordering::Relaxed) >= 4, "seen twice");
    assert_eq!(life.volume.status().collector.left_alone, 0);
    assert!(life.read(inode, 0, MIB as usize) == pattern(1, MIB as usize));
}
