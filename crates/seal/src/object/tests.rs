//! Sealing and opening parts of objects, and the uniqueness of nonces.

use std::collections::HashSet;

use super::*;
use crate::cipher::used;
use crate::{DataKeys, KeyRing, SECRET_LEN, SeededEntropy, SystemEntropy, UnknownDataKey};

const VOLUME: VolumeId = VolumeId([1; 16]);

fn data_keys(volume: VolumeId) -> DataKeys {
    let secret = |byte| Secret::take(&mut [byte; SECRET_LEN]);
    let older = [(DataKeyId(1), secret(1))];
    DataKeys::new(volume, (DataKeyId(2), secret(2)), older)
}

/// The stored form of one object with two parts and a closing one.
struct Sealed {
    id: DataKeyId,
    salt: Salt,
    parts: Vec<(Part, Vec<u8>, Tag)>,
}

fn seal(keys: &DataKeys, number: u64, entropy: &dyn Entropy) -> Sealed {
    let mut sealer = keys.sealer(Purpose::Pack, number, entropy);
    let (id, salt) = (sealer.key_id(), *sealer.salt());
    let mut parts = Vec::new();
    for raw in [&b"first part"[..], b"other part"] {
        let (part, mut bytes) = (Part::Counted(sealer.next()), raw.to_vec());
        let tag = sealer.seal(b"also", &mut bytes);
        parts.push((part, bytes, tag));
    }
    let mut bytes = b"close part".to_vec();
    let tag = sealer.seal_closing(b"also", &mut bytes);
    parts.push((Part::Closing, bytes, tag));
    Sealed { id, salt, parts }
}

fn open(
    keys: &DataKeys,
    number: u64,
    sealed: &Sealed,
    part: Part,
    (_, bytes, tag): &(Part, Vec<u8>, Tag),
) -> Result<Vec<u8>, Forged> {
    let opener = keys.opener(Purpose::Pack, number, sealed.id, &sealed.salt);
    let mut bytes = bytes.clone();
    opener.unwrap().open(part, b"also", &mut bytes, tag)?;
    Ok(bytes)
}

#[test]
fn parts_open_in_their_place_and_nowhere_else() {
    let keys = data_keys(VOLUME);
    let entropy = SeededEntropy::new(1);
    let sealed = seal(&keys, 7, &entropy);
    for (at, stored) in sealed.parts.iter().enumerate() {
        let raw = open(&keys, 7, &sealed, stored.0, stored).unwrap();
        assert_eq!(&raw[..], [b"first part", b"other part", b"close part"][at]);
        assert_ne!(raw, stored.1);
        for (other, ..) in sealed.parts.iter().filter(|(part, ..)| *part != stored.0) {
            assert_eq!(open(&keys, 7, &sealed, *other, stored), Err(Forged));
        }
        let (part, elsewhere) = (stored.0, data_keys(VolumeId([2; 16])));
        assert_eq!(open(&keys, 8, &sealed, part, stored), Err(Forged));
        assert_eq!(open(&elsewhere, 7, &sealed, part, stored), Err(Forged));
        let other_key = Sealed {
            id: DataKeyId(1),
            parts: Vec::new(),
            ..sealed
        };
        assert_eq!(open(&keys, 7, &other_key, part, stored), Err(Forged));
        // The part of another life of the object in the same place.
        let other_life = seal(&keys, 7, &entropy);
        assert_eq!(open(&keys, 7, &other_life, part, stored), Err(Forged));
    }
}

