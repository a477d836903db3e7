//! A file and its log.

use forebay_cache::{
    BlockImage, BlockVersion, Cache, Eviction, FetchToken, FileBlocks, LoadedImage, Spilled,
};
use forebay_types::{BlockIndex, ByteRange, CheckpointId, Inode, Lsn};

/// The parts of a text: where they begin, and the bytes.
pub(crate) type Text = Vec<(u64, String)>;

pub(crate) struct File {
    blocks: FileBlocks,
    /// The records: their offsets and bytes. Their LSNs are their places here.
    log: Vec<(u64, Vec<u8>)>,
    /// Whether dirty bytes leave memory at once.
    spills: bool,
}

impl File {
    pub(crate) fn in_memory() -> File {
        File {
            blocks: FileBlocks::new(Inode(7), Cache::new(64 << 20)),
            log: Vec::new(),
            spills: false,
        }
    }

    pub(crate) fn in_the_log_alone() -> File {
        File {
            spills: true,
            ..File::in_memory()
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8], open: CheckpointId) {
        let record = Lsn(self.log.len() as u64);
        self.log.push((offset, data.to_vec()));
        self.blocks.write(offset, data, open, Some(record));
        self.spill();
    }

    /// Spills all that no image holds.
    fn spill(&mut self) {
        if !self.spills {
            return;
        }
        let end = Lsn(self.log.len() as u64);
        for found in self.blocks.in_memory(BlockIndex(0), usize::MAX) {
            // One that was used since it was queued is queued again.
            while matches!(
                self.blocks.spill(found.block, end),
                Spilled::Touched | Spilled::Freed(_)
            ) {}
        }
    }

    pub(crate) fn fill(&mut self, offset: u64, data: &[u8]) {
        self.blocks.fill(offset, data);
        self.spill();
    }

    pub(crate) fn truncate(&mut self, size: u64, open: CheckpointId) {
        self.blocks.truncate(size, open);
        self.spill();
    }

    pub(crate) fn clear(&mut self, open: CheckpointId) {
        self.blocks.clear(open);
    }

    /// The bytes, with `.` for missing ones, and the missing ranges.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> (String, Vec<(u64, u64)>) {
        let mut out = vec![b'.'; len];
        let (mut missing, mut spilled) = (Vec::new(), Vec::new());
        self.blocks
            .read(offset, &mut out, &mut missing, &mut spilled);
        assert!(self.spills || spilled.is_empty());
        for (range, lsn) in spilled {
            let at = usize::try_from(range.start - offset).unwrap();
            let bytes = self.logged(lsn, range);
            assert!(out[at..at + bytes.len()].iter().all(|byte| *byte == b'.'));
            out[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let missing = missing.iter().map(|range| (range.start, range.end));
        (String::from_utf8(out).unwrap(), missing.collect())
    }

    fn logged(&self, lsn: Lsn, range: ByteRange) -> &[u8] {
        let (offset, data) = &self.log[usize::try_from(lsn.0).unwrap()];
        &data[std::ops::Range::from(ByteRange::new(range.start - offset, range.end - offset))]
    }

    /// Whether the bytes are in memory or in the log.
    pub(crate) fn knows(&self, range: ByteRange) -> bool {
        assert!(self.spills || self.blocks.is_known(range) == self.blocks.is_covered(range));
        self.blocks.is_known(range)
    }

    /// Takes an image, with what the log has.
    pub(crate) fn image(&mut self, block: BlockIndex, checkpoint: CheckpointId) -> LoadedImage {
        let cache = Cache::new(64 << 20);
        let mut image = self.blocks.image(block, checkpoint).expect("dirty ranges");
        assert!(self.spills || image.logged().next().is_none());
        let first = |image: &BlockImage| image.logged().next();
        while let Some((_, lsn)) = first(&image) {
            let (offset, data) = &self.log[usize::try_from(lsn.0).unwrap()];
            assert!(cache.load(&mut image, lsn, *offset, data) > 0);
        }
        image.loaded().expect("all of it was loaded")
    }

    pub(crate) fn text_of(&mut self, block: BlockIndex, checkpoint: CheckpointId) -> Text {
        text(&self.image(block, checkpoint))
    }

    pub(crate) fn version(
        &self,
        block: BlockIndex,
        checkpoint: CheckpointId,
    ) -> Option<BlockVersion> {
        self.blocks.version(block, checkpoint)
    }

    pub(crate) fn dirty_blocks(&self, checkpoint: CheckpointId) -> Vec<BlockIndex> {
        self.blocks.dirty_blocks(checkpoint)
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.blocks.dirty_bytes()
    }

    pub(crate) fn published(&mut self, checkpoint: CheckpointId) {
        self.blocks.published(checkpoint);
    }

    pub(crate) fn evict(&mut self, block: BlockIndex) -> Eviction {
        self.blocks.evict(block)
    }

    /// Evicts a clean block, of which nothing is in memory if its bytes were in the log alone.
    pub(crate) fn evict_clean(&mut self, block: BlockIndex) {
        let evicted = self.blocks.evict(block);
        match self.spills {
            true => assert_eq!(evicted, Eviction::Absent),
            false => assert!(matches!(evicted, Eviction::Evicted(_)), "{evicted:?}"),
        }
    }

    pub(crate) fn fetch_token(&self) -> FetchToken {
        self.blocks.fetch_token()
    }

    pub(crate) fn is_current(&self, token: FetchToken, range: ByteRange) -> bool {
        self.blocks.is_current(token, range)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

pub(crate) fn text(image: &LoadedImage) -> Text {
    let part = |range: ByteRange| {
        let bytes = image.slices(range).collect::<Vec<_>>().concat();
        (range.start, String::from_utf8(bytes).unwrap())
    };
    image.ranges().map(part).collect()
}
