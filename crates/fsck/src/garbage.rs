//! Finds garbage among a volume's objects: packs that nothing refers to, and packs that are mostly dead.
//!
//! ```text
//!   list of packs/  ->  one moment of the metadata, read after it  ->  accounts, dead and held packs, block maps
//!       ->  orphans  ->  the newest metadata, once more for each  ->  deleted
//! ```
//!
//! Metadata are never changed. The gateway, as their only writer, rewrites packs that are mostly dead.

use std::sync::Arc;
use std::time::Duration;

use forebay_meta::record::{
    BlockMap, DeadPack, HeldPack, PackRecord, Record, SnapshotRecord, VolumeState,
};
use forebay_meta::volume::keys::Expected;
use forebay_meta::{Key, KeyRange, MetaStore, StoreError};
use forebay_pack::{PACK_PREFIX, object_name, parse_object_name};
use forebay_types::{PackId, VolumeId};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use serde::Serialize;

use crate::check::{ATTEMPTS, CheckError, open, unlock};
use crate::ended::Ended;
use crate::finding::Nobody;
use crate::judge::snapshots::Snapshots;
use crate::judge::unreferenced::Listed;
use crate::progress::{Progress, Stage};
use crate::report::{Amount, Findings, HeldBy};
use crate::source::{Cursor, InBucket, Newest, Source};

/// How to look for garbage.
#[derive(Clone, Debug)]
pub struct GarbageOptions {
    /// Whether the volume has to be sealed, and what opens it then.
    pub expected: Expected,
    /// Delete the orphans.
    pub delete: bool,
    /// Minimum age of an object in the bucket; younger ones are left alone.
    pub grace: Duration,
    /// The time by this machine's clock, in seconds since 1970.
    pub now: i64,
    /// A pack counts as mostly dead when less than this percentage of it is live.
    pub rewrite_below: u32,
    /// Keep gateways from deleting the metadata that are read, by a note in the bucket.
    pub pin: bool,
}

/// The outcome of a search for garbage.
#[derive(Clone, Debug, Serialize)]
pub struct Garbage {
    /// The volume.
    #[serde(serialize_with = "as_text")]
    pub volume: VolumeId,
    /// The newest epoch.
    pub epoch: u64,
    /// Packs with an account, and their bytes in the bucket.
    pub packs: Amount,
    /// Bytes of their frames before compression.
    pub raw_bytes: u64,
    /// Bytes of files that refer to them. Bytes that several files share count for each file.
    pub live_bytes: u64,
    /// Of those, a lower bound of the bytes that lie in the bucket once and are referred to more than once.
    pub shared_bytes: u64,
    /// Packs whose live share is below the threshold, and roughly the bytes that rewriting them would free.
    pub to_rewrite: Amount,
    /// Packs that the gateway will delete.
    pub dead_packs: u64,
    /// Dead packs that stay because snapshots refer to them, and their bytes in the bucket.
    pub held_packs: Amount,
    /// What each snapshot holds, the oldest first; without those that are being deleted. The program adds their clones.
    #[serde(skip)]
    pub held_by: Vec<HeldBy>,
    /// Orphans: packs that nothing refers to, nor ever will.
    pub orphans: Amount,
    /// Their objects, below the volume's prefix.
    pub orphan_objects: Vec<String>,
    /// Of the orphans, those that were deleted.
    pub deleted: Amount,
    /// Packs that nothing refers to and that are younger than the grace time.
    pub young: Amount,
    /// Packs of the newest epoch that are not published yet.
    pub under_way: Amount,
    /// Packs that files refer to, and the bytes of their frames in use, before compression. Bytes that several files
    /// share count once.
    pub in_use: Amount,
    /// Packs that block maps refer to though they have no account.
    pub without_account: Amount,
    /// Objects below `packs/` that are no packs.
    pub foreign_objects: Amount,
}

fn as_text<S: serde::Serializer>(volume: &VolumeId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(volume)
}

impl Garbage {
    /// Whether no orphan is left that could be deleted.
    pub fn is_clean(&self) -> bool {
        self.orphans.count == self.deleted.count
    }
}

