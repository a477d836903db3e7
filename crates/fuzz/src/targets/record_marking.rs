//! The stream of a connection, split into records.
//!
//! For every stream:
//! * the records, and the error after them, are those that a plain parser of RFC 5531, section 11, finds in the whole
//!   stream at once, however the stream is split into reads, and whether large records are read directly into their
//!   buffer or not;
//! * a buffer is requested only for a record of more than [`SMALL_RECORD_BYTES`], and for no more than the limit;
//! * no record, and no memory of a record, is larger than the limit allows.
//!
//! ```text
//! input    seed of the splitting: 2    stream
//! stream   its bytes, but F5 n n stands for n * 8 bytes of a record: so that small inputs make large ones
//! ```

use forebay_nfs::record::{
    Assembler, HEAD_BYTES, LAST_FRAGMENT, RecordError, SMALL_RECORD_BYTES, Step,
};

use crate::Target;
use crate::input::Input;
use crate::mutate::Random;

/// The target.
pub const TARGET: Target = Target {
    name: "record_marking",
    run,
    seeds,
    max_bytes: 512,
};

/// Longest record. Above the size that is collected without a request, and small enough to be tested often.
const LIMIT: usize = SMALL_RECORD_BYTES * 2 + 1000;

/// Longest stream that is tested.
const MAX_STREAM_BYTES: usize = 4 * LIMIT;

/// Byte that stands for many bytes.
const MANY: u8 = 0xf5;

/// Records, and the error after them.
type Parsed = (Vec<Vec<u8>>, Option<RecordError>);

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let seed = input.u16();
    let stream = expanded(input);
    let expected = parsed(&stream);
    let mut random = Random(seed.into());
    let piece = 1 + random.below(1 << (seed % 18));
    for (direct, chop) in [
        (false, Chop::Whole),
        (true, Chop::Pieces(piece)),
        (false, Chop::Random(random.clone(), piece)),
        (true, Chop::Random(random, SMALL_RECORD_BYTES)),
    ] {
        let assembled = assembled(&stream, chop.clone(), direct);
        assert!(
            assembled == expected,
            "{chop:?}, direct reads {direct}: {} records and {:?} instead of {} and {:?}",
            assembled.0.len(),
            assembled.1,
            expected.0.len(),
            expected.1,
        );
    }
    let cut = |record: &Vec<u8>| match record.len() > SMALL_RECORD_BYTES {
        true => record.iter().copied().take(HEAD_BYTES).collect(),
        false => record.clone(),
    };
    let heads: Vec<Vec<u8>> = expected.0.iter().map(cut).collect();
    assert_eq!(
        discarded(&stream, Chop::Pieces(40_000)),
        (heads, expected.1),
        "large ones discarded"
    );
    if stream.len() < 4096 {
        assert_eq!(
            assembled(&stream, Chop::Pieces(1), false),
            expected,
            "byte by byte"
        );
    }
}

fn expanded(mut input: Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() && stream.len() < MAX_STREAM_BYTES {
        match input.u8() {
            MANY => {
                let count = 8 * usize::from(input.u16());
                stream.resize(stream.len() + count, 0x11);
            }
            byte => stream.push(byte),
        }
    }
    stream
}

/// The records of a stream that is complete.
fn parsed(mut stream: &[u8]) -> Parsed {
    let (mut records, mut record) = (Vec::new(), Vec::new());
    while let Some((mark, rest)) = stream.split_first_chunk() {
        let mark = u32::from_be_bytes(*mark);
        let length = (mark & !LAST_FRAGMENT) as usize;
        let last = mark & LAST_FRAGMENT != 0;
        if record.len() + length > LIMIT {
            return (records, Some(RecordError::TooLong { limit: LIMIT }));
        }
        if length == 0 && !last {
            return (records, Some(RecordError::EmptyFragment));
        }
        let Some((fragment, rest)) = rest.split_at_checked(length) else {
            break;
        };
        record.extend_from_slice(fragment);
        stream = rest;
        if last {
            records.push(std::mem::take(&mut record));
        }
    }
    (records, None)
}

/// How many bytes of the stream arrive with each read.
#[derive(Clone, Debug)]
enum Chop {
    Whole,
    Pieces(usize),
    Random(Random, usize),
}

impl Chop {
    fn next(&mut self) -> usize {
        match self {
            Chop::Whole => usize::MAX,
            Chop::Pieces(bytes) => *bytes,
            Chop::Random(random, limit) => 1 + random.below(*limit),
        }
    }
}

