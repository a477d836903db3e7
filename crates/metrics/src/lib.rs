//! Counters, gauges and histograms that any crate of Forebay can keep, and the one table that names them.
//!
//! * [`Counter`], [`Gauge`] and [`Histogram`] are atomic words. An observation takes no lock and allocates nothing: it is
//!   one addition for a counter or gauge, two for a histogram.
//! * [`table`] has a [`Family`] for each metric of the program: name, kind, unit, labels and meaning. Documentation,
//!   scrapes and tests read it.
//! * A [`Source`] is whatever keeps instruments: it reports their values as [`Samples`] when they are read. Its values
//!   are those of one moment each, and not of one moment together.
//!
//! This crate knows no format of the outside: the program encodes samples for Prometheus.

#![forbid(unsafe_code)]

mod family;
mod histogram;
mod instrument;
mod samples;
mod series;
pub mod table;

pub use family::{Family, Kind, Unit};
pub use histogram::{Histogram, Observed};
pub use instrument::{Counter, Gauge};
pub use samples::{Sample, Samples, Source, Value};
