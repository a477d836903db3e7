//! The state file, which a gateway keeps on its local disk beside the log: its identity, the epoch that it holds, and
//! its write verifier.
//!
//! A small text file, replaced as a whole (write beside, flush, rename, flush the folder); its last line is a CRC32
//! of the others:
//!
//! ```text
//! forebay-state 1
//! volume 6f0c...            32 hexadecimal digits
//! gateway 51ab...           32 hexadecimal digits, drawn when the folder was first used
//! epoch 7                   the highest epoch that the bucket was known to have, of this gateway or another
//! intent 8                  the epoch that an opening under way is about to take
//! verifier 0011223344556677
//! boot 0f3a...              the kernel's boot id, 32 hexadecimal digits; zeros while a failed log is
//!                           not replaced yet
//! clean 1 8192              whether the log was flushed to its end by an orderly stop, and the LSN of its end
//! keys 3                    the generation of the key ring that was read last; only of a sealed volume
//! note "0a1b"               ETag of the note in the bucket that this gateway wrote last, if the store gave one
//! crc32 0a1b2c3d
//! ```
//!
//! `intent` is written *before* the bucket gets a new epoch: after a crash in between, the gateway still recognizes
//! the epoch in the bucket as its own, and its log is replayed. `epoch` is written when the bucket has it: a bucket
//! of a lower epoch is an earlier state that was restored, and is refused.

use std::io;
use std::path::{Path, PathBuf};

use forebay_types::{Epoch, Lsn, VolumeId, hex, unhex};
use forebay_vfs::Verifier;
use forebay_wal::WriterEnd;

use crate::disk_folder::DiskFolder;
use crate::folder::{LocalFolder, STATE_FILE};

const MAGIC: &str = "forebay-state 1";

/// Why the local state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The folder or the file cannot be read or written.
    #[error(
        "{path}: {source}; check that the folder exists and belongs to this user, and that its disk is not full"
    )]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not what this program wrote.
    #[error(
        "{path} is damaged ({why}); move it and the log folder beside it away: the volume then continues from what the bucket holds"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Identity of a gateway, drawn when its local folder is first used.
pub type GatewayId = [u8; 16];

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalState {
    /// The volume to which the folder belongs.
    pub volume: VolumeId,
    /// The gateway.
    pub gateway: GatewayId,
    /// The highest epoch that the bucket was known to have.
    pub epoch: Epoch,
    /// The epoch that an opening under way is about to take.
    pub intent: Epoch,
    /// The write verifier.
    pub verifier: Verifier,
    /// The kernel's boot id; zeros while a failed log is not replaced yet.
    pub boot: [u8; 16],
    /// Whether the log was flushed to its end by an orderly stop.
    pub clean: bool,
    /// The end of the log after an orderly stop, if there was a log.
    pub log_end: Option<Lsn>,
    /// The highest generation of the key ring that was seen; 0 for a volume that is not sealed.
    pub keys: u64,
    /// ETag of the [holder's note](forebay_meta::volume::holder) that this gateway wrote last.
    pub note: Option<String>,
}

impl LocalState {
    /// The state of a gateway that has opened nothing yet.
    pub fn new(volume: VolumeId, gateway: GatewayId) -> LocalState {
        LocalState {
            volume,
            gateway,
            epoch: Epoch(0),
            intent: Epoch(0),
            verifier: Verifier([0; 8]),
            boot: [0; 16],
            clean: false,
            log_end: None,
            keys: 0,
            note: None,
        }
    }

    /// Whether the log beside this state continues the bucket's state, which was last opened by
    /// `gateway` with `epoch`.
    pub fn continues(&self, gateway: GatewayId, epoch: Epoch) -> bool {
        self.gateway == gateway && (epoch == self.epoch || epoch == self.intent)
    }

    /// How the gateway ended, given a kernel that booted as `boot`. Writes that were answered UNSTABLE are certainly
    /// in the log if it was flushed in order, or if the kernel that holds its pages still runs.
    pub fn ending(&self, boot: [u8; 16]) -> WriterEnd {
        if self.clean {
            self.log_end.map_or(WriterEnd::Stop, WriterEnd::StopAt)
        } else if self.boot == boot && boot != [0; 16] {
            WriterEnd::Kill
        } else {
            WriterEnd::PowerCut
        }
    }

