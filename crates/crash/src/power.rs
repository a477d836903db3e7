//! A power cut, as far as software can simulate one: the part of the log that was not durable is lost, kept or torn
//! sector by sector, and the machine has another boot id.
//!
//! The layouts are those of docs/format.md, implemented here a second time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::random::Random;

const SEGMENT_MAGIC: &[u8; 8] = b"FBAYWAL\n";
/// Offset of the first record in a segment.
const SEGMENT_HEADER: usize = 4096;
/// Offset in a segment's header of the LSN of its first record.
const BASE_AT: usize = 48;
/// Unit that a disk writes atomically.
const SECTOR: usize = 512;

/// The effect of a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the log that had not been durable.
    pub unsynced: u64,
    /// Of these, bytes that are lost.
    pub lost: u64,
}

/// Why the power cut could not be simulated.
#[derive(Debug, thiserror::Error)]
pub enum PowerError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The local state is not as docs/format.md says.
    #[error("{path} has no line `{line}`")]
    State {
        /// The file.
        path: PathBuf,
        /// The missing line.
        line: &'static str,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PowerError {
    let path = path.to_owned();
    move |source| PowerError::File { path, source }
}

/// Which of the bytes that were not durable are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it.
    All,
    /// Each sector at random, by this seed.
    Torn(u64),
}

/// Changes a local folder whose gateway does not run, as a power cut could have done when everything before `durable`
/// was on stable storage.
///
/// # Errors
/// If files cannot be changed.
pub fn cut_power(data_dir: &Path, durable: u64, loss: Loss) -> Result<Cut, PowerError> {
    let cut = lose_log(&data_dir.join("log"), durable, loss)?;
    lose_position(&data_dir.join("log/position"))?;
    other_boot(&data_dir.join("state"))?;
    Ok(cut)
}

/// Removes the log's position file, which is never flushed.
fn lose_position(file: &Path) -> Result<(), PowerError> {
    match fs::metadata(file) {
        Ok(found) => fs::write(file, vec![0; found.len() as usize]).map_err(at(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(file)(error)),
    }
}

fn lose_log(folder: &Path, durable: u64, loss: Loss) -> Result<Cut, PowerError> {
    let mut random = Random::new(match loss {
        Loss::All => 0,
        Loss::Torn(seed) => seed,
    });
    // Some cuts take nearly everything, some nearly nothing.
    let share = match loss {
        Loss::All => 100,
        Loss::Torn(_) => 5 + random.below(95),
    };
    let mut cut = Cut::default();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        if path.extension().is_none_or(|extension| extension != "seg") {
            continue;
        }
        let mut bytes = fs::read(&path).map_err(at(&path))?;
        let Some(first) = first_unsynced(&bytes, durable) else {
            continue;
        };
        let Some(tail) = bytes.get_mut(first..) else {
            continue;
        };
        // The first sector may begin with durable bytes.
        let head = first.next_multiple_of(SECTOR) - first;
        let (ragged, sectors) = tail.split_at_mut(head.min(tail.len()));
        for sector in std::iter::once(ragged).chain(sectors.chunks_mut(SECTOR)) {
            if sector.iter().all(|byte| *byte == 0) {
                continue;
            }
            cut.unsynced += sector.len() as u64;
            if random.percent(share) {
                cut.lost += sector.len() as u64;
                sector.fill(0);
            }
        }
        fs::write(&path, &bytes).map_err(at(&path))?;
    }
    Ok(cut)
}

/// Offset in the file of the first byte that need not survive.
fn first_unsynced(segment: &[u8], durable: u64) -> Option<usize> {
    if segment.get(..8)? != SEGMENT_MAGIC {
        return None;
    }
    let base = segment.get(BASE_AT..BASE_AT + 8)?.try_into().ok()?;
    let within = durable.saturating_sub(u64::from_le_bytes(base));
    let first = SEGMENT_HEADER as u64 + within;
    (first < segment.len() as u64).then_some(first as usize)
}

/// Changes the boot id in the local state, and its checksum.
fn other_boot(path: &Path) -> Result<(), PowerError> {
    let text = fs::read_to_string(path).map_err(at(path))?;
    let missing = |line| PowerError::State {
        path: path.to_owned(),
        line,
    };
    let mut changed = String::new();
    let mut lines = text.lines();
    let mut boots = 0;
    for line in lines.by_ref() {
        if line.starts_with("crc32 ") {
            break;
        }
        match line.strip_prefix("boot ") {
            Some(boot) => {
                boots += 1;
                let other = boot
                    .chars()
                    .map(|digit| if digit == 'e' { 'd' } else { 'e' });
                changed.push_str("boot ");
                changed.extend(other);
            }
            None => changed.push_str(line),
        }
        changed.push('\n');
    }
    if boots != 1 {
        return Err(missing("boot"));
    }
    let crc = crc32fast::hash(changed.as_bytes());
    changed.push_str(&format!("crc32 {crc:08x}\n"));
    fs::write(path, changed).map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(base: u64, records: usize) -> Vec<u8> {
        let mut bytes = vec![0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[BASE_AT..BASE_AT + 8].copy_from_slice(&base.to_le_bytes());
        bytes.resize(SEGMENT_HEADER + records, 7);
        bytes
    }

    #[test]
    fn a_power_cut_takes_what_was_not_durable_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::create_dir(&log).unwrap();
        fs::write(log.join("1.seg"), segment(1000, 5000)).unwrap();
        fs::write(log.join("2.seg"), segment(6000, 5000)).unwrap();
        fs::write(log.join("3.spare"), segment(11_000, 50)).unwrap();
        fs::write(
            folder.path().join("state"),
            "forebay-state 1\nboot 0e3a\nclean 0\ncrc32 00000000\n",
        )
        .unwrap();
        let cut = cut_power(folder.path(), 2000, Loss::All).unwrap();
        assert_eq!(cut.unsynced, 4000 + 5000);
        assert_eq!(cut.lost, cut.unsynced);
        let first = fs::read(log.join("1.seg")).unwrap();
        assert!(
            first[SEGMENT_HEADER..][..1000]
                .iter()
                .all(|byte| *byte == 7)
        );
        assert!(first[SEGMENT_HEADER + 1000..].iter().all(|byte| *byte == 0));
        assert_eq!(fs::read(log.join("3.spare")).unwrap(), segment(11_000, 50));
        let text = "forebay-state 1\nboot edee\nclean 0\n";
        let crc = crc32fast::hash(text.as_bytes());
        let state = fs::read_to_string(folder.path().join("state")).unwrap();
        assert_eq!(state, format!("{text}crc32 {crc:08x}\n"));
    }

    #[test]
    fn a_torn_cut_keeps_some_sectors() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1.seg"), segment(0, 400 * SECTOR)).unwrap();
        let torn = (0..20).any(|seed| {
            let cut = lose_log(folder.path(), 0, Loss::Torn(seed)).unwrap();
            0 < cut.lost && cut.lost < cut.unsynced
        });
        assert!(torn);
    }
}
