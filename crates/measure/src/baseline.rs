//! Instruction counts that are kept as a baseline, against which the next change is checked.
//!
//! ```text
//! # Lines of comments stay in place before the first count.
//! cache/write 4 KiB       1234
//! fs/create              15210   20 %
//! ```
//!
//! The key ends before the last number. A tolerance may follow the number, if it is not a tenth.

use std::fmt;

use crate::Round;

/// Tolerance of a count in percent, if its line has none.
const USUAL_TOLERANCE: f64 = 10.0;

/// Counts of operations, in the order of their file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// The comments at the head, without line ends.
    head: Vec<String>,
    kept: Vec<Kept>,
}

#[derive(Clone, Debug, PartialEq)]
struct Kept {
    key: String,
    count: f64,
    tolerance_percent: Option<f64>,
}

/// A file of counts that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// A line is neither a comment nor a count.
    #[error("line {0} is neither a comment nor a key and a count: {1:?}")]
    Line(usize, String),
    /// Two lines have the same key.
    #[error("line {0} has the key of an earlier one: {1:?}")]
    Twice(usize, String),
}

/// Result of comparing a count with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Same,
    /// Above the tolerance.
    Dearer,
    /// Below the tolerance: the baseline should be renewed, or the gain may be lost again unnoticed.
    Cheaper,
    /// Not in the baseline.
    New,
    /// In the baseline, but no longer counted.
    Gone,
}

/// A count beside the one in the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Key of the count.
    pub key: String,
    /// Count in the baseline.
    pub kept: Option<f64>,
    /// Count now.
    pub now: Option<f64>,
    /// Result of the comparison.
    pub verdict: Verdict,
}

impl Finding {
    /// Whether a change with it is refused: a count is too high, or the baseline has other keys than the counts.
    pub fn is_refused(&self) -> bool {
        match self.verdict {
            Verdict::Same | Verdict::Cheaper => false,
            Verdict::Dearer | Verdict::New | Verdict::Gone => true,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { key, kept, now, .. } = self;
        match (kept, now) {
            (Some(kept), Some(now)) => {
                let percent = (now / kept - 1.0) * 100.0;
                write!(
                    f,
                    "{key}: {now:.0} instructions, {percent:+.1} % of {kept:.0}"
                )
            }
            (None, Some(now)) => write!(f, "{key}: {now:.0} instructions, not in the baseline"),
            (_, None) => write!(f, "{key}: in the baseline, and no longer counted"),
        }
    }
}

impl Baseline {
    /// Reads a file of counts.
    pub fn parse(text: &str) -> Result<Baseline, BaselineError> {
        let mut baseline = Baseline::default();
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim());
            if line.starts_with('#') && baseline.kept.is_empty() {
                baseline.head.push(line.to_owned());
            } else if !line.is_empty() && !line.starts_with('#') {
                let kept = Kept::parse(line)
                    .ok_or_else(|| BaselineError::Line(number, line.to_owned()))?;
                if baseline.find(&kept.key).is_some() {
                    return Err(BaselineError::Twice(number, kept.key));
                }
                baseline.kept.push(kept);
            }
        }
        Ok(baseline)
    }

    /// The first line at the head that begins with this.
    pub fn remarks(&self, beginning: &str) -> Option<&str> {
        let mut lines = self.head.iter();
        lines
            .find(|line| line.starts_with(beginning))
            .map(String::as_str)
    }

    /// A baseline with only some of the keys.
    pub fn only(mut self, keep: impl Fn(&str) -> bool) -> Baseline {
        self.kept.retain(|kept| keep(&kept.key));
        self
    }

    /// Compares counts with the baseline: first those of the baseline in their order, then the new ones.
    pub fn check(&self, counts: &Round) -> Vec<Finding> {
        let kept = self.kept.iter().map(|kept| {
            let now = counts.get(&kept.key);
            Finding {
                key: kept.key.clone(),
                kept: Some(kept.count),
                now,
                verdict: now.map_or(Verdict::Gone, |now| kept.judge(now)),
            }
        });
        let new = self.unknown(counts).map(|(key, now)| Finding {
            key: key.to_owned(),
            kept: None,
            now: Some(now),
            verdict: Verdict::New,
        });
        kept.chain(new).collect()
    }

    /// Replaces the counts by these. Comments and tolerances stay, and the line at the head that begins with `mark`
    /// becomes `remark`.
    pub fn renew(&mut self, counts: &Round, mark: &str, remark: String) {
        let new: Vec<_> = self
            .unknown(counts)
            .map(|(key, count)| Kept {
                key: key.to_owned(),
                count,
                tolerance_percent: None,
            })
            .collect();
        self.kept.retain_mut(|kept| match counts.get(&kept.key) {
            Some(count) => {
                kept.count = count;
                true
            }
            None => false,
        });
        self.kept.extend(new);
        match self.head.iter_mut().find(|line| line.starts_with(mark)) {
            Some(line) => *line = remark,
            None => self.head.push(remark),
        }
    }

    fn find(&self, key: &str) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.key == key)
    }

    fn unknown<'a>(&self, counts: &'a Round) -> impl Iterator<Item = (&'a str, f64)> {
        counts.iter().filter(|(key, _)| self.find(key).is_none())
    }
}

