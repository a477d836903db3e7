//! The description of a metric.

/// Prefix of the names of all metrics.
const PREFIX: &str = "forebay_";

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process runs.
    Counter,
    /// It increases and decreases.
    Gauge,
    /// Counts of observations by size, and their sum. Both only grow.
    Histogram,
}

/// Units of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, which the name says.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// One metric: a value for each combination of its labels' values.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Name without the prefix that all have, and without the suffix of counters. The unit is its last word.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// Unit of the values.
    pub unit: Unit,
    /// Names of its labels, in the order of the values of a [`Sample`](crate::Sample).
    pub labels: &'static [&'static str],
    /// What it measures, as one sentence.
    pub meaning: &'static str,
}

impl Family {
    /// The name in a scrape: with the prefix, and `_total` for a counter, as Prometheus' conventions have it.
    pub fn full_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{PREFIX}{}{suffix}", self.name)
    }

    /// The name without its unit and suffix, with the prefix: encoders of OpenMetrics append both.
    pub fn base_name(&self) -> String {
        let unit = match self.unit {
            Unit::None => "",
            Unit::Seconds => "_seconds",
            Unit::Bytes => "_bytes",
        };
        let name = self.name.strip_suffix(unit).unwrap_or(self.name);
        format!("{PREFIX}{name}")
    }
}
