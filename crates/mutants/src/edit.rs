//! One edit: a hunk of a diff without its position.

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It stays, and only locates the edit.
    Kept,
    /// It is removed.
    Removed,
    /// It is added.
    Added,
}

/// A line of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Kind of the line.
    pub kind: Kind,
    /// The line in the mutant's file, with its indentation and without its end.
    pub text: String,
}

/// Why lines are not a valid edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The edit leaves the program as it is.
    #[error("the edit changes nothing")]
    NothingChanged,
    /// It only adds lines, and nothing locates it.
    #[error("the edit has no line that is found in the sources: add one that stays")]
    NoSnippet,
}

/// Lines that are kept, removed and added at one place. At least one of them locates the edit, and the edit changes
/// something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    lines: Vec<Line>,
}

impl Edit {
    /// Makes an edit of these lines. Empty kept lines at either end are ignored.
    pub fn new(mut lines: Vec<Line>) -> Result<Edit, EditError> {
        let is_filler = |line: &Line| line.kind == Kind::Kept && line.text.trim().is_empty();
        while lines.last().is_some_and(is_filler) {
            lines.pop();
        }
        let fillers = lines.iter().take_while(|line| is_filler(line)).count();
        lines.drain(..fillers);

        let edit = Edit { lines };
        if edit.snippet().eq(edit.replacement()) {
            return Err(EditError::NothingChanged);
        }
        if edit.snippet().all(str::is_empty) {
            return Err(EditError::NoSnippet);
        }
        Ok(edit)
    }

    /// All lines, in their order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The lines that must be adjacent at one place of the sources, without their indentation.
    pub fn snippet(&self) -> impl Iterator<Item = &str> + Clone {
        self.without(Kind::Added)
    }

    /// The lines after the edit, without their indentation.
    fn replacement(&self) -> impl Iterator<Item = &str> {
        self.without(Kind::Removed)
    }

    fn without(&self, kind: Kind) -> impl Iterator<Item = &str> + Clone {
        let lines = self.lines.iter().filter(move |line| line.kind != kind);
        lines.map(|line| line.text.trim())
    }

    /// The numbers of kept lines at the beginning and at the end, which only locate the edit.
    pub(crate) fn margins(&self) -> (usize, usize) {
        let kept = |line: &&Line| line.kind == Kind::Kept;
        let first = self.lines.iter().take_while(kept).count();
        let last = self.lines.iter().rev().take_while(kept).count();
        (first, last)
    }

    /// The result of applying the edit to these lines of a source, which match the snippet. Kept lines keep their
    /// bytes. An added line keeps its indentation relative to the last snippet line before it, or else to the first one
    /// behind it.
    pub fn applied(&self, source: &[&str]) -> String {
        let mut text = String::new();
        let mut at = 0;
        for (index, line) in self.lines.iter().enumerate() {
            match line.kind {
                Kind::Kept => push_line(&mut text, source[at]),
                Kind::Removed => {}
                Kind::Added => {
                    let end = if source[0].ends_with("\r\n") {
                        "\r\n"
                    } else {
                        "\n"
                    };
                    let shifted = shifted(&line.text, self.shift(index, source));
                    push_line(&mut text, &format!("{shifted}{end}"));
                }
            }
            at += usize::from(line.kind != Kind::Added);
        }
        text
    }

    /// How much more the source is indented than the edit, at the line with this index.
    fn shift(&self, index: usize, source: &[&str]) -> isize {
        let old = self.lines.iter().enumerate();
        let old = old.filter(|(_, line)| line.kind != Kind::Added);
        let mut pairs = old
            .zip(source)
            .filter(|((_, line), _)| !line.text.trim().is_empty());
        let mut nearest = None;
        for ((at, line), source) in &mut pairs {
            if at < index || nearest.is_none() {
                nearest = Some(indentation(source) as isize - indentation(&line.text) as isize);
            }
        }
        nearest.unwrap_or(0)
    }
}

/// Appends a line to a text whose last line may lack its end.
fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn shifted(line: &str, by: isize) -> String {
    let code = line.trim_start();
    match indentation(line).checked_add_signed(by) {
        _ if code.is_empty() => String::new(),
        Some(width) => format!("{}{code}", " ".repeat(width)),
        None => code.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str) -> Result<Edit, EditError> {
        let line = |line: &str| Line {
            kind: match line.as_bytes()[0] {
                b'+' => Kind::Added,
                b'-' => Kind::Removed,
                _ => Kind::Kept,
            },
            text: line[1..].to_owned(),
        };
        Edit::new(text.lines().map(line).collect())
    }

    #[test]
    fn what_comes_is_indented_as_the_source_is() {
        let edit = edit(" if a {\n+    b();\n+\n+        c();\n }\n").unwrap();
        assert_eq!(
            edit.applied(&["        if a {\n", "        }\n"]),
            "        if a {\n            b();\n\n                c();\n        }\n"
        );
        assert_eq!(
            edit.applied(&["if a {\n", "}\n"]),
            "if a {\n    b();\n\n        c();\n}\n"
        );
    }

    #[test]
    fn a_first_line_is_indented_as_the_one_behind_it() {
        let edit = edit("+     return;\n      stay();\n").unwrap();
        assert_eq!(edit.applied(&["\tstay();\n"]), " return;\n\tstay();\n");
        assert_eq!(
            edit.applied(&["          stay();\n"]),
            "          return;\n          stay();\n"
        );
    }

    #[test]
    fn what_stays_keeps_its_bytes() {
        let edit = edit(" let text = \"\n   two  \n-end\";\n+other\";\n").unwrap();
        let source = ["  let text = \"\n", "       two  \n", "end\";"];
        assert_eq!(
            edit.applied(&source),
            "  let text = \"\n       two  \nother\";\n"
        );
    }

    #[test]
    fn ends_of_lines_are_those_of_the_source() {
        let edit = edit(" a\n+b\n").unwrap();
        assert_eq!(edit.applied(&["a\r\n"]), "a\r\nb\r\n");
        assert_eq!(edit.applied(&["a"]), "a\nb\n");
    }

    #[test]
    fn margins_are_the_kept_lines_around_the_change() {
        let margins = |text| edit(text).unwrap().margins();
        assert_eq!(margins(" a\n b\n-c\n d\n+e\n f\n"), (2, 1));
        assert_eq!(margins("-a\n"), (0, 0));
        assert_eq!(margins("+a\n b\n"), (0, 1));
    }

    #[test]
    fn an_edit_changes_something_that_can_be_found() {
        assert_eq!(edit("-a\n+  a\n"), Err(EditError::NothingChanged));
        assert_eq!(edit(" a\n"), Err(EditError::NothingChanged));
        assert_eq!(edit(""), Err(EditError::NothingChanged));
        assert_eq!(edit("+a\n"), Err(EditError::NoSnippet));
        assert_eq!(edit(" \n+a\n \n"), Err(EditError::NoSnippet));
        let filled = edit(" \n  \n-a\n \n").unwrap();
        assert_eq!(filled.lines().len(), 1);
    }
}
