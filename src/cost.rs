//! The cost of the bucket: of requests by cause, of bytes that leave it, and of what it stores.
//!
//! [`Prices`] are those of the configuration. [`Cost::of`] computes: it knows no clock and no gateway. [`Meter`] remembers
//! how many requests there were in the last hour. `docs/costs.md` has the rules.

mod meter;
mod prices;

use std::fmt;
use std::time::Duration;

use forebay_object::{Cause, Total};
use serde::{Deserialize, Serialize};

pub use meter::Meter;
pub use prices::Prices;

const DAY: f64 = 86_400.0;

/// The shortest time from which a rate is computed.
const LEAST_WINDOW: Duration = Duration::from_secs(60);

/// The cost of a gateway's bucket. `forebay status --json` has it under the name `cost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The currency of all amounts.
    pub currency: String,
    /// Where the prices come from.
    pub prices: String,
    /// Amount a day: of requests and bytes at their rate in `window_seconds`, and of storage.
    pub per_day: f64,
    /// The part of storage in it: of the packs that the bucket has now. Null before the first commit since the start,
    /// after which they are counted.
    pub storage_per_day: Option<f64>,
    /// The time over which the rate is measured: the last hour, or since the start, but one minute at least.
    pub window_seconds: f64,
    /// Amount of requests and bytes since the start.
    pub since_start: f64,
    /// The same by the cause of the requests, in the order of [`Cause::ALL`]; only causes that there were.
    pub by_cause: Vec<CostOfCause>,
}

/// The cost of requests and bytes for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostOfCause {
    /// The cause, by its name in metrics.
    pub cause: String,
    /// Requests since the start.
    pub requests: u64,
    /// Amount since the start.
    pub since_start: f64,
    /// Amount a day.
    pub per_day: f64,
}

impl Cost {
    /// The cost of `now`, the requests since the start, of which there were `earlier` a `window` ago, and of
    /// `stored_bytes`.
    pub fn of(
        prices: &Prices,
        now: &[Total],
        earlier: &[Total],
        window: Duration,
        stored_bytes: Option<u64>,
    ) -> Cost {
        let window = window.max(LEAST_WINDOW);
        let amount = |totals: &[Total], cause: Cause| -> f64 {
            let of_cause = totals.iter().filter(|total| total.cause == cause);
            of_cause.map(|total| prices.of(total)).sum()
        };
        let of_cause = |(cause, name): (Cause, &str)| {
            let totals = now.iter().filter(|total| total.cause == cause);
            let requests = totals.map(|total| total.requests).sum();
            let since_start = amount(now, cause);
            let recent = since_start - amount(earlier, cause);
            (requests > 0).then(|| CostOfCause {
                cause: name.to_owned(),
                requests,
                since_start,
                per_day: recent.max(0.0) * DAY / window.as_secs_f64(),
            })
        };
        let by_cause: Vec<CostOfCause> = Cause::ALL.into_iter().filter_map(of_cause).collect();
        let storage_per_day = stored_bytes.map(|bytes| prices.of_storage(bytes));
        let requests_per_day: f64 = by_cause.iter().map(|one| one.per_day).sum();
        Cost {
            currency: prices.currency.clone(),
            prices: prices.source.clone(),
            per_day: requests_per_day + storage_per_day.unwrap_or(0.0),
            storage_per_day,
            window_seconds: window.as_secs_f64(),
            since_start: by_cause.iter().map(|one| one.since_start).sum(),
            by_cause,
        }
    }

    /// Which causes cost how much a day, most first.
    pub fn causes(&self) -> String {
        let mut causes: Vec<_> = self.by_cause.iter().collect();
        causes.sort_by(|one, other| other.per_day.total_cmp(&one.per_day));
        let shown = causes.iter().map(|one| {
            let amount = Amount(one.per_day);
            format!("{} {amount}", one.cause.escape_debug())
        });
        let storage = self.storage_per_day.map(|amount| {
            let amount = Amount(amount);
            format!("storage {amount}")
        });
        shown.chain(storage).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = match Duration::try_from_secs_f64(self.window_seconds) {
            Ok(window) if window >= meter::HOUR => "the last hour",
            _ => "the time since the start",
        };
        let (day, start) = (Amount(self.per_day), Amount(self.since_start));
        let currency = self.currency.escape_debug();
        write!(
            f,
            "{day} {currency} a day at the rate of {window}; {start} for requests since the start"
        )
    }
}