/// Looks for garbage in the volume in `store` under `root`, and deletes the orphans if the options say so.
///
/// Gateways may serve the volume meanwhile. Dropping the future ends the search; everything deleted by then was
/// garbage.
///
/// # Errors
/// When there is no volume, or it cannot be read: then nothing is deleted.
pub async fn garbage(
    store: Arc<dyn ObjectStore>,
    root: Path,
    options: &GarbageOptions,
    progress: Arc<Progress>,
) -> Result<Garbage, CheckError> {
    let (keys, newest) = unlock(&store, &root, &options.expected).await?;
    let search = Search {
        newest,
        store: store.clone(),
        root,
        volume: keys.volume(),
        options,
        progress,
    };
    let mut attempt = 1;
    loop {
        // List first, so that the metadata, which are read later, name every listed pack that is published.
        let (listed, foreign_objects) = search.list().await.map_err(failed)?;
        let moment = open(&search.newest, options.pin).await;
        let moment = moment.map_err(CheckError::Metadata)?;
        let source: Arc<dyn Source> = moment.clone();
        let found = search.judge(source, listed, foreign_objects).await;
        let is_held = moment.is_still_held().await;
        if let Err(error) = moment.close().await {
            tracing::debug!(%error, "closing the metadata");
        }
        match found {
            Ok((mut garbage, orphans)) => {
                if options.delete {
                    garbage.deleted = search.delete(&orphans).await.map_err(failed)?;
                }
                return Ok(garbage);
            }
            Err(Ended::Metadata(error @ (StoreError::Corrupt(_) | StoreError::Gone(_))))
                if !is_held =>
            {
                if attempt == ATTEMPTS {
                    return Err(CheckError::Overtaken(error));
                }
                tracing::warn!(
                    "the gateway deleted metadata during the search ({error}); the search starts again"
                );
                attempt += 1;
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

fn failed(error: Ended) -> CheckError {
    match error {
        Ended::Bucket(why) | Ended::Metadata(StoreError::Transient(why)) => CheckError::Bucket(why),
        Ended::Metadata(error) => CheckError::Metadata(error),
    }
}

struct Search<'a> {
    store: Arc<dyn ObjectStore>,
    root: Path,
    volume: VolumeId,
    newest: InBucket,
    options: &'a GarbageOptions,
    progress: Arc<Progress>,
}

impl Search<'_> {
    fn path(&self, name: &str) -> Path {
        self.root.parts().chain(Path::from(name).parts()).collect()
    }

    async fn list(&self) -> Result<(Listed, Amount), Ended> {
        self.progress.begin(Stage::Bucket, 0);
        let (mut listed, mut foreign) = (Listed::default(), Amount::default());
        let mut objects = self.store.list(Some(&self.path(PACK_PREFIX)));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| Ended::Bucket(error.to_string()))?;
            self.progress.add(1);
            let parts = object.location.prefix_match(&self.root);
            let name: Option<Path> = parts.map(Iterator::collect);
            let age = self
                .options
                .now
                .saturating_sub(object.last_modified.timestamp());
            let is_young = Duration::from_secs(age.max(0).unsigned_abs()) < self.options.grace;
            match name.and_then(|name| parse_object_name(name.as_ref())) {
                Some(pack) => listed.push(pack, object.size, is_young),
                None => foreign.add(object.size),
            }
        }
        listed.complete();
        Ok((listed, foreign))
    }

    /// Compares the list with one moment of the metadata.
    async fn judge(
        &self,
        source: Arc<dyn Source>,
        mut listed: Listed,
        foreign_objects: Amount,
    ) -> Result<(Garbage, Vec<PackId>), Ended> {
        let epoch = epoch(&*source).await?;
        let mut garbage = Garbage {
            volume: self.volume,
            epoch,
            packs: Amount::default(),
            raw_bytes: 0,
            live_bytes: 0,
            shared_bytes: 0,
            to_rewrite: Amount::default(),
            dead_packs: 0,
            held_packs: Amount::default(),
            held_by: Vec::new(),
            orphans: Amount::default(),
            orphan_objects: Vec::new(),
            deleted: Amount::default(),
            young: Amount::default(),
            under_way: Amount::default(),
            in_use: Amount::default(),
            without_account: Amount::default(),
            foreign_objects,
        };
        let mut damaged = Findings::keeping(1);
        self.progress.begin(Stage::Packs, 0);
        let mut accounts = self.cursor(&source, KeyRange::packs());
        while let Some((key, record)) = accounts.record::<PackRecord>(&mut damaged).await? {
            if let Key::Pack(pack) = key {
                listed.known(pack);
            }
            if let Some(record) = record {
                garbage.count(&record, self.options.rewrite_below);
            }
        }
        let mut dead = self.cursor(&source, KeyRange::dead_packs());
        while let Some((key, _)) = dead.record::<DeadPack>(&mut damaged).await? {
            if let Key::DeadPack(pack) = key {
                listed.known(pack);
                garbage.dead_packs += 1;
            }
        }
        let mut snapshots = Snapshots::default();
        let mut records = self.cursor(&source, KeyRange::snapshots());
        while let Some((key, record)) = records.record::<SnapshotRecord>(&mut damaged).await? {
            if let Key::Snapshot(id) = key {
                snapshots.snapshot(id, record.as_ref(), &mut Nobody);
            }
        }
        let mut held = self.cursor(&source, KeyRange::held_packs());
        while let Some((key, record)) = held.record::<HeldPack>(&mut damaged).await? {
            if let Key::HeldPack(pack) = key {
                listed.known(pack);
                snapshots.held(pack, record.as_ref(), &mut Nobody);
            }
            if let Some(HeldPack { life, .. }) = record {
                garbage.held_packs.add(life.bytes);
            }
        }
        garbage.held_by = snapshots.held_by();
        if listed.has_unknown(epoch) {
            // A pack without an account should have no references: this pass is for a damaged volume.
            self.progress.begin(Stage::Blocks, 0);
            let all = KeyRange::blocks_from(forebay_types::Inode(0));
            let mut maps = self.cursor(&source, all);
            while let Some((_, map)) = maps.record::<BlockMap>(&mut damaged).await? {
                for extent in map.iter().flat_map(|map| map.extents()) {
                    listed.referred_to(extent.frame.pack);
                }
            }
        }
        if let Some((_, _, [finding, ..])) = damaged.kinds().next() {
            return Err(Ended::Metadata(StoreError::Corrupt(format!(
                "{finding}; run `forebay fsck`: nothing is deleted until the volume is repaired"
            ))));
        }
        let sorted = listed.sorted(epoch);
        garbage.young = sorted.young;
        garbage.under_way = sorted.under_way;
        garbage.without_account = sorted.unaccounted;
        let orphans = sorted.orphans.iter().map(|(pack, _)| *pack).collect();
        for (pack, bytes) in sorted.orphans {
            garbage.orphans.add(bytes);
            garbage.orphan_objects.push(object_name(pack));
        }
        Ok((garbage, orphans))
    }

    fn cursor(&self, source: &Arc<dyn Source>, range: KeyRange) -> Cursor {
        Cursor::new(source, range).counting(&self.progress)
    }

    /// Deletes orphans, each after checking it against the newest metadata again.
    async fn delete(&self, orphans: &[PackId]) -> Result<Amount, Ended> {
        let mut deleted = Amount::default();
        if orphans.is_empty() {
            return Ok(deleted);
        }
        self.progress.begin(Stage::Deleting, orphans.len() as u64);
        let newest = self.newest.newest().await?;
        for pack in orphans {
            self.progress.add(1);
            let account = newest.get(&Key::Pack(*pack).encode()).await?;
            let dead = newest.get(&Key::DeadPack(*pack).encode()).await?;
            let held = newest.get(&Key::HeldPack(*pack).encode()).await?;
            if account.is_some() || dead.is_some() || held.is_some() {
                continue;
            }
            let path = self.path(&object_name(*pack));
            let object = match self.store.head(&path).await {
                Ok(object) => object,
                // Another process has deleted it.
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(Ended::Bucket(error.to_string())),
            };
            match self.store.delete(&path).await {
                Ok(()) | Err(Error::NotFound { .. }) => deleted.add(object.size),
                Err(error) => return Err(Ended::Bucket(error.to_string())),
            }
        }
        Ok(deleted)
    }
}

