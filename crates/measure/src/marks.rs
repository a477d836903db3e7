//! Tables in texts: a program's output stands between two marks, and is replaced there.
//!
//! ```text
//! <!-- the output of NAME: begin -->
//!
//! the tables
//!
//! <!-- the output of NAME: end -->
//! ```

use std::io;
use std::path::Path;

/// Why a table could not be put into a text.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The text cannot be read or written.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The text has no such marks.
    #[error("{text} has no line {mark:?}: put it where the table is to stand")]
    Missing {
        /// The file.
        text: String,
        /// The line that is missing.
        mark: String,
    },
}

fn line(name: &str, end: &str) -> String {
    format!("<!-- the output of {name}: {end} -->")
}

/// `text` with `tables` between the marks of `name`; the error is the missing mark.
fn replaced(text: &str, name: &str, tables: &str) -> Result<String, String> {
    let (begins, ends) = (line(name, "begin"), line(name, "end"));
    let Some((before, rest)) = text.split_once(&begins) else {
        return Err(begins);
    };
    let Some((_, behind)) = rest.split_once(&ends) else {
        return Err(ends);
    };
    let tables = tables.trim_matches('\n');
    Ok(format!("{before}{begins}\n\n{tables}\n\n{ends}{behind}"))
}

/// Puts tables between the marks of `name` in this file. On an error the file stays unchanged.
pub fn update(text: &Path, name: &str, tables: &str) -> Result<(), MarkError> {
    let shown = || text.display().to_string();
    let failed = |error| MarkError::Io(shown(), error);
    let content = std::fs::read_to_string(text).map_err(failed)?;
    let content = replaced(&content, name, tables).map_err(|mark| MarkError::Missing {
        text: shown(),
        mark,
    })?;
    std::fs::write(text, content).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Head\n\n<!-- the output of a: begin -->\n\nold\n\n<!-- the output of a: end -->\n\n\
                        <!-- the output of b: begin -->\n<!-- the output of b: end -->\nfoot\n";

    #[test]
    fn only_what_is_between_the_marks_of_that_name_changes() {
        let first = replaced(TEXT, "a", "| new |\n").unwrap();
        assert_eq!(first, TEXT.replace("old", "| new |"));
        let second = replaced(&first, "b", "table").unwrap();
        assert!(second.starts_with(first.split_once("<!-- the output of b").unwrap().0));
        assert!(second.ends_with("b: begin -->\n\ntable\n\n<!-- the output of b: end -->\nfoot\n"));
    }

    #[test]
    fn doing_it_twice_changes_nothing_more() {
        let once = replaced(TEXT, "b", "\n| x |\n\n").unwrap();
        assert_eq!(replaced(&once, "b", "\n| x |\n\n").as_ref(), Ok(&once));
    }

    #[test]
    fn the_mark_that_is_missing_is_named() {
        let mark = |text: &str, name| replaced(text, name, "").unwrap_err();
        assert_eq!(mark(TEXT, "c"), "<!-- the output of c: begin -->");
        let headless = TEXT.replace("a: end", "a: fin");
        assert_eq!(mark(&headless, "a"), "<!-- the output of a: end -->");
        // An end before its beginning does not count.
        let reversed = "<!-- the output of a: end -->\n<!-- the output of a: begin -->\n";
        assert_eq!(mark(reversed, "a"), "<!-- the output of a: end -->");
    }

    #[test]
    fn a_text_without_marks_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text.md");
        std::fs::write(&text, "nothing\n").unwrap();
        let error = update(&text, "a", "table").unwrap_err().to_string();
        assert!(error.contains("text.md has no line"), "{error}");
        assert_eq!(std::fs::read_to_string(&text).unwrap(), "nothing\n");
        std::fs::write(&text, TEXT).unwrap();
        update(&text, "a", "table").unwrap();
        assert_eq!(
            std::fs::read_to_string(&text).unwrap(),
            TEXT.replace("old", "table")
        );
    }
}
