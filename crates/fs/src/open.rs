//! Formatting and opening a volume: taking the epoch, deciding what the local log is worth, and
//! replaying it.

use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_meta::record::{Content, Directory, InodeRecord, VolumeState};
use forebay_meta::volume::keys::{self, Expected, VolumeKeys};
use forebay_meta::volume::{Protection, VolumeError};
use forebay_meta::{Batch, Catalog, Key, MetaStore, Overlay, StoreError, VolumeDescriptor};
use forebay_object::Store;
use forebay_pack::PackKeys;
use forebay_types::{BLOCK_SIZE, Epoch, Inode, Lsn, VolumeId};
use forebay_vfs::{Timestamp, Verifier};
use forebay_wal::{LogKeys, Options, Recovery, Storage, Tail, WriterEnd};
use std::sync::atomic::AtomicU64;

use crate::aside::{self, Fate, Note, Published};
use crate::checkpoint::Checkpoints;
use crate::config::{FsConfig, LogConfig};
use crate::convert;
use crate::core::{Core, Parts};
use crate::disk_cache::DiskCache;
use crate::environment::{Environment, LocalFolder, draw};
use crate::fetch::PackStore;
use crate::journal::Journal;
use crate::local::{self, LocalError, LocalState};
use crate::quota::{Accounts, Amount};

/// Why a volume cannot be formatted or opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The volume itself: not there, damaged, newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The metadata in the bucket cannot be used.
    #[error("the volume's metadata cannot be opened: {0}")]
    Metadata(#[from] StoreError),
    /// The volume has a descriptor but no metadata.
    #[error(
        "the volume at {url} has no metadata. If `forebay format` was interrupted, delete the object {object} and format again; otherwise the metadata were deleted: put them back from a copy of the bucket"
    )]
    NoMetadata {
        /// The store.
        url: String,
        /// The descriptor's name.
        object: String,
    },
    /// The bucket is older than this gateway has seen it.
    #[error(
        "the bucket at {url} is as it was in epoch {found}, and {folder} is of a gateway that has seen epoch {seen} there: an earlier state was put back. Put the latest one back, and find out who can write to the bucket. If it is the one that is to be served, give the gateway a new data_dir, and keep this one until `forebay log salvage` has brought back what its log holds",
        found = found.0, seen = seen.0
    )]
    PutBack {
        /// The store.
        url: String,
        /// The local folder.
        folder: PathBuf,
        /// The epoch of the bucket.
        found: Epoch,
        /// The highest one that it was known to have.
        seen: Epoch,
    },
    /// The gateway's own state file.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// There is no volume, and this gateway has served one: a new one in its place would cover what may come back.
    #[error(
        "{url} has no volume, and {folder} holds the log and state of volume {volume}: the store was emptied, or is another one. Name the right store, or bring the volume back; a new volume needs a data_dir of its own"
    )]
    Gone {
        /// The store.
        url: String,
        /// The local folder.
        folder: PathBuf,
        /// The volume that it belongs to.
        volume: VolumeId,
    },
    /// The local folder belongs to another volume.
    #[error(
        "{folder} holds the log and state of volume {found}, not of {expected}; give this volume a data_dir of its own"
    )]
    OtherVolume {
        /// The local folder.
        folder: PathBuf,
        /// The volume that it belongs to.
        found: VolumeId,
        /// The volume that is to be opened.
        expected: VolumeId,
    },
    /// The log folder cannot be used.
    #[error("the log in {folder} cannot be used: {source}")]
    LogFolder {
        /// The local folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The log cannot be replayed.
    #[error(transparent)]
    Log(#[from] forebay_wal::OpenError),
    /// A record of the log does not fit what the bucket holds.
    #[error(
        "log record at LSN {lsn} cannot be replayed: {why}; the bucket holds a consistent file system as of LSN {published}: move the log folder away to go on with that, and keep it for salvage"
    )]
    Replay {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        why: String,
        /// What the bucket holds.
        published: Lsn,
    },
    /// The volume was taken over, or the bucket failed for good, while it was being opened.
    #[error(transparent)]
    Stopped(#[from] crate::core::Stopped),
}

