//! The text format of a mutant.
//!
//! ```text
//! The defect of the program, in one line.
//! caught by: cargo test -p forebay-wal --lib
//!
//!   a kept line
//! - a removed line
//! + an added line
//! @@
//! - a line at another place
//! ```

use std::path::Path;

use crate::edit::{Edit, EditError, Kind, Line};

const CAUGHT_BY: &str = "caught by:";
/// Begins the next edit. The rest of the line, in a diff numbers and a function, is ignored.
const NEXT_EDIT: &str = "@@";

/// Why a text is not a valid mutant. Lines are counted from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MutantError {
    /// The first line must name the defect of the program.
    #[error("line 1 does not describe the defect")]
    NoDefect,
    /// The second line must name a suite.
    #[error("no line \"{CAUGHT_BY} COMMAND\" follows the first one")]
    NoSuite,
    /// The head must end with an empty line.
    #[error("line {0} follows the suites and is not empty")]
    Head(usize),
    /// It has only a head.
    #[error("it has no edit")]
    NoEdit,
    /// Lines of edits must begin with their kind.
    #[error("line {0} begins with none of \" \", \"-\", \"+\" and \"{NEXT_EDIT}\"")]
    Line(usize),
    /// An edit is not valid.
    #[error("the edit from line {0} on: {1}")]
    Edit(usize, #[source] EditError),
}

/// One defect of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name of its file, without the extension.
    pub name: String,
    /// The defect of the program, in one line without its full stop.
    pub defect: String,
    /// The commands that must fail with it, all of them.
    pub suites: Vec<String>,
    /// The edits, each at another place.
    pub edits: Vec<Edit>,
}

impl Mutant {
    /// The extension of files with mutants.
    pub const ENDING: &str = "mutant";

    /// Reads the text of a mutant.
    pub fn parse(name: &str, text: &str) -> Result<Mutant, MutantError> {
        let mut lines = (1..).zip(text.lines()).peekable();
        let defect = lines.next().map_or("", |(_, line)| line.trim());
        if defect.is_empty() || defect.starts_with(CAUGHT_BY) {
            return Err(MutantError::NoDefect);
        }
        let mut suites = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with(CAUGHT_BY)) {
            suites.push(line[CAUGHT_BY.len()..].trim().to_owned());
        }
        if suites.is_empty() || suites.iter().any(String::is_empty) {
            return Err(MutantError::NoSuite);
        }
        match lines.peek() {
            None => return Err(MutantError::NoEdit),
            Some((_, line)) if line.trim().is_empty() => {}
            Some((number, _)) => return Err(MutantError::Head(*number)),
        }

        let mut edits = Vec::new();
        let mut begun: Option<(usize, Vec<Line>)> = None;
        for (number, line) in lines {
            if line.starts_with(NEXT_EDIT) {
                finish(&mut edits, begun.take())?;
                continue;
            }
            let line = edit_line(line).ok_or(MutantError::Line(number))?;
            // The empty lines between two edits begin no edit.
            if begun.is_some() || line.kind != Kind::Kept || !line.text.is_empty() {
                begun.get_or_insert((number, Vec::new())).1.push(line);
            }
        }
        finish(&mut edits, begun)?;
        if edits.is_empty() {
            return Err(MutantError::NoEdit);
        }
        Ok(Mutant {
            name: name.to_owned(),
            defect: defect.trim_end_matches('.').to_owned(),
            suites,
            edits,
        })
    }

    /// The name of the mutant in a file; `None` if it is no file of a mutant.
    pub fn name_of(file: &Path) -> Option<&str> {
        let ending = file.extension()?;
        (ending == Mutant::ENDING).then(|| file.file_stem()?.to_str())?
    }

    /// A checksum of the edits, which does not depend on the head or the indentation.
    pub fn mark(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        for edit in &self.edits {
            hash.update(b"@\n");
            for line in edit.lines() {
                hash.update(&[line.kind as u8]);
                hash.update(line.text.trim().as_bytes());
                hash.update(b"\n");
            }
        }
        hash.finalize()
    }
}

