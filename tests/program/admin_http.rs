//! Admin HTTP of the whole program: addresses, health, orders, and refusals at the start.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Gateway, Place, Running, TIMEOUT, program, refused};
use crate::waits::Away;

/// Sends a request to the admin HTTP server at `address`; returns status and body.
pub(crate) fn ask(address: &str, line: &str, headers: &[&str]) -> (u16, Value) {
    let (status, body) = exchange(address, line, headers);
    (status, serde_json::from_str(&body).unwrap())
}

fn exchange(address: &str, line: &str, headers: &[&str]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let headers: String = headers.iter().map(|one| format!("{one}\r\n")).collect();
    let request =
        format!("{line} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// The body of the answer to a GET.
pub(crate) fn text(address: &str, path: &str) -> String {
    let (status, body) = exchange(address, &format!("GET {path}"), &[]);
    assert_eq!(status, 200, "{body}");
    body
}

pub(crate) fn get(address: &str, path: &str) -> (u16, Value) {
    ask(address, &format!("GET {path}"), &[])
}

/// The address of a gateway's admin HTTP server.
pub(crate) fn address(gateway: &Gateway) -> String {
    let status = gateway.status();
    status["admin_listen"].as_str().unwrap().to_owned()
}

pub(crate) fn put_token(path: &Path, token: &str) {
    fs::write(path, token).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_gateway_shows_its_state_and_takes_orders_with_the_token() {
    let place = Place::new();
    let token = place.path("token");
    put_token(&token, "the-first-token-of-this-test\n");
    let token_flag = format!("--admin-token={}", token.display());
    let flags = [
        "--admin-listen=127.0.0.1:0",
        &token_flag,
        "--checkpoint-interval=1h",
    ];
    let gateway = place.serve_with("data", &flags);
    let address = address(&gateway);
    gateway.says(&format!("admin HTTP on http://{address}"));
    let shown = gateway.ask(&["status"]);
    assert!(
        shown.stdout.contains(&format!("admin HTTP    {address}\n")),
        "{}",
        shown.stdout
    );
    assert_eq!(get(&address, "/health/live").0, 200);
    assert_eq!(
        get(&address, "/health/ready"),
        (200, json!({"state": "ok", "problems": []}))
    );

    gateway.client().put("file", &[7; 100_000]);
    let (_, before) = get(&address, "/api/v1/status");
    assert!(
        before["unpublished_bytes"].as_u64() >= Some(100_000),
        "{before}"
    );
    let flush = |headers: &[&str]| ask(&address, "POST /api/v1/flush", headers);
    assert_eq!(flush(&[]).0, 401);
    let first = "Authorization: Bearer the-first-token-of-this-test";
    assert_eq!(flush(&[first, "Origin: http://evil.example"]).0, 403);
    let (status, flushed) = flush(&[first]);
    assert_eq!(status, 200, "{flushed}");
    let (_, log) = get(&address, "/api/v1/log");
    assert_eq!(log["unpublished_bytes"], 0, "{log}");
    let (_, requests) = get(&address, "/api/v1/requests");
    assert!(requests["store_put"].as_u64() > Some(0), "{requests}");
    assert_eq!(get(&address, "/api/v1/quotas"), (200, json!([])));
    let (_, exports) = get(&address, "/api/v1/exports");
    assert_eq!(exports[0]["path"], "/", "{exports}");
    let (status, config) = get(&address, "/api/v1/config");
    assert_eq!(status, 200);
    assert_eq!(
        config["checkpoint_interval"]["source"],
        "--checkpoint-interval"
    );
    assert_eq!(config["source_port"]["source"], "FOREBAY_SOURCE_PORT");

    put_token(&token, "the-second-token-of-this-test");
    gateway.hang_up();
    gateway.says("SIGHUP: the exports of the configuration are in force");
    assert_eq!(flush(&[first]).0, 401);
    let second = "Authorization: Bearer the-second-token-of-this-test";
    assert_eq!(flush(&[second]).0, 200);
    // A file that cannot be used changes nothing.
    fs::remove_file(&token).unwrap();
    gateway.hang_up();
    gateway.says("SIGHUP: nothing was changed: admin_token");
    assert_eq!(flush(&[second]).0, 200);
    gateway.stop_cleanly();
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn events_are_streamed_the_kept_ones_and_those_that_come() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--admin-listen=127.0.0.1:0"]);
    let address = address(&gateway);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut comes =
        |part: &str| lines.any(|line| line.starts_with("data: {") && line.contains(part));
    assert!(comes("admin HTTP on http://"));
    gateway.hang_up();
    assert!(comes(
        "SIGHUP: the exports of the configuration are in force"
    ));
    gateway.stop_cleanly();
}

#[test]
fn a_gateway_without_its_bucket_is_ready_and_degraded() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--admin-listen=127.0.0.1:0"]);
    let address = address(&gateway);
    gateway.client().put("before", &[7; 1000]);
    gateway.flush();
    let away = Away::take(&place);
    gateway.client().put("file", &[7; 1000]);
    gateway.says("the bucket does not answer");
    let (status, health) = get(&address, "/health/ready");
    assert_eq!(
        (status, &health["state"]),
        (200, &json!("degraded")),
        "{health}"
    );
    assert_eq!(health["problems"][0]["name"], "bucket_away", "{health}");
    away.bring_back();
    gateway.flush();
    let (status, health) = get(&address, "/health/ready");
    assert_eq!((status, &health["state"]), (200, &json!("ok")), "{health}");
    gateway.stop_cleanly();
}

#[test]
fn a_gateway_that_is_opening_its_volume_is_live_and_not_ready() {
    let place = Place::new();
    // A server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let arguments = [
        "serve",
        "--store=s3://bucket/volume",
        &data_dir,
        "--listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
    ];
    let mut process = Running(program(&arguments, &variables).spawn().unwrap());
    let messages = BufReader::new(process.0.stderr.take().unwrap());
    let address = messages
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("admin HTTP on http://")?.1.to_owned()));
    let address = address.unwrap();
    assert_eq!(get(&address, "/health/live").0, 200);
    let (status, health) = get(&address, "/health/ready");
    assert_eq!(
        (status, &health["state"]),
        (503, &json!("opening")),
        "{health}"
    );
    assert!(health["step"].is_string(), "{health}");
    let (status, refusal) = get(&address, "/api/v1/status");
    assert_eq!(status, 503, "{refusal}");
}

