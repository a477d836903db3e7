//! Formatting, opening, and each way in which they are refused.

use object_store::memory::InMemory;

use super::*;

fn descriptor() -> VolumeDescriptor {
    VolumeDescriptor {
        volume: VolumeId([7; 16]),
        created: 1_700_000_000,
        block_size: BLOCK_SIZE,
        protection: Protection::None {
            hash_key: std::array::from_fn(|n| n as u8),
        },
        origin: None,
    }
}

fn bucket() -> (Arc<dyn ObjectStore>, Path) {
    (Arc::new(InMemory::new()), Path::from("some/prefix"))
}

async fn load_from(bytes: &[u8]) -> Result<VolumeDescriptor, VolumeError> {
    let (store, root) = bucket();
    let location = VolumeDescriptor::location(&root);
    store.put(&location, bytes.to_vec().into()).await.unwrap();
    VolumeDescriptor::load(&store, &root).await
}

/// The text `line` with the checksum that belongs to it.
fn with_checksum(line: &str) -> Vec<u8> {
    let crc = crc32fast::hash(format!("{line}\n").as_bytes());
    format!("{line}\ncrc32 {crc:08x}\n").into_bytes()
}

#[tokio::test]
async fn a_formatted_volume_is_found_again() {
    let (store, root) = bucket();
    VolumeDescriptor::create(&store, &root, &descriptor())
        .await
        .unwrap();
    assert_eq!(
        VolumeDescriptor::load(&store, &root).await.unwrap(),
        descriptor()
    );
    let root = Path::from("");
    let (store, _) = bucket();
    VolumeDescriptor::create(&store, &root, &descriptor())
        .await
        .unwrap();
    assert_eq!(
        VolumeDescriptor::load(&store, &root).await.unwrap(),
        descriptor()
    );
}

/// The bytes of format 1. Buckets hold them, so they must stay readable.
#[tokio::test]
async fn the_descriptor_of_format_one_stays_readable() {
    let text = r#"{"forebay":"volume","format":1,"volume":"07070707070707070707070707070707","created":1700000000,"block_size":4194304,"hash_key":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f","sealing":"none"}"#;
    assert_eq!(descriptor().encode(), with_checksum(text));
    assert_eq!(load_from(&with_checksum(text)).await.unwrap(), descriptor());
}

/// The same of the second format, that of sealed volumes.
#[tokio::test]
async fn the_descriptor_of_a_sealed_volume_has_no_key_and_is_this_text() {
    let text = r#"{"forebay":"volume","format":2,"volume":"07070707070707070707070707070707","created":1700000000,"block_size":4194304,"sealing":"aes-256-gcm"}"#;
    let sealed = VolumeDescriptor {
        protection: Protection::Aes256Gcm,
        ..descriptor()
    };
    assert_eq!(sealed.encode(), with_checksum(text));
    assert_eq!(load_from(&with_checksum(text)).await.unwrap(), sealed);
}

