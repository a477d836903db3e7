//! The results of trials: `results.tsv`, a line for each mutant and suite.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::mutant::Mutant;

const HEAD: &str = "# mutant\tmark of its edits\tsuite\toutcome\tdate\tcommit";

/// Why lines are not valid results. Lines are counted from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultsError {
    /// A line does not have six fields.
    #[error("line {0} does not have six fields")]
    Fields(usize),
    /// The mark is not a number.
    #[error("line {0} has no mark of eight hexadecimal digits")]
    Mark(usize),
    /// The outcome is not valid.
    #[error("line {0}: {1:?} is no outcome")]
    Outcome(usize, String),
}

/// Outcome of a suite with a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The suite failed, or did not end: it noticed.
    Caught,
    /// The suite passed.
    Survived,
    /// The program with this defect does not compile.
    DoesNotCompile,
}

impl Outcome {
    const ALL: [Outcome; 3] = [Outcome::Caught, Outcome::Survived, Outcome::DoesNotCompile];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Caught => "caught",
            Outcome::Survived => "survived",
            Outcome::DoesNotCompile => "does not compile",
        })
    }
}

impl FromStr for Outcome {
    type Err = ();

    fn from_str(text: &str) -> Result<Outcome, ()> {
        let mut all = Outcome::ALL.into_iter();
        all.find(|outcome| outcome.to_string() == text).ok_or(())
    }
}

/// The last run of a suite on a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The mark of the mutant at that time: see [`Mutant::mark`].
    pub mark: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// The day in UTC as `2026-11-26`; `-` for a trial without a recorded date.
    pub date: String,
    /// The commit that was tested, with `+` if the checkout had changes; `-` as for the date.
    pub commit: String,
}

/// State of a mutant by the trials with all its suites. The largest value counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Each suite noticed it; all those trials were on this day or later, if the day is known.
    Caught(Option<String>),
    /// A suite was last tried with other edits under its name.
    Changed,
    /// A suite was never tried.
    NotTried,
    /// A suite did not notice it.
    Survived,
    /// The program does not compile with it.
    DoesNotCompile,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Caught(None) => f.write_str("caught"),
            State::Caught(Some(date)) => write!(f, "caught, {date}"),
            State::Changed => f.write_str("*changed since it was tried*"),
            State::NotTried => f.write_str("*not tried yet*"),
            State::Survived => f.write_str("**survived**"),
            State::DoesNotCompile => f.write_str("**does not compile**"),
        }
    }
}

/// The last trial of each mutant with each suite. `Display` writes it as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    trials: BTreeMap<(String, String), Trial>,
}

