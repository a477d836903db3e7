//! Commands about earlier states of the volume, out of the bucket alone: `forebay snapshot list --bucket` and `show --bucket`,
//! `forebay snapshot diff`, `forebay changes` and `forebay versions`.
//!
//! [`forebay_view`] opens the states, [`forebay_changes`] compares them; this prints the results as text and JSON. A gateway may serve
//! the volume meanwhile, and nothing is written to the bucket.

mod changes;
mod snapshots;
mod versions;

use std::io::{self, Write};

use forebay_fs::Expected;
use forebay_object::Needs;
use forebay_view::Published;

use crate::cli::{PastQuestion, PastRequest};
use crate::config::Config;
use crate::store;

/// Answers the request for a volume that must be as `expected`, and prints the result to `output`.
///
/// # Errors
/// Outer: why it could not be done, as a message to the user; inner: why the result could not be printed.
pub async fn run(
    config: &Config,
    expected: &Expected,
    request: &PastRequest,
    output: &mut impl Write,
) -> Result<io::Result<()>, String> {
    let store = store::open(config, false).await?;
    store::attempt(&store, Needs::Reads, async {
        let published = Published::open(&store, expected).await;
        let published = published.map_err(|error| error.to_string())?;
        let json = request.json;
        match &request.question {
            PastQuestion::Changes { since, until } => {
                changes::run(&published, since, until.as_deref(), json, output).await
            }
            PastQuestion::Snapshots { name } => {
                let said = snapshots::said(&published, name.as_deref(), json).await?;
                Ok(print(output, &said))
            }
            PastQuestion::Versions { path } => {
                let said = versions::said(&published, path, json).await?;
                Ok(print(output, &said))
            }
        }
    })
    .await
}

fn print(output: &mut impl Write, text: &str) -> io::Result<()> {
    output.write_all(text.as_bytes())?;
    output.flush()
}
