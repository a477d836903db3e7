//! The write patterns of a published file layer, through ours and through NFS. `cargo bench --bench tables -- write_patterns`.
//!
//! That layer was measured on a machine of the same kind: each pattern once, into chunk files on the local disk, writes
//! acknowledged from buffers, nothing flushed. Here each pattern is written to new files of an open volume, its log in
//! the temporary folder (`TMPDIR`, which should be on a disk) and its bucket in memory. That is the same work and more,
//! because all of it is in the log when it is acknowledged, and survives kill -9. The time runs from the first write to
//! the last acknowledgement; *flushed* includes a COMMIT of each file at the end.
//!
//! * *Through the file layer*: calls of the file system, one after the other for each writer.
//! * *Through NFS*: one connection for each writer over the loopback, up to 32 calls in flight on each.
//! * *Compressed*: the volume compresses uploads, which makes text smaller, but not noise.
//! * *Sealed*: the volume is encrypted. *Both*: compressed and then sealed.
//!
//! Data that are not compressed are noise.
//!
//! If files are *made* within the time, each costs a CREATE, which is on the disk before its reply: the published table
//! has no equivalent.
//!
//! All variants of a pattern take turns, round by round; the figures are medians of the rounds and, in brackets,
//! quartiles. `--rounds N`: 9 by default; `--update FILE` puts the tables in that file. Run by `cargo test`, one round
//! of small patterns shows that it works.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_fs::{Compression, Expected, FsConfig, Unlock, Volume};
use forebay_measure::{Arguments, Machine, Round, Rounds, table};
use forebay_seal::KeyFile;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use tokio::runtime::{Builder, Runtime};

use crate::nfs_client::{Call, Client};
use crate::server::Running;
use crate::volume::Opened;
use crate::{Failure, ROOT, server, surroundings, volume};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const COMMAND: &str = "cargo bench --bench tables -- write_patterns";

/// Offset and length of a write.
type Piece = (u64, usize);

/// A pattern of writes.
struct Pattern {
    name: &'static str,
    /// MB/s of the published layer on a machine of this kind.
    published: Option<f64>,
    writers: usize,
    /// Number of files of each writer, one after the other.
    files: usize,
    /// The writes to each file.
    pieces: Vec<Piece>,
    /// Whether files are made within the time.
    made: bool,
}

impl Pattern {
    fn new(name: &'static str, published: Option<f64>, pieces: Vec<Piece>) -> Pattern {
        Pattern {
            name,
            published,
            writers: 1,
            files: 1,
            pieces,
            made: false,
        }
    }

    fn by(self, writers: usize) -> Pattern {
        Pattern { writers, ..self }
    }

    fn making(self, files: usize) -> Pattern {
        Pattern {
            files,
            made: true,
            ..self
        }
    }

    fn bytes(&self) -> u64 {
        let file: usize = self.pieces.iter().map(|(_, len)| len).sum();
        (self.writers * self.files * file) as u64
    }

    fn all() -> Vec<Pattern> {
        let row = |len: usize, count: u64| -> Vec<Piece> {
            (0..count).map(|turn| (turn * len as u64, len)).collect()
        };
        // Every second piece of a file, in a scattered order.
        let gaps = (0..20)
            .map(|turn| (turn * 7 % 20 * MIB as u64, MIB / 2))
            .collect();
        // Each overlaps the second half of the one before.
        let overlapping = (0..20).map(|turn| (turn * MIB as u64 / 2, MIB)).collect();
        let small = || row(4 * KIB, 1);
        vec![
            Pattern::new("200 x 4 KiB in a row", Some(215.0), row(4 * KIB, 200)),
            Pattern::new("100 x 256 KiB in a row", Some(365.0), row(256 * KIB, 100)),
            Pattern::new("4 KiB in a row, 3 writers", Some(7.6), row(4 * KIB, 200)).by(3),
            Pattern::new("4 KiB in a row, 16 writers", None, row(4 * KIB, 200)).by(16),
            Pattern::new("4 KiB in a row, 64 writers", None, row(4 * KIB, 200)).by(64),
            Pattern::new("100 MiB", Some(371.0), row(MIB, 100)),
            Pattern::new("10 x 1 MiB in a row", Some(291.0), row(MIB, 10)),
            Pattern::new("20 x 512 KiB anywhere, with gaps", Some(78.0), gaps),
            Pattern::new("20 x 1 MiB, overlapping", Some(152.0), overlapping),
            Pattern::new("160 x 64 KiB in a row", Some(169.0), row(64 * KIB, 160)),
            Pattern::new("files of 4 KiB made, 3 writers", None, small())
                .by(3)
                .making(30),
            Pattern::new("files of 4 KiB made, 16 writers", None, small())
                .by(16)
                .making(10),
            Pattern::new("files of 4 KiB made, 64 writers", None, small())
                .by(64)
                .making(5),
        ]
    }
}

