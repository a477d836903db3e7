//! Published figures of other systems, as they ran on this kind of machine, beside our own.
//!
//! The rows are data, a line each with tabs between the columns:
//!
//! ```text
//! # comment
//! row <tab> unit <tab> published figure <tab> benchmark of the same work <tab> benchmark of the honest work
//! ```
//!
//! The *same work* is the work of their benchmark, even if it is favourable (one file again and again, data in the
//! processor's cache); the *honest* one is the work that a server has to do. "-" if there is none.

use crate::table::{digits, head, line, three};
use crate::{Bench, Median, Samples};

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Millions of bytes a second: more is better.
    MegabytesASecond,
    /// Thousands of operations a second: more is better.
    ThousandASecond,
    /// Nanoseconds: less is better.
    Nanoseconds,
    /// Microseconds: less is better.
    Microseconds,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    unit: Unit,
    published: f64,
    same: Option<String>,
    honest: Option<String>,
}

/// The rows of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published(Vec<Row>);

/// Why there is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishedError {
    /// A line lacks something that a row needs.
    #[error("line {0}: {1}")]
    Line(usize, &'static str),
    /// A benchmark has no result.
    #[error("{row}: there are no results of {bench:?}: run it by `cargo bench`")]
    NotRun {
        /// The row.
        row: String,
        /// The benchmark.
        bench: String,
    },
    /// A benchmark does not state its amount of work.
    #[error("{row}: {bench:?} does not say how much an iteration does, which {unit} needs")]
    NoAmount {
        /// The row.
        row: String,
        /// The benchmark.
        bench: String,
        /// The unit that needs the amount.
        unit: &'static str,
    },
}

impl Unit {
    const ALL: [Unit; 4] = [
        Unit::MegabytesASecond,
        Unit::ThousandASecond,
        Unit::Nanoseconds,
        Unit::Microseconds,
    ];

    /// The unit as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Unit::MegabytesASecond => "MB/s",
            Unit::ThousandASecond => "thousand/s",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
        }
    }

    /// The result of a benchmark in this unit. `None` if it does not state its number of bytes or elements.
    fn of(self, bench: &Bench) -> Option<Median> {
        match self {
            Unit::MegabytesASecond => bench.megabytes_a_second(),
            Unit::ThousandASecond => {
                let elements = bench.elements? as f64;
                Some(bench.time_ns.reversed(|time_ns| elements / time_ns * 1e6))
            }
            Unit::Nanoseconds => Some(bench.time_ns),
            Unit::Microseconds => Some(bench.time_ns.map(|time_ns| time_ns / 1e3)),
        }
    }

    /// How many times `ours` is better.
    fn ahead(self, ours: f64, published: f64) -> f64 {
        match self {
            Unit::MegabytesASecond | Unit::ThousandASecond => ours / published,
            Unit::Nanoseconds | Unit::Microseconds => published / ours,
        }
    }
}

impl Published {
    /// Reads the rows.
    pub fn parse(text: &str) -> Result<Published, PublishedError> {
        let mut rows = Vec::new();
        for (index, content) in text.lines().enumerate() {
            if content.trim().is_empty() || content.starts_with('#') {
                continue;
            }
            let wrong = |what| PublishedError::Line(index + 1, what);
            let columns: Vec<_> = content.split('\t').map(str::trim).collect();
            let [name, unit, published, same, honest] = columns[..] else {
                return Err(wrong("not five columns with tabs between them"));
            };
            let unit = Unit::ALL.into_iter().find(|known| known.name() == unit);
            let published = published.parse().ok();
            let published = published.filter(|figure: &f64| figure.is_finite() && *figure > 0.0);
            let bench = |name: &str| (name != "-").then(|| name.to_owned());
            rows.push(Row {
                name: name.to_owned(),
                unit: unit.ok_or_else(|| wrong("no unit of MB/s, thousand/s, ns, us"))?,
                published: published.ok_or_else(|| wrong("no published figure"))?,
                same: bench(same),
                honest: bench(honest),
            });
        }
        Ok(Published(rows))
    }

