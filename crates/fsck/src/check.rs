//! One check, from opening the metadata to the report.

use std::sync::Arc;
use std::time::Duration;

use forebay_clones::layers::Sources;
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::holder::StoredHolder;
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{MetaStore, SlateObjects, SlateReader, StoreError, VolumeDescriptor};
use forebay_pack::PackKeys;
use forebay_types::{PackId, VolumeId};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::bucket::Bucket;
use crate::data;
use crate::ended::Ended;
use crate::finding::{Finding, Sink};
use crate::objects;
use crate::paths;
use crate::progress::{Progress, Stage};
use crate::report::{Findings, Report};
use crate::source::{InBucket, Moment, Newest, Past, TIMEOUT};
use crate::walk::Walk;

/// Name of the metadata under the volume's prefix.
pub(crate) const META_PREFIX: &str = "meta";
/// How long the note in the bucket stays valid after the check last renewed it.
const PIN_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Attempts of a check, if a gateway deletes the metadata that it reads.
pub(crate) const ATTEMPTS: u32 = 3;
/// The least memory for tables with which a check makes progress.
pub(crate) const MIN_MEMORY: usize = 1 << 20;

/// What is to be checked, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the volume has to be sealed, and what opens it then.
    pub expected: Expected,
    /// Where packs of a clone lie beside its own prefix. The store reads them there, and does not list them.
    pub sources: Sources,
    /// Read and verify every live frame.
    pub read_data: bool,
    /// Bytes of memory for tables of objects and packs. A volume that needs more is walked in several passes.
    /// Pages of metadata and frames in flight take about a quarter as much again.
    pub memory: usize,
    /// Most findings of each kind that are kept; every finding is counted.
    pub keep: usize,
    /// Keep gateways from deleting the metadata that the check reads, by a note in the bucket. Without it the check
    /// writes nothing at all, and one that takes longer than a minute may have to start over.
    pub pin: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            expected: Expected::NotSealed,
            sources: Sources::default(),
            read_data: false,
            memory: 256 << 20,
            keep: 20,
            pin: true,
        }
    }
}

/// Why a volume could not be checked. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The volume itself: missing, its descriptor damaged, or newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The metadata cannot be read.
    #[error("the metadata cannot be read, so the check cannot continue: {0}")]
    Metadata(StoreError),
    /// A gateway deleted the metadata under the check in every attempt.
    #[error(
        "the running gateway deletes metadata faster than they can be checked ({0}); let the check write a note to the bucket (leave out --no-pin), correct the clocks of both machines, or stop the gateway during the check. If no gateway runs, the metadata are damaged: use an undamaged copy of the bucket"
    )]
    Overtaken(StoreError),
    /// The bucket did not answer well.
    #[error(
        "the bucket could not be read: {0}; check the connection and the credentials, and run the check again"
    )]
    Bucket(String),
}

/// Checks the volume in `store` under `root`.
///
/// Dropping the future ends the check; the note in the bucket, if there is one, then stays valid for 15 more minutes.
///
/// # Errors
/// When there is no volume, or it cannot be read. An inconsistency is not an error: the report lists it.
pub async fn check(
    store: Arc<dyn ObjectStore>,
    root: Path,
    options: &Options,
    progress: Arc<Progress>,
) -> Result<Report, CheckError> {
    let (keys, metadata) = unlock(&store, &root, &options.expected).await?;
    let (volume, metadata) = (metadata.volume, Arc::new(metadata));
    let newest: Arc<dyn Newest> = metadata.clone();
    let options = &Options {
        memory: options.memory.max(MIN_MEMORY),
        ..options.clone()
    };
    let mut attempt = 1;
    loop {
        let moment = open(&metadata, options.pin)
            .await
            .map_err(CheckError::Metadata)?;
        let bucket = Bucket::new(store.clone(), &root, keys.clone(), newest.clone());
        let bucket = bucket.with_sources(options.sources.clone());
        let states = (
            Moment::of(moment.clone()),
            Some(metadata.clone() as Arc<dyn Past>),
        );
        let outcome = async {
            let mut damaged = match options.read_data {
                true => {
                    let (path, sealing) = (metadata.path.clone(), metadata.sealing.clone());
                    let objects = SlateObjects::new(store.clone(), path, TIMEOUT, sealing);
                    objects::look(&objects, &root, &progress).await?
                }
                false => Vec::new(),
            };
            let holder = StoredHolder::load(&store, &root).await;
            let holder = holder.map_err(|error| Ended::Bucket(error.to_string()))?;
            if let Some(why) = holder.and_then(|note| note.holder.err()) {
                damaged.push(Finding::DamagedHolder { why });
            }
            let mut report = attempt_on(states, bucket, volume, options, &progress).await?;
            for finding in damaged {
                report.findings.found(finding);
            }
            Ok(report)
        };
        let outcome = outcome.await;
        let held = match &outcome {
            Err(_) => moment.is_still_held().await,
            Ok(_) => moment.is_held(),
        };
        if let Err(error) = moment.close().await {
            tracing::debug!(%error, "closing the metadata");
        }
        return match outcome {
            Ok(report) => Ok(Report {
                pinned: held,
                ..report
            }),
            Err(Ended::Bucket(why)) => Err(CheckError::Bucket(why)),
            Err(Ended::Metadata(error @ (StoreError::Corrupt(_) | StoreError::Gone(_))))
                if !held =>
            {
                // Perhaps the metadata are not damaged, but a gateway merged and deleted them.
                if attempt < ATTEMPTS {
                    tracing::warn!(
                        "the gateway deleted metadata during the check ({error}); the check starts again"
                    );
                    attempt += 1;
                    continue;
                }
                Err(CheckError::Overtaken(error))
            }
            Err(Ended::Metadata(StoreError::Transient(why))) => Err(CheckError::Bucket(why)),
            Err(Ended::Metadata(error)) => Err(CheckError::Metadata(error)),
        };
    }
}

