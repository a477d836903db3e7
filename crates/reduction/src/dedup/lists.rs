//! The frames of the packs that were used last.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_meta::record::KnownFrame;
use forebay_pack::FrameHash;
use forebay_types::PackId;

/// How many frames of all packs together are kept: about 10 MB. Further frames of one pack are ignored.
pub const MAX_FRAMES: usize = 65_536;

/// The frames of a pack, by their content.
pub type Frames = HashMap<FrameHash, KnownFrame>;

#[derive(Default)]
pub(super) struct Lists {
    /// The last use of each pack, as a number that counts up.
    packs: HashMap<PackId, (u64, Arc<Frames>)>,
    uses: u64,
    frames: usize,
}

impl Lists {
    pub(super) fn get(&mut self, pack: PackId) -> Option<Arc<Frames>> {
        let (used, frames) = self.packs.get_mut(&pack)?;
        self.uses += 1;
        *used = self.uses;
        Some(frames.clone())
    }

    pub(super) fn insert(&mut self, pack: PackId, frames: Arc<Frames>) {
        self.remove(pack);
        self.uses += 1;
        self.frames += cost(&frames);
        self.packs.insert(pack, (self.uses, frames));
        while self.frames > MAX_FRAMES && self.packs.len() > 1 {
            let oldest = self.packs.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(pack, _)| *pack) else {
                return;
            };
            self.remove(oldest);
        }
    }

    pub(super) fn remove(&mut self, pack: PackId) {
        if let Some((_, frames)) = self.packs.remove(&pack) {
            self.frames -= cost(&frames);
        }
    }
}

/// A pack without frames takes memory as well.
fn cost(frames: &Frames) -> usize {
    frames.len() + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ones_of_use_last_are_kept_within_the_limit() {
        let mut lists = Lists::default();
        let packs = (MAX_FRAMES / 16) as u64;
        for pack in 0..packs {
            lists.insert(PackId(pack), Arc::default());
        }
        assert!(lists.get(PackId(0)).is_some());
        lists.insert(PackId(packs), Arc::default());
        assert!(lists.get(PackId(1)).is_none());
        assert!(lists.get(PackId(0)).is_some());
        lists.remove(PackId(0));
        assert!(lists.get(PackId(0)).is_none());
        assert!(lists.frames <= MAX_FRAMES);
    }
}
