//! Formatting and opening a volume: judges the local log, takes the epoch, and replays the log.

mod claim;
pub(crate) mod error;
mod folder;
mod format;
mod held;
mod hold;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::{fs, io};

use forebay_clones::layers;
use forebay_environment::state_file::{self, LocalState};
use forebay_environment::{Environment, LocalFolder, Randomness, draw};
use forebay_meta::record::VolumeState;
use forebay_meta::{Batch, Catalog, Key, NamesInMemory, Overlay, StoreError, VolumeDescriptor};
use forebay_object::{Cause, CausedStore, Needs, Store};
use forebay_pack::PackKeys;
use forebay_pack_store::{DiskCache, PackStore};
use forebay_quota::{Accounts, Amount};
use forebay_types::{Epoch, VolumeId};
use forebay_vfs::Verifier;
use forebay_wal::{Options, Tail, WriteBack, WriterEnd};

use crate::config::{FsConfig, LogConfig};
use crate::rooms::{Foundation, Rooms};
use crate::state::{Journal, LEASE};

use claim::{Claim, claim};
pub use error::OpenError;
use folder::Outlook;
use format::Made;
pub(crate) use format::{format, make};
pub use held::HeldVolume;
pub(crate) use hold::Hold;

/// How many inode numbers are skipped for good if an opening does not know which were assigned, and a version of
/// Forebay without a lease of numbers served the volume: more than the records, of 64 bytes and more, in a log of the
/// largest size (64 TiB), each of which could assign one.
const LOST_WITHOUT_LEASE: u64 = 1 << 40;

/// How often an opening waits for merges of the metadata, half a minute each time. The gateway before it may have left the
/// highest number of tables, and a slow link takes its time to merge them.
const MERGES_WAITED_FOR: u32 = 20;

/// The result of opening a volume.
pub(crate) struct Opened {
    pub(crate) rooms: Rooms,
    pub(crate) volume: VolumeId,
    /// The key with which front ends authenticate handles.
    pub(crate) handle_key: [u8; 32],
    pub(crate) state: LocalState,
    pub(crate) hold: Hold,
}

/// Opens the volume for writing, which fences every gateway that opened it before. If it was just `made`, nothing of it is read,
/// and its first state is committed with the epoch. Ends at the store's first permanent refusal. If it
/// fails, a volume that was free is given back ([`Hold::give_back`]).
pub(crate) async fn open(
    store: &Store,
    mut config: FsConfig,
    environment: Environment,
    made: Option<Made>,
) -> Result<Opened, OpenError> {
    let (claim, hold) =
        unless_refused(store, claim(store, &mut config, &environment, made)).await?;
    let volume = claim.descriptor.volume;
    let whole = claim.store.clone();
    let held = open_held(&whole, config, environment, claim, &hold);
    match unless_refused(store, held).await {
        Ok((rooms, state, handle_key)) => Ok(Opened {
            rooms,
            volume,
            handle_key,
            state,
            hold,
        }),
        Err(error) => {
            // The gateway that has fenced this one may have served clients.
            if !error.is_fenced() {
                hold.give_back().await;
            }
            Err(error)
        }
    }
}

/// Ends `work` at the store's first permanent refusal, which would otherwise be repeated.
pub(crate) async fn unless_refused<T>(
    store: &Store,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    let refused = |refusal| OpenError::Refused {
        url: store.url.clone(),
        refusal,
    };
    let done = store.unless_refused(Needs::Writes, work).await;
    done.map_err(refused)?
}

