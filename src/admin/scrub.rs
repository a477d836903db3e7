//! What is asked and said about the scrub.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::status::{age, size};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ScrubRequest {
    /// Begin a round now.
    Start {
        /// Leave out packs that were verified within so many seconds.
        age_seconds: u64,
    },
    /// End the round that is under way.
    Stop,
    /// Say how it is.
    Status,
}

/// How the scrub is. `forebay scrub --status --json` prints it. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Bytes per second that it reads at most.
    pub rate_bytes: u64,
    /// How often each pack is verified by itself; null for never.
    pub interval_seconds: Option<u64>,
    /// The round that is under way.
    pub running: Option<ScrubRound>,
    /// The last round since the gateway started.
    pub last: Option<LastScrub>,
    /// When the next round begins by itself; null if none does, or one is under way.
    pub next: Option<u64>,
    /// Packs of the volume.
    pub packs: u64,
    /// Their bytes.
    pub pack_bytes: u64,
    /// Packs that were never verified.
    pub never_verified: u64,
    /// When the pack was verified that was not for the longest time, of those that ever were.
    pub oldest_verified: Option<u64>,
    /// When the pack was verified that was verified last.
    pub newest_verified: Option<u64>,
    /// Packs that were damaged or missing when they were read last.
    pub damaged_packs: Vec<ScrubbedPack>,
    /// How many more there are.
    pub more_damaged_packs: u64,
    /// Damaged frames that readers and the scrub have met since the gateway started.
    pub damaged_frames: Vec<DamagedFrame>,
    /// How many more there are.
    pub more_damaged_frames: u64,
}

/// A round that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubRound {
    /// Since when.
    pub since: u64,
    /// Packs that it is for.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packs that were read.
    pub packs_done: u64,
    /// Bytes that were read.
    pub bytes_done: u64,
    /// Bytes per second since it began.
    pub bytes_per_second: u64,
    /// What it waits for; null if for nothing but its rate.
    pub waits_for: Option<String>,
}

/// A round that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScrub {
    /// When.
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
    /// When it was read.
    pub verified: u64,
    /// Whether it was not there.
    pub missing: bool,
    /// How many of its frames were damaged; 0 if it is missing, or only its header or its index are damaged.
    pub damaged_frames: u32,
}

/// A damaged frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFrame {
    /// Name of the object below the volume's prefix.
    pub object: String,
    /// Where the frame begins in it, in bytes.
    pub offset: u32,
    /// Inode number of the file.
    pub inode: u64,
    /// A path of the file within the volume; null if there is none, or it is not known. Bytes that are not UTF-8 are
    /// replaced.
    pub path: Option<String>,
    /// First byte of the file that is damaged.
    pub from: u64,
    /// First byte behind.
    pub to: u64,
    /// What is wrong.
    pub why: String,
    /// What became of it.
    pub state: DamageState,
    /// Bytes of it that are lost; null while that is not known.
    pub lost_bytes: Option<u64>,
}

/// What became of a damaged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageState {
    /// A good copy is looked for.
    Found,
    /// A good copy goes to the bucket with the next checkpoint.
    Healed,
    /// There was one of a part.
    PartlyHealed,
    /// There is none.
    Lost,
    /// No file needs it.
    Unused,
}

impl fmt::Display for ScrubReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<13} {text}");
        row(
            "packs",
            format!("{}, {}", self.packs, size(self.pack_bytes)),
        )?;
        row("verified", self.verified())?;
        row("running", self.progress())?;
        if let Some(last) = &self.last {
            row("last round", last.to_string())?;
        }
        row("by itself", self.by_itself())?;
        row("damaged packs", self.damaged_packs_total().to_string())?;
        for pack in &self.damaged_packs {
            writeln!(f, "  {pack}")?;
        }
        more(f, self.more_damaged_packs)?;
        let frames = self.damaged_frames.len() as u64 + self.more_damaged_frames;
        writeln!(f, "{:<13} {frames} met since the start", "damage")?;
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
            text += &format!(", some {} left", age(seconds as f64));
        }
        if let Some(what) = &round.waits_for {
            text += &format!("; it waits: {what}");
        }
        text
    }

    fn by_itself(&self) -> String {
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
        write!(f, "{} {what}, as of {}", self.object, time(self.verified))
    }
}

impl fmt::Display for DamagedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match &self.path {
            // A name must not write to the terminal.
            Some(path) => format!("{} (inode {})", path.escape_debug(), self.inode),
            None => format!("inode {}", self.inode),
        };
        let state = match (self.state, self.lost_bytes) {
            (DamageState::Found, _) => "a good copy is looked for".to_owned(),
            (DamageState::Healed, _) => "healed".to_owned(),
            (DamageState::PartlyHealed, lost) => {
                format!("partly healed: {} bytes are lost", lost.unwrap_or(0))
            }
            (DamageState::Lost, _) => "lost".to_owned(),
            (DamageState::Unused, _) => "no file needs it".to_owned(),
        };
        write!(
            f,
            "{file}: bytes {} to {}, at byte {} of {}: {state}. {}",
            self.from, self.to, self.offset, self.object, self.why
        )
    }
}

/// A moment for people.
fn time(seconds: u64) -> String {
    // Far beyond any clock it is shown as the number that it is.
    let moment = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    match moment.filter(|_| seconds < 253_402_300_800) {
        Some(moment) => humantime::format_rfc3339_seconds(moment).to_string(),
        None => seconds.to_string(),
    }
}
