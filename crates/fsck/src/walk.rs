//! The walk: reads the records that the judges need, from one moment of the metadata and from the bucket.
//!
//! ```text
//!   volume state, quotas, snapshots
//!   for each range of inodes that fits the memory:
//!       objects and garbage -> names (all) -> trash -> cookies -> block maps -> entries that differ, loops
//!   for each range of packs that fits the memory:
//!       accounts, dead and held packs (and block maps, if not seen with the inodes)
//!       -> notes on frames, marks of held packs -> block maps of snapshots                  walk/packs.rs, walk/past.rs
//!       -> list of the bucket
//!   frames, if they are to be read
//! ```

pub(crate) mod packs;
pub(crate) mod past;
mod trash;

use std::sync::Arc;

use forebay_meta::record::{
    BlockMap, CookieRecord, Garbage, HeldPack, NameRecord, PackRecord, QuotaRecord, Record,
    ScrubRecord, SnapshotRecord, Truncated, UsageRecord, VolumeState,
};
use forebay_meta::{InodeRecord, Key, KeyRange, StoreError};
use forebay_types::{Inode, PackId};

use crate::finding::{Finding, Nobody, Sink};
use crate::judge::entries::Entries;
use crate::judge::loops::{Loops, Step};
use crate::judge::maps::Maps;
use crate::judge::objects::Objects;
use crate::judge::packs::Packs;
use crate::judge::snapshots::Snapshots;
use crate::judge::totals::Totals;
use crate::progress::{Progress, Stage};
use crate::report::{Census, Findings};
use crate::source::{Cursor, Moment, Past, Source, or_report};

/// Most cookies of one directory in memory, where names and cookies differ.
const ENTRIES: usize = 100_000;

/// A walk through the metadata of one moment.
pub(crate) struct Walk {
    /// The state that is checked.
    pub(crate) moment: Moment,
    pub(crate) source: Arc<dyn Source>,
    /// The states of its snapshots; `None` if they are not checked.
    pub(crate) past: Option<Arc<dyn Past>>,
    pub(crate) progress: Arc<Progress>,
    /// Bytes of memory for tables.
    pub(crate) memory: usize,
    pub(crate) findings: Findings,
    pub(crate) census: Census,
    pub(crate) state: Option<VolumeState>,
    pub(crate) totals: Totals,
    pub(crate) snapshots: Snapshots,
    /// The pack with the highest number.
    pub(crate) highest_pack: Option<PackId>,
}

impl Walk {
    pub(crate) fn new(
        (moment, past): (Moment, Option<Arc<dyn Past>>),
        progress: Arc<Progress>,
        memory: usize,
        findings: Findings,
    ) -> Walk {
        Walk {
            source: moment.source.clone(),
            moment,
            past,
            progress,
            memory,
            findings,
            census: Census::default(),
            state: None,
            totals: Totals::default(),
            snapshots: Snapshots::default(),
            highest_pack: None,
        }
    }

