//! Segment files of a sealed log, as changed by an attacker who has the disk but not the keys.
//!
//! There are two histories: a log, and the continuation of a copy of it. The folder has the files of the first one; the
//! input changes them in any way, and may use the files of both. For all changes and every published LSN:
//! * recovered records are those of one of the two histories, as they were appended, in sequence from the published LSN
//!   on: none is changed, moved, left out, or from the other history. Or the log is refused with a message;
//! * recovery changes no file, and a second recovery gives the same;
//! * the log can continue: an appended record is recovered, behind the earlier ones, by the next start.
//!
//! ```text
//! input    published LSN: 2    changes, one after the other
//! change   kind: 1    file: 1    at: 2    more, by kind
//!   0      the byte is changed                mask: 1
//!   1      the file ends here
//!   2      bytes of a file at hand go here    its number: 1    from: 2    how many: 2
//!   3      a file at hand replaces it         its number: 1
//!   4      it gets the name of a file at hand the number of that: 1
//!   5      it is removed
//!   6      its checksums are repaired
//!   7      the same, after its records get LSN and salt in sequence
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use forebay_seal::{DataKeyId, DataKeys, Sealing, Secret, SeededEntropy};
use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{
    AppendError, Hand, LogKeys, MemoryStorage, Options, RecordKind, Recovery, Storage, Wal,
    WriterEnd,
};

use crate::input::Input;
use crate::{Target, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "sealed_log",
    run,
    seeds,
    max_bytes: 512,
};

const VOLUME: VolumeId = VolumeId([0x42; 16]);
const PAGE: usize = 4096;
const SEGMENT_BYTES: u64 = 2 * PAGE as u64;
/// Length of the header of a sealed segment without the checksum, which follows.
const HEADER: usize = 140;

/// Name and content of each file of a folder.
type Files = BTreeMap<String, Vec<u8>>;

/// A record that was appended or recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    kind: RecordKind,
    lsn: u64,
    end: u64,
    payload: Vec<u8>,
}

/// A log, and all records ever appended to it.
struct History {
    files: Files,
    entries: Vec<Entry>,
}

/// The log, and the continuation of its copy.
struct Sample {
    histories: [History; 2],
    /// The files of both histories.
    at_hand: Vec<(String, Vec<u8>)>,
}

fn keys() -> Arc<DataKeys> {
    let key = (DataKeyId(1), Secret::draw(&SeededEntropy::new(1)));
    Arc::new(DataKeys::new(VOLUME, key, []))
}

fn options(epoch: Epoch, seed: u64) -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        limit_bytes: 64 * SEGMENT_BYTES,
        sealing: Some(Sealing {
            keys: keys(),
            entropy: Arc::new(SeededEntropy::new(seed)),
        }),
        ..Options::new(VOLUME, epoch)
    }
}

fn scan(
    storage: &MemoryStorage,
    from: Lsn,
) -> Result<(Vec<Entry>, Recovery), forebay_wal::OpenError> {
    let keys = LogKeys::Required(keys());
    let (storage, ending) = (Arc::new(storage.clone()), WriterEnd::PowerCut);
    let mut recovery = Recovery::scan_with(storage, VOLUME, from, ending, keys)?;
    let mut entries = Vec::new();
    while let Some(record) = recovery.next()? {
        entries.push(Entry {
            kind: record.kind,
            lsn: record.lsn.0,
            end: record.end.0,
            payload: record.payload.to_vec(),
        });
    }
    Ok((entries, recovery))
}

/// Continues the log under the next epoch, appends, and ends in order.
fn append(recovery: Recovery, seed: u64, payloads: &[&[u8]]) -> Vec<Entry> {
    let epoch = Epoch(recovery.epoch().map_or(1, |epoch| epoch.0 + 1));
    let (wal, hand) = recovery
        .into_wal_by_hand(options(epoch, seed))
        .unwrap_or_else(|error| panic!("the log does not go on: {error}"));
    let kind = RecordKind::Metadata;
    let appended = payloads.iter().map(|payload| {
        let (lsn, end) = append_one(&wal, &hand, kind, payload);
        Entry {
            kind,
            lsn,
            end,
            payload: payload.to_vec(),
        }
    });
    let appended = appended.collect();
    assert!(wal.close().is_ok(), "the log cannot be closed");
    appended
}