    /// Encodes the state as text.
    pub fn encode(&self) -> String {
        let log_end = self.log_end.filter(|_| self.clean);
        let log_end = log_end.map_or(String::new(), |end| format!(" {}", end.0));
        let keys = match self.keys {
            0 => String::new(),
            keys => format!("keys {keys}\n"),
        };
        // A note that could not be read back unchanged is left out: that costs one more request at the next start.
        let fits = |note: &&String| note.len() <= 200 && !note.contains(char::is_control);
        let note = self.note.as_ref().filter(fits);
        let note = note.map_or(String::new(), |note| format!("note {note}\n"));
        let body = format!(
            "{MAGIC}\nvolume {}\ngateway {}\nepoch {}\nintent {}\nverifier {}\nboot {}\nclean {}{log_end}\n{keys}{note}",
            self.volume,
            hex(&self.gateway),
            self.epoch.0,
            self.intent.0,
            hex(&self.verifier.0),
            hex(&self.boot),
            u8::from(self.clean),
        );
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}crc32 {crc:08x}\n")
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The reason why the text is not a valid state file.
    pub fn decode(text: &str) -> Result<LocalState, &'static str> {
        let (body, crc) = text
            .rsplit_once("crc32 ")
            .ok_or("the checksum is missing")?;
        let crc =
            u32::from_str_radix(crc.trim_end(), 16).map_err(|_| "the checksum is not a number")?;
        if crc != crc32fast::hash(body.as_bytes()) {
            return Err("its checksum does not match");
        }
        let mut lines = body.lines();
        if lines.next() != Some(MAGIC) {
            return Err("it was written by another version of the program");
        }
        let mut value = |key: &str| {
            lines
                .next()
                .and_then(|line| line.strip_prefix(key))
                .and_then(|rest| rest.strip_prefix(' '))
                .ok_or("a line is missing")
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| "a number is malformed");
        let mut state = LocalState {
            volume: value("volume")?
                .parse()
                .map_err(|()| "the volume id is malformed")?,
            gateway: unhex(value("gateway")?)?,
            epoch: Epoch(number(value("epoch")?)?),
            intent: Epoch(number(value("intent")?)?),
            verifier: Verifier(unhex(value("verifier")?)?),
            boot: unhex(value("boot")?)?,
            clean: false,
            log_end: None,
            keys: 0,
            note: None,
        };
        let clean = value("clean")?;
        match clean.split_once(' ') {
            Some((_, end)) => {
                state.clean = true;
                state.log_end = Some(Lsn(number(end)?));
            }
            None => state.clean = clean == "1",
        }
        for line in lines {
            match line.split_once(' ') {
                Some(("keys", keys)) => state.keys = number(keys)?,
                Some(("note", e_tag)) => state.note = Some(e_tag.to_owned()),
                _ => return Err("a line is unknown"),
            }
        }
        Ok(state)
    }
}

/// Reads the state of a gateway; `None` if the folder was never used.
pub fn load(folder: &dyn LocalFolder) -> Result<Option<LocalState>, LocalError> {
    let path = || folder.path().join(STATE_FILE);
    let bytes = folder.load_state().map_err(|source| LocalError::Io {
        path: path(),
        source,
    })?;
    let Some(bytes) = bytes else { return Ok(None) };
    let decoded = std::str::from_utf8(&bytes)
        .map_err(|_| "it is not text")
        .and_then(LocalState::decode);
    match decoded {
        Ok(state) => Ok(Some(state)),
        Err(why) => Err(LocalError::Damaged { path: path(), why }),
    }
}

/// The highest generation of the key ring of `volume` that the gateway with this folder has started with; 0 if there
/// is no such gateway, or no generation yet.
///
/// # Errors
/// If the folder's state file cannot be read.
pub fn key_ring_seen(data_dir: &Path, volume: VolumeId) -> Result<u64, LocalError> {
    Ok(own(data_dir, volume)?.map_or(0, |state| state.keys))
}