impl OpenError {
    /// Whether there is nothing at all where the volume should be.
    pub fn is_not_formatted(&self) -> bool {
        matches!(self, OpenError::Volume(VolumeError::NotFormatted { .. }))
    }
}

/// Makes the prefix of `store` a volume with an empty root directory: a sealed one if that is expected.
pub(crate) async fn format(
    store: &Store,
    environment: &Environment,
    expected: &Expected,
) -> Result<VolumeId, OpenError> {
    let now = environment.clock.now();
    let descriptor = VolumeDescriptor {
        volume: VolumeId(draw(&*environment.random)),
        created: now.seconds.unsigned_abs(),
        block_size: BLOCK_SIZE,
        protection: match expected {
            Expected::NotSealed => Protection::None {
                hash_key: draw(&*environment.random),
            },
            Expected::Sealed(_) => Protection::Aes256Gcm,
        },
    };
    let at = |error: VolumeError| error.at(&store.url);
    let VolumeDescriptor {
        volume, created, ..
    } = descriptor;
    // Before anything is in the bucket, since a key service may refuse.
    let ring = match expected {
        Expected::Sealed(unlock) => Some(keys::make(volume, created, unlock).await.map_err(at)?),
        Expected::NotSealed => None,
    };
    VolumeDescriptor::create(&store.store, &store.root, &descriptor)
        .await
        .map_err(at)?;
    if let Some(ring) = ring {
        // Before anything that is sealed: what lies in the bucket can always be opened.
        keys::create(&store.store, &store.root, ring)
            .await
            .map_err(at)?;
    }
    let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
        .await
        .map_err(at)?;
    let meta = environment.metadata.open(store, 0, keys.sealing()).await?;
    let now = convert::record_time(now);
    let root = InodeRecord {
        content: Content::Directory(Directory {
            parent: Inode::ROOT,
            next_cookie: crate::names::FIRST_COOKIE,
            entries: 0,
        }),
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink: 2,
        size: 0,
        used: 0,
        atime: now,
        mtime: now,
        ctime: now,
        create_verifier: None,
        tree: None,
    };
    let state = VolumeState {
        published: Lsn::ZERO,
        epoch: Epoch(0),
        gateway: [0; 16],
        next_inode: Inode::ROOT.0 + 1,
        next_pack: 1,
        used_bytes: 0,
        used_inodes: 1,
        charged_bytes: Some(0),
    };
    let mut batch = Batch::new();
    batch.put(&Key::Inode(Inode::ROOT), &root);
    batch.put(&Key::Volume, &state);
    meta.commit(&batch).await?;
    meta.close().await?;
    Ok(descriptor.volume)
}

/// Inode numbers that are never used, each time that an opening does not know which were given out: more
/// than a log of the largest size (64 TiB) has records, of 64 bytes and more, that could give one out. Sixteen
/// million such openings are possible.
const LOST_INODES: u64 = 1 << 40;

/// What opening a volume gives.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
    pub(crate) volume: VolumeId,
    /// What front ends authenticate handles with.
    pub(crate) handle_key: [u8; 32],
    pub(crate) state: LocalState,
}