impl Results {
    /// Reads the file that holds results.
    pub fn parse(text: &str) -> Result<Results, ResultsError> {
        let mut results = Results::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fields: Vec<_> = line.split('\t').collect();
            let [mutant, mark, suite, outcome, date, commit] = fields[..] else {
                return Err(ResultsError::Fields(number));
            };
            let trial = Trial {
                mark: u32::from_str_radix(mark, 16).map_err(|_| ResultsError::Mark(number))?,
                outcome: outcome
                    .parse()
                    .map_err(|()| ResultsError::Outcome(number, outcome.to_owned()))?,
                date: date.to_owned(),
                commit: commit.to_owned(),
            };
            results.note(mutant, suite, trial);
        }
        Ok(results)
    }

    /// Records a trial, in place of an earlier one.
    pub fn note(&mut self, mutant: &str, suite: &str, trial: Trial) {
        self.trials
            .insert((mutant.to_owned(), suite.to_owned()), trial);
    }

    /// Drops trials of other mutants, and of suites that these mutants do not name.
    pub fn retain(&mut self, mutants: &[Mutant]) {
        let names = |(name, suite): &(String, String)| {
            let mut mutants = mutants.iter().filter(|mutant| mutant.name == *name);
            mutants.any(|mutant| mutant.suites.contains(suite))
        };
        self.trials.retain(|key, _| names(key));
    }

    /// The state of a mutant.
    pub fn state(&self, mutant: &Mutant) -> State {
        let mark = mutant.mark();
        let mut worst = State::Caught(None);
        let mut since: Option<&str> = None;
        for suite in &mutant.suites {
            let trial = self.trials.get(&(mutant.name.clone(), suite.clone()));
            let state = match trial {
                None => State::NotTried,
                Some(trial) if trial.mark != mark => State::Changed,
                Some(trial) => {
                    // "-" is less than every date.
                    since = Some(since.map_or(&trial.date, |since| since.min(&trial.date)));
                    match trial.outcome {
                        Outcome::Caught => State::Caught(None),
                        Outcome::Survived => State::Survived,
                        Outcome::DoesNotCompile => State::DoesNotCompile,
                    }
                }
            };
            worst = worst.max(state);
        }
        match worst {
            State::Caught(_) => State::Caught(since.filter(|date| *date != "-").map(str::to_owned)),
            worse => worse,
        }
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for ((mutant, suite), trial) in &self.trials {
            let Trial {
                mark,
                outcome,
                date,
                commit,
            } = trial;
            writeln!(
                f,
                "{mutant}\t{mark:08x}\t{suite}\t{outcome}\t{date}\t{commit}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(edit: &str) -> Mutant {
        let text = format!("A defect.\ncaught by: x\ncaught by: y\n\n{edit}\n");
        Mutant::parse("a-defect", &text).unwrap()
    }

    fn trial(mutant: &Mutant, outcome: Outcome, date: &str) -> Trial {
        Trial {
            mark: mutant.mark(),
            outcome,
            date: date.to_owned(),
            commit: "3a4fb96+".to_owned(),
        }
    }

    #[test]
    fn the_worst_trial_counts() {
        let mutant = mutant("- a");
        let mut results = Results::default();
        assert_eq!(results.state(&mutant), State::NotTried);
        let mut note = |suite, outcome, date| {
            results.note("a-defect", suite, trial(&mutant, outcome, date));
            results.state(&mutant)
        };
        assert_eq!(note("x", Outcome::Caught, "2026-11-26"), State::NotTried);
        assert_eq!(
            note("y", Outcome::Caught, "2026-11-03"),
            State::Caught(Some("2026-11-03".to_owned()))
        );
        assert_eq!(note("y", Outcome::Caught, "-"), State::Caught(None));
        assert_eq!(note("x", Outcome::Survived, "-"), State::Survived);
        let broken = note("y", Outcome::DoesNotCompile, "-");
        assert_eq!(broken, State::DoesNotCompile);
    }

    #[test]
    fn a_trial_of_other_edits_counts_no_more() {
        let old = mutant("- a");
        let mut results = Results::default();
        for suite in ["x", "y"] {
            let trial = trial(&old, Outcome::Caught, "2026-11-26");
            results.note("a-defect", suite, trial);
        }
        assert_eq!(results.state(&mutant("-    a")), results.state(&old));
        assert_eq!(results.state(&mutant("- b")), State::Changed);
    }

    #[test]
    fn results_are_what_their_file_holds() {
        let mutant = mutant("- a");
        let mut results = Results::default();
        for (suite, outcome) in ["z", "y", "x"].into_iter().zip(Outcome::ALL) {
            results.note("a-defect", suite, trial(&mutant, outcome, "2026-11-26"));
        }
        results.note("gone", "x", trial(&mutant, Outcome::Caught, "-"));
        assert_eq!(Results::parse(&results.to_string()).as_ref(), Ok(&results));
        results.retain(std::slice::from_ref(&mutant));
        let text = results.to_string();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("\tx\tdoes not compile\t2026-11-26\t3a4fb96+\n"));
    }

    #[test]
    fn damaged_results_are_named() {
        for (text, error) in [
            ("#\na\tb\n", ResultsError::Fields(2)),
            ("a\tg\tx\tcaught\t-\t-", ResultsError::Mark(1)),
            (
                "a\t0\tx\tseen\t-\t-",
                ResultsError::Outcome(1, "seen".to_owned()),
            ),
        ] {
            assert_eq!(Results::parse(text), Err(error));
        }
    }
}
