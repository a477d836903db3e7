//! No nonce is used twice, whatever happens to the disk.

use std::collections::HashSet;

use forebay_seal::SeededEntropy;
use parking_lot::Mutex;

use super::*;
use crate::seal::used;

/// The number of pairs of key and nonce that were used with this data key, and the number of repeated ones.
fn pairs_of(key: u32) -> (usize, usize) {
    let pairs = used::all();
    let own: Vec<_> = pairs.iter().filter(|pair| pair.0 == key).collect();
    let different: HashSet<_> = own.iter().collect();
    (own.len(), own.len() - different.len())
}

/// A disk, and the published LSN of its log.
type Disk = (MemoryStorage, Lsn);

/// One life of a gateway: the log is opened, restarted after a failed flush, and ends in the middle of an append.
/// Returns the disk at every step, and at the end.
fn life((storage, published): &Disk, key: u32, entropy: Option<u64>) -> Vec<Disk> {
    let images: Arc<Mutex<Vec<Disk>>> = Arc::default();
    let known = Arc::new(Mutex::new(*published));
    let (taken, seen, disk) = (Arc::clone(&images), Arc::clone(&known), storage.clone());
    storage.observe(move || {
        let mut taken = taken.lock();
        let image = disk.power_cut(taken.len() as u64);
        taken.push((image, *seen.lock()));
    });
    let mut options = sealed_with(key);
    if let (Some(seed), Some(sealing)) = (entropy, &mut options.sealing) {
        sealing.entropy = Arc::new(SeededEntropy::new(seed));
    }
    let keys = LogKeys::Required(data_keys(VOLUME, key));
    let shared = Arc::new(storage.clone());
    let recovery = Recovery::scan_with(shared, VOLUME, *published, WriterEnd::PowerCut, keys)
        .expect("scanned");
    let wal = recovery.into_wal(options).expect("opened");
    append_many(&wal, 0..20, 1400);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    storage.fail_flushes(true);
    assert!(wait(wal.durable(append(&wal, b"lost").end)).is_err());
    storage.fail_flushes(false);
    let at = wal.next_lsn();
    *known.lock() = at;
    wal.restart(at).expect("restarted");
    append_many(&wal, 20..40, 1400);
    wait(wal.durable(wal.next_lsn())).expect("durable");
    drop(wal.reserve(50).expect("room"));
    append_many(&wal, 40..42, 700);
    wal.abandon();
    storage.observe(|| {});
    let mut images = std::mem::take(&mut *images.lock());
    images.push((storage.kill(), at));
    images
}

#[test]
fn no_key_meets_a_nonce_twice_in_restarts_rollbacks_and_copies() {
    const KEY: u32 = 70;
    let images = life(&(MemoryStorage::new(), Lsn::ZERO), KEY, None);
    // The number of images depends on how far the log's own threads get ahead.
    assert!(images.len() > 10, "{}", images.len());
    // Copies of the disk at each moment continue independently of one another.
    for (image, published) in &images {
        life(&(image.kill(), *published), KEY, None);
    }
    // Restarts one after the other, with the first state of the disk in between.
    let mut disk = images.last().cloned().expect("the last");
    for _ in 0..3 {
        disk = life(&disk, KEY, None).pop().expect("the last");
        let (first, published) = &images[2];
        life(&(first.kill(), *published), KEY, None);
    }
    let (used, repeated) = pairs_of(KEY);
    let lives = 1 + images.len() + 6;
    assert!(used > lives * 40, "{used} in {lives} lives");
    assert_eq!(repeated, 0);
}

/// Proves that the test above can fail: with repeated randomness, nonces repeat.
#[test]
fn randomness_that_comes_again_is_what_nonces_depend_on() {
    const KEY: u32 = 77;
    for _ in 0..2 {
        life(&(MemoryStorage::new(), Lsn::ZERO), KEY, Some(1));
    }
    let (used, repeated) = pairs_of(KEY);
    assert!(repeated >= 10, "{repeated} of {used}");
}