/// The same of the third format, that of clones.
#[tokio::test]
async fn the_descriptor_of_a_clone_names_its_sources_and_is_this_text() {
    let text = r#"{"forebay":"volume","format":3,"volume":"07070707070707070707070707070707","created":1700000000,"block_size":4194304,"sealing":"aes-256-gcm","content":"05050505050505050505050505050505","sources":[{"at":"a/b","volume":"06060606060606060606060606060606","snapshot":3,"last_epoch":9}]}"#;
    let source = origin::SourceVolume {
        at: "a/b".into(),
        volume: VolumeId([6; 16]),
        snapshot: forebay_types::SnapshotId(3),
        last_epoch: forebay_types::Epoch(9),
    };
    let clone = VolumeDescriptor {
        protection: Protection::Aes256Gcm,
        origin: Some(Origin {
            content: VolumeId([5; 16]),
            sources: vec![source],
        }),
        ..descriptor()
    };
    assert_eq!(clone.encode(), with_checksum(text));
    assert_eq!(load_from(&with_checksum(text)).await.unwrap(), clone);
    assert_eq!(clone.content(), VolumeId([5; 16]));
    for (from, to) in [
        (r#""format":3"#, r#""format":2"#),
        (r#","content":"05050505050505050505050505050505""#, ""),
        (
            r#","sources":["#,
            r#","sources":[{"at":"c","volume":"06060606060606060606060606060606","snapshot":3,"last_epoch":10},"#,
        ),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        let error = load_from(&with_checksum(&changed)).await.unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { .. }), "{error}");
    }
    let later = text.replace(r#""format":3"#, r#""format":4"#);
    let error = load_from(&with_checksum(&later)).await.unwrap_err();
    assert!(
        matches!(error, VolumeError::Newer { found: 4, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_descriptor_is_replaced_only_if_it_is_the_one_that_was_read() {
    let (store, root) = bucket();
    let next = VolumeDescriptor {
        created: 5,
        ..descriptor()
    };
    VolumeDescriptor::publish(&store, &root, &descriptor())
        .await
        .unwrap();
    assert!(!next.replace(&store, &root, &descriptor()).await.unwrap());
    assert!(descriptor().replace(&store, &root, &next).await.unwrap());
    assert_eq!(VolumeDescriptor::load(&store, &root).await.unwrap(), next);
}

#[tokio::test]
async fn formatting_twice_is_refused_and_changes_nothing() {
    let (store, root) = bucket();
    VolumeDescriptor::create(&store, &root, &descriptor())
        .await
        .unwrap();
    let other = VolumeDescriptor {
        volume: VolumeId([8; 16]),
        ..descriptor()
    };
    let error = VolumeDescriptor::create(&store, &root, &other)
        .await
        .unwrap_err();
    assert!(
        matches!(error, VolumeError::AlreadyFormatted { .. }),
        "{error}"
    );
    assert_eq!(
        VolumeDescriptor::load(&store, &root).await.unwrap(),
        descriptor()
    );
}

#[tokio::test]
async fn of_two_formats_at_once_one_wins() {
    let (store, root) = bucket();
    let descriptor = descriptor();
    let create = || VolumeDescriptor::create(&store, &root, &descriptor);
    let results = tokio::join!(create(), create(), create());
    let results = [results.0, results.1, results.2];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
}

#[tokio::test]
async fn an_empty_prefix_is_not_formatted() {
    let (store, root) = bucket();
    // An object of a neighbour whose name begins with the same letters.
    store
        .put(&Path::from("some/prefix2/file"), "x".into())
        .await
        .unwrap();
    let error = VolumeDescriptor::load(&store, &root).await.unwrap_err();
    assert!(matches!(error, VolumeError::NotFormatted { .. }), "{error}");
    assert!(error.to_string().contains("forebay format"), "{error}");
}

#[tokio::test]
async fn a_prefix_with_other_objects_is_left_alone() {
    let (store, root) = bucket();
    store
        .put(&Path::from("some/prefix/holiday.jpg"), "x".into())
        .await
        .unwrap();
    for error in [
        VolumeDescriptor::load(&store, &root).await.unwrap_err(),
        VolumeDescriptor::create(&store, &root, &descriptor())
            .await
            .unwrap_err(),
    ] {
        assert!(matches!(error, VolumeError::NotAVolume { .. }), "{error}");
        assert!(error.to_string().contains("holiday.jpg"), "{error}");
    }
}

#[tokio::test]
async fn a_newer_format_is_named_whatever_else_it_says() {
    let newer = with_checksum(r#"{"forebay":"volume","format":9,"sealing":{"with":"care"}}"#);
    let error = load_from(&newer).await.unwrap_err();
    assert!(
        matches!(
            error,
            VolumeError::Newer {
                found: 9,
                supported: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn every_damaged_byte_is_noticed() {
    // A checksum with a letter in it, which would mean the same as a capital.
    let of = |created| VolumeDescriptor {
        created,
        ..descriptor()
    };
    let has_letter = |text: &Vec<u8>| text[text.len() - 9..].iter().any(u8::is_ascii_lowercase);
    let good = (0..).map(|created| of(created).encode()).find(has_letter);
    let good = good.unwrap();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            let error = load_from(&bytes).await.unwrap_err();
            assert!(
                matches!(error, VolumeError::Damaged { .. }),
                "byte {at}, bit {bit}: {error}"
            );
        }
    }
    for len in 0..good.len() {
        let error = load_from(&good[..len]).await.unwrap_err();
        assert!(
            matches!(error, VolumeError::Damaged { .. }),
            "cut off at {len}: {error}"
        );
    }
}

#[tokio::test]
async fn what_is_intact_but_no_descriptor_of_ours_is_refused() {
    let id = "07070707070707070707070707070707";
    let key = "00".repeat(32);
    let text = |block_size: u32, id: &str, key: &str, sealing: &str| {
        with_checksum(&format!(
            r#"{{"forebay":"volume","format":1,"volume":"{id}","created":1,"block_size":{block_size},"hash_key":"{key}","sealing":"{sealing}"}}"#
        ))
    };
    load_from(&text(4 << 20, id, &key, "none")).await.unwrap();
    let no_key = format!(
        r#"{{"forebay":"volume","format":1,"volume":"{id}","created":1,"block_size":4194304,"sealing":"none"}}"#
    );
    let sealed_with_key = format!(
        r#"{{"forebay":"volume","format":2,"volume":"{id}","created":1,"block_size":4194304,"hash_key":"{key}","sealing":"aes-256-gcm"}}"#
    );
    let long = vec![b'x'; MAX_DESCRIPTOR_BYTES as usize + 1];
    for bytes in [
        text(1 << 20, id, &key, "none"),
        text(4 << 20, "07", &key, "none"),
        text(4 << 20, id, "00", "none"),
        text(4 << 20, id, &"0g".repeat(32), "none"),
        text(4 << 20, id, &key, "aes"),
        text(4 << 20, id, &key, "aes-256-gcm"),
        with_checksum(&no_key),
        with_checksum(&sealed_with_key),
        with_checksum("{}"),
        with_checksum(r#"{"forebay":"pack","format":1}"#),
        long,
    ] {
        let error = load_from(&bytes).await.unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { .. }), "{error}");
    }
}

#[test]
fn the_key_is_not_shown() {
    let text = format!("{:?}", descriptor());
    assert!(
        !text.contains("hash_key") && !text.contains("1, 2, 3"),
        "{text}"
    );
}
