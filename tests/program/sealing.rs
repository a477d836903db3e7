//! A sealed volume, from its creation to the replacement of its keys: it cannot be read without them, and its bucket
//! shows no content.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::terminal::run_at_terminal;
use crate::support::{Gateway, Outcome, Place, refused, run};

const CONTENT: &[u8] = b"words that are written here and read nowhere else";

/// Makes a file that only its owner may read.
pub(crate) fn secret(place: &Place, name: &str, content: &[u8]) -> PathBuf {
    let path = place.path(name);
    let mut options = fs::File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&path).unwrap().write_all(content).unwrap();
    path
}

/// A command on the volume of the place, with the setting that opens it.
fn command(place: &Place, words: &[&str], setting: &str, path: &Path) -> Vec<String> {
    let own = |word: &&str| (*word).to_owned();
    let mut all: Vec<String> = words.iter().map(own).collect();
    all.extend(place.flags("data"));
    all.extend(opened_by(setting, path));
    all
}

fn opened_by(setting: &str, path: &Path) -> Vec<String> {
    let file = format!("--{setting}={}", path.display());
    vec!["--encryption=aes-256-gcm".to_owned(), file]
}

fn serve(place: &Place, data_dir: &str, setting: &str, path: &Path) -> Gateway {
    let more = opened_by(setting, path);
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    place.serve_with(data_dir, &more)
}

#[track_caller]
pub(crate) fn works(outcome: Outcome) -> String {
    let Outcome {
        status,
        stdout,
        stderr,
    } = outcome;
    assert!(status.success(), "{stdout}{stderr}");
    stdout
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let below = entries.flat_map(|entry| match entry.path() {
        path if path.is_dir() => files(&path),
        path if path.is_file() => vec![path],
        // The socket of a gateway that was killed.
        _ => Vec::new(),
    });
    below.collect()
}

#[test]
fn a_sealed_volume_shows_nothing_and_opens_only_with_what_opens_it() {
    let place = Place::new();
    let words = secret(&place, "words", b"open sesame\n");
    let made = run(&command(&place, &["format"], "passphrase-file", &words));
    assert!(works(made).contains("is ready"));
    let gateway = serve(&place, "data", "passphrase-file", &words);
    gateway.client().put("a-name-for-nobody", CONTENT);
    gateway.flush();
    let checked = ["fsck", "--read-data"];
    works(run(&command(&place, &checked, "passphrase-file", &words)));
    assert!(!gateway.messages().contains("open sesame"));
    gateway.stop_cleanly();

    for file in files(&place.bucket()) {
        let bytes = fs::read(&file).unwrap();
        for secret in [CONTENT, b"a-name-for-nobody", b"open sesame"] {
            let found = bytes.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "{} shows it", file.display());
        }
    }

    let mut open = vec!["serve".to_owned()];
    open.extend(place.flags("data"));
    refused(&open).says(&["is sealed", "encryption", "passphrase_file"]);
    let wrong = secret(&place, "wrong", b"open barley\n");
    let refusal = refused(&command(&place, &["serve"], "passphrase-file", &wrong));
    refusal.says(&["opens none of the 1 passphrase slots"]);
    assert!(!refusal.error.contains("barley"));
    let refusal = refused(&command(&place, &["serve"], "key-file", &wrong));
    refusal.says(&["key_file", "fewer than 32 bytes"]);
    let unchecked = run(&command(&place, &["fsck"], "passphrase-file", &wrong));
    assert_eq!(unchecked.status.code(), Some(2), "{}", unchecked.stderr);
    let mut none = open.clone();
    none.push("--encryption=aes-256-gcm".to_owned());
    refused(&none).says(&[
        "no passphrase, key file or KMS key is set",
        "passphrase_file",
    ]);
    open.push(format!("--passphrase-file={}", words.display()));
    refused(&open).says(&["passphrase_file", "encryption = off"]);

    // From another machine.
    let gateway = serve(&place, "elsewhere", "passphrase-file", &words);
    assert_eq!(gateway.client().get("a-name-for-nobody").unwrap(), CONTENT);
    gateway.stop_cleanly();
}

#[test]
fn a_volume_that_is_not_sealed_is_not_taken_for_a_sealed_one() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", CONTENT);
    gateway.stop_cleanly();
    let key = secret(&place, "key", &[7; 32]);
    let refusal = refused(&command(&place, &["serve"], "key-file", &key));
    refusal.says(&["is not sealed", "encryption = \"off\""]);
    let refusal = refused(&command(&place, &["keys", "rotate"], "key-file", &key));
    refusal.says(&["is not sealed"]);
    place.serve().stop_cleanly();
}

