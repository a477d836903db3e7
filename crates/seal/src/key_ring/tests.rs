//! Creating, opening and changing key rings, and refusing damaged, changed and old ones.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::{Credential, FakeKeyService, SeededEntropy};

const VOLUME: VolumeId = VolumeId([1; 16]);
const CHEAP: Argon2Cost = Argon2Cost {
    memory_kib: 8,
    passes: 1,
    lanes: 1,
};

/// Polls once: the fake service answers at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the fake key service answers at once"),
    }
}

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.into()).unwrap()
}

fn key_file(byte: u8) -> KeyFile {
    KeyFile::new(vec![byte; 40].into()).unwrap()
}

fn open_with(object: &[u8], text: &str) -> Result<KeyRing, RingError> {
    let passphrase = passphrase(text);
    LockedRing::decode(object)?.unlock(VOLUME, Credential::Passphrase(&passphrase))
}

fn entropy() -> SeededEntropy {
    SeededEntropy::new(1)
}

/// A ring with one slot of each kind.
fn sample() -> (KeyRing, Vec<u8>) {
    let entropy = entropy();
    let mut ring = KeyRing::create(VOLUME, 1_800_000_000, &entropy);
    let passphrase = passphrase("open sesame");
    let ids = [
        ring.add_passphrase(&passphrase, CHEAP, &entropy),
        ring.add_key_file(&key_file(7), &entropy),
        now(ring.add_service(&FakeKeyService::new("main"))),
    ];
    assert_eq!(ids, [1, 2, 3].map(|id| Ok(SlotId(id))));
    let object = ring.encode().unwrap();
    (ring, object)
}

/// The secrets of a ring, for comparison: the volume key and the data keys.
fn secrets(ring: &KeyRing) -> Vec<[u8; 32]> {
    let data_keys = ring.data_keys.values().map(|(_, secret)| *secret.expose());
    std::iter::once(*ring.volume_key.expose())
        .chain(data_keys)
        .collect()
}

/// The object with a changed first line under a right checksum, as an attacker without keys would make it.
fn rewritten(object: &[u8], change: impl FnOnce(String) -> String) -> Vec<u8> {
    let text = String::from_utf8(object.to_vec()).unwrap();
    let lines = text.rsplit_once("crc32").unwrap().0;
    let changed = change(lines.into());
    let crc32 = crc32fast::hash(changed.as_bytes());
    format!("{changed}crc32 {crc32:08x}\n").into_bytes()
}

#[test]
fn each_kind_of_slot_opens_the_same_keys() {
    let (ring, object) = sample();
    let locked = LockedRing::decode(&object).unwrap();
    assert_eq!((locked.volume(), locked.generation()), (VOLUME, 1));
    let key_file = key_file(7);
    let service = FakeKeyService::new("main");
    for opened in [
        open_with(&object, "open sesame").unwrap(),
        locked
            .unlock(VOLUME, Credential::KeyFile(&key_file))
            .unwrap(),
        now(locked.unlock_with_service(VOLUME, &service)).unwrap(),
    ] {
        assert_eq!(secrets(&opened), secrets(&ring));
        assert_eq!(opened.generation(), 1);
        assert!(opened.slots().eq(ring.slots()));
        let data_keys: Vec<_> = opened.data_keys().collect();
        assert_eq!(data_keys, [(DataKeyId(1), 1_800_000_000)]);
        assert_eq!(opened.into_data_keys().current(), DataKeyId(1));
    }
    let kinds: Vec<_> = locked.slots().map(|slot| slot.kind).collect();
    let service = SlotKind::Service {
        service: "fake".into(),
        key: "main".into(),
    };
    assert_eq!(
        kinds,
        [SlotKind::Passphrase(CHEAP), SlotKind::KeyFile, service]
    );
}

#[test]
fn wrong_credentials_are_told_from_damage() {
    let (_, object) = sample();
    let locked = LockedRing::decode(&object).unwrap();
    assert_eq!(
        open_with(&object, "open Sesame").unwrap_err(),
        RingError::WrongPassphrase { slots: 1 }
    );
    let wrong = key_file(8);
    let opened = locked.unlock(VOLUME, Credential::KeyFile(&wrong));
    assert_eq!(opened.unwrap_err(), RingError::WrongKeyFile { slots: 1 });
    let opened = now(locked.unlock_with_service(VOLUME, &FakeKeyService::new("other")));
    assert_eq!(
        opened.unwrap_err(),
        RingError::Service(ServiceError::Refused("it has no key main".into()))
    );
    let mut away = FakeKeyService::new("main");
    away.fault = Some(ServiceError::Unavailable("timed out".into()));
    let opened = now(locked.unlock_with_service(VOLUME, &away));
    assert!(matches!(
        opened.unwrap_err(),
        RingError::Service(ServiceError::Unavailable(_))
    ));
}

