//! A machine: a local disk with a page cache before it, a state file, and the id of its last boot.
//!
//! ```text
//!   mapped memory      bytes that the process wrote           survives a kill
//!   believed           bytes that the kernel takes as stored  (equal to mapped: the page is clean)
//!   stable             bytes on the disk                      survives a power cut
//! ```
//!
//! Without faults `believed` and `stable` agree in every flushed range. A failed flush leaves them different, as on
//! Linux: its pages count as clean afterwards, and a later flush does not write them. The kernel may also drop such pages: then all
//! three have what is on the disk.

mod file;
mod folder;

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_wal::Hand;

use crate::random::Random;
use file::File;
pub(crate) use file::FileImage;
pub(crate) use folder::Folder;

/// Unit in bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// State of a machine when the world stops.
#[derive(Clone, Default)]
pub(crate) struct MachineImage {
    files: BTreeMap<String, FileImage>,
    state: Option<Arc<[u8]>>,
    mark: Option<Arc<[u8]>>,
    boot: u64,
}

/// Faults of the disk from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// Flushes that will fail. A write-back counts as one: it fails at once, or at the next flush of its file.
    pub failing_flushes: u32,
    /// After a failed flush the kernel drops the pages that it could not write.
    pub drops_pages: bool,
    /// Reads of the open log that will fail.
    pub failing_reads: u32,
    /// No file can be created.
    pub full: bool,
}

/// A running machine.
#[derive(Default)]
pub(crate) struct Machine {
    files: BTreeMap<String, File>,
    state: Option<Arc<[u8]>>,
    mark: Option<Arc<[u8]>>,
    boot: u64,
    pub(crate) faults: DiskFaults,
    /// Number of faults that occurred.
    pub(crate) failed_flushes: u64,
    pub(crate) full_disks: u64,
    pub(crate) failed_reads: u64,
    /// Number of times at which dropped pages took bytes with them.
    pub(crate) dropped_pages: u64,
    /// Does the work of the log's threads.
    pub(crate) hand: Option<Arc<Hand>>,
}

impl MachineImage {
    /// A machine that was never used.
    pub(crate) fn new(boot: u64) -> MachineImage {
        MachineImage {
            boot,
            ..MachineImage::default()
        }
    }

    /// The machine after a power cut: each sector that was not flushed has its old bytes, its new ones, or a mixture,
    /// as `seed` decides.
    pub(crate) fn power_cut(&self, seed: u64) -> MachineImage {
        let mut random = Random::of(seed, 1);
        // None, all, or some of them: the extremes are likely on real machines, too.
        let kept = [0, 20, 50, 80, 100][random.below(5) as usize];
        MachineImage {
            files: self
                .files
                .iter()
                .map(|(name, file)| (name.clone(), file.power_cut(kept, &mut random)))
                .collect(),
            state: self.state.clone(),
            mark: self.mark.clone(),
            boot: self.boot + 1,
        }
    }

    /// The machine after a kill in the middle of the copy that led from `before` to this image: it has the first part
    /// of the changed bytes.
    pub(crate) fn torn_copy(&self, before: &MachineImage, seed: u64) -> MachineImage {
        let mut random = Random::of(seed, 2);
        let mut torn = self.clone();
        for (name, file) in &mut torn.files {
            if let Some(before) = before.files.get(name) {
                file.tear(before, &mut random);
            }
        }
        torn
    }

    /// Whether the kernel has dropped pages that never reached the disk. Then a kill loses as much as a power cut.
    pub(crate) fn has_lost_pages(&self) -> bool {
        self.files.values().any(FileImage::has_lost_pages)
    }

    /// Whether both images are equal.
    pub(crate) fn is_same(&self, other: &MachineImage) -> bool {
        self.state == other.state
            && self.files.len() == other.files.len()
            && self
                .files
                .iter()
                .zip(&other.files)
                .all(|((name, file), (other_name, other))| {
                    name == other_name && file.is_same(other)
                })
    }
}

impl Machine {
    pub(crate) fn of(image: &MachineImage) -> Machine {
        Machine {
            files: image
                .files
                .iter()
                .map(|(name, file)| (name.clone(), File::of(file)))
                .collect(),
            state: image.state.clone(),
            mark: image.mark.clone(),
            boot: image.boot,
            ..Machine::default()
        }
    }

    pub(crate) fn image(&mut self) -> MachineImage {
        MachineImage {
            files: self
                .files
                .iter_mut()
                .map(|(name, file)| (name.clone(), file.image()))
                .collect(),
            state: self.state.clone(),
            mark: self.mark.clone(),
            boot: self.boot,
        }
    }

    /// The kernel writes some dirty sectors back by itself.
    pub(crate) fn write_back(&mut self, seed: u64) {
        let mut random = Random::of(seed, 3);
        for file in self.files.values_mut() {
            let all = 0..file.len();
            file.write_back(all, &mut random);
        }
    }
}
