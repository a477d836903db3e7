//! The checkout: its mutants, their results, and the table of both.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_measure::marks::{MarkError, update};

use crate::change::changes;
use crate::mutant::{Mutant, MutantError};
use crate::results::{Results, ResultsError, State};
use crate::sources::Sources;
use crate::table::{NAME, table};

const MUTANTS: &str = "tests/mutants";
const RESULTS: &str = "tests/mutants/results.tsv";
const TABLE: &str = "docs/mutants.md";

/// Why a command on mutants failed.
#[derive(Debug, thiserror::Error)]
pub enum MutantsError {
    /// No folder around this one has mutants.
    #[error("neither {0} nor a folder around it has {MUTANTS}")]
    NoProject(PathBuf),
    /// A file or folder cannot be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// A file has no valid mutant.
    #[error("{0}: {1}")]
    Mutant(PathBuf, #[source] MutantError),
    /// No mutant has this name.
    #[error("there is no mutant {0}")]
    Unknown(String),
    /// The file of results is damaged.
    #[error("{RESULTS}: {0}")]
    Results(#[source] ResultsError),
    /// The documentation has no marks for the table.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// A program that the run needs fails, or is missing.
    #[error("{command}: {error}")]
    Program {
        /// The program and its arguments.
        command: String,
        /// Its error message.
        error: String,
    },
    /// Another run uses the copy of the checkout.
    #[error("another run is using {0}")]
    Busy(PathBuf),
    /// The compiler rejects sources that have many mutants, at places that none of them changes.
    #[error(
        "the sources with mutants do not compile, at a place of no mutant; try them without --together:\n{0}"
    )]
    NoMutantToBlame(String),
    /// Each of this number of builds has shown other mutants that do not compile together.
    #[error(
        "after {0} builds mutants still do not compile together; name fewer, or try them without --together"
    )]
    TooManyBuilds(usize),
    /// A suite proves nothing by failing, because it fails without any defect.
    #[error("fails without any defect: {0}")]
    FailsAnyway(String),
    /// A suite whose filter matches no test.
    #[error("runs no test, so it can notice nothing; its filter matches none: {0}")]
    RunsNothing(String),
}

impl MutantsError {
    /// Makes an error of a file or folder.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> MutantsError {
        move |error| MutantsError::Io(path.to_owned(), error)
    }
}

