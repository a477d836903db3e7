//! Where an operator sees a trouble: in the log, the events, the health and the metrics.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Gateway, TIMEOUT};
use crate::metrics::Scrape;

/// The signs of one trouble. The row of the table in docs/operations.md has the same ones.
pub(crate) struct Signs {
    /// The row's first cell.
    pub(crate) trouble: &'static str,
    /// The series that shows it, without `forebay_`.
    pub(crate) metric: &'static str,
    /// By how much the series is above its value before the fault, at least.
    pub(crate) at_least: f64,
    /// The problem of the health; empty if the gateway stays healthy.
    pub(crate) problem: &'static str,
    /// A part of the message.
    pub(crate) message: &'static str,
}

impl Signs {
    /// Waits until all signs are there. The series was 0 before the fault. The gateway has an admin HTTP server.
    #[track_caller]
    pub(crate) fn are_seen(&self, gateway: &Gateway) {
        self.are_seen_since(&Scrape::default(), gateway);
    }

    /// The same, where the series had a value `before` the fault.
    #[track_caller]
    pub(crate) fn are_seen_since(&self, before: &Scrape, gateway: &Gateway) {
        assert!(self.at_least > 0.0, "the metric shows nothing");
        self.are_documented();
        gateway.says(self.message);
        let events = gateway.ask(&["events", "--json"]).stdout;
        let mut events = events.lines().map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["message"].as_str().unwrap().to_owned()
        });
        assert!(
            events.any(|message| message.contains(self.message)),
            "no event: {}",
            self.message
        );
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let scrape = Scrape::of(gateway);
            let health = gateway.status()["health"].clone();
            let problems = health["problems"].as_array().unwrap();
            let problem = format!("problem{{name=\"{}\"}}", self.problem);
            let is_told = if self.problem.is_empty() {
                assert_eq!((scrape.value("health"), problems), (0.0, &Vec::new()));
                true
            } else {
                scrape.value(&problem) == 1.0
                    && scrape.value("health") >= 1.0
                    && problems.iter().any(|one| one["name"] == self.problem)
            };
            let grown = scrape.value(self.metric) - before.value(self.metric);
            if is_told && grown >= self.at_least {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{} has grown by {grown}, {health}",
                self.metric
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The table for operators has a row of this trouble, with these signs.
    #[track_caller]
    pub(crate) fn are_documented(&self) {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");
        let page = fs::read_to_string(page).unwrap();
        let begin = format!("| {} |", self.trouble);
        let row = page.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("no row {}", self.trouble));
        let family = self.metric.split('{').next().unwrap();
        let family = family.trim_end_matches("_count").trim_end_matches("_sum");
        for sign in [&format!("forebay_{family}"), self.problem, self.message] {
            assert!(row.contains(sign), "{sign} is not in {row}");
        }
    }
}
