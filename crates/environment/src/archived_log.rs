//! What becomes of a log that must never be replayed, because another gateway has written to the
//! volume since: it is kept for the operator, together with a note of what the bucket had of it.
//!
//! Two small texts make that possible, each with a CRC32 of its other bytes at its end:
//!
//! ```text
//! <data_dir>/published       (the mark: one line, of which each checkpoint replaces all bytes)
//! forebay-published 1 epoch <16 hex> lsn <16 hex> next-inode <16 hex> crc32 <8 hex>
//!
//! <data_dir>/log/<label>.note
//! forebay-note 1
//! volume 6f0c...           whose log it is
//! gateway 51ab...          who wrote it
//! epoch 7                  under which epoch, the newest
//! published 4096 12        published LSN and next inode number of the mark, or - if unknown
//! taken-by 77ce... 8       gateway and epoch that the bucket named when it was put aside
//! put-aside 1790000000     seconds since 1970
//! crc32 0a1b2c3d
//! ```
//!
//! Nothing depends on the mark but how exactly the unpublished part of a log can be told from the
//! published one, so it is not flushed: an older mark makes a salvage show more than was lost, and a
//! damaged one makes it show all that is there.

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

/// How far a log was in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The bucket held everything before this.
    pub lsn: Lsn,
    /// Objects from this number on were made later: in the bucket, another gateway may have given
    /// the same numbers to other objects.
    pub next_inode: Inode,
}

/// What is remembered of a log that was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whose log it is.
    pub volume: VolumeId,
    /// The gateway that wrote it.
    pub gateway: [u8; 16],
    /// The epoch under which it wrote last.
    pub epoch: Epoch,
    /// What the bucket had of it; `None` if that is not known.
    pub published: Option<Published>,
    /// The gateway that the bucket named when the log was put aside, and its epoch. The same as
    /// `gateway` for a log that was put aside because the volume goes on without one.
    pub taken_by: ([u8; 16], Epoch),
    /// When it was put aside, in seconds since 1970.
    pub put_aside: i64,
}

/// Marks how far the log is in the bucket. A kill leaves the old mark or the new one.
pub fn set_mark(folder: &dyn LocalFolder, state: &VolumeState) -> io::Result<()> {
    let body = format!(
        "{MARK_MAGIC} epoch {:016x} lsn {:016x} next-inode {:016x} ",
        state.epoch.0, state.published.0, state.next_inode
    );
    let crc = crc32fast::hash(body.as_bytes());
    folder.set_mark(format!("{body}crc32 {crc:08x}\n").as_bytes())
}

/// The mark of a folder, if there is a whole one, and its epoch.
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

/// What the bucket had of the log beside this state, by the mark.
pub fn published(folder: &dyn LocalFolder, state: &LocalState) -> Option<Published> {
    let (epoch, published) = read_mark(folder)?;
    // A crash may have come between the two files, at the end of an opening.
    (epoch == state.epoch || epoch == state.intent).then_some(published)
}

/// Splits a text from its checksum, which must be right; the line that has it comes second.
fn checked(text: &str) -> Option<(&str, &str)> {
    let (body, crc) = text.rsplit_once("crc32 ")?;
    let crc_given = u32::from_str_radix(crc.trim_end(), 16).ok()?;
    (crc_given == crc32fast::hash(body.as_bytes())).then_some((body, crc))
}

impl Note {
    /// The note's text.
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
            self.put_aside,
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
            put_aside: value("put-aside")?.parse().ok()?,
        })
    }

    /// The note about a log; `None` if there is none, or it is damaged: salvage does without it.
    pub fn read(log: &Path, label: &Label) -> Option<Note> {
        let Label::Aside(label) = label else {
            return None;
        };
        let text = std::fs::read_to_string(note_path(log, label)).ok()?;
        Note::decode(&text)
    }

    /// Removes the note about a log that is forgotten.
    pub fn remove(log: &Path, label: &Label) -> io::Result<()> {
        match label {
            Label::Aside(label) => match std::fs::remove_file(note_path(log, label)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            Label::Current => Ok(()),
        }
    }
}

/// A log's files as its owner sees them.
struct Locked(Arc<dyn Storage>);

impl LogFiles for Locked {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        self.0.read(name)
    }
}

/// What was done with a log that must not be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// There was none.
    Nothing,
    /// The bucket has all of it: its files are used again.
    LetGo,
    /// Nothing has changed: this number of bytes of archived logs is there already.
    NoRoom {
        /// Bytes of the logs archived before.
        archived: u64,
    },
    /// It is kept under this label.
    Kept {
        /// The prefix of its files' names.
        label: String,
        /// Its segments.
        segments: usize,
    },
}

/// Puts the log in `storage`, which this process has locked, out of the way under a label that
/// begins with `label`. `note` says what is known of it; without one nothing of the log is let go of.
///
/// A log that has to be kept stays untouched if the logs archived before take `limit` bytes or more.
pub fn archive(
    folder: &dyn LocalFolder,
    storage: &Arc<dyn Storage>,
    label: &str,
    note: Option<Note>,
    limit: u64,
) -> io::Result<Fate> {
    let inspection = Inspection::open(Arc::new(Locked(storage.clone())))?;
    let storage = &**storage;
    let current = inspection.log(&Label::Current);
    let published = note.as_ref().and_then(|note| note.published);
    if let (Some(current), Some(published)) = (current, published)
        && current.has_nothing_from(published.lsn)
    {
        forebay_wal::discard(storage)?;
        return Ok(Fate::LetGo);
    }
    let published = published.map(|published| published.lsn);
    let archived = forebay_wal::archived(storage)?.values().sum();
    if archived >= limit && forebay_wal::has_to_be_archived(storage, published)? {
        return Ok(Fate::NoRoom { archived });
    }
    let (segments, label) = forebay_wal::put_aside(storage, label, published)?;
    if segments == 0 {
        return Ok(Fate::Nothing);
    }
    // Without it, salvage shows all of the log: no reason not to go on.
    if let Some(Err(error)) = note.map(|note| folder.write_note(&label, note.encode().as_bytes())) {
        tracing::warn!("no note beside the log {label}: {error}");
    }
    Ok(Fate::Kept { label, segments })
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
            put_aside: 1_790_000_000,
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
