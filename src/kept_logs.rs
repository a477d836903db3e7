//! `forebay log`: the content of the logs in `data_dir` that is not in the bucket.
//!
//! [`forebay_salvage::logs`] interprets the records; this formats them as text and JSON.

mod json;
mod text;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_fs::Expected;
use forebay_object::Needs;
use forebay_salvage::logs::{Label, Logs, Salvage};
use forebay_seal::DataKeys;
use forebay_types::Lsn;
use forebay_view::View;

use crate::cli::LogRequest;
use crate::config::{Config, Sealing};
use crate::store;

/// Name of the list of salvaged files, for people.
const MANIFEST_TEXT: &str = "MANIFEST.txt";
/// The same list for programs.
const MANIFEST_JSON: &str = "manifest.json";

/// Whether the request reads the volume in its bucket.
pub fn needs_volume(request: &LogRequest) -> bool {
    matches!(
        request,
        LogRequest::Salvage {
            ranges_only: false,
            ..
        }
    )
}

/// Whether the request needs the credentials of the volume: for the volume itself, or for a sealed log if the volume
/// is sealed according to the configuration.
pub fn needs_keys(config: &Config, request: &LogRequest) -> bool {
    if needs_volume(request) {
        return true;
    }
    let Ok(logs) = Logs::open(&config.data_dir) else {
        // The error is reported when the logs are opened again.
        return false;
    };
    config.encryption != Sealing::Off && is_locked(&logs, request)
}

/// Whether the request needs the records of a sealed log.
fn is_locked(logs: &Logs, request: &LogRequest) -> bool {
    match request {
        LogRequest::List { .. } => logs.is_locked(None),
        LogRequest::Show { label, .. } | LogRequest::Salvage { label, .. } => {
            logs.is_locked(Some(&Label::parse(label)))
        }
        LogRequest::Forget { .. } | LogRequest::ForgetSalvaged => false,
    }
}

/// Executes the request for a volume that must be as `expected`, and prints the result to `output`.
///
/// # Errors
/// Outer: why it could not be done, as a message to the user; inner: why the result could not be printed.
pub async fn run(
    config: &Config,
    expected: &Expected,
    request: &LogRequest,
    output: &mut impl Write,
) -> Result<io::Result<()>, String> {
    let failed = |error: forebay_salvage::logs::LogsError| error.to_string();
    let open =
        |keys| Logs::open_with(&config.data_dir, keys, config.seal_log.is_on()).map_err(failed);
    let mut logs = open(None)?;
    let base = match needs_volume(request) {
        true => Some(open_base(config, expected).await?),
        false => None,
    };
    if is_locked(&logs, request) {
        let keys = match &base {
            Some(base) => base.data_keys(),
            None => log_keys(config, expected, request).await?,
        };
        logs = open(keys)?;
    }
    let said = match request {
        LogRequest::List { json: false } => text::list(&logs),
        LogRequest::List { json: true } => format!("{:#}\n", json::list(&logs)),
        LogRequest::Show { label, from, json } => {
            return show(&logs, &Label::parse(label), *from, *json, output);
        }
        LogRequest::Salvage { label, to, .. } => {
            salvage(&logs, &Label::parse(label), to, base.as_ref()).await?
        }
        LogRequest::ForgetSalvaged => forget_salvaged(&logs)?,
        LogRequest::Forget { label, force } => forget(&logs, &Label::parse(label), *force)?,
    };
    Ok(output
        .write_all(said.as_bytes())
        .and_then(|()| output.flush()))
}

/// The keys of sealed logs. A list works without them.
async fn log_keys(
    config: &Config,
    expected: &Expected,
    request: &LogRequest,
) -> Result<Option<Arc<DataKeys>>, String> {
    if let Expected::NotSealed = expected {
        return Ok(None);
    }
    let found = async {
        let store = store::open(config, false).await?;
        let keys = async {
            let keys = forebay_view::data_keys(&store, expected).await;
            keys.map_err(|error| error.to_string())
        };
        store::attempt(&store, Needs::Reads, keys).await
    };
    match (found.await, request) {
        (Err(error), LogRequest::List { .. }) => {
            tracing::warn!("sealed logs are counted and not read: {error}");
            Ok(None)
        }
        (found, _) => found.map_err(|error| {
            format!("{error}; the log is sealed: name its volume's store with --store")
        }),
    }
}

async fn open_base(config: &Config, expected: &Expected) -> Result<View, String> {
    let hint = |error: String| {
        format!(
            "{error}; name the volume's store with --store, or salvage without it with --ranges-only"
        )
    };
    let store = store::open(config, false).await.map_err(hint)?;
    let base = async {
        let base = View::open(&store, expected).await;
        base.map_err(|error| error.to_string())
    };
    store::attempt(&store, Needs::Reads, base)
        .await
        .map_err(hint)
}

fn show(
    logs: &Logs,
    label: &Label,
    from: Option<u64>,
    json: bool,
    output: &mut impl Write,
) -> Result<io::Result<()>, String> {
    let from = match from {
        Some(from) => Lsn(from),
        None => {
            let info = logs.info(label).map_err(|error| error.to_string())?;
            info.published.map_or(Lsn::ZERO, |published| published.lsn)
        }
    };
    let mut events = logs
        .events(label, from)
        .map_err(|error| error.to_string())?;
    while let Some(event) = events.next() {
        let line = if json {
            json::event(&event).to_string()
        } else {
            text::event(&event)
        };
        if let Err(error) = writeln!(output, "{line}") {
            return Ok(Err(error));
        }
    }
    Ok(output.flush())
}

async fn salvage(
    logs: &Logs,
    label: &Label,
    to: &Path,
    base: Option<&View>,
) -> Result<String, String> {
    let salvaged = logs
        .salvage(label, to, base)
        .await
        .map_err(|error| error.to_string())?;
    write_manifests(&salvaged, to).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(text::outcome(&salvaged, to))
}

fn write_manifests(salvaged: &Salvage, to: &Path) -> io::Result<()> {
    let write = |name: &str, content: String| {
        let mut file = std::fs::File::create_new(to.join(name))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()
    };
    write(MANIFEST_TEXT, text::manifest(salvaged))?;
    write(MANIFEST_JSON, format!("{:#}\n", json::manifest(salvaged)))
}

fn forget(logs: &Logs, label: &Label, force: bool) -> Result<String, String> {
    let failed = |error: forebay_salvage::logs::LogsError| error.to_string();
    let info = logs.info(label).map_err(failed)?;
    let salvaged = logs.salvaged_to(label);
    let bytes = logs.forget(label, force).map_err(failed)?;
    Ok(text::forgotten(&info, salvaged.as_deref(), bytes))
}

fn forget_salvaged(logs: &Logs) -> Result<String, String> {
    let mut said = String::new();
    for label in logs.archived() {
        if logs.salvaged_to(&label).is_some() {
            said += &forget(logs, &label, false)?;
        }
    }
    Ok(match said.is_empty() {
        true => "no archived log was salvaged: nothing is deleted\n".to_owned(),
        false => said,
    })
}