/// Opens the volume for writing, which fences every gateway that opened it before.
pub(crate) async fn open(
    store: &Store,
    mut config: FsConfig,
    environment: Environment,
) -> Result<Opened, OpenError> {
    let descriptor = match VolumeDescriptor::load(&store.store, &store.root).await {
        Err(VolumeError::NotFormatted { .. })
            if let Some(state) = local::load(&*environment.local)? =>
        {
            return Err(OpenError::Gone {
                url: store.url.clone(),
                folder: environment.local.path().to_owned(),
                volume: state.volume,
            });
        }
        loaded => loaded.map_err(|error| error.at(&store.url))?,
    };
    // The lock on the log folder comes first: a second gateway on this machine changes nothing.
    let local = Local::open(environment.local.clone(), descriptor.volume)?;
    let seen = local.state.as_ref().map_or(0, |state| state.keys);
    // Not kept while the volume is open: it could open the key ring for whoever finds it in memory.
    let expected = mem::take(&mut config.expected);
    let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, &expected, seen)
        .await
        .map_err(|error| error.at(&store.url))?;
    drop(expected);
    let log_keys = log_keys(&keys, config.seal_log)?;
    let random = &*environment.random;
    let new_verifier = || Verifier(draw(random));

    let meta: Arc<dyn MetaStore> = environment
        .metadata
        .open(store, config.metadata_cache, keys.sealing())
        .await?;
    let catalog = Catalog::new(Arc::new(Overlay::new()), meta);
    let bucket = catalog
        .volume_state()
        .await?
        .ok_or_else(|| OpenError::NoMetadata {
            url: store.url.clone(),
            object: VolumeDescriptor::location(&store.root).to_string(),
        })?;

    if let Some(state) = local.state.as_ref()
        && bucket.epoch < state.epoch
    {
        return Err(OpenError::PutBack {
            url: store.url.clone(),
            folder: local.folder.path().to_owned(),
            found: bucket.epoch,
            seen: state.epoch,
        });
    }

    // Decide what the log is worth before the bucket learns of the new epoch.
    let continues = local
        .state
        .as_ref()
        .is_some_and(|state| state.continues(bucket.gateway, bucket.epoch));
    let epoch = Epoch(bucket.epoch.0 + 1);
    let mut state = LocalState {
        volume: descriptor.volume,
        gateway: local
            .state
            .as_ref()
            .map_or_else(|| draw(random), |state| state.gateway),
        // What the bucket has, and not what it is about to have. An opening that took this epoch may have ended before it
        // was noted down; this one may end as well, before the bucket has the epoch that it is about to take.
        epoch: bucket.epoch,
        intent: epoch,
        verifier: local
            .state
            .as_ref()
            .map_or_else(new_verifier, |state| state.verifier),
        boot: local.state.as_ref().map_or([0; 16], |state| state.boot),
        clean: local.state.as_ref().is_some_and(|state| state.clean),
        log_end: local.state.as_ref().and_then(|state| state.log_end),
        keys: keys.generation(),
    };
    if !continues {
        local.put_log_aside(&bucket, environment.clock.now())?;
        // What was answered UNSTABLE and is not in the bucket is not here either.
        state.verifier = new_verifier();
    }
    local::store(&*local.folder, &state)?;
    // Nobody else can change what is counted: who had the volume before is fenced by the opening of
    // the metadata.
    let limit = Amount {
        bytes: config.volume_limit,
        files: config.inode_limit,
    };
    let accounts = Accounts::load(&catalog, &bucket, limit).await?;
    // The bucket does not know the numbers of objects that were made since it was published last. Where some of
    // them may be lost as well, clients have handles that nobody else knows of: those must stay stale.
    let knows_all = continues
        && match state.ending(local.folder.boot_id()) {
            WriterEnd::Stop | WriterEnd::StopAt(_) => true,
            WriterEnd::Kill => config.log != LogConfig::None,
            WriterEnd::PowerCut => false,
        };
    let left_out = match knows_all || bucket.epoch == Epoch(0) {
        true => 0,
        false => LOST_INODES,
    };
    let taken = VolumeState {
        epoch,
        gateway: state.gateway,
        next_inode: bucket.next_inode.saturating_add(left_out),
        charged_bytes: Some(accounts.volume().used().bytes),
        ..bucket
    };
    let mut batch = Batch::new();
    batch.put(&Key::Volume, &taken);
    catalog.store().commit(&batch).await?;

    let ending = state.ending(local.folder.boot_id());
    let mut recovery = Recovery::scan_with(
        local.storage.clone(),
        descriptor.volume,
        taken.published,
        ending,
        log_keys,
    )?;
    let damaged = report_tail(recovery.tail(), local.folder.path());
    if damaged || config.log == LogConfig::None || ending == WriterEnd::PowerCut {
        state.verifier = new_verifier();
    }
    if damaged {
        // Before the log is put in order, after which a crash would find no damage any more.
        local::store(&*local.folder, &state)?;
    }

    let packs = PackStore::new(
        store.store.clone(),
        store.root.clone(),
        PackKeys::of(descriptor.volume, keys.secret(), keys.sealing()),
        config.fetches(),
        config.upload_parallel,
        environment.random.clone(),
    )
    .with_put_options(store.data_options.clone())
    .with_disk_cache(open_disk_cache(&*local.folder, &config).await);
    let (log, seal_log) = (config.log, config.seal_log);
    let core = Arc::new(Core::new(Parts {
        environment,
        catalog,
        packs,
        checkpoints: Checkpoints::new(taken, store.health.clone(), &config),
        accounts,
        next_inode: taken.next_inode,
        verifier: state.verifier,
        start: taken.published,
        config,
    }));
    crate::replay::replay(&core, &mut recovery).await?;
    core.accounts.read_limits(&core.catalog).await?;
    let journal = match log {
        LogConfig::Disk { limit, segment } => {
            let options = Options {
                segment_bytes: segment,
                limit_bytes: limit,
                volume: descriptor.volume,
                epoch,
                sealing: keys.sealing().filter(|_| seal_log),
            };
            Journal::Disk(local.folder.start_log(recovery, options)?)
        }
        LogConfig::None => {
            // What an earlier run with a log left there: to the bucket with it, and out of the way,
            // since its LSNs are used again from here on.
            core.publish_open()
                .await
                .map_err(|_| crate::replay::stopped(&core))?;
            drop(recovery);
            let now = core.now();
            local.let_go_of_published_log(&core.checkpoints.state(), descriptor.volume, now)?;
            Journal::Memory {
                next: AtomicU64::new(core.position().0),
                _folder: local.storage,
            }
        }
    };
    core.begin(journal);
    core.recycle(core.checkpoints.published());

    state.epoch = epoch;
    state.boot = local.folder.boot_id();
    state.clean = false;
    state.log_end = None;
    local::store(&*local.folder, &state)?;
    Ok(Opened {
        core,
        volume: descriptor.volume,
        handle_key: blake3::derive_key("forebay 2026 NFS file handles", keys.secret()),
        state,
    })
}