/// The highest epoch of `volume` that the gateway with this folder has seen; 0 if there is no such gateway, or no
/// epoch yet.
///
/// # Errors
/// If the folder's state file cannot be read.
pub fn epoch_seen(data_dir: &Path, volume: VolumeId) -> Result<Epoch, LocalError> {
    Ok(own(data_dir, volume)?.map_or(Epoch(0), |state| state.epoch))
}

/// The state of the gateway with this folder, if it belongs to `volume`.
fn own(data_dir: &Path, volume: VolumeId) -> Result<Option<LocalState>, LocalError> {
    let state = load(&DiskFolder::new(data_dir.to_owned()))?;
    Ok(state.filter(|state| state.volume == volume))
}

/// Replaces the state of a gateway; it is on stable storage when this returns.
pub fn store(folder: &dyn LocalFolder, state: &LocalState) -> Result<(), LocalError> {
    let replaced = folder.replace_state(state.encode().as_bytes());
    replaced.map_err(|source| LocalError::Io {
        path: folder.path().join(STATE_FILE),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn state() -> LocalState {
        LocalState {
            volume: VolumeId([7; 16]),
            gateway: [1; 16],
            epoch: Epoch(7),
            intent: Epoch(8),
            verifier: Verifier([3; 8]),
            boot: [4; 16],
            clean: false,
            log_end: None,
            keys: 0,
            note: None,
        }
    }

    #[test]
    fn a_stored_state_is_read_back_and_a_missing_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let local = DiskFolder::new(folder.path().to_owned());
        assert_eq!(load(&local).unwrap(), None);
        store(&local, &state()).unwrap();
        assert_eq!(load(&local).unwrap(), Some(state()));
        for log_end in [None, Some(Lsn(u64::MAX))] {
            let stopped = LocalState {
                clean: true,
                log_end,
                ..state()
            };
            store(&local, &stopped).unwrap();
            assert_eq!(load(&local).unwrap(), Some(stopped));
        }
        for (keys, note) in [(7, None), (7, Some("\"a b\"")), (0, Some("x"))] {
            let more = LocalState {
                keys,
                note: note.map(str::to_owned),
                ..state()
            };
            store(&local, &more).unwrap();
            assert_eq!(load(&local).unwrap(), Some(more));
        }
        // A part of an ETag would be the tag of another version.
        let odd = LocalState {
            note: Some("a\nkeys 9".to_owned()),
            ..state()
        };
        store(&local, &odd).unwrap();
        assert_eq!(load(&local).unwrap(), Some(state()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let local = DiskFolder::new(folder.path().to_owned());
        let text = state().encode().into_bytes();
        for at in 0..text.len() - 1 {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            fs::write(folder.path().join(STATE_FILE), damaged).unwrap();
            match load(&local) {
                Err(LocalError::Damaged { .. }) => {}
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }

    #[test]
    fn only_the_last_opener_with_this_epoch_or_intent_continues() {
        let state = state();
        assert!(state.continues([1; 16], Epoch(7)));
        assert!(state.continues([1; 16], Epoch(8)));
        assert!(!state.continues([1; 16], Epoch(9)));
        assert!(!state.continues([1; 16], Epoch(6)));
        assert!(!state.continues([2; 16], Epoch(7)));
    }

    #[test]
    fn a_reboot_without_an_orderly_stop_may_have_lost_something() {
        let mut state = state();
        assert_eq!(state.ending([4; 16]), WriterEnd::Kill);
        assert_eq!(state.ending([5; 16]), WriterEnd::PowerCut);
        state.clean = true;
        assert_eq!(state.ending([5; 16]), WriterEnd::Stop);
        state.log_end = Some(Lsn(800));
        assert_eq!(state.ending([5; 16]), WriterEnd::StopAt(Lsn(800)));
        state.clean = false;
        state.boot = [0; 16];
        assert_eq!(state.ending([0; 16]), WriterEnd::PowerCut);
    }
}