fn edit_line(line: &str) -> Option<Line> {
    let kind = match line.chars().next() {
        None | Some(' ') => Kind::Kept,
        Some('-') => Kind::Removed,
        Some('+') => Kind::Added,
        Some(_) => return None,
    };
    let text = line.get(1..).unwrap_or_default().to_owned();
    Some(Line { kind, text })
}

fn finish(edits: &mut Vec<Edit>, begun: Option<(usize, Vec<Line>)>) -> Result<(), MutantError> {
    if let Some((number, lines)) = begun {
        edits.push(Edit::new(lines).map_err(|error| MutantError::Edit(number, error))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Nothing is flushed.
caught by: cargo test -p forebay-wal --lib
caught by: cargo test --test program

  fn flush() {
-     sync();
  }

@@ -1,3 +2,4 @@ fn flush()
+ // Nothing.
  call();
";

    fn parse(text: &str) -> Result<Mutant, MutantError> {
        Mutant::parse("no-flush", text)
    }

    #[test]
    fn a_mutant_has_a_defect_suites_and_edits() {
        let mutant = parse(TEXT).unwrap();
        assert_eq!(mutant.defect, "Nothing is flushed");
        assert_eq!(
            mutant.suites,
            [
                "cargo test -p forebay-wal --lib",
                "cargo test --test program"
            ]
        );
        let snippets: Vec<Vec<_>> = mutant
            .edits
            .iter()
            .map(|edit| edit.snippet().collect())
            .collect();
        assert_eq!(
            snippets,
            [vec!["fn flush() {", "sync();", "}"], vec!["call();"]]
        );
    }

    #[test]
    fn ends_of_lines_do_not_matter() {
        let mutant = parse(TEXT).unwrap();
        assert_eq!(parse(&TEXT.replace('\n', "\r\n")).as_ref(), Ok(&mutant));
        assert_eq!(parse(TEXT.trim_end()).as_ref(), Ok(&mutant));
    }

    #[test]
    fn what_is_missing_is_named() {
        let head = "Nothing is flushed.\n";
        let suite = "caught by: x\n";
        for (text, error) in [
            (String::new(), MutantError::NoDefect),
            (format!("\n{suite}\n- a\n"), MutantError::NoDefect),
            (format!("{suite}\n- a\n"), MutantError::NoDefect),
            (format!("{head}\n- a\n"), MutantError::NoSuite),
            (format!("{head}caught by:\n\n- a\n"), MutantError::NoSuite),
            (format!("{head}{suite}- a\n"), MutantError::Head(3)),
            (format!("{head}{suite}"), MutantError::NoEdit),
            (format!("{head}{suite}\n\n@@\n"), MutantError::NoEdit),
            (format!("{head}{suite}\n- a\nb\n"), MutantError::Line(5)),
            (format!("{head}{suite}\né\n"), MutantError::Line(4)),
            (
                format!("{head}{suite}\n- a\n@@\n- b\n+ b\n"),
                MutantError::Edit(6, EditError::NothingChanged),
            ),
        ] {
            assert_eq!(parse(&text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_mark_is_one_of_the_edits_alone() {
        let mark = |text: &str| parse(text).unwrap().mark();
        let reworded = TEXT.replace("Nothing is", "Nothing is ever");
        assert_eq!(mark(TEXT), mark(&reworded));
        assert_eq!(mark(TEXT), mark(&TEXT.replace("-     sync", "- sync")));
        assert_ne!(mark(TEXT), mark(&TEXT.replace("sync", "flush")));
        assert_ne!(mark(TEXT), mark(&TEXT.replace("+ // N", "- // N")));
    }

    #[test]
    fn files_of_mutants_are_told_by_their_ending() {
        assert_eq!(
            Mutant::name_of(Path::new("a/no-flush.mutant")),
            Some("no-flush")
        );
        assert_eq!(Mutant::name_of(Path::new("a/results.tsv")), None);
        assert_eq!(Mutant::name_of(Path::new("a/mutant")), None);
    }
}
