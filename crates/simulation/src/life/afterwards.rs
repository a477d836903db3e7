//! Work on a volume at the end: publishing, collecting, deleting snapshots.

use std::time::Duration;

use forebay_fs::Volume;
use forebay_types::Inode;
use forebay_vfs::{FileSystem, SetAttributes};

use crate::model::ROOT;
use crate::world::World;
use crate::{operation, recovery};

/// Makes a volume publish everything, on a machine whose log this thread drives.
pub(crate) async fn publish(world: &World, machine: usize, volume: &Volume) -> Result<u64, String> {
    match by_hand(world, machine, volume.flush()).await? {
        Ok(lsn) => Ok(lsn.0),
        Err(why) => Err(format!("publishing after recovery: {why}")),
    }
}

/// Changes something in a volume, publishes it, and waits until all garbage is collected.
pub(crate) async fn collect(world: &World, machine: usize, volume: &Volume) -> Result<(), String> {
    let change = SetAttributes {
        mode: Some(0o750),
        ..SetAttributes::default()
    };
    let changed = volume.setattr(&operation::ROOT, Inode(ROOT), &change, None);
    let changed = by_hand(world, machine, changed).await?;
    changed.map_err(|error| format!("a change after recovery: {error}"))?;
    publish(world, machine, volume).await?;
    // Background work pauses, and waits for the store; it needs only moments of this time.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Ok(())
}

/// Deletes all snapshots of a volume that is published, waits until their space is given back, and returns how many
/// there were.
pub(crate) async fn delete_snapshots(
    world: &World,
    machine: usize,
    volume: &Volume,
) -> Result<u64, String> {
    let listed = by_hand(world, machine, volume.snapshots()).await?;
    let listed = listed.map_err(|error| format!("the list of snapshots: {error}"))?;
    for one in &listed {
        let deleted = by_hand(world, machine, volume.delete_snapshot(&one.name)).await?;
        deleted.map_err(|error| format!("deleting snapshot {}: {error}", one.name))?;
    }
    if !listed.is_empty() {
        collect(world, machine, volume).await?;
    }
    Ok(listed.len() as u64)
}

/// Runs `work` on a machine whose log this thread drives.
pub(crate) async fn by_hand<T>(
    world: &World,
    machine: usize,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    let hand = world.machine(machine, |machine| machine.hand.clone());
    let mut work = std::pin::pin!(tokio::time::timeout(Duration::from_secs(3600), work));
    loop {
        if let Some(hand) = &hand {
            hand.write_back();
            hand.sync();
            hand.prepare();
        }
        let turn = std::pin::pin!(tokio::time::sleep(Duration::from_millis(50)));
        match futures_util::future::select(work.as_mut(), turn).await {
            futures_util::future::Either::Left((done, _)) => {
                return done.map_err(|_| "publishing after recovery waits for ever".to_owned());
            }
            futures_util::future::Either::Right(_) => {}
        }
    }
}

/// Runs `work` on its own runtime.
pub(crate) fn alone<T>(work: impl Future<Output = T>) -> T {
    let runtime = recovery::runtime();
    runtime.block_on(tokio::task::unconstrained(work))
}
