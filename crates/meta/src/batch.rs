//! Batches: changes that happen together or not at all.
//!
//! The encoding is the payload of the log's metadata records. It states its own end, so other data
//! may follow it; integrity is the log's business (its records carry a CRC).
//!
//! ```text
//! version: 1 byte (1)
//! number of changes: varint
//! each change:
//!   key length * 2 + (1 if put): varint
//!   key
//!   value length: varint, value        (only for a put)
//! ```

use bytes::Bytes;

use crate::codec::{put_varint, take_varint};
use crate::key::Key;
use crate::record::Record;

const VERSION: u8 = 1;

/// Longest key in bytes. The longest key of the schema, a 255-byte name in its directory, has 264
/// bytes; SlateDB takes up to 65,535.
pub const MAX_KEY_BYTES: usize = 1024;

/// The result of a change under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The key has this value.
    Value(Bytes),
    /// The key has no value.
    Deleted,
}

impl Entry {
    /// Length of the value in bytes; 0 if there is none.
    pub fn len(&self) -> usize {
        match self {
            Entry::Value(value) => value.len(),
            Entry::Deleted => 0,
        }
    }

    /// Whether there is no value, or an empty one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value, if there is one.
    pub fn value(self) -> Option<Bytes> {
        match self {
            Entry::Value(value) => Some(value),
            Entry::Deleted => None,
        }
    }
}

/// An ordered list of changes; the last change of a key counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<(Bytes, Entry)>,
    kept_as: Option<Box<str>>,
}

/// Bytes that are not the encoding of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a batch of metadata changes: {0}")]
pub struct NotABatch(&'static str);

impl Batch {
    /// A batch of no changes.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Puts `record` under `key`, which must be a key of that kind of record.
    pub fn put<R: Record>(&mut self, key: &Key, record: &R) {
        debug_assert_eq!(key.tag(), R::TAG, "a record under a key of another kind");
        self.put_encoded(key.encode(), record.encode());
    }

    /// Deletes the value under `key`, if there is one.
    pub fn delete(&mut self, key: &Key) {
        self.delete_encoded(key.encode());
    }

    /// Puts encoded bytes under an encoded key.
    pub fn put_encoded(&mut self, key: Bytes, value: Bytes) {
        self.changes.push((key, Entry::Value(value)));
    }

    /// Deletes the value under an encoded key.
    pub fn delete_encoded(&mut self, key: Bytes) {
        self.changes.push((key, Entry::Deleted));
    }

    /// Adds the changes of `other` behind these.
    pub fn append(&mut self, other: Batch) {
        self.changes.extend(other.changes);
        self.kept_as = other.kept_as.or(self.kept_as.take());
    }

    /// Notes that the state after this batch will be [kept](crate::MetaStore::keep) under `name`, so that a store may do both
    /// with the same requests. It is no promise: the caller asks for it after the commit all the same. The name is no part
    /// of the encoding.
    pub fn keep_as(&mut self, name: &str) {
        self.kept_as = Some(name.into());
    }

    /// The name under which the state after this batch will be kept.
    pub fn kept_as(&self) -> Option<&str> {
        self.kept_as.as_deref()
    }

    /// The changes in their order.
    pub fn changes(&self) -> &[(Bytes, Entry)] {
        &self.changes
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        let sizes = self
            .changes
            .iter()
            .map(|(key, entry)| key.len() + entry.len());
        sizes.sum()
    }

    /// Appends the encoding.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes() + 6 * self.len() + 10);
        out.push(VERSION);
        put_varint(out, self.changes.len() as u64);
        for (key, entry) in &self.changes {
            let put = matches!(entry, Entry::Value(_));
            put_varint(out, (key.len() as u64) << 1 | u64::from(put));
            out.extend(key);
            if let Entry::Value(value) = entry {
                put_varint(out, value.len() as u64);
                out.extend(value);
            }
        }
    }

    /// Reads exactly one batch.
    pub fn decode(bytes: &[u8]) -> Result<Batch, NotABatch> {
        let (batch, rest) = Batch::decode_prefix(bytes)?;
        if !rest.is_empty() {
            return Err(NotABatch("bytes are left over"));
        }
        Ok(batch)
    }

    /// Reads the batch at the start of `bytes`; returns it and the bytes behind it.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(Batch, &[u8]), NotABatch> {
        const SHORT: NotABatch = NotABatch("it ends too soon");
        let (&version, mut rest) = bytes.split_first().ok_or(SHORT)?;
        if version != VERSION {
            return Err(NotABatch("its version is unknown"));
        }
        let count = take_varint(&mut rest).ok_or(SHORT)?;
        // Each change takes at least a byte.
        if count > rest.len() as u64 {
            return Err(SHORT);
        }
        // The count alone, which may be wrong, reserves no more than most batches need.
        let mut changes = Vec::with_capacity(count.min(64) as usize);
        for _ in 0..count {
            let head = take_varint(&mut rest).ok_or(SHORT)?;
            let key = take(&mut rest, head >> 1).ok_or(SHORT)?;
            if key.is_empty() || key.len() > MAX_KEY_BYTES {
                return Err(NotABatch("it has a key that is empty or too long"));
            }
            let entry = if head & 1 == 1 {
                let len = take_varint(&mut rest).ok_or(SHORT)?;
                Entry::Value(take(&mut rest, len).ok_or(SHORT)?)
            } else {
                Entry::Deleted
            };
            changes.push((key, entry));
        }
        let kept_as = None;
        Ok((Batch { changes, kept_as }, rest))
    }
}

