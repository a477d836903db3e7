//! Repairs what a check finds.
//!
//! ```text
//!            +------------------------------------------------------------+
//!            v                                                            |
//!   check a moment --> the first phase that can do something --> batches, each committed as one
//!            |
//!            +-- no finding, or none that can be repaired: end; the findings that are left are reported
//! ```
//!
//! Damage has consequences: a record that cannot be read makes others look wrong. So a repair goes in phases, and
//! checks everything again before the next one. Each phase repairs what the later ones rely on:
//!
//! | phase | |
//! |---|---|
//! | 0 | records that cannot be read, the volume's state and history, numbers that come next |
//! | 1 | objects that are missing: the root, directories of names, files of block maps |
//! | 2 | names and cookies that contradict each other, or lead nowhere |
//! | 3, 4 | objects without a name get back the one that a cookie has kept, or one in `lost+found`; so do directories in a ring |
//! | 5 | attributes and counts of objects; blocks to be collected |
//! | 6 | bytes that files count, and the tree that they count in |
//! | 7, 8 | accounts of packs, quotas and the volume |
//! | 9 | snapshots: names, the packs that they hold, and those to which they refer; the trash: marks |
//! | 10 | held packs to which no snapshot refers, impossible frames, and notes on missing things |
//! | 11 | notes on blocks that share frames |
//!
//! The steps of a repair are its own batches: each leaves names, cookies, entries and links in agreement where they
//! agreed before. Sums (bytes, live bytes, usage) come last, and are too high rather than too low until then. A repair
//! that was killed is run again, and finds the damage that is left.
//!
//! # What a repair does not do
//!
//! It never makes zeros of bytes that cannot be read, unless [`RepairOptions::accept_loss`] says so. It removes no
//! object of the bucket, and no record of a later version. Lost bytes are reported ([`Losses`]).
//!
//! # Plan and deed
//!
//! Both run the same code. A plan keeps its changes in memory, over the moment that it began with ([`Overlaid`]);
//! a deed commits them, and reads the next moment.

mod act;
mod loss;
mod maps;
mod names;
mod overlaid;
mod packs;
mod records;
mod snapshots;
mod target;
mod trash;
mod trees;
mod work;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_meta::record::{Timestamp, VolumeState};
use forebay_meta::volume::VolumeError;
use forebay_meta::{Batch, Key, Record, StoreError};
use forebay_types::{Epoch, Inode, VolumeId};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::bucket::Bucket;
use crate::check::{CheckError, MIN_MEMORY, Options, attempt_on, check, unlock};
use crate::ended::Ended;
use crate::progress::Progress;
use crate::report::Report;
use crate::source::{Moment, Past, Source};
pub use loss::{Loss, Losses};
pub(crate) use overlaid::Overlaid;
use target::{Deed, Plan, close};
use work::Work;

/// Most rounds: more than damage of any kind takes, unless there is more of it than one round handles.
const ROUNDS: u64 = 1000;
/// Approximate memory of one finding, and number of kinds: from these follows how many of each kind a round handles.
const FINDING_BYTES: usize = 256;
const KINDS: usize = 40;

/// How to repair a volume.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Options of the checks. With `read_data`, the last check reads all live frames.
    pub check: Options,
    /// Only report the steps. Nothing is written except the note of a check.
    pub dry_run: bool,
    /// Also take steps that give up data that cannot be read: bytes become zeros; links and devices with lost records
    /// are deleted.
    pub accept_loss: bool,
    /// Times of new objects, since 1970.
    pub now: Duration,
    /// The highest epoch of the volume that this machine has seen: a bucket of an earlier one is refused.
    pub seen: Epoch,
}

/// One step of a repair, done or (in a plan) intended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Step {
    /// The kind of finding that it repairs.
    pub finding: &'static str,
    /// The object that the finding is about, if it is about one.
    #[serde(
        serialize_with = "number_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub inode: Option<Inode>,
    /// A path of that object before the repair, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The step as a sentence.
    pub what: String,
}

fn number_or_none<S: serde::Serializer>(
    inode: &Option<Inode>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&inode.map(|inode| inode.0), serializer)
}