impl Kept {
    fn parse(line: &str) -> Option<Kept> {
        let (line, tolerance_percent) = match line.strip_suffix('%') {
            None => (line, None),
            Some(rest) => {
                let (rest, percent) = rest.trim_end().rsplit_once(char::is_whitespace)?;
                (rest.trim_end(), Some(positive(percent)?))
            }
        };
        let (key, count) = line.rsplit_once(char::is_whitespace)?;
        Some(Kept {
            key: key.trim_end().to_owned(),
            count: positive(count)?,
            tolerance_percent,
        })
    }

    fn judge(&self, now: f64) -> Verdict {
        let tolerance = self.tolerance_percent.unwrap_or(USUAL_TOLERANCE) / 100.0;
        if now > self.count * (1.0 + tolerance) {
            Verdict::Dearer
        } else if now < self.count * (1.0 - tolerance) {
            Verdict::Cheaper
        } else {
            Verdict::Same
        }
    }
}

fn positive(number: &str) -> Option<f64> {
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}

/// Written as the file has it.
impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.head {
            writeln!(f, "{line}")?;
        }
        let width = self.kept.iter().map(|kept| kept.key.len()).max();
        let width = width.unwrap_or_default();
        for kept in &self.kept {
            write!(f, "{:width$} {:10.0}", kept.key, kept.count)?;
            match kept.tolerance_percent {
                Some(percent) => writeln!(f, "   {percent} %")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Counts.\n# taken with: A\n\
                        cache/write 4 KiB       1000\n\
                        fs/create              20000   30 %\n";

    fn counts(values: &[(&str, f64)]) -> Round {
        let mut round = Round::default();
        for (key, value) in values {
            round.insert(*key, *value);
        }
        round
    }

    fn verdicts(write: f64, create: f64) -> Vec<Verdict> {
        let counts = counts(&[("cache/write 4 KiB", write), ("fs/create", create)]);
        let findings = Baseline::parse(TEXT).unwrap().check(&counts);
        findings.iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn a_count_may_be_a_tenth_off_and_no_more() {
        use Verdict::{Cheaper, Dearer, Same};
        assert_eq!(verdicts(1000.0, 20000.0), [Same, Same]);
        assert_eq!(verdicts(1100.0, 25999.0), [Same, Same]);
        assert_eq!(verdicts(900.0, 14001.0), [Same, Same]);
        assert_eq!(verdicts(1101.0, 20000.0), [Dearer, Same]);
        assert_eq!(verdicts(899.0, 20000.0), [Cheaper, Same]);
        assert_eq!(verdicts(1000.0, 26001.0), [Same, Dearer]);
        assert_eq!(verdicts(1000.0, 13999.0), [Same, Cheaper]);
    }

    #[test]
    fn what_is_cheaper_is_told_and_not_refused() {
        let refused = |verdict| {
            let key = String::new();
            let (kept, now) = (Some(1.0), Some(1.0));
            Finding {
                key,
                kept,
                now,
                verdict,
            }
            .is_refused()
        };
        assert!(!refused(Verdict::Same) && !refused(Verdict::Cheaper));
        assert!(refused(Verdict::Dearer) && refused(Verdict::New) && refused(Verdict::Gone));
    }

    #[test]
    fn a_path_that_is_not_kept_and_one_that_is_not_counted_are_found() {
        let counts = counts(&[("cache/write 4 KiB", 1000.0), ("cache/read 4 KiB", 5.0)]);
        let findings = Baseline::parse(TEXT).unwrap().check(&counts);
        let shown: Vec<_> = findings.iter().map(Finding::to_string).collect();
        assert_eq!(
            shown,
            [
                "cache/write 4 KiB: 1000 instructions, +0.0 % of 1000",
                "fs/create: in the baseline, and no longer counted",
                "cache/read 4 KiB: 5 instructions, not in the baseline",
            ]
        );
        assert!(findings[1].is_refused() && findings[2].is_refused());
    }

    #[test]
    fn what_is_left_out_is_not_missed() {
        let baseline = Baseline::parse(TEXT).unwrap();
        let baseline = baseline.only(|key| key.starts_with("fs"));
        let findings = baseline.check(&counts(&[("fs/create", 20000.0)]));
        assert_eq!(findings.len(), 1);
        assert!(!findings[0].is_refused());
    }

    #[test]
    fn renewing_keeps_comments_and_tolerances_and_drops_what_is_gone() {
        let mut baseline = Baseline::parse(TEXT).unwrap();
        let now = counts(&[("fs/create", 10000.4), ("fs/lookup", 7.0)]);
        baseline.renew(&now, "# taken with:", "# taken with: B".to_owned());
        let text = baseline.to_string();
        assert_eq!(
            text,
            "# Counts.\n# taken with: B\nfs/create      10000   30 %\nfs/lookup          7\n"
        );
        assert_eq!(baseline.remarks("# taken with:"), Some("# taken with: B"));
        let again = Baseline::parse(&text).unwrap();
        assert!(
            again
                .check(&now)
                .iter()
                .all(|finding| !finding.is_refused())
        );
    }

    #[test]
    fn lines_that_say_no_count_are_refused_by_number() {
        for line in [
            "fs/create",
            "fs/create many",
            "fs/create 1 x %",
            "fs/create 0",
            "fs/create -3",
        ] {
            let error = Baseline::parse(&format!("# a\n\n{line}\n")).unwrap_err();
            assert_eq!(error, BaselineError::Line(3, line.to_owned()));
        }
        assert_eq!(
            Baseline::parse("a b 1\na b 2 5 %\n").unwrap_err(),
            BaselineError::Twice(2, "a b".to_owned())
        );
    }
}
