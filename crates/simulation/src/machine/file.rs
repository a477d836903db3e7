//! A file of the log: mapped memory, the kernel's view of the disk, and the disk.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::SECTOR;
use crate::random::Random;

const PAGE: usize = 4096;

/// Lengths of the headers of a log segment and of a record (docs/format.md).
const SEGMENT_HEADER: usize = 4096;
const RECORD_HEADER: usize = 32;

/// A file when the world stops. Parts that did not change are shared with earlier images.
#[derive(Clone)]
pub(crate) struct FileImage {
    cache: Arc<[u8]>,
    believed: Arc<[u8]>,
    stable: Arc<[u8]>,
    /// The kernel has dropped pages that never reached the disk.
    has_lost_pages: bool,
}

impl FileImage {
    fn flushed(bytes: Arc<[u8]>) -> FileImage {
        FileImage {
            cache: bytes.clone(),
            believed: bytes.clone(),
            stable: bytes,
            has_lost_pages: false,
        }
    }

    /// Whether the kernel has dropped pages that never reached the disk.
    pub(super) fn has_lost_pages(&self) -> bool {
        self.has_lost_pages
    }

    pub(super) fn is_same(&self, other: &FileImage) -> bool {
        let same = |one: &Arc<[u8]>, other: &Arc<[u8]>| Arc::ptr_eq(one, other) || one == other;
        same(&self.cache, &other.cache)
            && same(&self.believed, &other.believed)
            && same(&self.stable, &other.stable)
    }

    /// The file after a power cut: each sector that the kernel knows to be dirty is kept with a probability of `kept`
    /// in 100, lost, or torn.
    pub(super) fn power_cut(&self, kept: u64, random: &mut Random) -> FileImage {
        if self.cache == self.believed {
            return FileImage::flushed(self.stable.clone());
        }
        let mut left = self.stable.to_vec();
        for at in dirty_sectors(&self.cache, &self.believed, 0..left.len()) {
            let (new, old) = (&self.cache[at.clone()], &mut left[at]);
            let cut = random.below(new.len() as u64) as usize;
            if random.percent(20) && !matches!(kept, 0 | 100) {
                if random.percent(50) {
                    old[..cut].copy_from_slice(&new[..cut]);
                } else {
                    old[cut..].copy_from_slice(&new[cut..]);
                }
            } else if random.percent(kept) {
                old.copy_from_slice(new);
            }
        }
        FileImage::flushed(left.into())
    }

    /// Undoes the last part of the changes since `before`, an appended record. The record's header is copied after its
    /// payload, so it is not there yet; the header of a segment that was begun for it is.
    pub(super) fn tear(&mut self, before: &FileImage, random: &mut Random) {
        if Arc::ptr_eq(&self.cache, &before.cache) || self.cache.len() != before.cache.len() {
            return;
        }
        let pairs = || self.cache.iter().zip(before.cache.iter());
        let Some(first) = pairs().position(|(new, old)| new != old) else {
            return;
        };
        let last = pairs().rposition(|(new, old)| new != old).unwrap_or(first);
        // Records begin at multiples of 8, behind the page with the segment's header.
        let record = (first / 8 * 8).max(SEGMENT_HEADER);
        let payload = (record + RECORD_HEADER).min(self.cache.len());
        let record = record.min(payload);
        let cut = payload + random.below((last + 1).saturating_sub(payload) as u64 + 1) as usize;
        let mut torn = self.cache.to_vec();
        torn[record..payload].copy_from_slice(&before.cache[record..payload]);
        torn[cut..].copy_from_slice(&before.cache[cut..]);
        self.cache = torn.into();
    }
}

/// A file that is in use.
pub(super) struct File {
    /// Memory that the process writes to; only after it was opened for writing.
    pages: Option<Arc<Pages>>,
    /// Content of the page cache when it was last read.
    cache: Arc<[u8]>,
    believed: Arc<[u8]>,
    stable: Arc<[u8]>,
    /// The next flush reports the error of a write-back.
    error: bool,
    /// As in [`FileImage`].
    has_lost_pages: bool,
}

