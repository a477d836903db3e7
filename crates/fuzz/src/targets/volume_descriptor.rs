//! The object that makes a prefix of a bucket a volume.
//!
//! For every content: if it is read, it is the same after writing and reading.
//!
//! ```text
//! input    flags: 1    content
//! flags    1  repair the checksum
//! ```

use forebay_meta::VolumeDescriptor;
use forebay_meta::fuzzing::{read_descriptor, write_descriptor};
use forebay_meta::volume::Protection;
use forebay_types::{BLOCK_SIZE, VolumeId};

use crate::{Target, input::Input, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "volume_descriptor",
    run,
    seeds,
    max_bytes: 600,
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let content = match input.u8() & 1 != 0 {
        true => repair::text(input.rest()),
        false => input.rest().to_vec(),
    };
    match read_descriptor(&content) {
        Ok(descriptor) => {
            let written = write_descriptor(&descriptor);
            let again = read_descriptor(&written).expect("what was written is read");
            assert!(again == descriptor, "{again:?} instead of {descriptor:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let descriptor = VolumeDescriptor {
        volume: VolumeId([0x6f; 16]),
        created: 1_795_000_000,
        block_size: BLOCK_SIZE,
        protection: Protection::None { hash_key: [7; 32] },
        origin: None,
    };
    let sealed = VolumeDescriptor {
        protection: Protection::Aes256Gcm,
        ..descriptor.clone()
    };
    let written = write_descriptor(&descriptor);
    let changed = |from: &str, to: &str| {
        let text = String::from_utf8_lossy(&written).replace(from, to);
        [&[1], &repair::text(text.as_bytes())[..]].concat()
    };
    vec![
        ("sound", [&[0], &written[..]].concat()),
        ("repaired", [&[1], &written[..]].concat()),
        ("sealed", [&[0], &write_descriptor(&sealed)[..]].concat()),
        ("newer", changed("\"format\":1", "\"format\":3,\"more\":[]")),
        ("other-block-size", changed("4194304", "4096")),
    ]
}