#[test]
fn a_service_that_does_not_unwrap_what_it_wraps_gets_no_slot() {
    let (mut ring, _) = sample();
    let before = ring.encode().unwrap();
    let refused = ServiceError::Refused("kms:Decrypt is not allowed".into());
    for (unwraps, error) in [
        (Err(refused.clone()), refused),
        (
            Ok([7; 32]),
            ServiceError::Refused("the unwrapped key differs from the wrapped one".into()),
        ),
    ] {
        let mut service = FakeKeyService::new("new");
        service.unwraps = Some(unwraps);
        let added = now(ring.add_service(&service));
        assert_eq!(added.unwrap_err(), RingError::Service(error));
    }
    let slots = |object: &[u8]| LockedRing::decode(object).unwrap().slots().count();
    assert_eq!(slots(&ring.encode().unwrap()), slots(&before));
}

#[test]
fn a_slot_that_this_machine_has_no_memory_for_does_not_keep_another_from_opening() {
    let (mut opened, _) = sample();
    // Bounds are checked when a ring is read, so this stands for insufficient memory.
    let Some(Slot::Passphrase { cost, .. }) = opened.slots.get_mut(&SlotId(1)) else {
        panic!("the first slot is for a passphrase");
    };
    cost.memory_kib = u32::MAX;
    let content = |ring: &KeyRing| text::Content {
        volume: ring.volume,
        generation: ring.generation,
        slots: ring.slots.clone(),
        data_keys: ring
            .data_keys
            .iter()
            .map(|(id, (sealed, _))| (*id, sealed.clone()))
            .collect(),
    };
    let too_costly = LockedRing::of_content(content(&opened), &opened.volume_key);
    let second = passphrase("open barley");
    opened.add_passphrase(&second, CHEAP, &entropy()).unwrap();
    let beside = LockedRing::of_content(content(&opened), &opened.volume_key);
    let open = |ring: &LockedRing| {
        ring.unlock(VOLUME, Credential::Passphrase(&second))
            .map(|_| ())
    };
    assert_eq!(open(&beside), Ok(()));
    assert_eq!(open(&too_costly), Err(RingError::Cost(InvalidCost::Bounds)));
}

#[test]
fn a_ring_without_the_kind_of_slot_says_so() {
    let entropy = entropy();
    let mut ring = KeyRing::create(VOLUME, 0, &entropy);
    ring.add_key_file(&key_file(7), &entropy).unwrap();
    let object = ring.encode().unwrap();
    assert_eq!(
        open_with(&object, "any").unwrap_err(),
        RingError::NoSlotFor("passphrase")
    );
    let locked = LockedRing::decode(&object).unwrap();
    let opened = now(locked.unlock_with_service(VOLUME, &FakeKeyService::new("main")));
    assert_eq!(opened.unwrap_err(), RingError::NoSlotFor("key service"));
}

#[test]
fn a_changed_passphrase_opens_the_same_keys_and_the_old_one_opens_nothing() {
    let (ring, before) = sample();
    let mut opened = open_with(&before, "open sesame").unwrap();
    let new = passphrase("open barley");
    opened.add_passphrase(&new, CHEAP, &entropy()).unwrap();
    opened.remove_slot(SlotId(1)).unwrap();
    let after = opened.encode().unwrap();
    let again = open_with(&after, "open barley").unwrap();
    assert_eq!(secrets(&again), secrets(&ring));
    assert_eq!(again.generation(), 2);
    assert_eq!(
        open_with(&after, "open sesame").unwrap_err(),
        RingError::WrongPassphrase { slots: 1 }
    );
}

#[test]
fn the_last_slot_stays() {
    let (mut ring, _) = sample();
    assert_eq!(
        ring.remove_slot(SlotId(9)),
        Err(RingError::NoSuchSlot(SlotId(9)))
    );
    ring.remove_slot(SlotId(1)).unwrap();
    ring.remove_slot(SlotId(3)).unwrap();
    assert_eq!(ring.remove_slot(SlotId(2)), Err(RingError::LastSlot));
    let mut empty = KeyRing::create(VOLUME, 0, &entropy());
    assert_eq!(empty.encode(), Err(RingError::LastSlot));
}

