//! Archived logs: a log that must never be replayed, because another gateway has written to the volume since, is kept
//! for the operator, with a note that says how much of it the bucket had.
//!
//! Two small text files serve this, each with a CRC32 of its other bytes at its end:
//!
//! ```text
//! <data_dir>/published       (the mark: one line, which each checkpoint overwrites)
//! forebay-published 1 epoch <16 hex> lsn <16 hex> next-inode <16 hex> crc32 <8 hex>
//!
//! <data_dir>/log/<label>.note
//! forebay-note 1
//! volume 6f0c...           the volume of the log
//! gateway 51ab...          the gateway that wrote it
//! epoch 7                  the newest epoch under which it wrote
//! published 4096 12        published LSN and next inode number of the mark, or - if unknown
//! taken-by 77ce... 8       gateway and epoch that the bucket named when it was archived
//! put-aside 1790000000     seconds since 1970
//! crc32 0a1b2c3d
//! ```
//!
//! The mark only says how exactly salvage can separate the unpublished part of a log from the published one, so it is
//! not flushed: with an older mark, salvage shows more than was lost, and with a damaged one, the whole log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_meta::record::VolumeState;
use forebay_types::{Epoch, Inode, Lsn, VolumeId, hex, unhex};
use forebay_wal::{Inspection, Label, LogFiles, SegmentReader, Storage};

use crate::folder::{LocalFolder, note_path};
use crate::state_file::LocalState;

const MARK_MAGIC: &str = "forebay-published 1";
const NOTE_MAGIC: &str = "forebay-note 1";

/// How much of a log the bucket had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The bucket held everything before this.
    pub lsn: Lsn,
    /// Objects from this number on were made later: in the bucket, another gateway may have given the same numbers to
    /// other objects.
    pub next_inode: Inode,
}

/// The note of an archived log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The volume of the log.
    pub volume: VolumeId,
    /// The gateway that wrote it.
    pub gateway: [u8; 16],
    /// The epoch under which it wrote last.
    pub epoch: Epoch,
    /// The part of it that the bucket had; `None` if that is not known.
    pub published: Option<Published>,
    /// The gateway that the bucket named when the log was archived, and its epoch. The same as `gateway` for a log
    /// that was archived because the volume goes on without one.
    pub taken_by: ([u8; 16], Epoch),
    /// When it was archived, in seconds since 1970.
    pub archived_at: i64,
}

/// Sets the mark: how far the log is published. A kill leaves the old mark or the new one.
pub fn set_mark(folder: &dyn LocalFolder, state: &VolumeState) -> io::Result<()> {
    let body = format!(
        "{MARK_MAGIC} epoch {:016x} lsn {:016x} next-inode {:016x} ",
        state.epoch.0, state.published.0, state.next_inode
    );
    let crc = crc32fast::hash(body.as_bytes());
    folder.set_mark(format!("{body}crc32 {crc:08x}\n").as_bytes())
}

/// The mark of a folder, if it is valid, and its epoch.
fn read_mark(folder: &dyn LocalFolder) -> Option<(Epoch, Published)> {
    let line = folder.mark().ok()??;
    let (body, _) = checked(std::str::from_utf8(&line).ok()?)?;
    let mut words = body.strip_prefix(MARK_MAGIC)?.split_whitespace();
    let mut number = |key: &str| {
        let is_it = words.next() == Some(key);
        let number = u64::from_str_radix(words.next()?, 16).ok()?;
        is_it.then_some(number)
    };
    let epoch = Epoch(number("epoch")?);
    let published = Published {
        lsn: Lsn(number("lsn")?),
        next_inode: Inode(number("next-inode")?),
    };
    Some((epoch, published))
}

/// The published part of the log beside this state, by the mark.
pub fn published(folder: &dyn LocalFolder, state: &LocalState) -> Option<Published> {
    let (epoch, published) = read_mark(folder)?;
    // A crash may have happened between the writes of the two files, at the end of an opening.
    (epoch == state.epoch || epoch == state.intent).then_some(published)
}

/// Splits a text from its checksum, which must match; returns the text and the checksum.
fn checked(text: &str) -> Option<(&str, &str)> {
    let (body, crc) = text.rsplit_once("crc32 ")?;
    let crc_given = u32::from_str_radix(crc.trim_end(), 16).ok()?;
    (crc_given == crc32fast::hash(body.as_bytes())).then_some((body, crc))
}

