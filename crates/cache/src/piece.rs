//! Pieces: the 64 KiB stretches that a block buffer is made of.
//!
//! A piece has memory only for a *window* of its 64 KiB: 4, 16 or 64 KiB, aligned to its own size. Bytes beyond the
//! window make it grow to the smallest one that holds both; two steps lead from the smallest window to the whole
//! piece, so a byte is moved at most twice.
//!
//! That memory comes from the pool, or is part of the memory in which fetched bytes arrived: such a piece is never
//! written to, but replaced.

use crate::arrived::Arrived;
use crate::bitmap::RangeBitmap;
use crate::copies::copied;
use crate::pool::{Buffer, Class, Pool};
use forebay_types::{BLOCK_SIZE, ByteRange, Lent, to_usize};
use std::sync::Arc;

/// Bytes in a piece.
pub(crate) const PIECE_SIZE: u64 = Class::Whole.size() as u64;

const _: () = assert!(BLOCK_SIZE.is_multiple_of(PIECE_SIZE));

/// A write of this many bytes over existing ones is longer than the processor's caches can keep.
const LONG_BYTES: usize = 256 << 10;

/// The part of a piece that has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    start: usize,
    class: Class,
}

impl Window {
    const WHOLE: Window = Window {
        start: 0,
        class: Class::Whole,
    };

    fn end(self) -> usize {
        self.start + self.class.size()
    }

    /// The smallest window that holds the bytes `start..end` of a piece, which are not empty.
    fn around(start: usize, end: usize) -> Window {
        let holds = |class: &Class| start / class.size() == (end - 1) / class.size();
        let class = Class::ALL.into_iter().find(holds).unwrap_or(Class::Whole);
        Window {
            start: start - start % class.size(),
            class,
        }
    }

    /// The smallest window that holds both.
    fn with(self, other: Window) -> Window {
        Window::around(self.start.min(other.start), self.end().max(other.end()))
    }
}

/// The memory of one piece. Shared between the block and all owners that need its bytes unchanged; written in place
/// only by a sole owner.
#[derive(Debug)]
pub(crate) struct Piece {
    start: usize,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Pooled(Buffer),
    /// A whole piece from its first byte on, or the first half of it and more.
    TakenOver(Arrived),
}

impl Piece {
    fn pooled(window: Window, buffer: Buffer) -> Piece {
        Piece {
            start: window.start,
            memory: Memory::Pooled(buffer),
        }
    }

    fn window(&self) -> Window {
        Window {
            start: self.start,
            class: match &self.memory {
                Memory::Pooled(buffer) => buffer.class(),
                Memory::TakenOver(_) => Class::Whole,
            },
        }
    }

    /// Bytes of its memory.
    pub(crate) fn size(&self) -> u64 {
        self.window().class.size() as u64
    }

    /// The buffer, if it may be written to.
    fn buffer(&mut self) -> Option<&mut Buffer> {
        match &mut self.memory {
            Memory::Pooled(buffer) => Some(buffer),
            Memory::TakenOver(_) => None,
        }
    }

    /// All bytes from the start of its window on that were ever written.
    fn content(&self) -> &[u8] {
        match &self.memory {
            Memory::Pooled(buffer) => buffer.bytes(),
            Memory::TakenOver(arrived) => arrived.bytes(),
        }
    }

    /// The bytes `start..end` of the piece, all of which were written.
    fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.content()[start - self.start..end - self.start]
    }
}

/// The pieces of a block, by their number; absent where no byte is covered.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    table: Vec<Option<Arc<Piece>>>,
}

/// The pieces that a range of a block touches: number, and first and last offset within.
fn split(range: ByteRange) -> impl Iterator<Item = (usize, usize, usize)> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let index = at / PIECE_SIZE;
        let stop = end.min((index + 1) * PIECE_SIZE);
        let part = (
            index as usize,
            to_usize(at - index * PIECE_SIZE),
            to_usize(stop - index * PIECE_SIZE),
        );
        at = stop;
        Some(part)
    })
}

