//! Metrics of the whole program, as a scrape shows them.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::admin_http::{address, text};
use crate::support::nfs::Stable;
use crate::support::proxied::Proxied;
use crate::support::s3_proxy::{Answered, Fault};
use crate::support::{Gateway, Place, TIMEOUT};

pub(crate) const ADMIN: &str = "--admin-listen=127.0.0.1:0";

/// The values of a scrape by their series, as in `forebay_client_calls_total{client="127.0.0.1"}`.
#[derive(Default)]
pub(crate) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    pub(crate) fn of(gateway: &Gateway) -> Scrape {
        Scrape::at(&address(gateway))
    }

    /// A scrape of the gateway whose admin HTTP server has this address.
    pub(crate) fn at(address: &str) -> Scrape {
        let text = text(address, "/metrics");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        Scrape(lines.map(value).collect())
    }

    /// The value of a series; 0 before its first event.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let series = format!("forebay_{series}");
        self.0.get(&series).copied().unwrap_or(0.0)
    }

    /// The sum over all series that begin like this and have this label, such as `cause="scrub"`.
    pub(crate) fn sum_with(&self, begin: &str, label: &str) -> f64 {
        let begin = format!("forebay_{begin}{{");
        let of_it = self
            .0
            .iter()
            .filter(|(series, _)| series.starts_with(&begin) && series.contains(label));
        of_it.map(|(_, value)| value).sum()
    }

    /// The sum over all series that begin like this.
    pub(crate) fn sum(&self, begin: &str) -> f64 {
        let begin = format!("forebay_{begin}");
        let of_it = self
            .0
            .iter()
            .filter(|(series, _)| series.starts_with(&begin));
        of_it.map(|(_, value)| value).sum()
    }
}

pub(crate) fn calls(procedure: &str, outcome: &str) -> String {
    let name = "nfs_call_duration_seconds_count";
    format!("{name}{{procedure=\"{procedure}\",outcome=\"{outcome}\"}}")
}

pub(crate) fn requests(method: &str, cause: &str, outcome: &str) -> String {
    let name = "store_request_duration_seconds_count";
    format!("{name}{{method=\"{method}\",cause=\"{cause}\",outcome=\"{outcome}\"}}")
}

#[test]
fn flushes_of_the_log_and_checkpoints_are_counted() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN, "--checkpoint-interval=1h"]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    let before = Scrape::of(&gateway);
    for at in 0..5 {
        let written = client.write(&file, at * 100, &[7; 100], Stable::FileSync);
        written.unwrap();
    }
    let after = Scrape::of(&gateway);
    let grown = |name: &str| after.value(name) - before.value(name);
    // One client that waits for each write: a flush, and a record, for each.
    let flushes = "log_flush_duration_seconds_count{outcome=\"ok\"}";
    assert_eq!(grown(flushes), 5.0);
    assert_eq!(grown("log_flush_records_count"), 5.0);
    assert_eq!(grown("log_flush_records_sum"), 5.0);
    assert_eq!(grown("log_flush_bytes_sum"), grown("durable_lsn"));
    assert!(grown("log_flush_bytes_sum") > 500.0);

    gateway.flush();
    let published = Scrape::of(&gateway);
    let grown = |name: &str| published.value(name) - after.value(name);
    assert_eq!(grown("checkpoint_duration_seconds_count"), 1.0);
    for stage in ["uploading", "publishing"] {
        let name = format!("checkpoint_stage_duration_seconds_count{{stage=\"{stage}\"}}");
        assert_eq!(grown(&name), 1.0);
    }
    assert_eq!(published.sum("queue_length"), 0.0);
    assert_eq!(published.sum("waiting_calls"), 0.0);
    gateway.stop_cleanly();
}

/// Bytes of answered READs from memory, disk cache, bucket and holes.
fn read_bytes(scrape: &Scrape) -> [f64; 4] {
    ["memory", "disk_cache", "bucket", "hole"]
        .map(|tier| scrape.value(&format!("read_bytes_total{{tier=\"{tier}\"}}")))
}

