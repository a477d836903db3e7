//! Builds one program that has many mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::compile::{CompilerError, Program, build};
use crate::direct::{calls, features};
use crate::mutant::Mutant;
use crate::project::MutantsError;
use crate::sources::Sources;
use crate::switch::{Alone, Switches};

/// Most builds before the rest of the mutants is tried alone. A build shows only errors of packages whose dependencies
/// compile, and errors of one kind hide those of a later one.
const ROUNDS: usize = 20;

/// A program that has many mutants.
#[derive(Debug, Default)]
pub(crate) struct Together<'m> {
    /// The executable files of the build.
    pub(crate) programs: Vec<Program>,
    /// The mutants that it has.
    pub(crate) mutants: Vec<&'m Mutant>,
    /// The others.
    pub(crate) alone: Vec<(&'m Mutant, Alone)>,
}

impl<'m> Together<'m> {
    /// Puts mutants into the sources in a folder, and builds all tests. Mutants that the compiler rejects are removed
    /// until the rest compiles.
    pub(crate) fn build(
        mutants: &'m [Mutant],
        sources: &Sources,
        folder: &Path,
        target: &Path,
        say: &dyn Fn(&str),
    ) -> Result<Together<'m>, MutantsError> {
        let mut left: Vec<_> = mutants.iter().collect();
        let suites = mutants.iter().flat_map(|mutant| &mutant.suites);
        let suites: Vec<_> = suites.map(String::as_str).collect();
        let features = features(&suites);
        let mut alone = Vec::new();
        let mut tree = Tree::default();
        for round in 1..=ROUNDS {
            let switches = Switches::of(&left, sources);
            left.clone_from(&switches.mutants);
            tree.write(&switches, sources, folder)?;
            say(&format!("build {round}: {} mutants", left.len()));
            let built = build(folder, target, &features)?;
            let blamed = blamed(&switches, &built.errors);
            alone.extend(switches.alone);
            if built.errors.is_empty() {
                let mut together = Together {
                    programs: built.programs,
                    mutants: left,
                    alone,
                };
                together.leave_out_other_suites(folder);
                return Ok(together);
            }
            let Some(error) = built.errors.first().filter(|_| blamed.is_empty()) else {
                let (rejected, rest) = left
                    .into_iter()
                    .partition(|mutant| blamed.contains_key(&mutant.name));
                left = rest;
                alone.extend(rejections(rejected, &blamed));
                continue;
            };
            return Err(MutantsError::NoMutantToBlame(
                error.rendered.trim_end().to_owned(),
            ));
        }
        Err(MutantsError::TooManyBuilds(ROUNDS))
    }

    /// A mutant stays if all its suites are programs of the build.
    fn leave_out_other_suites(&mut self, folder: &Path) {
        let Together {
            programs,
            mutants,
            alone,
        } = self;
        mutants.retain(|mutant| {
            let mut suites = mutant.suites.iter();
            let other = suites.find(|suite| calls(suite, programs, folder).is_none());
            alone.extend(other.map(|suite| (*mutant, Alone::Suite(suite.clone()))));
            other.is_none()
        });
    }
}

/// The files of a checkout that have mutants.
#[derive(Debug, Default)]
struct Tree {
    changed: BTreeSet<PathBuf>,
}

impl Tree {
    /// Writes switched files, and restores those that have no mutant any more. A file that stays as it is is not
    /// written, so that it is not compiled again.
    fn write(
        &mut self,
        switches: &Switches<'_>,
        sources: &Sources,
        folder: &Path,
    ) -> Result<(), MutantsError> {
        let mut texts: BTreeMap<&Path, &str> = BTreeMap::new();
        for path in &self.changed {
            texts.extend(sources.text_of(path).map(|text| (path.as_path(), text)));
        }
        texts.extend(
            switches
                .files
                .iter()
                .map(|file| (file.path.as_path(), file.text.as_str())),
        );
        for (path, text) in texts {
            let path = folder.join(path);
            let is = fs::read_to_string(&path).map_err(MutantsError::io(&path))?;
            if is != *text {
                fs::write(&path, text).map_err(MutantsError::io(&path))?;
            }
        }
        self.changed
            .extend(switches.files.iter().map(|file| file.path.clone()));
        Ok(())
    }
}

/// The mutants whose functions have errors, each with the message of one.
fn blamed(switches: &Switches<'_>, errors: &[CompilerError]) -> BTreeMap<String, String> {
    let mut blamed = BTreeMap::new();
    for error in errors {
        let places = error.places.iter();
        let owners = places
            .map(|(path, line)| switches.owners(path, *line))
            .find(|owners| !owners.is_empty());
        for name in owners.into_iter().flatten() {
            blamed
                .entry(name.clone())
                .or_insert_with(|| error.message.clone());
        }
    }
    blamed
}

fn rejections<'m>(
    rejected: Vec<&'m Mutant>,
    blamed: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&'m Mutant, Alone)> {
    rejected.into_iter().map(|mutant| {
        let message = blamed.get(&mutant.name).cloned().unwrap_or_default();
        (mutant, Alone::DoesNotCompile(message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str, edit: &str) -> Mutant {
        let text = format!("A defect.\ncaught by: cargo test -p a --lib\n\n{edit}");
        Mutant::parse(name, &text).unwrap()
    }

    fn error(places: &[(&str, usize)]) -> CompilerError {
        let places = places
            .iter()
            .map(|(path, line)| (PathBuf::from(path), *line));
        CompilerError {
            message: "mismatched types".to_owned(),
            rendered: String::new(),
            places: places.collect(),
        }
    }

    #[test]
    fn an_error_is_due_to_the_mutants_at_its_first_place_that_has_any() {
        let source = "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n}\n";
        let sources = Sources::of(vec![("a.rs".into(), source.into())]);
        let mutants = [
            mutant("x", "- one();\n+ 1\n"),
            mutant("y", "+ 2;\n  one();\n"),
            mutant("z", "- two();\n"),
        ];
        let switches = Switches::of(&mutants.iter().collect::<Vec<_>>(), &sources);
        let line = |text: &str| {
            switches.files[0]
                .text
                .lines()
                .position(|line| line.trim() == text)
                .unwrap()
        };
        let names = |places: &[(&str, usize)]| {
            blamed(&switches, &[error(places)])
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(&[("b.rs", 1), ("a.rs", line("1")), ("a.rs", line("2;"))]),
            ["x"]
        );
        assert_eq!(names(&[("a.rs", line("2;"))]), ["y"]);
        // The body without a defect, and the choice itself.
        assert_eq!(names(&[("a.rs", line("two();"))]), ["z"]);
        assert_eq!(names(&[("a.rs", line("fn a() {") + 1)]), ["x", "y"]);
        assert_eq!(names(&[("a.rs", line("fn a() {")), ("b.rs", 0)]), [""; 0]);
    }

    #[test]
    fn a_file_without_mutants_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let source = "fn a() {\n    one();\n}\n";
        let sources = Sources::of(vec![("a.rs".into(), source.into())]);
        let path = folder.path().join("a.rs");
        fs::write(&path, source).unwrap();
        let mutant = mutant("x", "- one();\n");
        let mut tree = Tree::default();
        let switches = Switches::of(&[&mutant], &sources);
        tree.write(&switches, &sources, folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), switches.files[0].text);
        tree.write(&Switches::default(), &sources, folder.path())
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), source);
    }
}
