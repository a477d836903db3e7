//! The server over real connections, with a fake gateway behind it.

mod bounds;
mod tls;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::admin::fake::{
    Fake, export, some_gc, some_live, some_quota, some_scrub, some_status, some_where,
};
use crate::config::Inputs;
use crate::health::{Health, Problem, State as HealthState};

const TOKEN: &str = "0123456789abcdef0123";

/// Gives the gateway these problems.
fn has(fake: &Fake, problems: &[(HealthState, &str)]) {
    let problem = |(state, name): &(HealthState, &str)| {
        Problem::new(*state, name, format!("{name} happened"))
    };
    let problems = problems.iter().map(problem).collect();
    fake.status.lock().health = Health::with(problems);
}

fn load(data_dir: &Path, flags: &[(&'static str, &str)]) -> Result<Config, String> {
    let own = [
        ("data_dir", data_dir.to_str().unwrap()),
        ("admin_listen", "127.0.0.1:0"),
    ];
    let flags = own.iter().chain(flags);
    let inputs = Inputs {
        flags: flags
            .map(|(key, text)| (*key, (*text).to_owned()))
            .collect(),
        file: None,
        variables: Vec::new(),
        system_file: "/nonexistent".into(),
        is_root: false,
    };
    Config::load(&inputs).map_err(|errors| errors.to_string())
}

fn private(path: &Path, content: &str) -> String {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A running server.
struct Site {
    dir: TempDir,
    fake: Arc<Fake>,
    server: Arc<Server>,
    opening: Opening,
    opened: watch::Sender<Option<Arc<Fake>>>,
    stopping: Stopping,
    running: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Site {
    /// With a token and an open volume.
    async fn new() -> Site {
        Site::with(Limits::default(), Fake::default()).await
    }

    async fn with(limits: Limits, fake: Fake) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let token = private(&dir.path().join("token"), TOKEN);
        let site = Site::opening(dir, &[("admin_token", &token)], limits, fake).await;
        site.opened.send_replace(Some(site.fake.clone()));
        site
    }

    /// Before the volume is open.
    async fn opening(
        dir: TempDir,
        flags: &[(&'static str, &str)],
        limits: Limits,
        fake: Fake,
    ) -> Site {
        let config = load(dir.path(), flags).unwrap();
        let mut server = Server::bind(&config).await.unwrap().unwrap();
        server.limits = limits;
        let server = Arc::new(server);
        let (opening, stopping) = (Opening::default(), Stopping::default());
        let (opened, control) = watch::channel(None);
        let running = tokio::spawn({
            let (server, opening, stopping) = (server.clone(), opening.clone(), stopping.clone());
            async move { server.run(control, &opening, &stopping).await }
        });
        Site {
            dir,
            fake: Arc::new(fake),
            server,
            opening,
            opened,
            stopping,
            running,
        }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Sends bytes on a connection of their own, and returns everything that comes back.
    async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        Answer(rest(&mut stream).await)
    }

    /// A request with further headers, and a body if it is not empty.
    async fn ask(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        let port = self.address().port();
        let request = request(
            line,
            &[&[&*format!("Host: localhost:{port}")], headers].concat(),
            body,
        );
        self.raw(request.as_bytes()).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "").await
    }

    /// With the token.
    async fn post(&self, path: &str, body: &str) -> Answer {
        let token = format!("Authorization: Bearer {TOKEN}");
        self.ask(&format!("POST {path}"), &[&token], body).await
    }
}

fn request(line: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let length = match body {
        "" => String::new(),
        body => format!("Content-Length: {}\r\n", body.len()),
    };
    format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\n{length}\r\n{body}")
}

/// Everything until the server closes, which may be by a reset.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        all.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(all).unwrap()
}

/// An answer, head and body.
#[derive(Debug)]
struct Answer(String);

impl Answer {
    /// The status; 0 if there was no answer.
    fn status(&self) -> u16 {
        let status = self.0.strip_prefix("HTTP/1.1 ");
        status.map_or(0, |rest| rest[..3].parse().unwrap())
    }

    fn json(&self) -> Value {
        let (_, body) = self.0.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the status, and returns the body.
    #[track_caller]
    fn is(&self, status: u16) -> Value {
        assert_eq!(self.status(), status, "{self:?}");
        self.json()
    }

    /// Asserts a refusal that contains this.
    #[track_caller]
    fn refuses(&self, status: u16, part: &str) {
        let error = self.is(status)["error"].to_string();
        assert!(error.contains(part), "{part:?} is not in {error}");
    }

    /// The value of a series in a scrape.
    #[track_caller]
    fn metric(&self, series: &str) -> f64 {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{self:?}")).parse().unwrap()
    }

    fn has_header(&self, line: &str) -> bool {
        let (head, _) = self.0.split_once("\r\n\r\n").unwrap_or((&self.0, ""));
        head.lines().any(|one| one.eq_ignore_ascii_case(line))
    }
}

#[tokio::test]
async fn health_tells_opening_serving_degraded_fenced_and_stopping_apart() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::opening(dir, &[], Limits::default(), Fake::default()).await;
    site.opening.begin("replaying the log, 3 of 70 MiB");
    assert_eq!(
        site.get("/health/live").await.is(200),
        json!({"state": "live"})
    );
    let opening = json!({"state": "opening", "step": "replaying the log, 3 of 70 MiB"});
    assert_eq!(site.get("/health/ready").await.is(503), opening);
    for path in ["status", "exports", "quotas", "log", "requests"] {
        let answer = site.get(&format!("/api/v1/{path}")).await;
        answer.refuses(503, "still opening the volume: replaying the log");
    }
    assert_eq!(site.get("/api/v1/config").await.status(), 200);

    has(&site.fake, &[]);
    site.opened.send_replace(Some(site.fake.clone()));
    let ok = json!({"state": "ok", "problems": []});
    assert_eq!(site.get("/health/ready").await.is(200), ok);

    has(&site.fake, &[(HealthState::Degraded, "bucket_away")]);
    let problem =
        |state| json!([{"state": state, "name": "bucket_away", "message": "bucket_away happened"}]);
    let degraded = json!({"state": "degraded", "problems": problem("degraded")});
    assert_eq!(site.get("/health/ready").await.is(200), degraded);

    has(
        &site.fake,
        &[
            (HealthState::Degraded, "bucket_away"),
            (HealthState::Failing, "fenced"),
        ],
    );
    let failing = site.get("/health/ready").await.is(503);
    assert_eq!(failing["state"], "failing");
    assert_eq!(failing["problems"][0]["name"], "fenced");

    site.stopping.begin("taken by nas2".to_owned());
    site.stopping.begin("SIGTERM".to_owned());
    let stopping = json!({"state": "stopping", "reason": "taken by nas2"});
    assert_eq!(site.get("/health/ready").await.is(503), stopping);
    assert_eq!(site.get("/health/live").await.status(), 200);
}

#[tokio::test]
async fn the_state_is_shown_with_the_names_of_the_commands() {
    let site = Site::new().await;
    let as_json = |value| serde_json::to_value(value).unwrap();
    let status = site.get("/api/v1/status").await.is(200);
    assert_eq!(status, serde_json::to_value(some_status()).unwrap());
    assert_eq!(site.get("/api/v1/exports").await.is(200), json!([export()]));
    assert_eq!(
        site.get("/api/v1/quotas").await.is(200),
        json!([some_quota()])
    );
    let requests = json!({"WRITE": 12, "by_cause": some_status().requests_by_cause});
    assert_eq!(site.get("/api/v1/requests").await.is(200), requests);
    let cost = json!(some_status().cost);
    assert_eq!(site.get("/api/v1/cost").await.is(200), cost);
    let found = site.get("/api/v1/where?path=/a%20b").await.is(200);
    assert_eq!(found, json!(some_where(b"/a b")));
    assert_eq!(
        site.get("/api/v1/scrub").await.is(200),
        as_json(some_scrub())
    );
    assert_eq!(
        site.get("/api/v1/gc").await.is(200),
        serde_json::to_value(some_gc()).unwrap()
    );
    // HEAD has no body.
    let live = site.get("/api/v1/live").await.is(200);
    assert_eq!(live, json!(some_live(0)));
    let live = site.get("/api/v1/live?after=2").await.is(200);
    assert_eq!(live, json!(some_live(2)));
    assert_eq!(live["series"][0]["sequence"], 3);
    for query in ["after=x", "after=-1", "before=2"] {
        let answer = site.get(&format!("/api/v1/live?{query}")).await;
        answer.refuses(400, "query");
    }
    let head = site.ask("HEAD /api/v1/status", &[], "").await;
    assert_eq!(head.status(), 200);
    assert!(head.0.ends_with("\r\n\r\n"), "{head:?}");
    site.get("/api/v1/nothing")
        .await
        .refuses(404, "/api/v1/nothing");
}

#[tokio::test]
async fn the_log_is_shown_with_its_archived_logs() {
    let site = Site::new().await;
    let log = site.get("/api/v1/log").await.is(200);
    assert_eq!(log["archived"], json!([]));
    assert_eq!(log["limit_bytes"], json!(4_u64 << 30));
    assert_eq!(log["end_lsn"], 9000);
    assert_eq!(log["error"]["message"], "No space left on device");
    let folder = site.dir.path().join("log");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("epoch-7-0000000000000001.seg"), [0; 100]).unwrap();
    std::fs::write(folder.join("epoch-7.salvaged"), "/srv/salvaged").unwrap();
    let log = site.get("/api/v1/log").await.is(200);
    let archived = json!([{
        "label": "epoch-7",
        "disk_bytes": 100,
        "archived_seconds": null,
        "taken_by_epoch": null,
        "salvaged_to": "/srv/salvaged",
    }]);
    assert_eq!(log["archived"], archived);
}

#[tokio::test]
async fn the_configuration_is_shown_with_its_sources_and_without_the_token() {
    let site = Site::new().await;
    let answer = site.get("/api/v1/config").await;
    let config = answer.is(200);
    assert_eq!(
        config["log_limit"],
        json!({"value": "4GiB", "source": "default"})
    );
    assert_eq!(config["admin_listen"]["source"], "--admin-listen");
    assert_eq!(config["export"][0]["path"], "/");
    assert!(!answer.0.contains(TOKEN), "{answer:?}");
}

#[tokio::test]
async fn a_new_configuration_changes_what_it_can() {
    let site = Site::new().await;
    let token = private(
        &site.dir.path().join("other"),
        "another-token-of-some-length",
    );
    let flags = [
        ("admin_token", token.as_str()),
        ("admin_hosts", "nas.example"),
        ("log_limit", "8GiB"),
        ("clients", "10.0.0.0/8"),
        ("listen", "0.0.0.0:2049"),
    ];
    let foreign = request("GET /health/live", &["Host: nas.example"], "");
    assert_eq!(site.raw(foreign.as_bytes()).await.status(), 421);
    let config = load(site.dir.path(), &flags).unwrap();
    let reloaded = site.server.reload(&config).unwrap();
    site.server.put_in_force(reloaded);
    assert_eq!(site.raw(foreign.as_bytes()).await.status(), 200);
    let shown = site.get("/api/v1/config").await.is(200);
    assert_eq!(shown["log_limit"]["value"], "4GiB");
    assert_eq!(shown["clients"]["value"], json!(["10.0.0.0/8"]));
    assert_eq!(shown["export"][0]["clients"], json!(["10.0.0.0/8"]));
    assert_eq!(site.post("/api/v1/gc", "").await.status(), 401);
    let other = ["Authorization: Bearer another-token-of-some-length"];
    assert_eq!(site.ask("POST /api/v1/gc", &other, "").await.status(), 200);

    std::fs::remove_file(&token).unwrap();
    let problem = site.server.reload(&config).unwrap_err();
    assert!(problem.contains("admin_token"), "{problem}");
}

#[tokio::test]
async fn orders_need_the_token() {
    let site = Site::new().await;
    for headers in [
        &[][..],
        &["Authorization: Bearer 0123456789abcdef0124"],
        &["Authorization: Basic 0123456789abcdef0123"],
        &["Cookie: token=0123456789abcdef0123"],
    ] {
        for path in ["flush", "scrub", "gc", "nothing"] {
            let answer = site.ask(&format!("POST /api/v1/{path}"), headers, "").await;
            answer.refuses(401, "Authorization: Bearer TOKEN");
            assert!(answer.has_header("WWW-Authenticate: Bearer"), "{answer:?}");
        }
    }
    assert!(site.fake.orders.lock().is_empty());
    site.fake.let_go.notify_one();
    let flushed = site.post("/api/v1/flush", "").await.is(200);
    assert_eq!(flushed["published_lsn"], 9000);
    assert_eq!(site.post("/api/v1/scrub", "").await.status(), 200);
    let since = r#"{"start":{"age_seconds":3600}}"#;
    assert_eq!(site.post("/api/v1/scrub", since).await.status(), 200);
    site.post("/api/v1/scrub", "\"stop\"")
        .await
        .refuses(409, "no round is under way");
    assert_eq!(site.post("/api/v1/gc", "").await.status(), 200);
    assert_eq!(site.post("/api/v1/gc", "\"status\"\n").await.status(), 200);
    let orders = [
        "Start { age_seconds: 0 }",
        "Start { age_seconds: 3600 }",
        "Stop",
        "Rewrite",
        "Status",
    ];
    assert_eq!(*site.fake.orders.lock(), orders);
    for body in ["rewrite", "{}", r#"{"start":{"age":1}}"#, "\"rewrite\" x"] {
        site.post("/api/v1/gc", body).await.refuses(400, "no order");
        site.post("/api/v1/scrub", body)
            .await
            .refuses(400, "no order");
    }
    assert_eq!(site.get("/api/v1/flush").await.status(), 405);
}

#[tokio::test]
async fn without_a_token_all_orders_are_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::opening(dir, &[], Limits::default(), Fake::default()).await;
    site.opened.send_replace(Some(site.fake.clone()));
    for path in ["flush", "scrub", "gc"] {
        let answer = site.post(&format!("/api/v1/{path}"), "").await;
        answer.refuses(403, "set admin_token");
    }
    assert!(site.fake.orders.lock().is_empty());
}

#[tokio::test]
async fn pages_of_other_sites_reach_nothing() {
    let site = Site::new().await;
    let port = site.address().port();
    let token = format!("Authorization: Bearer {TOKEN}");
    // After DNS rebinding a page of evil.example is of the same site as its requests.
    for line in ["GET /api/v1/status", "GET /health/live", "POST /api/v1/gc"] {
        let host = format!("Host: evil.example:{port}");
        let origin = format!("Origin: http://evil.example:{port}");
        let rebound = request(line, &[&host, &origin, &token], "");
        site.raw(rebound.as_bytes())
            .await
            .refuses(421, "not called `evil.example`");
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost",
            "https://localhost:1",
        ] {
            let origin = format!("Origin: {origin}");
            let answer = site.ask(line, &[&origin, &token], "").await;
            answer.refuses(403, "other sites");
        }
        let none = request(line, &[&token], "");
        site.raw(none.as_bytes()).await.refuses(400, "one Host");
    }
    assert!(site.fake.orders.lock().is_empty());
    // The question of a browser before a request of another site.
    let preflight = [
        "Origin: http://evil.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization",
    ];
    assert_eq!(
        site.ask("OPTIONS /api/v1/gc", &preflight, "")
            .await
            .status(),
        403
    );
    assert_eq!(
        site.ask("OPTIONS /api/v1/gc", &preflight[1..], "")
            .await
            .status(),
        405
    );
    // This server's own page.
    let own = format!("Origin: http://localhost:{port}");
    assert_eq!(
        site.ask("POST /api/v1/gc", &[&own, &token], "")
            .await
            .status(),
        200
    );
}