/// Receives each step: of a repair when it is in the bucket, of a plan when it is made.
pub trait Observer: Send {
    /// Receives one step.
    fn done(&mut self, step: &Step);
}

impl Observer for Vec<Step> {
    fn done(&mut self, step: &Step) {
        self.push(step.clone());
    }
}

/// The outcome of a repair.
#[derive(Debug)]
pub struct Repaired {
    /// Number of steps, done or (in a plan) intended.
    pub steps: u64,
    /// The check after the last step: its findings are what is left.
    pub after: Report,
    /// Bytes of files that lie in packs which are missing or cut off. A check with `read_data` finds damage within
    /// packs.
    pub lost: Losses,
}

/// Why a volume could not be repaired. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It could not be checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A gateway opened the volume for writing meanwhile.
    #[error(
        "a gateway has opened the volume during the repair; the steps before that stay. Stop all gateways of this volume, and repair it again"
    )]
    Fenced,
    /// The bucket is of an earlier epoch than one that this machine has seen.
    #[error(
        "the volume has epoch {}, but the gateway with this data_dir has seen epoch {}: an earlier state was put back, or later objects of its metadata were removed. Restore the latest state, and repair that. To continue with the present one, name a new data_dir",
        found.0,
        seen.0
    )]
    PutBack {
        /// Epoch of the bucket.
        found: Epoch,
        /// The highest epoch seen.
        seen: Epoch,
    },
    /// The metadata could not be written.
    #[error("the metadata could not be written: {0}; the steps before that stay. Repair it again")]
    Write(String),
}

impl From<Ended> for RepairError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Metadata(StoreError::Fenced) => RepairError::Fenced,
            Ended::Metadata(StoreError::Transient(why)) | Ended::Bucket(why) => {
                RepairError::Check(CheckError::Bucket(why))
            }
            Ended::Metadata(error) => RepairError::Check(CheckError::Metadata(error)),
        }
    }
}

impl From<VolumeError> for RepairError {
    fn from(error: VolumeError) -> Self {
        RepairError::Check(CheckError::Volume(error))
    }
}

/// Source of moments, and destination of batches.
#[async_trait]
pub(crate) trait Target: Send + Sync {
    /// The newest moment: with all batches that were committed.
    async fn moment(&self) -> Result<Arc<dyn Source>, StoreError>;

    /// The states of snapshots.
    fn past(&self) -> Option<Arc<dyn Past>>;

    /// Makes all changes of a batch, or none.
    async fn commit(&self, batch: &Batch) -> Result<(), StoreError>;
}

/// Repairs the volume in `store` under `root`, which no gateway may serve.
///
/// A consistent volume is only read. An inconsistent one is opened for writing, which fences every gateway, and takes
/// an epoch that no gateway has: the next start archives logs that continue the earlier state.
///
/// Dropping the future, or killing the process, leaves a volume that can be repaired again.
///
/// # Errors
/// When there is no volume, or it cannot be read or written. Steps done by then stay.
pub async fn repair(
    store: Arc<dyn ObjectStore>,
    root: Path,
    options: &RepairOptions,
    progress: Arc<Progress>,
    observer: &mut dyn Observer,
) -> Result<Repaired, RepairError> {
    let (keys, metadata) = unlock(&store, &root, &options.check.expected).await?;
    if options.seen > Epoch(0) {
        // Before anything is written, even the note of a check: the operator is to put the latest state back over this
        // one.
        let moment = metadata.open().await.map_err(Ended::from)?;
        let state = volume_state(&moment, options.seen).await;
        close(&moment).await;
        state?;
    }
    if !options.dry_run {
        let found = check(
            store.clone(),
            root.clone(),
            &options.check,
            progress.clone(),
        )
        .await?;
        if found.is_clean() {
            return Ok(Repaired {
                steps: 0,
                after: found,
                lost: Losses::default(),
            });
        }
    }
    let (volume, metadata) = (metadata.volume, Arc::new(metadata));
    let bucket = Bucket::new(store, &root, keys, metadata.clone());
    let bucket = bucket.with_sources(options.check.sources.clone());
    if options.dry_run {
        let plan = Plan::open(metadata).await.map_err(Ended::from)?;
        let outcome = rounds(&plan, &bucket, volume, options, &progress, observer).await;
        plan.close().await;
        return Ok(outcome?);
    }
    let deed = Deed::open(metadata).await.map_err(refused)?;
    let outcome = match take_epoch(&deed, options.seen).await {
        Ok(()) => rounds(&deed, &bucket, volume, options, &progress, observer)
            .await
            .map_err(RepairError::from),
        Err(error) => Err(error),
    };
    deed.close().await;
    outcome
}