impl File {
    pub(super) fn zeros(bytes: usize) -> File {
        File::of(&FileImage::flushed(vec![0; bytes].into()))
    }

    pub(super) fn of(image: &FileImage) -> File {
        File {
            pages: None,
            cache: image.cache.clone(),
            believed: image.believed.clone(),
            stable: image.stable.clone(),
            error: false,
            has_lost_pages: image.has_lost_pages,
        }
    }

    /// Whether these are the pages of this file.
    pub(super) fn has(&self, pages: &Arc<Pages>) -> bool {
        self.pages
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, pages))
    }

    pub(super) fn len(&self) -> usize {
        self.stable.len()
    }

    pub(super) fn image(&mut self) -> FileImage {
        FileImage {
            cache: self.cache().clone(),
            believed: self.believed.clone(),
            stable: self.stable.clone(),
            has_lost_pages: self.has_lost_pages,
        }
    }

    /// Content of the page cache now.
    pub(super) fn cache(&mut self) -> &Arc<[u8]> {
        if let Some(pages) = &self.pages
            && *pages.bytes() != *self.cache
        {
            self.cache = pages.bytes().into();
        }
        &self.cache
    }

    pub(super) fn pages(&mut self) -> Arc<Pages> {
        let cache = &self.cache;
        self.pages
            .get_or_insert_with(|| Arc::new(Pages::holding(cache)))
            .clone()
    }

    /// Puts a range on stable storage, exact to the byte: no byte beside it may be relied on.
    pub(super) fn flush(&mut self, range: Range<usize>) {
        self.settle(range, |_| true, 0);
    }

    /// A flush that fails: some sectors reach the disk, and all count as clean afterwards.
    pub(super) fn fail_flush(&mut self, range: Range<usize>, random: &mut Random) {
        self.settle(range, |random| random.percent(50), random.number());
    }

    /// The kernel drops its pages of a range after they could not be written: from now on they are as on the disk, also
    /// in mapped memory. Returns whether bytes are lost by that.
    pub(super) fn drop_pages(&mut self, range: Range<usize>) -> bool {
        let mut cache = self.cache().to_vec();
        let end = range.end.next_multiple_of(PAGE).min(cache.len());
        let pages = (range.start / PAGE * PAGE).min(end)..end;
        let left = &self.stable[pages.clone()];
        if cache[pages.clone()] == *left {
            return false;
        }
        cache[pages.clone()].copy_from_slice(left);
        let mut believed = self.believed.to_vec();
        believed[pages.clone()].copy_from_slice(left);
        if let Some(mapped) = &self.pages {
            mapped.store(pages.start, left);
        }
        (self.cache, self.believed) = (cache.into(), believed.into());
        self.has_lost_pages = true;
        true
    }

    /// A write-back of which the disk loses some sectors. Nobody knows before the next flush.
    pub(super) fn fail_write_back(&mut self, range: Range<usize>, random: &mut Random) {
        self.fail_flush(range, random);
        self.error = true;
    }

    /// Whether a write-back has failed since the last flush. The system reports that once.
    pub(super) fn take_error(&mut self) -> bool {
        std::mem::take(&mut self.error)
    }

    /// Every page was stored to: the kernel takes all of them for dirty.
    pub(super) fn dirty_all(&mut self) {
        self.believed = self.stable.clone();
    }

    /// Some dirty sectors of a range reach the disk.
    pub(super) fn write_back(&mut self, range: Range<usize>, random: &mut Random) {
        let seed = random.number();
        let cache = self.cache().clone();
        let mut random = Random::new(seed);
        let range = range.start.min(cache.len())..range.end.min(cache.len());
        let chosen: Vec<_> = dirty_sectors(&cache, &self.believed, range)
            .filter(|_| random.percent(40))
            .collect();
        for sector in chosen {
            self.flush(sector);
        }
    }

    fn settle(&mut self, range: Range<usize>, written: impl Fn(&mut Random) -> bool, seed: u64) {
        let cache = self.cache().clone();
        let range = range.start.min(cache.len())..range.end.min(cache.len());
        let dirty: Vec<_> = dirty_sectors(&cache, &self.believed, range).collect();
        if dirty.is_empty() {
            return;
        }
        let mut random = Random::new(seed);
        let mut stable = self.stable.to_vec();
        let mut believed = self.believed.to_vec();
        for sector in dirty {
            believed[sector.clone()].copy_from_slice(&cache[sector.clone()]);
            if written(&mut random) {
                stable[sector.clone()].copy_from_slice(&cache[sector]);
            }
        }
        (self.stable, self.believed) = (stable.into(), believed.into());
    }
}

