//! Each byte of a small volume is changed, one at a time; each object is deleted, cut off, and swapped with each other
//! one. After each damage, another machine that attaches the bucket reads the bytes that were written or gets an error,
//! nothing panics, and the check of the bucket reports the damage. The same is done with volumes of each kind: plain,
//! sealed, with deduplication, and both.
//!
//! All bytes take minutes, so that by default one in some is tried, different ones each time; all with
//! `FOREBAY_TAMPER=all`, those of one seed with `FOREBAY_TAMPER=<seed>`. The number tried is printed (`--nocapture`).

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_fs::{Dedup, Expected, FsConfig, LogConfig, Volume};
use forebay_fsck::{Options, Progress, check};
use forebay_meta::volume::holder::HOLDER_NAME;
use forebay_meta::volume::keys::VolumeKeys;
use forebay_meta::{SlateObjects, VolumeDescriptor};
use forebay_object::{RetrySettings, Store};
use forebay_types::Inode;
use forebay_vfs::{Error, FileKind, FileSystem, NewNode, SetAttributes};
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{Dice, WHO, create, key_file, make_directory, noise, write};

/// How long a reader waits, by a clock that advances when all tasks are idle.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A bucket: its objects by their names.
type Bucket = BTreeMap<Path, Bytes>;

/// Contents of a volume: files, and targets of links, by their paths from the root.
type Contents = BTreeMap<String, Vec<u8>>;

async fn store_of(bucket: &Bucket) -> Store {
    let memory = InMemory::new();
    for (path, bytes) in bucket {
        memory.put(path, bytes.clone().into()).await.unwrap();
    }
    as_store(Arc::new(memory))
}

fn as_store(memory: Arc<InMemory>) -> Store {
    Store::new(
        memory,
        Path::default(),
        "memory://".to_owned(),
        RetrySettings::default(),
    )
}

async fn objects_of(store: &InMemory) -> Bucket {
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut bucket = Bucket::new();
    for object in listed {
        let bytes = store
            .get(&object.location)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        bucket.insert(object.location, bytes);
    }
    bucket
}

/// Kind of a volume.
#[derive(Clone, Copy, Debug)]
struct Kind {
    sealed: bool,
    dedup: bool,
}

impl Kind {
    fn expected(self) -> Expected {
        match self.sealed {
            true => key_file(1),
            false => Expected::NotSealed,
        }
    }

    fn config(self, local: &std::path::Path) -> FsConfig {
        let mut config = FsConfig::new(local.to_owned());
        config.expected = self.expected();
        config.log = LogConfig::None;
        config.memory_limit = 16 << 20;
        if self.dedup {
            config.dedup = Dedup::Full;
        }
        config
    }
}

/// A volume with some of everything: names, links, frames compressed and not, a frame whose content is also written
/// elsewhere, partly overwritten frames, a removed file, and metadata in several tables.
async fn small_volume(kind: Kind) -> Bucket {
    let local = tempfile::tempdir().unwrap();
    let memory = Arc::new(InMemory::new());
    let store = as_store(memory.clone());
    let expected = kind.expected();
    Volume::format_as(&store, &expected).await.unwrap();
    let opened = Volume::open(&store, kind.config(local.path()));
    let volume = opened.await.unwrap();
    let folder = make_directory(&volume, Inode::ROOT, "folder").await;
    let text = create(&volume, folder, "text").await;
    write(&volume, text, 0, "to be compressed, ".repeat(60).as_bytes()).await;
    let raw = create(&volume, folder, "raw").await;
    write(&volume, raw, 0, &noise(1, 1100)).await;
    let set = SetAttributes::default();
    let link = NewNode::Symlink(b"folder/raw");
    let made = volume.make(&WHO, Inode::ROOT, b"link", link, &set);
    made.await.unwrap();
    let gone = create(&volume, Inode::ROOT, "gone").await;
    write(&volume, gone, 0, &noise(2, 300)).await;
    volume.flush().await.unwrap();
    let again = create(&volume, folder, "again").await;
    write(&volume, again, 0, &noise(1, 1100)).await;
    write(&volume, raw, 100, &noise(3, 50)).await;
    volume.remove(&WHO, Inode::ROOT, b"gone").await.unwrap();
    let holes = create(&volume, Inode::ROOT, "holes").await;
    write(&volume, holes, 5 << 20, b"behind a hole").await;
    volume.flush().await.unwrap();
    let saved = volume.status().dedup.map(|status| status.saved_bytes);
    assert_eq!(saved, kind.dedup.then_some(1100));
    volume.close(Duration::from_secs(60)).await;
    objects_of(&memory).await
}

