//! Requests and reports about the scrub.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::status::{age, size};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ScrubRequest {
    /// Begin a round now.
    Start {
        /// Leave out packs that were verified within this many seconds.
        age_seconds: u64,
    },
    /// End the round that is under way.
    Stop,
    /// Report the state.
    Status,
}

/// The state of the scrub. `forebay scrub --status --json` prints it. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Maximum number of bytes per second that it reads.
    pub rate_bytes: u64,
    /// Interval at which each pack is verified; null for never.
    pub interval_seconds: Option<u64>,
    /// The round that is under way.
    pub running: Option<ScrubRound>,
    /// The last round since the gateway started.
    pub last: Option<LastScrub>,
    /// When the next round begins by itself; null if none will, or one is under way.
    pub next: Option<u64>,
    /// Packs of the volume.
    pub packs: u64,
    /// Their bytes.
    pub pack_bytes: u64,
    /// Packs of these that only snapshots need.
    pub held_packs: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Packs that were never verified.
    pub never_verified: u64,
    /// Time of the oldest verification, among the packs that were ever verified.
    pub oldest_verified: Option<u64>,
    /// Time of the newest verification.
    pub newest_verified: Option<u64>,
    /// Packs that were damaged or missing when they were last read.
    pub damaged_packs: Vec<ScrubbedPack>,
    /// Number of further ones.
    pub more_damaged_packs: u64,
    /// Damaged frames that readers and the scrub have met since the gateway started.
    pub damaged_frames: Vec<DamagedFrame>,
    /// Number of further ones.
    pub more_damaged_frames: u64,
}

/// A round that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubRound {
    /// Time at which it began.
    pub since: u64,
    /// Packs in the round.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packs that were read.
    pub packs_done: u64,
    /// Bytes that were read.
    pub bytes_done: u64,
    /// Bytes per second since it began.
    pub bytes_per_second: u64,
    /// The reason for a pause; null if only its rate limits it.
    pub waits_for: Option<String>,
}

/// A round that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScrub {
    /// Time of the end.
    pub at: u64,
    /// Packs that were read.
    pub packs: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Packs of these that are damaged or missing.
    pub damaged: u64,
    /// Why it ended early; null if it did not.
    pub cut_short: Option<String>,
}

/// A pack that is damaged or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubbedPack {
    /// Name of the object below the volume's prefix.
    pub object: String,
    /// Time at which it was read.
    pub verified: u64,
    /// Whether it was missing.
    pub missing: bool,
    /// Number of its damaged frames; 0 if it is missing, or if only its header or its index is damaged.
    pub damaged_frames: u32,
    /// Whether only snapshots need it.
    pub held: bool,
    /// The snapshots that refer to it, the oldest first.
    pub snapshots: Vec<String>,
}

/// A damaged frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFrame {
    /// Name of the object below the volume's prefix.
    pub object: String,
    /// Offset of the frame in it, in bytes.
    pub offset: u32,
    /// Inode number of the file.
    pub inode: u64,
    /// A path of the file within the volume; null if there is none, or if it is not known. Bytes that are not UTF-8
    /// are replaced.
    pub path: Option<String>,
    /// First byte of the file that is damaged.
    pub from: u64,
    /// First byte behind the damage.
    pub to: u64,
    /// The kind of damage.
    pub why: String,
    /// The state of its repair.
    pub state: DamageState,
    /// Lost bytes; null while they are not known.
    pub lost_bytes: Option<u64>,
    /// The snapshots that refer to its pack, and may need it.
    pub snapshots: Vec<String>,
}

/// The state of the repair of a damaged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageState {
    /// A good copy is being searched for.
    Found,
    /// A good copy goes to the bucket with the next checkpoint.
    Healed,
    /// There was a good copy of a part only.
    PartlyHealed,
    /// There is no good copy.
    Lost,
    /// No file needs it.
    Unused,
}

impl fmt::Display for ScrubReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<13} {text}");
        let held = match self.held_packs {
            0 => String::new(),
            held => format!(
                ", {held} of them ({}) only for snapshots",
                size(self.held_bytes)
            ),
        };
        row(
            "packs",
            format!("{}, {}{held}", self.packs, size(self.pack_bytes)),
        )?;
        row("verified", self.verified())?;
        row("running", self.progress())?;
        if let Some(last) = &self.last {
            row("last round", last.to_string())?;
        }
        row("scheduled", self.schedule())?;
        row("damaged packs", self.damaged_packs_total().to_string())?;
        for pack in &self.damaged_packs {
            writeln!(f, "  {pack}")?;
        }
        more(f, self.more_damaged_packs)?;
        let frames = self.damaged_frames.len() as u64 + self.more_damaged_frames;
        writeln!(f, "{:<13} {frames} frames found since the start", "damage")?;
        for frame in &self.damaged_frames {
            writeln!(f, "  {frame}")?;
        }
        more(f, self.more_damaged_frames)
    }
}

