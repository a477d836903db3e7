//! A sealed volume: works like any other, cannot be opened without its secret, and shows none of its content in any
//! place where it is stored.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Bucket, Life, assert_bytes, pattern, walk};
use forebay_fs::{Expected, FsConfig, MIN_DISK_CACHE, Unlock};
use forebay_meta::volume::keys::{RingChange, RingChanged, change};
use forebay_seal::{KeyFile, Passphrase, SlotId};
use forebay_types::Inode;
use forebay_vfs::Stability;
use forebay_view::View;

const RING: &str = "forebay.keys";
const DESCRIPTOR: &str = "forebay.volume";

/// The secret in the key file of this byte.
pub(crate) fn key_file(byte: u8) -> Arc<Unlock> {
    let content = vec![byte; KeyFile::MIN_LEN].into();
    Arc::new(Unlock::KeyFile(KeyFile::new(content).unwrap()))
}

fn passphrase(text: &str) -> Arc<Unlock> {
    let text = Passphrase::new(text.into()).unwrap();
    Arc::new(Unlock::Passphrase(text))
}

/// A sealed volume that the key file of this byte opens.
pub(crate) fn sealed(byte: u8) -> Bucket {
    Bucket::of(Expected::Sealed(key_file(byte)))
}

/// The configuration of another gateway with this expectation.
fn expecting(bucket: &Bucket, expected: Expected) -> FsConfig {
    FsConfig {
        expected,
        ..bucket.config()
    }
}

/// Changes the key ring as `forebay keys` does.
pub(crate) fn change_ring(
    bucket: &Bucket,
    life: &Life,
    own: &Arc<Unlock>,
    what: RingChange,
) -> RingChanged {
    let volume = life.volume.id();
    life.run(|_| async {
        let store = bucket.store().await;
        change(&store.store, &store.root, volume, own, 0, &what)
            .await
            .unwrap()
    })
}

fn write(life: &Life, name: &[u8], data: &[u8]) -> Inode {
    let inode = life.create(name);
    life.write(inode, 0, data, Stability::Unstable);
    inode
}

#[track_caller]
fn assert_file(life: &Life, name: &[u8], data: &[u8]) {
    let inode = life.lookup(name).inode;
    assert_bytes(&life.read(inode, 0, data.len() + 1), data);
}

#[test]
fn what_was_written_is_read_after_a_restart_a_crash_and_a_takeover() {
    let bucket = sealed(1);
    let life = bucket.start(|_| {});
    let (first, second) = (pattern(1, 5 << 20), pattern(2, 70_000));
    let zeros = vec![b'a'; 300_000];
    write(&life, b"first", &first);
    write(&life, b"zeros", &zeros);
    life.flush();
    let inode = write(&life, b"second", &second);
    life.commit(inode);
    let handles = life.volume.handle_key();
    life.crash();
    let life = bucket.start(|_| {});
    assert_file(&life, b"first", &first);
    assert_file(&life, b"second", &second);
    // An overwrite of a few bytes, within the published ones.
    life.write(
        life.lookup(b"first").inode,
        1_000_000,
        b"new",
        Stability::FileSync,
    );
    life.stop();
    let elsewhere = bucket.seen_elsewhere();
    let life = elsewhere.start(|_| {});
    let mut first = first;
    first[1_000_000..1_000_003].copy_from_slice(b"new");
    assert_file(&life, b"first", &first);
    assert_file(&life, b"second", &second);
    assert_file(&life, b"zeros", &zeros);
    assert_eq!(life.volume.handle_key(), handles, "handles stay good");
}

#[test]
fn what_a_volume_is_and_what_is_expected_of_it_have_to_agree() {
    let (sealed, open) = (sealed(1), Bucket::new());
    let refusal = sealed.refusal(expecting(&sealed, Expected::NotSealed));
    assert!(refusal.contains("is sealed; set encryption"), "{refusal}");
    let refusal = open.refusal(expecting(&open, Expected::Sealed(key_file(1))));
    assert!(refusal.contains("is not sealed"), "{refusal}");
    let refusal = sealed.refusal(expecting(&sealed, Expected::Sealed(key_file(2))));
    assert!(
        refusal.contains("opens none of the 1 key file slots"),
        "{refusal}"
    );
    let refusal = sealed.refusal(expecting(&sealed, Expected::Sealed(passphrase("a"))));
    assert!(refusal.contains("no passphrase slot"), "{refusal}");
    let life = sealed.start(|_| {});
    let base = |expected| {
        let bucket = &sealed;
        life.run(|_| async move {
            let store = bucket.store().await;
            let base = View::open(&store, &expected).await;
            base.map(|_| ()).map_err(|error| error.to_string())
        })
    };
    assert_eq!(base(Expected::Sealed(key_file(1))), Ok(()));
    assert!(base(Expected::NotSealed).is_err());
    assert!(base(Expected::Sealed(key_file(2))).is_err());
}

