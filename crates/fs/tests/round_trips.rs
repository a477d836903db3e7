//! Typical data go to the bucket and come back on another machine, byte by byte, in all combinations of compression,
//! sealing and deduplication; and the bucket shows the effect of each of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use crate::sealing::key_file;
use forebay_fs::{Compression, Dedup, Expected, FsConfig, Levels};
use forebay_types::Inode;
use forebay_vfs::Stability;

const MIB: usize = 1 << 20;

/// A file: its name, and stretches of bytes with holes in between.
struct Sample {
    name: String,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Sample {
    fn whole(name: &str, bytes: Vec<u8>) -> Sample {
        Sample {
            name: name.to_owned(),
            parts: vec![(0, bytes)],
        }
    }

    fn content(&self) -> Vec<u8> {
        let ends = self
            .parts
            .iter()
            .map(|(at, part)| *at as usize + part.len());
        let mut content = vec![0; ends.max().unwrap_or(0)];
        for (at, part) in &self.parts {
            content[*at as usize..*at as usize + part.len()].copy_from_slice(part);
        }
        content
    }
}

/// The sources of two crates, a database, a picture, an archive, noise, zeros, and a file that is mostly a hole.
fn samples() -> Vec<Sample> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for source in ["pack/src", "wal/src"] {
        walk(&crates.join(source), &mut found);
    }
    let sources = found.iter().map(|(path, _)| {
        let name = path.to_string_lossy().replace('/', "|");
        // They differ at the end, and a name has 255 bytes at most.
        let name = name.chars().rev().take(80).collect::<String>();
        Sample::whole(&name, fs::read(path).unwrap())
    });
    let mut samples: Vec<Sample> = sources.collect();
    assert!(samples.len() > 20);
    samples.extend([
        Sample::whole("picture", picture()),
        Sample::whole("archive", [b"PK\x03\x04", &pattern(3, MIB)[..]].concat()),
        Sample::whole("noise", pattern(1, 2 * MIB + 13)),
        Sample::whole("zeros", vec![0; 3 * MIB]),
        Sample::whole("empty", Vec::new()),
        Sample::whole("one byte", vec![7]),
        Sample {
            name: "sparse".to_owned(),
            parts: vec![
                (5000, pattern(2, 70_000)),
                (9 << 20, b"far behind".to_vec()),
            ],
        },
    ]);
    samples.extend(database().map(|bytes| Sample::whole("database", bytes)));
    samples
}

/// A bitmap of a slope: every byte differs a little from the one before.
fn picture() -> Vec<u8> {
    let pixels = (0..512 * 512u32).flat_map(|at| {
        let (x, y) = (at % 512, at / 512);
        [x / 2, y / 2, (x + y) / 4].map(|colour| colour as u8)
    });
    b"BM".iter().copied().chain(pixels).collect()
}

/// A database of SQLite; `None` on a machine without Python, which includes it.
fn database() -> Option<Vec<u8>> {
    const MAKE: &str = "import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute('create table people (name text, born int, note text)')
base.executemany('insert into people values (?, ?, ?)', ((f'name {n}', 1900 + n % 120, 'x' * (n % 50)) for n in range(5000)))
base.execute('create index born on people (born)')
base.commit()";
    let folder = folder();
    let path = folder.path().join("base");
    let made = Command::new("python3")
        .arg("-c")
        .arg(MAKE)
        .arg(&path)
        .status();
    made.is_ok_and(|status| status.success())
        .then(|| fs::read(path).unwrap())
}

struct Codec {
    compression: Compression,
    expected: Expected,
    dedup: Dedup,
}

fn write_all(life: &Life, samples: &[Sample], prefix: &str) -> Vec<Inode> {
    let write = |sample: &Sample| {
        let inode = life.create(format!("{prefix}{}", sample.name).as_bytes());
        for (at, part) in &sample.parts {
            life.write(inode, *at, part, Stability::Unstable);
        }
        inode
    };
    samples.iter().map(write).collect()
}

/// Runs the samples through a volume; returns the bytes of its packs in the end.
fn round_trip(codec: &Codec, samples: &[Sample]) -> u64 {
    let bucket = Bucket::of(codec.expected.clone());
    let config = |config: &mut FsConfig| {
        config.memory_limit = 16 << 20;
        config.compression = codec.compression;
        config.dedup = codec.dedup;
    };
    let life = bucket.start(config);
    let first = write_all(&life, samples, "");
    life.flush();
    let second = write_all(&life, samples, "again ");
    life.flush();
    // A part of each block is written again; the copies stay as they are.
    let patch = pattern(9, 5000);
    let mut changed: Vec<Vec<u8>> = samples.iter().map(Sample::content).collect();
    for (inode, content) in first.iter().zip(&mut changed) {
        for at in (1000..content.len()).step_by(MIB) {
            let end = content.len().min(at + patch.len());
            life.write(*inode, at as u64, &patch[..end - at], Stability::Unstable);
            content[at..end].copy_from_slice(&patch[..end - at]);
        }
    }
    life.stop();

    let life = bucket.start_elsewhere(config);
    for (sample, (inode, content)) in samples.iter().zip(first.iter().zip(&changed)) {
        assert_eq!(life.lookup(sample.name.as_bytes()).inode, *inode);
        assert_bytes(&life.read(*inode, 0, content.len() + 1), content);
    }
    for (sample, inode) in samples.iter().zip(&second) {
        let content = sample.content();
        assert_bytes(&life.read(*inode, 0, content.len() + 1), &content);
    }
    life.stop();
    bucket.pack_bytes()
}

#[test]
fn what_is_written_comes_back_elsewhere_whatever_becomes_of_it_on_its_way() {
    let samples = samples();
    let levels = Levels::new(1, 9).unwrap();
    let mut sizes = Vec::new();
    for compression in [Compression::Off, Compression::Auto(levels)] {
        for expected in [Expected::NotSealed, Expected::Sealed(key_file(1))] {
            for dedup in [Dedup::Off, Dedup::Full, Dedup::Fast] {
                let expected = expected.clone();
                let codec = Codec {
                    compression,
                    expected,
                    dedup,
                };
                sizes.push(round_trip(&codec, &samples));
            }
        }
    }
    // Sealing costs nothing; a copy costs nothing if its content is found; and compressing pays.
    let [
        raw,
        raw_full,
        raw_fast,
        sealed,
        sealed_full,
        sealed_fast,
        small,
        small_full,
        ..,
    ] = sizes[..]
    else {
        panic!("{sizes:?}");
    };
    assert_eq!([raw, raw_full], [sealed, sealed_full]);
    assert_eq!(raw_full, raw_fast);
    assert!(raw_full < raw * 6 / 10, "{sizes:?}");
    // A sealed frame that is stored raw has no hash before its content comes for the second time: the third is found.
    assert!(raw_fast < sealed_fast && sealed_fast < sealed, "{sizes:?}");
    assert!(
        small < raw * 8 / 10 && small_full < raw_full * 8 / 10,
        "{sizes:?}"
    );
}