fn append_one(wal: &Wal, hand: &Hand, kind: RecordKind, payload: &[u8]) -> (u64, u64) {
    for _ in 0..3 {
        match wal.append(kind, &[payload]) {
            Ok(appended) => return (appended.lsn.0, appended.end.0),
            Err(AppendError::Full) => hand.prepare(),
            Err(error) => panic!("an append: {error}"),
        }
    }
    panic!("no room in a log of {SEGMENT_BYTES} bytes a segment");
}

fn files_of(storage: &MemoryStorage) -> Files {
    let names = storage.list().expect("names");
    let content = |name: &String| {
        let mut content = Vec::new();
        storage.edit(name, |bytes| content.clone_from(bytes));
        content
    };
    let files = names.into_iter().map(|name| (name.clone(), content(&name)));
    files.collect()
}

fn folder(files: &Files) -> MemoryStorage {
    let storage = MemoryStorage::new();
    for (name, content) in files {
        storage.edit(name, |bytes| bytes.clone_from(content));
    }
    storage
}

fn history(storage: &MemoryStorage, lives: &[(u64, &[&[u8]])]) -> History {
    let mut entries = Vec::new();
    for (seed, payloads) in lives {
        let (before, recovery) = scan(storage, Lsn(0)).expect("a log that was just written");
        entries = before;
        entries.extend(append(recovery, *seed, payloads));
    }
    History {
        files: files_of(storage),
        entries,
    }
}

/// Made once: every input begins with the same sample.
fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let storage = MemoryStorage::new();
        let large = [7; 2500];
        history(&storage, &[(10, &[b"both begin with this", b"", &large])]);
        let copy = storage.kill();
        // Each continues beyond the end of a segment, and is started once more.
        let log = history(
            &storage,
            &[(11, &[b"one", &large, &large, b"two"]), (12, &[b"three"])],
        );
        let of_copy = history(
            &copy,
            &[(13, &[b"ONE", &large, &large, b"TWO"]), (14, &[b"THREE"])],
        );
        let at_hand = log.files.iter().chain(&of_copy.files);
        let at_hand = at_hand.map(|(name, content)| (name.clone(), content.clone()));
        Sample {
            at_hand: at_hand.collect(),
            histories: [log, of_copy],
        }
    })
}

