//! That no nonce comes twice, whatever becomes of the disk.

use std::collections::HashSet;

use forebay_seal::SeededEntropy;
use parking_lot::Mutex;

use super::*;
use crate::seal::used;

/// The pairs of key and nonce that were used with this data key, and how many of them came again.
fn pairs_of(key: u32) -> (usize, usize) {
    let pairs = used::all();
    let own: Vec<_> = pairs.iter().filter(|pair| pair.0 == key).collect();
    let different: HashSet<_> = own.iter().collect();
    (own.len(), own.len() - different.len())
}

/// A disk, and up to where its log is published.
type Disk = (MemoryStorage, Lsn);

/// What one life of a gateway does to a log: it goes on, is restarted after a failed flush, and ends in the middle of
/// an append. Gives the disk as it was at every step of it, and at last.
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
    // How many it is depends on how far the log's own threads get ahead.
    assert!(images.len() > 10, "{}", images.len());
    // Copies of the disk as it was at each moment go on, beside one another.
    for (image, published) in &images {
        life(&(image.kill(), *published), KEY, None);
    }
    // Restarts one after the other, and between them the disk as it was at first.
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

/// The test above would notice.
#[test]
fn randomness_that_comes_again_is_what_nonces_depend_on() {
    const KEY: u32 = 77;
    for _ in 0..2 {
        life(&(MemoryStorage::new(), Lsn::ZERO), KEY, Some(1));
    }
    let (used, repeated) = pairs_of(KEY);
    assert!(repeated >= 10, "{repeated} of {used}");
}
