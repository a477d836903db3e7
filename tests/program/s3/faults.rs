//! The program on an S3 server behind a proxy that injects faults: each kind of fault, then recovery, a flush, the loss
//! of the machine, and all data on another one.
//!
//! `S3_FAULTS_SEED` repeats a run: the seed is printed.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::support::nfs::{Client, Stable};
use crate::support::s3_proxy::{Fault, Proxy, Reach};
use crate::support::s3_server::S3Server;
use crate::support::{Gateway, Place};

/// A gateway, the proxy between it and its bucket, and the expected contents of its files.
struct Scene {
    server: S3Server,
    proxy: Proxy,
    place: Place,
    gateway: Gateway,
    expected: BTreeMap<String, Vec<u8>>,
    seed: u64,
}

impl Scene {
    fn new() -> Scene {
        let server = S3Server::start();
        let seed = std::env::var("S3_FAULTS_SEED").map_or_else(
            |_| u64::from(std::process::id()),
            |seed| seed.parse().unwrap(),
        );
        eprintln!("S3_FAULTS_SEED={seed}");
        let proxy = Proxy::start(server.endpoint(), seed);
        let place = Place::new();
        let gateway = serve(&server, &place, &proxy.endpoint(), "data");
        Scene {
            server,
            proxy,
            place,
            gateway,
            expected: BTreeMap::new(),
            seed,
        }
    }

    /// Writes, rewrites, removes and reads files, with a flush now and then.
    fn work(&mut self, rounds: u64) {
        let mut client = self.gateway.client();
        for round in 0..rounds {
            let name = format!("file {}", (self.seed ^ (round * 7)) % 9);
            let len = 1000 + (round * 77_777 % 600_000) as usize;
            let data = pattern(self.seed ^ round, len);
            client.put(&name, &data);
            self.expected.insert(name, data);
            if round % 5 == 4 {
                let (name, _) = self.expected.pop_first().unwrap();
                let root = client.mount();
                client.remove(&root, name.as_bytes());
            }
            self.check(&mut client);
            if round % 4 == 3 {
                self.gateway.flush();
            }
        }
    }

    fn check(&self, client: &mut Client) {
        for (name, data) in &self.expected {
            let found = client.get(name).unwrap();
            assert!(found == *data, "{name} is another one");
        }
    }

    /// Loses the machine after a flush; another one must have everything.
    fn check_elsewhere(mut self, faults: &[Fault]) {
        for fault in faults {
            let times = self.proxy.injected(*fault);
            eprintln!("{fault:?}: {times} times");
            assert!(times > 0, "{fault:?} never happened");
        }
        self.proxy.heal();
        // A last change, so that the publisher makes requests.
        self.work(1);
        self.gateway.flush();
        assert!(self.gateway.status()["store_error"].is_null());
        self.check(&mut self.gateway.client());
        self.gateway.kill();
        let endpoint = self.server.endpoint().to_owned();
        self.gateway = serve(&self.server, &self.place, &endpoint, "elsewhere");
        self.check(&mut self.gateway.client());
        self.gateway.stop_cleanly();
    }
}

fn serve(server: &S3Server, place: &Place, endpoint: &str, data_dir: &str) -> Gateway {
    let flags = [
        "--store=s3://bucket/volume".to_owned(),
        format!("--data-dir={}", place.path(data_dir).display()),
        "--listen=127.0.0.1:0".to_owned(),
        // The machine is lost before another one starts.
        "--take-over".to_owned(),
    ];
    let mut variables = server.variables();
    for (name, value) in &mut variables {
        if *name == "AWS_ENDPOINT_URL" {
            *value = endpoint;
        }
    }
    Gateway::start(&flags, &variables)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        })
        .collect()
}

/// Works while each of these faults hits one in `of` requests.
fn under(of: u64, faults: &[Fault]) {
    let mut scene = Scene::new();
    scene.work(4);
    for fault in faults {
        scene.proxy.one_in(of, *fault);
    }
    scene.work(24);
    scene.check_elsewhere(faults);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn errors_of_the_server_lose_nothing() {
    under(4, &[Fault::ServerError]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_server_that_asks_to_slow_down_loses_nothing() {
    under(8, &[Fault::SlowDown]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn resets_on_either_way_lose_nothing() {
    under(6, &[Fault::ResetRequest, Fault::ResetAnswer]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn puts_that_worked_and_were_answered_with_an_error_lose_nothing() {
    under(3, &[Fault::LostAnswer]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn listings_that_lag_lose_nothing() {
    let mut scene = Scene::new();
    scene.work(8);
    // Listings are rare: they come at a start, and when old metadata are collected.
    scene.proxy.one_in(2, Fault::StaleList);
    for life in 0..6 {
        scene.gateway.kill();
        let endpoint = scene.proxy.endpoint();
        scene.gateway = serve(
            &scene.server,
            &scene.place,
            &endpoint,
            &format!("data {life}"),
        );
        scene.check(&mut scene.gateway.client());
        scene.work(4);
        scene.gateway.flush();
    }
    scene.check_elsewhere(&[Fault::StaleList]);
}

/// Gateways read everything from the bucket, because they have nothing locally.
#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn bodies_that_are_cut_short_or_wrong_are_never_served() {
    let mut scene = Scene::new();
    scene.work(12);
    scene.gateway.flush();
    for life in 0..4 {
        scene.gateway.kill();
        let endpoint = scene.proxy.endpoint();
        scene.gateway = serve(
            &scene.server,
            &scene.place,
            &endpoint,
            &format!("data {life}"),
        );
        for fault in [Fault::CutShort, Fault::WrongBytes] {
            for _ in 0..2 {
                scene.proxy.next("GET", "/packs/", fault);
            }
        }
        scene.check(&mut scene.gateway.client());
        scene.proxy.heal();
    }
    scene.check_elsewhere(&[Fault::CutShort, Fault::WrongBytes]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn requests_that_are_never_answered_are_cut_off_and_made_again() {
    let mut scene = Scene::new();
    scene.work(2);
    scene.proxy.next("PUT", "/packs/", Fault::Stall);
    scene.work(1);
    scene.gateway.flush();
    scene.check_elsewhere(&[Fault::Stall]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn an_outage_stops_nothing_that_is_local_and_costs_a_trickle() {
    let mut scene = Scene::new();
    scene.work(8);
    scene.gateway.flush();
    for reach in [Reach::Refused, Reach::Silent] {
        scene.proxy.reach(reach);
        let mut client = scene.gateway.client();
        let root = client.mount();
        let before = scene.proxy.requests();
        for second in 0..12_u64 {
            let name = format!("{reach:?} {second}");
            let file = client.create(&root, name.as_bytes());
            let data = pattern(second, 30_000);
            client.write(&file, 0, &data, Stable::FileSync).unwrap();
            assert!(client.read(&file, 0, 1 << 20).unwrap() == data);
            scene.expected.insert(name, data);
            thread::sleep(Duration::from_secs(1));
        }
        let asked = scene.proxy.requests() - before;
        eprintln!("{reach:?}: {asked} requests in 12 seconds");
        assert!(asked <= 40, "{asked} requests in 12 seconds of outage");
        scene.proxy.reach(Reach::Open);
    }
    scene.check_elsewhere(&[]);
}
