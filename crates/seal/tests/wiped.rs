//! Freed memory contains no key or passphrase.
//!
//! The allocator of this program searches every block before it is freed. Randomness comes from a seed, so the keys are
//! known.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_seal::{
    Argon2Cost, Credential, DataKeyId, DataKeys, Entropy, KeyFile, KeyRing, LockedRing, Passphrase,
    Purpose, Secret, SeededEntropy,
};
use forebay_types::VolumeId;

/// Number of bytes of each secret to search for. Longer than any match by chance.
const NEEDLE_LEN: usize = 16;
const MAX_NEEDLES: usize = 8;

static NEEDLES: Mutex<([[u8; NEEDLE_LEN]; MAX_NEEDLES], usize)> =
    Mutex::new(([[0; NEEDLE_LEN]; MAX_NEEDLES], 0));
static WATCHING: AtomicBool = AtomicBool::new(false);
static FOUND: AtomicUsize = AtomicUsize::new(0);

struct Watching;

// SAFETY: the memory is the system's; it is zeroed on allocation, so all of it may be read.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `alloc`, which is that of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if WATCHING.load(Ordering::Relaxed) {
            // SAFETY: the block is the caller's until it is freed below, and was zeroed.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            let needles = NEEDLES.lock().unwrap();
            let (needles, count) = &*needles;
            let windows = bytes.windows(NEEDLE_LEN);
            let found =
                windows.filter(|window| needles[..*count].iter().any(|needle| window == needle));
            FOUND.fetch_add(found.count(), Ordering::Relaxed);
        }
        // SAFETY: the block came from `alloc` with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn look_for(secret: &[u8]) {
    let mut needles = NEEDLES.lock().unwrap();
    let (needles, count) = &mut *needles;
    needles[*count].copy_from_slice(&secret[..NEEDLE_LEN]);
    *count += 1;
}

/// Number of times that a secret was found in memory that `action` freed.
fn found_in(action: impl FnOnce()) -> usize {
    FOUND.store(0, Ordering::Relaxed);
    WATCHING.store(true, Ordering::Relaxed);
    action();
    WATCHING.store(false, Ordering::Relaxed);
    FOUND.load(Ordering::Relaxed)
}

const VOLUME: VolumeId = VolumeId([1; 16]);
const WORDS: &str = "what nobody may find in memory";

/// From the first key to the last sealed byte.
fn life_of_a_volume() {
    let entropy = SeededEntropy::new(5);
    let cost = Argon2Cost {
        memory_kib: 64,
        passes: 1,
        lanes: 1,
    };
    let passphrase = Passphrase::new(WORDS.into()).unwrap();
    let mut ring = KeyRing::create(VOLUME, 0, &entropy);
    ring.add_passphrase(&passphrase, cost, &entropy).unwrap();
    let key_file = KeyFile::new(vec![0x77; 64].into()).unwrap();
    ring.add_key_file(&key_file, &entropy).unwrap();
    let object = ring.encode().unwrap();
    drop(ring);
    let locked = LockedRing::decode(&object).unwrap();
    for credential in [
        Credential::Passphrase(&passphrase),
        Credential::KeyFile(&key_file),
    ] {
        let mut ring = locked.unlock(VOLUME, credential).unwrap();
        ring.rotate(0, &entropy).unwrap();
        let keys = ring.into_data_keys();
        let mut sealer = keys.sealer(Purpose::Pack, 1, &entropy);
        let (id, salt) = (sealer.key_id(), *sealer.salt());
        let mut bytes = vec![0; 100];
        let tag = sealer.seal(b"", &mut bytes);
        drop(sealer);
        let opener = keys.opener(Purpose::Pack, 1, id, &salt).unwrap();
        let part = forebay_seal::Part::Counted(0);
        opener.open(part, b"", &mut bytes, &tag).unwrap();
    }
    let wrong = Passphrase::new("something else".into()).unwrap();
    let refused = locked.unlock(VOLUME, Credential::Passphrase(&wrong));
    assert!(refused.is_err());
}

/// The key of one pack, expanded for sealing and for opening. Its first bytes are also its first round key, so it is
/// found in the expanded form too.
fn life_of_a_pack_key() {
    const DATA_KEY: [u8; 32] = [9; 32];
    let keys = DataKeys::new(
        VOLUME,
        (DataKeyId(1), Secret::take(&mut DATA_KEY.clone())),
        [],
    );
    let mut sealer = keys.sealer(Purpose::Pack, 1, &SeededEntropy::new(6));
    let mut from = [0; 32 + 16 + 8 + 16];
    from[..32].copy_from_slice(&DATA_KEY);
    from[32..48].copy_from_slice(&VOLUME.0);
    from[48..56].copy_from_slice(&1_u64.to_le_bytes());
    from[56..].copy_from_slice(sealer.salt());
    look_for(&blake3::derive_key(
        "forebay 2026-11 key of a pack v1",
        &from,
    ));
    let mut bytes = [0; 100];
    let tag = sealer.seal(b"", &mut bytes);
    let opener = keys.opener(Purpose::Pack, 1, sealer.key_id(), sealer.salt());
    drop(sealer);
    let part = forebay_seal::Part::Counted(0);
    opener.unwrap().open(part, b"", &mut bytes, &tag).unwrap();
}

/// A single test, since the allocator watches all allocations of the process.
#[test]
fn memory_that_is_given_back_holds_no_secret() {
    // The volume key is drawn first and the first data key second.
    let entropy = SeededEntropy::new(5);
    let mut drawn = [0; 32];
    for _ in 0..2 {
        entropy.fill(&mut drawn);
        look_for(&drawn);
    }
    look_for(WORDS.as_bytes());
    look_for(&[0x77; NEEDLE_LEN]);

    // The allocator does find a secret that is not wiped.
    let careless = found_in(|| drop(std::hint::black_box(WORDS.to_owned())));
    assert_eq!(careless, 1);
    let careless = found_in(|| drop(std::hint::black_box(Box::new(drawn))));
    assert_eq!(careless, 1);

    assert_eq!(found_in(life_of_a_volume), 0);
    assert_eq!(found_in(life_of_a_pack_key), 0);

    // And the keys are the ones that are searched for: a copy is found until it is wiped.
    let mut copy = drawn;
    let secret = Secret::take(&mut copy);
    assert_eq!(secret.expose(), &drawn);
    assert_eq!(DataKeyId(1).to_string(), "1");
    assert_eq!(found_in(|| drop(secret)), 0);
}
