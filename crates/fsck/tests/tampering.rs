//! Each byte of a small volume is changed, one at a time; each object is taken away, cut off, and swapped with each other
//! one. Whatever is done: another machine that attaches the bucket reads what was written or gets an error, nothing panics, and
//! the check of the bucket says what is wrong.
//!
//! Every byte takes minutes, so that by default one in some is tried, others each time; all with
//! `FOREBAY_TAMPER=all`, those of one seed with `FOREBAY_TAMPER=<seed>`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_fsck::{Options, Progress, check};
use forebay_meta::SlateObjects;
use forebay_object::{PaceSettings, Store};
use forebay_types::Inode;
use forebay_vfs::{
    CreateMode, Credentials, Error, FileKind, FileSystem, NewNode, SetAttributes, Stability,
};
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

const WHO: Credentials = Credentials {
    uid: 0,
    gid: 0,
    groups: Vec::new(),
};

/// How long who reads waits, by a clock that goes on when nobody has anything to do.
const PATIENCE: Duration = Duration::from_secs(600);

/// A bucket: its objects by their names.
type Bucket = BTreeMap<Path, Bytes>;

/// What a volume holds: files, and what links lead to, by their names below the root.
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
        PaceSettings::default(),
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

fn config(local: &std::path::Path) -> FsConfig {
    let mut config = FsConfig::new(local.to_owned());
    config.log = LogConfig::None;
    config.memory_limit = 16 << 20;
    config
}

async fn make(volume: &Volume, directory: Inode, name: &str, node: Option<NewNode<'_>>) -> Inode {
    let set = SetAttributes::default();
    let made = match node {
        Some(node) => {
            volume
                .make(&WHO, directory, name.as_bytes(), node, &set)
                .await
        }
        None => {
            let mode = CreateMode::Guarded(set);
            volume.create(&WHO, directory, name.as_bytes(), &mode).await
        }
    };
    made.unwrap().attributes.inode
}

async fn write(volume: &Volume, file: Inode, at: u64, bytes: &[u8]) {
    let written = volume
        .write(&WHO, file, at, bytes, Stability::Unstable)
        .await;
    written.unwrap();
}

/// Bytes that no codec makes smaller.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice(seed | 1);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

/// A volume with some of everything: names, links, frames that are compressed and that are not, parts of frames that are
/// overwritten, a removed file, and metadata in several tables.
async fn small_volume() -> Bucket {
    let local = tempfile::tempdir().unwrap();
    let memory = Arc::new(InMemory::new());
    let store = as_store(memory.clone());
    Volume::format(&store).await.unwrap();
    let volume = Volume::open(&store, config(local.path())).await.unwrap();
    let folder = make(&volume, Inode::ROOT, "folder", Some(NewNode::Directory)).await;
    let text = make(&volume, folder, "text", None).await;
    write(&volume, text, 0, "to be compressed, ".repeat(60).as_bytes()).await;
    let raw = make(&volume, folder, "raw", None).await;
    write(&volume, raw, 0, &noise(1, 900)).await;
    make(
        &volume,
        Inode::ROOT,
        "link",
        Some(NewNode::Symlink(b"folder/raw")),
    )
    .await;
    let gone = make(&volume, Inode::ROOT, "gone", None).await;
    write(&volume, gone, 0, &noise(2, 300)).await;
    volume.flush().await.unwrap();
    write(&volume, raw, 100, &noise(3, 50)).await;
    volume.remove(&WHO, Inode::ROOT, b"gone").await.unwrap();
    let holes = make(&volume, Inode::ROOT, "holes", None).await;
    write(&volume, holes, 5 << 20, b"behind a hole").await;
    volume.flush().await.unwrap();
    volume.close(Duration::from_secs(60)).await;
    objects_of(&memory).await
}

/// Reads everything. What cannot be read is missing, with why.
async fn read_all(bucket: &Bucket) -> (Contents, Vec<String>) {
    let local = tempfile::tempdir().unwrap();
    let store = store_of(bucket).await;
    let opened = tokio::time::timeout(PATIENCE, Volume::open(&store, config(local.path())));
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
        "/link",
        "/holes",
        "/gone",
    ] {
        let read = tokio::time::timeout(PATIENCE, read_one(&volume, name));
        match read.await {
            Ok(Ok(Some(bytes))) => drop(contents.insert(name.to_owned(), bytes)),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => errors.push(format!("{name}: {error:?}")),
            Err(_) => errors.push(format!("{name}: not in time")),
        }
    }
    (contents, errors)
}

