//! Reading a log again after its process has ended, however it did.
//!
//! What may be replayed is the longest unbroken sequence of records that begins at `from` (the
//! published LSN). Three tables decide, row by row, the first row that applies; [`rules`] executes
//! them.
//!
//! **What is a file named `<N>.seg`?**
//!
//! | its first bytes | so it is | because |
//! |---|---|---|
//! | a header of a later format | an error | only the newer program can judge it |
//! | no valid header | void | prepared and never begun, or torn while being begun: then nothing in it was ever acknowledged |
//! | a header with a number other than N | void | renamed for its next life and not begun |
//! | a header of another volume | an error | somebody else's data |
//! | a header or a name with a number from 2^62 on | an error | no log reaches it, and counting on from it would overflow |
//! | a header | begun | |
//!
//! **What lies at the place of the record with LSN L?**
//!
//! | bytes | so it is | because |
//! |---|---|---|
//! | fewer than a record header | the end | a record never crosses a segment |
//! | no magic, unknown kind, another LSN, another salt, or a length beyond the segment | the end | never written, or of a former life |
//! | a CRC that does not match | the end, torn | written in part |
//! | anything else | a record | |
//!
//! **The records of a segment end at E: does the next begun segment (by number) go on?**
//!
//! | next segment | so | because |
//! |---|---|---|
//! | there is none | the log ends | |
//! | has a lower epoch | the log ends | a fenced writer's leftover |
//! | says that its predecessor ended elsewhere than at E | the log ends | records before it are missing: a hole |
//! | begins before E | the log ends | contradicts itself |
//! | anything else | it goes on at its base | (which lies after E only where a restart left numbers out) |
//!
//! Replay starts in the last begun segment with base <= `from`. If a record lies exactly at `from`,
//! it starts there; otherwise it walks from the base, and what does not reach `from` has nothing to
//! replay. When no segment begins that early, the first one is used if its predecessor ended at or
//! before `from`; otherwise records are [missing](OpenError::Missing), if it is known that they
//! were there.
//!
//! **The log ends: was it cut off, or damaged?** What is known of how its writer [ended](WriterEnd) decides as
//! well.
//!
//! | behind the end | the writer | so it is | because |
//! |---|---|---|---|
//! | a header says that more had been durable | any | damaged | |
//! | anything | stopped in order, further on | damaged | |
//! | no trace of a record | any | clean | |
//! | any trace | stopped in order | damaged | the log was flushed to its end, with no append under way |
//! | the whole header of a record whose payload does not match, or records in a segment whose header is gone | was killed | damaged | the kernel kept all that was written; a record's header is written after its payload, a segment's before its records |
//! | any other trace | | torn | an append that was under way leaves a hole; a power cut takes unflushed pages in any order |
//!
//! Damage that leaves no trace behind it (the last file removed, or all of it overwritten) cannot be told
//! from a log that ends there, unless it is known [where the writer stopped](WriterEnd::StopAt). Where that is
//! where the records end, the rest of the last segment is not looked through either, which takes longer than reading
//! a short log.
//!
//! What follows the end is never read again: [`Recovery::into_wal`] first puts the recovered
//! records on stable storage, takes later segments out of the way, and then goes on in a new
//! segment with a new salt.

pub(crate) mod cursor;
mod reopen;
mod rules;

use std::sync::Arc;

use forebay_types::{Epoch, Lsn, VolumeId};

use crate::error::OpenError;
use crate::layout::{HeaderBytes, RecordKind, SEGMENT_HEADER_USED, SegmentHeader};
use crate::options::Options;
use crate::segment::FileName;
use crate::storage::Storage;
use crate::wal::{Hand, Wal};

use cursor::{Place, SegmentCursor};
use rules::{FileVerdict, NextVerdict};

/// No LSN and no number of a segment is as large as this when a log is opened: one that writes a GiB
/// every second gets there in 136 years.
const LIMIT: u64 = 1 << 62;

