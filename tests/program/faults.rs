//! Faults, and where an operator sees each of them. docs/operations.md has the table. Other faults are in the tests of
//! their kind: see the uses of [`Signs`].

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{Link, Request, Steady};
use serde_json::Value;

use crate::admin_http::{address, get};
use crate::metrics::{ADMIN, Scrape, requests};
use crate::support::nfs::{Client, Stable};
use crate::support::preload::{HeldPacks, slow_flushes};
use crate::support::proxied::Proxied;
use crate::support::s3_proxy::Fault;
use crate::support::signs::Signs;
use crate::support::{Gateway, Place, Running, TIMEOUT, program};
use crate::waits::Away;

/// The series of the waits of answered calls for this.
fn waits(part: &str, kind: &str) -> String {
    format!("nfs_call_wait_seconds_{part}{{for=\"{kind}\"}}")
}

#[test]
fn a_bucket_that_is_away_is_seen_until_it_is_back() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("before", &[7; 1000]);
    gateway.flush();
    let away = Away::take(&place);
    gateway.client().put("file", &[7; 1000]);
    let signs = Signs {
        trouble: "the bucket is away",
        metric: "store_trouble_seconds",
        at_least: 0.001,
        problem: "bucket_away",
        message: "the bucket does not answer",
    };
    signs.are_seen(&gateway);
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value("unpublished_bytes") > 0.0);
    assert!(scrape.sum("store_retries_total") > 0.0);
    // A snapshot is made all the same, and waits with the changes before it.
    let made = gateway.ask(&["snapshot", "create", "meanwhile"]);
    assert!(made.status.success(), "{}", made.stderr);
    let waiting = || Scrape::of(&gateway).value("snapshots_unpublished");
    assert_eq!(waiting(), 1.0);
    away.bring_back();
    gateway.flush();
    assert_eq!(waiting(), 0.0);
    let scrape = Scrape::of(&gateway);
    assert_eq!(scrape.value("health"), 0.0);
    assert_eq!(scrape.value("problem{name=\"bucket_away\"}"), 0.0);
    assert_eq!(scrape.value("store_trouble_seconds"), 0.0);
    gateway.stop_cleanly();
}

#[test]
fn a_gateway_that_nobody_asks_sees_that_its_bucket_is_back() {
    let place = Place::new();
    let gateway = place.serve_with("data", &[ADMIN]);
    gateway.client().put("file", &[7; 1000]);
    gateway.stop_cleanly();
    let gateway = place.serve_with("data", &[ADMIN]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.lookup(&root, b"file").unwrap();
    let away = Away::take(&place);
    Client::is_put_off(gateway.port(), &file);
    let trouble = || Scrape::of(&gateway).value("store_trouble_seconds");
    assert!(trouble() > 0.0);
    away.bring_back();
    let deadline = Instant::now() + TIMEOUT;
    while trouble() > 0.0 {
        assert!(Instant::now() < deadline, "{}", gateway.messages());
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(gateway.client().get("file"), Ok(vec![7; 1000]));
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_store_that_throttles_is_seen() {
    let behind = Proxied::start(&[ADMIN]);
    let (gateway, proxy) = (&behind.gateway, &behind.proxy);
    proxy.next("PUT", "packs/", Fault::SlowDown);
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    assert_eq!(proxy.injected(Fault::SlowDown), 1);
    let signs = Signs {
        trouble: "the store throttles",
        metric: "store_request_duration_seconds_count{method=\"put\",cause=\"publish\",outcome=\"throttled\"}",
        at_least: 1.0,
        problem: "bucket_throttles",
        message: "the store asks for fewer requests",
    };
    signs.are_seen(gateway);
    behind.gateway.stop_cleanly();
}

#[test]
fn a_client_that_hogs_is_named_by_its_address() {
    let place = Place::new();
    // One client may have seven of them.
    let gateway = place.serve_with("data", &[ADMIN, "--max-connections=8"]);
    let mut clients: Vec<_> = (0..7).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| {
        client.mount();
    });
    // By one of the seven: a connection that was closed before them might still count.
    clients[0].put("file", &[7; 1 << 20]);
    let refused = std::net::TcpStream::connect(("127.0.0.1", gateway.port()));
    let signs = Signs {
        trouble: "a client hogs connections",
        metric: "nfs_connections_refused_total",
        at_least: 1.0,
        problem: "connections_refused",
        message: "connections are refused",
    };
    signs.are_seen(&gateway);
    gateway.says("the last from 127.0.0.1");
    let of_client = Scrape::of(&gateway).value("client_received_bytes_total{client=\"127.0.0.1\"}");
    assert!(of_client > 1_000_000.0, "{of_client}");
    drop((refused, clients));
    gateway.stop_cleanly();
}

/// READs of 1 MiB that one connection sends without taking a reply.
const READS: usize = 64;

#[test]
fn a_client_that_asks_for_too_much_at_once_waits_for_its_share_and_is_the_busiest() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    let all = "[[export]]\npath = \"/\"\nclients = [\"127.0.0.0/8\"]\n";
    fs::write(&file, all).unwrap();
    let config = format!("--config={}", file.display());
    let gateway = place.serve_with("data", &[ADMIN, &config]);
    let at = address(&gateway);
    let mut quiet = gateway.client();
    quiet.put("file", &[7; 1 << 20]);
    let root = quiet.mount();
    let file = quiet.lookup(&root, b"file").unwrap();
    assert_eq!(Scrape::at(&at).value("nfs_budget_waits_total"), 0.0);
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.port()));
    let hog = IpAddr::from([127, 0, 0, 2]);
    let mut links: Vec<_> = (0..4)
        .map(|_| Link::new(Steady::new(server), 1, TIMEOUT).from_address(hog))
        .collect();
    let read = Request::read(&file, 0, 1 << 20);
    for link in &mut links {
        for _ in 0..READS {
            link.send(&read).unwrap();
        }
    }
    let deadline = Instant::now() + TIMEOUT;
    while Scrape::at(&at).value("nfs_budget_waits_total") < 1.0 {
        assert!(Instant::now() < deadline, "the hog does not wait");
        thread::sleep(Duration::from_millis(10));
    }
    // The other client has a share of its own.
    quiet.put("small", b"data");
    assert_eq!(quiet.get("small"), Ok(b"data".to_vec()));
    let scrape = Scrape::at(&at);
    assert_eq!(scrape.value("health"), 0.0);
    let calls = |client: &str| scrape.value(&format!("client_calls_total{{client=\"{client}\"}}"));
    let (of_hog, of_quiet) = (calls("127.0.0.2"), calls("127.0.0.1"));
    assert!(of_hog > of_quiet && of_quiet > 0.0, "{of_hog}, {of_quiet}");
    let clients = get(&at, "/api/v1/clients").1;
    assert_eq!(clients[0]["client"], "127.0.0.2", "{clients}");
    drop(links);
    gateway.stop_cleanly();
}

