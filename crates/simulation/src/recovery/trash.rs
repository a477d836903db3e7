//! The trash of a recovered volume.

use std::sync::Arc;

use forebay_fs::{Volume, Wanted};
use forebay_types::Inode;
use forebay_vfs::FileKind;
use tokio::sync::mpsc;

use crate::life::{by_hand, collect};
use crate::model::{Body, ROOT, State};
use crate::world::World;

/// Compares the trash of a volume with the model's.
pub(crate) async fn compare_trash(volume: &Volume, state: &State) -> Result<(), String> {
    let listed = volume
        .trash_after(None, 1000)
        .await
        .map_err(|error| format!("the trash: {error}"))?;
    let found: Vec<_> = listed
        .entries
        .into_iter()
        .map(|one| {
            let name = one.name.to_vec();
            let what = (one.is_directory, one.size, one.removed, one.by);
            (one.until, one.inode.0, name, one.path, what)
        })
        .collect();
    let mut expected: Vec<_> = state
        .trash()
        .map(|(inode, trashed)| {
            let size = match &trashed.object.body {
                Body::Regular(content) => content.size(),
                _ => 0,
            };
            let is_directory = trashed.object.kind() == FileKind::Directory;
            let what = (is_directory, size, trashed.removed, 0);
            let path = state.path_in_trash(inode);
            (trashed.until, inode, trashed.name.clone(), path, what)
        })
        .collect();
    expected.sort();
    match found == expected {
        true => Ok(()),
        false => Err(format!("the trash has {found:?} instead of {expected:?}")),
    }
}

/// The state of a volume that may have emptied its trash since it had `state`.
fn now(world: &World, volume: &Volume, state: Arc<State>) -> Result<Arc<State>, String> {
    let left = volume.status().trash_entries;
    match left == state.trash().count() as u64 {
        true => Ok(state),
        false => Ok(Arc::new(state.emptied(left, world.now())?)),
    }
}

/// Brings every second file of the trash back, and returns the state after that.
pub(crate) async fn undelete(
    world: &World,
    machine: usize,
    volume: &Volume,
    state: Arc<State>,
) -> Result<Arc<State>, String> {
    let mut state = now(world, volume, state)?;
    let files = state.trash().filter(|(_, trashed)| {
        // What ends now may leave at any time.
        trashed.object.kind() == FileKind::Regular
            && trashed.until > world.now().seconds.cast_unsigned() + 3600
    });
    let files: Vec<u64> = files.step_by(2).map(|(inode, _)| inode).collect();
    if state.trash_rests_until(0) {
        for inode in files {
            let name = format!("undeleted {inode}").into_bytes();
            let to = [b"/", &name[..]].concat();
            let now = world.tick();
            let wanted = Wanted::Id(Inode(inode));
            let (back, _came) = mpsc::channel(1);
            let undelete = volume.undelete(&wanted, Some(&to), &back);
            let undeleted = by_hand(world, machine, undelete).await?;
            undeleted.map_err(|error| format!("undelete of {inode}: {error}"))?;
            let back = state.brought_back(inode, (ROOT, &name), now);
            state = Arc::new(back.ok_or("it is not in the trash")?);
        }
    }
    Ok(state)
}

/// Waits until everything in the trash is over, which must be gone then. Returns the number of its objects.
pub(crate) async fn empty_trash(
    world: &World,
    machine: usize,
    volume: &Volume,
    state: &State,
) -> Result<u64, String> {
    let objects = volume.status().trash_entries;
    let last = state.trash().map(|(_, trashed)| trashed.until).max();
    let now = world.now().seconds.cast_unsigned();
    world.pass(1000 * (last.unwrap_or(0) + 1).saturating_sub(now));
    collect(world, machine, volume).await?;
    match volume.status().trash_entries {
        0 => Ok(objects),
        left => Err(format!(
            "{left} objects stay in the trash when their time is over"
        )),
    }
}