#[test]
fn rotation_adds_a_data_key_and_keeps_the_others() {
    let (mut ring, _) = sample();
    let before = secrets(&ring);
    assert_eq!(
        ring.rotate(1_900_000_000, &SeededEntropy::new(2)),
        Ok(DataKeyId(2))
    );
    let object = ring.encode().unwrap();
    let opened = open_with(&object, "open sesame").unwrap();
    let after = secrets(&opened);
    assert_eq!(after[..2], before);
    assert_eq!(after.len(), 3);
    assert!(!before.contains(&after[2]));
    let created: Vec<_> = opened.data_keys().map(|(_, created)| created).collect();
    assert_eq!(created, [1_800_000_000, 1_900_000_000]);
    assert_eq!(opened.into_data_keys().current(), DataKeyId(2));
}

#[test]
fn limits_are_refused_with_what_there_is_too_much_of() {
    let entropy = entropy();
    let (mut ring, _) = sample();
    for _ in 3..MAX_SLOTS {
        ring.add_key_file(&key_file(7), &entropy).unwrap();
    }
    assert_eq!(
        ring.add_key_file(&key_file(7), &entropy),
        Err(RingError::TooMuch("slots"))
    );
    for _ in 1..MAX_DATA_KEYS {
        ring.rotate(u64::MAX, &entropy).unwrap();
    }
    assert_eq!(
        ring.rotate(0, &entropy),
        Err(RingError::TooMuch("data keys"))
    );
    let object = ring.encode().unwrap();
    assert!(object.len() < MAX_KEY_RING_LEN);
    open_with(&object, "open sesame").unwrap();
}

#[test]
fn an_older_generation_is_noticed() {
    let (mut ring, first) = sample();
    ring.encode().unwrap();
    let opened = open_with(&first, "open sesame").unwrap();
    assert_eq!(
        opened.not_older_than(ring.generation()).unwrap_err(),
        RingError::Older { found: 1, seen: 2 }
    );
    assert!(
        open_with(&first, "open sesame")
            .unwrap()
            .not_older_than(1)
            .is_ok()
    );
}

#[test]
fn the_ring_of_another_volume_is_refused_even_under_this_ones_name() {
    let entropy = entropy();
    let mut other = KeyRing::create(VolumeId([2; 16]), 0, &entropy);
    let pass = passphrase("open sesame");
    other.add_passphrase(&pass, CHEAP, &entropy).unwrap();
    let object = other.encode().unwrap();
    assert_eq!(
        open_with(&object, "open sesame").unwrap_err(),
        RingError::OtherVolume {
            found: VolumeId([2; 16]),
            expected: VOLUME
        }
    );
    let (theirs, ours) = (VolumeId([2; 16]).to_string(), VOLUME.to_string());
    let renamed = rewritten(&object, |text| text.replace(&theirs, &ours));
    assert_eq!(
        open_with(&renamed, "open sesame").unwrap_err(),
        RingError::WrongPassphrase { slots: 1 }
    );
}