#[test]
fn what_opens_a_volume_is_exchanged_beside_its_gateway() {
    let place = Place::new();
    let old = secret(&place, "old", b"old words\n");
    let new = secret(&place, "new", b"new words\n");
    let key = secret(&place, "key", &[7; 32]);
    let keys = |words: &[&str], setting: &str, path: &Path| {
        let words = [&["keys"], words].concat();
        run(&command(&place, &words, setting, path))
    };
    let gateway = serve(&place, "data", "passphrase-file", &old);
    gateway.client().put("file", CONTENT);
    gateway.flush();

    let key_text = key.display().to_string();
    let added = keys(&["add-key-file", &key_text], "passphrase-file", &old);
    assert!(works(added).contains("slot 2"));
    let new_file = format!("--new-passphrase-file={}", new.display());
    let changed = keys(&["change-passphrase", &new_file], "passphrase-file", &old);
    assert!(works(changed).contains("slot 3 opens the volume now, and slot 1 is removed"));
    assert!(works(keys(&["rotate"], "key-file", &key)).contains("data key 2"));
    let refused = keys(&["remove", "2"], "key-file", &key);
    assert!(
        refused.stderr.contains("key ring was opened with"),
        "{}",
        refused.stderr
    );

    let listed = works(keys(&["list", "--json"], "key-file", &key));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let kinds = listed["slots"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds
        .map(|slot| (slot["id"].as_u64(), &slot["kind"]))
        .collect();
    assert_eq!(
        kinds,
        [
            (Some(2), &"key-file".into()),
            (Some(3), &"passphrase".into())
        ]
    );
    assert_eq!(listed["data_keys"].as_array().unwrap().len(), 2);
    assert_eq!(listed["generation"], 4);

    // The running gateway does not notice these changes.
    gateway.client().put("more", CONTENT);
    gateway.stop_cleanly();
    let refusal = crate::support::refused(&command(&place, &["serve"], "passphrase-file", &old));
    refusal.says(&["opens none of the 1 passphrase slots"]);
    for (setting, path) in [("passphrase-file", &new), ("key-file", &key)] {
        let gateway = serve(&place, "data", setting, path);
        assert_eq!(gateway.client().get("file").unwrap(), CONTENT);
        assert_eq!(gateway.client().get("more").unwrap(), CONTENT);
        gateway.client().put("file", CONTENT);
        gateway.stop_cleanly();
    }
    works(keys(&["remove", "3"], "key-file", &key));
    let last = keys(&["remove", "2"], "key-file", &key);
    assert!(last.stderr.contains("at least one slot"), "{}", last.stderr);
}

#[test]
fn a_passphrase_is_typed_where_no_file_is_named_and_does_not_appear() {
    let place = Place::new();
    let at_terminal = |words: &[&str], lines: &[&str]| {
        let mut all: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        all.extend(place.flags("data"));
        all.push("--encryption=aes-256-gcm".to_owned());
        let said = run_at_terminal(&all, lines);
        for secret in ["sesame", "barley"] {
            assert!(!said.shown.contains(secret), "it is shown: {}", said.shown);
            assert!(!said.text.contains(secret), "it is told: {}", said.text);
        }
        said
    };
    let said = at_terminal(&["format"], &["open sesame", "open sesame?"]);
    assert!(
        !said.is_success && said.text.contains("two passphrases differ"),
        "{}",
        said.text
    );
    // A new passphrase is asked for twice, because a typed one may be mistyped.
    let said = at_terminal(&["serve", "--create"], &["open sesame"]);
    assert!(
        !said.is_success && said.text.contains("typed twice"),
        "{}",
        said.text
    );
    let said = at_terminal(&["format"], &["open sesame", "open sesame"]);
    assert!(said.is_success, "{}", said.text);
    let said = at_terminal(&["keys", "rotate"], &["open barley"]);
    assert!(
        !said.is_success && said.text.contains("opens none"),
        "{}",
        said.text
    );
    let exchange = ["open sesame", "open barley", "open barley"];
    let said = at_terminal(&["keys", "change-passphrase"], &exchange);
    assert!(said.is_success, "{}", said.text);
    let said = at_terminal(&["fsck"], &["open barley"]);
    assert!(said.is_success, "{}", said.text);
}

#[test]
fn a_passphrase_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let words = secret(&place, "words", b"open sesame");
    fs::set_permissions(&words, fs::Permissions::from_mode(0o640)).unwrap();
    let refusal = refused(&command(&place, &["serve"], "passphrase-file", &words));
    refusal.says(&["passphrase_file", "mode 0640", "chmod 600"]);
    assert!(!place.bucket().exists(), "nothing was made");
}

