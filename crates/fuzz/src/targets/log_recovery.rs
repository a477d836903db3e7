//! Segment files of the log, as a crash or a damaged disk leaves them.
//!
//! For all files and every published LSN:
//! * a recovered record lies in a begun segment, at the position of its LSN, with a correct checksum and the salt of
//!   the segment; checked by a separate reader, written from `docs/format.md`;
//! * records are adjacent, from the published LSN on, and the bytes behind the last one in its segment are no record;
//! * a second recovery gives the same;
//! * the log can continue: an appended record is recovered, behind the earlier ones, by the next start.
//!
//! ```text
//! input    flags: 1    published LSN: 8    files
//! file     name: 1     size: 1    header: 128    records: length 2, bytes
//! flags    1  repair the checksums     2  give records LSN and salt in sequence
//!          4  make headers ours: magic, version, volume and the number of the name
//! name     number 0 to 126, or 127 for the largest one; 128 for a spare file
//! size     pages 0 to 7; 128 for 100 bytes more
//! ```

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{AppendError, MemoryStorage, Options, RecordKind, Recovery, Room, Storage, Tail};

use crate::input::{Input, put_piece};
use crate::{Target, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "log_recovery",
    run,
    seeds,
    max_bytes: 4096,
};

const VOLUME: VolumeId = VolumeId([0x42; 16]);
const PAGE: usize = 4096;
const HEADER: usize = 128;
/// Size of the segments in which the log continues.
const SEGMENT_BYTES: u64 = 2 * PAGE as u64;
/// Most files of an input.
const MAX_FILES: usize = 6;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let from = Lsn(input.u64());
    let storage = MemoryStorage::new();
    let mut segments = Vec::new();
    while !input.is_empty() && segments.len() < MAX_FILES {
        let (name, bytes) = file(&mut input, flags);
        storage.edit(&name, |content| content.clone_from(&bytes));
        segments.retain(|(known, _)| *known != name);
        segments.push((name, bytes));
    }
    let begun: Vec<_> = segments
        .iter()
        .filter_map(|(name, bytes)| Segment::read(name, bytes))
        .collect();

    let Some((recovered, recovery)) = recover(&storage, from) else {
        return;
    };
    check(&recovered, &begun, from, recovery.end());
    let Some((again, _)) = recover(&storage, from) else {
        panic!("a second look fails");
    };
    assert_eq!(again, recovered, "a second look");
    go_on(&storage, recovery, from, recovered);
}

/// A file of the log, from the input.
fn file(input: &mut Input<'_>, flags: u8) -> (String, Vec<u8>) {
    let (name, size) = (input.u8(), input.u8());
    let number = match name & 127 {
        127 => u64::MAX,
        number => number.into(),
    };
    let kind = if name & 128 == 0 { "seg" } else { "spare" };
    let length = usize::from(size & 7) * PAGE + if size & 128 == 0 { 0 } else { 100 };
    let mut header: [u8; HEADER] = input.array();
    let mut records = input.piece().to_vec();
    if flags & 4 != 0 {
        header[..12].copy_from_slice(b"FBAYWAL\n\x01\0\0\0");
        header[16..32].copy_from_slice(&VOLUME.0);
        header[40..48].copy_from_slice(&number.to_le_bytes());
    }
    if flags & 1 != 0 {
        repair::segment_header(&mut header);
        let [base, salt] = [48, 56].map(|at| Input::new(&header[at..]).u64());
        repair::records(&mut records, base, salt, flags & 2 != 0);
    }
    let mut bytes = header.to_vec();
    bytes.resize(PAGE, 0);
    bytes.extend(records);
    bytes.resize(length, 0);
    (format!("{number:016x}.{kind}"), bytes)
}

/// A recovered record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Recovered {
    kind: RecordKind,
    lsn: u64,
    end: u64,
    payload: Vec<u8>,
}

