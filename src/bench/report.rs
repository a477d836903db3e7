//! The results, as a table to paste and as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::mount::Mount;

/// The table. Its `Display` is Markdown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The folder and its mount.
    pub place: Mount,
    /// Bytes of the large file.
    pub file_bytes: u64,
    /// Number of small files.
    pub files: u64,
    /// Number of threads of the parallel steps.
    pub parallel: usize,
    /// In the order in which they were measured.
    pub lines: Vec<Line>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The measured action.
    pub what: String,
    /// Number of operations.
    pub operations: u64,
    /// Bytes that were transferred, 0 for operations on names.
    pub bytes: u64,
    /// From the beginning of the first operation to the end of the last, including the flush behind it.
    pub seconds: f64,
    /// Latencies of single operations.
    pub latency: Latencies,
}

/// Latencies of single operations, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latencies {
    /// The latencies of operations with these durations; zeros if there were none.
    pub(super) fn of(mut times: Vec<Duration>) -> Latencies {
        times.sort_unstable();
        let micros = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e6);
        // The smallest time that this percentage of operations does not exceed.
        let percentile = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100);
            micros(times.get(rank.saturating_sub(1)))
        };
        Latencies {
            p50_us: percentile(50),
            p99_us: percentile(99),
            max_us: micros(times.last()),
        }
    }
}

impl Line {
    fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "`forebay bench` {}: {}; file of {} MiB, {} small files, {} threads\n",
            env!("CARGO_PKG_VERSION"),
            self.place,
            self.file_bytes >> 20,
            self.files,
            self.parallel
        )?;
        writeln!(
            f,
            "| {:<44} | {:>9} | {:>8} | {:>9} | {:>9} | {:>9} | {:>9} |",
            "what", "ops/s", "MB/s", "seconds", "p50 us", "p99 us", "max us"
        )?;
        writeln!(
            f,
            "|{:-<46}|{:->10}:|{:->9}:|{:->10}:|{:->10}:|{:->10}:|{:->10}:|",
            "", "", "", "", "", "", ""
        )?;
        for line in &self.lines {
            let bytes = match line.bytes {
                0 => String::new(),
                _ => format!("{:.1}", line.megabytes_per_second()),
            };
            writeln!(
                f,
                "| {:<44} | {:>9.0} | {:>8} | {:>9.2} | {:>9.0} | {:>9.0} | {:>9.0} |",
                line.what,
                line.operations_per_second(),
                bytes,
                line.seconds,
                line.latency.p50_us,
                line.latency.p99_us,
                line.latency.max_us
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let millis = |n: u64| Duration::from_millis(n);
        let latency = Latencies::of((1..=200).rev().map(millis).collect());
        assert_eq!(latency.p50_us, 100_000.0);
        assert_eq!(latency.p99_us, 198_000.0);
        assert_eq!(latency.max_us, 200_000.0);
        let one = Latencies::of(vec![millis(3)]);
        assert_eq!((one.p50_us, one.p99_us, one.max_us), (3e3, 3e3, 3e3));
        assert_eq!(Latencies::of(Vec::new()).max_us, 0.0);
    }

    #[test]
    fn the_table_is_markdown_whose_rows_have_as_many_columns_as_its_head() {
        let line = |what: &str, bytes| Line {
            what: what.to_owned(),
            operations: 256,
            bytes,
            seconds: 2.0,
            latency: Latencies::of(vec![Duration::from_micros(1500)]),
        };
        let report = Report {
            place: Mount::unknown("/mnt"),
            file_bytes: 256 << 20,
            files: 10,
            parallel: 4,
            lines: vec![line("sequential write", 256 << 20), line("stat", 0)],
        };
        let text = report.to_string();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.matches('|').count() == 8));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        assert!(rows[2].contains("134.2"), "MB of a million bytes: {text}");
        assert!(rows[3].contains("128"), "operations a second: {text}");
    }
}
