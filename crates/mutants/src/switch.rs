//! One program with many mutants, of which a variable chooses one.
//!
//! ```text
//! fn flush(&self) {              fn flush(&self) {
//!     sync();                        static TRIED_MUTANT: ... = the number of the name in the environment;
//!     note();          -->           match *TRIED_MUTANT {
//! }                                      1 => { sync(); }             <- "no-note"
//!                                        2 => { note(); }             <- "no-sync"
//!                                        _ => { sync(); note(); }     <- no name, or that of another mutant
//!                                    }
//!                                }
//! ```
//!
//! The number is read once for each function: a read of the environment allocates memory, and some suites count that.

mod file;
mod function;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::change::places;
use crate::mutant::Mutant;
use crate::sources::Sources;

use file::Part;
pub(crate) use file::SwitchedFile;
use function::{Function, functions};

/// The variable that holds the name of the mutant. Its name does not begin with `FOREBAY_`: the tests start the program
/// without such variables.
pub(crate) const VARIABLE: &str = "TRIED_MUTANT";

/// Why a mutant has to be tried alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It does not fit the sources; the trial says more.
    DoesNotFit,
    /// The change at this place is not within the body of one function.
    NotInABody(String),
    /// The function at this place is a `const fn`, which cannot read the environment.
    Constant(String),
    /// The switched function does not compile.
    DoesNotCompile(String),
    /// A suite of it is not a program of the common build.
    Suite(String),
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alone::DoesNotFit => f.write_str("it does not fit the sources"),
            Alone::NotInABody(place) => write!(f, "{place} is not in the body of one function"),
            Alone::Constant(place) => write!(f, "{place} is in a constant function"),
            Alone::DoesNotCompile(error) => write!(f, "its switched function has {error}"),
            Alone::Suite(suite) => write!(f, "not a program of the common build: {suite}"),
        }
    }
}

/// Sources that have many mutants.
#[derive(Debug, Default)]
pub(crate) struct Switches<'m> {
    /// The mutants.
    pub(crate) mutants: Vec<&'m Mutant>,
    /// The files that they change.
    pub(crate) files: Vec<SwitchedFile>,
    /// The mutants that cannot be switched.
    pub(crate) alone: Vec<(&'m Mutant, Alone)>,
}

impl<'m> Switches<'m> {
    /// Puts mutants into sources, each under its name.
    pub(crate) fn of(mutants: &[&'m Mutant], sources: &Sources) -> Switches<'m> {
        let mut switches = Switches::default();
        let mut of_files: BTreeMap<usize, Vec<Part<'m>>> = BTreeMap::new();
        for mutant in mutants {
            match parts(mutant, sources) {
                Ok(parts) => {
                    switches.mutants.push(mutant);
                    for (file, part) in parts {
                        of_files.entry(file).or_default().push(part);
                    }
                }
                Err(why) => switches.alone.push((mutant, why)),
            }
        }
        switches.files = of_files
            .into_iter()
            .map(|(file, parts)| SwitchedFile::of(sources.path(file), sources.text(file), parts))
            .collect();
        switches
    }

    /// The mutants in whose functions a line lies, counted from zero.
    pub(crate) fn owners(&self, path: &Path, line: usize) -> &[String] {
        let file = self.files.iter().find(|file| file.path == path);
        file.map_or(&[], |file| file.owners(line))
    }
}

/// The changes of a mutant, each with the number of its file.
fn parts<'m>(mutant: &'m Mutant, sources: &Sources) -> Result<Vec<(usize, Part<'m>)>, Alone> {
    let places = places(mutant, sources).map_err(|_| Alone::DoesNotFit)?;
    let mut parts = Vec::new();
    for (place, edit) in places {
        let lines: Vec<_> = sources.text(place.file).split_inclusive('\n').collect();
        let snippet = place.line..place.line + edit.snippet().count();
        let (first, last) = edit.margins();
        let range = snippet.start + first..snippet.end - last;
        let mut shown = place;
        shown.line = range.start;
        let shown = sources.shown(shown);

        let holds =
            |function: &Function| function.open < range.start && range.end <= function.close;
        // The innermost one follows all others that hold the change.
        let Some(function) = functions(&lines).into_iter().rfind(holds) else {
            return Err(Alone::NotInABody(shown));
        };
        if function.is_const {
            return Err(Alone::Constant(shown));
        }
        let applied = edit.applied(&lines[snippet]);
        let applied: Vec<_> = applied.split_inclusive('\n').collect();
        let text = applied[first..applied.len() - last].concat();
        let part = Part {
            mutant: &mutant.name,
            function,
            range,
            text,
        };
        parts.push((place.file, part));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
