//! Seals and opens the records of a segment.
//!
//! A log with keys seals every segment that it begins, completely:
//!
//! ```text
//! key       of this life of the segment: derived from a data key of the volume, the volume, the number of the segment
//!           and 16 random bytes, which are in its header (`forebay-seal`)
//! record    payload: the appended bytes, encrypted; then a tag of 16 bytes
//!           nonce: the LSN of the record
//!           authenticated with it: bytes 4 to 32 of its header (kind, LSN, salt, length)
//! header    tag: authenticates bytes 0 to 124 of it, with the nonce of the closing part
//! ```
//!
//! # Why no nonce repeats
//!
//! A key is drawn for each segment that is prepared, lives in memory only, and is never derived again for sealing:
//! after a restart, however the process ended, the log continues in a new segment. So everything that is sealed under
//! a key is sealed by one process in one life of the segment. Within it, the LSN of a record is the place of its
//! bytes, and [`Unwritten`](crate::map::Unwritten) hands out each byte once; an append that fails leaves a hole,
//! which is never filled. Earlier content of the disk, or content that is restored to it, makes no difference: copies
//! of a volume, rolled-back logs and reused files get the same key only if the same 128 random bits are drawn again.
//!
//! # Plaintext never reaches the disk
//!
//! The memory of a segment is its file: the system writes it out at any time, and a killed process leaves it as it
//! is. So a payload is sealed in a buffer of the appending thread, and only then copied into its place.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_seal::{DataKeys, Forged, Opener, Part, PlaceSealer, Purpose, Sealing, TAG_LEN, Tag};
use forebay_types::{Lsn, VolumeId};

use crate::error::OpenError;
use crate::layout::{HeaderSeal, RecordHeader, SegmentHeader, SegmentNumber};

/// Bytes that sealing adds to a payload.
pub(crate) const SEAL_BYTES: u64 = TAG_LEN as u64;

/// Bytes of a thread's buffer that are kept for the next record: enough for the largest write and its names.
const KEPT_BUFFER: usize = (1 << 20) + (64 << 10);

/// The keys that a log is read with, and whether it must be sealed.
///
/// | | sealed segments | others |
/// |---|---|---|
/// | `None` | [refused](OpenError::Sealed) | read |
/// | `Optional` | opened | read |
/// | `Required` | opened | [refused](OpenError::NotSealed), unless everything in them is published: then they are discarded |
#[derive(Clone, Debug, Default)]
pub enum LogKeys {
    /// No keys: the volume is not sealed.
    #[default]
    None,
    /// The log may be sealed or not, for example because sealing was switched off.
    Optional(Arc<DataKeys>),
    /// The log must be sealed: write access to its disk must not be enough to have forged records replayed.
    Required(Arc<DataKeys>),
}

impl LogKeys {
    /// The keys, if there are any.
    pub(crate) fn keys(&self) -> Option<&Arc<DataKeys>> {
        match self {
            LogKeys::None => None,
            LogKeys::Optional(keys) | LogKeys::Required(keys) => Some(keys),
        }
    }

    /// Refuses the keys of another volume.
    pub(crate) fn check(&self, volume: VolumeId) -> Result<(), OpenError> {
        self.keys().map_or(Ok(()), |keys| check(keys, volume))
    }
}

/// Refuses the keys of another volume.
pub(crate) fn check(keys: &DataKeys, volume: VolumeId) -> Result<(), OpenError> {
    if keys.volume() == volume {
        return Ok(());
    }
    Err(OpenError::Options(format!(
        "the keys belong to volume {} and the log to {volume}",
        keys.volume()
    )))
}

/// Seals one life of a segment.
pub(crate) struct SegmentSealer {
    sealer: PlaceSealer,
    #[cfg(test)]
    number: SegmentNumber,
}

impl SegmentSealer {
    /// A sealer with a new key, which no other sealer has.
    pub(crate) fn new(sealing: &Sealing, number: SegmentNumber) -> SegmentSealer {
        let entropy = &*sealing.entropy;
        SegmentSealer {
            sealer: sealing.keys.place_sealer(Purpose::Log, number.0, entropy),
            #[cfg(test)]
            number,
        }
    }

    /// The salt of its key.
    pub(crate) fn salt(&self) -> forebay_seal::Salt {
        *self.sealer.salt()
    }

