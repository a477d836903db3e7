//! Healing: a damaged frame of which a good copy is available is uploaded again.
//!
//! A copy may be in memory, as clean bytes of a block buffer, or in the disk cache. The bytes that files need are
//! marked as dirty, unchanged, and then uploaded like all dirty bytes: into a pack of the next checkpoint, whose
//! block map refers to the new frame. The log has no record of that: content and attributes of the file do not
//! change, and after a crash the damage is found again. Bytes that the log still has reach the bucket from there in
//! any case.

mod context;

use std::sync::Arc;
use std::time::Duration;

use forebay_pack::object_name;
use forebay_vfs::Error;

use crate::damages::{BlockFrame, DamageState, DamagedFrame, Damages};
use crate::display_path::DisplayPath;

pub(crate) use context::Context;

/// How many frames are healed before the list is read again.
const AT_ONCE: usize = 64;
/// The pause when the bucket does not answer, or the file changes all the time.
const COME_BACK: Duration = Duration::from_secs(1);
/// The shortest time between two searches for paths, each of which may read all names of the volume.
const BETWEEN_SEARCHES: Duration = Duration::from_secs(10);

/// The engine that heals damaged frames of one volume.
pub(crate) struct Healer {
    damages: Arc<Damages>,
    context: Arc<dyn Context>,
}

impl Healer {
    pub(crate) fn new(damages: Arc<Damages>, context: Arc<dyn Context>) -> Healer {
        Healer { damages, context }
    }

    /// Heals damaged frames as far as possible, for as long as the volume runs.
    pub(crate) async fn run_forever(self: Arc<Self>) {
        let mut searched: Option<tokio::time::Instant> = None;
        loop {
            let found = self.damages.found(AT_ONCE);
            if !found.is_empty() {
                for place in &found {
                    self.settle(place).await;
                }
                continue;
            }
            let nameless = self.damages.nameless();
            if nameless.is_empty() {
                self.damages.changed().await;
                continue;
            }
            let next = searched.map(|last| last + BETWEEN_SEARCHES);
            if let Some(next) = next.filter(|next| *next > tokio::time::Instant::now()) {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(next) => {}
                    () = self.damages.changed() => {}
                }
                continue;
            }
            self.name_files(&nameless).await;
            searched = Some(tokio::time::Instant::now());
        }
    }

    /// Heals a frame as far as possible, and notes the result.
    async fn settle(&self, place: &BlockFrame) {
        let state = match self.context.heal(place).await {
            Ok(state) => state,
            Err(Error::Delay) => return tokio::time::sleep(COME_BACK).await,
            // The metadata of the file cannot be read.
            Err(_) => DamageState::Lost,
        };
        let what = match state {
            DamageState::Healed => {
                "healed: the damaged bytes were still in memory or in the disk cache, and are uploaded again"
            }
            DamageState::Unused => "no file refers to the damaged bytes any more",
            _ => "",
        };
        if !what.is_empty() {
            let BlockFrame {
                pack,
                offset,
                block,
            } = place;
            tracing::info!(
                "{}, byte {offset}, of inode {}: {what}",
                object_name(*pack),
                block.inode
            );
        }
        self.damages.settle(place, state);
    }

    /// Finds a path for each of these files, and logs their lost bytes.
    async fn name_files(&self, inodes: &[forebay_types::Inode]) {
        let paths = match self.context.paths_of(inodes).await {
            Ok(paths) => paths,
            // They stay without a path, and are looked for again.
            Err(Error::Delay) => return,
            Err(_) => Default::default(),
        };
        for inode in inodes {
            let path = paths.get(inode).map(Vec::as_slice);
            for frame in self.damages.name(*inode, path) {
                log_lost_bytes(&frame);
            }
        }
    }
}

/// Logs the lost bytes of a file.
fn log_lost_bytes(frame: &DamagedFrame) {
    let DamagedFrame {
        inode,
        from,
        to,
        why,
        ..
    } = frame;
    let file = match &frame.path {
        Some(path) => format!("{} (inode {inode})", DisplayPath(path.clone())),
        None => format!("inode {inode}, which has no name,"),
    };
    let lost = match frame.state {
        DamageState::PartlyHealed { lost_bytes } => format!("{lost_bytes} bytes of it are"),
        _ => "they are".to_owned(),
    };
    tracing::error!(
        "{file}: bytes {from} to {to} cannot be read: {why}. {lost} in no other copy \
         here: restore the object from a backup, or write these bytes again"
    );
}

#[cfg(test)]
mod tests;