/// How a pattern is written: through the file layer or NFS, and to which volume.
#[derive(Clone, Copy)]
struct Variant {
    door: Door,
    kind: Kind,
    text: bool,
    flushed: bool,
}

/// How the volume encodes its uploads.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Compressed,
    Sealed,
    Both,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Plain, Kind::Compressed, Kind::Sealed, Kind::Both];

    fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Compressed => "compressed",
            Kind::Sealed => "sealed",
            Kind::Both => "both",
        }
    }

    fn set(self, config: &mut FsConfig) -> Result<(), Failure> {
        if matches!(self, Kind::Plain | Kind::Sealed) {
            config.compression = Compression::Off;
        }
        if matches!(self, Kind::Sealed | Kind::Both) {
            let key_file = KeyFile::new(vec![7; 32].into())?;
            config.expected = Expected::Sealed(Arc::new(Unlock::KeyFile(key_file)));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    FileLayer,
    Nfs,
}

impl Door {
    const ALL: [Door; 2] = [Door::FileLayer, Door::Nfs];

    fn name(self) -> &'static str {
        match self {
            Door::FileLayer => "Through the file layer",
            Door::Nfs => "Through NFS",
        }
    }
}

impl Variant {
    fn of(door: Door) -> impl Iterator<Item = Variant> {
        let contents = [
            (Kind::Plain, false),
            (Kind::Compressed, true),
            (Kind::Compressed, false),
            (Kind::Sealed, false),
            (Kind::Both, true),
            (Kind::Both, false),
        ];
        contents.into_iter().flat_map(move |(kind, text)| {
            [false, true].map(|flushed| Variant {
                door,
                kind,
                text,
                flushed,
            })
        })
    }

    fn key(self, pattern: &Pattern) -> String {
        format!("{} {} {}", self.door.name(), self.head(), pattern.name)
    }

    fn head(self) -> String {
        let data = match (self.kind, self.text) {
            (Kind::Compressed | Kind::Both, true) => ", text",
            (Kind::Compressed | Kind::Both, false) => ", noise",
            (Kind::Plain | Kind::Sealed, _) => "",
        };
        let flushed = if self.flushed { ", flushed" } else { "" };
        format!("{}{data}{flushed}", self.kind.name())
    }
}

/// The volume that patterns are written to.
struct Target {
    opened: Opened,
    running: Running,
}

/// Everything that rounds need.
struct Course {
    runtime: Runtime,
    client: Runtime,
    /// In the order of [`Kind::ALL`].
    targets: Vec<Target>,
    text: Arc<Vec<u8>>,
    noise: Arc<Vec<u8>>,
    names: AtomicU64,
}

impl Course {
    fn new() -> Course {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let target = |kind: Kind| {
            runtime.block_on(async {
                let folder = std::env::temp_dir();
                let set = |config: &mut FsConfig| kind.set(config).expect("a key of 32 bytes");
                let opened = volume::open_with(volume::LOG, &folder, set).await;
                let running = server::start(Arc::new(opened.volume.clone())).await;
                Target { opened, running }
            })
        };
        Course {
            targets: Kind::ALL.map(target).into(),
            client: Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            runtime,
            text: Arc::new(surroundings::text(1, MIB)),
            noise: Arc::new(surroundings::noise(1, MIB)),
            names: AtomicU64::new(0),
        }
    }

    /// MB/s of a pattern in one variant.
    fn run(&self, pattern: &Pattern, variant: Variant) -> Result<f64, Failure> {
        let target = &self.targets[variant.kind as usize];
        let volume = &target.opened.volume;
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let names: Vec<Vec<String>> = (0..pattern.writers)
            .map(|writer| {
                (0..pattern.files)
                    .map(|file| format!("{number}-{writer}-{file}"))
                    .collect()
            })
            .collect();
        self.runtime.block_on(async {
            if !pattern.made {
                for name in names.iter().flatten() {
                    create(volume, name).await?;
                }
            }
            volume.flush().await?;
            Ok::<_, Failure>(())
        })?;
        let taken = match variant.door {
            Door::FileLayer => self.through_the_file_layer(volume, pattern, variant, &names)?,
            Door::Nfs => {
                let data: &[u8] = if variant.text {
                    &self.text
                } else {
                    &self.noise
                };
                let writing = through_nfs(target.running.address, pattern, variant, &names, data);
                self.client.block_on(writing)?
            }
        };
        self.runtime.block_on(async {
            for name in names.iter().flatten() {
                volume.remove(&ROOT, Inode::ROOT, name.as_bytes()).await?;
            }
            Ok::<_, Failure>(())
        })?;
        Ok(pattern.bytes() as f64 / 1e6 / taken.as_secs_f64())
    }