impl Pieces {
    /// Writes `data` at the offset `at` of the block. Shared pieces are left unchanged, and replaced here by a copy.
    /// `streaming`: the bytes just before `at` exist, so this is likely a sequential writer.
    pub(crate) fn write(&mut self, at: u64, data: &[u8], streaming: bool, pool: &Arc<Pool>) {
        let is_long = data.len() >= LONG_BYTES;
        let mut data = data;
        let mut replaced = None;
        for (index, start, end) in split(ByteRange::at(at, data.len() as u64)) {
            let (part, rest) = data.split_at(end - start);
            data = rest;
            if index >= self.table.len() {
                self.table.resize(index + 1, None);
            }
            // A stream that has filled the piece before will fill this one as well: skip the steps.
            let whole = streaming && start == 0 && self.is_whole(index.wrapping_sub(1));
            let slot = &mut self.table[index];
            let needed = if whole {
                Window::WHOLE
            } else {
                Window::around(start, end)
            };
            match slot {
                None => {
                    let mut buffer = pool.take(needed.class);
                    buffer.write_past_caches(start - needed.start, part);
                    *slot = Some(Arc::new(Piece::pooled(needed, buffer)));
                }
                Some(shared) => {
                    if let Memory::TakenOver(arrived) = &shared.memory {
                        replaced = Some(arrived.clone());
                    }
                    overwrite(shared, needed, start, part, is_long, pool);
                }
            }
        }
        if let Some(arrived) = replaced {
            self.copy_sparse(&arrived, pool);
        }
    }

    /// Copies the pieces that share the arrived memory once they are less than half of it. Otherwise a block that was
    /// read and then completely rewritten would occupy its memory twice.
    fn copy_sparse(&mut self, arrived: &Arrived, pool: &Arc<Pool>) {
        let shares = |piece: &Piece| matches!(&piece.memory, Memory::TakenOver(own) if own.is_beside(arrived));
        let pieces = self.table.iter().flatten();
        let left = pieces.filter(|piece| shares(piece)).count() as u64;
        if left * PIECE_SIZE * 2 >= arrived.memory_len() {
            return;
        }
        for piece in self.table.iter_mut().flatten() {
            if shares(piece) {
                let mut buffer = pool.take(Class::Whole);
                buffer.write(0, piece.content());
                pool.count_copy();
                *piece = Arc::new(Piece::pooled(Window::WHOLE, buffer));
            }
        }
    }

    /// Fills in `data`, a part of `arrived`, at the offset `at` of the block, where nothing is covered. Pieces that
    /// `data` holds from their first byte on, completely or at least half, take over its memory; others are copied.
    pub(crate) fn take_over(
        &mut self,
        at: u64,
        data: &[u8],
        arrived: &Arrived,
        streaming: bool,
        pool: &Arc<Pool>,
    ) {
        let mut data = data;
        for (index, start, end) in split(ByteRange::at(at, data.len() as u64)) {
            let (part, rest) = data.split_at(end - start);
            data = rest;
            let is_most = start == 0 && end * 2 >= Class::Whole.size();
            if is_most && self.table.get(index).is_none_or(Option::is_none) {
                if index >= self.table.len() {
                    self.table.resize(index + 1, None);
                }
                let memory = Memory::TakenOver(arrived.kept(part, pool));
                self.table[index] = Some(Arc::new(Piece { start: 0, memory }));
            } else {
                let at = index as u64 * PIECE_SIZE + start as u64;
                self.write(at, part, streaming, pool);
            }
        }
    }

    fn is_whole(&self, index: usize) -> bool {
        let piece = self.table.get(index).and_then(Option::as_ref);
        piece.is_some_and(|piece| piece.window() == Window::WHOLE)
    }