/// Opens a volume that this gateway holds. If this fails, the bucket has everything that it had before, since no client
/// was served.
async fn open_held(
    store: &Store,
    config: FsConfig,
    environment: Environment,
    claim: Claim,
    hold: &Hold,
) -> Result<(Rooms, LocalState, [u8; 32]), OpenError> {
    let Claim {
        descriptor,
        store: _,
        local,
        keys,
        log_keys,
        foreseen,
        gateway,
        first,
    } = claim;
    let opening = config.opening.clone();
    let random = &*environment.random;
    let new_verifier = || Verifier(draw(random));
    opening.begin("opening the metadata in the bucket for writing");
    let (meta, first) = match first {
        Some(first) => (first.meta, Some((first.state, first.entries))),
        None => {
            let (metadata, cache) = (&environment.metadata, config.metadata_cache);
            let meta = metadata.open(store, cache, keys.sealing()).await?;
            (meta, None)
        }
    };
    let meta = Arc::new(NamesInMemory::new(meta));
    let catalog = Catalog::new(Arc::new(Overlay::new()), meta);
    // No other gateway can change it from here on.
    let (bucket, mut batch) = match first {
        Some(first) => first,
        None => (volume_state(store, &catalog).await?, Batch::new()),
    };
    let Outlook {
        bucket,
        continues,
        recovery,
    } = match foreseen.bucket == bucket {
        true => foreseen,
        // Another gateway has written meanwhile: it took the volume over, and is fenced now.
        false => {
            hold.take_again().await?;
            local.consider(store, bucket, &log_keys)?
        }
    };

    let epoch = Epoch(bucket.epoch.0 + 1);
    let mut state = LocalState {
        volume: descriptor.volume,
        gateway,
        // The epoch that the bucket has now, not the one that it is about to get: an opening that took that epoch may
        // have ended before it was noted, and this one may end as well, before the bucket has its new epoch.
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
        note: hold.e_tag(),
    };
    if !continues {
        let limit = match config.log {
            LogConfig::Disk { limit, .. } => limit,
            LogConfig::None => u64::MAX,
        };
        local.put_log_aside(&bucket, environment.clock.now(), limit)?;
        // What was answered UNSTABLE and is not in the bucket is not here either.
        state.verifier = new_verifier();
    }
    state_file::store(&*local.folder, &state)?;
    let limit = Amount {
        bytes: config.volume_limit,
        files: config.inode_limit,
    };
    opening.begin("reading the usage of the volume and of its quotas");
    let accounts = Accounts::load(&catalog, &bucket, limit).await?;
    // The bucket does not know the numbers of objects that were made since the last publication. If some of these
    // objects may be lost as well, clients have handles that nothing else knows: those must stay stale.
    let knows_all = continues
        && match state.ending(local.folder.boot_id()) {
            WriterEnd::Stop | WriterEnd::StopAt(_) => true,
            WriterEnd::Kill => config.log != LogConfig::None,
            WriterEnd::PowerCut => false,
        };
    let left_out = match knows_all || bucket.epoch == Epoch(0) {
        true => 0,
        false => bucket.inode_lease.unwrap_or(LOST_WITHOUT_LEASE),
    };
    let taken = VolumeState {
        epoch,
        gateway: state.gateway,
        next_inode: bucket.next_inode.saturating_add(left_out),
        inode_lease: Some(LEASE),
        charged_bytes: Some(accounts.volume().used().bytes),
        ..bucket
    };
    batch.put(&Key::Volume, &taken);
    opening.begin("taking the volume's epoch in the bucket");
    let mut attempt = 1;
    while let Err(error) = catalog.store().commit(&batch).await {
        let goes_on = matches!(error, StoreError::Transient(_)) && catalog.store().is_merging();
        if !goes_on || attempt == MERGES_WAITED_FOR {
            return Err(error.into());
        }
        attempt += 1;
        opening.begin("merging tables of the metadata, because there are too many to add one");
    }

    opening.begin("preparing the disk cache");
    let ending = state.ending(local.folder.boot_id());
    let mut recovery = match recovery {
        Some(recovery) => recovery,
        // The log, if there was one, is archived.
        None => local.scan(descriptor.volume, taken.published, ending, &log_keys)?,
    };
    let damaged = report_tail(recovery.tail(), local.folder.path());
    if damaged || config.log == LogConfig::None || ending == WriterEnd::PowerCut {
        state.verifier = new_verifier();
    }
    if damaged {
        // Before the log is repaired, after which a crash would find no damage any more.
        state_file::store(&*local.folder, &state)?;
    }

    // Work in the background says what it reads and writes packs for.
    let for_packs = CausedStore::new(store.store.clone(), Cause::Fetch, |_| true);
    let packs = PackStore::new(
        Arc::new(for_packs),
        store.root.clone(),
        PackKeys::of(descriptor.content(), keys.secret(), keys.sealing()),
        config.fetches(),
        config.upload_parallel,
        environment.random.clone(),
    )
    .with_put_options(store.data_options.clone())
    .with_disk_cache(open_disk_cache(&*local.folder, &config, &environment.random).await);
    let (log, seal_log) = (config.log, config.seal_log);
    opening.begin("reading the snapshots of the volume");
    let snapshots = crate::publisher::load_snapshots(&catalog, &taken).await?;
    let sources = layers::Sources::of(store, &descriptor).map_err(|error| error.at(&store.url))?;
    let rooms = Rooms::new(Foundation {
        config,
        environment,
        store,
        catalog,
        packs,
        accounts,
        taken,
        verifier: state.verifier,
        snapshots,
        volume: descriptor.volume,
        sources,
    });
    opening.begin("replaying the log");
    crate::replay::replay(&rooms, &mut recovery, &opening).await?;
    opening.begin("reading quotas, and beginning a new log segment");
    rooms
        .state
        .accounts
        .read_limits(&rooms.state.catalog)
        .await?;
    let journal = match log {
        LogConfig::Disk { limit, segment } => {
            let options = Options {
                segment_bytes: segment,
                limit_bytes: limit,
                volume: descriptor.volume,
                epoch,
                sealing: keys.sealing().filter(|_| seal_log),
                write_back: WriteBack::default(),
            };
            Journal::Disk(Arc::new(local.folder.start_log(recovery, options)?))
        }
        LogConfig::None => {
            // The changes that an earlier run with a log left there go to the bucket, and the log goes out of the
            // way, because its LSNs are used again from here on.
            rooms
                .publisher
                .publish_open()
                .await
                .map_err(|_| crate::replay::stopped(&rooms.state))?;
            drop(recovery);
            let now = rooms.state.now();
            let published = rooms.publisher.progress().state();
            local.archive_published_log(&published, descriptor.volume, now)?;
            Journal::Memory {
                next: AtomicU64::new(rooms.state.position().0),
                _folder: local.storage,
            }
        }
    };
    rooms.state.begin(journal);
    let progress = rooms.publisher.progress();
    rooms.state.recycle(progress.published(), &progress.state());

    state.epoch = epoch;
    state.boot = local.folder.boot_id();
    state.clean = false;
    state.log_end = None;
    state_file::store(&*local.folder, &state)?;
    let handle_key = blake3::derive_key("forebay 2026 NFS file handles", keys.secret());
    Ok((rooms, state, handle_key))
}