/// The records that the assembler makes of a stream, fed as a connection does.
fn assembled(mut stream: &[u8], mut chop: Chop, direct: bool) -> Parsed {
    let mut assembler = Assembler::new(LIMIT);
    let mut records = Vec::new();
    while !stream.is_empty() {
        let count = chop.next().min(stream.len());
        if direct && let Some((buffer, wanted)) = assembler.direct() {
            let count = count.min(wanted);
            let (read, rest) = stream.split_at(count);
            let room = buffer.capacity() - buffer.len();
            assert!(count <= room, "a direct read of {count} bytes into {room}");
            buffer.extend_from_slice(read);
            stream = rest;
            if let Some(record) = assembler.advance(count) {
                check(&record);
                records.push(record);
            }
            continue;
        }
        let (mut read, rest) = stream.split_at(count);
        stream = rest;
        loop {
            match assembler.take(&mut read) {
                Ok(Step::NeedInput) => break,
                Ok(Step::NeedBuffer(bytes)) => {
                    assert!(
                        bytes > SMALL_RECORD_BYTES && bytes <= LIMIT,
                        "a buffer of {bytes} bytes"
                    );
                    assembler.grant(Vec::with_capacity(bytes.max(LIMIT)));
                }
                Ok(Step::Record(record)) => {
                    check(&record);
                    records.push(record);
                }
                Ok(Step::Discarded(_)) => panic!("nothing was discarded"),
                Err(error) => return (records, Some(error)),
            }
        }
        assert!(read.is_empty(), "{} bytes were not taken", read.len());
    }
    (records, None)
}

/// The records of a stream, but of a record that needs a buffer only the beginning.
fn discarded(mut stream: &[u8], mut chop: Chop) -> Parsed {
    let mut assembler = Assembler::new(LIMIT);
    let mut records = Vec::new();
    while !stream.is_empty() {
        let (mut read, rest) = stream.split_at(chop.next().min(stream.len()));
        stream = rest;
        loop {
            match assembler.take(&mut read) {
                Ok(Step::NeedInput) => break,
                Ok(Step::NeedBuffer(_)) => assembler.discard(),
                Ok(Step::Record(record) | Step::Discarded(record)) => records.push(record),
                Err(error) => return (records, Some(error)),
            }
        }
        assert!(read.is_empty(), "{} bytes were not taken", read.len());
    }
    (records, None)
}

fn check(record: &Vec<u8>) {
    assert!(record.len() <= LIMIT, "a record of {} bytes", record.len());
    // A vector that grows as bytes arrive doubles its capacity.
    let allowed = LIMIT.max(2 * SMALL_RECORD_BYTES);
    assert!(
        record.capacity() <= allowed,
        "{} bytes of memory",
        record.capacity()
    );
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let fragment = |last: bool, many: u16, data: &[u8]| {
        let length = 8 * u32::from(many) + data.len() as u32;
        let mut out = (length | if last { LAST_FRAGMENT } else { 0 })
            .to_be_bytes()
            .to_vec();
        if many > 0 {
            out.push(MANY);
            out.extend(many.to_le_bytes());
        }
        out.extend(data);
        out
    };
    let input =
        |seed: u16, fragments: &[Vec<u8>]| [&seed.to_le_bytes()[..], &fragments.concat()].concat();
    vec![
        ("one", input(3, &[fragment(true, 0, b"forebay")])),
        (
            "empty",
            input(3, &[fragment(true, 0, b""), fragment(true, 0, b"x")]),
        ),
        (
            "two",
            input(
                7,
                &[
                    fragment(false, 0, b"fore"),
                    fragment(true, 0, b"bay"),
                    fragment(true, 0, b"!"),
                ],
            ),
        ),
        (
            "large",
            input(
                16,
                &[fragment(true, 9000, b"end"), fragment(true, 0, b"next")],
            ),
        ),
        (
            "large-in-parts",
            input(
                14,
                &[fragment(false, 5000, b"a"), fragment(true, 6000, b"b")],
            ),
        ),
        (
            "longest",
            input(17, &[fragment(true, (LIMIT / 8) as u16, b"")]),
        ),
        (
            "too-long",
            input(9, &[fragment(false, 8000, b""), fragment(true, 9000, b"")]),
        ),
        (
            "empty-fragment",
            input(1, &[fragment(false, 0, b""), fragment(true, 0, b"x")]),
        ),
        (
            "cut-off",
            input(5, &[fragment(true, 100, b"x")[..7].to_vec()]),
        ),
    ]
}
