//! The kernel's cost per MiB of the log: processor time of the calling thread, with the storage of the log, and with
//! system calls that write the same bytes.
//!
//! A segment of 32 MiB is made, faulted in, stored into, flushed a MiB at a time, unmapped, and mapped and faulted in
//! once more, like a recycled one; then it is stored into again, and flushed by `msync` alone. Beside it the same
//! bytes are written by `pwrite` to a file that was written before, and flushed by `fdatasync`, a MiB at a time.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use forebay_measure::{Round, Rounds, in_turns, table};
use forebay_wal::{FileStorage, SegmentMemory, Storage};
use memmap2::{Advice, MmapRaw};

use crate::Failure;
use crate::append::each;

const MIB: usize = 1 << 20;
const NAME: &str = "segment";

const MADE: &str = "made, with zeros in the page cache";
const FAULTED_IN_NEW: &str = "faulted in, its file new";
const FAULTED_IN_USED: &str = "faulted in, its file recycled";
const FLUSHED: &str = "flushed, its pages taken out of the page table before";
const UNMAPPED: &str = "unmapped after that";
const MSYNC: &str = "flushed by `msync` alone";
const PWRITE: &str = "written by `pwrite`, copy included";
const FDATASYNC: &str = "flushed by `fdatasync`";
const WORKS: [&str; 8] = [
    MADE,
    FAULTED_IN_NEW,
    FLUSHED,
    UNMAPPED,
    FAULTED_IN_USED,
    MSYNC,
    PWRITE,
    FDATASYNC,
];

/// One life of a segment and its next one.
fn mapped(bytes: usize, round: &mut Round) -> Result<(), Failure> {
    let mut keep = |work: &str, taken: f64| round.insert(work.to_owned(), taken / 1e3);
    let folder = tempfile::tempdir()?;
    let storage = FileStorage::open(folder.path())?;
    let mut made = None;
    let make = || {
        made = Some(storage.create(NAME, bytes as u64)?);
        Ok(())
    };
    keep(MADE, each(MIB, bytes as u64, make)?);
    let memory = made.ok_or("it was not made")?;
    keep(FAULTED_IN_NEW, faulted_in(&*memory, bytes)?);
    memory.clear(0..bytes);
    let flush = || Ok(each_mib(bytes).try_for_each(|mib| memory.flush(mib))?);
    keep(FLUSHED, each(MIB, bytes as u64, flush)?);
    let unmap = || {
        drop(memory);
        Ok(())
    };
    keep(UNMAPPED, each(MIB, bytes as u64, unmap)?);
    let memory = storage.open(NAME)?;
    keep(FAULTED_IN_USED, faulted_in(&*memory, bytes)?);
    drop(memory);

    let map = MmapRaw::map_raw(
        &File::options()
            .read(true)
            .write(true)
            .open(folder.path().join(NAME))?,
    )?;
    map.advise(Advice::PopulateWrite)?;
    // SAFETY: within the map, which nothing else uses.
    unsafe { map.as_mut_ptr().write_bytes(1, bytes) };
    let flush = || Ok(each_mib(bytes).try_for_each(|mib| map.flush_range(mib.start, mib.len()))?);
    keep(MSYNC, each(MIB, bytes as u64, flush)?);
    Ok(())
}

fn each_mib(bytes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(MIB).map(|at| at..at + MIB)
}

fn faulted_in(memory: &dyn SegmentMemory, bytes: usize) -> Result<f64, Failure> {
    each(MIB, bytes as u64, || {
        memory.prefault();
        Ok(())
    })
}

fn written(bytes: usize, round: &mut Round) -> Result<(), Failure> {
    let file = tempfile::tempfile()?;
    let payload = vec![0x5a; MIB];
    let write = |file: &File| -> Result<(), Failure> {
        for at in (0..bytes).step_by(MIB) {
            file.write_all_at(&payload, at as u64)?;
        }
        Ok(())
    };
    write(&file)?;
    file.sync_all()?;
    let taken = each(MIB, bytes as u64, || write(&file))?;
    round.insert(PWRITE.to_owned(), taken / 1e3);
    file.sync_all()?;
    let mut flushes = 0.0;
    for at in (0..bytes).step_by(MIB) {
        file.write_all_at(&payload, at as u64)?;
        flushes += each(MIB, MIB as u64, || Ok(file.sync_data()?))?;
    }
    round.insert(FDATASYNC.to_owned(), flushes / (bytes / MIB) as f64 / 1e3);
    Ok(())
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let bytes = if full { 32 * MIB } else { 4 * MIB };
    let mut once = || {
        let mut round = Round::default();
        mapped(bytes, &mut round)?;
        written(bytes, &mut round)?;
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&["a MiB of a segment", "µs of processor time"]);
    for work in WORKS {
        text += &table::line([work.to_owned(), table::digits(rounds.median(work))]);
    }
    text
}
