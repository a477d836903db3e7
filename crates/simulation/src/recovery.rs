//! Opens the state that a crash leaves, and compares all of it with the model.

mod clones;
mod trash;

use std::sync::Arc;
use std::time::Duration;

use forebay_fs::{CommitMode, Dedup, FsConfig, LogConfig, Volume};
use forebay_types::Inode;
use forebay_vfs::{Attributes, FileKind, FileSystem};

use crate::history::History;
use crate::judge::{difference, listed};
use crate::model::{Body, HIGH, LOW, Object, ROOT, State};
use crate::operation;
use crate::plan::{Journal, Memory, Plan};
use crate::world::World;
pub(crate) use clones::{compare_clone, forget, outlives};
pub(crate) use trash::{compare_trash, empty_trash, undelete};

/// Longer than any opening may take, in simulated time: one that takes longer waits for ever.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Bytes of a log segment. Few, so that segments are begun, recycled and renamed all the time.
const SEGMENT: u64 = 16 << 10;

/// The same while memory is tight: only full segments are settled, and a burst has a few of them.
const SMALL_SEGMENT: u64 = 12 << 10;

/// Bytes of the log.
const LOG: u64 = 8 * SEGMENT;

/// Bytes of a tight memory. An eighth is a reserve, and a writer asks for 128 KiB beside its bytes: that leaves twenty pieces of
/// 4 KiB for dirty bytes.
const TIGHT: u64 = 240 << 10;

/// The result of an opening.
pub(crate) struct Recovered {
    pub(crate) volume: Volume,
    /// The state at that position.
    pub(crate) state: Arc<State>,
    /// The position to which it recovered.
    pub(crate) end: u64,
    /// Its write verifier, if there is a file for the COMMIT that returns it.
    pub(crate) verifier: Option<[u8; 8]>,
}

/// The configuration of the gateways that serve a plan's volumes.
pub(crate) fn serving(plan: &Plan) -> FsConfig {
    let config = config(plan);
    match plan.memory {
        Memory::Enough => config,
        Memory::Tight => FsConfig {
            memory_limit: TIGHT,
            ..config
        },
    }
}

/// The configuration of a plan's volumes, with enough memory.
pub(crate) fn config(plan: &Plan) -> FsConfig {
    let (segment, checkpoint_bytes) = match (plan.memory, plan.small_checkpoints) {
        (Memory::Enough, true) => (SEGMENT, 6 << 10),
        (Memory::Enough, false) => (SEGMENT, 64 << 20),
        // Dirty bytes leave memory only if the log has room for eight checkpoints.
        (Memory::Tight, true) => (SMALL_SEGMENT, LOG / 32),
        (Memory::Tight, false) => (SMALL_SEGMENT, LOG / 8),
    };
    FsConfig {
        log: match plan.journal {
            Journal::None => LogConfig::None,
            _ => LogConfig::Disk {
                limit: LOG,
                segment,
            },
        },
        memory_limit: 16 << 20,
        // The model has no call that is answered JUKEBOX for lack of room.
        room_wait: Duration::from_secs(3600),
        checkpoint_interval: Duration::from_secs(5),
        checkpoint_bytes,
        compression: forebay_fs::Compression::Off,
        dedup: match plan.seed % 3 {
            0 => Dedup::Off,
            1 => Dedup::Full,
            _ => Dedup::Fast,
        },
        upload_parallel: 2,
        pack_bytes: 3000,
        prefetch_bytes: 0,
        disk_cache_limit: 0,
        maps_at_once: 1 + (plan.seed % 2) as usize,
        // Simulated time passes fast, so that every object is old and background work need not pause.
        rewrite_below: 90,
        defragment_after: Duration::from_millis(plan.seed % 2),
        background_rate: 1 << 30,
        background_requests: 1 << 20,
        orphan_grace: Duration::ZERO,
        trash_limit: plan.keep.limit,
        // Its machines take the volume from one another all the time, on purpose.
        takeover: forebay_fs::Takeover::Allow,
        ..FsConfig::new("/simulated".into())
    }
}

