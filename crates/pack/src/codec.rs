//! Compression of the raw bytes of a frame, and the decision whether to compress.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

/// The relation of a frame's payload to its raw bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The payload is the raw bytes.
    Raw,
    /// The payload is one zstd frame, always smaller than the raw bytes.
    Zstd,
}

impl Codec {
    /// The number of the codec in a frame.
    pub(crate) fn id(self) -> u8 {
        match self {
            Codec::Raw => 0,
            Codec::Zstd => 1,
        }
    }

    pub(crate) fn from_id(id: u8) -> Option<Codec> {
        match id {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Whether a [`crate::PackWriter`] compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Every frame is stored raw.
    Off,
    /// Frames are compressed where that saves at least an eighth, as judged by a sample first.
    Auto {
        /// The zstd level: 1 (fastest) to 22.
        level: i32,
    },
}

impl Default for Compression {
    /// zstd level 1: a core compresses 200 to 350 MB/s with it, about what a network link takes.
    fn default() -> Self {
        Compression::Auto { level: 1 }
    }
}

impl Compression {
    /// The zstd level; `None` if nothing is compressed.
    fn level(self) -> Option<i32> {
        match self {
            Compression::Off => None,
            Compression::Auto { level } => Some(level),
        }
    }
}

/// A frame stays raw unless compression saves at least one part in this many. The savings below
/// that are not worth the decompression in each later read.
const MIN_SAVING: usize = 8;

/// Pieces that are taken from a frame as its sample, spread evenly, and their length in bytes. There are enough of them
/// that a compressible header or tail in front of or behind an incompressible bulk does not tip the balance; together
/// they are short enough that the sample costs a sixty-fourth of compressing a whole block.
const SAMPLE_PIECES: usize = 16;
const SAMPLE_PIECE_LEN: usize = 4 << 10;

/// Frames up to this length are compressed without taking a sample first.
const SAMPLE_FROM: usize = 2 * SAMPLE_PIECES * SAMPLE_PIECE_LEN;

/// Frames below this length stay raw: compared with the frame header they have nothing to save.
const MIN_COMPRESSED_LEN: usize = 256;

/// Compresses the frames of a pack one after the other, with one context and one buffer, which are
/// created for the first frame that needs them.
pub(crate) struct FrameCompressor {
    level: Option<i32>,
    /// The context, and its current level.
    context: Option<(i32, Compressor<'static>)>,
    sample: Vec<u8>,
    compressed: Vec<u8>,
}

impl FrameCompressor {
    pub(crate) fn new(compression: Compression) -> FrameCompressor {
        FrameCompressor {
            level: compression.level(),
            context: None,
            sample: Vec::new(),
            compressed: Vec::new(),
        }
    }

    /// Sets the compression of the frames from here on.
    pub(crate) fn set(&mut self, compression: Compression) {
        self.level = compression.level();
    }

    /// Whether compression may pay for the `len` bytes that `raw` yields in order, as judged by their length and a
    /// sample of them.
    pub(crate) fn may_pay<'a>(&mut self, raw: impl Iterator<Item = &'a [u8]>, len: usize) -> bool {
        if self.level.is_none() || len < MIN_COMPRESSED_LEN {
            return false;
        }
        if len <= SAMPLE_FROM {
            return true;
        }
        take_sample(raw, len, &mut self.sample);
        let sample = std::mem::take(&mut self.sample);
        let pays = self.compress(&sample).is_some();
        self.sample = sample;
        pays
    }

    /// The compressed form of `raw`; `None` if it does not pay. A compressor that fails (out of
    /// memory) is no reason to lose data: the frame is then stored raw as well.
    pub(crate) fn compress(&mut self, raw: &[u8]) -> Option<&[u8]> {
        let level = self.level?;
        let (set_to, context) = match &mut self.context {
            Some(context) => context,
            none => none.insert((level, Compressor::new(level).ok()?)),
        };
        if *set_to != level {
            context.set_compression_level(level).ok()?;
            *set_to = level;
        }
        compress_if_it_pays(context, raw, &mut self.compressed)?;
        Some(&self.compressed)
    }
}

/// Takes pieces of the `len` bytes that `raw` yields, from the first to the last.
fn take_sample<'a>(raw: impl Iterator<Item = &'a [u8]>, len: usize, sample: &mut Vec<u8>) {
    sample.clear();
    let stride = (len - SAMPLE_PIECE_LEN) / (SAMPLE_PIECES - 1);
    let mut wanted =
        (0..SAMPLE_PIECES).map(|piece| piece * stride..piece * stride + SAMPLE_PIECE_LEN);
    let mut next = wanted.next();
    let mut end = 0;
    for piece in raw {
        let start = end;
        end += piece.len();
        while let Some(want) = &next {
            let from = want.start.max(start).min(end);
            let to = want.end.min(end);
            sample.extend_from_slice(piece.get(from - start..to - start).unwrap_or_default());
            if want.end > end {
                break;
            }
            next = wanted.next();
        }
    }
}

/// Fills `compressed`, unless it would be longer than the limit for a saving: zstd stops as soon as its output buffer
/// is full.
fn compress_if_it_pays(
    context: &mut Compressor<'static>,
    raw: &[u8],
    compressed: &mut Vec<u8>,
) -> Option<()> {
    compressed.clear();
    compressed.resize(raw.len() - raw.len() / MIN_SAVING, 0);
    let len = context
        .compress_to_buffer(raw, compressed.as_mut_slice())
        .ok()?;
    compressed.truncate(len);
    Some(())
}

thread_local! {
    /// A context is 160 KiB, which would cost more than the small frames that it opens.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The raw bytes in a zstd payload; `None` unless there are exactly `raw_len`. Never allocates more
/// than that, whatever the payload claims.
pub(crate) fn decompress(payload: &[u8], raw_len: usize) -> Option<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|cached| {
        let context = match cached {
            Some(context) => context,
            none => none.insert(Decompressor::new().ok()?),
        };
        let mut raw = Vec::with_capacity(raw_len);
        context.decompress_to_buffer(payload, &mut raw).ok()?;
        (raw.len() == raw_len).then_some(raw)
    })
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    /// Bytes without any pattern for zstd, the same in every run.
    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    fn auto() -> FrameCompressor {
        FrameCompressor::new(Compression::default())
    }