impl Note {
    /// Encodes the note as text.
    pub fn encode(&self) -> String {
        let published = match self.published {
            Some(published) => format!("{} {}", published.lsn, published.next_inode.0),
            None => "-".to_owned(),
        };
        let body = format!(
            "{NOTE_MAGIC}\nvolume {}\ngateway {}\nepoch {}\npublished {published}\ntaken-by {} {}\nput-aside {}\n",
            self.volume,
            hex(&self.gateway),
            self.epoch.0,
            hex(&self.taken_by.0),
            self.taken_by.1.0,
            self.archived_at,
        );
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}crc32 {crc:08x}\n")
    }

    fn decode(text: &str) -> Option<Note> {
        let (body, _) = checked(text)?;
        let mut lines = body.lines();
        if lines.next() != Some(NOTE_MAGIC) {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let volume = value("volume")?.parse().ok()?;
        let gateway = unhex(value("gateway")?).ok()?;
        let epoch = Epoch(value("epoch")?.parse().ok()?);
        let published = match value("published")?.split_once(' ') {
            Some((lsn, next_inode)) => Some(Published {
                lsn: Lsn(lsn.parse().ok()?),
                next_inode: Inode(next_inode.parse().ok()?),
            }),
            None => None,
        };
        let (by, its_epoch) = value("taken-by")?.split_once(' ')?;
        let taken_by = (unhex(by).ok()?, Epoch(its_epoch.parse().ok()?));
        Some(Note {
            volume,
            gateway,
            epoch,
            published,
            taken_by,
            archived_at: value("put-aside")?.parse().ok()?,
        })
    }

    /// The note of a log; `None` if there is none, or it is damaged: salvage works without it.
    pub fn read(log: &Path, label: &Label) -> Option<Note> {
        let Label::Archived(label) = label else {
            return None;
        };
        let text = std::fs::read_to_string(note_path(log, label)).ok()?;
        Note::decode(&text)
    }

    /// Removes the note of a log that is deleted.
    pub fn remove(log: &Path, label: &Label) -> io::Result<()> {
        match label {
            Label::Archived(label) => match std::fs::remove_file(note_path(log, label)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            Label::Current => Ok(()),
        }
    }
}

/// A log's files, as the owner of their lock reads them.
struct Locked(Arc<dyn Storage>);

impl LogFiles for Locked {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        self.0.read(name)
    }
}

/// What happened to a log that must not be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveOutcome {
    /// There was no log.
    Nothing,
    /// The bucket has all of it: its files are reused.
    Discarded,
    /// Nothing has changed: archived logs take this number of bytes already.
    NoRoom {
        /// Bytes of the logs archived before.
        archived: u64,
    },
    /// It is archived under this label.
    Kept {
        /// The prefix of its files' names.
        label: String,
        /// Number of its segments.
        segments: usize,
    },
}

/// Archives the log in `storage`, which this process has locked, under a label that begins with `label`. `note`
/// describes the log; without a note, nothing of the log is deleted.
///
/// A log that must be archived stays untouched if the archived logs take `limit` bytes or more.
pub fn archive(
    folder: &dyn LocalFolder,
    storage: &Arc<dyn Storage>,
    label: &str,
    note: Option<Note>,
    limit: u64,
) -> io::Result<ArchiveOutcome> {
    let inspection = Inspection::open(Arc::new(Locked(storage.clone())))?;
    let storage = &**storage;
    let current = inspection.log(&Label::Current);
    let published = note.as_ref().and_then(|note| note.published);
    if let (Some(current), Some(published)) = (current, published)
        && current.has_nothing_from(published.lsn)
    {
        forebay_wal::discard(storage)?;
        return Ok(ArchiveOutcome::Discarded);
    }
    let published = published.map(|published| published.lsn);
    let archived = forebay_wal::archived(storage)?.values().sum();
    if archived >= limit && forebay_wal::has_to_be_archived(storage, published)? {
        return Ok(ArchiveOutcome::NoRoom { archived });
    }
    let (segments, label) = forebay_wal::archive(storage, label, published)?;
    if segments == 0 {
        return Ok(ArchiveOutcome::Nothing);
    }
    // Without the note, salvage shows the whole log: no reason to fail.
    if let Some(Err(error)) = note.map(|note| folder.write_note(&label, note.encode().as_bytes())) {
        tracing::warn!("no note beside the log {label}: {error}");
    }
    Ok(ArchiveOutcome::Kept { label, segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> VolumeState {
        VolumeState {
            published: Lsn(4096),
            epoch: Epoch(7),
            gateway: [3; 16],
            next_inode: 12,
            inode_lease: Some(0),
            next_pack: 1,
            used_bytes: 0,
            used_inodes: 1,
            charged_bytes: Some(0),
            history: Default::default(),
            trash: Default::default(),
        }
    }

    #[test]
    fn a_mark_is_read_back_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let local = crate::Environment::real(folder.path().to_owned()).local;
        assert_eq!(read_mark(&*local), None);
        let far = VolumeState {
            published: Lsn(u64::MAX),
            ..state()
        };
        set_mark(&*local, &far).unwrap();
        set_mark(&*local, &state()).unwrap();
        let published = Published {
            lsn: Lsn(4096),
            next_inode: Inode(12),
        };
        assert_eq!(read_mark(&*local), Some((Epoch(7), published)));
        let good = local.mark().unwrap().unwrap();
        for byte in 0..good.len() - 1 {
            let mut bad = good.clone();
            bad[byte] ^= 2;
            local.set_mark(&bad).unwrap();
            assert_eq!(read_mark(&*local), None, "byte {byte}");
        }
    }

    #[test]
    fn a_note_is_read_back_with_and_without_a_published_lsn() {
        let note = Note {
            volume: VolumeId([1; 16]),
            gateway: [2; 16],
            epoch: Epoch(7),
            published: Some(Published {
                lsn: Lsn(4096),
                next_inode: Inode(12),
            }),
            taken_by: ([4; 16], Epoch(9)),
            archived_at: 1_790_000_000,
        };
        assert_eq!(Note::decode(&note.encode()), Some(note.clone()));
        let unknown = Note {
            published: None,
            ..note
        };
        assert_eq!(Note::decode(&unknown.encode()), Some(unknown.clone()));
        assert_eq!(
            Note::decode(&unknown.encode().replace("epoch 7", "epoch 8")),
            None
        );
    }
}
