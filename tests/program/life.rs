//! The life of a gateway: first start, queries while it runs, stop, crash and restart.

use std::fs;

use crate::support::nfs::{NOENT, Stable};
use crate::support::{Place, run};

#[test]
fn the_first_start_makes_a_volume_and_says_how_to_mount_it() {
    let place = Place::new();
    let gateway = place.serve();
    let port = gateway.port();
    let mount = format!(
        "mount -t nfs -o vers=3,tcp,port={port},mountport={port},nolock 127.0.0.1:/ /mnt/forebay"
    );
    assert_eq!(gateway.banner, mount);
    assert!(place.bucket().join("forebay.volume").exists());
    gateway.client().put("file", b"text");
    assert_eq!(gateway.client().get("file").unwrap(), b"text");
    gateway.stop_cleanly();
}

#[test]
fn flush_returns_when_the_bucket_has_everything() {
    let place = Place::new();
    // No checkpoint is published by itself while the test runs.
    let gateway = place.serve_with("data", &["--checkpoint-interval=1h"]);
    gateway.client().put("file", &[7; 100_000]);
    let before = gateway.status();
    assert!(
        before["unpublished_bytes"].as_u64().unwrap() >= 100_000,
        "{before}"
    );
    assert!(
        before["dirty_bytes"].as_u64().unwrap() >= 100_000,
        "{before}"
    );
    assert!(
        before["oldest_unpublished_age_seconds"].is_f64(),
        "{before}"
    );

    let flushed = gateway.ask(&["flush"]);
    assert!(flushed.status.success(), "{}", flushed.stderr);
    assert!(
        flushed
            .stdout
            .starts_with("the bucket holds everything up to LSN "),
        "{}",
        flushed.stdout
    );

    let after = gateway.status();
    assert_eq!(after["unpublished_bytes"], 0, "{after}");
    assert_eq!(after["dirty_bytes"], 0, "{after}");
    assert!(after["oldest_unpublished_age_seconds"].is_null(), "{after}");
    assert!(
        after["published_lsn"].as_u64() > before["published_lsn"].as_u64(),
        "{after}"
    );
    assert_eq!(after["published_lsn"], after["log_end_lsn"], "{after}");
    gateway.kill();
}

#[test]
fn status_says_where_everything_is() {
    let place = Place::new();
    let gateway = place.serve();
    let status = gateway.status();
    assert_eq!(status["listen"], format!("127.0.0.1:{}", gateway.port()));
    assert_eq!(
        status["store"],
        format!("file://{}", place.bucket().display())
    );
    assert_eq!(status["memory_limit_bytes"], 1 << 30);
    assert_eq!(status["log_limit_bytes"], 4_u64 << 30);
    assert!(status["store_error"].is_null());
    let text = gateway.ask(&["status"]);
    assert!(
        text.stdout.contains("the bucket has everything"),
        "{}",
        text.stdout
    );
    gateway.stop_cleanly();
}

#[test]
fn a_health_check_says_in_a_word_and_a_code_how_a_gateway_is() {
    let place = Place::new();
    let gateway = place.serve();
    let healthy = gateway.ask(&["status", "--check"]);
    let said = (healthy.status.code(), healthy.stdout.as_str());
    assert_eq!(said, (Some(0), "healthy\n"), "{}", healthy.stderr);
    assert_eq!(gateway.status()["health"]["state"], "healthy");
    gateway.stop_cleanly();
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let failing = run(&["status", "--check", &data_dir]);
    assert_eq!(failing.status.code(), Some(2), "{}", failing.stderr);
    let said = &failing.stdout;
    assert!(
        said.starts_with("failing: no gateway runs with data_dir"),
        "{said}"
    );
}

#[test]
fn sigterm_publishes_everything_and_the_bucket_alone_has_it() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--checkpoint-interval=1h"]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    // Not even committed.
    client
        .write(&file, 0, b"written just before", Stable::Unstable)
        .unwrap();
    gateway.stop_cleanly();
    fs::remove_dir_all(place.data_dir()).unwrap();

    let elsewhere = place.serve_with("elsewhere", &[]);
    let mut client = elsewhere.client();
    assert_eq!(client.get("file").unwrap(), b"written just before");
    assert_eq!(client.mount(), root, "handles are the volume's");
    elsewhere.stop_cleanly();
}

#[test]
fn sigkill_loses_nothing_and_clients_do_not_notice() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--checkpoint-interval=1h"]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.create(&root, b"file");
    let verifier = client.write(&file, 0, b"stable", Stable::FileSync).unwrap();
    client
        .write(&file, 6, b" and not", Stable::Unstable)
        .unwrap();
    client.create(&root, b"gone");
    client.remove(&root, b"gone");
    gateway.kill();

    let gateway = place.serve();
    let mut client = gateway.client();
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"stable and not");
    assert_eq!(
        client.commit(&file),
        verifier,
        "nothing was lost, so nothing need be sent again"
    );
    assert_eq!(client.lookup(&root, b"file").unwrap(), file);
    assert_eq!(client.lookup(&root, b"gone"), Err(NOENT));
    gateway.stop_cleanly();
}

