//! `forebay fsck`: checks the volume in the bucket, and says what does not fit together.
//!
//! With `--repair` it puts that right. What is checked and repaired is for [`forebay_fsck`] to know; this opens the store,
//! shows how far the check has come, and puts the report into words and JSON.

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
use crate::store;

/// Findings of each kind that are printed, unless all are wanted.
const KEEP: usize = 20;
/// The share of `memory_limit` that tables may take; pages and frames on their way take less than the rest.
const MEMORY_SHARE: u64 = 4;

/// What a check has come to.
#[derive(Debug)]
pub struct Outcome {
    /// What is to be printed; nothing, perhaps.
    pub text: String,
    /// The exit code.
    pub code: u8,
}

/// Checks, or repairs, the volume that the configuration names, and that is as `expected`.
///
/// # Errors
/// Why it could not be done, for the user to read.
pub async fn run(
    config: &Config,
    expected: Expected,
    request: FsckRequest,
) -> Result<Outcome, String> {
    let store = store::open(config, false).await?;
    let memory = config.memory_limit.bytes() / MEMORY_SHARE;
    let options = Options {
        expected,
        read_data: request.read_data,
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        keep: if request.all { usize::MAX } else { KEEP },
        pin: !request.no_pin,
    };
    let progress = Arc::new(Progress::default());
    let shown = !request.quiet && stderr().is_terminal();
    let bar = shown.then(|| tokio::spawn(bar::show(progress.clone())));
    // A check goes on without its note in a bucket that takes no writes.
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
    Ok(Outcome {
        code: u8::from(!report.is_clean()),
        text: printed(&report, request)?,
    })
}

fn unchecked(error: CheckError, url: &str) -> String {
    match error {
        CheckError::Volume(error) => error.at(url).to_string(),
        error => error.to_string(),
    }
}

fn printed(report: &Report, request: FsckRequest) -> Result<String, String> {
    if request.json {
        let report = json::report(report).map_err(|error| error.to_string())?;
        return Ok(format!("{report:#}\n"));
    }
    Ok(match request.quiet && report.is_clean() {
        true => String::new(),
        false => text::report(report),
    })
}
