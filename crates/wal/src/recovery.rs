//! Recovery: reads a log after its process has ended, in whatever way.
//!
//! Replay yields the longest unbroken sequence of records that begins at `from` (the published LSN). Four tables
//! decide: in each of them the first row that applies. [`rules`] executes them.
//!
//! **How is a file named `<N>.seg` classified?**
//!
//! | its first bytes | verdict | because |
//! |---|---|---|
//! | a header of a later format | an error | only the newer program can judge it |
//! | no valid header | void | prepared and never begun, or torn while being begun: then nothing in it was ever acknowledged |
//! | a header with a number other than N | void | renamed for its next life and not begun |
//! | a header of another volume | an error | it holds the data of that volume |
//! | a header or a name with a number from 2^62 on | an error | no log reaches it, and counting on from it would overflow |
//! | the header of a sealed segment whose key is missing | an error | nothing in it can be judged |
//! | the header of a sealed segment that does not authenticate | an error | a crash does not leave a valid CRC over bytes that were never written |
//! | the header of a segment that is not sealed, where [it has to be](LogKeys::Required), and a record of it may have to be replayed | an error | anybody can have written it |
//! | the same, but everything in it is published | void | it dates from before sealing was switched on |
//! | a header | begun | |
//!
//! **How are the bytes at the place of the record with LSN L classified?**
//!
//! | bytes | verdict | because |
//! |---|---|---|
//! | fewer than a record header | the end | a record never crosses a segment |
//! | no magic, unknown kind, another LSN, another salt, or a length beyond the segment | the end | never written, or of a former life |
//! | a CRC that does not match | the end, torn | written in part |
//! | in a sealed segment, a tag that does not match | an error | the CRC is written last, over the tag: a whole record that is not authentic was put there |
//! | anything else | a record | |
//!
//! **The records of a segment end at E: does the next begun segment (by number) continue the log?**
//!
//! | next segment | verdict | because |
//! |---|---|---|
//! | there is none | the log ends | |
//! | has a lower epoch | the log ends | a fenced writer's leftover |
//! | says that its predecessor ended elsewhere than at E | the log ends | records before it are missing: a hole |
//! | begins before E | the log ends | contradicts itself |
//! | is sealed, and does not name the segment before and the salt of its key | an error | a part of another history of this log |
//! | anything else | the log continues at its base | (which lies after E only if a restart skipped LSNs) |
//!
//! Replay starts in the last begun segment with base <= `from`. If a record lies exactly at `from`, replay starts
//! there; otherwise it walks from the base, and if the walk does not reach `from`, there is nothing to replay. If no
//! segment begins that early, the first one is used if its predecessor ended at or before `from`; otherwise records
//! are [missing](OpenError::Missing), if it is known that they existed.
//!
//! **The log ends: was it cut off, or damaged?** This also depends on how its writer [ended](WriterEnd), as far as
//! that is known.
//!
//! | behind the end | the writer | verdict | because |
//! |---|---|---|---|
//! | a header, or the log's position, shows that more had been durable | any | damaged | |
//! | anything | is known to have written further: it stopped in order there, or it was killed and the position says so | damaged | |
//! | a file that is shorter than it was made | is not known to have stopped at the end | damaged | its lost content is not known |
//! | no trace of a record | any | clean | |
//! | any trace | stopped in order | damaged | the log was flushed to its end, with no append under way |
//! | the whole header of a record whose payload does not match, or records in a segment without a valid header | was killed | damaged | the kernel kept all that was written; a record's header is written after its payload, a segment's before its records |
//! | any other trace | | torn | an append that was under way leaves a hole; a power cut loses unflushed pages in any order |
//!
//! The writer's last position is known after [a stop in order](WriterEnd::StopAt), and after a kill from [the
//! position file](crate::position), which the log writes as it grows. Otherwise damage without traces (the last file
//! removed, or all of it overwritten) cannot be distinguished from a log that ends there. If the writer stopped where
//! the records end, the rest of the last segment is not searched for traces: that would take longer than reading a
//! short log.
//!
//! Bytes behind the end are never read again: [`Recovery::into_wal`] first flushes the recovered records to stable
//! storage, clears whole records behind the end, renames later segments, and then continues in a new segment with a new
//! salt.