    /// As in the writer of packs.
    fn tried<'a>(compressor: &'a mut FrameCompressor, raw: &[u8]) -> Option<&'a [u8]> {
        let may_pay = compressor.may_pay(once(raw), raw.len());
        may_pay.then(|| compressor.compress(raw)).flatten()
    }

    #[test]
    fn a_sample_is_the_same_however_the_bytes_are_cut() {
        let raw = noise(300_001);
        let mut whole = Vec::new();
        take_sample(once(&raw[..]), raw.len(), &mut whole);
        let stride = (raw.len() - SAMPLE_PIECE_LEN) / (SAMPLE_PIECES - 1);
        let expected: Vec<u8> = raw
            .chunks(stride)
            .take(SAMPLE_PIECES)
            .flat_map(|piece| &piece[..SAMPLE_PIECE_LEN])
            .copied()
            .collect();
        assert_eq!(whole, expected);
        for piece in [
            1,
            100,
            4095,
            4096,
            4097,
            stride,
            stride + 1,
            65_536,
            300_000,
        ] {
            let mut cut = Vec::new();
            take_sample(raw.chunks(piece), raw.len(), &mut cut);
            assert!(cut == whole, "pieces of {piece}");
        }
    }

    #[test]
    fn text_is_compressed_and_noise_is_not() {
        let text = b"it takes what comes, at once. ".repeat(140_000);
        let mut compressor = auto();
        for raw in [&text[..300], &text[..10_000], &text] {
            let compressed = tried(&mut compressor, raw).unwrap().to_vec();
            assert!(compressed.len() < raw.len() / 2);
            assert_eq!(decompress(&compressed, raw.len()).unwrap(), raw);
        }
        for len in [300, 10_000, SAMPLE_FROM, SAMPLE_FROM + 1, 4 << 20] {
            assert!(tried(&mut compressor, &noise(len)).is_none(), "{len}");
        }
        assert!(tried(&mut compressor, &[0; MIN_COMPRESSED_LEN - 1]).is_none());
    }

    #[test]
    fn noise_behind_a_compressible_start_is_not_compressed() {
        let mut raw = noise(4 << 20);
        raw[..100_000].fill(0);
        let mut compressor = auto();
        assert!(tried(&mut compressor, &raw).is_none());
        // The sample alone decided: the attempt never read beyond it.
        assert!(compressor.compressed.len() <= SAMPLE_PIECES * SAMPLE_PIECE_LEN);
    }

    #[test]
    fn a_sample_that_promises_too_much_leaves_the_frame_raw() {
        let mut raw = noise(4 << 20);
        let stride = (raw.len() - SAMPLE_PIECE_LEN) / (SAMPLE_PIECES - 1);
        for piece in raw.chunks_mut(stride) {
            let len = piece.len().min(SAMPLE_PIECE_LEN);
            piece[..len].fill(0);
        }
        assert!(tried(&mut auto(), &raw).is_none());
    }

    #[test]
    fn compression_that_is_off_compresses_nothing() {
        let mut off = FrameCompressor::new(Compression::Off);
        assert!(!off.may_pay(once(&[0; 4096][..]), 4096));
        assert!(off.compress(&[0; 4096]).is_none());
    }

    #[test]
    fn what_is_compressed_after_another_level_is_as_if_it_always_had_this_one() {
        let lines = (0..5_000_u64).map(|n| {
            let bytes = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
            format!("{n:08} gateway wrote {bytes} bytes\n").into_bytes()
        });
        let text: Vec<u8> = lines.flatten().collect();
        let at = |level| {
            FrameCompressor::new(Compression::Auto { level })
                .compress(&text)
                .unwrap()
                .to_vec()
        };
        let mut changing = FrameCompressor::new(Compression::Auto { level: 9 });
        assert_eq!(changing.compress(&text).unwrap(), at(9));
        changing.set(Compression::Off);
        assert!(changing.compress(&text).is_none());
        changing.set(Compression::Auto { level: 1 });
        assert_eq!(changing.compress(&text).unwrap(), at(1));
        changing.set(Compression::Auto { level: 9 });
        assert_eq!(changing.compress(&text).unwrap(), at(9));
        assert!(at(9).len() < at(1).len());
    }

    #[test]
    fn a_payload_that_holds_more_or_less_than_it_should_is_refused() {
        let mut compressor = auto();
        let bomb = compressor.compress(&vec![0; 4 << 20]).unwrap();
        assert!(decompress(bomb, (4 << 20) - 1).is_none());
        assert!(decompress(bomb, (4 << 20) + 1).is_none());
        assert!(decompress(bomb, 16).is_none());
        assert!(decompress(&bomb[..bomb.len() - 1], 4 << 20).is_none());
        assert!(decompress(b"not zstd", 8).is_none());
        assert!(decompress(bomb, 4 << 20).is_some());
    }
}
