//! `forebay clone` and `forebay restore --volume`: [`forebay_clones`] does the work; this opens the stores and prints.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use forebay_clones::holds::{self, Hold, Standing};
use forebay_clones::restore::Restore;
use forebay_clones::{CloneError, detach, make, restore};
use forebay_fs::Expected;
use forebay_meta::VolumeDescriptor;
use forebay_meta::record::Timestamp;
use forebay_object::{Needs, Store};
use forebay_salvage::logs::Claim;
use serde_json::json;

use crate::cli::{CloneRequest, VolumeRestore};
use crate::config::Config;
use crate::store;

/// Does what the request about clones asks for, and returns the text to print.
///
/// # Errors
/// Why it could not be done, as a message to the user.
pub async fn run(
    config: &Config,
    expected: Expected,
    request: CloneRequest,
) -> Result<String, String> {
    let source = store::open(config, false).await?;
    let needs = match request {
        CloneRequest::List { .. } => Needs::Reads,
        _ => Needs::Writes,
    };
    store::attempt(&source, needs, async {
        match request {
            CloneRequest::Make { snapshot, to } => {
                made(config, &source, &expected, &snapshot, &to).await
            }
            CloneRequest::List { json } => listed(&source, json).await,
            CloneRequest::Detach { quiet } => detached(&source, &expected, quiet).await,
            CloneRequest::Forget { place } => forgotten(&source, &place).await,
        }
    })
    .await
}

async fn made(
    config: &Config,
    source: &Store,
    expected: &Expected,
    snapshot: &str,
    to: &str,
) -> Result<String, String> {
    let to = forebay_object::open(to, &store::options(config, true)).await;
    let to = to.map_err(|error| error.to_string())?;
    let now = now().as_secs();
    let random = forebay_environment::SystemRandomness;
    let made = make::make(source, &to, snapshot, expected, now, &random).await;
    let made = made.map_err(|error| error.to_string())?;
    let url = &to.url;
    Ok(format!(
        "{url} is a clone of snapshot {:?}: serve it with --store={url} and a data_dir of its own\n",
        made.name
    ))
}

async fn descriptor(store: &Store) -> Result<VolumeDescriptor, String> {
    let loaded = VolumeDescriptor::load(&store.store, &store.root).await;
    loaded.map_err(|error| error.at(&store.url).to_string())
}

/// What a standing is called, for people and in JSON.
fn said(standing: &Standing) -> (&'static str, &'static str) {
    match standing {
        Standing::Needs => ("needs", "needs the snapshot"),
        Standing::Missing => (
            "missing",
            "no volume is there: it is being made, or was deleted (forebay clone forget)",
        ),
        Standing::Detached => ("detached", "is detached, and needs it no more"),
        Standing::Unknown(_) => ("unknown", "cannot be read"),
    }
}