/// What the log is read with. Like everything else, it is what the configuration expects and not what is found.
fn log_keys(keys: &VolumeKeys, seal_log: bool) -> Result<LogKeys, OpenError> {
    match (keys.sealing(), seal_log) {
        (Some(sealing), true) => Ok(LogKeys::Required(sealing.keys)),
        (Some(sealing), false) => Ok(LogKeys::Optional(sealing.keys)),
        (None, false) => Ok(LogKeys::None),
        (None, true) => Err(forebay_wal::OpenError::Options(
            "it is to be sealed, and the volume is not: it has no keys".to_owned(),
        )
        .into()),
    }
}

/// Opens the disk cache, if there is to be one. The volume can do without.
async fn open_disk_cache(local: &dyn LocalFolder, config: &FsConfig) -> Option<DiskCache> {
    let folder = local.disk_cache()?;
    if config.disk_cache_limit == 0 {
        // What an earlier run left there is nobody's any more.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::warn!(
                "the disk cache in {}, which is not used any more, cannot be removed: {error}",
                folder.display()
            ),
            _ => {}
        }
        return None;
    }
    match DiskCache::open(&folder, config.disk_cache_limit).await {
        Ok(cache) => Some(cache),
        Err(error) => {
            tracing::warn!(
                "there is no disk cache: {} cannot be used: {error}; what is not in memory is fetched from the bucket each time. Make room there, or set a smaller disk_cache_limit, and start again",
                folder.display()
            );
            None
        }
    }
}