#[test]
fn reads_are_counted_by_the_tier_that_had_their_bytes() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    let mut client = gateway.client();
    client.put("file", &[7; 300_000]);
    client.get("file").unwrap();
    assert_eq!(
        read_bytes(&Scrape::of(&gateway)),
        [300_000.0, 0.0, 0.0, 0.0]
    );
    let root = client.mount();
    let sparse = client.create(&root, b"sparse");
    let end = client.write(&sparse, 1_000_000, b"end", Stable::FileSync);
    end.unwrap();
    gateway.stop_cleanly();

    // Nothing is in memory any more.
    let gateway = place.serve_with("data", &[ADMIN]);
    let mut client = gateway.client();
    client.get("file").unwrap();
    let [memory, disk_cache, bucket, hole] = read_bytes(&Scrape::of(&gateway));
    assert_eq!((memory + bucket, disk_cache, hole), (300_000.0, 0.0, 0.0));
    assert!(bucket > 0.0);
    client.get("file").unwrap();
    let again = read_bytes(&Scrape::of(&gateway));
    assert_eq!(again, [memory + 300_000.0, 0.0, bucket, 0.0]);
    client.get("sparse").unwrap();
    let with_hole = read_bytes(&Scrape::of(&gateway));
    assert_eq!(with_hole[3], 1_000_000.0);
    assert_eq!(with_hole.iter().sum::<f64>(), 600_000.0 + 1_000_003.0);
    gateway.stop_cleanly();
}

#[test]
fn reads_of_metadata_are_counted_by_whether_memory_had_them() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("file", &[7; 1000]);
    gateway.stop_cleanly();
    // Nothing is in memory any more.
    let gateway = place.serve_with("data", &[ADMIN, "--metadata-cache=8MiB"]);
    gateway.client().get("file").unwrap();
    let scrape = Scrape::of(&gateway);
    let reads = |label: &str| scrape.sum_with("metadata_cache_reads_total", label);
    assert!(reads("part=\"block\",result=\"miss\"") >= 1.0);
    for part in ["block", "index"] {
        assert!(reads(&format!("part=\"{part}\"")) >= 1.0, "{part}");
    }
    let memory = |name: &str| scrape.value(&format!("{name}{{owner=\"metadata\"}}"));
    let (used, limit) = (memory("memory_bytes"), memory("memory_limit_bytes"));
    assert_eq!(limit, f64::from(8 << 20));
    assert!(used > 0.0 && used <= limit, "{used}");
    let found = &gateway.status()["metadata_cache"];
    assert_eq!(found["limit_bytes"], 8 << 20);
    let number = |name: &str| found[name].as_f64().unwrap();
    assert!(number("hits") >= reads("result=\"hit\""));
    assert!(number("misses") >= reads("result=\"miss\""));
    let shown = gateway.ask(&["status"]).stdout;
    assert!(shown.contains(" of 8.0 MiB, "), "{shown}");
    assert!(shown.contains(" parts of tables found since the start\n"));
    gateway.stop_cleanly();
}

#[test]
fn calls_clients_and_requests_are_counted() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    let mut client = gateway.client();
    client.put("file", &[7; 300_000]);
    client.get("missing").unwrap_err();
    gateway.flush();
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value(&calls("WRITE", "ok")) >= 1.0);
    assert_eq!(scrape.value(&calls("LOOKUP", "error")), 1.0);
    assert_eq!(
        scrape.value("nfs_errors_total{status=\"NFS3ERR_NOENT\"}"),
        1.0
    );
    let of_client = |name: &str| scrape.value(&format!("client_{name}{{client=\"127.0.0.1\"}}"));
    assert_eq!(
        of_client("calls_total"),
        scrape.sum("nfs_call_duration_seconds_count")
    );
    assert!(of_client("received_bytes_total") > 300_000.0);
    assert_eq!(
        of_client("sent_bytes_total"),
        scrape.value("nfs_sent_bytes_total")
    );
    assert_eq!(scrape.value(&requests("put", "publish", "ok")), 1.0);
    assert!(scrape.value(&requests("put", "metadata", "ok")) >= 1.0);
    assert_eq!(scrape.value("unpublished_bytes"), 0.0);
    assert_eq!(scrape.value("health"), 0.0);
    gateway.stop_cleanly();

    // Nothing is in memory any more.
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().get("file").unwrap();
    let scrape = Scrape::of(&gateway);
    let fetched = ["fetch", "prefetch"].map(|cause| scrape.value(&requests("get", cause, "ok")));
    assert!(fetched[0] >= 1.0, "{fetched:?}");
    let received = ["fetch", "prefetch"].map(|cause| {
        scrape.value(&format!(
            "store_received_bytes_total{{method=\"get\",cause=\"{cause}\"}}"
        ))
    });
    assert!(received[0] > 0.0, "{received:?}");
    assert_eq!(scrape.value(&requests("put", "publish", "ok")), 0.0);
    gateway.stop_cleanly();
}

