//! Volumes that earlier versions wrote: they open, have every byte, and go on with this version. See tests/golden.

mod history;

use std::path::Path;
use std::process::Command;

use forebay_client::Status;

use crate::support::{Gateway, Place, run};

/// `text` and a newline again and again, `len` bytes of it.
fn repeated(text: &str, len: usize) -> Vec<u8> {
    let line = format!("{text}\n");
    line.bytes().cycle().take(len).collect()
}

fn unpacked(archive: &str) -> Place {
    let place = Place::new();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(archive);
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(place.path(""));
    assert!(tar.status().unwrap().success());
    place
}

/// Checks the files, those that only the log has among them if `has_log`.
fn check(gateway: &Gateway, has_log: bool) {
    let mut client = gateway.client();
    let root = client.mount();
    let text = repeated("published text", 70_000);
    let directory = client.lookup(&root, b"dir").unwrap();
    for name in ["file", "link"] {
        let file = client.lookup(&directory, name.as_bytes()).unwrap();
        assert!(client.read(&file, 0, 1 << 20).unwrap() == text, "{name}");
    }
    let file = client.lookup(&directory, b"file").unwrap();
    assert_eq!(client.lookup(&directory, b"link").unwrap(), file);
    let sparse = client.lookup(&root, b"sparse").unwrap();
    assert_eq!(client.read(&sparse, 8_999_990, 100).unwrap(), [0; 11]);
    let below = client.lookup(&directory, b"below").unwrap();
    let changed = client.lookup(&below, b"changed").unwrap();
    let changed = client.read(&changed, 0, 100).unwrap();
    let there =
        |client: &mut crate::support::nfs::Client, name: &[u8]| client.lookup(&root, name).is_ok();
    match has_log {
        true => {
            assert_eq!(changed, b"changed later");
            let logged = client.get("logged").unwrap();
            assert!(logged == repeated("only in the log", 20_000));
            assert!(there(&mut client, b"moved") && !there(&mut client, b"symbolic"));
            assert!(!there(&mut client, b"gone"));
        }
        false => {
            assert_eq!(changed, b"old");
            assert_eq!(client.get("gone").unwrap(), b"gone");
            assert!(there(&mut client, b"symbolic") && !there(&mut client, b"moved"));
            assert_eq!(client.get("logged"), Err(Status::NOENT));
        }
    }
}

fn is_sound(place: &Place, options: &[&str]) {
    is_sound_at(&place.bucket(), options);
}

/// Checks the volume in a folder, and every byte of it.
fn is_sound_at(bucket: &Path, options: &[&str]) {
    let mut command = vec!["fsck".to_owned(), "--read-data".to_owned()];
    command.push(format!("--store=file://{}", bucket.display()));
    command.extend(options.iter().map(|&option| option.to_owned()));
    let checked = run(&command);
    assert!(
        checked.status.success(),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
}

fn goes_on(archive: &str, sealed: bool) {
    let place = unpacked(archive);
    let passphrase = format!("--passphrase-file={}", place.path("passphrase").display());
    let keys = ["--encryption=aes-256-gcm", &passphrase];
    let keys: &[&str] = if sealed { &keys } else { &[] };
    let mut with = keys.to_vec();
    if sealed {
        with.push("--seal-log=on");
    }
    is_sound(&place, keys);
    let gateway = place.serve_with("data", &with);
    check(&gateway, true);
    gateway.stop_cleanly();
    is_sound(&place, keys);

    // With its first snapshot the volume has records that the earlier version did not know.
    let gateway = place.serve_with("data", &with);
    assert!(
        gateway
            .ask(&["snapshot", "create", "first"])
            .status
            .success()
    );
    gateway.client().put("logged", b"new");
    gateway.client().put("later", b"later");
    gateway.kill();
    let gateway = place.serve_with("data", &with);
    let mut client = gateway.client();
    let root = client.mount();
    let list = client.lookup(&root, b".snapshot").unwrap();
    let first = client.lookup(&list, b"first").unwrap();
    let logged = client.lookup(&first, b"logged").unwrap();
    assert!(client.read(&logged, 0, 1 << 20).unwrap() == repeated("only in the log", 20_000));
    assert_eq!(client.lookup(&first, b"later"), Err(Status::NOENT));
    assert_eq!(client.get("logged").unwrap(), b"new");
    gateway.stop_cleanly();
    is_sound(&place, keys);
}

fn opens_elsewhere(archive: &str, sealed: bool) {
    let place = unpacked(archive);
    let passphrase = format!("--passphrase-file={}", place.path("passphrase").display());
    let mut options = vec!["--takeover=allow"];
    if sealed {
        options.extend(["--encryption=aes-256-gcm", &passphrase]);
    }
    let gateway = place.serve_with("other", &options);
    check(&gateway, false);
    gateway.stop_cleanly();
}

#[test]
fn a_volume_from_before_snapshots_goes_on() {
    goes_on("before-snapshots-plain.tar.gz", false);
}

#[test]
fn a_sealed_volume_from_before_snapshots_goes_on() {
    goes_on("before-snapshots-sealed.tar.gz", true);
}

#[test]
fn a_volume_from_before_snapshots_opens_without_its_log() {
    opens_elsewhere("before-snapshots-plain.tar.gz", false);
    opens_elsewhere("before-snapshots-sealed.tar.gz", true);
}