/// Reads everything. Things that cannot be read are missing from the contents; their errors are returned beside them.
async fn read_all(kind: Kind, bucket: &Bucket) -> (Contents, Vec<String>) {
    let local = tempfile::tempdir().unwrap();
    let store = store_of(bucket).await;
    let opened = Volume::open(&store, kind.config(local.path()));
    let opened = tokio::time::timeout(TIMEOUT, opened);
    let volume = match opened.await {
        Ok(Ok(volume)) => volume,
        Ok(Err(error)) => return (Contents::new(), vec![format!("not opened: {error}")]),
        Err(_) => return (Contents::new(), vec!["not opened in time".to_owned()]),
    };
    let (mut contents, mut errors) = (Contents::new(), Vec::new());
    for name in [
        "/",
        "/folder",
        "/folder/text",
        "/folder/raw",
        "/folder/again",
        "/link",
        "/holes",
        "/gone",
    ] {
        let read = tokio::time::timeout(TIMEOUT, read_one(&volume, name));
        match read.await {
            Ok(Ok(Some(bytes))) => drop(contents.insert(name.to_owned(), bytes)),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => errors.push(format!("{name}: {error:?}")),
            Err(_) => errors.push(format!("{name}: not in time")),
        }
    }
    (contents, errors)
}

