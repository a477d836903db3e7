//! The changes that a mutant makes in the files of a checkout.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::edit::Edit;
use crate::mutant::Mutant;
use crate::nearest::Nearest;
use crate::sources::{Place, Sources};

/// Most places of a snippet that an error names.
const NAMED: usize = 5;

/// Why a mutant does not fit the sources. Edits are counted from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MisfitError {
    /// No place has the snippet of an edit.
    Nowhere {
        /// Number of the edit.
        edit: usize,
        /// The most similar place, if there is one.
        nearest: Option<Nearest>,
    },
    /// Several places have the snippet of an edit.
    Several {
        /// Number of the edit.
        edit: usize,
        /// All of the places, as `path:line`.
        places: Vec<String>,
    },
    /// Two edits change the same lines.
    Overlap {
        /// The place of the later edit.
        place: String,
    },
}

impl std::error::Error for MisfitError {}

impl fmt::Display for MisfitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MisfitError::Nowhere { edit, nearest } => {
                write!(f, "edit {edit}: its lines are nowhere in the sources")?;
                match nearest {
                    Some(nearest) => write!(f, "; the nearest are at {nearest}"),
                    None => f.write_str(", nor any that are like them"),
                }
            }
            MisfitError::Several { edit, places } => {
                let count = places.len();
                let named = places[..count.min(NAMED)].join(", ");
                let more = if count > NAMED { ", ..." } else { "" };
                write!(
                    f,
                    "edit {edit}: its lines are at {count} places, {named}{more}; add lines that stay"
                )
            }
            MisfitError::Overlap { place } => write!(f, "two edits overlap at {place}"),
        }
    }
}

/// A file that a mutant changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, below the checkout's folder.
    pub path: PathBuf,
    /// Its contents without the defect.
    pub before: String,
    /// Its contents with the defect.
    pub after: String,
}

impl Change {
    /// Puts the defect into the file of a checkout.
    pub fn make(&self, root: &Path) -> io::Result<()> {
        fs::write(root.join(&self.path), &self.after)
    }

    /// Restores the file's contents.
    pub fn undo(&self, root: &Path) -> io::Result<()> {
        fs::write(root.join(&self.path), &self.before)
    }
}

/// The change of each file that a mutant changes. All its edits are found in the unchanged sources.
pub fn changes(mutant: &Mutant, sources: &Sources) -> Result<Vec<Change>, MisfitError> {
    let places = places(mutant, sources)?;
    let of_files = places.chunk_by(|(a, _), (b, _)| a.file == b.file);
    Ok(of_files.map(|edits| change(edits, sources)).collect())
}

/// The edits of a mutant, in the order of their places in the unchanged sources.
pub(crate) fn places<'m>(
    mutant: &'m Mutant,
    sources: &Sources,
) -> Result<Vec<(Place, &'m Edit)>, MisfitError> {
    let mut places = Vec::new();
    for (index, edit) in mutant.edits.iter().enumerate() {
        places.push((place(index + 1, edit, sources)?, edit));
    }
    places.sort_by_key(|(place, _)| *place);
    for pair in places.windows(2) {
        let [(first, edit), (second, _)] = pair else {
            continue;
        };
        if first.file == second.file && second.line < first.line + edit.snippet().count() {
            let place = sources.shown(*second);
            return Err(MisfitError::Overlap { place });
        }
    }
    Ok(places)
}

fn place(number: usize, edit: &Edit, sources: &Sources) -> Result<Place, MisfitError> {
    let places = sources.find(edit.snippet());
    match places[..] {
        [place] => Ok(place),
        [] => Err(MisfitError::Nowhere {
            edit: number,
            nearest: Nearest::of(edit.snippet(), sources),
        }),
        _ => Err(MisfitError::Several {
            edit: number,
            places: places.iter().map(|place| sources.shown(*place)).collect(),
        }),
    }
}

/// The change of one file by edits in the order of their places.
fn change(edits: &[(Place, &Edit)], sources: &Sources) -> Change {
    let file = edits[0].0.file;
    let before = sources.text(file);
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let mut after = String::with_capacity(before.len());
    let mut done = 0;
    for (place, edit) in edits {
        let range: Range<usize> = place.line..place.line + edit.snippet().count();
        after.extend(lines[done..range.start].iter().copied());
        after.push_str(&edit.applied(&lines[range.clone()]));
        done = range.end;
    }
    after.extend(lines[done..].iter().copied());
    Change {
        path: sources.path(file).to_owned(),
        before: before.to_owned(),
        after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "fn a() {\n    one();\n    two();\n    three();\n}\n";
    const B: &str = "mod b {\r\n    fn b() {\r\n        one();\r\n        four();\r\n    }\r\n}";

    fn sources() -> Sources {
        Sources::of(vec![("a.rs".into(), A.into()), ("b.rs".into(), B.into())])
    }

    fn try_changes(edits: &str) -> Result<Vec<Change>, MisfitError> {
        let text = format!("A defect.\ncaught by: x\n\n{edits}");
        changes(&Mutant::parse("a-defect", &text).unwrap(), &sources())
    }

    #[test]
    fn edits_of_a_file_are_made_together_and_in_any_order() {
        let changed =
            try_changes("- three();\n+ 3();\n@@\n+ zero();\n  one();\n  two();\n").unwrap();
        let [change] = &changed[..] else {
            panic!("{changed:?}")
        };
        assert_eq!(change.path, Path::new("a.rs"));
        assert_eq!(
            change.after,
            "fn a() {\n    zero();\n    one();\n    two();\n    3();\n}\n"
        );
    }

    #[test]
    fn edits_of_several_files_are_one_defect() {
        let changed = try_changes("- four();\n@@\n- two();\n").unwrap();
        let paths: Vec<_> = changed.iter().map(|change| &change.path).collect();
        assert_eq!(paths, [Path::new("a.rs"), Path::new("b.rs")]);
        assert_eq!(changed[0].after, A.replace("    two();\n", ""));
        assert_eq!(changed[1].after, B.replace("        four();\r\n", ""));
    }

    #[test]
    fn undoing_gives_back_every_byte() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.rs"), A).unwrap();
        fs::write(root.path().join("b.rs"), B).unwrap();
        let changed = try_changes("- four();\n@@\n- two();\n+ 2();\n").unwrap();
        let read = |name| fs::read_to_string(root.path().join(name)).unwrap();
        for change in &changed {
            change.make(root.path()).unwrap();
        }
        assert_eq!(read("a.rs"), A.replace("two", "2"));
        for change in &changed {
            change.undo(root.path()).unwrap();
        }
        assert_eq!((read("a.rs"), read("b.rs")), (A.into(), B.into()));
    }

    #[test]
    fn a_snippet_that_is_nowhere_shows_the_nearest() {
        let error = try_changes("- two(2);\n+ 2();\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "edit 1: its lines are nowhere in the sources; the nearest are at a.rs:3 (- the mutant, + the source)\n    \
             - two(2);\n    + two();"
        );
        let error = try_changes("- two();\n@@\n- unheard_of();\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "edit 2: its lines are nowhere in the sources, nor any that are like them"
        );
    }

    #[test]
    fn a_snippet_at_several_places_names_them() {
        assert_eq!(
            try_changes("- one();\n").unwrap_err().to_string(),
            "edit 1: its lines are at 2 places, a.rs:2, b.rs:3; add lines that stay"
        );
    }

    #[test]
    fn edits_do_not_overlap() {
        let place = "a.rs:3".to_owned();
        assert_eq!(
            try_changes("- one();\n  two();\n@@\n- two();\n"),
            Err(MisfitError::Overlap { place })
        );
    }
}
