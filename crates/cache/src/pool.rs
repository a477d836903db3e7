//! Buffers in three size classes, recycled, and the account of all memory of blocks and of leases on the same budget.

use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Whether returned buffers are kept; for benchmarks.
#[cfg(feature = "measuring")]
pub(crate) static RECYCLES: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(true);

/// The size class of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// 4 KiB.
    Small,
    /// 16 KiB.
    Middle,
    /// 64 KiB: a whole piece.
    Whole,
}

impl Class {
    /// From the smallest to the largest.
    pub(crate) const ALL: [Class; 3] = [Class::Small, Class::Middle, Class::Whole];

    /// Bytes in a buffer of this class.
    pub(crate) const fn size(self) -> usize {
        match self {
            Class::Small => 4 << 10,
            Class::Middle => 16 << 10,
            Class::Whole => 64 << 10,
        }
    }
}

thread_local! {
    /// The pool reference of the last buffer that this thread returned, for the next one that it takes: all threads
    /// count references at the same place, and a locked instruction is a fifth of the cost of a recycled buffer.
    static SPARE: Cell<Option<Arc<Pool>>> = const { Cell::new(None) };
}

/// The source of buffers, to which they return. The counters are exact sums of the buffers taken and returned;
/// between two of them, a reader on another thread may see one change before the other.
#[derive(Debug)]
pub(crate) struct Pool {
    limit_bytes: u64,
    classes: [Buffers; Class::ALL.len()],
    /// Memory that pieces took over.
    taken_over_bytes: AtomicU64,
    /// Memory of blocks beside their buffers.
    overhead_bytes: AtomicU64,
    /// Memory outside the blocks that was leased because there was room.
    leased_bytes: AtomicU64,
    /// Memory outside the blocks that was drawn without a check, from the reserve first.
    drawn_bytes: AtomicU64,
    /// Bytes kept free for drawing.
    reserve_bytes: u64,
    /// Pieces copied because an image or a closed checkpoint held them, or because their memory was taken over.
    copied_pieces: AtomicU64,
}

/// The buffers of a class. Its counters change only under its lock, so that a change costs only a load and a store.
#[derive(Debug, Default)]
struct Buffers {
    idle: Mutex<Idle>,
    /// All existing buffers: those that pieces own and those in `idle`.
    made_bytes: AtomicU64,
    /// Buffers in `idle`.
    idle_bytes: AtomicU64,
}

impl Buffers {
    fn lock(&self) -> Locked<'_> {
        Locked {
            idle: self.idle.lock(),
            counters: self,
        }
    }

    /// Buffers that pieces own.
    fn used_bytes(&self) -> u64 {
        let idle = self.idle_bytes.load(Relaxed);
        // Could be less if a buffer was freed in between.
        self.made_bytes.load(Relaxed).saturating_sub(idle)
    }
}

/// The buffers of a class, locked so that its counters may be changed.
struct Locked<'a> {
    idle: MutexGuard<'a, Idle>,
    counters: &'a Buffers,
}

impl Locked<'_> {
    fn made(&self, bytes: isize) {
        change(&self.counters.made_bytes, bytes);
    }

    fn idle(&self, bytes: isize) {
        change(&self.counters.idle_bytes, bytes);
    }
}

fn change(counter: &AtomicU64, by: isize) {
    counter.store(
        counter.load(Relaxed).wrapping_add_signed(by as i64),
        Relaxed,
    );
}

/// Buffers of a class that can be used again.
#[derive(Debug, Default)]
struct Idle {
    /// The last returned one is used first.
    buffers: Vec<Vec<u8>>,
    /// Number of buffers at the front that were not needed since the last check.
    unused: usize,
    /// No buffers are taken any more.
    is_closed: bool,
}

impl Idle {
    fn pop(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop();
        self.unused = self.unused.min(self.buffers.len());
        buffer
    }

    fn take_unused(&mut self) -> Vec<Vec<u8>> {
        let used = self.buffers.split_off(self.unused);
        self.unused = used.len();
        std::mem::replace(&mut self.buffers, used)
    }
}