pub(crate) mod cursor;
mod folder;
mod reopen;
mod rules;

use std::sync::Arc;

use forebay_types::{Epoch, Lsn, VolumeId};

use crate::error::OpenError;
use crate::layout::{RecordKind, SEGMENT_HEADER, SegmentHeader};
use crate::options::Options;
use crate::position::{self, Reached};
use crate::seal::{self, LogKeys};
use crate::segment::FileName;
use crate::state::Readable;
use crate::storage::Storage;
use crate::wal::{Hand, RecordReader, Wal};

pub(crate) use cursor::{ScanResult, SegmentCursor};
use folder::Folder;
use rules::NextVerdict;
pub(crate) use rules::follows;

/// No LSN and no segment number reaches this when a log is opened: a log that writes a GiB every second gets there in
/// 136 years.
const LIMIT: u64 = 1 << 62;

/// A record that has passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The kind of the record.
    pub kind: RecordKind,
    /// LSN of its first byte.
    pub lsn: Lsn,
    /// LSN after its last byte.
    pub end: Lsn,
    /// The parts that were appended, joined.
    pub payload: &'a [u8],
}

/// How the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// After a whole record, and no trace of another was found.
    Clean,
    /// Within an unfinished write, at a power cut or when the process ended. Nothing that is known to have been
    /// durable is lost.
    Torn {
        /// Where the readable log ends.
        at: Lsn,
        /// Whole records were found behind the end, up to here. They are not replayed, because something is missing
        /// before them.
        beyond: Option<Lsn>,
    },
    /// Records are lost that had been in the log: the disk was damaged, or files were removed, cut or
    /// overwritten.
    Damaged {
        /// Where the readable log ends.
        at: Lsn,
        /// Records existed at least up to here. The same as `at` if a file was cut and it is not known whether it had
        /// records there.
        until: Lsn,
    },
}

/// How the process that wrote a log has ended, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// Perhaps by a power cut: any part of the unflushed bytes may be missing.
    PowerCut,
    /// Without a power cut: the kernel kept every byte that was written.
    Kill,
    /// In order: no append was under way, and the log was flushed to its end.
    Stop,
    /// In order, at this LSN: the value of [`Wal::next_lsn`] when it was closed.
    StopAt(Lsn),
}

/// How the log's writer has ended, and how far it had written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    how: WriterEnd,
    /// The end of the log, if it is known.
    end: Option<Lsn>,
    /// Every record before it was on stable storage.
    durable: Lsn,
}

impl Known {
    fn of(how: WriterEnd, reached: Option<Reached>) -> Known {
        let complete = reached.map(|reached| reached.complete);
        Known {
            how,
            end: match how {
                WriterEnd::StopAt(stop) => Some(stop),
                // The kernel kept every byte that was written.
                WriterEnd::Kill | WriterEnd::Stop => complete,
                WriterEnd::PowerCut => None,
            },
            durable: reached.map_or(Lsn::ZERO, |reached| reached.durable),
        }
    }
}

/// A file of the log's folder.
struct LogFile {
    name: FileName,
    bytes: u64,
}

/// A segment that was begun.
struct Begun {
    file: LogFile,
    header: SegmentHeader,
    /// The size that the file was made with, if it is known.
    made_with: Option<u64>,
}

impl Begun {
    /// Whether its file was cut.
    fn is_cut(&self) -> bool {
        let whole = self.made_with.unwrap_or(SEGMENT_HEADER as u64);
        self.file.bytes < whole.max(SEGMENT_HEADER as u64)
    }
}

/// The part of a segment whose records are replayed.
struct Stretch {
    segment: Begun,
    /// Where to start; not before the segment's base.
    start: Lsn,
    end: Lsn,
}

