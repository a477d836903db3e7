//! Two gateways and one volume: the later one holds it.

use std::fs;

use serde_json::Value;

use crate::metrics::{ADMIN, Scrape};
use crate::support::nfs::Stable;

use crate::support::{Place, Refusal, refused, run};

/// Exit code of a gateway that cannot serve because another one holds the volume.
pub(crate) const TAKEN_OVER: i32 = 3;

impl Place {
    /// The refusal of a gateway with this local folder.
    #[track_caller]
    fn refuses(&self, data_dir: &str) -> Refusal {
        refused(&[vec!["serve".to_owned()], self.flags(data_dir)].concat())
    }

    /// The refusal of `forebay COMMAND` for the first local folder, where no gateway runs.
    #[track_caller]
    fn ask(&self, command: &[&str]) -> Refusal {
        let data_dir = format!("--data-dir={}", self.data_dir().display());
        refused(&[command, &[&data_dir]].concat())
    }
}

#[test]
fn a_volume_that_is_held_is_refused_until_its_gateway_has_stopped_in_order() {
    let place = Place::new();
    let first = place.serve_with("data", &["--checkpoint-interval=1h"]);
    first.client().put("file", b"in the log alone");
    // Beside a running gateway, and after a killed one.
    let beside = place.refuses("second");
    first.kill();
    let after = place.refuses("second");
    let data_dir = place.data_dir().display().to_string();
    for refusal in [beside, after] {
        assert_eq!(refusal.code, TAKEN_OVER);
        refusal.says(&[
            "is held by",
            &data_dir,
            "127.0.0.1:0",
            "since 20",
            "publishes at least every 3600s",
            "That is this machine",
            "--take-over",
        ]);
    }
    assert!(
        !place.path("second").join("state").exists(),
        "a start that is refused leaves nothing that belongs to the volume"
    );
    // The first gateway's own log proves that it holds the volume.
    let first = place.serve();
    assert_eq!(first.client().get("file").unwrap(), b"in the log alone");
    first.stop_cleanly();
    let second = place.serve_with("second", &[]);
    assert_eq!(second.client().get("file").unwrap(), b"in the log alone");
    second.stop_cleanly();
    place.serve().stop_cleanly();
}

#[test]
fn a_gateway_that_was_taken_over_stops_and_says_so() {
    let place = Place::new();
    let first = place.serve_with("data", &["--checkpoint-interval=1h"]);
    first.client().put("file", b"published");
    first.flush();
    let second = place.serve_with("second", &["--checkpoint-interval=1h", "--take-over"]);

    // It notices when it next publishes.
    first.client().put("file", b"too late");
    let flushed = first.ask(&["flush", "--timeout=50s"]);
    assert!(!flushed.status.success(), "{}", flushed.stdout);
    let (code, messages) = first.ends();
    assert_eq!(code, Some(TAKEN_OVER), "{messages}");
    let second_dir = place.path("second").display().to_string();
    for part in [
        "another gateway has taken over",
        // The folder.
        &*second_dir,
        // The remedy.
        "forebay log salvage current",
    ] {
        assert!(messages.contains(part), "{part}: {messages}");
    }
    assert!(!messages.contains("start again"), "{messages}");
    let asked = place.ask(&["status"]);
    assert_eq!(asked.code, 1);
    asked.says(&[
        "no gateway runs",
        "another gateway has taken over",
        &second_dir,
    ]);

    // A restart by a supervisor takes nothing back, however often it happens.
    for _ in 0..2 {
        let refusal = place.refuses("data");
        assert_eq!(refusal.code, TAKEN_OVER);
        refusal.says(&["is held by", &second_dir]);
    }
    assert_eq!(second.client().get("file").unwrap(), b"published");
    second.client().put("file", b"of the second");
    second.flush();
    second.stop_cleanly();
}

#[test]
fn the_log_of_a_gateway_that_was_taken_over_is_put_aside_and_named() {
    let place = Place::new();
    let first = place.serve_with("data", &["--checkpoint-interval=1h"]);
    first.client().put("file", b"published");
    first.flush();
    first.client().put("file", b"in the log alone");
    first.kill();
    let second = place.serve_with("second", &["--take-over"]);
    second.client().put("file", b"of the second");
    second.stop_cleanly();

    // The second one was stopped in order, so that the first one takes nothing from it.
    let first = place.serve();
    assert_eq!(first.client().get("file").unwrap(), b"of the second");
    first.says("is archived");
    first.says(&place.data_dir().display().to_string());
    let kept = fs::read_dir(place.data_dir().join("log")).unwrap();
    let kept: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
    let holds = |path: &std::path::PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(16)
            .any(|window| window == b"in the log alone")
    };
    assert!(kept.iter().any(holds), "the log is gone: {kept:?}");
    first.stop_cleanly();
}

/// `forebay log ...` for the first gateway of a place, which must succeed.
#[track_caller]
fn log(place: &Place, arguments: &[&str]) -> String {
    let store = format!("--store=file://{}", place.bucket().display());
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let all: Vec<&str> = ["log"]
        .into_iter()
        .chain(arguments.iter().copied())
        .chain([&*store, &*data_dir])
        .collect();
    let outcome = run(&all);
    assert!(outcome.status.success(), "{}", outcome.stderr);
    outcome.stdout
}

