//! `forebay fsck --repair`: reports each step as it is done, and then the remaining findings.

use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use forebay_fsck::{Losses, Observer, Progress, RepairOptions, Repaired, Step};
use forebay_meta::VolumeDescriptor;
use forebay_object::Store;
use forebay_salvage::logs::Claim;
use forebay_types::Epoch;
use serde_json::{Value, json};

use super::{Outcome, json, text};
use crate::cli::FsckRequest;
use crate::config::Config;
use crate::held::{self, Holder};

/// No findings.
const NOTHING: u8 = 0;
/// All findings are repaired, or would be.
const REPAIRED: u8 = 1;
/// Something is left that only a copy of the bucket, or consent to losses, can repair.
const LEFT: u8 = 4;

/// Steps go to standard output as they are done; as JSON, they are one part of the report.
enum StepOutput {
    Lines,
    Gathered(Vec<Value>),
}

impl Observer for StepOutput {
    fn done(&mut self, step: &Step) {
        match self {
            StepOutput::Lines => {
                let mut output = stdout().lock();
                // The repair continues if the reader closes the pipe.
                let _ = writeln!(output, "{}", line(step)).and_then(|()| output.flush());
            }
            // Numbers and texts can always be converted to JSON.
            StepOutput::Gathered(steps) => steps.extend(serde_json::to_value(step)),
        }
    }
}

fn line(step: &Step) -> String {
    let Step { finding, what, .. } = step;
    match &step.path {
        Some(path) => format!("{finding}: {path}: {what}"),
        None => format!("{finding}: {what}"),
    }
}

/// Repairs the volume in `store`, or reports what a repair would do.
pub(super) async fn run(
    config: &Config,
    store: &Store,
    check: forebay_fsck::Options,
    request: FsckRequest,
    progress: Arc<Progress>,
) -> Result<Outcome, String> {
    // The claim is held to the end: no gateway can start with this machine's folder.
    let (_claim, seen) = match request.dry_run {
        true => (None, seen(config, store).await?),
        false => {
            let claim = Claim::of(&config.data_dir, store, request.put_log_aside).await;
            let claim = claim.map_err(|error| error.to_string())?;
            let seen = claim.seen();
            (Some(claim), seen)
        }
    };
    let options = RepairOptions {
        check,
        dry_run: request.dry_run,
        accept_loss: request.accept_loss,
        now: now(),
        seen,
    };
    let mut output = match request.json {
        true => StepOutput::Gathered(Vec::new()),
        false => StepOutput::Lines,
    };
    let (bucket, root) = (store.store.clone(), store.root.clone());
    let repairing = forebay_fsck::repair(bucket, root, &options, progress, &mut output);
    let repaired = repairing.await.map_err(|error| match error {
        forebay_fsck::RepairError::Check(error) => super::unchecked(error, &store.url),
        error => error.to_string(),
    })?;
    let code = match (repaired.after.is_clean(), repaired.steps) {
        (true, 0) => NOTHING,
        (true, _) => REPAIRED,
        (false, _) => LEFT,
    };
    let after = &repaired.after;
    let holders = held::holders(store, after.volume, &after.held_by).await;
    let text = match output {
        StepOutput::Gathered(steps) => {
            let report = report(&repaired, &holders, steps, request);
            format!("{:#}\n", report.map_err(|error| error.to_string())?)
        }
        StepOutput::Lines if request.quiet && code == NOTHING => String::new(),
        StepOutput::Lines => words(&repaired, &holders, request),
    };
    Ok(Outcome { text, code })
}

/// The highest epoch of the volume that the gateway of this machine's folder has seen. That gateway may be running.
async fn seen(config: &Config, store: &Store) -> Result<Epoch, String> {
    let descriptor = VolumeDescriptor::load(&store.store, &store.root).await;
    let volume = descriptor.map_err(|error| error.at(&store.url).to_string())?;
    forebay_fs::epoch_seen(&config.data_dir, volume.volume).map_err(|error| error.to_string())
}

/// Time since 1970. An earlier clock is wrong; the epoch itself is as good an answer.
fn now() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

fn words(repaired: &Repaired, holders: &[Holder<'_>], request: FsckRequest) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_words(repaired, holders, request, &mut out);
    out
}

fn write_words(
    repaired: &Repaired,
    holders: &[Holder<'_>],
    request: FsckRequest,
    out: &mut String,
) -> std::fmt::Result {
    let Repaired { steps, after, lost } = repaired;
    if !after.is_clean() {
        writeln!(out, "\nremaining findings:")?;
    }
    out.push_str(&text::report(after, holders));
    write_losses(lost, out)?;
    match (request.dry_run, steps) {
        (_, 0) => writeln!(out, "nothing was repaired")?,
        (true, steps) => writeln!(
            out,
            "these {steps} steps would be made without --dry-run; nothing was changed"
        )?,
        (false, steps) => writeln!(
            out,
            "{steps} steps were made. The next start of a gateway that had this volume archives its log (forebay log list)"
        )?,
    }
    if !after.is_clean() && !request.accept_loss {
        writeln!(
            out,
            "--accept-loss gives up unreadable data where they prevent a repair; a copy of the bucket may still have them"
        )?;
    }
    Ok(())
}

fn write_losses(lost: &Losses, out: &mut String) -> std::fmt::Result {
    if lost.count == 0 {
        return Ok(());
    }
    let bytes = ByteSize(lost.bytes).display().iec();
    writeln!(out, "{bytes} of files are in damaged or missing packs:")?;
    for loss in &lost.kept {
        let inode = format!("inode {}", loss.inode);
        let file = loss.path.as_ref().unwrap_or(&inode);
        let (from, to, object) = (loss.from, loss.to, &loss.object);
        writeln!(out, "  {file}: bytes {from} to {to}, in {object}")?;
    }
    let more = lost.count.saturating_sub(lost.kept.len() as u64);
    if more > 0 {
        writeln!(out, "  and {more} more: --all prints them")?;
    }
    Ok(())
}

fn report(
    repaired: &Repaired,
    holders: &[Holder<'_>],
    steps: Vec<Value>,
    request: FsckRequest,
) -> serde_json::Result<Value> {
    let lost = repaired.lost.kept.iter().map(|loss| {
        json!({
            "inode": loss.inode.0,
            "path": loss.path,
            "from": loss.from,
            "to": loss.to,
            "pack": loss.pack.to_string(),
            "object": loss.object,
        })
    });
    Ok(json!({
        "dry_run": request.dry_run,
        "steps": steps,
        "after": json::report(&repaired.after, holders)?,
        "lost": {
            "count": repaired.lost.count,
            "bytes": repaired.lost.bytes,
            "examples": lost.collect::<Vec<_>>(),
        },
    }))
}
