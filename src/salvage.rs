//! `forebay salvage`: writes the content of the packs as files, for a volume whose metadata are lost.
//!
//! [`forebay_salvage`] reads the packs; this opens the store, shows the progress, and lists the data that could not be
//! salvaged.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use forebay_fs::Expected;
use forebay_fsck::Progress;
use forebay_salvage::packs::{Salvage, SalvageError, SalvageObserver, Salvaged, Unsalvaged};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli::SalvageRequest;
use crate::config::Config;
use crate::fsck::bar;
use crate::store;

/// Names of the lists of data that could not be salvaged, which exist if there are any: for people, and for programs.
const LOST: &str = "LOST.txt";
const LOST_LINES: &str = "LOST.jsonl";
/// Name of the text that describes the result, and its limits.
const MANIFEST: &str = "MANIFEST.txt";

/// The facts that are not in packs.
const WARNING: &str =
    "Files are named by their inode numbers: names, folders, owners, modes and times are not in \
packs. A file ends
where its last stored byte is, and has zeros where nothing was stored; it may have been longer \
or shorter. Bytes that
were stored later were written over earlier ones, by the numbers of the packs. Files that \
had been removed, and ends
that had been cut off, may be among these.
";

/// The list of data that could not be salvaged, written during the salvage.
struct List {
    path: PathBuf,
    file: Option<File>,
    json: bool,
}

impl List {
    fn end(self) -> io::Result<()> {
        self.file.map_or(Ok(()), |file| file.sync_all())
    }
}

impl SalvageObserver for List {
    fn lost(&mut self, unsalvaged: &Unsalvaged) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::create_new(&self.path)?,
        };
        let lines = match self.json {
            true => format!("{}\n", line(unsalvaged)),
            false => lines(unsalvaged),
        };
        self.file.insert(file).write_all(lines.as_bytes())
    }
}

fn lines(unsalvaged: &Unsalvaged) -> String {
    let Unsalvaged {
        object, from, to, ..
    } = unsalvaged;
    let why = unsalvaged.why.as_deref().unwrap_or("damaged");
    let mut out = format!("{object}: bytes {from} to {to} cannot be read: {why}\n");
    for lost in &unsalvaged.of {
        let (inode, from, to) = (lost.inode, lost.from, lost.to);
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "  inode {inode}: bytes {from} to {to} are older than they were, or zeros"
        );
    }
    if !unsalvaged.is_all {
        out += "  the affected files are not known: the index of the pack is damaged as well\n";
    }
    out
}

/// An entry of the list for programs.
fn line(unsalvaged: &Unsalvaged) -> Value {
    let of = unsalvaged
        .of
        .iter()
        .map(|lost| json!({ "inode": lost.inode.0, "from": lost.from, "to": lost.to }));
    json!({
        "pack": unsalvaged.pack.to_string(),
        "object": unsalvaged.object,
        "from": unsalvaged.from,
        "to": unsalvaged.to,
        "why": unsalvaged.why.as_deref().unwrap_or("damaged"),
        "of": of.collect::<Vec<_>>(),
        "of_is_all": unsalvaged.is_all,
    })
}

/// Salvages the volume of the configuration, which must be as `expected`. Returns the text to print.
///
/// # Errors
/// Why it could not be done, as a message to the user.
pub async fn run(
    config: &Config,
    expected: Expected,
    request: &SalvageRequest,
) -> Result<String, String> {
    let store = store::open(config, false).await?;
    let progress = Arc::new(Progress::default());
    let shown = !request.quiet && stderr().is_terminal();
    let bar = shown.then(|| tokio::spawn(bar::show(progress.clone())));
    let name = match request.json {
        true => LOST_LINES,
        false => LOST,
    };
    let mut list = List {
        path: request.to.join(name),
        file: None,
        json: request.json,
    };
    let place = Salvage {
        store: store.store.clone(),
        root: store.root.clone(),
        expected,
    };
    let begun = Instant::now();
    let outcome = forebay_salvage::packs::salvage(place, &request.to, progress, &mut list).await;
    if let Some(bar) = bar {
        bar.abort();
        bar::clear();
    }
    let salvaged = outcome.map_err(|error| {
        let error = match error {
            SalvageError::Volume(error) => error.at(&store.url).to_string(),
            error => error.to_string(),
        };
        store.explained(begun, error)
    })?;
    let text = words(&salvaged, &request.to, name);
    list.end()
        .and_then(|()| write_manifest(&request.to, &text))
        .map_err(|error| format!("{}: {error}", request.to.display()))?;
    Ok(match request.json {
        true => format!("{:#}\n", report(&salvaged, &request.to)),
        false => text,
    })
}

/// The result for programs.
fn report(salvaged: &Salvaged, to: &Path) -> Value {
    let list = (salvaged.unsalvaged > 0).then(|| to.join(LOST_LINES));
    json!({
        "to": to.to_string_lossy(),
        "packs": salvaged.packs,
        "frames": salvaged.frames,
        "bytes": salvaged.bytes,
        "files": salvaged.files,
        "unsalvaged": salvaged.unsalvaged,
        "lost": list.as_deref().map(Path::to_string_lossy),
    })
}

fn words(salvaged: &Salvaged, to: &Path, list: &str) -> String {
    let Salvaged {
        packs,
        frames,
        files,
        unsalvaged,
        ..
    } = salvaged;
    let bytes = ByteSize(salvaged.bytes).display().iec();
    let to = to.display();
    let mut out = format!(
        "{files} files are in {to}/files, from {frames} frames of {bytes} in {packs} packs\n{WARNING}"
    );
    // Writing to a string does not fail.
    let _ = match unsalvaged {
        0 => writeln!(out, "Every pack was read completely."),
        count => writeln!(
            out,
            "{count} ranges of packs could not be read: {to}/{list} lists them."
        ),
    };
    out
}

fn write_manifest(to: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(to.join(MANIFEST))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(to)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_salvage::packs::LostRange;
    use forebay_types::{Inode, PackId};

    #[test]
    fn what_is_lost_is_said_with_object_file_and_range() {
        let mut unsalvaged = Unsalvaged {
            pack: PackId(1),
            object: "packs/01/0000000000000001.pack".to_owned(),
            from: 40,
            to: 400,
            of: vec![LostRange {
                inode: Inode(17),
                from: 0,
                to: 200,
            }],
            is_all: true,
            why: None,
        };
        assert_eq!(
            lines(&unsalvaged),
            "packs/01/0000000000000001.pack: bytes 40 to 400 cannot be read: damaged\n  inode 17: \
             bytes 0 to 200 are older than they were, or zeros\n"
        );
        assert_eq!(
            line(&unsalvaged).to_string(),
            r#"{"from":40,"object":"packs/01/0000000000000001.pack","of":[{"from":0,"inode":17,"to":200}],"#.to_owned()
                + r#""of_is_all":true,"pack":"0000000000000001","to":400,"why":"damaged"}"#
        );
        unsalvaged.of.clear();
        unsalvaged.is_all = false;
        assert!(lines(&unsalvaged).contains("not known"));
    }
}