impl FromIterator<(Bytes, Entry)> for Batch {
    fn from_iter<I: IntoIterator<Item = (Bytes, Entry)>>(changes: I) -> Self {
        Batch {
            changes: changes.into_iter().collect(),
            kept_as: None,
        }
    }
}

/// Copies the bytes: an entry that lives on must not keep a whole log record in memory.
fn take(rest: &mut &[u8], len: u64) -> Option<Bytes> {
    let (taken, tail) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = tail;
    Some(Bytes::copy_from_slice(taken))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_batch() -> impl Strategy<Value = Batch> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        let key = proptest::collection::vec(any::<u8>(), 1..40).prop_map(Bytes::from);
        let entry = prop_oneof![bytes().prop_map(Entry::Value), Just(Entry::Deleted)];
        proptest::collection::vec((key, entry), 0..20).prop_map(Batch::from_iter)
    }

    proptest! {
        #[test]
        fn a_batch_comes_back_and_says_where_it_ends(batch in any_batch(), tail in proptest::collection::vec(any::<u8>(), 0..9)) {
            let mut out = Vec::new();
            batch.encode_into(&mut out);
            let end = out.len();
            out.extend(&tail);
            let (decoded, rest) = Batch::decode_prefix(&out).unwrap();
            prop_assert_eq!(&decoded, &batch);
            prop_assert_eq!(rest, &tail[..]);
            prop_assert_eq!(Batch::decode(&out[..end]), Ok(batch));
            prop_assert_eq!(Batch::decode(&out).is_ok(), tail.is_empty());
        }

        #[test]
        fn a_batch_that_is_cut_off_is_refused(batch in any_batch(), keep in 0_usize..1000) {
            let mut out = Vec::new();
            batch.encode_into(&mut out);
            let keep = out.len() * keep / 1000;
            prop_assert!(Batch::decode(&out[..keep]).is_err());
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            let _ = Batch::decode(&bytes);
            bytes[0] = VERSION;
            let _ = Batch::decode(&bytes);
        }
    }

    #[test]
    fn a_count_that_lies_reserves_nothing() {
        let mut bytes = vec![VERSION];
        put_varint(&mut bytes, u64::MAX);
        assert_eq!(Batch::decode(&bytes), Err(NotABatch("it ends too soon")));
    }
}