#[test]
fn every_family_of_a_scrape_is_in_the_documentation() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("file", &[7; 1000]);
    gateway.flush();
    let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));
    let table = table.unwrap();
    let text = text(&address(&gateway), "/metrics");
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut seen = 0;
    for family in families {
        let (name, kind) = family.split_once(' ').unwrap();
        assert!(
            table.contains(&format!("| `{name}` | {kind} |")),
            "{name} {kind}"
        );
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
    gateway.stop_cleanly();
}

/// Puts a file through a proxy that does this to the first pack, and flushes; the scrape after that.
fn after(fault: Fault) -> (Scrape, String) {
    let behind = Proxied::start(&[ADMIN]);
    let (gateway, proxy) = (&behind.gateway, &behind.proxy);
    proxy.next("PUT", "/packs/", fault);
    gateway.client().put("file", &[7; 300_000]);
    gateway.flush();
    assert_eq!(proxy.injected(fault), 1);
    let scrape = Scrape::of(gateway);
    assert_eq!(scrape.value(&requests("put", "publish", "ok")), 1.0);
    let messages = gateway.messages();
    behind.gateway.stop_cleanly();
    (scrape, messages)
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_bucket_that_throttles_or_fails_is_told_by_outcomes_and_retries() {
    for (fault, outcome, reason) in [
        (Fault::SlowDown, "throttled", "throttled"),
        (Fault::ServerError, "failed", "failed"),
        (Fault::ResetRequest, "unanswered", "connection"),
        (Fault::Stall, "unanswered", "timeout"),
    ] {
        let (scrape, messages) = after(fault);
        let of_outcome = scrape.value(&requests("put", "publish", outcome));
        let retries = scrape.value(&format!("store_retries_total{{reason=\"{reason}\"}}"));
        assert_eq!((of_outcome, retries), (1.0, 1.0), "{fault:?}: {messages}");
        assert_eq!(scrape.sum("store_retries_total"), 1.0, "{fault:?}");
    }
}

/// Requests, bytes sent and bytes received, by kind of object and method.
type Sums = BTreeMap<&'static str, [u64; 3]>;

/// What the gateway has counted, by groups of causes that an observer of the bucket can tell from each other.
fn by_cause(totals: &[serde_json::Value]) -> Sums {
    let mut sums = Sums::new();
    for total in totals {
        let about = match (total["method"].as_str(), total["cause"].as_str()) {
            (Some("put"), Some("publish" | "collector" | "heal")) => "packs, put",
            (Some("get"), Some("fetch" | "prefetch" | "collector" | "scrub")) => "packs, got",
            (Some("put"), Some("metadata" | "merge")) => "metadata, put",
            (Some("get"), Some("metadata" | "merge")) => "metadata, got",
            _ => "the rest",
        };
        let values = ["requests", "sent_bytes", "received_bytes"];
        add(
            &mut sums,
            about,
            values.map(|name| total[name].as_u64().unwrap()),
        );
    }
    sums
}

/// The same, as the bucket has seen it.
fn by_object(answered: &[Answered]) -> Sums {
    let mut sums = Sums::new();
    for one in answered {
        let place = ["/packs/", "/meta/"].map(|part| one.target.contains(part));
        let about = match (&*one.method, place) {
            ("PUT", [true, _]) => "packs, put",
            ("GET", [true, _]) => "packs, got",
            ("PUT", [_, true]) => "metadata, put",
            ("GET", [_, true]) => "metadata, got",
            _ => "the rest",
        };
        let received = if one.method == "HEAD" {
            0
        } else {
            one.received
        };
        add(&mut sums, about, [1, one.sent, received]);
    }
    sums
}

fn add(sums: &mut Sums, about: &'static str, values: [u64; 3]) {
    let sum = sums.entry(about).or_default();
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn as_many_requests_are_counted_as_a_proxy_sees() {
    let behind = Proxied::start(&["--prices-download=2", ADMIN]);
    let (gateway, proxy) = (&behind.gateway, &behind.proxy);
    let mut client = gateway.client();
    for round in 0..5_u8 {
        client.put(&format!("file {round}"), &vec![round; 3_000_000]);
        client.get("file 0").unwrap();
        gateway.flush();
    }
    // The proxy counts a request when it begins, the gateway when it is answered, and work in the background may begin
    // one at any time: so they are compared until both are at rest.
    let counted = || Scrape::of(gateway).sum("store_request_duration_seconds_count");
    let begun = Instant::now();
    while counted() != proxy.requests() as f64 {
        assert!(counted() <= proxy.requests() as f64);
        let (counted, seen) = (counted(), proxy.requests());
        assert!(begun.elapsed() < TIMEOUT, "{counted} counted, {seen} seen");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(proxy.requests() > 20);
    // At the default prices, and at 2 a GB that leaves the bucket.
    let cost = |answered: &[Answered]| -> f64 {
        let prices = answered.iter().map(|one| {
            let lists = one.target.contains("list-type=2");
            let of_request = match &*one.method {
                "GET" | "HEAD" if !lists => 0.0004 / 1000.0,
                "DELETE" => 0.0,
                "POST" if one.target.contains("?delete") => 0.0,
                _ => 0.005 / 1000.0,
            };
            let bytes = if one.method == "HEAD" {
                0
            } else {
                one.received
            };
            of_request + bytes as f64 / (1_u64 << 30) as f64 * 2.0
        });
        prices.sum()
    };
    let begun = Instant::now();
    loop {
        let before = proxy.answered();
        let status = gateway.status();
        let seen = proxy.answered();
        let totals = status["requests_by_cause"].as_array().unwrap();
        let counted: u64 = totals
            .iter()
            .map(|total| total["requests"].as_u64().unwrap())
            .sum();
        if before.len() == seen.len() && counted == seen.len() as u64 {
            let (expected, found) = (cost(&seen), status["cost"]["since_start"].as_f64().unwrap());
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
            assert!(found > 0.0001, "{found}");
            assert_eq!(by_cause(totals), by_object(&seen));
            break;
        }
        assert!(
            begun.elapsed() < TIMEOUT,
            "{counted} counted, {} seen",
            seen.len()
        );
        thread::sleep(Duration::from_millis(10));
    }
    behind.gateway.stop_cleanly();
}

#[test]
fn the_cost_is_that_of_the_requests_at_the_prices_of_the_configuration() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    let text = "checkpoint_interval = \"1h\"\n[prices]\nwrites = 5.0\nreads = 1\ndeletes = 0.5\n\
                storage = 30.4375\ndownload = 1024\ncurrency = \"EUR\"\n";
    fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let gateway = place.serve_with("data", &[ADMIN, &config]);
    let mut client = gateway.client();
    client.put("file", &[7; 300_000]);
    client.put("other", &vec![8; 900_000]);
    gateway.flush();
    let status = gateway.status();
    let cost = &status["cost"];
    assert_eq!(
        (&cost["currency"], &cost["prices"]),
        (&"EUR".into(), &"of the configuration".into())
    );
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let amount = |total: &serde_json::Value| {
        let price = match total["method"].as_str().unwrap() {
            "get" | "head" => 1.0,
            "delete" | "abort_upload" => 0.5,
            _ => 5.0,
        };
        let gb = number(&total["received_bytes"]) / (1_u64 << 30) as f64;
        number(&total["requests"]) * price / 1000.0 + gb * 1024.0
    };
    let totals = status["requests_by_cause"].as_array().unwrap();
    let expected: f64 = totals.iter().map(amount).sum();
    assert!(
        (number(&cost["since_start"]) - expected).abs() < 1e-9,
        "{status}"
    );
    assert!(expected > 0.01, "{status}");
    let stored = number(&status["space"]["stored_bytes"]) / (1_u64 << 30) as f64;
    assert!(
        (number(&cost["storage_per_day"]) - stored).abs() < 1e-9,
        "{status}"
    );
    let causes = cost["by_cause"].as_array().unwrap();
    let per_day: f64 = causes.iter().map(|cause| number(&cause["per_day"])).sum();
    assert!(
        (number(&cost["per_day"]) - per_day - stored).abs() < 1e-6,
        "{status}"
    );
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value("cost_total{cause=\"publish\",currency=\"EUR\"}") >= 0.005);
    assert!(scrape.value("cost_per_day{cause=\"storage\",currency=\"EUR\"}") > 0.0);
    let text = text_of(&gateway, "/api/v1/cost");
    assert!(text.contains("\"EUR\""), "{text}");
    let shown = gateway.ask(&["status"]).stdout;
    assert!(shown.contains("EUR a day"), "{shown}");
    gateway.stop_cleanly();
}

fn text_of(gateway: &Gateway, path: &str) -> String {
    text(&address(gateway), path)
}