/// An amount for people: two places, and more if it is small.
struct Amount(f64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = match self.0 {
            amount if amount >= 0.1 || amount == 0.0 => 2,
            amount if amount >= 0.001 => 4,
            _ => 6,
        };
        write!(f, "{:.places$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use forebay_object::Method;

    use super::*;

    fn total(method: Method, cause: Cause, requests: u64, received_bytes: u64) -> Total {
        Total {
            method,
            cause,
            requests,
            sent_bytes: 1 << 40,
            received_bytes,
        }
    }

    fn prices() -> Prices {
        Prices {
            writes: 5.0,
            reads: 0.5,
            deletes: 0.25,
            storage: 30.4375,
            download: 2.0,
            currency: "EUR".to_owned(),
            source: "a test".to_owned(),
        }
    }

    #[track_caller]
    fn is(amount: f64, expected: f64) {
        assert!(
            (amount - expected).abs() < 1e-9,
            "{amount} is not {expected}"
        );
    }

    #[test]
    fn each_cause_costs_its_requests_and_the_bytes_that_leave() {
        let now = [
            total(Method::Put, Cause::Publish, 3000, 0),
            total(Method::CreateUpload, Cause::Publish, 500, 0),
            total(Method::Get, Cause::Fetch, 4000, 3 << 30),
            total(Method::Head, Cause::Fetch, 2000, 0),
            total(Method::Delete, Cause::Collector, 8000, 0),
            total(Method::AbortUpload, Cause::Collector, 4000, 0),
            total(Method::List, Cause::Collector, 100, 0),
        ];
        let earlier = [total(Method::Put, Cause::Publish, 1000, 0)];
        let cost = Cost::of(
            &prices(),
            &now,
            &earlier,
            Duration::from_secs(3600),
            Some(4 << 30),
        );
        let causes: Vec<_> = cost.by_cause.iter().map(|one| &*one.cause).collect();
        assert_eq!(causes, ["publish", "fetch", "collector"]);
        is(cost.by_cause[0].since_start, 17.5);
        is(cost.by_cause[0].per_day, 12.5 * 24.0);
        is(cost.by_cause[1].since_start, 2.0 + 1.0 + 6.0);
        is(cost.by_cause[2].since_start, 3.0 + 0.5);
        is(cost.since_start, 17.5 + 9.0 + 3.5);
        is(cost.storage_per_day.unwrap(), 4.0);
        is(cost.per_day, (12.5 + 9.0 + 3.5) * 24.0 + 4.0);
        assert_eq!(cost.by_cause[1].requests, 6000);
        assert_eq!(
            cost.to_string(),
            "604.00 EUR a day at the rate of the last hour; 30.00 for requests since the start"
        );
        assert_eq!(
            cost.causes(),
            "publish 300.00, fetch 216.00, collector 84.00, storage 4.00"
        );
    }

    #[test]
    fn a_young_gateway_is_not_extrapolated_from_seconds_and_storage_may_be_unknown() {
        let now = [total(Method::Put, Cause::Other, 1000, 0)];
        let cost = Cost::of(&prices(), &now, &[], Duration::from_secs(1), None);
        is(cost.per_day, 5.0 * 24.0 * 60.0);
        assert_eq!((cost.window_seconds, cost.storage_per_day), (60.0, None));
        let nothing = Cost::of(&prices(), &[], &[], Duration::ZERO, None);
        assert_eq!((nothing.per_day, nothing.since_start), (0.0, 0.0));
    }

    #[test]
    fn small_amounts_have_more_places() {
        let shown = [0.0, 1.234, 0.0123, 0.000_012].map(|amount| Amount(amount).to_string());
        assert_eq!(shown, ["0.00", "1.23", "0.0123", "0.000012"]);
    }
}