    /// The table, with medians, quartiles and how many times they are better.
    pub fn table(&self, samples: &Samples) -> Result<String, PublishedError> {
        let mut table = head(&[
            "",
            "unit",
            "published",
            "the same work here",
            "times as good",
            "honest work here",
            "times as good",
        ]);
        for row in &self.0 {
            let [same, same_ahead] = row.cells(row.same.as_deref(), samples)?;
            let [honest, honest_ahead] = row.cells(row.honest.as_deref(), samples)?;
            let published = three(row.published);
            let cells = [
                row.name.as_str(),
                row.unit.name(),
                &published,
                &same,
                &same_ahead,
                &honest,
                &honest_ahead,
            ];
            table.push_str(&line(cells));
        }
        Ok(table)
    }
}

impl Row {
    /// Our figure, and how many times it is better.
    fn cells(&self, bench: Option<&str>, samples: &Samples) -> Result<[String; 2], PublishedError> {
        let Some(name) = bench else {
            return Ok([String::new(), String::new()]);
        };
        let row = || self.name.clone();
        let found = samples.get(name).ok_or_else(|| PublishedError::NotRun {
            row: row(),
            bench: name.to_owned(),
        })?;
        let ours = self
            .unit
            .of(found)
            .ok_or_else(|| PublishedError::NoAmount {
                row: row(),
                bench: name.to_owned(),
                unit: self.unit.name(),
            })?;
        let ahead = self.unit.ahead(ours.value, self.published);
        Ok([digits(ours), three(ahead)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::leave;

    const ROWS: &str = "# comment\n\nsequential write 4 KiB\tMB/s\t1000\tsame/4\thonest/4\n\
                        range covered\tns\t331\tcovered\t-\ndirty blocks\tus\t20.5\t-\tdirty\n";

    fn samples() -> Samples {
        let folder = tempfile::tempdir().unwrap();
        let bytes = r#"{"Bytes":4000}"#;
        leave(folder.path(), "same/4", bytes, "1,1,1", "1000,2000,4000");
        leave(folder.path(), "honest/4", bytes, "1", "8000");
        leave(folder.path(), "covered", "null", "1", "33.1");
        leave(folder.path(), "dirty", "null", "1", "41000");
        Samples::read(folder.path()).unwrap()
    }

    #[test]
    fn being_ahead_is_more_bytes_and_less_time() {
        let table = Published::parse(ROWS).unwrap().table(&samples()).unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| sequential write 4 KiB | MB/s | 1000 | 2000 (1000 to 4000) | 2.00 | 500 (500 to 500) | 0.50 |",
                "| range covered | ns | 331 | 33.1 (33.1 to 33.1) | 10.0 | | |",
                "| dirty blocks | us | 20.5 | | | 41.0 (41.0 to 41.0) | 0.50 |",
            ]
        );
    }

    #[test]
    fn a_row_of_a_benchmark_that_did_not_run_is_no_row() {
        let rows = Published::parse("a\tns\t1\tabsent\t-\n").unwrap();
        let error = rows.table(&samples()).unwrap_err().to_string();
        assert!(error.contains("no results of \"absent\""), "{error}");
        let rows = Published::parse("a\tMB/s\t1\tcovered\t-\n").unwrap();
        let error = rows.table(&samples()).unwrap_err().to_string();
        assert!(error.contains("which MB/s needs"), "{error}");
    }

    #[test]
    fn lines_that_are_no_rows_are_refused_by_number() {
        for (row, why) in [
            ("a\tns\t1\tb", "not five columns with tabs between them"),
            ("a\tGB/s\t1\tb\tc", "no unit of MB/s, thousand/s, ns, us"),
            ("a\tns\tmany\tb\tc", "no published figure"),
            ("a\tns\t0\tb\tc", "no published figure"),
        ] {
            let parsed = Published::parse(&format!("# rows\n{row}\n"));
            assert_eq!(parsed, Err(PublishedError::Line(2, why)));
        }
    }
}
