//! Comparison of two revisions.

use std::fmt::Write;

use crate::table::{head, line, times, whole};
use crate::{Median, Round, Rounds};

/// Limits above which a change is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Limit of the ratio of instruction counts: 1.1 allows a tenth more.
    pub instructions: f64,
    /// Limit of the median of the ratios of times. That alone could be chance: a change is refused only if it is slower
    /// in three quarters of the rounds as well.
    pub time: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            instructions: 1.10,
            time: 1.15,
        }
    }
}

/// The comparison of one key. Less is better for every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The key.
    pub key: String,
    /// Value of the base.
    pub base: Median,
    /// Value of the revision in question.
    pub own: Median,
    /// Ratio of `own` to `base`, within the rounds.
    pub ratio: Median,
    /// Whether the ratio is above its limit.
    pub is_worse: bool,
}

/// All rows, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    limits: Limits,
    rows: Vec<Row>,
    /// Keys that only one of the revisions has.
    apart: Vec<String>,
}

impl Comparison {
    /// An empty comparison with these limits.
    pub fn new(limits: Limits) -> Comparison {
        Comparison {
            limits,
            ..Comparison::default()
        }
    }

    /// Compares instruction counts.
    pub fn instructions(&mut self, base: &Round, own: &Round) {
        let limit = self.limits.instructions;
        let [base, own] = [base, own].map(|round| Rounds::new(vec![round.clone()]));
        self.add(&base, &own, |ratio| ratio.value > limit);
    }

    /// Compares the times of rounds that were run in turns.
    pub fn times(&mut self, base: &Rounds, own: &Rounds) {
        let limit = self.limits.time;
        self.add(base, own, |ratio| ratio.value > limit && ratio.low > 1.0);
    }

    fn add(&mut self, base: &Rounds, own: &Rounds, is_worse: impl Fn(Median) -> bool) {
        let (known, ours) = (base.keys(), own.keys());
        for key in &ours {
            if !known.contains(key) {
                self.apart.push(format!("{key}: only in this revision"));
                continue;
            }
            let ratio = own.ratio_to(base, key);
            self.rows.push(Row {
                key: (*key).to_owned(),
                base: base.median(key),
                own: own.median(key),
                ratio,
                is_worse: is_worse(ratio),
            });
        }
        let gone = known.iter().filter(|key| !ours.contains(key));
        self.apart
            .extend(gone.map(|key| format!("{key}: only in the base")));
    }

    /// All rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether no row is worse, and there is at least one.
    pub fn passes(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| !row.is_worse)
    }

    /// The table, and the keys that could not be compared.
    pub fn table(&self) -> String {
        let mut table = head(&["", "base", "this", "ratio", ""]);
        for row in &self.rows {
            let verdict = if row.is_worse { "WORSE" } else { "" };
            table.push_str(&line([
                row.key.as_str(),
                &whole(row.base),
                &whole(row.own),
                &times(row.ratio),
                verdict,
            ]));
        }
        if !self.apart.is_empty() {
            table.push('\n');
        }
        for apart in &self.apart {
            // Writing to a string does not fail.
            let _ = writeln!(table, "* {apart}");
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(values: &[f64]) -> Rounds {
        let round = |value: &f64| {
            let mut round = Round::default();
            round.insert("a", *value);
            round
        };
        Rounds::new(values.iter().map(round).collect())
    }

    fn time_is_worse(ratios: &[f64]) -> bool {
        let mut comparison = Comparison::new(Limits::default());
        comparison.times(&rounds(&vec![100.0; ratios.len()]), &{
            let times: Vec<_> = ratios.iter().map(|ratio| ratio * 100.0).collect();
            rounds(&times)
        });
        assert_eq!(comparison.passes(), !comparison.rows()[0].is_worse);
        comparison.rows()[0].is_worse
    }

    fn one(key: &str, value: f64) -> Round {
        let mut round = Round::default();
        round.insert(key, value);
        round
    }

    fn count_is_worse(base: f64, own: f64) -> bool {
        let mut comparison = Comparison::new(Limits::default());
        comparison.instructions(&one("a", base), &one("a", own));
        comparison.rows()[0].is_worse
    }

    #[test]
    fn an_instruction_count_may_grow_by_a_tenth() {
        assert!(!count_is_worse(1000.0, 1100.0));
        assert!(count_is_worse(1000.0, 1101.0));
        assert!(!count_is_worse(1000.0, 10.0));
    }

    #[test]
    fn a_time_is_worse_only_if_most_rounds_say_so() {
        assert!(!time_is_worse(&[1.0, 1.0, 1.15, 1.15, 1.15]));
        assert!(time_is_worse(&[1.1, 1.1, 1.2, 1.2, 1.3]));
        // The median is over the limit, but a quarter of the rounds is not slower at all.
        assert!(!time_is_worse(&[0.9, 1.0, 1.2, 1.2, 1.3]));
        // One round that another process disturbed.
        assert!(!time_is_worse(&[1.0, 1.0, 1.0, 1.0, 9.0]));
    }

    #[test]
    fn what_only_one_of_them_has_is_told_and_not_judged() {
        let mut comparison = Comparison::new(Limits::default());
        let mut own = one("new", 1e9);
        own.insert("both", 5.0);
        let mut base = one("old", 1.0);
        base.insert("both", 5.0);
        comparison.instructions(&base, &own);
        assert!(comparison.passes());
        let table = comparison.table();
        assert!(
            table.contains("| both | 5 (5 to 5) | 5 (5 to 5) | 1.00 (1.00 to 1.00) | |\n"),
            "{table}"
        );
        assert!(table.contains("* new: only in this revision\n"), "{table}");
        assert!(table.contains("* old: only in the base\n"), "{table}");
    }

    #[test]
    fn nothing_compared_is_no_success() {
        assert!(!Comparison::new(Limits::default()).passes());
        let mut comparison = Comparison::new(Limits::default());
        comparison.instructions(&one("old", 1.0), &one("new", 1.0));
        assert!(!comparison.passes());
    }
}