    fn through_the_file_layer(
        &self,
        volume: &Volume,
        pattern: &Pattern,
        variant: Variant,
        names: &[Vec<String>],
    ) -> Result<Duration, Failure> {
        let data = if variant.text {
            &self.text
        } else {
            &self.noise
        };
        self.runtime.block_on(async {
            let began = Instant::now();
            let writers: Vec<_> = names
                .iter()
                .map(|names| {
                    let (volume, data) = (volume.clone(), data.clone());
                    let (names, pieces) = (names.clone(), pattern.pieces.clone());
                    let (made, flushed) = (pattern.made, variant.flushed);
                    tokio::spawn(async move {
                        for name in &names {
                            let file = match made {
                                true => create(&volume, name).await?,
                                false => lookup(&volume, name).await?,
                            };
                            for (offset, len) in &pieces {
                                let data = &data[..*len];
                                volume
                                    .write(&ROOT, file, *offset, data, Stability::Unstable)
                                    .await?;
                            }
                            if flushed {
                                volume.commit(&ROOT, file, 0, 0).await?;
                            }
                        }
                        Ok::<_, Failure>(())
                    })
                })
                .collect();
            for writer in writers {
                writer.await??;
            }
            Ok(began.elapsed())
        })
    }
}

async fn create(volume: &Volume, name: &str) -> Result<Inode, Failure> {
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = volume.create(&ROOT, Inode::ROOT, name.as_bytes(), &mode);
    Ok(made.await?.attributes.inode)
}

async fn lookup(volume: &Volume, name: &str) -> Result<Inode, Failure> {
    let found = volume.lookup(&ROOT, Inode::ROOT, name.as_bytes());
    Ok(found.await?.inode)
}

async fn through_nfs(
    address: SocketAddr,
    pattern: &Pattern,
    variant: Variant,
    names: &[Vec<String>],
    data: &[u8],
) -> Result<Duration, Failure> {
    let mut connections = Vec::new();
    for names in names {
        let mut client = Client::connect(address).await?;
        let root = client.mount().await?;
        connections.push((client, root, names));
    }
    let began = Instant::now();
    let writers = connections
        .iter_mut()
        .map(|(client, root, names)| async move {
            for name in names.iter() {
                let file = match pattern.made {
                    true => client.create(root, name).await?,
                    false => client.lookup(root, name).await?,
                };
                let mut pieces = pattern.pieces.iter();
                client
                    .pipeline(pattern.pieces.len() as u64, 0, |_| {
                        let (offset, len) = pieces.next().expect("one for each call");
                        Call::write(&file, *offset, &data[..*len])
                    })
                    .await?;
                if variant.flushed {
                    client.pipeline(1, 0, |_| Call::commit(&file)).await?;
                }
            }
            Ok::<_, Failure>(())
        });
    futures_util::future::try_join_all(writers).await?;
    Ok(began.elapsed())
}

/// Runs one round of these patterns in all variants.
fn round(course: &Course, patterns: &[Pattern]) -> Result<Round, Failure> {
    let mut round = Round::default();
    for pattern in patterns {
        for variant in Door::ALL.into_iter().flat_map(Variant::of) {
            round.insert(variant.key(pattern), course.run(pattern, variant)?);
        }
    }
    Ok(round)
}

fn shown(rounds: &Rounds, patterns: &[Pattern]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let figures = format!("MB/s, medians of {} rounds (quartiles)", rounds.count());
    writeln!(text, "{}", Machine::this().caption(COMMAND, &figures))?;
    for door in Door::ALL {
        let heads: Vec<String> = Variant::of(door).map(Variant::head).collect();
        let mut head = vec![door.name(), "published", "times that"];
        head.extend(heads.iter().map(String::as_str));
        write!(text, "\n{}", table::head(&head))?;
        for pattern in patterns {
            let all: Vec<_> = Variant::of(door)
                .map(|variant| rounds.median(&variant.key(pattern)))
                .collect();
            let (published, times) = match (pattern.published, all.first()) {
                (Some(published), Some(plain)) => (
                    table::three(published),
                    table::three(plain.value / published),
                ),
                _ => Default::default(),
            };
            let mut cells = vec![pattern.name.to_owned(), published, times];
            cells.extend(all.into_iter().map(table::digits));
            text.push_str(&table::line(cells));
        }
    }
    Ok(text)
}

/// The tables, with the machine they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let full = arguments.full();
    let mut patterns = Pattern::all();
    let count = match full {
        true => arguments.after("--rounds").map_or(Ok(9), str::parse)?,
        false => 1,
    };
    if !full {
        patterns.retain(|pattern| pattern.bytes() < 20 * MIB as u64 && pattern.writers <= 3);
    }
    let course = Course::new();
    // The first round starts cold, and does not count.
    if full {
        round(&course, &patterns)?;
    }
    let rounds: Result<Vec<Round>, Failure> =
        (0..count).map(|_| round(&course, &patterns)).collect();
    let tables = shown(&Rounds::new(rounds?), &patterns)?;
    let Course {
        runtime, targets, ..
    } = course;
    runtime.block_on(async {
        for target in targets {
            target.running.stop().await;
            target.opened.close().await;
        }
    });
    runtime.shutdown_background();
    Ok(tables)
}
