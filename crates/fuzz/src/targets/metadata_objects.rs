//! Objects below `meta/`, as fetched by a GET: sealed ones, and those of other volumes with a trailer.
//!
//! For every object:
//! * an object that is opened is written as the same bytes, so it is what was written under this name;
//! * if an object is opened, every range of it is opened from the bytes that a store returns, with exactly those bytes;
//! * any changed, missing or additional byte at its end, and another name, are detected; a range of a changed object
//!   has the original bytes, or is refused;
//! * an object that cannot be opened is an error that says why.
//!
//! ```text
//! input    flags: 1    range: 1    from: 2    to: 2    length: 2    changed: 2    bytes, repeated up to the length
//! flags    1  the bytes are the plain ones, and are sealed or get a trailer     2  plain bytes in the place of sealed
//!          ones are sealed, and the trailer is repaired     4  a volume that is not sealed     8  headers of
//!          sealed chunks are repaired
//! range    0 all, 1 from a byte to another, 2 from a byte on, 3 the last bytes
//! ```

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::Sealing;
use forebay_meta::fuzzing::{
    Fetched, GetRange, open_object, seal_object, stored_range, with_trailer, without_trailer,
};
use forebay_seal::{Purpose, SeededEntropy};

use super::pack_frame::data_keys;
use crate::{Target, input::Input, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "metadata_objects",
    run,
    seeds,
    max_bytes: 200,
};

const NAME: &str = "manifest/00000000000000000007.manifest";
const OTHER_NAME: &str = "manifest/00000000000000000008.manifest";

/// Three chunks and a part of a fourth.
const MAX_LEN: usize = 13_000;