#[test]
fn a_sealed_log_shows_nothing_after_a_kill_and_is_read_with_the_keys_alone() {
    let place = Place::new();
    let key = secret(&place, "key", &[7; 32]);
    let mut flags = opened_by("key-file", &key);
    flags.push("--seal-log=on".to_owned());
    flags.push("--checkpoint-interval=1h".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let name = "a-name-for-nobody";
    let gateway = place.serve_with("data", &flags);
    gateway.client().put("published", b"x");
    gateway.flush();
    gateway.client().put(name, CONTENT);
    gateway.kill();

    let on_disk = files(&place.data_dir());
    let is_segment = |file: &PathBuf| file.extension().is_some_and(|end| end == "seg");
    assert!(on_disk.iter().any(is_segment), "{on_disk:?}");
    for file in on_disk {
        let bytes = fs::read(&file).unwrap();
        for secret in [CONTENT, name.as_bytes()] {
            let found = bytes.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "{} shows it", file.display());
        }
    }

    // Without keys, its records are only counted.
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let counted = works(run(&["log", "list", "--json", &data_dir]));
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted[0]["locked"], true, "{counted:#}");
    assert!(counted[0]["unpublished"]["records"].as_u64() >= Some(2));
    assert_eq!(
        counted[0]["unpublished"]["files"].as_array().unwrap().len(),
        0
    );
    let listed = works(run(&["log", "list", &data_dir]));
    assert!(
        listed.contains("all of it") && listed.contains("locked"),
        "{listed}"
    );
    let to = format!("--to={}", place.path("salvaged").display());
    let show = ["log", "show", "current", &data_dir];
    let salvage = ["log", "salvage", "current", "--ranges-only", &to, &data_dir];
    for words in [&show[..], &salvage] {
        let refusal = refused(words);
        refusal.says(&["the log current is sealed", "encryption"]);
    }
    // With the keys, they are listed.
    let listed = works(run(&command(&place, &["log", "list"], "key-file", &key)));
    assert!(
        listed.contains(name) && !listed.contains("locked"),
        "{listed}"
    );
    let shown = ["log", "show", "current"];
    let shown = works(run(&command(&place, &shown, "key-file", &key)));
    assert!(shown.contains(name), "{shown}");
    let salvage = ["log", "salvage", "current", &to];
    works(run(&command(&place, &salvage, "key-file", &key)));
    let salvaged = place.path("salvaged").join("files").join(name);
    assert_eq!(fs::read(salvaged).unwrap(), CONTENT);

    let gateway = place.serve_with("data", &flags);
    assert_eq!(gateway.client().get(name).unwrap(), CONTENT);
    assert_eq!(gateway.client().get("published").unwrap(), b"x");
    gateway.stop_cleanly();
    // A gateway that seals its log does not replay records that are not sealed.
    let gateway = serve(&place, "data", "key-file", &key);
    gateway.client().put("in the clear", CONTENT);
    gateway.kill();
    let sealing = |words: &[&str]| {
        let mut sealing = command(&place, words, "key-file", &key);
        sealing.push("--seal-log=on".to_owned());
        sealing
    };
    refused(&sealing(&["serve"])).says(&["is not sealed", "seal_log = \"off\""]);
    // They are not salvaged either, nor shown as written by the gateway.
    let to = format!("--to={}", place.path("authentic").display());
    let told = run(&sealing(&["log", "salvage", "current", &to]));
    assert!(told.stdout.contains("0 files"), "{}", told.stdout);
    let manifest = fs::read_to_string(place.path("authentic/MANIFEST.txt")).unwrap();
    assert!(manifest.contains("not sealed"), "{manifest}");
    assert!(!place.path("authentic/files/in the clear").exists());
    let shown = run(&sealing(&["log", "show", "current"]));
    assert!(!shown.stdout.contains("in the clear"), "{}", shown.stdout);
    let to = format!("--to={}", place.path("all").display());
    let salvage = ["log", "salvage", "current", &to];
    works(run(&command(&place, &salvage, "key-file", &key)));
    assert!(place.path("all/files/in the clear").exists());
    let mut unsealed = vec!["serve".to_owned(), "--seal-log=on".to_owned()];
    unsealed.extend(place.flags("data"));
    refused(&unsealed).says(&["seal_log", "encryption = off"]);
}