/// The descriptor of the same volume that says that it is not sealed. Anyone can make one.
fn said_to_be_open(descriptor: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(descriptor).unwrap();
    let (line, _) = text.split_once('\n').unwrap();
    let key = format!(r#""hash_key":"{}","sealing":"none""#, "00".repeat(32));
    let line = line
        .replace(r#""format":2"#, r#""format":1"#)
        .replace(r#""sealing":"aes-256-gcm""#, &key);
    let line = format!("{line}\n");
    let crc = crc32fast::hash(line.as_bytes());
    format!("{line}crc32 {crc:08x}\n").into_bytes()
}

/// An attacker who can write to the bucket, and has no key.
#[test]
fn a_descriptor_or_key_ring_that_somebody_has_put_there_is_refused() {
    let (bucket, other) = (sealed(1), sealed(1));
    bucket.start(|_| {}).stop();
    let own = |name: &str| fs::read(bucket.path().join(name)).unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(bucket.path().join(name), bytes).unwrap();
    let (ring, descriptor) = (own(RING), own(DESCRIPTOR));
    put(DESCRIPTOR, &said_to_be_open(&descriptor));
    let refusal = bucket.refusal(bucket.config());
    assert!(refusal.contains("is not sealed"), "{refusal}");
    put(DESCRIPTOR, &descriptor);
    put(RING, &fs::read(other.path().join(RING)).unwrap());
    let refusal = bucket.refusal(bucket.config());
    assert!(refusal.contains("belongs to volume"), "{refusal}");
    fs::remove_file(bucket.path().join(RING)).unwrap();
    let refusal = bucket.refusal(bucket.config());
    assert!(refusal.contains("is gone"), "{refusal}");
    put(RING, &ring);
    bucket.start(|_| {}).stop();
}

#[test]
fn a_key_ring_that_was_put_back_is_refused_by_a_gateway_that_has_started_with_a_newer_one() {
    let bucket = sealed(1);
    let old = fs::read(bucket.path().join(RING)).unwrap();
    let life = bucket.start(|_| {});
    change_ring(&bucket, &life, &key_file(1), RingChange::Rotate(2));
    life.stop();
    bucket.start(|_| {}).stop();
    let new = fs::read(bucket.path().join(RING)).unwrap();
    fs::write(bucket.path().join(RING), old).unwrap();
    let refusal = bucket.refusal(bucket.config());
    assert!(
        refusal.contains("an old key ring was put back"),
        "{refusal}"
    );
    fs::write(bucket.path().join(RING), new).unwrap();
    bucket.start(|_| {}).stop();
}

#[test]
fn rotation_beside_a_gateway_counts_from_its_next_start_and_old_packs_stay_readable() {
    let bucket = sealed(1);
    let (before, beside, after) = (
        pattern(1, 100_000),
        pattern(2, 100_000),
        pattern(3, 100_000),
    );
    let life = bucket.start(|_| {});
    write(&life, b"before", &before);
    life.flush();
    change_ring(&bucket, &life, &key_file(1), RingChange::Rotate(2));
    write(&life, b"beside", &beside);
    life.flush();
    let old: Vec<_> = bucket.packs();
    life.stop();
    let life = bucket.start(|_| {});
    write(&life, b"after", &after);
    life.flush();
    // Bytes 4 to 8 of a sealed frame's header, and where the first frame begins: see docs/format.md.
    let key_of = |pack: &Path| {
        let bytes = fs::read(pack).unwrap();
        let footer = &bytes[bytes.len() - 80..];
        u32::from_le_bytes(footer[12..16].try_into().unwrap())
    };
    for (pack, _) in bucket.packs() {
        let is_old = old.iter().any(|(path, _)| *path == pack);
        assert_eq!(key_of(&pack), if is_old { 1 } else { 2 });
    }
    life.stop();
    let life = bucket.seen_elsewhere().start(|_| {});
    assert_file(&life, b"before", &before);
    assert_file(&life, b"beside", &beside);
    assert_file(&life, b"after", &after);
}

#[test]
fn a_passphrase_is_changed_without_touching_anything_but_the_key_ring() {
    let (old, new) = (passphrase("old words"), passphrase("new words"));
    let bucket = Bucket::of(Expected::Sealed(old.clone()));
    let data = pattern(1, 100_000);
    let life = bucket.start(|_| {});
    write(&life, b"file", &data);
    life.flush();
    let before = bucket.objects();
    let changed = change_ring(&bucket, &life, &old, RingChange::Exchange(new.clone()));
    assert_eq!(changed, RingChanged::Exchanged(SlotId(1), SlotId(2)));
    let after = bucket.objects();
    let different: Vec<_> = after
        .iter()
        .filter(|(name, bytes)| before.get(*name) != Some(*bytes))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(different, [RING]);
    assert_eq!(before.len(), after.len());
    life.stop();
    let refusal = bucket.refusal(bucket.config());
    assert!(
        refusal.contains("opens none of the 1 passphrase"),
        "{refusal}"
    );
    let life = bucket.start(|config| config.expected = Expected::Sealed(new));
    assert_file(&life, b"file", &data);
}

/// The searched words: no part of them occurs by chance.
pub(crate) const CONTENT: &[u8] = b"the quick brown words that nobody may read";
pub(crate) const NAME: &[u8] = b"a-name-that-nobody-may-read";

/// Writes the searched words, in all the forms in which they are stored, and reads them back through the disk cache.
fn tell_all(bucket: &Bucket) {
    let with_cache = |config: &mut FsConfig| {
        config.disk_cache_limit = MIN_DISK_CACHE;
        config.memory_limit = 16 << 20;
    };
    // Compressed to a tenth they would not be readable; among random bytes they are stored raw.
    let raw = [&pattern(1, 200_000)[..], CONTENT, &pattern(2, 200_000)].concat();
    let life = bucket.start(with_cache);
    let folder = life.mkdir(Inode::ROOT, NAME);
    for n in 0..40 {
        life.create_in(folder, &[NAME, format!("-{n}").as_bytes()].concat());
        life.flush();
    }
    write(&life, b"raw", &raw);
    write(&life, b"small", CONTENT);
    life.flush();
    life.stop();
    let life = bucket.start(with_cache);
    assert_file(&life, b"raw", &raw);
    assert_file(&life, b"small", CONTENT);
    life.stop();
}

/// Names of the files below a folder that contain one of these words.
pub(crate) fn files_with(folder: &Path, words: &[&[u8]]) -> Vec<String> {
    let mut files = Vec::new();
    walk(folder, &mut files);
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let has = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let found = |word: &&[u8]| bytes.windows(word.len()).any(|part| part == *word);
        words.iter().any(found)
    };
    let found = files.iter().filter(|(path, _)| has(path));
    found
        .map(|(path, _)| path.strip_prefix(folder).unwrap().display().to_string())
        .collect()
}

#[test]
fn nothing_of_contents_and_names_is_in_the_bucket_the_disk_cache_or_the_local_folder_but_for_the_log()
 {
    let words = [CONTENT, NAME];
    // The search finds them if nothing is sealed.
    let open = Bucket::new();
    tell_all(&open);
    let found = files_with(&open.path(), &words);
    // Metadata are stored under a pad, which anyone can remove.
    assert!(
        found.iter().any(|name| name.starts_with("packs")),
        "{found:?}"
    );
    let found = files_with(open.local.path(), &words);
    assert!(
        found.iter().any(|name| name.starts_with("cache")),
        "{found:?}"
    );

    let bucket = sealed(1);
    tell_all(&bucket);
    assert_eq!(files_with(&bucket.path(), &words), [""; 0]);
    let mut found = files_with(bucket.local.path(), &words);
    found.retain(|name| !name.starts_with("log/"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_frame_on_the_local_disk_is_served_only_with_its_key_and_is_what_the_bucket_has() {
    let bucket = sealed(1);
    tell_all(&bucket);
    for (pack, _) in bucket.packs() {
        fs::remove_file(pack).unwrap();
    }
    let life = bucket.start(|config| {
        config.disk_cache_limit = MIN_DISK_CACHE;
        config.memory_limit = 16 << 20;
    });
    assert_file(&life, b"small", CONTENT);
    let status = life.volume.status().disk_cache.unwrap();
    assert!(status.hits > 0 && status.damaged == 0, "{status:?}");
}

/// Frames of a sealed volume are opened in copies, whose memory counts.
#[test]
fn reading_a_sealed_volume_stays_within_its_memory() {
    let bucket = sealed(1);
    let data = pattern(4, 40 << 20);
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    write(&life, b"large", &data);
    life.flush();
    life.evict();
    assert_file(&life, b"large", &data);
    let status = life.volume.status();
    assert!(status.memory_bytes <= status.memory_limit, "{status:?}");
}