/// All records; `None` if the log is refused.
fn recover(storage: &MemoryStorage, from: Lsn) -> Option<(Vec<Recovered>, Recovery)> {
    let mut recovery = match Recovery::scan(Arc::new(storage.clone()), VOLUME, from) {
        Ok(recovery) => recovery,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let mut records = Vec::new();
    while let Some(record) = recovery.next().expect("what was scanned is read") {
        records.push(Recovered {
            kind: record.kind,
            lsn: record.lsn.0,
            end: record.end.0,
            payload: record.payload.to_vec(),
        });
    }
    Some((records, recovery))
}

/// A begun segment, read as the documentation of the format defines it.
struct Segment<'a> {
    base: u64,
    salt: u64,
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    fn read(name: &str, bytes: &'a [u8]) -> Option<Segment<'a>> {
        let number = u64::from_str_radix(name.strip_suffix(".seg")?, 16).ok()?;
        let header = bytes.get(..HEADER)?;
        let field = |at: usize| Input::new(&header[at..]).u64();
        let sound = header.starts_with(b"FBAYWAL\n\x01\0\0\0")
            && header[16..32] == VOLUME.0
            && field(40) == number
            && header[124..] == crc32fast::hash(&header[..124]).to_le_bytes();
        sound.then(|| Segment {
            base: field(48),
            salt: field(56),
            bytes,
        })
    }

    /// The record at an LSN: kind and payload.
    fn record(&self, lsn: u64) -> Option<(u8, &'a [u8])> {
        let at = usize::try_from(lsn.checked_sub(self.base)?)
            .ok()?
            .checked_add(PAGE)?;
        let head = self.bytes.get(at..at.checked_add(32)?)?;
        let mut fields = Input::new(head);
        let (crc, magic, kind, zero) = (fields.u32(), fields.u16(), fields.u8(), fields.u8());
        let (own_lsn, salt, length, zeros) =
            (fields.u64(), fields.u64(), fields.u32(), fields.u32());
        let record = self.bytes.get(at..at + 32 + length as usize)?;
        let sound = magic.to_le_bytes() == *b"FR"
            && (1..=5).contains(&kind)
            && (zero, zeros) == (0, 0)
            && (own_lsn, salt) == (lsn, self.salt)
            && crc == crc32fast::hash(&record[4..]);
        sound.then(|| (kind, &record[32..]))
    }
}

impl Segment<'_> {
    /// Whether a record begins before `from`, ends at `end`, which is behind `from`, and can be reached from the first
    /// one.
    fn has_across(&self, from: u64, end: u64) -> bool {
        let mut at = self.base;
        while at < from
            && let Some((_, payload)) = self.record(at)
        {
            at += (32 + payload.len() as u64).next_multiple_of(8);
        }
        at > from && at == end
    }
}

fn code(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Data => 1,
        RecordKind::Metadata => 2,
        RecordKind::Truncate => 3,
        RecordKind::Checkpoint => 4,
        RecordKind::Snapshot => 5,
    }
}

fn check(records: &[Recovered], begun: &[Segment<'_>], from: Lsn, end: Lsn) {
    let mut at = from.0;
    for (index, record) in records.iter().enumerate() {
        assert!(record.lsn >= at, "LSN {} after {at}", record.lsn);
        let jumps = index > 0 && record.lsn > at;
        assert!(
            !jumps || begun.iter().any(|segment| segment.base == record.lsn),
            "a hole before LSN {}",
            record.lsn
        );
        let expected = (code(record.kind), &record.payload[..]);
        let holds = |segment: &&Segment<'_>| segment.record(record.lsn) == Some(expected);
        assert!(
            begun.iter().any(|segment| holds(&segment)),
            "no segment holds LSN {}",
            record.lsn
        );
        let bytes = (32 + record.payload.len() as u64).next_multiple_of(8);
        assert_eq!(record.end, record.lsn + bytes);
        at = record.end;
        if index + 1 == records.len() {
            let left_out = begun
                .iter()
                .filter(holds)
                .all(|segment| segment.record(at).is_some());
            assert!(!left_out, "a record at LSN {at} was left out");
        }
    }
    // A restart after a failure may have skipped numbers before a segment without records; and a published LSN within a
    // record, which no bucket has, skips that record.
    let goes_on =
        |segment: &Segment<'_>| segment.base == end.0 || segment.has_across(from.0, end.0);
    assert!(
        end.0 == at || (end.0 > at && begun.iter().any(goes_on)),
        "the log goes on at {} after {at}",
        end.0
    );
}

/// Opens the log, appends, and recovers it again.
fn go_on(storage: &MemoryStorage, recovery: Recovery, from: Lsn, mut expected: Vec<Recovered>) {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        limit_bytes: 64 * SEGMENT_BYTES,
        ..Options::new(VOLUME, recovery.epoch().unwrap_or(Epoch(1)))
    };
    let was_clean = recovery.tail() == Tail::Clean;
    let wal = recovery
        .into_wal(options)
        .unwrap_or_else(|error| panic!("the log does not go on: {error}"));
    for payload in [&b"appended"[..], b"", &[7; 4000]] {
        let appended = loop {
            match wal.append(RecordKind::Truncate, &[payload]) {
                Ok(appended) => break appended,
                Err(AppendError::Full) => wait_for(wal.room(payload.len() as u64)),
                Err(error) => panic!("an append: {error}"),
            }
        };
        expected.push(Recovered {
            kind: RecordKind::Truncate,
            lsn: appended.lsn.0,
            end: appended.end.0,
            payload: payload.to_vec(),
        });
    }
    assert!(wal.close().is_ok(), "the log cannot be closed");
    drop(wal);
    let (records, recovery) = recover(storage, from).expect("a log that was just written");
    assert_eq!(records, expected, "after appending");
    assert!(
        !was_clean || recovery.tail() == Tail::Clean,
        "{:?}",
        recovery.tail()
    );
}