#[tokio::test]
async fn requests_are_counted_by_their_outcome() {
    let site = Site::new().await;
    site.get("/api/v1/status").await.is(200);
    let foreign = request("GET /", &["Host: evil.example"], "");
    site.raw(foreign.as_bytes())
        .await
        .refuses(421, "not called");
    site.get("/nowhere").await.refuses(404, "");
    let scrape = site.get("/metrics").await;
    for (series, value) in [
        ("forebay_admin_requests_total{outcome=\"ok\"}", 1.0),
        ("forebay_admin_requests_total{outcome=\"refused\"}", 2.0),
        ("forebay_admin_requests_total{outcome=\"failed\"}", 0.0),
        ("forebay_admin_requests_delayed_total", 0.0),
        ("forebay_admin_connections_refused_total", 0.0),
    ] {
        assert_eq!(scrape.metric(series), value, "{series}");
    }
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_browsers_safe() {
    let site = Site::new().await;
    let foreign = request("GET /", &["Host: evil.example"], "");
    for answer in [
        site.get("/").await,
        site.get("/page/main.js").await,
        site.get("/api/v1/status").await,
        site.get("/nothing").await,
        site.raw(foreign.as_bytes()).await,
        site.ask("POST /api/v1/gc", &[], "").await,
        site.post("/api/v1/gc", &"x".repeat(BODY_BYTES + 1)).await,
    ] {
        for header in [
            "Cache-Control: no-store",
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            "Cross-Origin-Resource-Policy: same-origin",
            "Referrer-Policy: no-referrer",
            "X-Content-Type-Options: nosniff",
        ] {
            assert!(answer.has_header(header), "{header}: {answer:?}");
        }
        let head = answer.0.to_ascii_lowercase();
        assert!(!head.contains("access-control"), "{answer:?}");
    }
}

#[tokio::test]
async fn the_page_is_served_with_its_files_also_before_the_volume_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::opening(dir, &[], Limits::default(), Fake::default()).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/page/main.js", "text/javascript"),
        ("/page/style.css", "text/css"),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        let header = format!("Content-Type: {kind}; charset=utf-8");
        assert!(answer.has_header(&header), "{answer:?}");
    }
    assert!(
        site.get("/page/icon.svg")
            .await
            .has_header("Content-Type: image/svg+xml")
    );
    for path in ["/page/", "/page/page.rs", "/page/..%2fmain.js"] {
        site.get(path).await.refuses(404, "there is no");
    }
}

#[tokio::test]
async fn an_address_in_use_matters_only_if_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let asked = load(dir.path(), &[("admin_listen", &address)]).unwrap();
    let problem = Server::bind(&asked).await.unwrap_err();
    for part in [&*address, "in use", "--admin-listen, or none"] {
        assert!(problem.contains(part), "{problem}");
    }
    let off = load(dir.path(), &[("admin_listen", "none")]).unwrap();
    assert!(Server::bind(&off).await.unwrap().is_none());
    let error = || std::io::Error::from(std::io::ErrorKind::AddrInUse);
    let address = taken.local_addr().unwrap();
    assert!(cannot_listen(address, Source::Default, &error()).is_ok());
    assert!(cannot_listen(address, Source::Variable("X".to_owned()), &error()).is_err());
}
