//! `forebay quota`: limits are set while the gateway runs, apply at once, and belong to the volume.

use serde_json::Value;

use crate::support::nfs::Stable;
use crate::support::{Gateway, Place, refused};

/// NFS3ERR_DQUOT (RFC 1813, section 2.6).
const DQUOT: u32 = 69;

#[track_caller]
fn quotas(gateway: &Gateway) -> Value {
    let list = gateway.ask(&["quota", "list", "--json"]);
    assert!(list.status.success(), "{}", list.stderr);
    serde_json::from_str(&list.stdout).unwrap()
}

#[test]
fn a_quota_holds_at_once_and_after_a_takeover_from_the_bucket_alone() {
    let place = Place::new();
    let gateway = place.serve();
    let mut client = gateway.client();
    client.mkdir("home");
    let root = client.mount();
    let home = client.lookup(&root, b"home").unwrap();
    let file = client.create(&home, b"file");
    client
        .write(&file, 0, &[1; 8192], Stable::FileSync)
        .unwrap();

    let set = gateway.ask(&["quota", "set", "/home", "--bytes", "64KiB", "--files", "2"]);
    assert!(set.status.success(), "{}", set.stderr);
    assert!(set.stdout.contains("64.0 KiB"), "{}", set.stdout);
    // Existing objects are counted in the background.
    while quotas(&gateway)[0]["counting"] != false {}
    client
        .write(&file, 8192, &[2; 57344], Stable::Unstable)
        .unwrap();
    let refused = client.write(&file, 65536, b"x", Stable::Unstable);
    assert_eq!(refused.unwrap_err().0, DQUOT);
    gateway.stop_cleanly();
    std::fs::remove_dir_all(place.data_dir()).unwrap();

    let elsewhere = place.serve_with("elsewhere", &[]);
    let mut client = elsewhere.client();
    let refused = client.write(&file, 65536, b"x", Stable::Unstable);
    assert_eq!(refused.unwrap_err().0, DQUOT);
    let list = quotas(&elsewhere);
    assert_eq!(list[0]["path"], "/home", "{list}");
    assert_eq!(list[0]["limit_bytes"], 65536, "{list}");
    assert_eq!(list[0]["used_bytes"], 65536, "{list}");
    assert_eq!(list[0]["limit_files"], 2, "{list}");
    assert_eq!(list[0]["used_files"], 2, "{list}");

    let removed = elsewhere.ask(&["quota", "remove", "/home"]);
    assert!(removed.status.success(), "{}", removed.stderr);
    client.write(&file, 65536, b"x", Stable::FileSync).unwrap();
    elsewhere.stop_cleanly();
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let place = Place::new();
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    refused(&["quota", "list", &data_dir]).says(&["no gateway runs", "forebay serve"]);
    let gateway = place.serve();
    for (path, why) in [("/none", "there is no /none"), ("/", "volume_limit")] {
        let refusal = refused(&["quota", "set", path, "--bytes", "1MiB", &data_dir]);
        refusal.says(&[why]);
        assert_eq!(refusal.code, 1);
    }
    refused(&["quota", "show", "/", &data_dir]).says(&["/ has no quota", "forebay quota list"]);
    assert_eq!(quotas(&gateway), Value::Array(Vec::new()));
    gateway.stop_cleanly();
}
