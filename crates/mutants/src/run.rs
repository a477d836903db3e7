//! Runs the trials: each mutant with its suites.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::change::changes;
use crate::checkout::Checkout;
use crate::compile::Program;
use crate::direct::calls;
use crate::mutant::Mutant;
use crate::project::{MutantsError, Project};
use crate::results::{Outcome, Trial};
use crate::sources::Sources;
use crate::suite::{Call, Ended, said};
use crate::switch::VARIABLE;
use crate::together::Together;

/// Number of last lines shown of a suite that fails without a defect.
const LAST_LINES: usize = 40;

/// A suite of programs that are built has noticed when it takes this many times as long as without a defect.
const LONGER: u32 = 8;

/// The least limit of such a suite, because other work on the machine delays it as well.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run all suites of the chosen mutants on each of them; one that notices is enough then.
    pub every: bool,
    /// Build one program that has all mutants, and try those alone that it cannot have.
    pub together: bool,
    /// Time limit of a suite; one that takes longer counts as having noticed.
    pub limit: Duration,
    /// The folder for the copy of the checkout and its builds.
    pub cache: PathBuf,
}

/// Tries mutants, reports the outcomes, and records them in the checkout: each result as soon as it is known, the table
/// at the end. Returns true if all were caught.
pub fn run(
    project: &Project,
    mutants: &[Mutant],
    options: &Options,
    say: &dyn Fn(&str),
) -> Result<bool, MutantsError> {
    let copy = Checkout::copy(project.root(), &options.cache)?;
    let sources = Sources::load(&copy.tree).map_err(MutantsError::io(&copy.tree))?;
    let mut runner = Runner {
        project,
        options,
        say,
        copy,
        sources,
        suites: Vec::new(),
        programs: None,
        limits: BTreeMap::new(),
        date: today()?,
    };
    let mut caught = 0;
    let mut alone: Vec<_> = mutants.iter().collect();
    if options.together {
        let Checkout { tree, target, .. } = &runner.copy;
        let together = Together::build(mutants, &runner.sources, tree, target, say)?;
        for (mutant, why) in &together.alone {
            say(&format!("  alone: {}: {why}", mutant.name));
        }
        alone = together.alone.iter().map(|(mutant, _)| *mutant).collect();
        runner.programs = Some(together.programs);
        caught += runner.try_all(&together.mutants)?;
        runner.programs = None;
        runner.copy.clean()?;
    }
    caught += runner.try_all(&alone)?;
    project.publish(&mut project.results()?)?;
    let failed = mutants.len() - caught;
    say(&format!("{caught} passed, {failed} failed"));
    Ok(failed == 0 && caught > 0)
}

struct Runner<'a> {
    project: &'a Project,
    options: &'a Options,
    say: &'a dyn Fn(&str),
    copy: Checkout,
    /// The sources of the copy without a defect.
    sources: Sources,
    /// The suites of all mutants that are to be tried now.
    suites: Vec<&'a str>,
    /// The programs of a build that has all mutants; `None` if each mutant is built alone.
    programs: Option<Vec<Program>>,
    /// How long suites of the programs may take, by their times without a defect.
    limits: BTreeMap<&'a str, Duration>,
    date: String,
}

/// The outcomes of the suites with one mutant.
#[derive(Debug, Default)]
struct Tried<'a> {
    caught: Vec<&'a str>,
    /// Those of `caught` that did not end.
    hung: Vec<&'a str>,
    missed: Vec<&'a str>,
    does_not_compile: bool,
}