/// Seals with the same salt each time.
fn sealing() -> Sealing {
    Sealing {
        keys: data_keys(),
        entropy: Arc::new(SeededEntropy::new(2)),
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (flags, kind) = (input.u8(), input.u8());
    let (from, to) = (u64::from(input.u16()), u64::from(input.u16()));
    let len = usize::from(input.u16()) % MAX_LEN;
    let changed = usize::from(input.u16());
    let content: Vec<u8> = input.rest().iter().copied().cycle().take(len).collect();
    if flags & 4 != 0 {
        return trailer(flags, content, changed);
    }
    let mut stored = content.clone();
    if flags & 1 != 0 {
        stored = seal_object(&sealing(), NAME, &content);
    } else if flags & 2 != 0 {
        let Sealing { keys, entropy } = sealing();
        let sealer = keys.named_sealer(Purpose::Metadata, NAME, &*entropy);
        repair::seal_object(&mut stored, sealer, flags & 8 != 0);
    }
    let opened = open(&stored, NAME, None);
    if flags & 1 != 0 {
        let all = 0..content.len() as u64;
        assert_eq!(opened, Ok((all, Bytes::from(content))), "what was sealed");
    }
    let range = match kind % 4 {
        0 => None,
        1 if from < to => Some(GetRange::Bounded(from..to)),
        2 => Some(GetRange::Offset(from)),
        _ => Some(GetRange::Suffix(from)),
    };
    match opened {
        Ok((_, plain)) => check(&stored, &plain, range.as_ref(), changed),
        Err(why) => {
            assert!(!why.is_empty());
            // A range of it may be undamaged; it has no more bytes than the original.
            if let Ok((range, bytes)) = open(&stored, NAME, range.as_ref()) {
                assert_eq!(range.end - range.start, bytes.len() as u64);
                assert!(bytes.len() <= stored.len());
            }
        }
    }
}

/// Opens the bytes of a store as a volume does.
fn open(
    stored: &[u8],
    name: &str,
    range: Option<&GetRange>,
) -> Result<(Range<u64>, Bytes), String> {
    let given = match range {
        None => 0..stored.len(),
        Some(range) => {
            let asked = stored_range(range).ok_or("no object has it")?;
            within(&asked, stored.len() as u64).ok_or("the store has nothing there")?
        }
    };
    let fetched = Fetched {
        stored: stored.len() as u64,
        start: given.start as u64,
        bytes: Bytes::copy_from_slice(&stored[given]),
    };
    open_object(&sealing(), name, fetched, range)
}

/// The part of `len` bytes that a range covers; `None` where a store returns an error instead.
fn within(range: &GetRange, len: u64) -> Option<Range<usize>> {
    let (from, to) = match range {
        GetRange::Bounded(range) => (range.start, range.end.min(len)),
        GetRange::Offset(from) => (*from, len),
        GetRange::Suffix(count) => (len.saturating_sub(*count), len),
    };
    let is_there = from < len || matches!(range, GetRange::Suffix(_));
    is_there.then_some(from as usize..to as usize)
}

fn check(stored: &[u8], plain: &Bytes, range: Option<&GetRange>, changed: usize) {
    assert!(
        seal_object(&sealing(), NAME, plain) == stored,
        "other bytes after sealing them again"
    );
    let wanted = match range {
        None => Some(0..plain.len()),
        Some(range) => within(range, plain.len() as u64),
    };
    let read = open(stored, NAME, range);
    match wanted.clone() {
        Some(wanted) => {
            let place = wanted.start as u64..wanted.end as u64;
            assert_eq!(read, Ok((place, plain.slice(wanted))));
        }
        None => assert!(read.is_err(), "there is nothing"),
    }

    assert!(open(stored, OTHER_NAME, None).is_err(), "another name");
    let mut damaged = stored.to_vec();
    let at = changed % damaged.len();
    damaged[at] ^= 0x10;
    assert!(
        open(&damaged, NAME, None).is_err(),
        "byte {at} of {} was changed",
        damaged.len()
    );
    if let (Ok((_, bytes)), Some(wanted)) = (open(&damaged, NAME, range), wanted) {
        assert_eq!(bytes, plain.slice(wanted), "byte {at} was changed");
    }
    let short = &stored[..at];
    assert!(open(short, NAME, None).is_err(), "it was cut off at {at}");
    let more = [stored, &stored[..1]].concat();
    assert!(open(&more, NAME, None).is_err(), "there is a byte more");
}

/// The same for an object with a trailer.
fn trailer(flags: u8, content: Vec<u8>, changed: usize) {
    let content = Bytes::from(content);
    let stored = match flags {
        flags if flags & 1 != 0 => with_trailer(NAME, &content),
        flags if flags & 2 != 0 => {
            let mut stored = content.to_vec();
            repair::trailer(&mut stored, NAME);
            stored
        }
        _ => content.to_vec(),
    };
    let opened = without_trailer(NAME, &Bytes::from(stored.clone()));
    if flags & 1 != 0 {
        assert_eq!(opened.as_ref(), Ok(&content), "what was written");
    }
    let plain = match opened {
        Ok(plain) => plain,
        Err(why) => return assert!(!why.is_empty()),
    };
    assert!(with_trailer(NAME, &plain) == stored, "other bytes");
    let read = |name, bytes: &[u8]| without_trailer(name, &Bytes::copy_from_slice(bytes));
    assert!(read(OTHER_NAME, &stored).is_err(), "another name");
    let at = changed % stored.len();
    let mut damaged = stored.clone();
    damaged[at] ^= 0x10;
    assert!(read(NAME, &damaged).is_err(), "byte {at} was changed");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let input = |(flags, kind): (u8, u8), (from, to): (u16, u16), len: u16, bytes: &[u8]| {
        let numbers = [from, to, len, len / 2].map(u16::to_le_bytes);
        [&[flags, kind], &numbers.concat()[..], bytes].concat()
    };
    let sealed = seal_object(&sealing(), NAME, b"forebay");
    let len = sealed.len() as u16;
    vec![
        ("sealed-empty", input((1, 0), (0, 0), 0, b"")),
        (
            "sealed-in-the-middle",
            input((1, 1), (4000, 4200), 9000, b"forebay"),
        ),
        (
            "sealed-whole-chunks",
            input((1, 2), (8191, 0), 8192, b"it takes what comes"),
        ),
        ("sealed-at-the-end", input((1, 3), (5, 0), 4097, b"at once")),
        ("as-it-is-stored", input((0, 0), (0, 0), len, &sealed)),
        (
            "to-be-sealed",
            input((10, 1), (4095, 4097), 8400, b"forebay"),
        ),
        (
            "to-be-sealed-as-it-says",
            input((2, 0), (0, 0), len, &sealed),
        ),
        ("trailer", input((5, 0), (0, 0), 300, b"forebay")),
        ("to-get-a-trailer", input((6, 0), (0, 0), 300, b"forebay")),
    ]
}