/// Asks the gateway at this address until it says everywhere that it is fenced.
fn is_fenced(at: &str) {
    let (mut ready, mut health) = (Value::Null, Value::Null);
    let (mut is_scraped, mut code) = (false, 0);
    let deadline = Instant::now() + TIMEOUT;
    while !is_scraped || code != 503 || !health.to_string().contains("\"fenced\"") {
        assert!(
            Instant::now() < deadline,
            "{is_scraped}, {code} {ready}, {health}"
        );
        thread::sleep(Duration::from_millis(10));
        is_scraped |= Scrape::at(at).value("problem{name=\"fenced\"}") == 1.0;
        (code, ready) = get(at, "/health/ready");
        health = get(at, "/api/v1/status").1["health"].take();
    }
    assert_eq!(health["state"], "failing");
    // It fails at first, and then stops; both have the reason.
    let says = |text: &str| ready.to_string().contains(text);
    assert!(says("failing") || says("stopping"), "{ready}");
    assert!(says("another gateway has taken over"), "{ready}");
}

#[test]
fn a_fence_is_seen_while_calls_end_and_then_by_the_silence() {
    let place = Place::new();
    let first = place.serve();
    first.client().put("file", &[7; 100_000]);
    first.flush();
    first.stop_cleanly();
    // A call that has begun and waits for the bucket keeps a fenced gateway for a moment.
    let held = HeldPacks::reads(&place);
    let mut flags = place.flags("data");
    flags.extend([ADMIN, "--checkpoint-interval=1h"].map(str::to_owned));
    let first = Gateway::start(&flags, &[("LD_PRELOAD", &held.library)]);
    let (at, port) = (address(&first), first.port());
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let follow = ["events", "--follow", "--json", &data_dir];
    let mut follower = Running(program(&follow, &[]).spawn().unwrap());
    let signs = Signs {
        trouble: "another gateway takes the volume over",
        metric: "problem",
        at_least: 1.0,
        problem: "fenced",
        message: "another gateway has taken over",
    };
    signs.are_documented();
    let second = thread::scope(|scope| {
        // Its connection may be closed before the rest of the file.
        let reader = scope.spawn(move || Client::connect(port).get("file"));
        held.wait();
        let deadline = Instant::now() + TIMEOUT;
        while Scrape::at(&at).value("nfs_calls_waiting") < 1.0 {
            assert!(Instant::now() < deadline, "the READ is not held");
            thread::sleep(Duration::from_millis(10));
        }
        let flags = ["--checkpoint-interval=1h", "--take-over"];
        let second = place.serve_with("second", &flags);
        first.client().put("file", b"too late");
        // From before the moment in which the gateway finds out.
        let asked = scope.spawn(|| is_fenced(&at));
        assert!(!first.ask(&["flush", "--timeout=50s"]).status.success());
        asked.join().unwrap();
        held.release();
        let _ = reader.join();
        second
    });
    let (code, messages) = first.ends();
    assert_eq!(code, Some(3));
    assert!(messages.contains(signs.message), "{messages}");
    let mut events = String::new();
    let stdout = follower.0.stdout.as_mut();
    stdout.unwrap().read_to_string(&mut events).unwrap();
    let is_event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["level"] == "error" && event["message"].as_str().unwrap().contains(signs.message)
    };
    assert!(events.lines().any(is_event), "{events}");
    second.stop_cleanly();
}

