//! `forebay fsck`: checks the volume in the bucket, and reports inconsistencies.
//!
//! With `--repair` it repairs them. [`forebay_fsck`] does the checks and repairs; this opens the store, shows the
//! progress, and formats the report as text and JSON.

pub(crate) mod bar;
mod json;
mod repair;
mod text;

use std::io::{IsTerminal, stderr};
use std::sync::Arc;

use forebay_fs::Expected;
use forebay_fsck::{CheckError, Options, Progress, Report};
use forebay_object::{Needs, Store};

use crate::cli::FsckRequest;
use crate::config::Config;
use crate::held::{self, Holder};
use crate::store;

/// Number of findings of each kind that are printed, unless all are requested.
const KEEP: usize = 20;
/// The part of `memory_limit` that tables may take, as a divisor; pages and frames in transit take less than the
/// rest.
const MEMORY_SHARE: u64 = 4;

/// The outcome of a check.
#[derive(Debug)]
pub struct Outcome {
    /// The text to print; may be empty.
    pub text: String,
    /// The exit code.
    pub code: u8,
}

/// Checks, or repairs, the volume of the configuration, which must be as `expected`.
///
/// # Errors
/// Why it could not be done, as a message to the user.
pub async fn run(
    config: &Config,
    expected: Expected,
    request: FsckRequest,
) -> Result<Outcome, String> {
    let (store, sources) = store::open_whole(config).await?;
    let memory = config.memory_limit.bytes() / MEMORY_SHARE;
    let options = Options {
        expected,
        sources,
        read_data: request.read_data,
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        keep: if request.all { usize::MAX } else { KEEP },
        pin: !request.no_pin,
    };
    let progress = Arc::new(Progress::default());
    let shown = !request.quiet && stderr().is_terminal();
    let bar = shown.then(|| tokio::spawn(bar::show(progress.clone())));
    // A check works without its note in a bucket that takes no writes.
    let needs = match request.repair {
        true => Needs::Writes,
        false => Needs::Reads,
    };
    let outcome = store::attempt(&store, needs, async {
        match request.repair {
            true => repair::run(config, &store, options, request, progress).await,
            false => checked(&store, &options, request, progress).await,
        }
    })
    .await;
    if let Some(bar) = bar {
        bar.abort();
        bar::clear();
    }
    outcome
}

async fn checked(
    store: &Store,
    options: &Options,
    request: FsckRequest,
    progress: Arc<Progress>,
) -> Result<Outcome, String> {
    let (bucket, root) = (store.store.clone(), store.root.clone());
    let checked = forebay_fsck::check(bucket, root, options, progress).await;
    let report = checked.map_err(|error| unchecked(error, &store.url))?;
    let holders = held::holders(store, report.volume, &report.held_by).await;
    Ok(Outcome {
        code: u8::from(!report.is_clean()),
        text: printed(&report, &holders, request)?,
    })
}

fn unchecked(error: CheckError, url: &str) -> String {
    match error {
        CheckError::Volume(error) => error.at(url).to_string(),
        error => error.to_string(),
    }
}

fn printed(
    report: &Report,
    holders: &[Holder<'_>],
    request: FsckRequest,
) -> Result<String, String> {
    if request.json {
        let report = json::report(report, holders).map_err(|error| error.to_string())?;
        return Ok(format!("{report:#}\n"));
    }
    Ok(match request.quiet && report.is_clean() {
        true => String::new(),
        false => text::report(report, holders),
    })
}