/// Loads what the volume in `store` under `root` is read with: the keys of its packs, and its metadata.
pub(crate) async fn unlock(
    store: &Arc<dyn ObjectStore>,
    root: &Path,
    expected: &Expected,
) -> Result<(Arc<PackKeys>, InBucket), VolumeError> {
    let descriptor = VolumeDescriptor::load(store, root).await?;
    let keys = VolumeKeys::load(store, root, &descriptor, expected, 0).await?;
    let sealing = keys.sealing();
    let metadata = InBucket {
        volume: descriptor.volume,
        store: store.clone(),
        path: root
            .parts()
            .chain(Path::from(META_PREFIX).parts())
            .collect(),
        sealing: sealing.clone(),
    };
    let keys = PackKeys::of(descriptor.content(), keys.secret(), sealing);
    Ok((Arc::new(keys), metadata))
}

/// Opens the newest moment, and pins it if `pin` is set and the bucket allows it.
pub(crate) async fn open(metadata: &InBucket, pin: bool) -> Result<Arc<SlateReader>, StoreError> {
    if pin {
        let InBucket {
            store,
            path,
            sealing,
            ..
        } = metadata;
        let (store, path) = (store.clone(), path.clone());
        let pinned =
            SlateReader::open_pinned_with(store, path, TIMEOUT, PIN_LIFETIME, sealing.clone());
        match pinned.await {
            Ok(reader) => return Ok(Arc::new(reader)),
            Err(error) => tracing::warn!(
                "cannot protect the metadata from deletion ({error}); the check continues, and starts again if metadata are deleted"
            ),
        }
    }
    Ok(Arc::new(metadata.open().await?))
}

/// Checks one moment, and the states of its snapshots if they are given.
pub(crate) async fn attempt_on(
    states: (Moment, Option<Arc<dyn Past>>),
    bucket: Bucket,
    volume: VolumeId,
    options: &Options,
    progress: &Arc<Progress>,
) -> Result<Report, Ended> {
    let memory = options.memory;
    let findings = Findings::keeping(options.keep);
    let mut walk = Walk::new(states, progress.clone(), memory / 2, findings);
    let source = walk.source.clone();
    walk.begin().await?;
    let mut accounts = walk.accounts().await?;
    let (mut packs, mut next) = walk.range_of_packs(PackId(0), &mut accounts).await?;
    walk.objects(&mut packs).await?;
    loop {
        walk.notes(&mut packs).await?;
        walk.marks(&mut packs).await?;
        let unknown = walk.totals.maps_are_unknown();
        packs.judge_accounts(unknown, &mut walk.census, &mut walk.findings);
        walk.past(&bucket.newest, &mut packs).await?;
        bucket.compare(&mut walk, &mut packs).await?;
        if options.read_data {
            bucket.read_indexes(&mut walk, &packs).await?;
        }
        let Some(first) = next else { break };
        (packs, next) = walk.range_of_packs(first, &mut accounts).await?;
        walk.references(&mut packs).await?;
    }
    drop(packs);
    let highest = walk.highest_pack;
    walk.totals
        .finish(walk.state.as_ref(), highest, &mut walk.findings);
    walk.snapshots
        .finish(walk.state.as_ref(), &mut walk.findings);
    if options.read_data {
        data::read(&mut walk, &bucket, memory / 4).await?;
    }
    progress.begin(Stage::Paths, 0);
    let paths = paths::find(&source, &walk.findings.inodes()).await?;
    let held_by = walk.snapshots.held_by();
    let mut census = walk.census;
    census.objects = walk.totals.objects;
    census.directories = walk.totals.directories;
    census.names = walk.totals.names;
    census.garbage = walk.totals.garbage;
    census.snapshots = walk.snapshots.count();
    census.block_maps.count = walk.totals.block_maps;
    census.block_maps.bytes = u64::try_from(walk.totals.used).unwrap_or(u64::MAX);
    Ok(Report {
        volume,
        state: walk.state,
        pinned: false,
        read_data: options.read_data,
        findings: walk.findings,
        unreadable_maps: walk.totals.unreadable_maps,
        last_commit: walk.snapshots.last_commit,
        census,
        held_by,
        paths,
    })
}