/// Tells the operator how the log ends, and says whether it is damaged.
fn report_tail(tail: Tail, folder: &Path) -> bool {
    let folder = folder.display();
    match tail {
        Tail::Damaged { at, until } => {
            tracing::error!(
                "the log in {folder} is damaged: it can be read up to LSN {at}, and there had been records up to LSN {until} at least. What lies between is lost; the volume goes on without it, under a new write verifier. Check that disk. Segments behind the damage are kept beside the log as *.aside"
            );
            true
        }
        Tail::Torn { at, beyond: None } => {
            tracing::info!(
                "the log ends in an unfinished record at LSN {at}, which nobody was told of"
            );
            false
        }
        Tail::Torn {
            at,
            beyond: Some(until),
        } => {
            tracing::warn!(
                "the log in {folder} ends at LSN {at}, and records up to LSN {until} lie behind a gap there: writes that had not reached the disk, or were not finished, when the gateway ended. If neither the power was cut nor the gateway killed, check that disk"
            );
            false
        }
        Tail::Clean => false,
    }
}

/// The gateway's folder on its own disk, locked.
struct Local {
    folder: Arc<dyn LocalFolder>,
    state: Option<LocalState>,
    /// The log folder; locked also for a volume without a log.
    storage: Arc<dyn Storage>,
}

impl Local {
    fn open(folder: Arc<dyn LocalFolder>, volume: VolumeId) -> Result<Local, OpenError> {
        let state = local::load(&*folder)?;
        if let Some(found) = state.as_ref().map(|state| state.volume)
            && found != volume
        {
            return Err(OpenError::OtherVolume {
                folder: folder.path().to_owned(),
                found,
                expected: volume,
            });
        }
        let storage = folder.log().map_err(|source| OpenError::LogFolder {
            folder: folder.path().to_owned(),
            source,
        })?;
        Ok(Local {
            folder,
            state,
            storage,
        })
    }

    /// Another gateway has written to the volume since this log: it must never be replayed.
    fn put_log_aside(&self, bucket: &VolumeState, now: Timestamp) -> Result<(), OpenError> {
        let epoch = self.state.as_ref().map_or(Epoch(0), |state| state.epoch);
        let note = self.state.as_ref().map(|state| Note {
            volume: state.volume,
            gateway: state.gateway,
            epoch,
            published: aside::published(&*self.folder, state),
            taken_by: (bucket.gateway, bucket.epoch),
            put_aside: now.seconds,
        });
        let fate = self.put_aside(&format!("epoch-{}", epoch.0), note)?;
        let (folder, by) = (self.folder.path().display(), bucket.epoch.0);
        match fate {
            Fate::Nothing => {}
            Fate::LetGo => tracing::info!(
                "the volume has been written in epoch {by} by another gateway since; the bucket has everything that the log in {folder} held"
            ),
            Fate::Kept { label, segments } => tracing::warn!(
                "the log in {folder} holds what was not published before the volume was written in epoch {by} by another gateway: its {segments} segments are put aside (label {label}) and not replayed; `forebay log list` shows what is in it, and `forebay log salvage {label}` brings it back as files"
            ),
        }
        Ok(())
    }

    /// The bucket, which has this state, has all of the log, and the volume goes on without one.
    /// Only what lies behind a damaged place is kept.
    fn let_go_of_published_log(
        &self,
        bucket: &VolumeState,
        volume: VolumeId,
        now: Timestamp,
    ) -> Result<(), OpenError> {
        let note = Note {
            volume,
            gateway: bucket.gateway,
            epoch: bucket.epoch,
            published: Some(Published {
                lsn: bucket.published,
                next_inode: Inode(bucket.next_inode),
            }),
            taken_by: (bucket.gateway, bucket.epoch),
            put_aside: now.seconds,
        };
        let folder = self.folder.path().display();
        match self.put_aside("published", Some(note))? {
            Fate::Nothing => {}
            Fate::LetGo => tracing::info!(
                "the bucket has all of the log in {folder}: the volume is configured to have none"
            ),
            Fate::Kept { label, .. } => tracing::warn!(
                "the log in {folder} was published as far as it is whole, and is put aside (label {label}): the volume is configured to have none"
            ),
        }
        Ok(())
    }

    fn put_aside(&self, label: &str, note: Option<Note>) -> Result<Fate, OpenError> {
        aside::put_aside(&*self.folder, &self.storage, label, note).map_err(|source| {
            OpenError::LogFolder {
                folder: self.folder.path().to_owned(),
                source,
            }
        })
    }
}
