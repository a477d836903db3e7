//! A manifest made of the parts of others.
//!
//! SlateDB's manifests are a version and a flatbuffer, whose root is a table of numbers and of references to what lies
//! behind it. SlateDB has no call that writes one with the tables of an earlier state. So the composed one is a new
//! root, and behind it both buffers as they are:
//!
//! ```text
//!   0  u16  version, big-endian: 2
//!   2  root reference | fields of the root | root | no checkpoints | buffer of the tables | buffer of the newest manifest
//!                                             |                       ^                      ^
//!                                             +-----------------------+----------------------+  checkpoints
//! ```
//!
//! SlateDB rewrites the manifest as a whole with its next change, without what nothing refers to.

use bytes::Bytes;

use crate::error::StoreError;

/// The version of manifests whose root this knows.
const VERSION: [u8; 2] = [0, 2];

/// Number of fields of the root.
const FIELDS: usize = 18;
const INITIALIZED: usize = 2;
const WRITER_EPOCH: usize = 3;
const COMPACTOR_EPOCH: usize = 4;
const REPLAY_AFTER_WAL: usize = 5;
const WAL_LAST_SEEN: usize = 6;
const CLOCK_TICK: usize = 11;
const CHECKPOINTS: usize = 12;
const LAST_SEQ: usize = 13;
const RECENT_MIN_SEQ: usize = 14;
/// Fields that are numbers of 8 bytes.
const NUMBERS: [usize; 8] = [
    0,
    WRITER_EPOCH,
    COMPACTOR_EPOCH,
    REPLAY_AFTER_WAL,
    WAL_LAST_SEEN,
    CLOCK_TICK,
    LAST_SEQ,
    RECENT_MIN_SEQ,
];
/// Fields that are references: external databases, the last merged view, tables, unmerged and merged views, checkpoints, the
/// sequence tracker, segments and their extractor.
const REFERENCES: [usize; 9] = [1, 7, 8, 9, 10, CHECKPOINTS, 15, 16, 17];
const EXTERNAL: usize = 1;

/// Places in the new buffer, each from the one before.
const FIELDS_AT: usize = 4;
const FIELDS_LEN: usize = 4 + 2 * FIELDS;
const ROOT_AT: usize = (FIELDS_AT + FIELDS_LEN).next_multiple_of(8);
const FLAG_AT: usize = 4;
const NUMBERS_AT: usize = 8;
const REFERENCES_AT: usize = NUMBERS_AT + 8 * NUMBERS.len();
const ROOT_LEN: usize = REFERENCES_AT + 4 * REFERENCES.len();
const EMPTY_AT: usize = ROOT_AT + ROOT_LEN;
const PARTS_AT: usize = (EMPTY_AT + 4).next_multiple_of(8);

const _: () = assert!(1 + NUMBERS.len() + REFERENCES.len() == FIELDS && EMPTY_AT.is_multiple_of(4));

/// A manifest whose root was read.
pub(super) struct Root<'a> {
    buffer: &'a [u8],
    root: usize,
    fields: usize,
    fields_len: usize,
}

fn unknown() -> StoreError {
    StoreError::Fatal(
        "a manifest of the metadata has a form that this program cannot write: use the version of Forebay that wrote it"
            .into(),
    )
}