/// The bytes of a file, the target of a link, the names in a directory; `None` if there is no such object.
async fn read_one(volume: &Volume, path: &str) -> Result<Option<Vec<u8>>, Error> {
    let mut inode = Inode::ROOT;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        inode = match volume.lookup(&WHO, inode, name.as_bytes()).await {
            Ok(found) => found.inode,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    let attributes = volume.getattr(inode).await?;
    match attributes.kind {
        FileKind::Directory => {
            let listing = volume.readdir(&WHO, inode, 0, 100, true).await?;
            let names = listing
                .entries
                .iter()
                .flat_map(|entry| [&entry.name[..], b"\n"]);
            Ok(Some(names.collect::<Vec<_>>().concat()))
        }
        FileKind::Symlink => Ok(Some(volume.readlink(&WHO, inode).await?.0.to_vec())),
        _ => {
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < attributes.size {
                let read = volume
                    .read(&WHO, inode, bytes.len() as u64, 1 << 20)
                    .await?;
                bytes.extend(read.data.iter().flat_map(|piece| piece.iter()));
            }
            Ok(Some(bytes))
        }
    }
}

/// The findings of a check as one text; `None` if the volume is consistent.
async fn check_all(kind: Kind, bucket: &Bucket) -> Option<String> {
    let store = store_of(bucket).await;
    let options = Options {
        expected: kind.expected(),
        read_data: true,
        ..Options::default()
    };
    let progress = Arc::new(Progress::default());
    let checked = check(store.store.clone(), store.root.clone(), &options, progress);
    match tokio::time::timeout(TIMEOUT, checked).await {
        Ok(Ok(report)) if report.is_clean() => None,
        Ok(Ok(report)) => {
            let kept = report.findings.kinds().flat_map(|(_, _, kept)| kept);
            let lines: Vec<_> = kept.map(ToString::to_string).collect();
            Some(lines.join("; "))
        }
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("not checked in time".to_owned()),
    }
}

/// A damage to a bucket.
#[derive(Clone, Debug)]
enum Damage {
    /// Flips bits of the byte at this offset.
    Flip(Path, usize, u8),
    Delete(Path),
    /// Cuts an object off to this length.
    Cut(Path, usize),
    Swap(Path, Path),
}

impl Damage {
    fn apply(&self, bucket: &mut Bucket) {
        match self {
            Damage::Flip(path, at, bits) => {
                let mut bytes = bucket[path].to_vec();
                bytes[*at] ^= bits;
                bucket.insert(path.clone(), bytes.into());
            }
            Damage::Delete(path) => drop(bucket.remove(path)),
            Damage::Cut(path, len) => {
                let bytes = bucket[path].slice(..*len);
                bucket.insert(path.clone(), bytes);
            }
            Damage::Swap(one, other) => {
                let (a, b) = (bucket[one].clone(), bucket[other].clone());
                bucket.insert(one.clone(), b);
                bucket.insert(other.clone(), a);
            }
        }
    }

    fn objects(&self) -> Vec<&Path> {
        match self {
            Damage::Flip(path, ..) | Damage::Delete(path) | Damage::Cut(path, _) => vec![path],
            Damage::Swap(one, other) => vec![one, other],
        }
    }
}

/// A small volume, and its contents.
struct Intact {
    kind: Kind,
    bucket: Bucket,
    contents: Contents,
    /// Objects whose damage must be found: all that some reader needs.
    needed: BTreeSet<Path>,
    /// Those of them that only name the newest moment: without them the volume has the moment before, and nothing in
    /// the bucket shows that (docs/threat-model.md).
    notes: BTreeSet<Path>,
}

impl Intact {
    async fn new(kind: Kind) -> Intact {
        let bucket = small_volume(kind).await;
        let (contents, errors) = read_all(kind, &bucket).await;
        assert_eq!((errors, contents.len()), (Vec::new(), 7));
        assert_eq!(check_all(kind, &bucket).await, None);
        let Store { store, root, .. } = store_of(&bucket).await;
        let descriptor = VolumeDescriptor::load(&store, &root).await.unwrap();
        let expected = kind.expected();
        let keys = VolumeKeys::load(&store, &root, &descriptor, &expected, 0);
        let sealing = keys.await.unwrap().sealing();
        let parts = SlateObjects::new(store, Path::from("meta"), TIMEOUT, sealing);
        let (mut needed, mut notes) = (BTreeSet::new(), BTreeSet::new());
        for part in parts.list().await.unwrap() {
            if !part.is_table() {
                notes.insert(part.location.clone());
            }
            needed.insert(part.location);
        }
        let others = bucket
            .keys()
            .filter(|path| !path.as_ref().starts_with("meta/"));
        needed.extend(others.cloned());
        // Without it the volume looks like one that no gateway holds; gateways read it, and no reader needs it.
        notes.insert(Path::from(HOLDER_NAME));
        Intact {
            kind,
            bucket,
            contents,
            needed,
            notes,
        }
    }

    /// Checks that this damage is found and no wrong byte is read; returns what went wrong otherwise.
    fn bears(&self, damage: &Damage) -> Result<(), String> {
        let mut bucket = self.bucket.clone();
        damage.apply(&mut bucket);
        if bucket == self.bucket {
            return Ok(());
        }
        let (contents, errors) = in_own_time(read_all(self.kind, &bucket));
        let wrong = |(name, bytes): (&String, &Vec<u8>)| self.contents.get(name) != Some(bytes);
        if let Some((name, _)) = contents.iter().find(|entry| wrong(*entry)) {
            return Err(format!("{name} was read wrong"));
        }
        if contents.len() < self.contents.len() && errors.is_empty() {
            return Err("something is missing, and no error said so".to_owned());
        }
        let said = in_own_time(check_all(self.kind, &bucket));
        let objects = damage.objects();
        if !objects.iter().any(|path| self.needed.contains(path)) {
            return match (errors.first(), said) {
                (None, None) => Ok(()),
                (error, said) => Err(format!("no gateway needs it, but {error:?}, {said:?}")),
            };
        }
        let named = |said: &String| {
            let names = objects.iter().filter_map(|path| path.filename());
            names.into_iter().any(|name| said.contains(name))
        };
        match said {
            Some(said) if named(&said) => Ok(()),
            // Deleted and not replaced: see `notes`.
            None if matches!(damage, Damage::Delete(path) if self.notes.contains(path)) => Ok(()),
            said => Err(format!(
                "the check does not name it: {said:?}; readers: {errors:?}"
            )),
        }
    }
}

/// Runs a future to its end on a paused clock, so that waiting takes no time.
fn in_own_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let out = runtime.block_on(future);
    runtime.shutdown_background();
    out
}

