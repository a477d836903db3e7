//! The reports of the scrub.

use std::time::Duration;

use forebay_meta::record::ScrubResult;
use forebay_pack::object_name;
use forebay_types::PackId;

use super::plan::Survey;
use super::{Broken, OnOutage, Scrub};
use crate::damages::DamagedFrame;

/// How many damaged packs a status names.
const MOST_NAMED: usize = 1000;
/// Why the scrub refuses an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrubRefusal {
    /// A round is in progress.
    #[error("a scrub is running already; `forebay scrub --status` shows its progress")]
    Running,
    /// The accounts and checks of packs cannot be read.
    #[error(
        "cannot read the list of packs now: {0}; `forebay status` shows the state of the bucket"
    )]
    Unreadable(String),
}

/// What a round waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrubWait {
    /// Other tasks read or upload, or writers wait for memory.
    Others,
    /// The bucket does not answer; with its last error.
    Bucket(String),
}

/// The progress of the current round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubProgress {
    /// The time of its begin, in seconds since 1970.
    pub since: u64,
    /// Number of packs to read.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packs that were read.
    pub packs_done: u64,
    /// Bytes that were read.
    pub bytes_done: u64,
    /// What the round waits for; none if it does not wait.
    pub waits_for: Option<ScrubWait>,
}

/// How the last round ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubEnd {
    /// The time of its end, in seconds since 1970.
    pub at: u64,
    /// Packs that were read.
    pub packs: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Packs of these that are damaged or missing.
    pub damaged: u64,
    /// Why it ended before all packs were read; none if all were read.
    pub cut_short: Option<String>,
}

/// A pack that was damaged or missing when it was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPack {
    /// The pack.
    pub pack: PackId,
    /// The name of the object below the volume's prefix.
    pub object: String,
    /// The time of that check, in seconds since 1970.
    pub checked: u64,
    /// Whether it was not in the bucket.
    pub missing: bool,
    /// How many of its frames were damaged; none if it is missing, or only its header or index are damaged.
    pub damaged_frames: u32,
    /// Whether only snapshots need it.
    pub is_held: bool,
    /// The snapshots that refer to it, the oldest first.
    pub snapshots: Vec<String>,
}

/// The checks of packs, and the damage that they found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// The most bytes a second that are read.
    pub rate: u64,
    /// The interval in which each pack is read back without an order; zero for never.
    pub interval: Duration,
    /// The current round.
    pub running: Option<ScrubProgress>,
    /// The last round since the start.
    pub last: Option<ScrubEnd>,
    /// When the next round begins without an order, in seconds since 1970.
    pub next: Option<u64>,
    /// Number of packs of the volume.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of packs of these that only snapshots hold.
    pub held_packs: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Number of packs that were never read back completely.
    pub never: u64,
    /// The oldest of the packs' last checks, in seconds since 1970.
    pub oldest: Option<u64>,
    /// The newest of them.
    pub newest: Option<u64>,
    /// Packs that were damaged or missing when they were read last; a thousand at most.
    pub damaged_packs: Vec<CheckedPack>,
    /// How many more there are.
    pub more_damaged_packs: u64,
    /// Damaged frames that readers and the scrub have found since the start; a thousand at most.
    pub damaged_frames: Vec<DamagedFrame>,
    /// How many more there are.
    pub more_damaged_frames: u64,
}

impl Scrub {
    /// The result of [`crate::Volume::scrub_status`].
    pub(crate) async fn status(&self) -> Result<ScrubStatus, ScrubRefusal> {
        let mut survey = Survey::default();
        let (mut damaged_packs, mut more) = (Vec::new(), 0);
        let surveyed = self.for_each_pack(OnOutage::Fail, |known, check| {
            survey.add(known, check);
            let Some(check) = check.filter(|check| check.result != ScrubResult::Sound) else {
                return;
            };
            if damaged_packs.len() == MOST_NAMED {
                more += 1;
                return;
            }
            damaged_packs.push(CheckedPack {
                pack: known.pack,
                object: object_name(known.pack),
                checked: check.checked,
                missing: check.result == ScrubResult::Missing,
                damaged_frames: check.damaged_frames,
                is_held: known.frames.is_none(),
                snapshots: self.context.snapshots.referring(&known.life),
            });
        });
        let surveyed = surveyed.await;
        surveyed.map_err(|Broken(why)| ScrubRefusal::Unreadable(why))?;
        let (damaged_frames, more_damaged_frames) = self.context.damages.list();
        let round = self.board.round.lock();
        Ok(ScrubStatus {
            rate: self.context.rate,
            interval: self.context.interval,
            running: round.running.clone(),
            last: round.last.clone(),
            next: round.next,
            packs: survey.packs,
            bytes: survey.bytes,
            held_packs: survey.held_packs,
            held_bytes: survey.held_bytes,
            never: survey.never,
            oldest: survey.oldest,
            newest: survey.newest,
            damaged_packs,
            more_damaged_packs: more,
            damaged_frames,
            more_damaged_frames,
        })
    }
}
