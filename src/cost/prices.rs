//! What the provider of the bucket charges.

use forebay_object::{Method, Total};

use crate::config::{Config, Setting, Source};

/// The provider and date of the default prices.
const DEFAULTS: &str = "AWS S3 Standard, us-east-1, 2025-11";

/// Requests that a price is for.
const REQUESTS: f64 = 1000.0;

/// Bytes that a price is for: AWS counts a GB in 1024s.
const GB: f64 = (1_u64 << 30) as f64;

/// Days of a month: 365.25 / 12.
const MONTH: f64 = 30.4375;

/// Prices, all in one currency.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// Of 1,000 requests that write or list: PUT, COPY, POST and LIST.
    pub writes: f64,
    /// Of 1,000 other ones: GET and HEAD.
    pub reads: f64,
    /// Of 1,000 that delete.
    pub deletes: f64,
    /// Of a GB that is stored for a month.
    pub storage: f64,
    /// Of a GB that leaves the bucket.
    pub download: f64,
    /// The currency.
    pub currency: String,
    /// Provider and date, or that they were configured.
    pub source: String,
}

impl Prices {
    /// Those of the configuration.
    pub fn of_config(config: &Config) -> Prices {
        let own = settings().filter(|setting| config.source(setting.key) != Source::Default);
        let source = match own.count() {
            0 => DEFAULTS.to_owned(),
            _ => "of the configuration".to_owned(),
        };
        Prices {
            writes: config.prices_writes.amount(),
            reads: config.prices_reads.amount(),
            deletes: config.prices_deletes.amount(),
            storage: config.prices_storage.amount(),
            download: config.prices_download.amount(),
            currency: config.prices_currency.0.clone(),
            source,
        }
    }

    /// The cost of these requests and of the bytes of their answers. Failed ones count.
    pub fn of(&self, total: &Total) -> f64 {
        let price = match total.method {
            Method::Get | Method::Head => self.reads,
            Method::Delete | Method::AbortUpload => self.deletes,
            Method::Put
            | Method::List
            | Method::Copy
            | Method::CreateUpload
            | Method::PutPart
            | Method::CompleteUpload
            | Method::Other => self.writes,
        };
        let requests = total.requests as f64 / REQUESTS * price;
        requests + total.received_bytes as f64 / GB * self.download
    }

    /// The cost of storing this many bytes for a day.
    pub fn of_storage(&self, bytes: u64) -> f64 {
        bytes as f64 / GB * self.storage / MONTH
    }
}

/// The settings of prices.
fn settings() -> impl Iterator<Item = &'static Setting> {
    let all = crate::config::SETTINGS.iter();
    all.filter(|setting| setting.table() == Some("prices"))
}
