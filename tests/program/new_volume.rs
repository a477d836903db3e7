//! A volume is made only where one is intended.

use std::fs;

use crate::support::{Gateway, Place, refused, run};

fn serve(place: &Place) -> Vec<String> {
    let mut arguments = vec!["serve".to_owned()];
    arguments.extend(place.flags("data"));
    arguments
}

#[test]
fn another_folder_than_the_default_has_to_be_asked_for() {
    let place = Place::new();
    let refusal = refused(&serve(&place));
    assert_eq!(refusal.code, 1);
    refusal.says(&[
        "no volume at file://",
        "forebay format",
        "--create",
        "mount it first",
    ]);
    assert!(!place.bucket().exists(), "the folder was made all the same");
    // An existing empty folder is refused as well: a disk may be missing there that should be mounted.
    fs::create_dir(place.bucket()).unwrap();
    refused(&serve(&place)).says(&["no volume at file://", "--create"]);
    assert_eq!(fs::read_dir(place.bucket()).unwrap().count(), 0);
    // A volume made with --create is served without it afterwards.
    place.serve().stop_cleanly();
    Gateway::start_as_it_is(&place.flags("data")).stop_cleanly();
}

#[test]
fn a_mistyped_folder_names_the_volume_beside_it() {
    let place = Place::new();
    let store = |name: &str| format!("--store=file://{}", place.path(name).display());
    let prod = store("prod");
    let made = run(&["format", &prod]);
    assert!(made.status.success(), "{}", made.stderr);
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let refusal = refused(&["serve", &store("prd"), &data_dir, "--listen=127.0.0.1:0"]);
    let near = format!("There is one at {}", prod.trim_start_matches("--store="));
    refusal.says(&["no volume at file://", "/prd", &near]);
    assert!(!place.path("prd").exists());
}

#[test]
fn the_default_folder_goes_on_being_made_by_itself() {
    let place = Place::new();
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let gateway = Gateway::start_as_it_is(&[data_dir, "--listen=127.0.0.1:0".to_owned()]);
    gateway.client().put("file", b"text");
    gateway.stop_cleanly();
    assert!(place.data_dir().join("bucket/forebay.volume").exists());
}

#[test]
fn keys_of_a_volume_without_any_are_no_error() {
    let place = Place::new();
    place.serve().stop_cleanly();
    let mut arguments = ["keys", "list"].map(str::to_owned).to_vec();
    arguments.extend(place.flags("data"));
    let listed = run(&arguments);
    assert_eq!(listed.status.code(), Some(0), "{}", listed.stderr);
    assert!(
        listed.stdout.contains("is not sealed: it has no keys"),
        "{}",
        listed.stdout
    );
    arguments.push("--json".to_owned());
    let listed: serde_json::Value = serde_json::from_str(&run(&arguments).stdout).unwrap();
    assert_eq!(listed["sealed"], false);
    assert_eq!(listed["slots"].as_array().unwrap().len(), 0);
}

#[test]
fn a_first_start_says_nothing_that_only_a_librarys_developers_know() {
    let place = Place::new();
    let gateway = place.serve();
    let said = gateway.messages();
    assert!(
        !said.contains("foyer") && !said.contains("shards"),
        "{said}"
    );
    gateway.stop_cleanly();
}