#[test]
fn addresses_and_files_that_cannot_be_used_are_refused_at_the_start() {
    let place = Place::new();
    let serve = |flags: &[&str]| {
        let mut arguments = vec!["serve".to_owned()];
        arguments.extend(place.flags("data"));
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        refused(&arguments)
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refusal = serve(&[&format!("--admin-listen={address}")]);
    assert_eq!(refusal.code, 1);
    refusal.says(&[&address, "in use", "--admin-listen", "none"]);

    let refusal = serve(&["--admin-listen=0.0.0.0:0"]);
    assert_eq!(refusal.code, 2);
    refusal.says(&[
        "admin_listen = 0.0.0.0:0",
        "needs TLS",
        "admin_tls_certificate",
    ]);

    let token = place.path("token");
    fs::write(&token, "a-token-that-others-may-read").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let flag = format!("--admin-token={}", token.display());
    serve(&["--admin-listen=127.0.0.1:0", &flag]).says(&["admin_token", "mode 0644", "chmod 600"]);
    put_token(&token, "short");
    serve(&["--admin-listen=127.0.0.1:0", &flag]).says(&["admin_token", "openssl rand -hex 32"]);
    assert!(
        !fs::exists(place.bucket()).unwrap(),
        "a volume was made all the same"
    );
}
