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
//! | the header of a sealed segment, and there are no keys, or not that one | an error | nothing in it can be judged |
//! | the header of a sealed segment that does not authenticate | an error | a crash leaves no right CRC over what was never written |
//! | the header of a segment that is not sealed, where [it has to be](LogKeys::Required), and a record of it may have to be replayed | an error | anybody can have written it |
//! | the same, of which all is published | void | what is left from before sealing was switched on |
//! | a header | begun | |
//!
//! **What lies at the place of the record with LSN L?**
//!
//! | bytes | so it is | because |
//! |---|---|---|
//! | fewer than a record header | the end | a record never crosses a segment |
//! | no magic, unknown kind, another LSN, another salt, or a length beyond the segment | the end | never written, or of a former life |
//! | a CRC that does not match | the end, torn | written in part |
//! | in a sealed segment, a tag that does not match | an error | the CRC is written last, over the tag: what is whole and not authentic was put there |
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
//! | is sealed, and does not name the segment before and the salt of its key | an error | a part of another history of this log |
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
//! | a header, or the log's position, shows that more had been durable | any | damaged | |
//! | anything | is known to have come further: stopped in order there, or was killed and has noted so | damaged | |
//! | a file that is shorter than it was made | is not known to have come no further | damaged | its lost content is not known |
//! | no trace of a record | any | clean | |
//! | any trace | stopped in order | damaged | the log was flushed to its end, with no append under way |
//! | the whole header of a record whose payload does not match, or records in a segment whose header is gone | was killed | damaged | the kernel kept all that was written; a record's header is written after its payload, a segment's before its records |
//! | any other trace | | torn | an append that was under way leaves a hole; a power cut takes unflushed pages in any order |
//!
//! Where the writer had come is known after [a stop in order](WriterEnd::StopAt), and after a kill by
//! [a file of its own](crate::position), which the log writes as it goes on. Otherwise damage that leaves no trace behind
//! it (the last file removed, or all of it overwritten) cannot be distinguished from a log that ends there. Where
//! the writer stopped where the records end, the rest of the last segment is not looked through either, which takes
//! longer than reading a short log.
//!
//! What follows the end is never read again: [`Recovery::into_wal`] first puts the recovered
//! records on stable storage, takes later segments out of the way, and then goes on in a new
//! segment with a new salt.

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
use crate::storage::Storage;
use crate::wal::{Hand, Wal};

use cursor::{Place, SegmentCursor};
use folder::Folder;
use rules::NextVerdict;
pub(crate) use rules::follows;

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
    /// Records are lost that had been in the log: the disk was damaged, or files were removed, cut or
    /// overwritten.
    Damaged {
        /// Where the readable log ends.
        at: Lsn,
        /// Up to here, at least, there had been records. The same as `at` where a file was cut and it is not known
        /// whether it had any there.
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

/// How the log's writer has ended, and how far it had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    how: WriterEnd,
    /// Where the log ended, if that is known.
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
                // The kernel kept all that was written.
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
    /// The size that it was made with, if that is known.
    made_with: Option<u64>,
}

impl Begun {
    /// Whether its file was cut.
    fn is_cut(&self) -> bool {
        let whole = self.made_with.unwrap_or(SEGMENT_HEADER as u64);
        self.file.bytes < whole.max(SEGMENT_HEADER as u64)
    }
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
    keys: LogKeys,
    from: Lsn,
    chain: Vec<Stretch>,
    /// Segments before the chain: wholly below `from`.
    older: Vec<Begun>,
    /// Segments after it: cut off.
    cut_off: Vec<Begun>,
    /// Files without records.
    void: Vec<LogFile>,
    /// Files of records that are published, and that must not be read again.
    let_go: Vec<LogFile>,
    /// Files with records and without a header.
    headless: Vec<LogFile>,
    end: Lsn,
    tail: Tail,
    ending: Known,
    /// The durable LSN, by the headers and by the log's position.
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
        Recovery::scan_with(storage, volume, from, ending, LogKeys::None)
    }

    /// Like [`scan_after`](Self::scan_after), of a log that is or may be sealed.
    ///
    /// # Errors
    /// As well when it is not as `keys` say that it has to be, and when anything of it that might be
    /// replayed does not authenticate. Nothing is changed then.
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
            folder.let_go_of_unsealed(&*storage, from, is_published)?;
        }
        let Folder {
            mut begun,
            void,
            headless,
            stumps,
            let_go,
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
            let_go,
            headless,
            end: from,
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
        traces.cut |= has_stumps;
        traces.any |= !recovery.cut_off.is_empty() || traces.headless;
        recovery.tail = rules::tail(recovery.end, recovery.durable, traces, ending);
        Ok(recovery)
    }

    /// Sorts the begun segments into those before, in and after the unbroken sequence. Gives what lies
    /// behind its end.
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
                Place::Record { .. } | Place::Forged { .. } => first,
                _ => base,
            };
            let (mut end, mut place) = (start, cursor.look(start)?);
            while let Place::Record { end: after, .. } = place {
                end = after;
                place = cursor.look(end)?;
            }
            if matches!(place, Place::Forged { .. } | Place::Locked { .. }) {
                return Err(seal::forged_record(&segment.file.name.text(), end));
            }
            let (epoch, header, is_cut) = (segment.header.epoch, segment.header, segment.is_cut());
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
                if !matches!(self.ending.how, WriterEnd::StopAt(stop) if self.end <= stop) {
                    traces = cursor.traces_after(end)?;
                }
                traces.cut = is_cut;
                // Of a record below what is in the bucket nothing is needed.
                traces.half = place == Place::Torn && end >= self.from;
                traces.any |= traces.half;
                break;
            }
            if let Some(next) = rest
                .peek()
                .filter(|next| !rules::follows(&header, &next.header))
            {
                return Err(OpenError::Forged {
                    segment: next.file.name.text(),
                    what: "what it says of the segment before it".to_owned(),
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
        if self.durable > self.from || !previous_is_there || self.ending.how != WriterEnd::PowerCut
        {
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
                none => {
                    let segment = &stretch.segment;
                    none.insert(SegmentCursor::open(&*self.storage, segment, &self.keys)?)
                }
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
    /// The file in which the records end, or one without a whole header, is shorter than it was made.
    cut: bool,
    /// Up to where there are whole records.
    beyond: Option<Lsn>,
}