/// A runtime of one thread whose time passes only when all tasks wait for it.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    // It needs only memory of the system.
    built.expect("a runtime without I/O can always be made")
}

/// Opens the volume with enough memory on a machine of `world`, and compares it with the state that `history` has for the
/// recovered position, without the content of restored files that was not `published`.
pub(crate) async fn open_and_compare(
    world: &World,
    machine: usize,
    plan: &Plan,
    history: &History,
    published: u64,
) -> Result<Recovered, String> {
    open_with(config(plan), (world, machine), plan, (history, published)).await
}

/// The same with the memory that the plan's gateways have.
pub(crate) async fn open_to_serve(
    world: &World,
    machine: usize,
    plan: &Plan,
    history: &History,
    published: u64,
) -> Result<Recovered, String> {
    open_with(serving(plan), (world, machine), plan, (history, published)).await
}

async fn open_with(
    config: FsConfig,
    (world, machine): (&World, usize),
    plan: &Plan,
    (history, published): (&History, u64),
) -> Result<Recovered, String> {
    let store = world.store();
    let opening = Volume::open_in(&store, config, world.environment(machine));
    let volume = tokio::time::timeout(TIMEOUT, opening)
        .await
        .map_err(|_| "the volume does not open: it waits for ever".to_owned())?
        .map_err(|error| format!("the volume does not open: {error}"))?
        .with_commit_mode(match plan.journal {
            Journal::Commit | Journal::None => CommitMode::Disk,
            Journal::Bucket => CommitMode::Bucket,
            Journal::Async => CommitMode::Async,
        });
    let end = volume.status().end.0;
    let state = history
        .at(end)
        .ok_or_else(|| format!("recovery came to {end}, where no record ends"))?
        .after_crash(published);
    let state = &state;
    compare(&volume, state)
        .await
        .map_err(|why| format!("recovered to {end}: {why}"))?;
    compare_snapshots(&volume, state, history)
        .await
        .map_err(|why| format!("recovered to {end}: {why}"))?;
    compare_trash(&volume, state)
        .await
        .map_err(|why| format!("recovered to {end}: {why}"))?;
    let verifier = verifier(&volume, state).await?;
    Ok(Recovered {
        volume,
        state: state.clone(),
        end,
        verifier,
    })
}

/// The write verifier of a volume on which everything is stable.
pub(crate) async fn verifier(volume: &Volume, state: &State) -> Result<Option<[u8; 8]>, String> {
    let Some(inode) = state.of_kind(FileKind::Regular).pop() else {
        return Ok(None);
    };
    let commit = volume.commit(&operation::ROOT, Inode(inode), 0, 0);
    match tokio::time::timeout(TIMEOUT, commit).await {
        Ok(Ok((_, verifier))) => Ok(Some(verifier.0)),
        Ok(Err(error)) => Err(format!("COMMIT after recovery: {error}")),
        Err(_) => Err("COMMIT after recovery waits for ever".into()),
    }
}

/// Compares the snapshots of a volume with those that the model has in this state.
pub(crate) async fn compare_snapshots(
    volume: &Volume,
    state: &State,
    history: &History,
) -> Result<(), String> {
    let listed = volume
        .snapshots()
        .await
        .map_err(|error| format!("the list of snapshots: {error}"))?;
    for name in state.snapshots().keys() {
        let is_there = listed.iter().any(|one| one.name == *name);
        if !is_there && !history.deleting.contains(name) {
            return Err(format!("snapshot {name} is lost"));
        }
    }
    for one in listed {
        let name = &one.name;
        let kept = state.snapshots().get(name);
        let kept = kept.ok_or_else(|| format!("snapshot {name} is of a lost state"))?;
        if !one.is_published {
            continue;
        }
        let view = volume
            .open_snapshot(name)
            .await
            .map_err(|error| format!("snapshot {name}: {error}"))?;
        compare(&*view, kept)
            .await
            .map_err(|why| format!("snapshot {name}: {why}"))?;
    }
    Ok(())
}