impl<'a> Root<'a> {
    pub(super) fn of(manifest: &'a [u8]) -> Result<Root<'a>, StoreError> {
        let read = || {
            let buffer = manifest.strip_prefix(&VERSION)?;
            let root = usize::try_from(u32_at(buffer, 0)?).ok()?;
            let back = i32::from_le_bytes(u32_at(buffer, root)?.to_le_bytes());
            let back = isize::try_from(back).ok()?;
            let fields = root.checked_add_signed(back.checked_neg()?)?;
            let root = Root {
                buffer,
                root,
                fields,
                fields_len: usize::from(u16_at(buffer, fields)?),
            };
            // It knows no more fields, and where the tables of other databases lie.
            let is_known = root.fields_len <= FIELDS_LEN && root.reference(EXTERNAL).is_none();
            is_known.then_some(root)
        };
        read().ok_or_else(unknown)
    }

    /// The place of a field; `None` if it has its default.
    fn field(&self, field: usize) -> Option<usize> {
        let entry = 4 + 2 * field;
        if entry + 2 > self.fields_len {
            return None;
        }
        match u16_at(self.buffer, self.fields + entry)? {
            0 => None,
            offset => Some(self.root + usize::from(offset)),
        }
    }

    fn number(&self, field: usize) -> u64 {
        let at = self.field(field);
        let bytes = at.and_then(|at| self.buffer.get(at..)?.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn is_initialized(&self) -> bool {
        let at = self.field(INITIALIZED);
        at.and_then(|at| self.buffer.get(at)) == Some(&1)
    }

    /// The place that a field refers to.
    fn reference(&self, field: usize) -> Option<usize> {
        let at = self.field(field)?;
        let to = at.checked_add(usize::try_from(u32_at(self.buffer, at)?).ok()?)?;
        (to < self.buffer.len()).then_some(to)
    }
}

/// A manifest with the tables of `tables`, which are complete, and the checkpoints and counts of `newest`; without it, it has
/// no checkpoints.
pub(super) fn composed(tables: &Root<'_>, newest: Option<&Root<'_>>) -> Result<Bytes, StoreError> {
    if !tables.is_initialized() || newest.is_some_and(|newest| !newest.is_initialized()) {
        return Err(unknown());
    }
    let tables_at = PARTS_AT;
    let newest_at = (tables_at + tables.buffer.len()).next_multiple_of(8);
    let mut out = vec![0; newest_at];
    out[tables_at..][..tables.buffer.len()].copy_from_slice(tables.buffer);
    if let Some(newest) = newest {
        out.extend(newest.buffer);
    }
    put_u32(&mut out, 0, ROOT_AT)?;
    put_u16(&mut out, FIELDS_AT, FIELDS_LEN)?;
    put_u16(&mut out, FIELDS_AT + 2, ROOT_LEN)?;
    put_u32(&mut out, ROOT_AT, ROOT_AT - FIELDS_AT)?;

    put_u16(&mut out, FIELDS_AT + 4 + 2 * INITIALIZED, FLAG_AT)?;
    out[ROOT_AT + FLAG_AT] = 1;
    for (index, field) in NUMBERS.into_iter().enumerate() {
        let at = NUMBERS_AT + 8 * index;
        put_u16(&mut out, FIELDS_AT + 4 + 2 * field, at)?;
        let number = number(field, tables, newest);
        out[ROOT_AT + at..][..8].copy_from_slice(&number.to_le_bytes());
    }
    for (index, field) in REFERENCES.into_iter().enumerate() {
        let to = match (field, newest) {
            (CHECKPOINTS, None) => Some(EMPTY_AT),
            (CHECKPOINTS, Some(newest)) => Some(match newest.reference(CHECKPOINTS) {
                Some(to) => newest_at + to,
                None => EMPTY_AT,
            }),
            (field, _) => tables.reference(field).map(|to| tables_at + to),
        };
        let Some(to) = to else { continue };
        let at = REFERENCES_AT + 4 * index;
        put_u16(&mut out, FIELDS_AT + 4 + 2 * field, at)?;
        put_u32(&mut out, ROOT_AT + at, to - (ROOT_AT + at))?;
    }
    Ok([&VERSION[..], &out].concat().into())
}

fn number(field: usize, tables: &Root<'_>, newest: Option<&Root<'_>>) -> u64 {
    let Some(newest) = newest else {
        return tables.number(field);
    };
    let (there, here) = (tables.number(field), newest.number(field));
    match field {
        // Whatever has the store open is fenced.
        WRITER_EPOCH | COMPACTOR_EPOCH => there.max(here).saturating_add(1),
        // The logs are those of the newest state.
        REPLAY_AFTER_WAL | WAL_LAST_SEEN => here,
        CLOCK_TICK => there.cast_signed().max(here.cast_signed()).cast_unsigned(),
        _ => there.max(here),
    }
}

fn u16_at(buffer: &[u8], at: usize) -> Option<u16> {
    let bytes = buffer.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(buffer: &[u8], at: usize) -> Option<u32> {
    let bytes = buffer.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn put_u16(out: &mut [u8], at: usize, number: usize) -> Result<(), StoreError> {
    let number = u16::try_from(number).map_err(|_| unknown())?;
    out[at..][..2].copy_from_slice(&number.to_le_bytes());
    Ok(())
}

fn put_u32(out: &mut [u8], at: usize, number: usize) -> Result<(), StoreError> {
    let number = u32::try_from(number).map_err(|_| unknown())?;
    out[at..][..4].copy_from_slice(&number.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest whose root has one field, with all others at their defaults.
    fn small(fields: usize) -> Vec<u8> {
        let mut buffer = vec![0; 64];
        buffer[0] = 48;
        buffer[4] = (4 + 2 * fields) as u8;
        buffer[6] = 5;
        buffer[8 + 2 * INITIALIZED] = 4;
        buffer[48] = 44;
        buffer[52] = 1;
        [&VERSION[..], &buffer].concat()
    }

    #[test]
    fn defaults_are_kept_and_checkpoints_are_none() {
        let bytes = small(FIELDS);
        let made = composed(&Root::of(&bytes).unwrap(), None).unwrap();
        let root = Root::of(&made).unwrap();
        assert!(root.is_initialized());
        assert!(NUMBERS.iter().all(|field| root.number(*field) == 0));
        let there: Vec<_> = REFERENCES
            .into_iter()
            .filter(|field| root.reference(*field).is_some())
            .collect();
        assert_eq!(there, [CHECKPOINTS]);
        let after = composed(&root, Some(&Root::of(&bytes).unwrap())).unwrap();
        assert_eq!(Root::of(&after).unwrap().number(WRITER_EPOCH), 1);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(Root::of(&small(FIELDS + 1)).is_err());
        assert!(Root::of(&[&[0, 1], &small(FIELDS)[2..]].concat()).is_err());
        for len in 0..52 {
            assert!(Root::of(&small(FIELDS)[..len]).is_err(), "{len}");
        }
        let mut begun = small(FIELDS);
        begun[2 + 52] = 0;
        assert!(composed(&Root::of(&begun).unwrap(), None).is_err());
    }
}
