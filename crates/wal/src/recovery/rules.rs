//! The tables of the parent module as code: each is a list of rows, and the first row that applies decides.

use forebay_types::{Epoch, Lsn, VolumeId};

use super::{Known, Tail, Traces, WriterEnd};
use crate::layout::{HeaderBytes, RecordHeader, Salt, SegmentHeader};
use crate::segment::FileName;

/// The classification of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileVerdict {
    Begun(SegmentHeader),
    Void,
    Foreign(VolumeId),
    Newer(u32),
}

/// First table.
pub(super) fn segment_file(name: FileName, header: HeaderBytes, volume: VolumeId) -> FileVerdict {
    use FileVerdict::*;
    match (name, header) {
        (FileName::Spare(_), _) => Void,
        (_, HeaderBytes::Newer(version)) => Newer(version),
        (_, HeaderBytes::Invalid) => Void,
        (_, HeaderBytes::Valid(header)) if header.number != name.number() => Void,
        (_, HeaderBytes::Valid(header)) if header.volume != volume => Foreign(header.volume),
        (_, HeaderBytes::Valid(header)) => Begun(header),
    }
}

/// The classification of a possible record header, before its payload is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderVerdict {
    End,
    /// A record, if its payload has this CRC.
    Claimed(RecordHeader, u32),
}

/// Second table, up to the CRC. `room` is the number of bytes of the segment after the record's header; `None` if not
/// even the header fits.
pub(super) fn record_header(
    decoded: Option<(RecordHeader, u32)>,
    lsn: Lsn,
    salt: Salt,
    room: Option<u64>,
) -> HeaderVerdict {
    use HeaderVerdict::*;
    match (room, decoded) {
        (None, _) => End,
        (_, None) => End,
        (_, Some((header, _))) if header.lsn != lsn => End,
        (_, Some((header, _))) if header.salt != salt => End,
        (Some(room), Some((header, _))) if u64::from(header.payload) > room => End,
        (_, Some((header, crc))) => Claimed(header, crc),
    }
}

/// Whether the log continues in the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextVerdict {
    LogEnds,
    GoesOn,
}

/// Third table.
pub(super) fn next_segment(end: Lsn, epoch: Epoch, next: Option<&SegmentHeader>) -> NextVerdict {
    use NextVerdict::*;
    match next {
        None => LogEnds,
        Some(next) if next.epoch < epoch => LogEnds,
        Some(next) if next.previous_end != end => LogEnds,
        Some(next) if next.base < end => LogEnds,
        Some(_) => GoesOn,
    }
}

/// Third table, the row about sealed segments: whether the next one, which continues there, was begun behind this
/// one.
pub(crate) fn follows(last: &SegmentHeader, next: &SegmentHeader) -> bool {
    let salt = last.seal.map(|seal| seal.salt).unwrap_or_default();
    next.seal
        .is_none_or(|seal| next.previous == last.number && seal.previous == salt)
}

