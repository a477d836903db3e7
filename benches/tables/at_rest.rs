//! The content of the bucket, and the requests that put it there, for typical data:
//! `cargo bench --bench tables -- at_rest [--tree FOLDER] [--write-to FOLDER]`.
//!
//! | data | first | then |
//! |---|---|---|
//! | a tree | a folder, by default the sources of this project | the same again, under another name |
//! | versions | a growing file, kept as it was each day | 99 more days |
//! | a large file | 1 GiB | 1 % of it overwritten, 4 KiB at a time, at random |
//! | small files | 10,000 of 200 bytes to 16 KiB | |
//!
//! The bucket is in memory; requests are those of S3 except retries, pages of listings and parts of uploads. Each step
//! ends when the bucket has all of it, and has received no request for a while.
//!
//! With `--write-to` nothing is measured: the same data are written to a folder, for other programs to store
//! (`benches/at_rest.sh` does).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{FsConfig, Volume};
use forebay_measure::{Arguments, Machine, table};
use forebay_object::{CountingStore, Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, NewNode, SetAttributes, Stability};
use futures_util::TryStreamExt;

use crate::{Failure, ROOT, surroundings};

const COMMAND: &str = "cargo bench --bench tables -- at_rest";
const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Amounts of data.
#[derive(Clone, Copy)]
struct Effort {
    versions: usize,
    large: usize,
    small: usize,
    /// Most files of the tree.
    tree: usize,
    /// Time without requests after which no more are expected.
    quiet: Duration,
}

impl Effort {
    const FULL: Effort = Effort {
        versions: 100,
        large: 1024 * MIB,
        small: 10_000,
        tree: usize::MAX,
        quiet: Duration::from_secs(7),
    };
    const QUICK: Effort = Effort {
        versions: 3,
        large: 2 * MIB,
        small: 20,
        tree: 10,
        quiet: Duration::from_millis(100),
    };
}

/// A receiver of the data: a volume, or a folder.
trait Taker {
    /// Makes a file with its folders, or overwrites it from its beginning.
    async fn file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Failure>;
    /// Writes a part of a file.
    async fn part(&mut self, path: &Path, offset: usize, bytes: &[u8]) -> Result<(), Failure>;
}

/// Some data, in one or two steps.
struct Data {
    name: &'static str,
    steps: &'static [&'static str],
}

const DATA: [Data; 4] = [
    Data {
        name: "tree",
        steps: &["a source tree", "a copy of it"],
    },
    Data {
        name: "versions",
        steps: &["a file that grows, its first version", "all its versions"],
    },
    Data {
        name: "large",
        steps: &["a file of 1 GiB", "1 % of it rewritten, 4 KiB anywhere"],
    },
    Data {
        name: "small",
        steps: &["10,000 small files"],
    },
];

/// The source of the data.
struct Source {
    effort: Effort,
    /// Files by their names below the tree.
    tree: Vec<(PathBuf, Vec<u8>)>,
}

impl Source {
    fn new(effort: Effort, tree: &Path) -> Result<Source, Failure> {
        let mut files = Vec::new();
        walk(tree, tree, &mut files)?;
        files.sort();
        files.truncate(effort.tree);
        let tree = files
            .into_iter()
            .map(|name| Ok((name.clone(), std::fs::read(tree.join(name))?)))
            .collect::<std::io::Result<_>>()?;
        Ok(Source { effort, tree })
    }

    /// Writes one step; returns the number of bytes written.
    async fn give(
        &self,
        data: &Data,
        step: usize,
        taker: &mut impl Taker,
    ) -> Result<usize, Failure> {
        let folder = PathBuf::from(data.name);
        let mut given = 0;
        match (data.name, step) {
            ("tree", _) => {
                let folder = folder.join(["first", "second"][step]);
                for (name, bytes) in &self.tree {
                    taker.file(&folder.join(name), bytes).await?;
                    given += bytes.len();
                }
            }
            ("versions", _) => {
                let versions = match step {
                    0 => 0..1,
                    _ => 1..self.effort.versions,
                };
                for version in versions {
                    let bytes = grown(version);
                    let name = format!("day-{version:03}.log");
                    taker.file(&folder.join(name), &bytes).await?;
                    given += bytes.len();
                }
            }
            ("large", 0) => {
                let name = folder.join("large");
                taker.file(&name, &[]).await?;
                for at in (0..self.effort.large).step_by(MIB) {
                    taker
                        .part(&name, at, &surroundings::noise(at as u64, MIB))
                        .await?;
                }
                given += self.effort.large;
            }
            ("large", _) => {
                let pages = self.effort.large / PAGE;
                for turn in 0..pages / 100 {
                    let page = (turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages as u64;
                    let bytes = surroundings::noise(!page, PAGE);
                    taker
                        .part(&folder.join("large"), page as usize * PAGE, &bytes)
                        .await?;
                    given += PAGE;
                }
            }
            _ => {
                for number in 0..self.effort.small {
                    let len = 200 + number * 7919 % (16 * 1024 - 200);
                    let name = format!("{:02}/small-{number}", number % 100);
                    let bytes = lines(number as u64, len);
                    taker.file(&folder.join(name), &bytes).await?;
                    given += bytes.len();
                }
            }
        }
        Ok(given)
    }
}

/// Regular files below a folder, without hidden files and build products.
fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let (path, kind) = {
            let entry = entry?;
            (entry.path(), entry.file_type()?)
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, found)?;
        } else if kind.is_file()
            && let Ok(name) = path.strip_prefix(root)
        {
            found.push(name.to_owned());
        }
    }
    Ok(())
}