#[test]
fn a_gateway_that_slept_through_a_takeover_stops_and_its_log_is_salvaged() {
    let place = Place::new();
    let first = place.serve_with("data", &["--checkpoint-interval=1h"]);
    first.client().put("both", &[b'a'; 10_000]);
    first.flush();
    let mut client = first.client();
    let root = client.mount();
    let both = client.lookup(&root, b"both").unwrap();
    client
        .write(&both, 5000, &[b'b'; 100], Stable::FileSync)
        .unwrap();
    client.put("only here", b"acknowledged, and nowhere else");
    // It is paused before it publishes, and another gateway takes over.
    first.pause();
    let second = place.serve_with("second", &["--take-over"]);
    second.client().put("theirs", b"of the second");
    second.flush();
    first.go_on();
    // It notices when it next publishes.
    let flushed = first.ask(&["flush", "--timeout=50s"]);
    assert!(!flushed.status.success(), "{}", flushed.stdout);
    let (code, messages) = first.ends();
    assert_eq!(code, Some(TAKEN_OVER), "{messages}");
    assert!(
        messages.contains("another gateway has taken over"),
        "{messages}"
    );

    // Until it is started again, its log is the current one.
    let listed = log(&place, &["list"]);
    assert!(
        listed.contains("current: ") && listed.contains("/only here"),
        "{listed}"
    );
    let first = place.serve_with("data", &[ADMIN, "--take-over"]);
    first.says("forebay log salvage epoch-1");
    assert_eq!(first.client().get("theirs").unwrap(), b"of the second");
    let listed: Value = serde_json::from_str(&log(&place, &["list", "--json"])).unwrap();
    let kept = &listed[1];
    assert_eq!(
        (&kept["label"], &kept["ending"]["how"]),
        (&"epoch-1".into(), &"clean".into())
    );
    assert_eq!(kept["unpublished"]["data_bytes"], 130);
    assert_eq!(kept["unpublished"]["files"][1]["path"], "/only here");
    let shown = log(&place, &["show", "epoch-1"]);
    assert!(
        shown.contains("100 bytes at 5000") && shown.contains("\"only here\""),
        "{shown}"
    );
    for line in log(&place, &["show", "epoch-1", "--from=0", "--json"]).lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(record["lsn"].is_u64(), "{line}");
    }

    // It takes no more space than its records.
    let archived = &first.status()["archived_logs"];
    assert_eq!(archived["logs"], 1);
    let bytes = archived["bytes"].as_u64().unwrap();
    assert!((130..100_000).contains(&bytes), "{archived}");
    let scrape = Scrape::of(&first);
    assert_eq!(scrape.value("archived_logs"), 1.0);
    assert_eq!(scrape.value("archived_log_bytes"), bytes as f64);
    assert!(archived["oldest_seconds"].as_u64().unwrap() > 1_700_000_000);
    let shown = first.ask(&["status"]);
    assert!(
        shown.stdout.contains("archived logs 1 with"),
        "{}",
        shown.stdout
    );

    // Logs that were not salvaged are not deleted.
    let said = log(&place, &["forget", "--all-salvaged"]);
    assert!(said.contains("nothing is deleted"), "{said}");
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let refusal = refused(&["log", "forget", "epoch-1", &data_dir]);
    assert_eq!(refusal.code, 1);
    refusal.says(&[
        "was not salvaged yet",
        "forebay log salvage epoch-1",
        "--force",
    ]);
    let to = place.path("salvaged");
    let to_flag = format!("--to={}", to.display());
    let said = log(&place, &["salvage", "epoch-1", &to_flag]);
    assert!(said.contains("2 files"), "{said}");
    let mut merged = [b'a'; 10_000];
    merged[5000..5100].fill(b'b');
    assert_eq!(fs::read(to.join("files/both")).unwrap(), merged);
    let only_here = fs::read(to.join("files/only here")).unwrap();
    assert_eq!(only_here, b"acknowledged, and nowhere else");
    let manifest = fs::read_to_string(to.join("MANIFEST.txt")).unwrap();
    assert!(manifest.contains("It is complete."), "{manifest}");
    assert!(
        manifest.contains("written: bytes 5000 to 5100"),
        "{manifest}"
    );
    let manifest = fs::read(to.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["files"][1]["file"], "files/only here");
    let again = refused(&[
        "log",
        "salvage",
        "epoch-1",
        &to_flag,
        "--ranges-only",
        &data_dir,
    ]);
    again.says(&["exists already"]);

    let said = log(&place, &["forget", "--all-salvaged"]);
    assert!(said.contains("was salvaged to"), "{said}");
    assert!(!log(&place, &["list"]).contains("epoch-1"));
    let refusal = refused(&["log", "show", "epoch-1", &data_dir]);
    refusal.says(&["there is no log epoch-1", "current"]);
    first.stop_cleanly();
    second.kill();
}

#[test]
fn a_folder_without_a_log_is_refused_with_the_flag_that_names_it() {
    let place = Place::new();
    let data_dir = format!("--data-dir={}", place.path("nothing").display());
    let refusal = refused(&["log", "list", &data_dir]);
    assert_eq!(refusal.code, 1);
    refusal.says(&["has no log", "--data-dir"]);
    assert!(!place.path("nothing").exists(), "looking makes nothing");
}