/// Walks the whole tree and compares it with the model.
pub(crate) async fn compare(volume: &impl FileSystem, state: &State) -> Result<(), String> {
    let root = volume
        .getattr(Inode(ROOT))
        .await
        .map_err(|error| format!("the root: {error}"))?;
    compare_attributes("/", ROOT, &root, state)?;
    let mut seen = std::collections::BTreeSet::from([ROOT]);
    let mut rest = vec![(ROOT, String::new())];
    while let Some((directory, path)) = rest.pop() {
        let listing = volume
            .readdir(&operation::ROOT, Inode(directory), 0, 1000, true)
            .await
            .map_err(|error| format!("{path}/: {error}"))?;
        let found: Vec<_> = listing
            .entries
            .iter()
            .map(|entry| (entry.cookie, entry.name.to_vec(), entry.inode.0))
            .collect();
        let expected = listed(state, directory).unwrap_or_default();
        if found != expected {
            return Err(format!(
                "{path}/ (inode {directory}) holds {found:?} instead of {expected:?}"
            ));
        }
        for entry in listing.entries.iter().skip(2) {
            let inode = entry.inode.0;
            let path = format!("{path}/{}", entry.name.escape_ascii());
            let attributes = entry
                .attributes
                .ok_or_else(|| format!("{path} (inode {inode}) has a name and is not there"))?;
            compare_attributes(&path, inode, &attributes, state)?;
            if !seen.insert(inode) {
                continue;
            }
            match state.get(inode).map(|object| &object.body) {
                Some(Body::Directory { .. }) => rest.push((inode, path)),
                Some(Body::Symlink(target)) => {
                    let found = volume
                        .readlink(&operation::ROOT, entry.inode)
                        .await
                        .map_err(|error| format!("{path}: {error}"))?;
                    if found.0 != target[..] {
                        return Err(format!("{path} points elsewhere"));
                    }
                }
                Some(Body::Regular(_)) => compare_bytes(volume, &path, inode, state).await?,
                _ => {}
            }
        }
    }
    if seen.len() != state.len() {
        return Err(format!("{} objects instead of {}", seen.len(), state.len()));
    }
    let statistics = volume
        .statistics()
        .await
        .map_err(|error| format!("FSSTAT: {error}"))?;
    let files = statistics.total_files - statistics.free_files;
    if files != state.len() as u64 {
        return Err(format!(
            "FSSTAT counts {files} objects instead of {}",
            state.len()
        ));
    }
    Ok(())
}

/// Compares the bytes of all files with the model.
pub(crate) async fn compare_contents(volume: &Volume, state: &State) -> Result<(), String> {
    for inode in state.of_kind(FileKind::Regular) {
        compare_bytes(volume, "a file", inode, state).await?;
    }
    Ok(())
}

fn compare_attributes(
    path: &str,
    inode: u64,
    found: &Attributes,
    state: &State,
) -> Result<(), String> {
    let expected = state.attributes(inode);
    let bare = Attributes { used: 0, ..*found };
    if expected != Some(bare) {
        return Err(format!(
            "{path} (inode {inode}): {bare:?} instead of {expected:?}"
        ));
    }
    Ok(())
}

async fn compare_bytes(
    volume: &impl FileSystem,
    path: &str,
    inode: u64,
    state: &State,
) -> Result<(), String> {
    let size = match state.get(inode) {
        Some(Object {
            body: Body::Regular(content),
            ..
        }) => content.size(),
        _ => 0,
    };
    let hole = LOW.end..LOW.end + 64;
    for part in [LOW, hole, HIGH] {
        if part.start >= size && part.start > 0 {
            continue;
        }
        // Reads one byte more than there is, to find the end.
        let count = (size.min(part.end) - part.start) as u32 + 1;
        let read = volume
            .read(&operation::ROOT, Inode(inode), part.start, count)
            .await
            .map_err(|error| format!("{path} at {}: {error}", part.start))?;
        let found = read.data.concat();
        let (expected, eof) = state.read(inode, part.start, count).unwrap_or_default();
        if found != expected || read.eof != eof {
            return Err(format!(
                "{path} (inode {inode}, {size} bytes) from {} on: {}",
                part.start,
                difference(&found, &expected)
            ));
        }
    }
    Ok(())
}
