//! `forebay bench`: prints a table for any folder, and leaves nothing in it.

use serde_json::Value;

use crate::support::{refused, run};

#[test]
fn a_folder_is_measured_as_a_table_and_as_json_and_is_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let small = ["--size", "1MiB", "--files", "9", "--parallel", "2"];
    let table = run(&[&["bench", path], &small[..]].concat());
    assert!(table.status.success(), "{}", table.stderr);
    assert!(table.stdout.contains(path), "{}", table.stdout);
    assert!(
        table.stdout.contains("| rename, 2 threads"),
        "{}",
        table.stdout
    );
    assert!(
        table.stderr.contains("sequential write"),
        "{}",
        table.stderr
    );

    let json = run(&[&["bench", path, "--json"], &small[..]].concat());
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["files"], 9, "{report}");
    let rows = table.stdout.lines().filter(|line| line.starts_with('|'));
    assert_eq!(
        report["lines"].as_array().map(Vec::len),
        Some(rows.count() - 2),
        "{report}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    refused(&["bench", "/no/such/folder"]).says(&["/no/such/folder"]);
}