#[test]
fn what_has_a_name_opens_under_that_name_and_purpose_alone() {
    let keys = data_keys(VOLUME);
    let mut sealer = keys.named_sealer(Purpose::Metadata, "manifest/1", &SeededEntropy::new(1));
    let (id, salt) = (sealer.key_id(), *sealer.salt());
    let mut sealed = b"raw".to_vec();
    let tag = sealer.seal(b"also", &mut sealed);
    let open = |opener: Result<Opener, UnknownDataKey>| {
        let mut bytes = sealed.clone();
        let opened = opener
            .unwrap()
            .open(Part::Counted(0), b"also", &mut bytes, &tag);
        opened.map(|()| bytes)
    };
    let named = |purpose, name| open(keys.named_opener(purpose, name, id, &salt));
    assert_eq!(named(Purpose::Metadata, "manifest/1"), Ok(b"raw".to_vec()));
    for name in ["", "manifest/", "manifest/10", "anifest/1", "manifest/2"] {
        assert_eq!(named(Purpose::Metadata, name), Err(Forged), "{name}");
    }
    assert_eq!(named(Purpose::Pack, "manifest/1"), Err(Forged));
    let numbered = keys.opener(Purpose::Metadata, 0, id, &salt);
    assert_eq!(open(numbered), Err(Forged));
}

/// The bytes of sealed packs depend on it.
#[test]
fn the_key_of_a_pack_is_derived_as_the_format_says() {
    let salt = [5; SALT_LEN];
    let keys = data_keys(VOLUME);
    let derived = Secret::take(&mut [2; SECRET_LEN]).derive(
        "forebay 2026-11 key of a pack v1",
        &[&VOLUME.0, &7_u64.to_le_bytes(), &salt],
    );
    let mut bytes = b"raw".to_vec();
    let tag = Cipher::new(&derived).seal(&Part::Counted(3).nonce(), b"", &mut bytes);
    let opener = keys.opener(Purpose::Pack, 7, DataKeyId(2), &salt).unwrap();
    assert_eq!(opener.open(Part::Counted(3), b"", &mut bytes, &tag), Ok(()));
    assert_eq!(bytes, b"raw");
}

/// The bytes of sealed logs depend on it.
#[test]
fn the_key_of_a_log_segment_is_derived_as_the_format_says() {
    let keys = data_keys(VOLUME);
    let sealer = keys.place_sealer(Purpose::Log, 7, &SeededEntropy::new(1));
    let mut bytes = b"raw".to_vec();
    let (tag, head) = (
        sealer.seal_at(4096, b"also", &mut bytes),
        sealer.seal_head(b"head"),
    );
    let derived = Secret::take(&mut [2; SECRET_LEN]).derive(
        "forebay 2026-11 key of a log segment v1",
        &[&VOLUME.0, &7_u64.to_le_bytes(), sealer.salt()],
    );
    let cipher = Cipher::new(&derived);
    let mut expected = b"raw".to_vec();
    let place = Part::Counted(4096).nonce();
    assert_eq!(cipher.seal(&place, b"also", &mut expected), tag);
    assert_eq!(bytes, expected);
    assert_eq!(cipher.seal(&Part::Closing.nonce(), b"head", &mut []), head);
}

#[test]
fn what_has_a_place_opens_at_that_place_of_that_object_alone() {
    let keys = data_keys(VOLUME);
    let entropy = SeededEntropy::new(1);
    let sealer = keys.place_sealer(Purpose::Log, 7, &entropy);
    let (id, salt) = (sealer.key_id(), *sealer.salt());
    let mut sealed = b"raw".to_vec();
    let tag = sealer.seal_at(64, b"also", &mut sealed);
    let open = |purpose, number, salt: &Salt, part| {
        let opener = keys.opener(purpose, number, id, salt).unwrap();
        let mut bytes = sealed.clone();
        let opened = opener.open(part, b"also", &mut bytes, &tag);
        opened.map(|()| bytes)
    };
    let place = Part::Counted(64);
    assert_eq!(open(Purpose::Log, 7, &salt, place), Ok(b"raw".to_vec()));
    let other = Part::Counted(72);
    assert_eq!(open(Purpose::Log, 7, &salt, other), Err(Forged));
    assert_eq!(open(Purpose::Log, 7, &salt, Part::Closing), Err(Forged));
    assert_eq!(open(Purpose::Log, 8, &salt, place), Err(Forged));
    assert_eq!(open(Purpose::Pack, 7, &salt, place), Err(Forged));
    // The same segment in its next life.
    let next = *keys.place_sealer(Purpose::Log, 7, &entropy).salt();
    assert_eq!(open(Purpose::Log, 7, &next, place), Err(Forged));
}