    /// The bytes of `range`, all of which must have been written.
    pub(crate) fn slices(&self, range: ByteRange) -> impl Iterator<Item = &[u8]> {
        split(range).filter_map(|(index, start, end)| {
            let piece = self.table.get(index)?.as_ref();
            debug_assert!(piece.is_some(), "covered bytes have a piece");
            Some(piece?.bytes(start, end))
        })
    }

    /// Lends the bytes of `range`, all of which must have been written, to a later reader: they do not change,
    /// whatever is written meanwhile.
    pub(crate) fn lend(&self, range: ByteRange) -> impl Iterator<Item = Lent> {
        split(range).filter_map(|(index, start, end)| {
            let piece = self.table.get(index)?.as_ref();
            debug_assert!(piece.is_some(), "covered bytes have a piece");
            Some(lent(piece?, start, end))
        })
    }

    /// The pieces that hold any byte of `ranges`, shared.
    pub(crate) fn share(&self, ranges: &RangeBitmap) -> Pieces {
        let mut table = Vec::new();
        for range in ranges.ranges() {
            for (index, _, _) in split(range) {
                if index >= table.len() {
                    table.resize(index + 1, None);
                    table[index].clone_from(&self.table[index]);
                }
            }
        }
        Pieces { table }
    }

    /// Drops the pieces at and behind the one that holds byte `from` of the block, unless `coverage` has a byte in
    /// them.
    pub(crate) fn drop_uncovered(&mut self, from: u64, coverage: &RangeBitmap) {
        let first = (from / PIECE_SIZE) as usize;
        for (index, slot) in self.table.iter_mut().enumerate().skip(first) {
            let piece = ByteRange::at(index as u64 * PIECE_SIZE, PIECE_SIZE);
            if coverage.set_ranges(piece).next().is_none() {
                *slot = None;
            }
        }
        self.drop_end();
    }

    /// The memory of a piece. Two owners of pieces share it if they have the same.
    pub(crate) fn memory(&self, index: usize) -> Option<&Arc<Piece>> {
        self.table.get(index)?.as_ref()
    }

    /// Drops a piece, of which no byte may be read any more.
    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(slot) = self.table.get_mut(index) {
            *slot = None;
        }
        self.drop_end();
    }

    /// One more than the largest number of a piece in it.
    pub(crate) fn end(&self) -> usize {
        self.table.len()
    }

    /// Gives back heap memory that it does not need.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink_to_fit();
    }

    fn drop_end(&mut self) {
        while self.table.last().is_some_and(Option::is_none) {
            self.table.pop();
        }
    }

    /// Bytes of the buffers in it.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let sizes = self.table.iter().flatten();
        sizes.map(|piece| piece.size()).sum()
    }

    /// Bytes of heap memory beside the buffers' own.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.table.capacity() * size_of::<Option<Arc<Piece>>>()) as u64
    }

    /// Whether another owner holds one of the pieces.
    pub(crate) fn is_shared(&self) -> bool {
        let mut pieces = self.table.iter().flatten();
        pieces.any(|piece| Arc::strong_count(piece) > 1)
    }
}

/// For readers.
impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.content()
    }
}

/// Shares the memory if the stretch is half of it or more. A shorter one is copied: it would keep more than twice its
/// length from being evicted until its reader is done.
fn lent(piece: &Arc<Piece>, start: usize, end: usize) -> Lent {
    if (end - start) * 2 < piece.window().class.size() {
        return copied(piece.bytes(start, end)).into();
    }
    let range = start - piece.start..end - piece.start;
    Lent::shared(Arc::clone(piece) as _, range)
}

