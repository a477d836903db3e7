//! The steps, made in the file and in the model, and compared.

use crate::places::{
    Ends, Place as At, SPACE, Step, WINDOW, WINDOWS, block_of, cells_at, cells_of, content,
    offset_of, runs,
};
use crate::reference::{Model, Place, UNTOUCHED};
use forebay_cache::{
    Arrived, BlockImage, Cache, Eviction, FetchToken, FileBlocks, LoadedImage, Spilled,
};
use forebay_types::{BlockIndex, ByteRange, CheckpointId, Inode, Lsn};
use proptest::prelude::*;
use std::sync::Arc;

/// The largest number of closed checkpoints.
const WAITING: usize = 2;

/// The content that a kept image must continue to have.
struct Kept {
    image: LoadedImage,
    expected: Vec<u8>,
}

fn bytes(image: &LoadedImage) -> Vec<u8> {
    let ranges = image.ranges();
    ranges
        .flat_map(|range| image.slices(range))
        .collect::<Vec<_>>()
        .concat()
}

pub(crate) struct Run {
    cache: Arc<Cache>,
    file: FileBlocks,
    model: Model,
    kept: Vec<Kept>,
    /// The records: their offsets in the file and their bytes. The first one has the LSN 1.
    log: Vec<(u64, Vec<u8>)>,
    plan: Option<FetchToken>,
    took_over: bool,
}

impl Run {
    pub(crate) fn new() -> Run {
        let cache = Cache::new(64 << 20);
        Run {
            file: FileBlocks::new(Inode(1), Arc::clone(&cache)),
            cache,
            model: Model::new(),
            kept: Vec::new(),
            log: Vec::new(),
            plan: None,
            took_over: false,
        }
    }