/// Lines of a log: words and numbers that compress as such files do.
fn lines(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "GET", "/index", "200", "client", "timeout", "retry", "ok", "upload",
    ];
    let noise = surroundings::noise(seed, len / 8 + 8);
    let mut text = Vec::with_capacity(len + 64);
    for piece in noise.chunks_exact(4).cycle() {
        if text.len() >= len {
            break;
        }
        let number = u32::from_le_bytes([piece[0], piece[1], piece[2], piece[3]]);
        let word = |shift: u32| WORDS[(number >> shift) as usize % WORDS.len()];
        text.extend(format!("{:08x} {} {} {}\n", number, word(0), word(3), word(6)).bytes());
    }
    text.truncate(len);
    text
}

/// A file that has grown for `version` days, 64 KiB a day.
fn grown(version: usize) -> Vec<u8> {
    (0..=version)
        .flat_map(|day| lines(1_000_000 + day as u64, 64 * 1024))
        .collect()
}

/// A gateway whose bucket is in memory.
struct Gateway {
    volume: Volume,
    requests: Arc<CountingStore>,
    bucket: Store,
    _local: tempfile::TempDir,
}

impl Gateway {
    async fn new(name: &str, set: fn(&mut FsConfig)) -> Result<Gateway, Failure> {
        let local = tempfile::tempdir_in(surroundings::memory_folder())?;
        let options = StoreOptions::default();
        let bucket = forebay_object::open(&format!("memory://{name}"), &options).await?;
        Volume::format(&bucket).await?;
        let requests = Arc::new(CountingStore::new(bucket.store.clone()));
        let counted = Store {
            store: requests.clone(),
            ..bucket.clone()
        };
        let mut config = FsConfig::new(local.path().to_owned());
        set(&mut config);
        let volume = Volume::open(&counted, config).await?;
        Ok(Gateway {
            volume,
            requests,
            bucket,
            _local: local,
        })
    }

    async fn look_up(&self, directory: Inode, name: &str) -> Option<Inode> {
        let found = self.volume.lookup(&ROOT, directory, name.as_bytes()).await;
        found.ok().map(|found| found.inode)
    }

    /// The directory of a file, made if it is missing, and the file's name.
    async fn place(&self, path: &Path) -> Result<(Inode, String), Failure> {
        let mut names: Vec<String> = path
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let file = names.pop().unwrap_or_default();
        let mut at = Inode::ROOT;
        for name in names {
            at = match self.look_up(at, &name).await {
                Some(found) => found,
                None => {
                    let set = SetAttributes::default();
                    let node = NewNode::Directory;
                    let made = self.volume.make(&ROOT, at, name.as_bytes(), node, &set);
                    made.await?.attributes.inode
                }
            };
        }
        Ok((at, file))
    }

    async fn write(&self, file: Inode, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let pieces = bytes.chunks(MIB).scan(offset, |at, piece| {
            *at += piece.len();
            Some((*at - piece.len(), piece))
        });
        for (at, piece) in pieces {
            let write = self
                .volume
                .write(&ROOT, file, at as u64, piece, Stability::Unstable);
            write.await?;
        }
        Ok(())
    }

    /// Waits until the bucket has everything, and receives no more requests.
    async fn settle(&self, quiet: Duration) -> Result<(), Failure> {
        self.volume.flush().await?;
        let mut last = self.requests.counts();
        loop {
            tokio::time::sleep(quiet).await;
            let now = self.requests.counts();
            if now == last {
                return Ok(());
            }
            last = now;
        }
    }