fn run(bytes: &[u8]) {
    let sample = sample();
    let mut input = Input::new(bytes);
    let from = Lsn(input.u16().into());
    let mut files = sample.histories[0].files.clone();
    while !input.is_empty() {
        change(&mut files, &sample.at_hand, &mut input);
    }
    let storage = folder(&files);
    let looked = scan(&storage, from);
    assert!(files_of(&storage) == files, "looking has changed a file");
    let (mut entries, recovery) = match looked {
        Ok(looked) => looked,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let is_of = |history: &History| {
        let due = history.entries.iter().filter(|entry| entry.lsn >= from.0);
        let due: Vec<_> = due.take(entries.len()).collect();
        due.len() == entries.len() && due.into_iter().eq(&entries)
    };
    assert!(
        sample.histories.iter().any(is_of),
        "replayed, and in neither history from LSN {} on: {entries:?}",
        from.0
    );
    let (again, _) = scan(&storage, from).expect("a second look");
    assert_eq!(again, entries, "a second look");

    entries.extend(append(recovery, 99, &[b"appended", b"", &[9; 4000]]));
    let (afterwards, _) = scan(&storage, from).expect("a log that was just written");
    assert_eq!(afterwards, entries, "after appending");
}

/// Applies a change of the attacker to the folder.
fn change(files: &mut Files, at_hand: &[(String, Vec<u8>)], input: &mut Input<'_>) {
    let (what, file, at) = (input.u8(), input.u8(), usize::from(input.u16()));
    let chosen = |number: u8| &at_hand[usize::from(number) % at_hand.len()];
    let Some(name) = files
        .keys()
        .nth(usize::from(file) % files.len().max(1))
        .cloned()
    else {
        return;
    };
    let Some(content) = files.get_mut(&name) else {
        return;
    };
    match what % 8 {
        0 => {
            let mask = input.u8();
            if let Some(byte) = content.get_mut(at) {
                *byte ^= mask;
            }
        }
        1 => content.truncate(at),
        2 => {
            let (_, other) = chosen(input.u8());
            let (from, count) = (usize::from(input.u16()), usize::from(input.u16()));
            let bytes = other.iter().skip(from).take(count);
            for (to, byte) in content.iter_mut().skip(at).zip(bytes) {
                *to = *byte;
            }
        }
        3 => content.clone_from(&chosen(input.u8()).1),
        4 => {
            let (to, _) = chosen(input.u8());
            if let Some(content) = files.remove(&name) {
                files.insert(to.clone(), content);
            }
        }
        5 => {
            files.remove(&name);
        }
        what => repaired(content, what == 7),
    }
}

/// Repairs the checksums of a segment, which needs no key.
fn repaired(content: &mut [u8], in_sequence: bool) {
    if content.len() < PAGE {
        return;
    }
    let (header, records) = content.split_at_mut(PAGE);
    let crc = crc32fast::hash(&header[..HEADER]);
    header[HEADER..HEADER + 4].copy_from_slice(&crc.to_le_bytes());
    let [base, salt] = [48, 56].map(|at| Input::new(&header[at..]).u64());
    repair::records(records, base, salt, in_sequence);
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let with = |from: u16, changes: &[&[u8]]| [&from.to_le_bytes()[..], &changes.concat()].concat();
    // The first record of a segment lies at 4096, its payload 32 bytes behind that.
    let [record, payload] = [4096u16, 4128].map(u16::to_le_bytes);
    let repaired = [6, 0, 0, 0];
    let flipped = [0, 0, payload[0], payload[1], 1];
    let copied = [2, 1, record[0], record[1], 0, record[0], record[1], 0, 16];
    vec![
        ("untouched", with(0, &[])),
        ("published", with(56, &[])),
        ("flipped", with(0, &[&flipped])),
        ("flipped-and-repaired", with(0, &[&flipped, &repaired])),
        ("header-flipped", with(0, &[&[0, 0, 80, 0, 1], &repaired])),
        ("cut-off", with(0, &[&[1, 1, record[0], record[1]]])),
        ("record-copied", with(0, &[&copied, &[7, 1, 0, 0]])),
        ("of-the-copy", with(0, &[&[3, 2, 0, 0, 9]])),
        ("renamed", with(0, &[&[4, 1, 0, 0, 2]])),
        ("removed", with(0, &[&[5, 1, 0, 0]])),
        ("not-sealed", with(0, &[&[0, 0, 8, 0, 3], &repaired])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_histories_have_several_segments_and_go_on_otherwise() {
        let Sample { histories, at_hand } = sample();
        for history in histories {
            let sealed = history.files.values().filter(|bytes| bytes[8] == 2).count();
            assert!(sealed >= 4, "{sealed} segments");
            assert_eq!(history.entries.len(), 8);
        }
        let [log, copy] = histories;
        assert_eq!(log.entries[..3], copy.entries[..3]);
        assert!(log.entries[3..] != copy.entries[3..]);
        assert_eq!(at_hand.len(), log.files.len() + copy.files.len());
    }

    #[test]
    fn what_is_not_changed_is_recovered_whole_and_what_was_changed_is_refused() {
        let log = &sample().histories[0];
        let (entries, _) = scan(&folder(&log.files), Lsn(0)).expect("untouched");
        assert_eq!(entries, log.entries);
        let mut files = log.files.clone();
        let first = files.values_mut().find(|bytes| bytes[8] == 2);
        let first = first.expect("a sealed segment");
        first[PAGE + 32] ^= 1;
        repaired(first, false);
        assert!(scan(&folder(&files), Lsn(0)).is_err());
    }
}