/// A log that has been scanned and can be replayed.
pub struct Recovery {
    storage: Arc<dyn Storage>,
    volume: VolumeId,
    keys: LogKeys,
    from: Lsn,
    chain: Vec<Stretch>,
    /// Segments before the chain: completely below `from`.
    older: Vec<Begun>,
    /// Segments after the chain: cut off.
    cut_off: Vec<Begun>,
    /// Files without records.
    void: Vec<LogFile>,
    /// Files whose records are published and must not be read again.
    discarded: Vec<LogFile>,
    /// Files with records but without a valid header.
    headless: Vec<LogFile>,
    end: Lsn,
    /// End of the last whole record behind the end in the last segment of the chain.
    behind: Option<Lsn>,
    tail: Tail,
    ending: Known,
    /// The durable LSN, by the headers and by the log's position.
    durable: Lsn,
    epoch: Option<Epoch>,
    /// The highest segment number that appears anywhere.
    numbers: u64,
    /// The stretch that is being replayed, its cursor, and the LSN of the next record.
    replaying: usize,
    cursor: Option<SegmentCursor>,
    at: Lsn,
}

impl Recovery {
    /// Scans the log of `volume` and checks every record from `from`, the published LSN, on. Changes nothing. Files
    /// with foreign names are ignored.
    ///
    /// If the log ends before `from`, there is nothing to replay, and the log continues at `from`.
    ///
    /// This assumes a power cut; see [`scan_after`](Self::scan_after) if more is known.
    pub fn scan(
        storage: Arc<dyn Storage>,
        volume: VolumeId,
        from: Lsn,
    ) -> Result<Recovery, OpenError> {
        Recovery::scan_after(storage, volume, from, WriterEnd::PowerCut)
    }

    /// Like [`scan`](Self::scan), with the knowledge of how the log's writer has ended: the more is known, the more
    /// damage can be distinguished from a log that was merely cut off. It does not change which records are replayed.
    pub fn scan_after(
        storage: Arc<dyn Storage>,
        volume: VolumeId,
        from: Lsn,
        ending: WriterEnd,
    ) -> Result<Recovery, OpenError> {
        Recovery::scan_with(storage, volume, from, ending, LogKeys::None)
    }

    /// Like [`scan_after`](Self::scan_after), for a log that is or may be sealed.
    ///
    /// # Errors
    /// In addition: when the log is not sealed as `keys` requires, and when anything in it that might be replayed
    /// does not authenticate. Nothing is changed then.
    pub fn scan_with(
        storage: Arc<dyn Storage>,
        volume: VolumeId,
        from: Lsn,
        ending: WriterEnd,
        keys: LogKeys,
    ) -> Result<Recovery, OpenError> {
        within_limit(from.0, || "the volume's published LSN".to_owned())?;
        keys.check(volume)?;
        let mut folder = folder::classify(&*storage, volume, &keys)?;
        if let LogKeys::Required(_) = keys {
            let is_published = matches!(ending, WriterEnd::StopAt(stop) if stop <= from);
            folder.discard_unsealed(&*storage, from, is_published)?;
        }
        let Folder {
            mut begun,
            void,
            headless,
            stumps,
            discarded,
            numbers,
        } = folder;
        begun.sort_by_key(|segment| segment.header.number);
        let (mut headless, first_records): (Vec<_>, Vec<_>) = headless
            .into_iter()
            .map(|headless| (headless.file, (headless.first, headless.end)))
            .unzip();
        let has_stumps = !stumps.is_empty();
        headless.extend(stumps);
        let reached = position::reached(&*storage, volume)
            .map_err(OpenError::io(format!("read {}", position::POSITION_FILE)))?;
        let ending = Known::of(ending, reached);
        let durable = begun.iter().map(|segment| segment.header.durable).max();
        let mut recovery = Recovery {
            volume,
            keys,
            from,
            chain: Vec::new(),
            older: Vec::new(),
            cut_off: Vec::new(),
            void,
            discarded,
            headless,
            end: from,
            behind: None,
            tail: Tail::Clean,
            ending,
            durable: durable.unwrap_or(Lsn::ZERO).max(ending.durable),
            epoch: begun.iter().map(|segment| segment.header.epoch).max(),
            numbers,
            replaying: 0,
            cursor: None,
            at: from,
            storage,
        };
        let mut traces = recovery.follow(begun)?;
        recovery.behind = traces.beyond;
        // A record of an earlier life of the file lies below the published LSN.
        let lost = first_records
            .into_iter()
            .filter(|(first, _)| *first >= recovery.end);
        for (_, end) in lost {
            traces.headless = true;
            traces.beyond = traces.beyond.max(Some(end));
        }
        let later = recovery.cut_off.last().map(|later| later.header.base);
        traces.beyond = traces.beyond.max(later.filter(|base| *base > recovery.end));
        traces.cut |= has_stumps;
        traces.any |= !recovery.cut_off.is_empty() || traces.headless;
        recovery.tail = rules::tail(recovery.end, recovery.durable, traces, ending);
        Ok(recovery)
    }