/// The parts of `range` that differ, each within one sector.
fn dirty_sectors<'a>(
    new: &'a [u8],
    old: &'a [u8],
    range: Range<usize>,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let first = range.start / SECTOR;
    let sectors = range.end.div_ceil(SECTOR);
    (first..sectors)
        .map(move |sector| {
            (sector * SECTOR).max(range.start)..((sector + 1) * SECTOR).min(range.end)
        })
        .filter(|sector| new[sector.clone()] != old[sector.clone()])
}

/// Page-aligned memory that is shared like mapped memory.
///
/// The simulation runs in one thread: no write runs while the memory is read.
pub(super) struct Pages(NonNull<[u8]>);

// SAFETY: plain memory without owner thread. One world runs in one thread, so that no bytes are read
// while they are written.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes.max(1), PAGE).unwrap_or(Layout::new::<u8>())
    }

    fn holding(bytes: &[u8]) -> Pages {
        let layout = Pages::layout(bytes.len());
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start) else {
            alloc::handle_alloc_error(layout)
        };
        // SAFETY: freshly allocated with at least this many bytes, so it overlaps nothing; all of
        // them are initialised by this.
        unsafe {
            start
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        Pages(NonNull::slice_from_raw_parts(start, bytes.len()))
    }

    pub(super) fn memory(&self) -> NonNull<[u8]> {
        self.0
    }

    /// Copies bytes from `offset` on, as far as there are any; returns their number.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let bytes = self.bytes();
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let count = out.len().min(bytes.len() - start);
        out[..count].copy_from_slice(&bytes[start..start + count]);
        count
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.0.len());
        // SAFETY: within the memory, which lives as long as `self`; the world's one thread is here, so nothing else
        // reads or writes it now, and `bytes` are in memory of their own.
        unsafe {
            let to = self.0.cast::<u8>().as_ptr().add(at);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and initialised as long as `self` lives; the world's one thread is here, so it is not
        // writing, and the returned slice is not kept across a call of the log.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `holding` with the layout of the same length, freed only here.
        unsafe { alloc::dealloc(self.0.cast().as_ptr(), Pages::layout(self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &mut File, at: usize, byte: u8) {
        let memory = file.pages().memory();
        // SAFETY: within the memory, and no slice of it exists.
        unsafe { memory.cast::<u8>().as_ptr().add(at).write(byte) };
    }

    #[test]
    fn a_power_cut_keeps_what_was_flushed_and_may_lose_the_rest() {
        let mut file = File::zeros(4096);
        write(&mut file, 100, 1);
        file.flush(0..4096);
        write(&mut file, 100, 2);
        write(&mut file, 1000, 3);
        let image = file.image();
        let lost = image.power_cut(0, &mut Random::new(1));
        assert_eq!((lost.cache[100], lost.cache[1000]), (1, 0));
        let kept = image.power_cut(100, &mut Random::new(1));
        assert_eq!((kept.cache[100], kept.cache[1000]), (2, 3));
    }

    #[test]
    fn a_flush_covers_its_range_and_no_byte_beside_it() {
        let mut file = File::zeros(4096);
        write(&mut file, 9, 1);
        write(&mut file, 10, 1);
        file.flush(0..10);
        let left = file.image().power_cut(0, &mut Random::new(1));
        assert_eq!((left.cache[9], left.cache[10]), (1, 0));
    }

    #[test]
    fn after_a_failed_flush_a_second_one_succeeds_with_the_data_gone() {
        let mut file = File::zeros(64 << 10);
        for sector in 0..128 {
            write(&mut file, sector * SECTOR, 7);
        }
        file.fail_flush(0..64 << 10, &mut Random::new(1));
        file.flush(0..64 << 10);
        let left = file.image().power_cut(100, &mut Random::new(1));
        let there = left.cache.iter().filter(|byte| **byte == 7).count();
        assert!((1..128).contains(&there), "{there}");
    }

    #[test]
    fn pages_that_the_kernel_drops_are_as_on_the_disk_for_all_who_read_them() {
        let mut file = File::zeros(4 * PAGE);
        let pages = file.pages();
        write(&mut file, 10, 1);
        write(&mut file, 2 * PAGE, 1);
        file.flush(0..PAGE);
        write(&mut file, 20, 2);
        write(&mut file, PAGE - 1, 2);
        assert!(!file.image().has_lost_pages());
        assert!(file.drop_pages(0..30));
        assert!(file.image().has_lost_pages());
        let mut found = vec![9; 4 * PAGE + 1];
        assert_eq!(pages.read(0, &mut found), 4 * PAGE);
        let seen = [10, 20, PAGE - 1, 2 * PAGE].map(|at| found[at]);
        assert_eq!(seen, [1, 0, 0, 1]);
        assert!(!file.drop_pages(0..30), "they are as on the disk");
    }

    #[test]
    fn a_write_back_covers_some_sectors_of_its_range_and_promises_nothing() {
        let mut file = File::zeros(64 << 10);
        for sector in 0..128 {
            write(&mut file, sector * SECTOR, 7);
        }
        file.write_back(0..32 << 10, &mut Random::new(1));
        let left = file.image().power_cut(0, &mut Random::new(1));
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 7).count();
        let (within, beside) = left.cache.split_at(32 << 10);
        assert!((1..64).contains(&count(within)) && count(beside) == 0);
        file.flush(0..64 << 10);
        let left = file.image().power_cut(0, &mut Random::new(1));
        assert_eq!(count(&left.cache), 128);
        assert!(!file.take_error());
    }

    #[test]
    fn an_error_of_a_write_back_is_reported_once_and_its_data_are_gone() {
        let mut file = File::zeros(64 << 10);
        for sector in 0..128 {
            write(&mut file, sector * SECTOR, 7);
        }
        file.fail_write_back(0..64 << 10, &mut Random::new(1));
        assert!(file.take_error() && !file.take_error());
        file.flush(0..64 << 10);
        let left = file.image().power_cut(100, &mut Random::new(1));
        let there = left.cache.iter().filter(|byte| **byte == 7).count();
        assert!((1..128).contains(&there), "{there}");
    }

    #[test]
    fn a_torn_copy_has_the_first_part_of_the_payload_and_no_header() {
        let mut file = File::zeros(2 * SEGMENT_HEADER);
        let before = file.image();
        let payload = SEGMENT_HEADER + RECORD_HEADER;
        for at in SEGMENT_HEADER..payload + 100 {
            write(&mut file, at, 1);
        }
        let mut torn = file.image();
        torn.tear(&before, &mut Random::new(3));
        let there = torn.cache.iter().filter(|byte| **byte == 1).count();
        assert!(there <= 100);
        let first_part = &torn.cache[payload..payload + there];
        assert!(first_part.iter().all(|byte| *byte == 1));
    }
}
