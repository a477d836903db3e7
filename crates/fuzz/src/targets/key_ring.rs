//! The object that opens a sealed volume.
//!
//! For every content:
//! * content that cannot be read is an error with a message, before anything costs time or memory;
//! * content that can be opened was written with the keys: nobody has them here, so it is the sample, byte for byte.
//!   When it is written again, it is read and opened again, with the same slots and data keys.
//!
//! ```text
//! input    flags: 1    content
//! flags    1  repair the checksum
//! ```

use forebay_seal::{
    Argon2Cost, Credential, KeyFile, KeyRing, LockedRing, Passphrase, RingError, SeededEntropy,
};
use forebay_types::VolumeId;

use crate::{Target, input::Input, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "key_ring",
    run,
    seeds,
    max_bytes: 1500,
};

const VOLUME: VolumeId = VolumeId([0x42; 16]);

fn key_file() -> KeyFile {
    KeyFile::new(vec![7; 32].into()).expect("long enough")
}

/// A ring that a key file opens, and that also has a slot for a passphrase.
fn sample() -> Vec<u8> {
    let entropy = SeededEntropy::new(1);
    let mut ring = KeyRing::create(VOLUME, 1_795_000_000, &entropy);
    let passphrase = Passphrase::new("open sesame".into()).expect("not empty");
    let cost = Argon2Cost {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    };
    ring.add_passphrase(&passphrase, cost, &entropy)
        .expect("a slot");
    ring.add_key_file(&key_file(), &entropy).expect("a slot");
    ring.rotate(1_795_000_001, &entropy).expect("a data key");
    ring.encode().expect("a ring with slots")
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let content = match input.u8() & 1 != 0 {
        true => repair::text(input.rest()),
        false => input.rest().to_vec(),
    };
    let locked = match LockedRing::decode(&content) {
        Ok(locked) => locked,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    match locked.unlock(locked.volume(), Credential::KeyFile(&key_file())) {
        Ok(ring) => check(ring, &content),
        Err(RingError::WrongKeyFile { slots }) => assert!(slots <= locked.slots().count()),
        Err(RingError::NoSlotFor(_) | RingError::Changed) => {}
        Err(error) => panic!("{error}"),
    }
}

fn check(mut ring: KeyRing, content: &[u8]) {
    assert!(
        content == sample(),
        "opened, but differs from the written ring"
    );
    let written = ring.encode().expect("it has slots");
    let again = LockedRing::decode(&written).expect("what was written is read");
    let again = again.unlock(VOLUME, Credential::KeyFile(&key_file()));
    let again = again.expect("what was written is opened");
    assert_eq!(again.generation(), ring.generation());
    assert!(again.slots().eq(ring.slots()));
    assert!(again.data_keys().eq(ring.data_keys()));
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let sample = sample();
    let changed = |from: &str, to: &str| {
        let text = String::from_utf8_lossy(&sample).replace(from, to);
        [&[1], &repair::text(text.as_bytes())[..]].concat()
    };
    vec![
        ("sound", [&[0], &sample[..]].concat()),
        ("repaired", [&[1], &sample[..]].concat()),
        ("newer", changed("\"format\":1", "\"format\":2,\"more\":[]")),
        (
            "expensive",
            changed("\"memory_kib\":8", "\"memory_kib\":4294967295"),
        ),
        ("service", {
            let service =
                r#"{"kind":"service","id":9,"service":"fake","key":"main","wrapped":"00"}],"data"#;
            changed("],\"data", &format!(",{service}"))
        }),
    ]
}