    /// Reads records that are judged by themselves: the state of the volume, quotas, and entries of unknown kinds.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        self.progress.begin(Stage::Opening, 0);
        let key = Key::Volume.encode();
        if let Some(value) = self.source.get(&key).await? {
            self.state = or_report(VolumeState::decode(&key, &value), &mut self.findings);
        }
        for range in KeyRange::unknown() {
            let mut cursor = Cursor::new(&self.source, range);
            while let Some((key, _)) = cursor.next().await? {
                let key = forebay_meta::error::DisplayKey(key.to_vec());
                self.findings.found(Finding::UnknownEntry { key });
            }
        }
        // Keys that begin like the volume's key and are longer.
        let behind = KeyRange {
            end: vec![b'v' + 1].into(),
            ..KeyRange::all().after(&key)
        };
        let mut cursor = Cursor::new(&self.source, behind);
        while cursor
            .record::<VolumeState>(&mut self.findings)
            .await?
            .is_some()
        {}
        let mut quotas = Cursor::new(&self.source, KeyRange::quotas());
        while let Some((key, record)) = quotas.record::<QuotaRecord>(&mut self.findings).await? {
            if let Key::Quota(root) = key {
                self.totals.quota(root, record);
            }
        }
        let mut usages = Cursor::new(&self.source, KeyRange::usages());
        while let Some((key, record)) = usages.record::<UsageRecord>(&mut self.findings).await? {
            if let Key::Usage(root) = key {
                self.totals.usage(root, record);
            }
        }
        let mut snapshots = Cursor::new(&self.source, KeyRange::snapshots());
        while let Some((key, record)) = snapshots
            .record::<SnapshotRecord>(&mut self.findings)
            .await?
        {
            if let Key::Snapshot(id) = key {
                self.snapshots
                    .snapshot(id, record.as_ref(), &mut self.findings);
            }
        }
        let mut truncated = Cursor::new(&self.source, KeyRange::truncated());
        // A note on a file without a block to collect is removed by the gateway, so that it is no finding.
        while truncated
            .record::<Truncated>(&mut self.findings)
            .await?
            .is_some()
        {}
        self.trash_order().await?;
        self.trash_owners().await?;
        self.checks().await
    }

    /// Reads when packs were read back, which is noted of packs with an account, and of held ones.
    async fn checks(&mut self) -> Result<(), StoreError> {
        let mut checks = Cursor::new(&self.source, KeyRange::scrubs_from(PackId(0)));
        let mut packs = Cursor::new(&self.source, KeyRange::packs_from(PackId(0)));
        let mut kept = Cursor::new(&self.source, KeyRange::held_packs_from(PackId(0)));
        let (mut account, mut held) = (None, None);
        while let Some((key, _)) = checks.record::<ScrubRecord>(&mut self.findings).await? {
            let Key::Scrub(checked) = key else { continue };
            while account.is_none_or(|pack| pack < checked) {
                let Some((Key::Pack(pack), _)) = packs.record::<PackRecord>(&mut Nobody).await?
                else {
                    break;
                };
                account = Some(pack);
            }
            while held.is_none_or(|pack| pack < checked) {
                let Some((Key::HeldPack(pack), _)) = kept.record::<HeldPack>(&mut Nobody).await?
                else {
                    break;
                };
                held = Some(pack);
            }
            if account != Some(checked) && held != Some(checked) {
                self.findings
                    .found(Finding::CheckOfNoPack { pack: checked });
            }
        }
        Ok(())
    }

    /// Walks all objects, in as many passes as they need, and passes the references of their block maps to `packs`.
    pub(crate) async fn objects(&mut self, packs: &mut Packs) -> Result<(), StoreError> {
        self.progress.begin(Stage::Objects, self.expected());
        let mut objects = Cursor::new(&self.source, KeyRange::inodes_from(Inode(0)));
        objects = objects.counting(&self.progress);
        let mut removed = Cursor::new(&self.source, KeyRange::garbage_from(Inode(0)));
        let mut inodes = Inodes {
            object: objects.record(&mut self.findings).await?,
            objects,
            garbage: removed.record(&mut self.findings).await?,
            removed,
        };
        let mut from = Some(Inode(0));
        while let Some(first) = from {
            self.census.passes += 1;
            let (mut objects, next) = self.range_of_objects(first, &mut inodes).await?;
            self.names(&mut objects, first, next).await?;
            self.trash(&mut objects, first, next).await?;
            self.cookies(&mut objects, first, next).await?;
            let differ = objects.finish(&mut self.findings);
            self.blocks(&objects, first, next, packs).await?;
            for directory in differ {
                self.entries(directory).await?;
            }
            self.loops(&objects).await?;
            from = next;
        }
        Ok(())
    }

    /// Approximate number of objects.
    fn expected(&self) -> u64 {
        self.state.map_or(0, |state| state.used_inodes)
    }

    async fn range_of_objects(
        &mut self,
        first: Inode,
        inodes: &mut Inodes,
    ) -> Result<(Objects, Option<Inode>), StoreError> {
        self.progress.begin(Stage::Objects, self.expected());
        self.progress.add(self.totals.objects);
        let mut objects = Objects::new(first, self.memory);
        let sink = &mut self.findings;
        loop {
            // The object first, where a number has both.
            let (of_object, of_garbage) = (number(&inodes.object), number(&inodes.garbage));
            let Some(next) = of_object.into_iter().chain(of_garbage).min() else {
                return Ok((objects, None));
            };
            let is_new = objects.rows().last().is_none_or(|row| row.inode != next);
            if objects.is_full() && is_new && !objects.rows().is_empty() {
                objects.end_before(Some(next));
                return Ok((objects, Some(next)));
            }
            if of_object == Some(next) {
                let record = inodes.object.take().and_then(|(_, record)| record);
                objects.object(next, record.as_ref(), &mut self.totals, sink);
                inodes.object = inodes.objects.record(sink).await?;
            } else {
                let record = inodes.garbage.take().and_then(|(_, record)| record);
                objects.garbage(next, record.as_ref(), &mut self.totals, sink);
                inodes.garbage = inodes.removed.record(sink).await?;
            }
        }
    }

    async fn names(
        &mut self,
        objects: &mut Objects,
        first: Inode,
        next: Option<Inode>,
    ) -> Result<(), StoreError> {
        self.progress.begin(Stage::Names, self.expected());
        let mut names = Cursor::new(&self.source, KeyRange::all_names()).counting(&self.progress);
        // Every pass reads all of them.
        let is_first = first == Inode(0);
        let mut holders = Holders::new(&self.source, is_first && next.is_none(), &self.totals);
        loop {
            let entry = match is_first {
                true => names.record::<NameRecord>(&mut self.findings).await?,
                false => names.record::<NameRecord>(&mut Nobody).await?,
            };
            let Some((key, record)) = entry else {
                return Ok(());
            };
            let Key::Name(directory, name) = key else {
                continue;
            };
            let holder = holders.tree_of(directory, objects).await?;
            let sinks = (&mut self.totals, &mut self.findings as &mut dyn Sink);
            objects.name(directory, &name, record.as_ref(), holder, sinks);
        }
    }

    async fn cookies(
        &mut self,
        objects: &mut Objects,
        first: Inode,
        next: Option<Inode>,
    ) -> Result<(), StoreError> {
        self.progress.begin(Stage::Cookies, self.expected());
        let range = up_to(
            KeyRange::cookies_from(first),
            next.map(KeyRange::cookies_from),
        );
        let mut cookies = Cursor::new(&self.source, range).counting(&self.progress);
        while let Some((key, record)) = cookies.record::<CookieRecord>(&mut self.findings).await? {
            if let Key::Cookie(directory, cookie) = key {
                objects.cookie(directory, cookie, record.as_ref(), &mut self.findings);
            }
        }
        Ok(())
    }

    async fn blocks(
        &mut self,
        objects: &Objects,
        first: Inode,
        next: Option<Inode>,
        packs: &mut Packs,
    ) -> Result<(), StoreError> {
        self.progress.begin(Stage::Blocks, 0);
        let range = up_to(
            KeyRange::blocks_from(first),
            next.map(KeyRange::blocks_from),
        );
        let mut blocks = Cursor::new(&self.source, range).counting(&self.progress);
        let mut judge = Maps::new(objects.rows());
        while let Some((key, map)) = blocks.record::<BlockMap>(&mut self.findings).await? {
            if let Key::Block(key) = key {
                let accounts = (&mut self.totals, &mut *packs);
                judge.block(key, map.as_ref(), accounts, &mut self.findings);
            }
        }
        judge.finish(&mut self.findings);
        Ok(())
    }

    /// Reports the names and cookies of a directory that differ.
    async fn entries(&mut self, directory: Inode) -> Result<(), StoreError> {
        let mut cookies = Cursor::new(&self.source, KeyRange::cookies_after(directory, 0));
        let mut first = 0;
        loop {
            let mut chunk = Entries::new(directory, first);
            let mut last = u64::MAX;
            while let Some((key, record)) = cookies.record::<CookieRecord>(&mut Nobody).await? {
                let Key::Cookie(_, cookie) = key else {
                    continue;
                };
                chunk.cookie(cookie, record);
                if chunk.len() >= ENTRIES {
                    last = cookie;
                    break;
                }
            }
            chunk.end_with(last);
            let mut names = Cursor::new(&self.source, KeyRange::names(directory));
            while let Some((key, record)) = names.record::<NameRecord>(&mut Nobody).await? {
                if let (Key::Name(_, name), Some(record)) = (key, record) {
                    chunk.name(&name, &record, &mut self.findings);
                }
            }
            chunk.finish(&mut self.findings);
            match last.checked_add(1) {
                Some(next) => first = next,
                None => return Ok(()),
            }
        }
    }

    async fn loops(&mut self, objects: &Objects) -> Result<(), StoreError> {
        let mut loops = Loops::new(objects.climbers().collect());
        while let Step::Ask(directory) = loops.next() {
            let parent = match objects.holds(directory) {
                true => objects.parent_of(directory),
                false => self.parent_of(directory).await?,
            };
            loops.answer(parent, &mut self.findings);
        }
        Ok(())
    }

    async fn parent_of(&self, directory: Inode) -> Result<Option<Inode>, StoreError> {
        let key = Key::Inode(directory).encode();
        let value = self.source.get(&key).await?;
        let record = value.and_then(|value| InodeRecord::decode(&key, &value).ok());
        Ok(record.and_then(|record| record.directory().map(|own| own.parent)))
    }
}