impl Pool {
    pub(crate) fn new(limit_bytes: u64, reserve_bytes: u64) -> Arc<Pool> {
        Arc::new(Pool {
            limit_bytes,
            classes: Default::default(),
            taken_over_bytes: AtomicU64::new(0),
            overhead_bytes: AtomicU64::new(0),
            leased_bytes: AtomicU64::new(0),
            drawn_bytes: AtomicU64::new(0),
            reserve_bytes,
            copied_pieces: AtomicU64::new(0),
        })
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Buffers that pieces own, and memory that they have taken over.
    pub(crate) fn used_bytes(&self) -> u64 {
        let used: u64 = self.classes.iter().map(Buffers::used_bytes).sum();
        used + self.taken_over_bytes.load(Relaxed)
    }

    /// Buffers that can be used again.
    pub(crate) fn idle_bytes(&self) -> u64 {
        let idle = self.classes.iter().map(|class| &class.idle_bytes);
        idle.map(|bytes| bytes.load(Relaxed)).sum()
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.used_bytes() + self.overhead_bytes.load(Relaxed)
    }

    pub(crate) fn copied_pieces(&self) -> u64 {
        self.copied_pieces.load(Relaxed)
    }

    pub(crate) fn count_copy(&self) {
        self.copied_pieces.fetch_add(1, Relaxed);
    }

    /// Replaces the overhead of one block in the account.
    pub(crate) fn change_overhead(&self, before: u64, after: u64) {
        if after != before {
            // Adding the wrapped difference subtracts.
            self.overhead_bytes
                .fetch_add(after.wrapping_sub(before), Relaxed);
        }
    }

    /// A buffer of the class, recycled if one is idle.
    pub(crate) fn take(self: &Arc<Pool>, class: Class) -> Buffer {
        let bytes = self.recycled(class).unwrap_or_else(|| {
            self.make_room(class.size() as u64);
            self.class(class).lock().made(class.size().cast_signed());
            Vec::with_capacity(class.size())
        });
        Buffer {
            bytes,
            class,
            pool: Some(self.reference()),
        }
    }

    /// The spare reference of this thread, or a new one.
    fn reference(self: &Arc<Pool>) -> Arc<Pool> {
        // A thread that is ending has none.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        match spare {
            Some(spare) if Arc::ptr_eq(&spare, self) => spare,
            _ => Arc::clone(self),
        }
    }

    fn recycled(&self, class: Class) -> Option<Vec<u8>> {
        let mut buffers = self.class(class).lock();
        let bytes = buffers.idle.pop()?;
        buffers.idle(-class.size().cast_signed());
        Some(bytes)
    }

    fn class(&self, class: Class) -> &Buffers {
        &self.classes[class as usize]
    }

    /// Counts memory of pieces that came from outside the pool.
    pub(crate) fn count_taken_over(&self, bytes: u64) {
        self.make_room(bytes);
        self.taken_over_bytes.fetch_add(bytes, Relaxed);
    }

    /// Stops counting it.
    pub(crate) fn count_gone(&self, bytes: u64) {
        self.taken_over_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Bytes leased and drawn.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.leased_bytes.load(Relaxed) + self.drawn_bytes.load(Relaxed)
    }