/// A checkout of the program with its mutants.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// The checkout that contains a folder.
    pub fn around(folder: &Path) -> Result<Project, MutantsError> {
        let root = folder
            .ancestors()
            .find(|folder| folder.join(MUTANTS).is_dir())
            .ok_or_else(|| MutantsError::NoProject(folder.to_owned()))?;
        Ok(Project {
            root: root.to_owned(),
        })
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All mutants, by name.
    pub fn mutants(&self) -> Result<Vec<Mutant>, MutantsError> {
        let folder = self.root.join(MUTANTS);
        let mut mutants = Vec::new();
        for entry in fs::read_dir(&folder).map_err(MutantsError::io(&folder))? {
            let path = entry.map_err(MutantsError::io(&folder))?.path();
            let Some(name) = Mutant::name_of(&path) else {
                continue;
            };
            let text = fs::read_to_string(&path).map_err(MutantsError::io(&path))?;
            let mutant = Mutant::parse(name, &text)
                .map_err(|error| MutantsError::Mutant(path.clone(), error))?;
            mutants.push(mutant);
        }
        mutants.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(mutants)
    }

    /// The mutants with these names, in this order; without names all.
    pub fn chosen(&self, names: &[String]) -> Result<Vec<Mutant>, MutantsError> {
        let mutants = self.mutants()?;
        if names.is_empty() {
            return Ok(mutants);
        }
        let find = |name: &String| {
            let found = mutants.iter().find(|mutant| mutant.name == *name);
            found
                .cloned()
                .ok_or_else(|| MutantsError::Unknown(name.clone()))
        };
        names.iter().map(find).collect()
    }

    /// The sources that mutants change.
    pub fn sources(&self) -> Result<Sources, MutantsError> {
        Sources::load(&self.root).map_err(MutantsError::io(&self.root))
    }

    /// The errors of mutants that do not fit the sources.
    pub fn misfits(&self, mutants: &[Mutant]) -> Result<Vec<String>, MutantsError> {
        let sources = self.sources()?;
        let wrong = |mutant: &Mutant| {
            let error = changes(mutant, &sources).err()?;
            Some(format!("{}: {error}", mutant.name))
        };
        Ok(mutants.iter().filter_map(wrong).collect())
    }

    /// The results of the trials so far.
    pub fn results(&self) -> Result<Results, MutantsError> {
        let path = self.root.join(RESULTS);
        match fs::read_to_string(&path) {
            Ok(text) => Results::parse(&text).map_err(MutantsError::Results),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Results::default()),
            Err(error) => Err(MutantsError::Io(path, error)),
        }
    }

    /// Those of these mutants that were not tried as they are now.
    pub fn untried(&self, mut mutants: Vec<Mutant>) -> Result<Vec<Mutant>, MutantsError> {
        let results = self.results()?;
        mutants.retain(|mutant| matches!(results.state(mutant), State::NotTried | State::Changed));
        Ok(mutants)
    }

    /// Writes results.
    pub fn keep(&self, results: &Results) -> Result<(), MutantsError> {
        let path = self.root.join(RESULTS);
        fs::write(&path, results.to_string()).map_err(MutantsError::io(&path))
    }

    /// Writes results, without those of deleted mutants and suites, and the table of them.
    pub fn publish(&self, results: &mut Results) -> Result<(), MutantsError> {
        let mutants = self.mutants()?;
        results.retain(&mutants);
        self.keep(results)?;
        update(&self.root.join(TABLE), NAME, &table(&mutants, results))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(folder: &Path) -> Project {
        fs::create_dir_all(folder.join(MUTANTS)).unwrap();
        fs::create_dir_all(folder.join("crates/a/src")).unwrap();
        fs::create_dir_all(folder.join("docs")).unwrap();
        fs::write(folder.join("crates/a/src/lib.rs"), "one();\ntwo();\n").unwrap();
        for (name, line) in [
            ("b-two", "two();"),
            ("a-one", "one();"),
            ("c-none", "two(2);"),
        ] {
            let text = format!("Defect {name}.\ncaught by: x\n\n- {line}\n");
            fs::write(folder.join(MUTANTS).join(format!("{name}.mutant")), text).unwrap();
        }
        Project::around(&folder.join("crates/a/src")).unwrap()
    }

    #[test]
    fn mutants_are_those_of_the_checkout_around() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path());
        assert_eq!(project.root(), folder.path());
        let names = |mutants: Vec<Mutant>| mutants.into_iter().map(|mutant| mutant.name);
        let all: Vec<_> = names(project.mutants().unwrap()).collect();
        assert_eq!(all, ["a-one", "b-two", "c-none"]);
        let two = ["b-two".to_owned(), "a-one".to_owned()];
        let chosen: Vec<_> = names(project.chosen(&two).unwrap()).collect();
        assert_eq!(chosen, ["b-two", "a-one"]);
        let unknown = project.chosen(&["d".to_owned()]).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no mutant d");
    }

    #[test]
    fn those_that_do_not_fit_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path());
        let misfits = project.misfits(&project.mutants().unwrap()).unwrap();
        assert_eq!(misfits.len(), 1);
        assert!(misfits[0].starts_with("c-none: edit 1: its lines are nowhere"));
    }

    #[test]
    fn a_damaged_mutant_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path());
        fs::write(folder.path().join("tests/mutants/d.mutant"), "Defect.\n").unwrap();
        let error = project.mutants().unwrap_err().to_string();
        assert!(error.ends_with("d.mutant: no line \"caught by: COMMAND\" follows the first one"));
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(Project::around(elsewhere.path()).is_err());
    }

    #[test]
    fn results_and_their_table_are_written_together() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path());
        let docs = folder.path().join(TABLE);
        fs::write(&docs, "# Mutants\n").unwrap();
        let mut results = project.results().unwrap();
        assert!(project.publish(&mut results).is_err());
        let begin = format!("<!-- the output of {NAME}: begin -->");
        let end = format!("<!-- the output of {NAME}: end -->");
        fs::write(&docs, format!("# Mutants\n{begin}\n{end}\n")).unwrap();
        project.publish(&mut results).unwrap();
        let table = table(&project.mutants().unwrap(), &results);
        let text = fs::read_to_string(&docs).unwrap();
        assert_eq!(
            text,
            format!("# Mutants\n{begin}\n\n{}\n\n{end}\n", table.trim())
        );
        assert_eq!(project.results().unwrap(), results);
    }
}
