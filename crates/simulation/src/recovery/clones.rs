//! The clone of a recovered volume.

use forebay_clones::holds;
use forebay_fs::{SnapshotError, Volume};
use forebay_meta::VolumeDescriptor;

use super::open_and_compare;
use crate::history::Cloned;
use crate::life::{by_hand, collect};
use crate::plan::Plan;
use crate::world::{World, WorldImage};

/// Opens the clone in the world of its source on a new machine, and compares all of it.
pub(crate) async fn compare_clone(
    image: &WorldImage,
    plan: &Plan,
    cloned: &Cloned,
) -> Result<(), String> {
    let world = World::of(&image.seen_from_clone(), 60);
    let _end = world.ends_here();
    let machine = world.add_machine();
    let opening = open_and_compare(&world, machine, plan, &cloned.history, u64::MAX);
    let recovered = opening.await.map_err(|why| format!("the clone: {why}"))?;
    match recovered.end == cloned.history.end() {
        true => Ok(()),
        false => Err(format!(
            "the clone is at {}, and should be at {}",
            recovered.end,
            cloned.history.end()
        )),
    }
}

/// Deletes all snapshots that no clone needs, gives the volume an hour to delete what is dead, and compares the clone. Then
/// the clone is forgotten.
pub(crate) async fn outlives(
    world: &World,
    machine: usize,
    volume: &Volume,
    plan: &Plan,
    cloned: &Cloned,
) -> Result<(), String> {
    let listed = by_hand(world, machine, volume.snapshots()).await?;
    let listed = listed.map_err(|error| format!("the list of snapshots: {error}"))?;
    if listed.iter().all(|one| one.name != cloned.snapshot) {
        return Err(format!("snapshot {} of a clone is lost", cloned.snapshot));
    }
    for one in &listed {
        let deleted = by_hand(world, machine, volume.delete_snapshot(&one.name)).await?;
        match (one.name == cloned.snapshot, deleted) {
            (true, Err(SnapshotError::Cloned { .. })) | (false, Ok(())) => {}
            (_, deleted) => {
                let (name, of) = (&one.name, &cloned.snapshot);
                return Err(format!(
                    "deleting snapshot {name} beside a clone of {of}: {deleted:?}"
                ));
            }
        }
    }
    collect(world, machine, volume).await?;
    compare_clone(&world.image(), plan, cloned)
        .await
        .map_err(|why| format!("with all other snapshots deleted: {why}"))?;
    forget(world).await
}

/// Removes the notes on clones of a volume.
pub(crate) async fn forget(world: &World) -> Result<(), String> {
    let store = world.store();
    let descriptor = VolumeDescriptor::load(&store.store, &store.root).await;
    let volume = descriptor.map_err(|error| error.to_string())?.volume;
    let holds = holds::list(&store, volume).await;
    for hold in holds.map_err(|error| error.to_string())? {
        let removed = holds::remove(&store, &hold).await;
        removed.map_err(|error| error.to_string())?;
    }
    Ok(())
}