async fn volume_state(store: &Store, catalog: &Catalog) -> Result<VolumeState, OpenError> {
    let state = catalog.volume_state().await?;
    state.ok_or_else(|| no_metadata(store))
}

fn no_metadata(store: &Store) -> OpenError {
    OpenError::NoMetadata {
        url: store.url.clone(),
        object: VolumeDescriptor::location(&store.root).to_string(),
    }
}

/// Opens the disk cache, if it is configured. The volume works without one.
async fn open_disk_cache(
    local: &dyn LocalFolder,
    config: &FsConfig,
    random: &Arc<dyn Randomness>,
) -> Option<DiskCache> {
    let folder = local.disk_cache()?;
    if config.disk_cache_limit == 0 {
        // No volume uses the files that an earlier run left there.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::warn!(
                "the disk cache in {}, which is not used any more, cannot be removed: {error}",
                folder.display()
            ),
            _ => {}
        }
        return None;
    }
    match DiskCache::open(&folder, config.disk_cache_limit, Arc::clone(random)).await {
        Ok(cache) => Some(cache),
        Err(error) => {
            tracing::warn!(
                "the gateway runs without a disk cache: cannot use {}: {error}; each read of bytes that are not in memory fetches them from the bucket. Make room there, or set a smaller disk_cache_limit, and restart",
                folder.display()
            );
            None
        }
    }
}

/// Reports to the operator how the log ends; returns whether it is damaged.
fn report_tail(tail: Tail, folder: &Path) -> bool {
    let folder = folder.display();
    match tail {
        Tail::Damaged { at, until } if until <= at => {
            tracing::error!(
                "the log in {folder} is damaged: one of its files is shorter than it was created, and it is unknown whether records followed LSN {at}. If so, they are lost; the volume continues without them, with a new write verifier. Check that disk, and that nothing else changes that folder"
            );
            true
        }
        Tail::Damaged { at, until } => {
            tracing::error!(
                "the log in {folder} is damaged: it can be read up to LSN {at}, but there were records up to LSN {until} at least. The records between are lost; the volume continues without them, with a new write verifier. Check that disk. Segments behind the damage are kept beside the log as *.aside"
            );
            true
        }
        Tail::Torn { at, beyond: None } => {
            tracing::info!(
                "the log ends in an unfinished record at LSN {at}, which was never acknowledged"
            );
            false
        }
        Tail::Torn {
            at,
            beyond: Some(until),
        } => {
            tracing::warn!(
                "the log in {folder} ends at LSN {at}, with records up to LSN {until} after a gap: writes that were not finished, or not on the disk, when the gateway ended. If there was neither a power cut nor a kill, check that disk"
            );
            false
        }
        Tail::Clean => false,
    }
}