    /// Divides the begun segments into those before, in and after the unbroken sequence. Returns the traces behind
    /// its end.
    fn follow(&mut self, mut begun: Vec<Begun>) -> Result<Traces, OpenError> {
        let Some(start) = self.first_segment(&begun)? else {
            let cut = begun.iter().any(Begun::is_cut);
            self.cut_off = begun;
            return Ok(Traces {
                cut,
                ..Traces::default()
            });
        };
        let mut rest = begun.split_off(start).into_iter().peekable();
        self.older = begun;
        let mut traces = Traces::default();
        while let Some(segment) =
            rest.next_if(|segment| segment.file.bytes >= SEGMENT_HEADER as u64)
        {
            let mut cursor = SegmentCursor::open(&*self.storage, &segment, &self.keys)?;
            let base = segment.header.base;
            // Only in the first segment does `from` lie behind the base.
            let first = self.from.max(base);
            let start = match cursor.look(first)? {
                ScanResult::Record { .. } | ScanResult::Forged { .. } => first,
                _ => base,
            };
            let (mut end, mut place) = (start, cursor.look(start)?);
            while let ScanResult::Record { end: after, .. } = place {
                end = after;
                place = cursor.look(end)?;
            }
            if matches!(place, ScanResult::Forged { .. } | ScanResult::Locked { .. }) {
                return Err(seal::forged_record(&segment.file.name.text(), end));
            }
            let (epoch, header, is_cut) = (segment.header.epoch, segment.header, segment.is_cut());
            self.chain.push(Stretch {
                segment,
                start,
                end,
            });
            // A walk that has not reached `from` has read only records that are in the bucket.
            self.end = end.max(self.from);
            let next = rest.peek().map(|next| &next.header);
            if rules::next_segment(self.end, epoch, next) == NextVerdict::LogEnds {
                // If the writer stopped at or behind the end, it is known what was written, and nothing follows its
                // stop.
                if !matches!(self.ending.how, WriterEnd::StopAt(stop) if self.end <= stop) {
                    traces = cursor.traces_after(end)?;
                }
                traces.cut = is_cut;
                // A torn record below the published LSN is not needed.
                traces.half = place == ScanResult::Torn && end >= self.from;
                traces.any |= traces.half;
                break;
            }
            if let Some(next) = rest
                .peek()
                .filter(|next| !rules::follows(&header, &next.header))
            {
                return Err(OpenError::Forged {
                    segment: next.file.name.text(),
                    what: "its note on the segment before it".to_owned(),
                });
            }
        }
        // The former content of a segment without room for a record is not known.
        traces.cut |= rest.peek().is_some_and(Begun::is_cut);
        self.cut_off = rest.collect();
        self.at = self
            .chain
            .first()
            .map_or(self.from, |stretch| stretch.start);
        Ok(traces)
    }

    /// The segment in which replay starts, if there is one.
    fn first_segment(&self, begun: &[Begun]) -> Result<Option<usize>, OpenError> {
        let covers = |segment: &Begun| segment.header.base <= self.from;
        if let Some(index) = begun.iter().rposition(covers) {
            return Ok(Some(index));
        }
        let Some(first) = begun.first().map(|segment| &segment.header) else {
            return Ok(None);
        };
        if first.previous_end <= self.from {
            return Ok(Some(0));
        }
        let headerless = self.void.iter().chain(&self.headless);
        let previous_is_there = headerless
            .into_iter()
            .any(|file| file.name.number() == first.previous);
        // Only a power cut loses a header, if it was not flushed.
        if self.durable > self.from || !previous_is_there || self.ending.how != WriterEnd::PowerCut
        {
            return Err(OpenError::Missing {
                from: self.from,
                first: first.base,
            });
        }
        Ok(None)
    }