fn more(f: &mut fmt::Formatter<'_>, more: u64) -> fmt::Result {
    match more {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

impl ScrubReport {
    fn damaged_packs_total(&self) -> u64 {
        self.damaged_packs.len() as u64 + self.more_damaged_packs
    }

    fn verified(&self) -> String {
        let verified = self.packs.saturating_sub(self.never_verified);
        match (self.oldest_verified, self.newest_verified) {
            (Some(oldest), Some(newest)) => format!(
                "{verified} of {}, from {} to {}",
                self.packs,
                time(oldest),
                time(newest)
            ),
            _ => format!("none of {}", self.packs),
        }
    }

    fn progress(&self) -> String {
        let Some(round) = &self.running else {
            return "no".to_owned();
        };
        let left = round.bytes.saturating_sub(round.bytes_done);
        let mut text = format!(
            "{} of {} packs, {} of {}, {}/s",
            round.packs_done,
            round.packs,
            size(round.bytes_done),
            size(round.bytes),
            size(round.bytes_per_second)
        );
        if let Some(seconds) = left.checked_div(round.bytes_per_second) {
            text += &format!(", about {} left", age(seconds as f64));
        }
        if let Some(what) = &round.waits_for {
            text += &format!("; waiting: {what}");
        }
        text
    }

    fn schedule(&self) -> String {
        let Some(interval) = self.interval_seconds else {
            return "never: scrub_interval is 0s".to_owned();
        };
        let next = match self.next {
            Some(next) => format!(", the next round at {}", time(next)),
            None => String::new(),
        };
        format!(
            "each pack every {}, at {}/s at most{next}",
            age(interval as f64),
            size(self.rate_bytes)
        )
    }
}

impl fmt::Display for LastScrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ended at {}: {} packs, {}, {} of them damaged",
            time(self.at),
            self.packs,
            size(self.bytes),
            self.damaged
        )?;
        match &self.cut_short {
            Some(why) => write!(f, "; it ended early: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ScrubbedPack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.missing, self.damaged_frames) {
            (true, _) => "is not in the bucket".to_owned(),
            (false, 0) => "has a damaged header or index".to_owned(),
            (false, frames) => format!("has {frames} damaged frames"),
        };
        let snapshots = needed(self.held, &self.snapshots);
        let time = time(self.verified);
        write!(f, "{} {what}, as of {time}{snapshots}", self.object)
    }
}

impl fmt::Display for DamagedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match &self.path {
            // A name must not send control characters to the terminal.
            Some(path) => format!("{} (inode {})", path.escape_debug(), self.inode),
            None => format!("inode {}", self.inode),
        };
        let state = match (self.state, self.lost_bytes) {
            (DamageState::Found, _) => "searching for a good copy".to_owned(),
            (DamageState::Healed, _) => "healed".to_owned(),
            (DamageState::PartlyHealed, lost) => {
                format!("partly healed: {} bytes are lost", lost.unwrap_or(0))
            }
            (DamageState::Lost, _) => "lost".to_owned(),
            (DamageState::Unused, _) => "no file needs it".to_owned(),
        };
        let snapshots = needed(false, &self.snapshots);
        write!(
            f,
            "{file}: bytes {} to {}, at byte {} of {}: {state}. {}{snapshots}",
            self.from, self.to, self.offset, self.object, self.why
        )
    }
}

/// The snapshots that refer to a pack, at the end of a line.
fn needed(is_held: bool, snapshots: &[String]) -> String {
    let names: Vec<String> = snapshots
        .iter()
        .map(|name| name.escape_debug().to_string())
        .collect();
    match (is_held, names.is_empty()) {
        (true, true) => "; only a snapshot that is being deleted needs it".to_owned(),
        (false, true) => String::new(),
        (true, false) => format!("; only snapshots need it: {}", names.join(", ")),
        (false, false) => format!("; snapshots that refer to it: {}", names.join(", ")),
    }
}

/// A time for people.
fn time(seconds: u64) -> String {
    // A time far beyond any clock is shown as a number.
    let moment = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    match moment.filter(|_| seconds < 253_402_300_800) {
        Some(moment) => humantime::format_rfc3339_seconds(moment).to_string(),
        None => seconds.to_string(),
    }
}