    /// The sealed header of the segment; `previous` is the salt of the key of the segment before, zeros if there is
    /// none. Called once.
    pub(crate) fn seal_header(
        &self,
        header: SegmentHeader,
        previous: forebay_seal::Salt,
    ) -> SegmentHeader {
        let mut header = SegmentHeader {
            seal: Some(HeaderSeal {
                key: self.sealer.key_id(),
                salt: self.salt(),
                previous,
                tag: Tag::default(),
            }),
            ..header
        };
        #[cfg(test)]
        used::note(self, Part::Closing);
        let tag = self.sealer.seal_head(&header.authenticated());
        if let Some(seal) = &mut header.seal {
            seal.tag = tag;
        }
        header
    }

    /// Passes the sealed payload of a record to `done`, in two parts. Called once for each LSN.
    pub(crate) fn seal_record(
        &self,
        record: &RecordHeader,
        parts: &[&[u8]],
        done: impl FnOnce(&[&[u8]]),
    ) {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            for part in parts {
                buffer.extend_from_slice(part);
            }
            #[cfg(test)]
            used::note(self, Part::Counted(record.lsn.0));
            let also = record.authenticated();
            let tag = self.sealer.seal_at(record.lsn.0, &also, buffer);
            done(&[buffer, &tag]);
            if buffer.capacity() > KEPT_BUFFER {
                *buffer = Vec::new();
            }
        });
    }
}

/// Opens one life of a segment.
pub(crate) struct SegmentOpener(Opener);

impl SegmentOpener {
    /// The opener of the segment with this header, which must be authentic; `None` if the segment is not sealed.
    pub(crate) fn of(
        keys: &LogKeys,
        header: &SegmentHeader,
        file: &str,
    ) -> Result<Option<SegmentOpener>, OpenError> {
        let Some(seal) = &header.seal else {
            return Ok(None);
        };
        let Some(keys) = keys.keys() else {
            return Err(OpenError::Sealed {
                segment: file.to_owned(),
            });
        };
        let opener = keys
            .opener(Purpose::Log, header.number.0, seal.key, &seal.salt)
            .map_err(|error| OpenError::UnknownKey {
                segment: file.to_owned(),
                error,
            })?;
        let also = header.authenticated();
        match opener.open(Part::Closing, &also, &mut [], &seal.tag) {
            Ok(()) => Ok(Some(SegmentOpener(opener))),
            Err(Forged) => Err(OpenError::Forged {
                segment: file.to_owned(),
                what: "its header".to_owned(),
            }),
        }
    }

    /// Opens the stored payload of a record in place, and returns the plaintext part of it.
    pub(crate) fn open_record<'a>(
        &self,
        record: &RecordHeader,
        stored: &'a mut [u8],
    ) -> Result<&'a [u8], Forged> {
        let (sealed, tag) = stored.split_last_chunk_mut().ok_or(Forged)?;
        let part = Part::Counted(record.lsn.0);
        self.0.open(part, &record.authenticated(), sealed, tag)?;
        Ok(sealed)
    }
}

/// The error for a record that does not authenticate.
pub(crate) fn forged_record(segment: &str, lsn: Lsn) -> OpenError {
    OpenError::Forged {
        segment: segment.to_owned(),
        what: format!("the record at LSN {lsn}"),
    }
}

/// Which keys were used with which nonces, for the tests that no pair is used twice.
#[cfg(test)]
pub(crate) mod used {
    use parking_lot::Mutex;

    use super::{Part, SegmentSealer};

    /// The inputs of a key, beside the volume's data keys: data key, number and salt. The last field is the nonce.
    pub(crate) type Pair = (u32, u64, forebay_seal::Salt, Option<u64>);

    static PAIRS: Mutex<Vec<Pair>> = Mutex::new(Vec::new());

    pub(super) fn note(sealer: &SegmentSealer, part: Part) {
        let place = match part {
            Part::Counted(place) => Some(place),
            Part::Closing => None,
        };
        let (key, salt) = (sealer.sealer.key_id().0, sealer.salt());
        PAIRS.lock().push((key, sealer.number.0, salt, place));
    }

    /// All pairs, of all tests.
    pub(crate) fn all() -> Vec<Pair> {
        PAIRS.lock().clone()
    }
}