/// Waits for room, which a thread of the log makes.
fn wait_for(room: Room) {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut room = std::pin::pin!(room);
    for _ in 0..1000 {
        match room.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ended) => return assert!(ended.is_ok(), "{ended:?}"),
            Poll::Pending => std::thread::park_timeout(Duration::from_millis(20)),
        }
    }
    panic!("no room in an empty log");
}

/// The input that describes the begun segments of a storage.
fn input_of(storage: &MemoryStorage, flags: u8, from: u64) -> Vec<u8> {
    let mut out = vec![flags];
    out.extend(from.to_le_bytes());
    let mut names = storage.list().expect("names");
    names.sort();
    for name in names.iter().filter(|name| name.ends_with(".seg")) {
        let reader = storage.read(name).expect("a file");
        let mut bytes = vec![0; SEGMENT_BYTES as usize];
        let count = reader.read_at(0, &mut bytes).expect("its content");
        assert_eq!(count, bytes.len());
        if bytes[..8] != *b"FBAYWAL\n" {
            continue;
        }
        let number = u64::from_str_radix(&name[..16], 16).expect("a number");
        out.extend([number as u8, 2]);
        out.extend(&bytes[..HEADER]);
        let records = &bytes[PAGE..];
        let used = records
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        put_piece(&mut out, &records[..used]);
    }
    out
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let storage = MemoryStorage::new();
    let open = |from: u64| {
        let recovery = Recovery::scan(Arc::new(storage.clone()), VOLUME, Lsn(from)).expect("a log");
        let epoch = Epoch(recovery.epoch().map_or(1, |epoch| epoch.0 + 1));
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            limit_bytes: 64 * SEGMENT_BYTES,
            ..Options::new(VOLUME, epoch)
        };
        recovery.into_wal(options).expect("a log")
    };
    let mut seeds = vec![("empty", input_of(&storage, 0, 0))];
    for (name, kind) in [
        ("one-segment", RecordKind::Data),
        ("two-segments", RecordKind::Metadata),
        ("three-segments", RecordKind::Checkpoint),
    ] {
        let wal = open(0);
        for payload in [&b"it takes what comes"[..], b"", b"at once"] {
            wal.append(kind, &[payload]).expect("room");
        }
        // Until the next segment is prepared, so that its number and salt are the same every time.
        wait_for(wal.room(SEGMENT_BYTES - PAGE as u64 - 32));
        wal.close().expect("a flush");
        drop(wal);
        seeds.push((name, input_of(&storage, 0, 0)));
    }
    let last = seeds
        .last()
        .map(|(_, input)| input.clone())
        .unwrap_or_default();
    let with = |flags: u8, from: u64| {
        let mut input = last.clone();
        input[0] = flags;
        input[1..9].copy_from_slice(&from.to_le_bytes());
        input
    };
    seeds.extend([
        ("repaired", with(1, 0)),
        ("in-sequence", with(7, 0)),
        ("from-the-middle", with(1, 128)),
        ("from-a-record", with(7, 56)),
        ("from-behind", with(0, 1 << 20)),
    ]);
    seeds
}
