//! The space that snapshots take.

use forebay_vfs::Stability;

use super::{MIB, eager, names, settled, snapshot};
use crate::common::{Bucket, pattern};

/// Of each file.
const BYTES: u64 = 6 * MIB;
const FILES: u64 = 4;
const PIECE: u64 = 64 << 10;

/// Everything is overwritten ten times, piece by piece in a random order, with publications in between: the bucket has what is
/// live and what the snapshot holds, and a tenth more: metadata, and packs in which a little is dead.
#[test]
fn what_is_overwritten_ten_times_beside_a_snapshot_takes_little_more_than_both_states() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let files: Vec<_> = (0..FILES)
        .map(|number| life.create(format!("file-{number}").as_bytes()))
        .collect();
    let mut pieces: Vec<_> = (0..FILES * BYTES / PIECE).collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..=10 {
        for last in (1..pieces.len()).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            pieces.swap(last, state as usize % (last + 1));
        }
        for (written, piece) in pieces.iter().enumerate() {
            let (file, at) = (piece / (BYTES / PIECE), piece % (BYTES / PIECE) * PIECE);
            let bytes = pattern(round << 16 | piece, PIECE as usize);
            life.write(files[file as usize], at, &bytes, Stability::Unstable);
            if written % 100 == 99 {
                life.flush();
            }
        }
        life.flush();
        if round == 0 {
            snapshot(&life, "before");
            life.flush();
        }
    }
    settled(&life, &bucket);
    assert_eq!(names(&life), ["before"]);
    let all: usize = bucket.objects().values().map(Vec::len).sum();
    let live = (FILES * BYTES) as f64;
    let ratio = all as f64 / live;
    assert!(ratio <= 2.2, "{all} bytes: {ratio:.2} times the live ones");
    life.stop();
}
