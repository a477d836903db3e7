//! The requests to a gateway's bucket, and what it costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_fs::Volume;
use forebay_metrics::{Samples, Source, Value, table};
use forebay_object::{Cause, Method, Requests, Total};

use crate::admin::RequestTotal;
use crate::config::Config;
use crate::cost::{Cost, Meter, Prices};

/// The requests and the cost of one bucket.
pub(super) struct Costs {
    requests: Arc<Requests>,
    pub(super) meter: Meter,
    prices: Prices,
    volume: Volume,
}

impl Costs {
    pub(super) fn new(config: &Config, requests: Arc<Requests>, volume: Volume) -> Costs {
        Costs {
            meter: Meter::new(requests.clone()),
            requests,
            prices: Prices::of_config(config),
            volume,
        }
    }

    /// The cost so far.
    pub(super) fn cost(&self) -> Cost {
        let space = self.volume.status().collector.space;
        let stored = space.map(|space| space.stored_bytes);
        self.meter.cost(&self.prices, stored)
    }

    /// Bytes of objects that were put since the start.
    pub(super) fn uploaded_bytes(&self) -> u64 {
        let puts = |total: &Total| matches!(total.method, Method::Put | Method::PutPart);
        let puts = self.requests.totals().filter(puts);
        puts.map(|total| total.sent_bytes).sum()
    }

    /// Requests by kind, and the bytes of objects that were put and got.
    pub(super) fn by_kind(&self) -> BTreeMap<String, u64> {
        let totals: Vec<Total> = self.requests.totals().collect();
        let of = |method| totals.iter().filter(move |total| total.method == method);
        let count = |method| of(method).map(|total| total.requests).sum();
        let got = of(Method::Get).map(|total| total.received_bytes).sum();
        [
            ("store_put", count(Method::Put)),
            ("store_get", count(Method::Get)),
            ("store_head", count(Method::Head)),
            ("store_list", count(Method::List)),
            ("store_delete", count(Method::Delete)),
            ("store_bytes_put", self.uploaded_bytes()),
            ("store_bytes_got", got),
        ]
        .map(|(kind, count)| (kind.to_owned(), count))
        .into()
    }

    /// Requests by method and cause.
    pub(super) fn by_cause(&self) -> Vec<RequestTotal> {
        let described = |total: Total| RequestTotal {
            method: Method::ALL[total.method as usize].1.to_owned(),
            cause: Cause::ALL[total.cause as usize].1.to_owned(),
            requests: total.requests,
            sent_bytes: total.sent_bytes,
            received_bytes: total.received_bytes,
        };
        self.requests.totals().map(described).collect()
    }
}

impl Source for Costs {
    fn collect(&self, samples: &mut Samples) {
        let cost = self.cost();
        for one in cost.by_cause {
            let labels = || [one.cause.clone().into(), cost.currency.clone().into()];
            samples.add(&table::COST, labels(), Value::Counter(one.since_start));
            samples.add(&table::COST_PER_DAY, labels(), Value::Gauge(one.per_day));
        }
        if let Some(per_day) = cost.storage_per_day {
            let labels = ["storage".into(), cost.currency.into()];
            samples.add(&table::COST_PER_DAY, labels, Value::Gauge(per_day));
        }
    }
}