#[test]
fn what_was_not_published_when_the_machine_was_lost_is_missing_as_a_whole() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--checkpoint-interval=1h"]);
    gateway.client().put("published", b"first");
    gateway.flush();
    gateway.client().put("published", b"second");
    gateway.client().put("later", b"third");
    gateway.kill();
    fs::remove_dir_all(place.data_dir()).unwrap();

    let elsewhere = place.serve_with("elsewhere", &["--take-over"]);
    assert_eq!(elsewhere.client().get("published").unwrap(), b"first");
    assert_eq!(elsewhere.client().get("later"), Err(NOENT));
    elsewhere.stop_cleanly();
}

#[test]
fn without_a_log_commit_waits_for_the_bucket() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--log=none"]);
    gateway.client().put("file", b"committed");
    gateway.kill();
    fs::remove_dir_all(place.data_dir()).unwrap();
    let elsewhere = place.serve_with("elsewhere", &["--log=none", "--take-over"]);
    assert_eq!(elsewhere.client().get("file").unwrap(), b"committed");
    elsewhere.stop_cleanly();
}

#[test]
fn each_export_has_its_own_commit_mode() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().mkdir("ledger");
    gateway.stop_cleanly();

    let file = place.path("forebay.toml");
    let exports = "[[export]]\npath = \"/\"\n[[export]]\npath = \"/ledger\"\ncommit = \"bucket\"\n";
    fs::write(&file, exports).unwrap();
    let config = format!("--config={}", file.display());
    // No checkpoint is published by itself while the test runs.
    let gateway = place.serve_with("data", &[&config, "--checkpoint-interval=1h"]);
    let mut client = gateway.client();
    let root = client.mount();
    let ledger = client.mount_at("/ledger").unwrap();
    let entry = client.create(&ledger, b"entry");
    client.write(&entry, 0, b"paid", Stable::FileSync).unwrap();
    let note = client.create(&root, b"note");
    client.write(&note, 0, b"text", Stable::FileSync).unwrap();
    gateway.kill();
    // The machine is lost.
    fs::remove_dir_all(place.data_dir()).unwrap();

    let gateway = place.serve_with("data", &["--take-over"]);
    let mut client = gateway.client();
    let root = client.mount();
    let ledger = client.lookup(&root, b"ledger").unwrap();
    let entry = client.lookup(&ledger, b"entry").unwrap();
    assert_eq!(client.read(&entry, 0, 100).unwrap(), b"paid");
    assert_eq!(client.lookup(&root, b"note"), Err(NOENT));
}

#[test]
fn what_is_written_twice_is_in_the_bucket_once_if_that_is_set() {
    const LEN: usize = 1 << 20;
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(LEN)
    .collect();
    for (mode, saves) in [("full", true), ("fast", true), ("off", false)] {
        let place = Place::new();
        let gateway = place.serve_with("data", &[&format!("--dedup={mode}")]);
        for name in ["first", "second"] {
            gateway.client().put(name, &noise);
            gateway.flush();
        }
        let status = gateway.status();
        let saved = &status["dedup"]["saved_bytes"];
        if saves {
            assert_eq!(saved.as_u64(), Some(LEN as u64), "{mode}: {status:#}");
        } else {
            assert!(saved.is_null(), "{mode}: {status:#}");
        }
        gateway.stop_cleanly();
        let gateway = place.serve_with("elsewhere", &[]);
        assert!(gateway.client().get("second").unwrap() == noise, "{mode}");
        gateway.stop_cleanly();
    }
}

/// KiB of memory with the huge page advice, from a process's `smaps`.
fn huge_kib(smaps: &str) -> u64 {
    let (mut kib, mut huge) = (0, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Size:") => kib = words.next().unwrap().parse().unwrap(),
            Some("VmFlags:") if words.any(|flag| flag == "hg") => huge += kib,
            _ => {}
        }
    }
    huge
}

#[test]
fn only_data_ask_for_huge_pages() {
    if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        return;
    }
    let place = Place::new();
    let gateway = place.serve_with("data", &["--memory-limit=256MiB"]);
    gateway.client().put("file", &[7; 1 << 20]);
    let huge = huge_kib(&gateway.proc("smaps"));
    // The limit, an eighth of it, and the other reservations; no memory of names or metadata.
    assert_eq!(huge, (256 + 32 + 64) << 10, "KiB");
    gateway.stop_cleanly();
}
