//! The gateway's side of `forebay scrub`: passes requests to the volume, and reports the state of the scrub.

use std::time::{Duration, SystemTime};

use forebay_fs::{DamageState, ScrubStatus, ScrubWait, Volume};

use crate::admin;
use crate::admin::{LastScrub, ScrubReport, ScrubRequest, ScrubRound, ScrubbedPack};

/// Executes the request, and returns the state of the scrub after it.
///
/// # Errors
/// Why it cannot be done, as a message to the user.
pub(crate) async fn answer(volume: &Volume, request: ScrubRequest) -> Result<ScrubReport, String> {
    match request {
        ScrubRequest::Start { age_seconds } => {
            let started = volume.start_scrub(Duration::from_secs(age_seconds));
            started.map_err(|refusal| refusal.to_string())?;
        }
        ScrubRequest::Stop if !volume.stop_scrub() => {
            return Err("no scrub is running".to_owned());
        }
        ScrubRequest::Stop | ScrubRequest::Status => {}
    }
    let status = volume.scrub_status().await;
    status.map(report).map_err(|refusal| refusal.to_string())
}

fn report(status: ScrubStatus) -> ScrubReport {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let round = |round: forebay_fs::ScrubProgress| ScrubRound {
        since: round.since,
        packs: round.packs,
        bytes: round.bytes,
        packs_done: round.packs_done,
        bytes_done: round.bytes_done,
        bytes_per_second: round.bytes_done / now.saturating_sub(round.since).max(1),
        waits_for: round.waits_for.map(|what| match what {
            ScrubWait::Others => "clients read or write".to_owned(),
            ScrubWait::Bucket(why) => format!("the bucket does not answer: {why}"),
        }),
    };
    let last = |end: forebay_fs::ScrubEnd| LastScrub {
        at: end.at,
        packs: end.packs,
        bytes: end.bytes,
        damaged: end.damaged,
        cut_short: end.cut_short,
    };
    let pack = |pack: forebay_fs::CheckedPack| ScrubbedPack {
        object: pack.object,
        verified: pack.checked,
        missing: pack.missing,
        damaged_frames: pack.damaged_frames,
        held: pack.is_held,
        snapshots: pack.snapshots,
    };
    ScrubReport {
        rate_bytes: status.rate,
        interval_seconds: Some(status.interval.as_secs()).filter(|interval| *interval > 0),
        running: status.running.map(round),
        last: status.last.map(last),
        next: status.next,
        packs: status.packs,
        pack_bytes: status.bytes,
        held_packs: status.held_packs,
        held_bytes: status.held_bytes,
        never_verified: status.never,
        oldest_verified: status.oldest,
        newest_verified: status.newest,
        damaged_packs: status.damaged_packs.into_iter().map(pack).collect(),
        more_damaged_packs: status.more_damaged_packs,
        damaged_frames: status.damaged_frames.into_iter().map(frame).collect(),
        more_damaged_frames: status.more_damaged_frames,
    }
}

fn frame(frame: forebay_fs::DamagedFrame) -> admin::DamagedFrame {
    let (state, lost_bytes) = match frame.state {
        DamageState::Found => (admin::DamageState::Found, None),
        DamageState::Healed => (admin::DamageState::Healed, Some(0)),
        DamageState::PartlyHealed { lost_bytes } => {
            (admin::DamageState::PartlyHealed, Some(lost_bytes))
        }
        DamageState::Lost => (admin::DamageState::Lost, Some(frame.to - frame.from)),
        DamageState::Unused => (admin::DamageState::Unused, Some(0)),
    };
    admin::DamagedFrame {
        object: frame.object,
        offset: frame.offset,
        inode: frame.inode.0,
        path: frame
            .path
            .map(|path| String::from_utf8_lossy(&path).into_owned()),
        from: frame.from,
        to: frame.to,
        why: frame.why,
        state,
        lost_bytes,
        snapshots: frame.snapshots,
    }
}
