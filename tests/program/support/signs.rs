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
    /// A series that is above 0 meanwhile, without `forebay_`.
    pub(crate) metric: &'static str,
    /// The problem of the health; empty if there is none.
    pub(crate) problem: &'static str,
    /// A part of the message.
    pub(crate) message: &'static str,
}

impl Signs {
    /// Waits until all signs are there. The gateway has an admin HTTP server.
    #[track_caller]
    pub(crate) fn are_seen(&self, gateway: &Gateway) {
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
            let is_told = self.problem.is_empty()
                || scrape.value(&problem) == 1.0
                    && scrape.value("health") >= 1.0
                    && problems.iter().any(|one| one["name"] == self.problem);
            if is_told && scrape.value(self.metric) > 0.0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{} is {}, {health}",
                self.metric,
                scrape.value(self.metric)
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