impl<'a> Runner<'a> {
    /// Tries mutants, after their suites without a defect. Returns how many were caught.
    fn try_all(&mut self, mutants: &[&'a Mutant]) -> Result<usize, MutantsError> {
        if mutants.is_empty() {
            return Ok(0);
        }
        let suites: BTreeSet<_> = mutants.iter().flat_map(|mutant| &mutant.suites).collect();
        self.suites = suites.into_iter().map(String::as_str).collect();
        self.try_without_a_defect()?;
        let mut caught = 0;
        for mutant in mutants {
            caught += usize::from(match self.programs {
                Some(_) => self.try_built(mutant)?,
                None => self.try_mutant(mutant)?,
            });
        }
        Ok(caught)
    }

    /// Tries a mutant that the programs have. Returns true if it was caught.
    fn try_built(&self, mutant: &Mutant) -> Result<bool, MutantsError> {
        let began = Instant::now();
        let tried = self.try_suites(mutant)?;
        self.note(mutant, &tried)?;
        self.report(mutant, &tried, began.elapsed())
    }

    fn try_without_a_defect(&mut self) -> Result<(), MutantsError> {
        (self.say)("without a defect:");
        for suite in &self.suites {
            let began = Instant::now();
            let ended = self.run_suite(suite, None)?;
            if ended == Ended::RanNothing {
                return Err(MutantsError::RunsNothing((*suite).to_owned()));
            }
            if ended != Ended::Passed {
                let said = said(&self.copy.log)?;
                let lines: Vec<_> = said.lines().collect();
                (self.say)(&lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"));
                return Err(MutantsError::FailsAnyway((*suite).to_owned()));
            }
            let took = began.elapsed();
            if self.programs.is_some() {
                let limit = (took * LONGER).max(LEAST_LIMIT);
                self.limits.insert(suite, limit.min(self.options.limit));
            }
            let seconds = took.as_secs_f64();
            (self.say)(&format!("  passes in {seconds:.1} s: {suite}"));
        }
        match self.programs {
            // The tree has the sources of the programs, which tests may read.
            Some(_) => Ok(()),
            None => self.copy.clean(),
        }
    }

    /// Tries a mutant with its suites. Returns true if it was caught.
    fn try_mutant(&self, mutant: &Mutant) -> Result<bool, MutantsError> {
        let changes = match changes(mutant, &self.sources) {
            Ok(changes) => changes,
            Err(error) => {
                (self.say)(&format!("FAILED  {} does not fit: {error}", mutant.name));
                return Ok(false);
            }
        };
        let began = Instant::now();
        let tree = &self.copy.tree;
        for change in &changes {
            change.make(tree).map_err(MutantsError::io(&change.path))?;
        }
        let tried = self.try_suites(mutant)?;
        for change in &changes {
            change.undo(tree).map_err(MutantsError::io(&change.path))?;
        }
        self.copy.clean()?;
        self.note(mutant, &tried)?;
        self.report(mutant, &tried, began.elapsed())
    }

    fn try_suites<'m>(&'m self, mutant: &'m Mutant) -> Result<Tried<'m>, MutantsError> {
        let suites = match self.options.every {
            true => self.suites.clone(),
            false => mutant.suites.iter().map(String::as_str).collect(),
        };
        let mut tried = Tried::default();
        for suite in suites {
            match self.run_suite(suite, Some(&mutant.name))? {
                Ended::Passed | Ended::RanNothing => tried.missed.push(suite),
                Ended::Failed => tried.caught.push(suite),
                Ended::TooLate => {
                    tried.caught.push(suite);
                    tried.hung.push(suite);
                }
                Ended::DidNotCompile => {
                    tried.does_not_compile = true;
                    break;
                }
            }
        }
        Ok(tried)
    }

    /// Runs a suite with a mutant, which the programs or the tree have.
    fn run_suite(&self, suite: &str, mutant: Option<&str>) -> Result<Ended, MutantsError> {
        let Checkout {
            tree, target, log, ..
        } = &self.copy;
        let Some(programs) = &self.programs else {
            return Call::of_shell(suite, tree, target).run(self.options.limit, log);
        };
        let limit = self.limits.get(suite).unwrap_or(&self.options.limit);
        let mut ended = Ended::RanNothing;
        for mut call in calls(suite, programs, tree).unwrap_or_default() {
            let variable = mutant.map(|name| (VARIABLE.to_owned(), name.into()));
            call.variables.extend(variable);
            match call.run(*limit, log)? {
                Ended::RanNothing => {}
                Ended::Passed => ended = Ended::Passed,
                noticed => return Ok(noticed),
            }
        }
        Ok(ended)
    }

    fn note(&self, mutant: &Mutant, tried: &Tried<'_>) -> Result<(), MutantsError> {
        // A run takes hours, and other runs may record results meanwhile.
        let mut results = self.project.results()?;
        for suite in &mutant.suites {
            let outcome = if tried.does_not_compile {
                Outcome::DoesNotCompile
            } else if tried.missed.contains(&suite.as_str()) {
                Outcome::Survived
            } else {
                Outcome::Caught
            };
            let trial = Trial {
                mark: mutant.mark(),
                outcome,
                date: self.date.clone(),
                commit: self.copy.commit.clone(),
            };
            results.note(&mutant.name, suite, trial);
        }
        self.project.keep(&results)
    }

    fn report(
        &self,
        Mutant { name, defect, .. }: &Mutant,
        tried: &Tried<'_>,
        took: Duration,
    ) -> Result<bool, MutantsError> {
        let missed = !tried.missed.is_empty();
        if tried.does_not_compile {
            (self.say)(&format!("FAILED  {name} does not compile"));
            (self.say)(&errors(&said(&self.copy.log)?));
            return Ok(false);
        }
        if tried.caught.is_empty() || missed && !self.options.every {
            (self.say)(&format!("FAILED  {name} SURVIVED: {defect}"));
            for suite in &tried.missed {
                (self.say)(&format!("        not noticed by {suite}"));
            }
            return Ok(false);
        }
        let seconds = took.as_secs_f64();
        (self.say)(&format!("ok      {name} ({defect}), in {seconds:.1} s"));
        for suite in &tried.caught {
            let hung = tried.hung.contains(suite);
            let end = if hung { " (it did not end)" } else { "" };
            (self.say)(&format!("          caught by {suite}{end}"));
        }
        Ok(true)
    }
}

/// The first errors of a compiler, each with the lines that show its position.
fn errors(said: &str) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut left = 0;
    for line in said.lines() {
        if line.starts_with("error") {
            left = 6;
        }
        if left > 0 && shown.len() < LAST_LINES {
            shown.push(format!("        {line}"));
            left -= 1;
        }
    }
    shown.join("\n")
}

/// The day in UTC.
fn today() -> Result<String, MutantsError> {
    let failed = |error: String| MutantsError::Program {
        command: "date".to_owned(),
        error,
    };
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    let date = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && !date.is_empty() {
        true => Ok(date),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}
