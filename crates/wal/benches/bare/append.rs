//! The cost of an append, in processor time of the appending thread.
//!
//! * *copy + CRC*: of the payload alone, into a file that is mapped and prefaulted, like the log's segments. The
//!   lower bound for a log whose records have no headers.
//! * *sealed*: into a sealed log, beside the same log without sealing.
//! * *with a header*: also of 32 bytes in front, in the same way: the lower bound for a log in which each record
//!   contains its length and its place.

use std::hint::black_box;

use forebay_measure::{Round, Rounds, in_turns, table};

use crate::Failure;
use crate::clock::thread_cpu;
use crate::log::Log;
use crate::region::Region;

const SIZES: [(&str, usize); 5] = [
    ("512 B", 512),
    ("1000 B", 1000),
    ("4 KiB", 4 << 10),
    ("32 KiB", 32 << 10),
    ("1 MiB", 1 << 20),
];
pub(crate) const HEADER: usize = 32;
/// Bytes of payload of one turn.
const TURN_BYTES: u64 = 128 << 20;

/// ns of processor time per record of a turn.
pub(crate) fn each(
    size: usize,
    bytes: u64,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let began = thread_cpu();
    work()?;
    let records = bytes / size as u64;
    Ok((thread_cpu() - began).as_nanos() as f64 / records as f64)
}

fn copy(region: &mut Region, payload: &[u8], bytes: u64) {
    for _ in 0..bytes / payload.len() as u64 {
        black_box(crc32fast::hash(black_box(payload)));
        region
            .next(payload.len())
            .copy_from_slice(black_box(payload));
    }
}

/// The header of a record, with its checksum.
#[inline]
pub(crate) fn checksummed(number: u64, payload: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[8..16].copy_from_slice(&number.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(black_box(&header[4..]));
    crc.update(black_box(payload));
    header[..4].copy_from_slice(&crc.finalize().to_le_bytes());
    header
}

pub(crate) fn copy_with_header(region: &mut Region, payload: &[u8], bytes: u64) {
    for number in 0..bytes / payload.len() as u64 {
        let header = checksummed(number, payload);
        let place = region.next(HEADER + payload.len());
        place[HEADER..].copy_from_slice(black_box(payload));
        place[..HEADER].copy_from_slice(black_box(&header));
    }
}

fn key(size: &str, of: &str) -> String {
    format!("{size} {of}")
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let turn = if full { TURN_BYTES } else { 4 << 20 };
    let (log, sealed) = (Log::open()?, Log::open_sealed()?);
    let mut region = Region::new()?;
    let payload = vec![0x5a; 1 << 20];
    // Long enough that every segment of the log and each page of the region has had an earlier life.
    log.append_bytes(&payload, 8 * turn)?;
    sealed.append_bytes(&payload, 8 * turn)?;
    copy(&mut region, &payload, turn);
    // The works that are compared run right one after the other.
    let mut once = || {
        let mut round = Round::default();
        for (name, size) in SIZES {
            let payload = &payload[..size];
            let log = each(size, turn, || log.append_bytes(payload, turn).map(drop))?;
            let copied = each(size, turn, || {
                copy(&mut region, payload, turn);
                Ok(())
            })?;
            let with_header = each(size, turn, || {
                copy_with_header(&mut region, payload, turn);
                Ok(())
            })?;
            round.insert(key(name, "log"), log);
            round.insert(key(name, "copy"), copied);
            round.insert(key(name, "header"), with_header);
            let sealed = each(size, turn, || sealed.append_bytes(payload, turn).map(drop))?;
            round.insert(key(name, "sealed"), sealed);
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "append, ns of processor time",
        "log",
        "copy + CRC",
        "log / that",
        "with a header",
        "log / that",
        "sealed",
        "that / log",
    ]);
    for (size, _) in SIZES {
        let [log, copy, header, sealed] =
            ["log", "copy", "header", "sealed"].map(|of| key(size, of));
        text += &table::line([
            size.to_owned(),
            table::digits(rounds.median(&log)),
            table::digits(rounds.median(&copy)),
            table::times(rounds.ratio(&log, &copy)),
            table::digits(rounds.median(&header)),
            table::times(rounds.ratio(&log, &header)),
            table::digits(rounds.median(&sealed)),
            table::times(rounds.ratio(&sealed, &log)),
        ]);
    }
    text
}