    /// Whether `bytes` fit without idle buffers, leaving the reserve untouched.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.fits(self.leased_bytes.load(Relaxed), bytes)
    }

    fn fits(&self, leased: u64, bytes: u64) -> bool {
        let drawn = self.drawn_bytes.load(Relaxed).max(self.reserve_bytes);
        [leased, drawn, bytes]
            .into_iter()
            .fold(self.allocated_bytes(), u64::saturating_add)
            <= self.limit_bytes
    }

    /// Counts `bytes` as leased if there is room for them.
    pub(crate) fn lend(&self, bytes: u64) -> bool {
        self.leased_bytes
            .fetch_update(Relaxed, Relaxed, |leased| {
                self.fits(leased, bytes).then(|| leased + bytes)
            })
            .is_ok()
    }

    /// Counts `bytes` as drawn if that many are left of the reserve.
    pub(crate) fn draw_reserve(&self, bytes: u64) -> bool {
        let left = |drawn: u64| (drawn + bytes <= self.reserve_bytes).then_some(drawn + bytes);
        self.make_room(bytes);
        self.drawn_bytes
            .fetch_update(Relaxed, Relaxed, left)
            .is_ok()
    }

    /// Counts `bytes` as drawn.
    pub(crate) fn draw(&self, bytes: u64) {
        self.make_room(bytes);
        self.drawn_bytes.fetch_add(bytes, Relaxed);
    }

    /// Stops counting `bytes` that were leased or drawn.
    pub(crate) fn take_back(&self, bytes: u64, drawn: bool) {
        let account = if drawn {
            &self.drawn_bytes
        } else {
            &self.leased_bytes
        };
        account.fetch_sub(bytes, Relaxed);
    }

    /// All memory in use: allocated, idle, leased or drawn.
    fn real_bytes(&self) -> u64 {
        let made = self.classes.iter().map(|class| &class.made_bytes);
        made.chain([&self.taken_over_bytes, &self.overhead_bytes])
            .map(|bytes| bytes.load(Relaxed))
            .sum::<u64>()
            + self.lent_bytes()
    }

    /// Frees idle buffers, as far as there are any, until `bytes` more fit in the limit.
    pub(crate) fn make_room(&self, bytes: u64) {
        self.free_idle(|| self.real_bytes().saturating_add(bytes) <= self.limit_bytes);
    }

    /// Frees every idle buffer.
    pub(crate) fn trim(&self) {
        self.free_idle(|| false);
    }

    /// Frees idle buffers that were not needed since the last call.
    pub(crate) fn free_unused(&self) {
        for class in Class::ALL {
            let mut buffers = self.class(class).lock();
            let unused = buffers.idle.take_unused();
            let bytes = (unused.len() * class.size()).cast_signed();
            buffers.idle(-bytes);
            buffers.made(-bytes);
            // Before the buffers are freed.
            drop(buffers);
        }
    }

    /// Frees every idle buffer, and all that are returned later: threads may hold a reference to the pool long after
    /// its cache is dropped.
    pub(crate) fn close(&self) {
        for class in Class::ALL {
            self.class(class).lock().idle.is_closed = true;
        }
        self.trim();
    }

    fn free_idle(&self, enough: impl Fn() -> bool) {
        for class in Class::ALL.into_iter().rev() {
            while self.idle_bytes() > 0 && !enough() {
                let mut buffers = self.class(class).lock();
                let Some(bytes) = buffers.idle.pop() else {
                    break;
                };
                buffers.idle(-class.size().cast_signed());
                buffers.made(-class.size().cast_signed());
                drop(buffers);
                drop(bytes);
            }
        }
    }

    /// Keeps a buffer, or returns it if there is no room for it.
    fn give_back(&self, class: Class, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let size = class.size().cast_signed();
        let mut buffers = self.class(class).lock();
        let kept = !buffers.idle.is_closed && self.real_bytes() <= self.limit_bytes;
        #[cfg(feature = "measuring")]
        let kept = kept && RECYCLES.load(Relaxed);
        if !kept {
            buffers.made(-size);
            return Some(bytes);
        }
        buffers.idle(size);
        buffers.idle.buffers.push(bytes);
        None
    }
}

/// Memory of one size class that returns to its pool when dropped.
///
/// A recycled buffer still contains bytes of its earlier use, and a new one is empty: it is as long as the bytes that
/// were written to it. Neither is zeroed, since only covered bytes are read.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Never longer than the class, and never reallocated.
    bytes: Vec<u8>,
    class: Class,
    /// None while it returns there.
    pool: Option<Arc<Pool>>,
}

