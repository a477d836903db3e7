//! Sealing and opening chunks, with damaged, truncated and exchanged bytes.

use std::sync::Arc;

use forebay_seal::{DataKeys, SECRET_LEN, Secret, SeededEntropy};
use forebay_types::VolumeId;
use proptest::prelude::*;

use super::*;

const NAME: &str = "manifest/00000000000000000001.manifest";
const CHUNK: usize = CHUNK_LEN as usize;
const STORED: usize = STORED_LEN as usize;

/// Keys of a volume, with entropy that differs by seed.
fn sealing(volume: u8, key: u32, seed: u64) -> Sealing {
    let secret = Secret::take(&mut [key as u8; SECRET_LEN]);
    let keys = DataKeys::new(VolumeId([volume; 16]), (DataKeyId(key), secret), []);
    Sealing {
        keys: Arc::new(keys),
        entropy: Arc::new(SeededEntropy::new(seed)),
    }
}

fn plain(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 / 7) as u8).collect()
}

fn seal(sealing: &Sealing, name: &str, plain: &[u8]) -> Vec<u8> {
    let mut sealer = ObjectSealer::new(sealing, name);
    sealer.add(&plain.to_vec().into());
    sealer.finish()
}

fn open(sealing: &Sealing, name: &str, stored: &[u8]) -> Result<Bytes, Flaw> {
    open_range(sealing, name, stored, None)
}

/// Opens a range from a whole object, or from the chunks that would be requested.
fn open_range(
    sealing: &Sealing,
    name: &str,
    stored: &[u8],
    range: Option<Range<u64>>,
) -> Result<Bytes, Flaw> {
    let range = range.map(GetRange::Bounded);
    let asked = range.as_ref().and_then(super::super::layout::stored_range);
    let asked = match asked {
        None => 0..stored.len() as u64,
        Some(asked) => asked
            .as_range(stored.len() as u64)
            .map_err(|_| Flaw::Short)?,
    };
    let arrived = Arrived {
        stored: stored.len() as u64,
        start: asked.start,
        bytes: Bytes::copy_from_slice(&stored[asked.start as usize..asked.end as usize]),
    };
    let opened = arrived.open(sealing, name, range.as_ref());
    opened.map(|(.., bytes)| bytes)
}

#[test]
fn what_was_sealed_opens_and_has_the_length_that_the_layout_says() {
    let sealing = sealing(1, 1, 1);
    for len in [0, 1, 44, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 50_000] {
        let stored = seal(&sealing, NAME, &plain(len));
        assert_eq!(stored.len() as u64, stored_len(len as u64));
        assert_eq!(open(&sealing, NAME, &stored).unwrap(), plain(len));
    }
}

#[test]
fn each_byte_of_a_sealed_object_counts() {
    let sealing = sealing(1, 1, 1);
    for len in [0, 5] {
        let stored = seal(&sealing, NAME, &plain(len));
        for at in 0..stored.len() {
            for bit in 0..8 {
                let mut changed = stored.clone();
                changed[at] ^= 1 << bit;
                assert!(open(&sealing, NAME, &changed).is_err(), "byte {at}");
            }
        }
    }
    // Both headers, and some of the sealed bytes behind them.
    let stored = seal(&sealing, NAME, &plain(CHUNK + 40));
    for at in (0..60).chain(STORED - 20..stored.len()) {
        let mut changed = stored.clone();
        changed[at] ^= 0x40;
        assert!(open(&sealing, NAME, &changed).is_err(), "byte {at}");
    }
}

#[test]
fn an_object_that_was_cut_off_anywhere_is_refused_and_no_wrong_byte_is_served() {
    let sealing = sealing(1, 1, 1);
    let plain = plain(CHUNK + 300);
    let stored = seal(&sealing, NAME, &plain);
    for len in (0..stored.len()).rev() {
        let cut = &stored[..len];
        assert!(open(&sealing, NAME, cut).is_err(), "{len}");
        let end = plain.len() as u64;
        for range in [0..10, end - 10..end, CHUNK_LEN - 1..CHUNK_LEN + 1] {
            let wanted = &plain[range.start as usize..range.end as usize];
            match open_range(&sealing, NAME, cut, Some(range.clone())) {
                // The bytes of a chunk that arrived whole and is not the last one.
                Ok(bytes) => assert!(bytes == wanted && len > STORED, "{len} {range:?}"),
                Err(flaw) => {
                    let is_length = flaw == Flaw::Length;
                    assert!(
                        len <= STORED || range.start > 0 || is_length,
                        "{len} {range:?}"
                    );
                }
            }
        }
    }
    let mut longer = stored.clone();
    for _ in 0..100 {
        longer.push(0);
        assert!(open(&sealing, NAME, &longer).is_err());
    }
}