/// Objects and removed files, read once and split into ranges.
struct Inodes {
    objects: Cursor,
    object: Option<(Key, Option<InodeRecord>)>,
    removed: Cursor,
    garbage: Option<(Key, Option<Garbage>)>,
}

/// A range that ends where another begins.
fn up_to(range: KeyRange, next: Option<KeyRange>) -> KeyRange {
    match next {
        Some(next) => KeyRange {
            end: next.start,
            ..range
        },
        None => range,
    }
}

fn number<R>(entry: &Option<(Key, R)>) -> Option<Inode> {
    match entry.as_ref()?.0 {
        Key::Inode(inode) | Key::Garbage(inode) => Some(inode),
        _ => None,
    }
}

/// The trees that directories count in, queried in the order of the directories' inodes.
enum Holders {
    /// No object counts in any tree.
    NoTrees,
    /// The range of objects knows all of them.
    Known,
    /// They are read again, beside the names.
    Read(Box<Reading>),
}

struct Reading {
    records: Cursor,
    /// The last record that was read.
    last: Option<(Inode, Option<Option<Inode>>)>,
}

impl Holders {
    fn new(source: &Arc<dyn Source>, knows_all: bool, totals: &Totals) -> Holders {
        if !totals.has_trees() {
            return Holders::NoTrees;
        }
        if knows_all {
            return Holders::Known;
        }
        let records = Cursor::new(source, KeyRange::inodes());
        Holders::Read(Box::new(Reading {
            records,
            last: None,
        }))
    }

    async fn tree_of(
        &mut self,
        directory: Inode,
        objects: &Objects,
    ) -> Result<Option<Option<Inode>>, StoreError> {
        let reading = match self {
            Holders::NoTrees => return Ok(None),
            Holders::Known => return Ok(objects.tree_of(directory)),
            Holders::Read(reading) => reading,
        };
        while reading.last.is_none_or(|(inode, _)| inode < directory) {
            let Some((key, record)) = reading.records.record::<InodeRecord>(&mut Nobody).await?
            else {
                return Ok(None);
            };
            if let Key::Inode(inode) = key {
                reading.last = Some((inode, record.map(|record| record.tree)));
            }
        }
        let found = reading.last.filter(|(inode, _)| *inode == directory);
        Ok(found.and_then(|(_, tree)| tree))
    }
}