impl Buffer {
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Everything from the start that was ever written, earlier uses included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes `data` at `at`; both ends lie within the class.
    pub(crate) fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        debug_assert!(end <= self.class.size());
        if let Some(target) = self.bytes.get_mut(at..end) {
            target.copy_from_slice(data);
        } else {
            // Reaches beyond the written part: everything behind `at` is replaced.
            self.bytes.resize(at, 0);
            self.bytes.extend_from_slice(data);
        }
    }

    /// Like [`write`](Self::write), for memory that is most likely not in the processor's caches, and need not be
    /// fetched before it is replaced.
    pub(crate) fn write_past_caches(&mut self, at: usize, data: &[u8]) {
        match self.bytes.get_mut(at..at + data.len()) {
            Some(target) => forebay_copy::stream(target, data, |_| ()),
            None => self.write(at, data),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else {
            return;
        };
        let bytes = std::mem::take(&mut self.bytes);
        // Freed when no lock is held any more.
        drop(pool.give_back(self.class, bytes));
        let _ = SPARE.try_with(|spare| spare.set(Some(pool)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_recycled_and_given_back_when_asked() {
        let pool = Pool::new(1 << 20, 0);
        let mut buffer = pool.take(Class::Small);
        buffer.write(100, b"abc");
        assert_eq!((pool.used_bytes(), pool.idle_bytes()), (4096, 0));
        drop(buffer);
        assert_eq!((pool.used_bytes(), pool.idle_bytes()), (0, 4096));
        drop(pool.take(Class::Small));
        assert_eq!(pool.idle_bytes(), 4096, "taken from the pool, not made");
        pool.trim();
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn idle_buffers_give_way_to_another_class_at_the_limit() {
        let pool = Pool::new(64 << 10, 0);
        drop(pool.take(Class::Whole));
        assert_eq!(pool.idle_bytes(), 64 << 10);
        let small = pool.take(Class::Small);
        assert_eq!(pool.idle_bytes(), 0);
        assert_eq!(small.class(), Class::Small);
    }

    #[test]
    fn what_is_not_needed_for_a_while_is_freed_and_what_is_used_again_stays() {
        let pool = Pool::new(1 << 20, 0);
        let buffers: Vec<_> = (0..8).map(|_| pool.take(Class::Small)).collect();
        drop(buffers);
        pool.free_unused();
        assert_eq!(pool.idle_bytes(), 8 * 4096, "they have just come back");
        // Three at a time are in use.
        for _ in 0..5 {
            drop([0; 3].map(|_| pool.take(Class::Small)));
        }
        pool.free_unused();
        assert_eq!(pool.idle_bytes(), 3 * 4096);
        drop(pool.take(Class::Small));
        pool.free_unused();
        assert_eq!(pool.idle_bytes(), 4096);
        pool.free_unused();
        assert_eq!(pool.idle_bytes(), 0);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_closed_pool_keeps_nothing_though_a_thread_has_a_reference() {
        let pool = Pool::new(1 << 20, 0);
        let [first, second] = [(); 2].map(|()| pool.take(Class::Small));
        let pool = Arc::downgrade(&{ pool });
        drop(first);
        let spare = pool.upgrade().expect("second has a reference");
        assert_eq!((spare.idle_bytes(), spare.used_bytes()), (4096, 4096));
        spare.close();
        drop((second, spare));
        let spare = pool.upgrade().expect("this thread has a reference");
        assert_eq!((spare.idle_bytes(), spare.used_bytes()), (0, 0));
        // The spare reference of another pool is not confused with it, and replaces it.
        drop(spare);
        let other = Pool::new(1 << 20, 0);
        drop(other.take(Class::Small));
        assert_eq!((other.idle_bytes(), pool.strong_count()), (4096, 0));
        assert_eq!(Arc::strong_count(&other), 2);
        let taken = other.take(Class::Small);
        assert_eq!(Arc::strong_count(&other), 2, "not counted again");
        drop(taken);
    }

    #[test]
    fn beyond_the_limit_nothing_is_kept_idle() {
        let pool = Pool::new(4096, 0);
        let (first, second) = (pool.take(Class::Small), pool.take(Class::Small));
        drop(first);
        assert_eq!(pool.idle_bytes(), 0);
        drop(second);
        assert_eq!(pool.idle_bytes(), 4096);
    }

    #[test]
    fn writes_land_where_they_belong_whatever_was_there() {
        let pool = Pool::new(1 << 20, 0);
        let mut buffer = pool.take(Class::Small);
        buffer.write(4, b"tail");
        assert_eq!(buffer.bytes(), b"\0\0\0\0tail");
        buffer.write(2, b"xy");
        assert_eq!(buffer.bytes(), b"\0\0xytail");
        buffer.write(6, b"longer");
        assert_eq!(buffer.bytes(), b"\0\0xytalonger");
    }
}
