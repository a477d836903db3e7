//! `forebay gc`: finds objects of the volume that nothing refers to, and deletes them on request.
//!
//! [`forebay_fsck`] decides what is garbage; this opens the store, shows the progress of the search, and formats the
//! result as text and JSON. Packs are rewritten by the gateway.

mod rewriting;

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use forebay_fs::Expected;
use forebay_fsck::{Amount, CheckError, Garbage, GarbageOptions, Progress};
use forebay_object::Needs;
use serde::Serialize;

use crate::admin;
use crate::cli::GcRequest;
use crate::config::Config;
use crate::fsck::{Outcome, bar};
use crate::held::{self, Holder};
use crate::store;
use rewriting::{Rewriting, Watching};

/// Maximum number of objects that are printed by name.
const NAMED: usize = 20;

/// Searches for garbage in the volume of the configuration, which must be as `expected`.
///
/// # Errors
/// Why the volume could not be read completely, as a message to the user.
pub async fn run(
    config: &Config,
    expected: Expected,
    request: GcRequest,
) -> Result<Outcome, String> {
    let (store, _) = store::open_whole(config).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now =
        now.map_err(|_| "the clock of this machine is before 1970: set it right".to_owned())?;
    let options = GarbageOptions {
        expected,
        delete: request.delete,
        grace: request.grace,
        now: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        rewrite_below: config.rewrite_below,
        pin: !request.no_pin,
    };
    let progress = Arc::new(Progress::default());
    let shown = !request.quiet && stderr().is_terminal();
    let line = shown.then(|| tokio::spawn(bar::show(progress.clone())));
    let (bucket, root) = (store.store.clone(), store.root.clone());
    let found = store::attempt(&store, Needs::Reads, async {
        let found = forebay_fsck::garbage(bucket, root, &options, progress).await;
        found.map_err(|error| match error {
            CheckError::Volume(error) => error.at(&store.url).to_string(),
            error => error.to_string(),
        })
    })
    .await;
    if let Some(line) = line {
        line.abort();
        bar::clear();
    }
    let garbage = found?;
    let rewriting = match request.delete && garbage.to_rewrite.count > 0 {
        true => {
            let waits = !request.no_wait;
            let watching = Watching { waits, shown };
            Some(rewriting::ask(&config.data_dir, &store.url, watching).await)
        }
        false => None,
    };
    let holders = held::holders(&store, garbage.volume, &garbage.held_by).await;
    let report = Report {
        garbage: &garbage,
        held_by: holders,
        rewriting: rewriting.as_ref(),
    };
    Ok(Outcome {
        code: u8::from(!garbage.is_clean()),
        text: printed(&report, request)?,
    })
}

/// The JSON output: the numbers of the garbage, what snapshots hold, and the outcome of the request to rewrite, if
/// there was one.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    garbage: &'a Garbage,
    held_by: Vec<Holder<'a>>,
    rewriting: Option<&'a Rewriting>,
}

fn printed(report: &Report<'_>, request: GcRequest) -> Result<String, String> {
    if request.json {
        let report = serde_json::to_value(report).map_err(|error| error.to_string())?;
        return Ok(format!("{report:#}\n"));
    }
    if request.quiet && report.garbage.orphans.count == 0 {
        return Ok(String::new());
    }
    Ok(text(report))
}

fn text(report: &Report<'_>) -> String {
    let Report {
        garbage,
        held_by,
        rewriting,
    } = report;
    let mut out = String::new();
    let mut row = |name: &str, amount: Amount, more: &str| {
        let bytes = ByteSize(amount.bytes).display().iec();
        let text = format!("{}, {bytes}{more}", amount.count);
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:<13} {text}");
    };
    let used = admin::percent_in_use(garbage.live_bytes, garbage.shared_bytes, garbage.raw_bytes);
    let mut more = format!("; {used}% of their bytes are in use");
    if garbage.shared_bytes > 0 {
        let (shared, live) = (ByteSize(garbage.shared_bytes), ByteSize(garbage.live_bytes));
        let (shared, live) = (shared.display().iec(), live.display().iec());
        // Writing to a string does not fail.
        let _ = write!(more, ", {shared} of {live} of files shared");
    }
    row("packs", garbage.packs, &more);
    if garbage.to_rewrite.count > 0 {
        let by_whom = match rewriting {
            None => {
                " would become free; the gateway rewrites in the background, and at once with --delete"
            }
            Some(_) => " would become free",
        };
        row("to rewrite", garbage.to_rewrite, by_whom);
    }
    row(
        "orphans",
        garbage.orphans,
        match garbage.is_clean() {
            true => "",
            false => ": `forebay gc --delete` deletes them",
        },
    );
    if garbage.deleted.count > 0 {
        row("deleted", garbage.deleted, "");
    }
    let others = [
        ("held", garbage.held_packs, ": only snapshots refer to them"),
        ("under way", garbage.under_way, ": of the newest epoch"),
        ("young", garbage.young, ": younger than --grace"),
        (
            "no account",
            garbage.without_account,
            ", but files refer to them: run `forebay fsck`",
        ),
        (
            "foreign",
            garbage.foreign_objects,
            ": not written by this program",
        ),
    ];
    for (name, amount, more) in others {
        if amount.count > 0 {
            row(name, amount, more);
        }
    }
    if let Some(rewriting) = rewriting {
        let _ = writeln!(out, "{:<13} {}", "rewriting", rewriting.described());
    }
    if garbage.dead_packs > 0 {
        let dead = garbage.dead_packs;
        let _ = writeln!(out, "{:<13} {dead}: the gateway deletes them", "dead");
    }
    out += &held::lines(held_by);
    for object in garbage.orphan_objects.iter().take(NAMED) {
        let _ = writeln!(out, "  {object}");
    }
    let more = garbage.orphan_objects.len().saturating_sub(NAMED);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more: --json has them all");
    }
    out
}