    /// The next record to replay. The first one is the first at or after `from`; `None` after the last.
    ///
    /// # Errors
    /// When the disk does not return again the records that [`scan`](Self::scan) has read.
    #[allow(
        clippy::should_implement_trait,
        reason = "lends, which Iterator cannot"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, OpenError> {
        while let Some(stretch) = self.chain.get(self.replaying) {
            if self.at >= stretch.end {
                self.replaying += 1;
                self.cursor = None;
                if let Some(next) = self.chain.get(self.replaying) {
                    self.at = next.start;
                }
                continue;
            }
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                none => {
                    let segment = &stretch.segment;
                    none.insert(SegmentCursor::open(&*self.storage, segment, &self.keys)?)
                }
            };
            let lsn = self.at;
            let ScanResult::Record { kind, end, payload } = cursor.look(lsn)? else {
                return Err(OpenError::Io {
                    action: format!("replay {} at LSN {lsn}", stretch.segment.file.name.text()),
                    source: std::io::Error::other(
                        "the record was valid in the scan and is not any more",
                    ),
                });
            };
            self.at = end;
            if lsn >= self.from {
                let payload = self
                    .cursor
                    .as_ref()
                    .map_or(&[][..], |cursor| cursor.payload(payload));
                return Ok(Some(Record {
                    kind,
                    lsn,
                    end,
                    payload,
                }));
            }
        }
        Ok(None)
    }

    /// Reads single records, until the log is opened: those that [`next`](Self::next) returns, in any order and more than once.
    pub fn reader(&self) -> RecordReader {
        let segments = self.chain.iter().map(|stretch| {
            let Begun { file, header, .. } = &stretch.segment;
            let records = stretch.end.0.saturating_sub(header.base.0);
            Readable {
                name: file.name.text(),
                header: *header,
                end: stretch.end,
                bytes: file.bytes.min(SEGMENT_HEADER as u64 + records),
            }
        });
        let (storage, keys) = (self.storage.clone(), self.keys.clone());
        RecordReader::of_scanned(storage, keys, segments.collect())
    }

    /// Where the log continues: after the last record, or at `from` if that is larger.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// How the log ends. Check it before replaying anything: the caller decides whether to continue with a damaged
    /// log.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// The highest epoch under which a segment was written; `None` if there is no segment. If it is not the epoch
    /// that last wrote the bucket, the caller must not replay the log, but archive it with
    /// [`archive`](crate::archive).
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Continues the log at [`end`](Self::end), in a new segment. The replayed segments stay until they are recycled;
    /// replay need not be finished.
    ///
    /// After this, the bytes behind the end are deleted, except after [`Tail::Damaged`]: then the segments that were
    /// cut off are renamed to `<number>.aside`, for the operator.
    pub fn into_wal(self, options: Options) -> Result<Wal, OpenError> {
        let storage = Arc::clone(&self.storage);
        Wal::start(storage, reopen::state(self, options)?)
    }

    /// Like [`into_wal`](Self::into_wal), but without threads: calls of the [`Hand`] do their work.
    pub fn into_wal_by_hand(self, options: Options) -> Result<(Wal, Hand), OpenError> {
        let storage = Arc::clone(&self.storage);
        Wal::start_by_hand(storage, reopen::state(self, options)?)
    }
}

/// Refuses a number from which counting on could overflow.
fn within_limit(number: u64, what: impl FnOnce() -> String) -> Result<(), OpenError> {
    if number < LIMIT {
        return Ok(());
    }
    Err(OpenError::OutOfRange {
        what: what(),
        number,
    })
}

/// Traces of records behind the end of the unbroken sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traces {
    /// Any trace of this log.
    any: bool,
    /// The whole header of a record whose payload does not match, right at the end.
    half: bool,
    /// Records in a segment without a valid header.
    headless: bool,
    /// The file in which the records end, or one without a whole header, is shorter than it was made.
    cut: bool,
    /// Whole records were found up to here.
    beyond: Option<Lsn>,
}