/// All possible damages, or some of them.
fn damages(bucket: &Bucket, which: Which) -> Vec<Damage> {
    let mut dice = Dice(match which {
        Which::All => 1,
        Which::Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
    });
    let mut damages = Vec::new();
    for (path, bytes) in bucket {
        // Only some objects of each kind of volume, so that all kinds together take seconds.
        if which != Which::All && dice.below(3) > 0 {
            continue;
        }
        let len = bytes.len() as u64;
        damages.push(Damage::Delete(path.clone()));
        let bits = |dice: &mut Dice| 1 << dice.below(8);
        match which {
            Which::All => {
                let flips = 0..bytes.len();
                damages.extend(flips.map(|at| Damage::Flip(path.clone(), at, bits(&mut dice))));
                let cuts = (0..bytes.len()).step_by(13);
                damages.extend(cuts.map(|at| Damage::Cut(path.clone(), at)));
            }
            Which::Some(_) if len > 0 => {
                let at = dice.below(len) as usize;
                damages.push(Damage::Flip(path.clone(), at, bits(&mut dice)));
                damages.push(Damage::Cut(path.clone(), dice.below(len) as usize));
            }
            Which::Some(_) => {}
        }
        let behind = bucket.range((Bound::Excluded(path.clone()), Bound::Unbounded));
        for (other, _) in behind {
            if which == Which::All || dice.below(10) == 0 {
                damages.push(Damage::Swap(path.clone(), other.clone()));
            }
        }
    }
    damages
}

#[derive(Clone, Copy, PartialEq)]
enum Which {
    All,
    Some(u64),
}

#[expect(clippy::disallowed_methods, reason = "each run takes other damages")]
fn which() -> Which {
    match std::env::var("FOREBAY_TAMPER") {
        Ok(all) if all == "all" => Which::All,
        Ok(seed) => Which::Some(seed.parse().expect("FOREBAY_TAMPER is all or a number")),
        Err(_) => Which::Some(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs(),
        ),
    }
}

/// Tries all damages on a volume of this kind.
#[track_caller]
fn is_found_and_never_served(kind: Kind) {
    let intact = in_own_time(Intact::new(kind));
    let which = which();
    let damages = damages(&intact.bucket, which);
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(damage) = damages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = intact.bears(damage) {
                        failures.lock().unwrap().push(format!("{damage:?}: {why}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let seed = match which {
        Which::All => "all".to_owned(),
        Which::Some(seed) => seed.to_string(),
    };
    eprintln!(
        "{kind:?}: {} damages to {} objects of {} bytes",
        damages.len(),
        intact.bucket.len(),
        intact.bucket.values().map(Bytes::len).sum::<usize>(),
    );
    assert!(
        failures.is_empty(),
        "FOREBAY_TAMPER={seed}: {} of {} damages:\n{}",
        failures.len(),
        damages.len(),
        failures.join("\n")
    );
}

#[test]
fn whatever_is_changed_in_the_bucket_is_found_and_never_served() {
    is_found_and_never_served(Kind {
        sealed: false,
        dedup: false,
    });
}

#[test]
fn whatever_is_changed_of_a_sealed_volume_is_found_and_never_served() {
    is_found_and_never_served(Kind {
        sealed: true,
        dedup: false,
    });
}

#[test]
fn whatever_is_changed_of_a_volume_with_shared_frames_is_found_and_never_served() {
    is_found_and_never_served(Kind {
        sealed: false,
        dedup: true,
    });
}

#[test]
fn whatever_is_changed_of_a_sealed_volume_with_shared_frames_is_found_and_never_served() {
    is_found_and_never_served(Kind {
        sealed: true,
        dedup: true,
    });
}