/// A record that has passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is about.
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
    /// Within something that was being written when the power or the process went. Nothing that is
    /// known to have been durable is lost.
    Torn {
        /// Where the readable log ends.
        at: Lsn,
        /// Whole records were found behind, up to here. They are not replayed, for something is
        /// missing before them.
        beyond: Option<Lsn>,
    },
    /// Records are lost that had been in the log: the disk was damaged, or files were removed or
    /// overwritten.
    Damaged {
        /// Where the readable log ends.
        at: Lsn,
        /// Up to here, at least, there had been records.
        until: Lsn,
    },
}

/// How the process that wrote a log has ended, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// Perhaps with the power: of what was not flushed any part may be missing.
    PowerCut,
    /// Without a power cut: the kernel kept every byte that was written.
    Kill,
    /// In order: no append was under way, and the log was flushed to its end.
    Stop,
    /// The same, and this was its end: what [`Wal::next_lsn`] said when it was closed.
    StopAt(Lsn),
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
}

/// A stretch of a segment whose records are to be replayed.
struct Stretch {
    segment: Begun,
    /// Where to start; not before the segment's base.
    start: Lsn,
    end: Lsn,
}

/// A log that has been looked through and can be replayed.
pub struct Recovery {
    storage: Arc<dyn Storage>,
    volume: VolumeId,
    from: Lsn,
    chain: Vec<Stretch>,
    /// Segments before the chain: wholly below `from`.
    older: Vec<Begun>,
    /// Segments after it: cut off.
    cut_off: Vec<Begun>,
    /// Files without records.
    void: Vec<LogFile>,
    /// Files with records and without a header.
    headless: Vec<LogFile>,
    end: Lsn,
    tail: Tail,
    ending: WriterEnd,
    /// What was durable, by the headers.
    durable: Lsn,
    epoch: Option<Epoch>,
    /// The highest segment number that appears anywhere.
    numbers: u64,
    /// The stretch that is being replayed, its cursor, and the LSN to go on at.
    replaying: usize,
    cursor: Option<SegmentCursor>,
    at: Lsn,
}

impl Recovery {
    /// Looks through the log of `volume` and checks every record from `from` on, the published LSN.
    /// Changes nothing. Files with foreign names are ignored.
    ///
    /// If the log ends before `from`, there is nothing to replay, and it will go on at `from`.
    ///
    /// This expects a power cut; see [`scan_after`](Self::scan_after) where more is known.
    pub fn scan(
        storage: Arc<dyn Storage>,
        volume: VolumeId,
        from: Lsn,
    ) -> Result<Recovery, OpenError> {
        Recovery::scan_after(storage, volume, from, WriterEnd::PowerCut)
    }

    /// Like [`scan`](Self::scan), with what is known of how the log's writer has ended: the more that
    /// is, the more damage can be told from a log that was merely cut off. What is replayed does not
    /// depend on it.
    pub fn scan_after(
        storage: Arc<dyn Storage>,
        volume: VolumeId,
        from: Lsn,
        ending: WriterEnd,
    ) -> Result<Recovery, OpenError> {
        within_limit(from.0, || "the volume's published LSN".to_owned())?;
        let Folder {
            mut begun,
            void,
            headless,
            numbers,
        } = classify(&*storage, volume)?;
        begun.sort_by_key(|segment| segment.header.number);
        let (headless, first_records): (Vec<_>, Vec<_>) = headless
            .into_iter()
            .map(|headless| (headless.file, (headless.first, headless.end)))
            .unzip();
        let durable = begun.iter().map(|segment| segment.header.durable).max();
        let mut recovery = Recovery {
            volume,
            from,
            chain: Vec::new(),
            older: Vec::new(),
            cut_off: Vec::new(),
            void,
            headless,
            end: from,
            tail: Tail::Clean,
            ending,
            durable: durable.unwrap_or(Lsn::ZERO),
            epoch: begun.iter().map(|segment| segment.header.epoch).max(),
            numbers,
            replaying: 0,
            cursor: None,
            at: from,
            storage,
        };
        let mut traces = recovery.follow(begun)?;
        // A record of a life that is over lies below what is in the bucket.
        let lost = first_records
            .into_iter()
            .filter(|(first, _)| *first >= recovery.end);
        for (_, end) in lost {
            traces.headless = true;
            traces.beyond = traces.beyond.max(Some(end));
        }
        let later = recovery.cut_off.last().map(|later| later.header.base);
        traces.beyond = traces.beyond.max(later.filter(|base| *base > recovery.end));
        traces.any |= !recovery.cut_off.is_empty() || traces.headless;
        recovery.tail = rules::tail(recovery.end, recovery.durable, traces, ending);
        Ok(recovery)
    }

