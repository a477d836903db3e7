//! The first half of an opening: judges bucket and local log, and takes the volume if this gateway may have it.

use std::sync::Arc;
use std::{mem, process};

use forebay_clones::layers;
use forebay_environment::{Environment, draw, state_file};
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::holder::{Holder, StoredHolder};
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{Catalog, VolumeDescriptor};
use forebay_object::Store;
use forebay_wal::LogKeys;
use futures_util::future::join;

use super::folder::{Local, Outlook};
use super::format::{FirstState, Made};
use super::hold::{Candidate, Hold};
use super::{OpenError, no_metadata, volume_state};
use crate::config::{FsConfig, LogConfig};

/// What descriptor and keys say, with the local folder, which is locked.
struct Identified {
    descriptor: VolumeDescriptor,
    /// With what lies at the sources of a clone.
    store: Store,
    local: Local,
    keys: VolumeKeys,
}

/// The parts of an opening that are known before the volume's metadata are opened for writing.
pub(super) struct Claim {
    pub(super) descriptor: VolumeDescriptor,
    /// With what lies at the sources of a clone.
    pub(super) store: Store,
    pub(super) local: Local,
    pub(super) keys: VolumeKeys,
    pub(super) log_keys: LogKeys,
    pub(super) foreseen: Outlook,
    /// The identity of this gateway.
    pub(super) gateway: [u8; 16],
    pub(super) first: Option<FirstState>,
}

/// Judges bucket and local log, and takes the volume if this gateway may have it.
pub(super) async fn claim(
    store: &Store,
    config: &mut FsConfig,
    environment: &Environment,
    made: Option<Made>,
) -> Result<(Claim, Hold), OpenError> {
    let opening = config.opening.clone();
    opening.begin("reading the volume's descriptor and keys from the bucket");
    // Not kept while the volume is open: it could open the key ring for anyone who finds it in memory.
    let expected = mem::take(&mut config.expected);
    let (identified, note, first) = match made {
        Some(made) => {
            let local = Local::open(environment.local.clone(), made.descriptor.volume)?;
            let identified = Identified {
                descriptor: made.descriptor,
                store: store.clone(),
                local,
                keys: made.keys,
            };
            // No gateway has held it.
            (identified, Some(None), Some(made.first))
        }
        None => {
            // Both to their end: of a request that is dropped, nobody but the bucket counts the answer.
            let looked = look_ahead(store, environment);
            let (identified, note) = join(identify(store, environment, &expected), looked).await;
            (identified?, note, None)
        }
    };
    drop(expected);
    let Identified {
        descriptor,
        store: whole,
        local,
        keys,
    } = identified;
    let store = &whole;
    let log_keys = log_keys(&keys, config.seal_log)?;
    let random = &*environment.random;

    // A bucket that was restored and a log that was changed are refused before any change: opening the metadata for
    // writing leaves an object there, over which the latest state could not be restored.
    opening.begin("reading the manifest and the state of the metadata from the bucket");
    let bucket = match &first {
        Some(first) => Ok(first.state),
        None => {
            let meta = environment.metadata.read(store, keys.sealing()).await?;
            let meta = meta.ok_or_else(|| no_metadata(store))?;
            let bucket = volume_state(store, &Catalog::new(Arc::default(), meta.clone())).await;
            if let Err(error) = meta.close().await {
                tracing::debug!(%error, "closing the metadata that the volume's state was read from");
            }
            bucket
        }
    };
    opening.begin("scanning the local log");
    let foreseen = local.consider(store, bucket?, &log_keys)?;
    opening.begin("reading which gateway holds the volume");
    let state = local.state.as_ref();
    let gateway = state.map_or_else(|| draw(random), |state| state.gateway);
    // Before any gateway is fenced.
    let candidate = Candidate {
        note: Holder {
            volume: descriptor.volume,
            gateway,
            instance: draw(random),
            host: config.introduction.host.clone(),
            process: process::id(),
            address: config.introduction.address.clone(),
            data_dir: local.folder.path().display().to_string(),
            since: environment.clock.now().seconds.unsigned_abs(),
            publishes_every_ms: u64::try_from(config.checkpoint_interval.as_millis())
                .unwrap_or(u64::MAX),
            has_log: config.log != LogConfig::None,
            stopped: None,
        },
        continues: foreseen.continues,
        is_copied: !foreseen.continues && foreseen.bucket.gateway == gateway,
        e_tag: state.and_then(|state| state.note.clone()),
        takeover: config.takeover,
        url: store.url.clone(),
        data_dir: local.folder.path().to_owned(),
    };
    let keep = || local.keep_identity(gateway);
    let hold = Hold::take(
        store.store.clone(),
        store.root.clone(),
        candidate,
        note,
        keep,
    )
    .await?;
    let claim = Claim {
        descriptor,
        store: store.clone(),
        local,
        keys,
        log_keys,
        foreseen,
        gateway,
        first,
    };
    Ok((claim, hold))
}

/// Reads descriptor and keys, and locks the local folder.
async fn identify(
    store: &Store,
    environment: &Environment,
    expected: &Expected,
) -> Result<Identified, OpenError> {
    let descriptor = match VolumeDescriptor::load(&store.store, &store.root).await {
        Err(VolumeError::NotFormatted { .. })
            if let Some(state) = state_file::load(&*environment.local)? =>
        {
            return Err(OpenError::Gone {
                url: store.url.clone(),
                folder: environment.local.path().to_owned(),
                volume: state.volume,
            });
        }
        loaded => loaded.map_err(|error| error.at(&store.url))?,
    };
    let store = layers::over(store, &descriptor).map_err(|error| error.at(&store.url))?;
    // The lock on the log folder comes first: a second gateway on this machine changes nothing.
    let local = Local::open(environment.local.clone(), descriptor.volume)?;
    let seen = local.state.as_ref().map_or(0, |state| state.keys);
    let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, seen)
        .await
        .map_err(|error| error.at(&store.url))?;
    Ok(Identified {
        descriptor,
        store,
        local,
        keys,
    })
}

/// Reads what needs neither descriptor nor keys, at the same time as those: the beginning of the metadata, and the holder's note,
/// unless this gateway has written the last one that it knows of. `None` if the note was not read.
async fn look_ahead(store: &Store, environment: &Environment) -> Option<Option<StoredHolder>> {
    let known = state_file::load(&*environment.local).ok().flatten();
    let note = async {
        match known.is_some_and(|state| state.note.is_some()) {
            true => None,
            false => StoredHolder::load(&store.store, &store.root).await.ok(),
        }
    };
    join(environment.metadata.look_ahead(store), note).await.1
}

/// The keys for reading the log. Like everything else, they follow the configuration and not the files that are
/// found.
fn log_keys(keys: &VolumeKeys, seal_log: bool) -> Result<LogKeys, OpenError> {
    match (keys.sealing(), seal_log) {
        (Some(sealing), true) => Ok(LogKeys::Required(sealing.keys)),
        (Some(sealing), false) => Ok(LogKeys::Optional(sealing.keys)),
        (None, false) => Ok(LogKeys::None),
        (None, true) => Err(forebay_wal::OpenError::Options(
            "seal_log is on, but the volume is not sealed and has no keys".to_owned(),
        )
        .into()),
    }
}