#[test]
fn a_data_key_that_is_not_there_is_named() {
    let unknown = data_keys(VOLUME).opener(Purpose::Pack, 1, DataKeyId(3), &[0; SALT_LEN]);
    assert_eq!(unknown.err(), Some(UnknownDataKey(DataKeyId(3))));
}

#[test]
fn debug_output_shows_numbers_and_no_key() {
    assert_eq!(
        format!("{:?}", data_keys(VOLUME)),
        "DataKeys { volume: VolumeId(01010101010101010101010101010101), current: DataKeyId(2), \
         older: [DataKeyId(1)], .. }"
    );
}

/// One life of a gateway: it opens the ring, and seals some objects, under numbers that other lives
/// have used as well.
fn life(ring: &[u8], entropy: &dyn Entropy) {
    let key_file = crate::KeyFile::new(vec![9; 32].into()).unwrap();
    let ring = crate::LockedRing::decode(ring).unwrap();
    let ring = ring.unlock(VOLUME, crate::Credential::KeyFile(&key_file));
    let keys = ring.unwrap().into_data_keys();
    for number in 0..20 {
        seal(&keys, number, entropy);
        // A segment of a log that was rolled back continues at the same places.
        let segment = keys.place_sealer(Purpose::Log, number, entropy);
        segment.seal_head(b"head");
        for place in [0, 64, 4096] {
            segment.seal_at(place, b"also", &mut b"record".to_vec());
        }
    }
}

fn ring(entropy: &dyn Entropy) -> (KeyRing, Vec<u8>) {
    let key_file = crate::KeyFile::new(vec![9; 32].into()).unwrap();
    let mut ring = KeyRing::create(VOLUME, 0, entropy);
    ring.add_key_file(&key_file, entropy).unwrap();
    let object = ring.encode().unwrap();
    (ring, object)
}

fn repeats(pairs: &[([u8; SECRET_LEN], [u8; NONCE_LEN])]) -> usize {
    pairs.len() - pairs.iter().collect::<HashSet<_>>().len()
}

#[test]
fn no_key_meets_a_nonce_twice_in_restarts_copies_and_rollbacks() {
    used::take();
    let entropy = SystemEntropy;
    let (mut ring, first) = ring(&entropy);
    // Restarts, which count packs from the same published number each time, as copies of the volume that are served
    // beside it and gateways whose log was rolled back do.
    for _ in 0..5 {
        life(&first, &entropy);
    }
    // The same after rotations, each written over the one before, and after the ring was rolled
    // back and rotated in another way.
    for _ in 0..3 {
        ring.rotate(1, &entropy).unwrap();
        let object = ring.encode().unwrap();
        life(&object, &entropy);
        let key_file = crate::KeyFile::new(vec![9; 32].into()).unwrap();
        let locked = crate::LockedRing::decode(&first).unwrap();
        let rolled_back = locked.unlock(VOLUME, crate::Credential::KeyFile(&key_file));
        let mut rolled_back = rolled_back.unwrap();
        rolled_back.rotate(1, &entropy).unwrap();
        life(&rolled_back.encode().unwrap(), &entropy);
    }
    let pairs = used::take();
    assert!(pairs.len() > 11 * 20 * 7, "{}", pairs.len());
    assert_eq!(repeats(&pairs), 0);
}

/// The test above would notice: if randomness repeats, nonces do.
#[test]
fn randomness_that_comes_again_is_what_it_depends_on() {
    let (_, ring) = ring(&SeededEntropy::new(1));
    used::take();
    for _ in 0..2 {
        life(&ring, &SeededEntropy::new(2));
    }
    assert_eq!(repeats(&used::take()), 20 * 7);
}