    /// Bytes of all objects.
    async fn bytes(&self) -> Result<u64, Failure> {
        let objects: Vec<_> = self.bucket.store.list(None).try_collect().await?;
        Ok(objects.iter().map(|object| object.size).sum())
    }
}

impl Taker for Gateway {
    async fn file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        let (directory, name) = self.place(path).await?;
        let mode = CreateMode::Unchecked(SetAttributes::default());
        let made = self.volume.create(&ROOT, directory, name.as_bytes(), &mode);
        let file = made.await?.attributes.inode;
        self.write(file, 0, bytes).await
    }

    async fn part(&mut self, path: &Path, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let (directory, name) = self.place(path).await?;
        let file = self.look_up(directory, &name).await;
        let file = file.ok_or_else(|| format!("{} is not there", path.display()))?;
        self.write(file, offset, bytes).await
    }
}

/// A folder that takes the data.
struct Folder(PathBuf);

impl Taker for Folder {
    async fn file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.0.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        Ok(std::fs::write(path, bytes)?)
    }

    async fn part(&mut self, path: &Path, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        use std::os::unix::fs::FileExt;
        let path = self.0.join(path);
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        Ok(file.write_all_at(bytes, offset as u64)?)
    }
}

/// Settings of a volume: a name, and the differences from the defaults.
type Settings = (&'static str, fn(&mut FsConfig));

const SETTINGS: [Settings; 3] = [
    ("as it comes", |_| ()),
    ("dedup full", |config| {
        config.dedup = forebay_fs::Dedup::Full;
    }),
    ("neither that nor compressed", |config| {
        config.compression = forebay_fs::Compression::Off;
    }),
];

async fn measure(source: &Source) -> Result<String, Failure> {
    let mut head = vec!["", "bytes"];
    for (name, _) in SETTINGS {
        head.extend([name, "requests"]);
    }
    let mut text = table::head(&head);
    for data in &DATA {
        let mut gateways = Vec::new();
        for (number, (_, set)) in SETTINGS.into_iter().enumerate() {
            gateways.push(Gateway::new(&format!("{}-{number}", data.name), set).await?);
        }
        for (step, what) in data.steps.iter().enumerate() {
            let mut cells = vec![(*what).to_owned(), String::new()];
            for gateway in &mut gateways {
                gateway.settle(source.effort.quiet).await?;
                let (requests, before) =
                    (gateway.requests.counts().requests(), gateway.bytes().await?);
                let given = source.give(data, step, gateway).await?;
                gateway.settle(source.effort.quiet).await?;
                cells[1] = megabytes(given as i64);
                cells.push(megabytes(gateway.bytes().await? as i64 - before as i64));
                cells.push((gateway.requests.counts().requests() - requests).to_string());
            }
            text.push_str(&table::line(cells));
        }
        for gateway in gateways {
            gateway.volume.close(Duration::from_secs(60)).await;
        }
    }
    Ok(text)
}

fn megabytes(bytes: i64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}

/// The table; empty if the data were only to be written.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let runtime = crate::runtime()?;
    let effort = match arguments.full() {
        true => Effort::FULL,
        false => Effort::QUICK,
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = arguments
        .after("--tree")
        .map_or(here.to_owned(), PathBuf::from);
    let source = Source::new(effort, &tree)?;
    if let Some(folder) = arguments.after("--write-to") {
        return runtime.block_on(write_to(&source, Path::new(folder)));
    }
    let table = runtime.block_on(measure(&source));
    // Tasks of the metadata store may wait for each other when they are cut off.
    runtime.shutdown_background();
    let caption = Machine::this().caption(
        &arguments.command(COMMAND, &["--tree"]),
        "one run; what is counted does not depend on the machine",
    );
    Ok(format!("{caption}\n\n{}", table?))
}

/// Writes each step to a folder named by its number.
async fn write_to(source: &Source, folder: &Path) -> Result<String, Failure> {
    for data in &DATA {
        for step in 0..data.steps.len() {
            let mut taker = Folder(folder.join(step.to_string()));
            if data.name == "large" && step > 0 {
                // The same file, changed.
                let (from, to) = (folder.join("0/large"), folder.join("1/large"));
                std::fs::create_dir_all(&to)?;
                std::fs::copy(from.join("large"), to.join("large"))?;
            }
            source.give(data, step, &mut taker).await?;
        }
    }
    Ok(String::new())
}