/// Fourth table.
pub(super) fn tail(end: Lsn, durable: Lsn, behind: Traces, known: Known) -> Tail {
    let reached = known.end.unwrap_or(end);
    let until = behind.beyond.unwrap_or(end).max(durable).max(reached);
    let damaged = Tail::Damaged { at: end, until };
    match known.how {
        _ if durable > end || reached > end => damaged,
        _ if behind.cut && known.end.is_none() => damaged,
        _ if !behind.any => Tail::Clean,
        WriterEnd::Stop | WriterEnd::StopAt(_) => damaged,
        WriterEnd::Kill if behind.half || behind.headless => damaged,
        WriterEnd::Kill | WriterEnd::PowerCut => Tail::Torn {
            at: end,
            beyond: behind.beyond,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reached;
    use super::*;
    use crate::layout::{HeaderSeal, RecordKind, SegmentNumber};
    use forebay_seal::DataKeyId;

    const OURS: VolumeId = VolumeId([1; 16]);

    fn header() -> SegmentHeader {
        SegmentHeader {
            volume: OURS,
            epoch: Epoch(5),
            number: SegmentNumber(3),
            base: Lsn(800),
            salt: Salt(77),
            previous: SegmentNumber(2),
            previous_end: Lsn(800),
            durable: Lsn(0),
            seal: None,
        }
    }

    #[test]
    fn every_row_of_the_file_table() {
        let name = FileName::Segment(SegmentNumber(3));
        let verdict = |header| segment_file(name, header, OURS);
        assert_eq!(verdict(HeaderBytes::Newer(3)), FileVerdict::Newer(3));
        assert_eq!(verdict(HeaderBytes::Invalid), FileVerdict::Void);
        let other = SegmentHeader {
            number: SegmentNumber(2),
            volume: VolumeId([9; 16]),
            ..header()
        };
        assert_eq!(verdict(HeaderBytes::Valid(other)), FileVerdict::Void);
        let foreign = SegmentHeader {
            volume: VolumeId([9; 16]),
            ..header()
        };
        assert_eq!(
            verdict(HeaderBytes::Valid(foreign)),
            FileVerdict::Foreign(VolumeId([9; 16]))
        );
        assert_eq!(
            verdict(HeaderBytes::Valid(header())),
            FileVerdict::Begun(header())
        );
        let spare = FileName::Spare(SegmentNumber(3));
        assert_eq!(
            segment_file(spare, HeaderBytes::Valid(header()), OURS),
            FileVerdict::Void
        );
    }

    #[test]
    fn every_row_of_the_record_table() {
        let record = RecordHeader {
            kind: RecordKind::Data,
            lsn: Lsn(800),
            salt: Salt(77),
            payload: 10,
        };
        let verdict = |record, room| record_header(Some((record, 4)), Lsn(800), Salt(77), room);
        assert_eq!(verdict(record, None), HeaderVerdict::End);
        assert_eq!(
            record_header(None, Lsn(800), Salt(77), Some(10)),
            HeaderVerdict::End
        );
        assert_eq!(
            verdict(
                RecordHeader {
                    lsn: Lsn(808),
                    ..record
                },
                Some(10)
            ),
            HeaderVerdict::End
        );
        assert_eq!(
            verdict(
                RecordHeader {
                    salt: Salt(78),
                    ..record
                },
                Some(10)
            ),
            HeaderVerdict::End
        );
        assert_eq!(verdict(record, Some(9)), HeaderVerdict::End);
        assert_eq!(verdict(record, Some(10)), HeaderVerdict::Claimed(record, 4));
    }

    #[test]
    fn every_row_of_the_tail_table() {
        let at = Lsn(800);
        let hole = Traces {
            any: true,
            beyond: Some(Lsn(900)),
            ..Traces::default()
        };
        let half = Traces { half: true, ..hole };
        let headless = Traces {
            headless: true,
            ..hole
        };
        let damaged = |until| Tail::Damaged {
            at,
            until: Lsn(until),
        };
        let torn = Tail::Torn {
            at,
            beyond: Some(Lsn(900)),
        };
        let tail = |end, durable, traces, how| tail(end, durable, traces, Known::of(how, None));
        let cut = Traces {
            cut: true,
            ..Traces::default()
        };
        for ending in [WriterEnd::PowerCut, WriterEnd::Kill, WriterEnd::Stop] {
            let verdict = tail(at, Lsn(808), Traces::default(), ending);
            assert_eq!(verdict, damaged(808));
            assert_eq!(tail(at, at, Traces::default(), ending), Tail::Clean);
            assert_eq!(tail(at, at, cut, ending), damaged(800));
        }
        assert_eq!(tail(at, at, cut, WriterEnd::StopAt(at)), Tail::Clean);
        let stopped_at = |lsn| tail(at, at, Traces::default(), WriterEnd::StopAt(Lsn(lsn)));
        assert_eq!(stopped_at(808), damaged(808));
        assert_eq!(stopped_at(800), Tail::Clean);
        assert_eq!(stopped_at(792), Tail::Clean);
        for traces in [hole, half, headless] {
            assert_eq!(tail(at, at, traces, WriterEnd::Stop), damaged(900));
            assert_eq!(tail(at, at, traces, WriterEnd::StopAt(at)), damaged(900));
            assert_eq!(tail(at, at, traces, WriterEnd::PowerCut), torn);
        }
        assert_eq!(tail(at, at, half, WriterEnd::Kill), damaged(900));
        assert_eq!(tail(at, at, headless, WriterEnd::Kill), damaged(900));
        assert_eq!(tail(at, at, hole, WriterEnd::Kill), torn);
        // The log's position: both LSNs count after a kill, the durable one in every case.
        let noted = |complete, durable, how, traces| {
            let reached = Reached {
                complete: Lsn(complete),
                durable: Lsn(durable),
            };
            let known = Known::of(how, Some(reached));
            super::tail(at, known.durable, traces, known)
        };
        for ending in [WriterEnd::Kill, WriterEnd::Stop] {
            assert_eq!(noted(808, 0, ending, Traces::default()), damaged(808));
            assert_eq!(noted(800, 0, ending, cut), Tail::Clean);
        }
        for (complete, durable, traces, verdict) in [
            (808, 0, Traces::default(), Tail::Clean),
            (808, 808, Traces::default(), damaged(808)),
            (800, 800, cut, damaged(800)),
        ] {
            let found = noted(complete, durable, WriterEnd::PowerCut, traces);
            assert_eq!(found, verdict);
        }
        assert_eq!(noted(800, 800, WriterEnd::Kill, hole), torn);
    }

    #[test]
    fn a_sealed_segment_follows_the_one_that_it_names() {
        let sealed = |salt, previous| {
            Some(HeaderSeal {
                key: DataKeyId(1),
                salt: [salt; 16],
                previous: [previous; 16],
                tag: [0; 16],
            })
        };
        let next = |seal| SegmentHeader {
            number: SegmentNumber(4),
            previous: SegmentNumber(3),
            seal,
            ..header()
        };
        let last = SegmentHeader {
            seal: sealed(7, 6),
            ..header()
        };
        assert!(follows(&last, &next(sealed(8, 7))));
        assert!(!follows(&last, &next(sealed(8, 6))));
        assert!(!follows(&last, &next(sealed(8, 0))));
        // Sealing was switched on, or off.
        assert!(follows(&header(), &next(sealed(8, 0))));
        assert!(!follows(&header(), &next(sealed(8, 7))));
        assert!(follows(&last, &next(None)));
        let other = SegmentHeader {
            previous: SegmentNumber(2),
            ..next(sealed(8, 7))
        };
        assert!(!follows(&last, &other));
    }

    #[test]
    fn every_row_of_the_next_segment_table() {
        let verdict = |next| next_segment(Lsn(800), Epoch(5), Some(&next));
        assert_eq!(next_segment(Lsn(800), Epoch(5), None), NextVerdict::LogEnds);
        assert_eq!(
            verdict(SegmentHeader {
                epoch: Epoch(4),
                ..header()
            }),
            NextVerdict::LogEnds
        );
        let hole = SegmentHeader {
            previous_end: Lsn(808),
            base: Lsn(808),
            ..header()
        };
        assert_eq!(verdict(hole), NextVerdict::LogEnds);
        assert_eq!(
            verdict(SegmentHeader {
                base: Lsn(792),
                ..header()
            }),
            NextVerdict::LogEnds
        );
        assert_eq!(verdict(header()), NextVerdict::GoesOn);
        assert_eq!(
            verdict(SegmentHeader {
                base: Lsn(900),
                ..header()
            }),
            NextVerdict::GoesOn
        );
    }
}