/// The bytes of a file, the target of a link, the names in a directory; none if there is no such thing.
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

/// What the check says, as one text; none if everything fits together.
async fn check_all(bucket: &Bucket) -> Option<String> {
    let store = store_of(bucket).await;
    let options = Options {
        read_data: true,
        ..Options::default()
    };
    let progress = Arc::new(Progress::default());
    let checked = check(store.store.clone(), store.root.clone(), &options, progress);
    match tokio::time::timeout(PATIENCE, checked).await {
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

/// What is done to a bucket.
#[derive(Clone, Debug)]
enum Damage {
    /// Bits of the byte at this place are changed.
    Flip(Path, usize, u8),
    Delete(Path),
    /// Cut off to so many bytes.
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

/// A small volume, and what it holds.
struct Intact {
    bucket: Bucket,
    contents: Contents,
    /// Objects whose damage has to be found: all that anybody would read.
    needed: BTreeSet<Path>,
    /// Those of them that only say what the newest moment is: without them there is the one before, and nothing in the
    /// bucket tells (docs/threat-model.md).
    notes: BTreeSet<Path>,
}

impl Intact {
    async fn new() -> Intact {
        let bucket = small_volume().await;
        let (contents, errors) = read_all(&bucket).await;
        assert_eq!((errors, contents.len()), (Vec::new(), 6));
        assert_eq!(check_all(&bucket).await, None);
        let store = store_of(&bucket).await.store;
        let parts = SlateObjects::new(store, Path::from("meta"), PATIENCE, None);
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
        Intact {
            bucket,
            contents,
            needed,
            notes,
        }
    }

    /// What is wrong with how this damage is borne, if anything is.
    fn bears(&self, damage: &Damage) -> Result<(), String> {
        let mut bucket = self.bucket.clone();
        damage.apply(&mut bucket);
        if bucket == self.bucket {
            return Ok(());
        }
        let (contents, errors) = in_own_time(read_all(&bucket));
        let wrong = |(name, bytes): (&String, &Vec<u8>)| self.contents.get(name) != Some(bytes);
        if let Some((name, _)) = contents.iter().find(|entry| wrong(*entry)) {
            return Err(format!("{name} was read wrong"));
        }
        if contents.len() < self.contents.len() && errors.is_empty() {
            return Err("something is missing, and no error said so".to_owned());
        }
        let said = in_own_time(check_all(&bucket));
        let objects = damage.objects();
        if !objects.iter().any(|path| self.needed.contains(path)) {
            return match (errors.first(), said) {
                (None, None) => Ok(()),
                (error, said) => Err(format!("nobody needs it, but {error:?}, {said:?}")),
            };
        }
        let named = |said: &String| {
            let names = objects.iter().filter_map(|path| path.filename());
            names.into_iter().any(|name| said.contains(name))
        };
        match said {
            Some(said) if named(&said) => Ok(()),
            // Taken away and not replaced: see `notes`.
            None if matches!(damage, Damage::Delete(path) if self.notes.contains(path)) => Ok(()),
            said => Err(format!(
                "the check does not name it: {said:?}; readers: {errors:?}"
            )),
        }
    }
}

/// Everything that happens here is over at once, however long it would wait.
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

/// All that could be done, or some of it.
fn damages(bucket: &Bucket, which: Which) -> Vec<Damage> {
    let mut dice = Dice(match which {
        Which::All => 1,
        Which::Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
    });
    let mut damages = Vec::new();
    for (path, bytes) in bucket {
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
            // Two tables of the same layout: each is whole, and only sealing says whose name it has (docs/threat-model.md).
            let are_tables = [path, other].map(Path::extension) == [Some("sst"); 2];
            if !are_tables && (which == Which::All || dice.below(20) == 0) {
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

#[test]
fn whatever_is_changed_in_the_bucket_is_found_and_never_served() {
    let intact = in_own_time(Intact::new());
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
    assert!(
        failures.is_empty(),
        "FOREBAY_TAMPER={seed}: {} of {} damages:\n{}",
        failures.len(),
        damages.len(),
        failures.join("\n")
    );
}

/// The same numbers every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