impl Garbage {
    fn count(&mut self, record: &PackRecord, rewrite_below: u32) {
        self.packs.add(record.bytes);
        self.raw_bytes = self.raw_bytes.saturating_add(record.raw_bytes);
        self.live_bytes = self.live_bytes.saturating_add(record.live_bytes);
        self.shared_bytes = self.shared_bytes.saturating_add(record.shared_bytes());
        if record.live_bytes > 0 {
            let once = record.live_bytes.saturating_sub(record.shared_bytes());
            self.in_use.add(once.min(record.raw_bytes));
        }
        let (live, raw) = (u128::from(record.live_bytes), u128::from(record.raw_bytes));
        if live * 100 < raw * u128::from(rewrite_below) {
            let dead = u128::from(record.bytes) * (raw - live) / raw;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "no more are dead than the pack has"
            )]
            self.to_rewrite.add(dead as u64);
        }
    }
}

/// The newest epoch of a moment. Without it no pack can be judged.
async fn epoch(source: &dyn Source) -> Result<u64, Ended> {
    let key = Key::Volume.encode();
    let value = source.get(&key).await?;
    let state = value.map(|value| VolumeState::decode(&key, &value));
    match state.transpose() {
        Ok(Some(state)) => Ok(state.epoch.0),
        Ok(None) => Err(Ended::Metadata(StoreError::Corrupt(
            "the volume's state is missing; run `forebay fsck`".to_owned(),
        ))),
        Err(corrupt) => Err(Ended::Metadata(corrupt.into())),
    }
}