    /// Sorts the begun segments into those before, in and after the unbroken sequence. Gives what lies
    /// behind its end.
    fn follow(&mut self, mut begun: Vec<Begun>) -> Result<Traces, OpenError> {
        let Some(start) = self.first_segment(&begun)? else {
            self.cut_off = begun;
            return Ok(Traces::default());
        };
        let mut rest = begun.split_off(start).into_iter().peekable();
        self.older = begun;
        let mut traces = Traces::default();
        while let Some(segment) = rest.next() {
            let mut cursor = SegmentCursor::open(&*self.storage, &segment)?;
            let base = segment.header.base;
            // Only in the first segment does `from` lie behind the base.
            let start = match cursor.look(self.from.max(base))? {
                Place::Record { .. } => self.from.max(base),
                _ => base,
            };
            let (mut end, mut place) = (start, cursor.look(start)?);
            while let Place::Record { end: after, .. } = place {
                end = after;
                place = cursor.look(end)?;
            }
            let epoch = segment.header.epoch;
            self.chain.push(Stretch {
                segment,
                start,
                end,
            });
            // A walk that has not reached `from` has met what is in the bucket anyway.
            self.end = end.max(self.from);
            let next = rest.peek().map(|next| &next.header);
            if rules::next_segment(self.end, epoch, next) == NextVerdict::LogEnds {
                // Up to where the writer stopped it is known what there was, and behind it is nothing.
                if !matches!(self.ending, WriterEnd::StopAt(stop) if self.end <= stop) {
                    traces = cursor.traces_after(end)?;
                }
                // Of a record below what is in the bucket nothing is needed.
                traces.half = place == Place::Torn && end >= self.from;
                traces.any |= traces.half;
                break;
            }
        }
        self.cut_off = rest.collect();
        self.at = self
            .chain
            .first()
            .map_or(self.from, |stretch| stretch.start);
        Ok(traces)
    }

    /// Where replay starts, if there is anything.
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
        // A power cut may have taken a header that was not flushed; nothing else does.
        if self.durable > self.from || !previous_is_there || self.ending != WriterEnd::PowerCut {
            return Err(OpenError::Missing {
                from: self.from,
                first: first.base,
            });
        }
        Ok(None)
    }

    /// The next record to replay, the first one being the first at or after `from`; `None` after
    /// the last.
    ///
    /// # Errors
    /// When the disk does not give again what [`scan`](Self::scan) has read.
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
                none => none.insert(SegmentCursor::open(&*self.storage, &stretch.segment)?),
            };
            let lsn = self.at;
            let Place::Record { kind, end, payload } = cursor.look(lsn)? else {
                return Err(OpenError::Io {
                    action: format!("replay {} at LSN {lsn}", stretch.segment.file.name.text()),
                    source: std::io::Error::other(
                        "the record was valid a moment ago and is not now",
                    ),
                });
            };
            self.at = end;
            if lsn >= self.from {
                let payload = self
                    .cursor
                    .as_ref()
                    .map_or(&[][..], |cursor| cursor.bytes(payload));
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

    /// Where the log goes on: after the last record, or at `from` if that is larger.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// How the log ends. Look at it before replaying anything: it is up to the caller whether to go
    /// on with a damaged log.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// The highest epoch under which a segment was written, or `None` when there is none. A caller
    /// who finds here an epoch other than the one that wrote the bucket last must not replay the
    /// log: [`put_aside`](crate::put_aside) it.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Goes on with the log at [`end`](Self::end), in a new segment. The replayed segments stay
    /// until they are recycled; replay need not be finished.
    ///
    /// After this, what lay behind the end is gone, except after [`Tail::Damaged`]: then the
    /// segments that were cut off are renamed to `<number>.aside`, for the operator.
    pub fn into_wal(self, options: Options) -> Result<Wal, OpenError> {
        let storage = Arc::clone(&self.storage);
        Wal::start(storage, reopen::state(self, options)?)
    }

    /// Like [`into_wal`](Self::into_wal), but without threads: the [`Hand`] does their work when it is
    /// told to.
    pub fn into_wal_by_hand(self, options: Options) -> Result<(Wal, Hand), OpenError> {
        let storage = Arc::clone(&self.storage);
        Wal::start_by_hand(storage, reopen::state(self, options)?)
    }
}

