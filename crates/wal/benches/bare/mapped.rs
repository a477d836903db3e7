//! A record by stores into a mapped file, as the log writes it, beside a system call that writes the same bytes
//! (`pwritev`) to a file that was written before. Both copy and checksum header and payload, without locks, threads
//! and recycling.
//!
//! * *Pages present*: the pages were prefaulted before, like those of the log's segments.
//! * *Pages absent*: they were flushed and not touched since, so that the first store into each waits for a page
//!   fault.
//! * *With a flush*: each record is flushed to the disk before the next one begins, by `msync` of its pages (which
//!   are present) and by `fdatasync`.
//!
//! Without a flush the result is processor time of the thread, with a flush it is wall time. Before each turn
//! everything is flushed that earlier turns left behind.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use forebay_measure::{Round, Rounds, in_turns, table};

use crate::Failure;
use crate::append::{HEADER, checksummed, copy_with_header, each};
use crate::region::Region;

const SIZES: [(&str, usize); 4] = [
    ("512 B", 512),
    ("4 KiB", 4 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
];
/// Bytes of payload of one turn without flushes.
const TURN_BYTES: u64 = 32 << 20;
/// Flushes of one turn.
const FLUSHES: u32 = 40;

/// Files that records are written to by system calls, one file after the other.
pub(crate) struct Written {
    files: Vec<File>,
    at: u64,
}

const FILE_BYTES: u64 = 32 << 20;
const FILES: usize = 4;

impl Written {
    pub(crate) fn new() -> Result<Written, Failure> {
        let zeros = vec![0; FILE_BYTES as usize];
        let new = |_| {
            let mut file = tempfile::tempfile()?;
            io::Write::write_all(&mut file, &zeros)?;
            Ok(file)
        };
        let files: io::Result<_> = (0..FILES).map(new).collect();
        Ok(Written {
            files: files?,
            at: 0,
        })
    }

    /// Writes a record, and returns its file.
    pub(crate) fn append(&mut self, number: u64, payload: &[u8]) -> Result<&File, Failure> {
        let header = checksummed(number, payload);
        let bytes = (header.len() + payload.len()) as u64;
        if self.at % FILE_BYTES + bytes > FILE_BYTES {
            self.at = self.at.next_multiple_of(FILE_BYTES);
        }
        let file = &self.files[(self.at / FILE_BYTES) as usize % FILES];
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let parts = [part(&header), part(payload)];
        let at = (self.at % FILE_BYTES) as libc::off_t;
        // SAFETY: both parts lie in slices that live until the call returns, and are only read.
        let written = unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr(), 2, at) };
        if written != bytes as isize {
            return Err(io::Error::last_os_error().into());
        }
        self.at += bytes;
        Ok(file)
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        Ok(self.files.iter().try_for_each(File::sync_data)?)
    }
}

/// µs of wall time for each of `count` pieces of work.
fn waited(count: u32, mut piece: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let began = Instant::now();
    for _ in 0..count {
        piece()?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

fn key(size: &str, of: &str) -> String {
    format!("{size} {of}")
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let (turn, flushes) = if full {
        (TURN_BYTES, FLUSHES)
    } else {
        (1 << 20, 2)
    };
    let (mut region, mut written) = (Region::new()?, Written::new()?);
    let payload = vec![0x5a; 1 << 20];
    let mut once = || {
        let mut round = Round::default();
        for (name, size) in SIZES {
            let payload = &payload[..size];
            region.flush()?;
            written.flush()?;
            let absent = each(size, turn, || {
                copy_with_header(&mut region, payload, turn);
                Ok(())
            })?;
            region.prefault();
            let present = each(size, turn, || {
                copy_with_header(&mut region, payload, turn);
                Ok(())
            })?;
            let called = each(size, turn, || {
                for number in 0..turn / size as u64 {
                    written.append(number, payload)?;
                }
                Ok(())
            })?;
            round.insert(key(name, "absent"), absent);
            round.insert(key(name, "present"), present);
            round.insert(key(name, "pwrite"), called);

            region.flush()?;
            written.flush()?;
            region.prefault();
            let mapped = waited(flushes, || {
                copy_with_header(&mut region, payload, size as u64);
                region.flush_last(HEADER + size)
            })?;
            let called = waited(flushes, || Ok(written.append(0, payload)?.sync_data()?))?;
            round.insert(key(name, "msync"), mapped);
            round.insert(key(name, "fdatasync"), called);
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "a record",
        "mmap, pages present, ns",
        "pwrite, ns",
        "to mmap",
        "mmap, pages absent, ns",
        "pwrite to that",
        "mmap with a flush, µs",
        "pwrite with a flush, µs",
        "to mmap",
    ]);
    for (size, _) in SIZES {
        let [absent, present, pwrite, msync, fdatasync] =
            ["absent", "present", "pwrite", "msync", "fdatasync"].map(|of| key(size, of));
        text += &table::line([
            size.to_owned(),
            table::digits(rounds.median(&present)),
            table::digits(rounds.median(&pwrite)),
            table::times(rounds.ratio(&pwrite, &present)),
            table::digits(rounds.median(&absent)),
            table::times(rounds.ratio(&pwrite, &absent)),
            table::digits(rounds.median(&msync)),
            table::digits(rounds.median(&fdatasync)),
            table::times(rounds.ratio(&fdatasync, &msync)),
        ]);
    }
    text
}