#[test]
fn an_object_opens_under_its_name_with_its_keys_alone() {
    let ours = sealing(1, 1, 1);
    let stored = seal(&ours, NAME, b"raw");
    let refused = |sealing: &Sealing, name| open(sealing, name, &stored).unwrap_err();
    let next = "manifest/00000000000000000002.manifest";
    assert_eq!(refused(&ours, next), Flaw::Forged);
    assert_eq!(refused(&ours, ""), Flaw::Forged);
    assert_eq!(refused(&sealing(2, 1, 1), NAME), Flaw::Forged);
    let unknown = Flaw::UnknownKey(UnknownDataKey(DataKeyId(1)));
    assert_eq!(refused(&sealing(1, 2, 1), NAME), unknown);
    assert!(unknown.to_string().contains("no data key 1"), "{unknown}");
}

#[test]
fn chunks_stay_where_they_were_sealed() {
    let sealing = sealing(1, 1, 1);
    let plain = plain(3 * CHUNK + CHUNK / 2);
    let stored = seal(&sealing, NAME, &plain);
    let again = seal(&sealing, NAME, &plain);
    let other = seal(&sealing, "manifest/2", &plain);
    let chunks = |stored: &[u8]| -> Vec<Vec<u8>> {
        let chunks = stored.chunks(STORED);
        chunks.map(<[u8]>::to_vec).collect()
    };
    let refused = |chunks: &[Vec<u8>], what: &str| {
        let stored = chunks.concat();
        assert!(open(&sealing, NAME, &stored).is_err(), "{what}");
        for index in 0..chunks.len() as u64 {
            let range = index * CHUNK_LEN..index * CHUNK_LEN + 9;
            let at = range.start as usize;
            if let Ok(bytes) = open_range(&sealing, NAME, &stored, Some(range)) {
                assert_eq!(bytes, plain[at..at + 9], "{what}, chunk {index}");
            }
        }
    };
    let whole = chunks(&stored);
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        let mut swapped = whole.clone();
        swapped.swap(a, b);
        refused(&swapped, "swapped within");
    }
    for index in 0..4 {
        for (from, what) in [(&again, "an older version"), (&other, "another object")] {
            let mut mixed = whole.clone();
            mixed[index] = chunks(from)[index].clone();
            refused(&mixed, what);
        }
        let mut without = whole.clone();
        without.remove(index);
        refused(&without, "left out");
        let mut twice = whole.clone();
        twice.insert(index, whole[index].clone());
        refused(&twice, "twice");
    }
}

#[test]
fn what_was_never_sealed_is_called_so() {
    let sealing = sealing(1, 1, 1);
    for stored in [&b""[..], b"FBm", b"a manifest without a seal", &[0; 70_000]] {
        assert_eq!(open(&sealing, NAME, stored), Err(Flaw::NotSealed));
    }
    let mut newer = seal(&sealing, NAME, b"raw");
    newer[4] = 2;
    let unknown = Flaw::Unknown {
        version: 2,
        algorithm: 1,
    };
    assert_eq!(open(&sealing, NAME, &newer), Err(unknown));
}

#[test]
fn it_does_not_matter_in_which_pieces_bytes_come() {
    let ours = sealing(1, 1, 1);
    let plain = plain(2 * CHUNK + 77);
    let whole = seal(&ours, NAME, &plain);
    for step in [1000, CHUNK, CHUNK + 1, plain.len()] {
        // The same salt, which real objects do not share.
        let mut sealer = ObjectSealer::new(&sealing(1, 1, 1), NAME);
        let mut stored = Vec::new();
        for piece in plain.chunks(step) {
            stored.extend(sealer.take());
            sealer.add(&piece.to_vec().into());
        }
        stored.extend(sealer.finish());
        assert_eq!(stored, whole, "{step}");
    }
}

proptest! {
    #[test]
    fn nothing_that_arrives_has_us_panic(
        stored in prop_oneof![any::<u64>(), 0..200_000_u64],
        start in prop_oneof![Just(0), any::<u64>(), (0..4_u64).prop_map(|chunk| chunk * STORED_LEN)],
        head in any::<[u8; 40]>(),
        is_ours in any::<bool>(),
        len in 0..40_000_usize,
        range in prop_oneof![
            Just(None),
            (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Some(GetRange::Bounded(a.min(b)..a.max(b)))),
            (0..50_000_u64, 0..50_000_u64).prop_map(|(a, len)| Some(GetRange::Bounded(a..a + len))),
            prop_oneof![any::<u64>(), 0..50_000_u64].prop_map(|at| Some(GetRange::Offset(at))),
            prop_oneof![any::<u64>(), 0..50_000_u64].prop_map(|len| Some(GetRange::Suffix(len))),
        ],
    ) {
        let mut bytes = head.to_vec();
        if is_ours {
            bytes[..12].copy_from_slice(b"FBmd\x01\0\x01\0\x01\0\0\0");
        }
        bytes.resize(len, 7);
        let arrived = Arrived { stored, start, bytes: bytes.into() };
        prop_assert!(arrived.open(&sealing(1, 1, 1), NAME, range.as_ref()).is_err());
    }
}