async fn listed(store: &Store, json: bool) -> Result<String, String> {
    let volume = descriptor(store).await?;
    let holds = holds::list(store, volume.volume)
        .await
        .map_err(|error| error.to_string())?;
    let sources = volume.origin.iter().flat_map(|origin| &origin.sources);
    if json {
        let clones = holds.iter().map(|hold| {
            let note = hold.note.as_ref().ok();
            json!({
                "place": hold.clone_name(),
                "volume": note.map(|note| note.clone.to_string()),
                "snapshot": note.map(|note| note.snapshot.0),
                "name": note.map(|note| &note.name),
                "made": note.map(|note| note.made),
                "standing": said(&hold.standing).0,
            })
        });
        let sources = sources.map(|source| {
            json!({
                "place": source.at,
                "volume": source.volume.to_string(),
                "snapshot": source.snapshot.0,
            })
        });
        let report = json!({
            "clones": clones.collect::<Vec<_>>(),
            "sources": sources.collect::<Vec<_>>(),
        });
        return Ok(format!("{report:#}\n"));
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_list(&mut out, &holds, &volume);
    Ok(out)
}

fn write_list(out: &mut String, holds: &[Hold], volume: &VolumeDescriptor) -> std::fmt::Result {
    for hold in holds {
        let snapshot = match &hold.note {
            Ok(note) => format!("snapshot {} ({:?})", note.snapshot.0, note.name),
            Err(why) => format!("all snapshots: {why}"),
        };
        writeln!(
            out,
            "clone {}: {snapshot}, {}",
            hold.clone_name(),
            said(&hold.standing).1
        )?;
    }
    let origin = volume.origin.as_ref();
    for source in origin.iter().flat_map(|origin| &origin.sources) {
        writeln!(out, "source {}: snapshot {}", source.at, source.snapshot.0)?;
    }
    match origin {
        Some(origin) if origin.sources.is_empty() => {
            writeln!(out, "this volume was a clone, and is detached")
        }
        None if holds.is_empty() => writeln!(out, "this volume has no clones, and is none"),
        _ => Ok(()),
    }
}

async fn detached(store: &Store, expected: &Expected, quiet: bool) -> Result<String, String> {
    let shown = !quiet && stderr().is_terminal();
    let progress = |done: usize, all: usize| {
        if shown {
            eprint!("\r{done} of {all} objects");
        }
    };
    let done = detach::detach(store, expected, &progress).await;
    if shown {
        // Clears the line.
        eprint!("\r\x1b[K");
    }
    let done = done.map_err(|error| error.to_string())?;
    Ok(format!(
        "the clone is detached: {} objects, {}, were copied; its source does not keep the snapshot for it any more\n",
        done.objects,
        ByteSize(done.bytes).display().iec()
    ))
}

async fn forgotten(store: &Store, place: &str) -> Result<String, String> {
    let volume = descriptor(store).await?;
    let holds = holds::list(store, volume.volume)
        .await
        .map_err(|error| error.to_string())?;
    let at = |hold: &&Hold| hold.clone_name() == place;
    let found: Vec<_> = holds.iter().filter(at).collect();
    if found.is_empty() {
        return Err(format!(
            "no clone at {place} is known; `forebay clone list` prints all"
        ));
    }
    for hold in found {
        if hold.standing == Standing::Needs {
            return Err(format!(
                "the clone at {place} is there, and needs the snapshot: detach it (`forebay clone detach`), or delete its objects first"
            ));
        }
        holds::remove(store, hold)
            .await
            .map_err(|error| error.to_string())?;
    }
    Ok(format!("no snapshot is kept for {place} any more\n"))
}

/// Restores the whole volume, and returns the text to print.
///
/// # Errors
/// Why it could not be done, as a message to the user.
pub async fn restored(
    config: &Config,
    expected: Expected,
    request: VolumeRestore,
) -> Result<String, String> {
    let store = store::open(config, false).await?;
    store::attempt(&store, Needs::Writes, async {
        // Held to the end: no gateway can start with this machine's folder.
        let claim = Claim::of(&config.data_dir, &store, request.put_log_aside).await;
        let claim = claim.map_err(|error| error.to_string())?;
        let now = now();
        let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + now);
        let restore = Restore {
            snapshot: request.snapshot,
            before: format!("before-restore-{time}"),
            by: format!("a restore, uid {}", rustix::process::getuid().as_raw()),
            now: Timestamp {
                seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
                nanos: now.subsec_nanos(),
            },
            seen: claim.seen(),
            take_over: request.take_over,
        };
        let done = restore::restore(&store, &expected, &restore).await;
        let done = done.map_err(|error: CloneError| error.to_string())?;
        Ok(format!(
            "the volume is as in snapshot {:?}; the state before is snapshot {:?}. Start the gateway\n",
            done.snapshot.name, done.before
        ))
    })
    .await
}

/// Time since 1970. An earlier clock is wrong; the epoch itself is as good an answer.
fn now() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}
