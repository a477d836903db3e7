//! `forebay changes` and `forebay snapshot diff`.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use forebay_changes::{Change, CompareError, Pair, What, compare, is_compared};
use forebay_meta::{SlateReader, StoreError, keys_that_may_differ};
use forebay_view::{Published, ViewError};
use serde::Serialize;

use crate::admin::VolumePath;

/// Bytes of output that are written together.
const BUFFER: usize = 64 << 10;

/// A change as a line of JSON.
#[derive(Serialize)]
struct Line {
    change: &'static str,
    path: VolumePath,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<VolumePath>,
    inode: u64,
    directory: bool,
}

/// Prints the changes from the snapshot `since` to the snapshot `until`, or to the newest state.
pub(super) async fn run(
    published: &Published,
    since: &str,
    until: Option<&str>,
    json: bool,
    output: &mut impl Write,
) -> Result<io::Result<()>, String> {
    let old = snapshot(published, since).await;
    let old = old.map_err(|error| error.to_string())?;
    let new = match until {
        Some(until) => snapshot(published, until).await,
        None => Ok(published.newest().clone()),
    };
    let new = new.map_err(|error| error.to_string())?;
    let mut output = BufWriter::with_capacity(BUFFER, output);
    let each = |change| match json {
        true => write_json(change, &mut output),
        false => write_text(&change, &mut output),
    };
    let compared = async {
        let keys = keys_that_may_differ(&old, &new, is_compared).await?;
        compare(&Pair::new(old.clone(), new.clone(), keys), each).await
    };
    match compared.await {
        Ok(()) => Ok(output.flush()),
        Err(CompareError::Output(error)) => Ok(Err(error)),
        Err(CompareError::Store(StoreError::Gone(why))) if until.is_none() => Err(format!(
            "{why}: the gateway has replaced it meanwhile; try again, or name a snapshot with --until"
        )),
        Err(error) => Err(error.to_string()),
    }
}

async fn snapshot(published: &Published, wanted: &str) -> Result<Arc<SlateReader>, ViewError> {
    let (id, record) = published.find(wanted)?;
    published.open_snapshot(id, record).await
}

fn word(what: &What) -> &'static str {
    match what {
        What::Made => "made",
        What::Removed => "removed",
        What::Content => "content",
        What::Attributes => "attributes",
        What::Renamed { .. } => "renamed",
        What::LinkAdded => "link-added",
        What::LinkRemoved => "link-removed",
    }
}

fn write_json(change: Change, output: &mut impl Write) -> io::Result<()> {
    let line = Line {
        change: word(&change.what),
        path: VolumePath(change.path),
        from: match change.what {
            What::Renamed { from } => Some(VolumePath(from)),
            _ => None,
        },
        inode: change.inode.0,
        directory: change.is_directory,
    };
    serde_json::to_writer(&mut *output, &line)?;
    output.write_all(b"\n")
}

/// Names cannot send control characters to the terminal; directories end in a slash.
fn write_text(change: &Change, output: &mut impl Write) -> io::Result<()> {
    write!(output, "{:<13} ", word(&change.what))?;
    let end = match change.is_directory && change.path != b"/" {
        true => "/",
        false => "",
    };
    if let What::Renamed { from } = &change.what {
        write!(output, "{}{end} -> ", from.escape_ascii())?;
    }
    writeln!(output, "{}{end}", change.path.escape_ascii())
}

#[cfg(test)]
mod tests {
    use forebay_types::Inode;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut output = Vec::new();
        write(&mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn names_are_escaped_in_text_and_exact_in_json() {
        let change = Change {
            path: b"/a/\xff\x1b[2J".to_vec(),
            what: What::Renamed {
                from: b"/b%\n".to_vec(),
            },
            inode: Inode(7),
            is_directory: true,
        };
        let text = written(|output| write_text(&change, output));
        assert_eq!(text, "renamed       /b%\\n/ -> /a/\\xff\\x1b[2J/\n");
        let json = written(|output| write_json(change, output));
        let expected = r#"{"change":"renamed","path":"/a/%FF%1B[2J","from":"/b%25%0A","inode":7,"directory":true}"#;
        assert_eq!(json, format!("{expected}\n"));
    }

    #[test]
    fn the_root_is_one_slash() {
        let change = Change {
            path: b"/".to_vec(),
            what: What::Attributes,
            inode: Inode::ROOT,
            is_directory: true,
        };
        let text = written(|output| write_text(&change, output));
        assert_eq!(text, "attributes    /\n");
    }
}
