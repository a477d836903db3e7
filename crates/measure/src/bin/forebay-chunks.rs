//! `forebay-chunks`: measures how much of a newer version of some data need not be stored again, for several ways to
//! cut the data into pieces.
//!
//! Pieces of fixed size are found again where nothing moved; pieces whose ends follow from their content are also found
//! behind inserted bytes. The costs of each way are notes, one for each piece, and the time to find the ends.
//! `docs/decisions/0025-deduplication.md` has the figures and the decision.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]
// This program prints its results.
#![allow(clippy::print_stdout)]

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
How much of a newer version of some data need not be stored again, by how it is cut into pieces.

forebay-chunks OLD NEW    two files, or two folders whose files are cut one by one
";

/// A way to cut a file into pieces.
enum Cut {
    /// At multiples of this number of bytes.
    Fixed(usize),
    /// By content, into pieces of this average size in bytes, at least a quarter and at most four times of it.
    Gear(usize),
}

const WAYS: [Cut; 6] = [
    Cut::Fixed(256 << 10),
    Cut::Fixed(64 << 10),
    Cut::Fixed(4 << 10),
    Cut::Gear(256 << 10),
    Cut::Gear(64 << 10),
    Cut::Gear(16 << 10),
];

impl Cut {
    fn name(&self) -> String {
        match self {
            Cut::Fixed(bytes) => format!("fixed, {} KiB", bytes >> 10),
            Cut::Gear(bytes) => format!("by content, {} KiB on average", bytes >> 10),
        }
    }

    /// End of the first piece of `bytes`, which must not be empty.
    fn first(&self, bytes: &[u8], gear: &[u64; 256]) -> usize {
        let average = match *self {
            Cut::Fixed(size) => return size.min(bytes.len()),
            Cut::Gear(average) => average,
        };
        let (least, most) = (average / 4, average * 4);
        // The highest bits depend on the greatest number of earlier bytes.
        let mask = (average as u64 - 1) << (63 - average.ilog2());
        let mut hash = 0_u64;
        for (at, byte) in bytes.iter().enumerate().take(most).skip(least) {
            hash = (hash << 1).wrapping_add(gear[usize::from(*byte)]);
            if hash & mask == 0 {
                return at + 1;
            }
        }
        bytes.len().min(most)
    }
}

/// A random number for each byte, the same at each run.
fn gear() -> [u64; 256] {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

/// A hash of 128 bits: enough that no two different pieces on one disk have the same.
fn name_of(piece: &[u8]) -> (u64, u64) {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, piece).hash(&mut hasher);
        hasher.finish()
    };
    (half(1), half(2))
}

/// The files at `path`, in the order of their names.
fn files(path: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    if fs::metadata(path)?.is_file() {
        return Ok(vec![fs::read(path)?]);
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        entries.push(entry?.path());
    }
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if !fs::symlink_metadata(&entry)?.is_symlink() {
            found.extend(files(&entry)?);
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Found {
    pieces: usize,
    new_pieces: usize,
    new_bytes: usize,
    cutting: Duration,
}

fn cut(files: &[Vec<u8>], way: &Cut, known: &mut HashSet<(u64, u64)>) -> Found {
    let gear = gear();
    let mut found = Found::default();
    for file in files {
        let mut rest = &file[..];
        while !rest.is_empty() {
            let began = Instant::now();
            let end = way.first(rest, &gear);
            found.cutting += began.elapsed();
            let (piece, behind) = rest.split_at(end);
            rest = behind;
            found.pieces += 1;
            if known.insert(name_of(piece)) {
                found.new_pieces += 1;
                found.new_bytes += piece.len();
            }
        }
    }
    found
}

fn run(old: &Path, new: &Path) -> Result<(), Box<dyn Error>> {
    let (old, new) = (files(old)?, files(new)?);
    let bytes = |files: &[Vec<u8>]| files.iter().map(Vec::len).sum::<usize>() as f64;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    println!(
        "old: {} files, {:.1} MiB; new: {} files, {:.1} MiB\n",
        old.len(),
        mib(bytes(&old)),
        new.len(),
        mib(bytes(&new)),
    );
    println!("| cut | old alone | new beside it | of new | pieces | cutting, MB/s |");
    println!("|---|---|---|---|---|---|");
    for way in WAYS {
        let mut known = HashSet::new();
        let first = cut(&old, &way, &mut known);
        let second = cut(&new, &way, &mut known);
        let speed = match way {
            Cut::Fixed(_) => "-".to_owned(),
            Cut::Gear(_) => format!("{:.0}", bytes(&new) / 1e6 / second.cutting.as_secs_f64()),
        };
        println!(
            "| {} | {:.1} MiB | {:.1} MiB | {:.1} % | {} | {speed} |",
            way.name(),
            mib(first.new_bytes as f64),
            mib(second.new_bytes as f64),
            100.0 * second.new_bytes as f64 / bytes(&new),
            second.pieces,
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [old, new] = &arguments[..] else {
        print!("{HELP}");
        return ExitCode::FAILURE;
    };
    match run(old.as_ref(), new.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        let mut state = 7_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..2 << 20).map(|_| next()).collect()
    }

    #[test]
    fn pieces_are_whole_and_within_their_bounds() {
        let (bytes, gear) = (bytes(), gear());
        for way in WAYS {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let end = way.first(rest, &gear);
                assert!(end > 0 && end <= rest.len());
                if let Cut::Gear(average) = way {
                    assert!(end <= 4 * average);
                    assert!(end > average / 4 || end == rest.len());
                }
                rest = &rest[end..];
            }
        }
    }

    #[test]
    fn behind_an_inserted_byte_only_pieces_by_content_are_found_again() {
        let old = vec![bytes()];
        let mut new = old.clone();
        new[0].insert(1000, 1);
        let again = |way: Cut| {
            let mut known = HashSet::new();
            cut(&old, &way, &mut known);
            cut(&new, &way, &mut known).new_bytes
        };
        assert!(again(Cut::Fixed(64 << 10)) >= 2 << 20);
        assert!(again(Cut::Gear(16 << 10)) < 200 << 10);
    }
}