#[test]
fn what_was_changed_without_the_keys_is_noticed() {
    let (mut ring, object) = sample();
    ring.rotate(0, &entropy()).unwrap();
    ring.remove_slot(SlotId(3)).unwrap();
    let next = ring.encode().unwrap();
    let changed = |change: &dyn Fn(String) -> String| {
        open_with(&rewritten(&object, change), "open sesame").unwrap_err()
    };
    let generation = |text: String| text.replace(r#""generation":1,"#, r#""generation":9,"#);
    assert_eq!(changed(&generation), RingError::Changed);
    let created = |text: String| text.replace("1800000000", "1800000001");
    assert_eq!(changed(&created), RingError::Changed);
    let key = |text: String| text.replace(r#""key":"main""#, r#""key":"mine""#);
    assert_eq!(changed(&key), RingError::Changed);
    // The slots of one generation with the MAC of another.
    let other_mac = String::from_utf8(next).unwrap();
    let other_mac = other_mac.lines().nth(1).unwrap().to_owned();
    let mac = |text: String| format!("{}\n{other_mac}\n", text.lines().next().unwrap());
    assert_eq!(changed(&mac), RingError::Changed);
    // A cost that makes guessing cheaper gives another key, so it does not help an attacker.
    let cost = |text: String| text.replace(r#""memory_kib":8"#, r#""memory_kib":9"#);
    assert_eq!(changed(&cost), RingError::WrongPassphrase { slots: 1 });
}

#[test]
fn a_newer_format_is_named_before_its_fields_are_looked_at() {
    let (_, object) = sample();
    let newer = rewritten(&object, |text| {
        text.replace(r#""format":1"#, r#""format":2,"unheard":0"#)
    });
    assert_eq!(
        LockedRing::decode(&newer).unwrap_err(),
        RingError::Newer { found: 2 }
    );
}

#[test]
fn every_flipped_byte_is_noticed_with_the_checksum_repaired_or_not() {
    let (_, object) = sample();
    let pass = passphrase("open sesame");
    for at in 0..object.len() {
        for mask in [0x01, 0x20, 0x80] {
            let mut damaged = object.clone();
            damaged[at] ^= mask;
            let error = LockedRing::decode(&damaged).map(|_| ()).unwrap_err();
            assert!(matches!(error, RingError::Damaged(_)), "byte {at}: {error}");
            // The checksum is repaired if the text still has three lines.
            let Some(body) = damaged.len().checked_sub("crc32 00000000\n".len()) else {
                continue;
            };
            if at >= body {
                continue;
            }
            let crc32 = crc32fast::hash(&damaged[..body]);
            damaged.truncate(body);
            damaged.extend(format!("crc32 {crc32:08x}\n").into_bytes());
            let opened = LockedRing::decode(&damaged)
                .and_then(|ring| ring.unlock(VOLUME, Credential::Passphrase(&pass)));
            assert!(opened.is_err(), "byte {at} ^ {mask:#x}");
        }
    }
}

#[test]
fn a_ring_cut_anywhere_is_damaged() {
    let (_, object) = sample();
    for len in 0..object.len() {
        let error = LockedRing::decode(&object[..len]).unwrap_err();
        assert!(matches!(error, RingError::Damaged(_)), "{len}");
    }
    assert!(LockedRing::decode(&vec![b'\n'; MAX_KEY_RING_LEN + 1]).is_err());
}

#[test]
fn fields_that_none_is_written_with_are_refused_before_anything_costs_memory() {
    let (_, object) = sample();
    for (from, to) in [
        (r#""memory_kib":8"#, r#""memory_kib":4000000000"#),
        (r#""lanes":1"#, r#""lanes":0"#),
        (r#""id":2"#, r#""id":1"#),
        (r#""id":3"#, r#""id":0"#),
        (r#""salt":""#, r#""salt":"0"#),
        (r#""wrapped":""#, r#""wrapped":"g"#),
        (r#""kind":"key-file""#, r#""kind":"key-safe""#),
        (r#""forebay":"keys""#, r#""forebay":"volume""#),
    ] {
        let damaged = rewritten(&object, |text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let error = LockedRing::decode(&damaged).unwrap_err();
        assert!(matches!(error, RingError::Damaged(_)), "{to}: {error}");
    }
}

#[test]
fn neither_debug_output_nor_errors_show_a_key() {
    let (ring, object) = sample();
    let locked = LockedRing::decode(&object).unwrap();
    let shown = format!(
        "{ring:?} {locked:?} {:?}",
        open_with(&object, "wrong words")
    );
    assert!(shown.contains("KeyRing") && shown.contains("WrongPassphrase"));
    for secret in secrets(&ring) {
        let as_list = format!("{secret:?}");
        let first_bytes = as_list.trim_matches(['[', ']']);
        assert!(!shown.contains(&first_bytes[..20]), "{shown}");
        assert!(
            !shown.contains(&crate::hex::encode(&secret[..8])),
            "{shown}"
        );
    }
    assert!(!shown.contains("wrong words") && !shown.contains("sesame"));
}

/// The layout of version 1 stays readable for ever.
#[test]
fn golden_ring_is_opened() {
    let golden = include_bytes!("../../tests/fixtures/ring-v1.keys");
    let (ring, object) = sample();
    assert_eq!(object, golden, "randomness from a seed gives the same ring");
    let opened = open_with(golden, "open sesame").unwrap();
    assert_eq!(secrets(&opened), secrets(&ring));
}

#[test]
#[ignore = "writes tests/fixtures, which are made once per version of the format"]
fn write_fixtures() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ring-v1.keys"), sample().1).unwrap();
}