/// Writes to an existing piece: in place if it has no other owner, is of the pool and large enough, otherwise to a
/// new one that starts with the bytes of the old one. `is_long`: the bytes are part of a long write.
fn overwrite(
    shared: &mut Arc<Piece>,
    needed: Window,
    start: usize,
    data: &[u8],
    is_long: bool,
    pool: &Arc<Pool>,
) {
    let old = shared.window();
    let window = old.with(needed);
    let own = Arc::get_mut(shared).and_then(Piece::buffer);
    let grown = match own {
        Some(buffer) if window == old => {
            let at = start - old.start;
            return if is_long {
                buffer.write_past_caches(at, data)
            } else {
                buffer.write(at, data)
            };
        }
        own => own.is_some(),
    };
    let mut buffer = pool.take(window.class);
    let replaced = start <= old.start && old.end() <= start + data.len();
    if !replaced {
        buffer.write(old.start - window.start, shared.content());
        if !grown {
            pool.count_copy();
        }
    }
    buffer.write_past_caches(start - window.start, data);
    *shared = Arc::new(Piece::pooled(window, buffer));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitmap(start: u64, end: u64) -> RangeBitmap {
        let mut bitmap = RangeBitmap::new();
        bitmap.set(ByteRange::new(start, end));
        bitmap
    }

    fn text(pieces: &Pieces, start: u64, end: u64) -> Vec<u8> {
        let slices: Vec<_> = pieces.slices(ByteRange::new(start, end)).collect();
        slices.concat()
    }

    #[test]
    fn a_window_is_the_smallest_aligned_one() {
        let window = |start, end| {
            let window = Window::around(start, end);
            (window.start, window.end())
        };
        assert_eq!(window(0, 1), (0, 4096));
        assert_eq!(window(40960, 45056), (40960, 45056));
        assert_eq!(window(4095, 4097), (0, 16384));
        assert_eq!(window(16383, 16385), (0, 65536));
        assert_eq!(window(20000, 30000), (16384, 32768));
    }

    #[test]
    fn a_piece_grows_around_what_it_holds() {
        let pool = Pool::new(1 << 20, 0);
        let mut pieces = Pieces::default();
        pieces.write(40960, b"middle", false, &pool);
        assert_eq!(pieces.buffer_bytes(), 4096);
        pieces.write(36864, b"before", false, &pool);
        assert_eq!(pieces.buffer_bytes(), 16384);
        pieces.write(0, b"first", false, &pool);
        assert_eq!(pieces.buffer_bytes(), 65536);
        assert_eq!(text(&pieces, 40960, 40966), b"middle");
        assert_eq!(text(&pieces, 36864, 36870), b"before");
        assert_eq!(pool.used_bytes(), 65536, "the smaller ones went back");
        assert_eq!(pool.copied_pieces(), 0, "growing is no copy on write");
    }

    #[test]
    fn a_stream_takes_whole_pieces_after_the_first() {
        let pool = Pool::new(1 << 20, 0);
        let mut pieces = Pieces::default();
        pieces.write(0, &[1; 65536], false, &pool);
        pieces.write(65536, &[2; 4096], true, &pool);
        assert_eq!(pieces.buffer_bytes(), 131072);
    }

    #[test]
    fn a_shared_piece_is_copied_once_and_a_fully_replaced_one_never() {
        let pool = Pool::new(1 << 20, 0);
        let mut pieces = Pieces::default();
        pieces.write(0, &[1; 131072], false, &pool);
        let held = pieces.share(&bitmap(0, 131072));
        pieces.write(10, &[2], false, &pool);
        pieces.write(11, &[2], false, &pool);
        assert_eq!(pool.copied_pieces(), 1);
        pieces.write(65536, &[3; 65536], false, &pool);
        assert_eq!(pool.copied_pieces(), 1);
        assert_eq!(text(&held, 0, 131072), [1; 131072]);
        assert_eq!(text(&pieces, 9, 13), [1, 2, 2, 1]);
    }

    #[test]
    fn only_pieces_with_bytes_in_the_ranges_are_shared() {
        let pool = Pool::new(1 << 20, 0);
        let mut pieces = Pieces::default();
        pieces.write(0, &[1; 3 * 65536], false, &pool);
        let held = pieces.share(&bitmap(70000, 70001));
        assert_eq!(held.buffer_bytes(), 65536);
    }
}