/// Refuses a number that leaves no room to count on.
fn within_limit(number: u64, what: impl FnOnce() -> String) -> Result<(), OpenError> {
    if number < LIMIT {
        return Ok(());
    }
    Err(OpenError::OutOfRange {
        what: what(),
        number,
    })
}

/// What lies behind the end of the unbroken sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traces {
    /// Anything of this log's.
    any: bool,
    /// The whole header of a record whose payload does not match, right at the end.
    half: bool,
    /// Records in a segment whose header is gone.
    headless: bool,
    /// Up to where there are whole records.
    beyond: Option<Lsn>,
}

/// A segment that has records and has lost its header.
struct Headless {
    file: LogFile,
    /// LSN of its first record.
    first: Lsn,
    /// Where that ends.
    end: Lsn,
}

/// The files of a log.
#[derive(Default)]
struct Folder {
    begun: Vec<Begun>,
    void: Vec<LogFile>,
    headless: Vec<Headless>,
    /// The highest number that appears in a name or a header: a file may carry the header of a name
    /// that is gone.
    numbers: u64,
}

/// Applies the first table to all files.
fn classify(storage: &dyn Storage, volume: VolumeId) -> Result<Folder, OpenError> {
    let names = storage
        .list()
        .map_err(OpenError::io("list the log folder"))?;
    let mut folder = Folder::default();
    for name in names.iter().filter_map(|name| FileName::parse(name)) {
        let text = name.text();
        let failed = |source| OpenError::Io {
            action: format!("read the header of {text}"),
            source,
        };
        let reader = storage.read(&text).map_err(failed)?;
        let bytes = reader.size().map_err(failed)?;
        let mut header = [0; SEGMENT_HEADER_USED];
        // A file that is too short leaves zeros, which are no header.
        reader.read_at(0, &mut header).map_err(failed)?;
        let header = SegmentHeader::decode(&header);
        folder.numbers = folder.numbers.max(name.number().0);
        if let HeaderBytes::Valid(header) = &header {
            folder.numbers = folder.numbers.max(header.number.0);
            let lsns = [header.base, header.previous_end, header.durable];
            for lsn in lsns {
                within_limit(lsn.0, || format!("an LSN in the header of {text}"))?;
            }
        }
        within_limit(folder.numbers, || format!("the number of {text}"))?;
        let file = LogFile { name, bytes };
        match rules::segment_file(name, header, volume) {
            FileVerdict::Begun(header) => folder.begun.push(Begun { file, header }),
            FileVerdict::Void => {
                let lost = header == HeaderBytes::Invalid && matches!(name, FileName::Segment(_));
                let record = match lost {
                    true => cursor::first_record(&*reader, bytes).map_err(failed)?,
                    false => None,
                };
                match record {
                    Some((first, end)) => folder.headless.push(Headless { file, first, end }),
                    None => folder.void.push(file),
                }
            }
            FileVerdict::Foreign(found) => {
                return Err(OpenError::ForeignVolume {
                    segment: text,
                    expected: volume,
                    found,
                });
            }
            FileVerdict::Newer(found) => {
                let supported = crate::layout::VERSION;
                return Err(OpenError::NewerFormat {
                    segment: text,
                    found,
                    supported,
                });
            }
        }
    }
    Ok(folder)
}