#[test]
fn a_slow_disk_is_what_slow_calls_waited_for() {
    let place = Place::new();
    let library = slow_flushes(&place, 300);
    let mut flags = place.flags("data");
    flags.extend([ADMIN, "--slow-call=200ms"].map(str::to_owned));
    let gateway = Gateway::start(&flags, &[("LD_PRELOAD", &library)]);
    let mut client = gateway.client();
    let root = client.mount();
    let before = Scrape::of(&gateway);
    let file = client.create(&root, b"file");
    client
        .write(&file, 0, b"to the disk", Stable::FileSync)
        .unwrap();
    let signs = Signs {
        trouble: "the disk of the log is slow",
        metric: "log_flush_duration_seconds_sum{outcome=\"ok\"}",
        // A flush for CREATE, and then one for WRITE.
        at_least: 0.6,
        problem: "",
        message: "slow call: WRITE",
    };
    signs.are_seen_since(&before, &gateway);
    gateway.says("for flush");
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value("nfs_slow_calls_total") >= 1.0);
    // CREATE has waited as well.
    assert!(scrape.value(&waits("count", "flush")) >= 2.0);
    let waited = scrape.value(&waits("sum", "flush"));
    assert!(waited > 0.2, "{waited}");
    gateway.stop_cleanly();
}

#[test]
fn a_slow_bucket_is_what_slow_calls_waited_for() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    gateway.stop_cleanly();
    // Nothing is in memory any more.
    let held = HeldPacks::reads(&place);
    let limit = Duration::from_millis(200);
    let mut flags = place.flags("data");
    flags.extend([ADMIN, "--slow-call=200ms"].map(str::to_owned));
    let gateway = Gateway::start(&flags, &[("LD_PRELOAD", &held.library)]);
    let before = Scrape::of(&gateway);
    thread::scope(|scope| {
        let reader = scope.spawn(|| gateway.client().get("file").unwrap());
        held.wait();
        // The call has begun before, so that it takes longer than that.
        thread::sleep(limit);
        assert!(!reader.is_finished(), "the bucket was not held");
        held.release();
        assert!(reader.join().unwrap() == [7; 100_000]);
    });
    let signs = Signs {
        trouble: "the bucket is slow",
        metric: "store_request_duration_seconds_sum{method=\"get\",cause=\"fetch\",outcome=\"ok\"}",
        at_least: limit.as_secs_f64(),
        problem: "",
        message: "slow call: READ",
    };
    signs.are_seen_since(&before, &gateway);
    gateway.says("for bucket");
    let scrape = Scrape::of(&gateway);
    assert!(scrape.value(&waits("count", "bucket")) >= 1.0);
    let waited = scrape.value(&waits("sum", "bucket"));
    assert!(waited > 0.1, "{waited}");
    assert!(scrape.value(&requests("get", "fetch", "ok")) >= 1.0);
    assert!(scrape.value("nfs_slow_calls_total") >= 1.0);
    gateway.stop_cleanly();
}

#[test]
fn a_bucket_that_is_slower_than_the_writers_is_behind() {
    let place = Place::new();
    // Uploads are held for longer than the gateway tolerates, and for less than a request may take.
    let held = HeldPacks::writes(&place);
    let mut flags = place.flags("data");
    flags.extend([ADMIN, "--checkpoint-interval=200ms"].map(str::to_owned));
    let gateway = Gateway::start(&flags, &[("LD_PRELOAD", &held.library)]);
    gateway.client().put("file", &[7; 100_000]);
    held.wait();
    let signs = Signs {
        trouble: "the bucket is slow",
        metric: "unpublished_age_seconds",
        at_least: 5.4,
        problem: "bucket_behind",
        message: "behind, with a checkpoint_interval of",
    };
    signs.are_seen(&gateway);
    gateway.says("s behind, with a checkpoint_interval of 200ms: it is slower than the writers");
    held.release();
    gateway.flush();
    gateway.says("ended after");
    let scrape = Scrape::of(&gateway);
    assert_eq!(scrape.value("health"), 0.0);
    assert_eq!(scrape.value("unpublished_age_seconds"), 0.0);
    assert!(scrape.value("checkpoint_duration_seconds_sum") >= 5.0);
    gateway.stop_cleanly();
}
