//! Payloads of the log's records, which replay reads after the log has checked their checksums.
//!
//! For every payload:
//! * a data or truncate record that is read is written as the same bytes;
//! * a batch that is read is the same after writing and reading; it knows its end; cut off anywhere it is not a valid
//!   batch; and it takes no more memory than a small multiple of its bytes.

use bytes::Bytes;
use forebay_meta::log_record::{DataHeader, decode_truncate, encode_truncate};
use forebay_meta::record::{Content, InodeRecord, Timestamp};
use forebay_meta::{Batch, Entry, Key, Record};
use forebay_types::Inode;

use crate::Target;

/// The target.
pub const TARGET: Target = Target {
    name: "log_payloads",
    run,
    seeds,
    max_bytes: 1024,
};

fn run(payload: &[u8]) {
    if let Some((header, data)) = DataHeader::decode(payload) {
        let written = [&header.encode()[..], data].concat();
        assert_eq!(written, payload, "a data record");
    }
    if let Some((inode, record)) = decode_truncate(payload) {
        let written = encode_truncate(inode, &record);
        assert_eq!(written, payload, "a truncate record");
    }
    let Ok((batch, rest)) = Batch::decode_prefix(payload) else {
        return;
    };
    assert!(payload.ends_with(rest));
    let used = payload.len() - rest.len();
    assert!(
        batch.len() < used && batch.bytes() < used,
        "more than there is"
    );
    assert_eq!(Batch::decode(&payload[..used]).as_ref(), Ok(&batch));
    for end in [used / 2, used - 1] {
        assert!(
            Batch::decode_prefix(&payload[..end]).is_err(),
            "cut off at {end} of {used}"
        );
    }
    let mut written = Vec::new();
    batch.encode_into(&mut written);
    assert!(written.len() <= used, "the encoding is the shortest");
    let again = Batch::decode(&written);
    assert_eq!(again.as_ref(), Ok(&batch));
    for (key, entry) in batch.changes() {
        super::metadata::check_key(key);
        if let (Ok(Key::Inode(_)), Entry::Value(value)) = (Key::decode(key), entry) {
            super::metadata::check_value::<InodeRecord>(key, value);
        }
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let time = Timestamp {
        seconds: 1_795_000_000,
        nanos: 9,
    };
    let file = InodeRecord {
        content: Content::Regular,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        nlink: 1,
        size: 4096,
        used: 8192,
        atime: time,
        mtime: time,
        ctime: time,
        create_verifier: Some([5; 8]),
        tree: None,
        truncated: Default::default(),
    };
    let mut data = 7u64.to_le_bytes().to_vec();
    data.extend(4096u64.to_le_bytes());
    data.extend(1_795_000_000u64.to_le_bytes());
    data.extend(9u32.to_le_bytes());
    data.extend(0o644u32.to_le_bytes());
    data.extend(b"it takes what comes");
    let truncate = [&7u64.to_le_bytes()[..], &file.encode()].concat();
    let mut batch = Batch::new();
    batch.put(&Key::Inode(Inode(7)), &file);
    batch.delete(&Key::Inode(Inode(8)));
    batch.put_encoded(
        Key::Name(Inode(1), Bytes::from_static(b"file")).encode(),
        Bytes::from_static(&[0; 300]),
    );
    let encoded = |batch: &Batch| {
        let mut out = Vec::new();
        batch.encode_into(&mut out);
        out
    };
    vec![
        ("data", data),
        ("truncate", truncate),
        ("batch", encoded(&batch)),
        ("batch-and-more", [&encoded(&batch)[..], b"more"].concat()),
        ("empty-batch", encoded(&Batch::new())),
    ]
}