fn refused(error: StoreError) -> RepairError {
    match error {
        StoreError::Fenced => RepairError::Fenced,
        error => RepairError::Write(error.to_string()),
    }
}

/// The volume's state, if it can be read.
async fn volume_state(
    moment: &dyn Source,
    seen: Epoch,
) -> Result<Option<VolumeState>, RepairError> {
    let key = Key::Volume.encode();
    let value = moment.get(&key).await.map_err(Ended::from)?;
    if value
        .as_ref()
        .is_some_and(|value| records::is_later_state(value))
    {
        let later = "a later version of Forebay has served the volume: repair it with that version";
        return Err(refused(StoreError::Fatal(later.into())));
    }
    let state = value.and_then(|value| VolumeState::decode(&key, &value).ok());
    match state {
        // Taking epochs until the gateway has seen no later one would make it serve the earlier state.
        Some(VolumeState { epoch: found, .. }) if found < seen => {
            Err(RepairError::PutBack { found, seen })
        }
        state => Ok(state),
    }
}

/// Takes the next epoch for no gateway, so that no log continues the state published before. A state that cannot be
/// read is made again in the same way.
async fn take_epoch(target: &dyn Target, seen: Epoch) -> Result<(), RepairError> {
    let moment = target.moment().await.map_err(refused)?;
    let Some(mut state) = volume_state(&*moment, seen).await? else {
        return Ok(());
    };
    state.epoch.0 = state.epoch.0.saturating_add(1);
    state.gateway = [0; 16];
    let mut batch = Batch::new();
    batch.put(&Key::Volume, &state);
    target.commit(&batch).await.map_err(refused)
}

/// Checks and repairs until there is no finding, or none that can be repaired.
pub(crate) async fn rounds(
    target: &dyn Target,
    bucket: &Bucket,
    volume: VolumeId,
    options: &RepairOptions,
    progress: &Arc<Progress>,
    observer: &mut dyn Observer,
) -> Result<Repaired, Ended> {
    let keep = options.check.memory / (FINDING_BYTES * KINDS);
    let each = Options {
        read_data: false,
        keep: keep.clamp(100, 100_000),
        memory: options.check.memory.max(MIN_MEMORY),
        ..options.check.clone()
    };
    let (mut steps, mut reads_past) = (0, false);
    for _ in 0..ROUNDS {
        let overlaid = Arc::new(Overlaid::new(target.moment().await?));
        let source: Arc<dyn Source> = overlaid.clone();
        // What snapshots refer to takes long to read, and is repaired last.
        let past = reads_past.then(|| target.past()).flatten();
        let states = (Moment::whole(source), past);
        let report = attempt_on(states, bucket.clone(), volume, &each, progress).await?;
        let now = Timestamp {
            seconds: i64::try_from(options.now.as_secs()).unwrap_or(i64::MAX),
            nanos: options.now.subsec_nanos(),
        };
        let means = (options.accept_loss, reads_past, now);
        let mut work = Work::new(overlaid, target, observer, &report, means);
        act::treat(&mut work, bucket).await?;
        if work.steps == 0 && reads_past {
            break;
        }
        reads_past |= work.steps == 0;
        steps += work.steps;
    }
    let last = Options {
        read_data: options.check.read_data,
        keep: options.check.keep,
        ..each
    };
    let source = target.moment().await?;
    let states = (Moment::whole(source.clone()), target.past());
    let after = attempt_on(states, bucket.clone(), volume, &last, progress).await?;
    let lost = loss::find(&source, &after, options.check.keep).await?;
    Ok(Repaired { steps, after, lost })
}
