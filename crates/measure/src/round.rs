//! Rounds of measurements: each measures everything once, best in a process of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::Median;

/// One round: values by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round(BTreeMap<String, f64>);

impl Round {
    /// Sets the value of `key`, and drops an earlier one.
    pub fn insert(&mut self, key: impl Into<String>, value: f64) {
        self.0.insert(key.into(), value);
    }

    /// The value of this key.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.0.get(key).copied()
    }

    /// All keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(key, value)| (key.as_str(), *value))
    }

    /// The round with only the keys for which `keep` returns true.
    pub fn only(mut self, keep: impl Fn(&str) -> bool) -> Round {
        self.0.retain(|key, _| keep(key));
        self
    }

    /// Adds the values of another round.
    pub fn extend(&mut self, other: Round) {
        self.0.extend(other.0);
    }

    fn or_nan(&self, key: &str) -> f64 {
        self.get(key).unwrap_or(f64::NAN)
    }
}

/// A line for each value: its key, a tab, the value.
impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter()
            .try_for_each(|(key, value)| writeln!(f, "{key}\t{value}"))
    }
}

/// A line that is no line of a round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key, a tab and a number: {0:?}")]
pub struct InvalidRound(pub String);

impl FromStr for Round {
    type Err = InvalidRound;

    fn from_str(text: &str) -> Result<Round, InvalidRound> {
        let value = |line: &str| {
            let (key, value) = line.split_once('\t')?;
            Some((key.to_owned(), value.trim().parse().ok()?))
        };
        text.lines()
            .map(|line| value(line).ok_or_else(|| InvalidRound(line.to_owned())))
            .collect::<Result<_, _>>()
            .map(Round)
    }
}

/// The rounds of one build.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<Round>);

impl Rounds {
    /// Rounds in the order in which they were measured.
    pub fn new(rounds: Vec<Round>) -> Rounds {
        Rounds(rounds)
    }

    /// Number of rounds.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The keys that all rounds have.
    pub fn keys(&self) -> Vec<&str> {
        let Some((first, others)) = self.0.split_first() else {
            return Vec::new();
        };
        let in_all = |key: &&str| others.iter().all(|round| round.get(key).is_some());
        first.iter().map(|(key, _)| key).filter(in_all).collect()
    }

    /// The median of this key's values.
    pub fn median(&self, key: &str) -> Median {
        self.median_of(|round| round.or_nan(key))
    }

    /// The median of the ratio of `key` to `to` in each round.
    pub fn ratio(&self, key: &str, to: &str) -> Median {
        self.median_of(|round| round.or_nan(key) / round.or_nan(to))
    }

    /// The same for the sum of `keys`.
    pub fn ratio_of_sum(&self, keys: &[String], to: &str) -> Median {
        self.median_of(|round| {
            let sum: f64 = keys.iter().map(|key| round.or_nan(key)).sum();
            sum / round.or_nan(to)
        })
    }

    /// The median of the ratios between the rounds of two builds that were run in turns.
    pub fn ratio_to(&self, other: &Rounds, key: &str) -> Median {
        let pairs = self.0.iter().zip(&other.0);
        Median::of(pairs.map(|(own, other)| own.or_nan(key) / other.or_nan(key)))
    }

    fn median_of(&self, value: impl Fn(&Round) -> f64) -> Median {
        Median::of(self.0.iter().map(value))
    }
}

/// Runs `count` rounds of each contender, at least one, in turns. The first one changes from round to round: the second
/// one may find the machine warmer, or busier with work that the first one left.
pub fn in_turns<E>(
    count: usize,
    contenders: &mut [&mut dyn FnMut() -> Result<Round, E>],
) -> Result<Vec<Rounds>, E> {
    let mut rounds = vec![Vec::new(); contenders.len()];
    for turn in 0..count.max(1) {
        let mut once: Vec<_> = contenders.iter_mut().zip(&mut rounds).collect();
        if turn % 2 == 1 {
            once.reverse();
        }
        for (contender, rounds) in once {
            rounds.push(contender()?);
        }
    }
    Ok(rounds.into_iter().map(Rounds).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(values: &[(&str, f64)]) -> Round {
        let mut round = Round::default();
        for (key, value) in values {
            round.insert(*key, *value);
        }
        round
    }

    #[test]
    fn a_round_that_is_printed_is_read_again() {
        let printed = round(&[("alone getattr", 380.25), ("socket 64", 1e-3)]);
        assert_eq!(printed.to_string().parse(), Ok(printed));
    }

    #[test]
    fn a_line_without_a_number_is_no_round() {
        for line in ["getattr", "getattr 3", "getattr\t", "getattr\tfast"] {
            let text = format!("setattr\t1\n{line}\n");
            assert_eq!(text.parse::<Round>(), Err(InvalidRound(line.to_owned())));
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_not_of_medians() {
        // The third round was slow as a whole.
        let rounds = Rounds::new(vec![
            round(&[("part", 1.0), ("whole", 10.0)]),
            round(&[("part", 2.0), ("whole", 10.0)]),
            round(&[("part", 30.0), ("whole", 100.0)]),
        ]);
        let ratio = rounds.ratio("part", "whole");
        assert_eq!((ratio.low, ratio.value, ratio.high), (0.1, 0.2, 0.3));
        let sum = rounds.ratio_of_sum(&["part".into(), "part".into()], "whole");
        assert_eq!(sum.value, 0.4);
    }

    #[test]
    fn ratios_of_two_builds_pair_the_rounds() {
        let of = |values: [f64; 3]| Rounds::new(values.map(|value| round(&[("a", value)])).into());
        let ratio = of([1.0, 20.0, 3.0]).ratio_to(&of([2.0, 10.0, 3.0]), "a");
        assert_eq!((ratio.low, ratio.value, ratio.high), (0.5, 1.0, 2.0));
    }

    #[test]
    fn only_what_all_rounds_have_can_be_compared() {
        let rounds = Rounds::new(vec![
            round(&[("a", 1.0), ("b", 1.0)]),
            round(&[("b", 1.0), ("c", 1.0)]),
        ]);
        assert_eq!(rounds.keys(), ["b"]);
        assert!(Rounds::default().keys().is_empty());
        assert!(rounds.median("absent").value.is_nan());
    }

    #[test]
    fn contenders_take_turns_in_beginning() {
        let order = std::cell::RefCell::new(String::new());
        let contender = |name: char| {
            let order = &order;
            move || {
                order.borrow_mut().push(name);
                Ok::<_, ()>(round(&[("a", 1.0)]))
            }
        };
        let (mut base, mut own) = (contender('b'), contender('o'));
        let rounds = in_turns(3, &mut [&mut base, &mut own]).unwrap();
        assert_eq!(*order.borrow(), "boobbo");
        assert_eq!(rounds.iter().map(Rounds::count).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn the_first_failure_ends_the_rounds() {
        let mut calls = 0;
        let mut fails = || {
            calls += 1;
            Err("it does not run")
        };
        assert_eq!(
            in_turns(3, &mut [&mut fails]).unwrap_err(),
            "it does not run"
        );
        assert_eq!(calls, 1);
    }
}