    pub(crate) fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let open = self.model.open.id;
        match step {
            Step::Write(at, seed, logged) => {
                let data = content(&at, seed);
                self.log.push((at.offset(), data.clone()));
                let record = logged.then_some(Lsn(self.log.len() as u64));
                self.file.write(at.offset(), &data, open, record);
                self.model.write(at.cells(), &data, record);
            }
            Step::Fill(at, seed, copied) => {
                let data = content(&at, seed);
                if copied {
                    self.file.fill(at.offset(), &data);
                } else {
                    let arrived = Arrived::new([b"header", &data[..]].concat().into());
                    let arrived = arrived.slice(6..6 + data.len());
                    self.file.take_over(at.offset(), &arrived);
                    self.took_over = true;
                }
                self.model.fill(at.cells(), &data);
            }
            Step::Read(at) => self.read(&at)?,
            Step::UploadAgain(at) => {
                let bytes = self.file.upload_again(at.range(), open);
                prop_assert_eq!(bytes, self.model.upload_again(at.cells()));
            }
            Step::Truncate(at) => {
                self.file.truncate(at.offset(), open);
                self.model.truncate(at.offset());
            }
            Step::Clear => {
                self.file.clear(open);
                self.model.truncate(0);
            }
            Step::Close => {
                if self.model.closed.len() == WAITING {
                    self.publish();
                }
                self.model.close();
            }
            Step::BlockImage(block, ends) => {
                let ids: Vec<_> = self.model.checkpoints().map(|it| it.id).collect();
                for id in ids {
                    self.image(BlockIndex(block), id, ends)?;
                }
            }
            Step::Uploaded(block, is_open) => {
                let closed = self.model.closed.last().map_or(open, |closed| closed.id);
                self.uploaded(BlockIndex(block), if is_open { open } else { closed });
            }
            Step::Publish => self.publish(),
            Step::Evict(block) => self.evict(BlockIndex(block))?,
            Step::Spill(block, unsettled) => self.spill(block, unsettled)?,
            Step::FillLogged(at, all) => self.fill_logged(&at, all)?,
            Step::Plan => {
                self.plan = Some(self.file.fetch_token());
                self.model.changed.fill(false);
            }
        }
        self.check()
    }

    /// Compares what is read, and its records, with the model.
    fn read(&mut self, at: &At) -> Result<(), TestCaseError> {
        let mut out = vec![UNTOUCHED; at.len];
        let (mut missing, mut spilled) = (Vec::new(), Vec::new());
        self.file
            .read(at.offset(), &mut out, &mut missing, &mut spilled);
        let place = |wanted| {
            let place = &self.model.place;
            runs(at.cells(), move |cell| place[cell] == wanted)
        };
        let unknown = place(Place::Unknown);
        prop_assert_eq!(&missing, &unknown);
        let mut asked = Vec::new();
        self.file.unknown(at.range(), &mut asked);
        // These are not merged where two blocks meet.
        prop_assert_eq!(
            cells_in(&asked).collect::<Vec<_>>(),
            cells_in(&missing).collect::<Vec<_>>()
        );
        let in_log = place(Place::Log);
        prop_assert_eq!(self.file.is_known(at.range()), unknown.is_empty());
        let all = unknown.is_empty() && in_log.is_empty();
        prop_assert_eq!(self.file.is_covered(at.range()), all);

        let ranges: Vec<ByteRange> = spilled.iter().map(|(range, _)| *range).collect();
        prop_assert_eq!(
            cells_in(&ranges).collect::<Vec<_>>(),
            cells_in(&in_log).collect::<Vec<_>>()
        );
        for (range, lsn) in spilled {
            for cell in cells_at(range) {
                prop_assert_eq!(self.model.record(cell), Some(lsn), "cell {}", cell);
            }
            let part = cells_at(ByteRange::new(at.offset(), range.start)).len();
            let own = &mut out[part..part + range.len() as usize];
            prop_assert!(own.iter().all(|byte| *byte == UNTOUCHED));
            own.copy_from_slice(self.logged(lsn, range));
        }
        prop_assert!(out == self.model.bytes[at.cells()], "bytes of {:?}", at);
        Ok(())
    }

    /// The bytes of a range of the file in a record.
    fn logged(&self, lsn: Lsn, range: ByteRange) -> &[u8] {
        let (offset, data) = &self.log[lsn.0 as usize - 1];
        let start = (range.start - offset) as usize;
        &data[start..start + range.len() as usize]
    }

    fn publish(&mut self) {
        if !self.model.closed.is_empty() {
            let id = self.model.closed[0].id;
            self.file.published(id);
            self.model.cleaned(id, 0..SPACE);
            self.model.closed.remove(0);
        }
    }

    fn uploaded(&mut self, block: BlockIndex, id: CheckpointId) {
        if let Some(image) = self.file.image(block, id) {
            assert!(self.file.uploaded(block, id, image.version()));
            self.model.cleaned(id, cells_of(block));
            let checkpoint = self.model.checkpoint(id).expect("it is there");
            checkpoint.handed_over[block.0 as usize] = false;
        }
    }

    fn image(
        &mut self,
        block: BlockIndex,
        id: CheckpointId,
        ends: Ends,
    ) -> Result<(), TestCaseError> {
        let is_open = self.model.open.id == id;
        let checkpoint = self.model.checkpoints().find(|it| it.id == id).unwrap();
        let cells: Vec<usize> = checkpoint.dirty_cells(block).collect();
        let source = match is_open {
            true => &self.model.bytes,
            false => &checkpoint.bytes,
        };
        let expected: Vec<u8> = cells.iter().map(|cell| source[*cell]).collect();
        let version = self.file.version(block, id);
        let Some(mut image) = self.file.image(block, id) else {
            let excused = checkpoint.handed_over[block.0 as usize] && !is_open;
            prop_assert!(cells.is_empty() || excused, "{id:?} has bytes to bring");
            return Ok(());
        };
        prop_assert_eq!(Some(image.version()), version);
        prop_assert_eq!(image.dirty_bytes(), cells.len() as u64);
        let start = block.start();
        let ranges = image
            .ranges()
            .map(|it| ByteRange::at(start + it.start, it.len()));
        let mut wanted = vec![false; SPACE];
        cells.iter().for_each(|cell| wanted[*cell] = true);
        let listed: Vec<_> = ranges.collect();
        let windows = (0..WINDOWS.len()).map(|window| window * WINDOW..(window + 1) * WINDOW);
        let windows = windows.flat_map(|cells| runs(cells, |cell| wanted[cell]));
        prop_assert_eq!(listed, windows.collect::<Vec<_>>());
        for (range, lsn) in image.logged() {
            for cell in cells_at(ByteRange::at(start + range.start, range.len())) {
                prop_assert_eq!(checkpoint.records[cell], Some(lsn), "cell {}", cell);
            }
        }
        if !matches!(ends, Ends::PutBackAtOnce) {
            self.load(&mut image)?;
        }
        let put_back = matches!(ends, Ends::PutBack | Ends::PutBackAtOnce);
        let checkpoint = self.model.checkpoint(id).expect("it is there");
        checkpoint.handed_over[block.0 as usize] = !put_back;
        if matches!(ends, Ends::PutBackAtOnce) {
            self.file.put_back(image);
            return Ok(());
        }
        let image = image.loaded().expect("all of it was loaded");
        prop_assert!(bytes(&image) == expected, "bytes of {id:?}");
        match ends {
            Ends::Dropped => drop(image),
            Ends::Kept => self.kept.push(Kept { image, expected }),
            Ends::PutBack | Ends::PutBackAtOnce => self.file.put_back(image.into_image()),
        }
        Ok(())
    }

    /// Loads what the log alone has, from whole records.
    fn load(&self, image: &mut BlockImage) -> Result<(), TestCaseError> {
        let first = |image: &BlockImage| image.logged().next();
        while let Some((range, lsn)) = first(image) {
            let same = image.logged().filter(|(_, of)| *of == lsn);
            let expected: u64 = same.map(|(range, _)| range.len()).sum();
            prop_assert!(expected >= range.len());
            // Another record at the same place changes nothing.
            let (offset, data) = &self.log[lsn.0 as usize - 1];
            let other = vec![!data[0]; data.len()];
            let none = self.cache.load(image, Lsn(lsn.0 + 1000), *offset, &other);
            prop_assert_eq!(none, 0);
            prop_assert_eq!(self.cache.load(image, lsn, *offset, data), expected);
        }
        Ok(())
    }

    fn evict(&mut self, block: BlockIndex) -> Result<(), TestCaseError> {
        let covered = |cell: &usize| self.model.place[*cell] == Place::Memory;
        let cells: Vec<usize> = cells_of(block).filter(covered).collect();
        let before = self.cache.allocated_bytes();
        match self.file.evict(block) {
            Eviction::Evicted(bytes) => {
                prop_assert!(!self.model.is_dirty(block) && !cells.is_empty());
                let now = self.cache.allocated_bytes();
                // Arrived memory is freed with its last piece.
                prop_assert!(now + bytes == before || self.took_over && now < before);
                cells.into_iter().for_each(|cell| self.model.forget(cell));
            }
            Eviction::Touched => prop_assert!(!self.model.is_dirty(block)),
            Eviction::Busy => prop_assert!(self.model.is_dirty(block) || !self.kept.is_empty()),
            Eviction::Absent => prop_assert!(!self.model.is_dirty(block) && cells.is_empty()),
        }
        Ok(())
    }

    fn spill(&mut self, block: Option<u64>, unsettled: u64) -> Result<(), TestCaseError> {
        let coldest = || self.cache.coldest_dirty().map(|key| key.block);
        let Some(block) = block.map(BlockIndex).or_else(coldest) else {
            return Ok(());
        };
        let settled = Lsn((self.log.len() as u64 + 1).saturating_sub(unsettled));
        // Nothing outside of the blocks holds memory, and the log has all that is dirty.
        let is_free = self.kept.is_empty() && self.model.is_settled(block, settled);
        let has_record = |cell: usize| {
            self.model.place[cell] == Place::Memory && self.model.record(cell).is_some()
        };
        let has_any = cells_of(block).any(has_record);
        let before = self.cache.allocated_bytes();
        match self.file.spill(block, settled) {
            Spilled::Freed(bytes) => {
                let now = self.cache.allocated_bytes();
                let is_exact = now + bytes == before || bytes == 0 && now >= before;
                prop_assert!(is_exact || self.took_over, "{before} - {bytes} -> {now}");
                self.see_spilled(block, settled)?;
                let in_memory = |cell: usize| self.model.place[cell] == Place::Memory;
                prop_assert!(!is_free || !cells_of(block).any(in_memory));
            }
            Spilled::Touched => {}
            Spilled::Busy => prop_assert!(!is_free || !has_any),
            Spilled::Absent => prop_assert!(!has_any),
        }
        Ok(())
    }

    /// Looks at what a spill has dropped, and whether it was allowed to.
    fn see_spilled(&mut self, block: BlockIndex, settled: Lsn) -> Result<(), TestCaseError> {
        let mut now = vec![Place::Memory; SPACE];
        for window in 0..WINDOWS.len() {
            let at = At::whole(window);
            let (mut missing, mut spilled) = (Vec::new(), Vec::new());
            let mut out = vec![0; at.len];
            self.file
                .read(at.offset(), &mut out, &mut missing, &mut spilled);
            missing
                .iter()
                .for_each(|range| now[cells_at(*range)].fill(Place::Unknown));
            spilled
                .iter()
                .for_each(|(range, _)| now[cells_at(*range)].fill(Place::Log));
        }
        for cell in cells_of(block) {
            match (self.model.place[cell], now[cell]) {
                (Place::Memory, Place::Log) => {
                    let record = self.model.record(cell);
                    prop_assert!(record.is_some_and(|lsn| lsn < settled), "cell {}", cell);
                    self.model.place[cell] = Place::Log;
                }
                (Place::Memory, Place::Unknown) => {
                    prop_assert_eq!(self.model.owner[cell], None, "cell {}", cell);
                    self.model.forget(cell);
                }
                (before, now) => prop_assert_eq!(before, now, "cell {}", cell),
            }
        }
        Ok(())
    }

    /// Fills in the whole records of which a place has spilled bytes, and the ones before them.
    fn fill_logged(&mut self, at: &At, all: bool) -> Result<(), TestCaseError> {
        let (mut missing, mut spilled) = (Vec::new(), Vec::new());
        let mut out = vec![0; at.len];
        self.file
            .read(at.offset(), &mut out, &mut missing, &mut spilled);
        let records = spilled.into_iter().map(|(_, lsn)| lsn);
        let records: Vec<Lsn> = records.take(if all { usize::MAX } else { 1 }).collect();
        for lsn in records.into_iter().flat_map(|lsn| [lsn.0 - 1, lsn.0]) {
            let Some((offset, data)) = self.log.get(lsn.wrapping_sub(1) as usize) else {
                continue;
            };
            let range = ByteRange::at(*offset, data.len() as u64);
            let arrived = Arrived::new(data.clone().into());
            let filled = self.file.fill_logged(Lsn(lsn), *offset, &arrived);
            self.took_over = true;
            let cells = cells_at(range).filter(|cell| {
                self.model.place[*cell] == Place::Log && self.model.record(*cell) == Some(Lsn(lsn))
            });
            let cells: Vec<usize> = cells.collect();
            prop_assert_eq!(filled, cells.len() as u64, "record {}", lsn);
            for cell in cells {
                self.model.place[cell] = Place::Memory;
            }
        }
        Ok(())
    }

    /// Invariants after every step.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let model = &self.model;
        let dirty = model.dirty_bytes();
        prop_assert_eq!(self.file.dirty_bytes(), dirty);
        prop_assert_eq!(self.cache.dirty_bytes(), dirty);
        prop_assert!(self.cache.spilled_bytes() <= dirty);
        for checkpoint in model.checkpoints() {
            let blocks = [0, 1].map(BlockIndex);
            let dirty = |block: &BlockIndex| checkpoint.has_dirty(*block);
            let expected: Vec<_> = blocks.into_iter().filter(dirty).collect();
            prop_assert_eq!(self.file.dirty_blocks(checkpoint.id), expected);
        }
        for kept in &self.kept {
            prop_assert!(bytes(&kept.image) == kept.expected, "a kept image changed");
        }
        if let Some(plan) = self.plan {
            // What a fetch brings that was planned before the change is older than the file.
            let is_outdated =
                |cell: &usize| model.changed[*cell] && model.place[*cell] == Place::Unknown;
            for block in [0, 1].map(BlockIndex) {
                if let Some(cell) = cells_of(block).find(is_outdated) {
                    let range = ByteRange::at(offset_of(cell), 1);
                    prop_assert!(!self.file.is_current(plan, range), "cell {}", cell);
                    prop_assert_eq!(block_of(cell), block);
                }
            }
        }
        Ok(())
    }

    /// Nothing is left once all owners are dropped.
    pub(crate) fn end(mut self) -> Result<(), TestCaseError> {
        for window in 0..WINDOWS.len() {
            self.read(&At::whole(window))?;
        }
        let Run {
            cache, file, kept, ..
        } = self;
        drop(file);
        drop(kept);
        prop_assert_eq!((cache.allocated_bytes(), cache.dirty_bytes()), (0, 0));
        prop_assert_eq!((cache.spilled_bytes(), cache.index_bytes()), (0, 0));
        prop_assert_eq!((cache.candidates(), cache.candidates_to_spill()), (0, 0));
        Ok(())
    }
}

/// The cells of ranges of the file.
fn cells_in(ranges: &[ByteRange]) -> impl Iterator<Item = usize> + '_ {
    ranges.iter().flat_map(|range| cells_at(*range))
}
