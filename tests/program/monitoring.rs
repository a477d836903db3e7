//! What `deploy/` has for Prometheus and Grafana fits the metrics of the program.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forebay_metrics::{Family, Kind, table};
use serde_json::Value;

use crate::admin_http::{address, text};
use crate::support::Place;
use crate::support::nfs::Stable;

const RULES: &str = "prometheus/forebay.rules.yml";
const TESTS_OF_RULES: &str = "prometheus/forebay.rules.test.yml";
const DASHBOARD: &str = "grafana/forebay.json";

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap()
}

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    words
        .filter(|word| word.starts_with("forebay_") && *word != "forebay_")
        .collect()
}

/// The names of the series of a family.
fn series(family: &Family) -> Vec<String> {
    let name = family.full_name();
    match family.kind {
        Kind::Counter | Kind::Gauge => vec![name],
        Kind::Histogram => ["_bucket", "_sum", "_count"]
            .map(|suffix| format!("{name}{suffix}"))
            .into(),
    }
}

#[test]
fn rules_and_dashboard_name_metrics_that_there_are() {
    let families = table::FAMILIES.iter();
    let known: BTreeSet<String> = families.clone().flat_map(|family| series(family)).collect();
    // Texts name a histogram without a suffix.
    let families: BTreeSet<String> = families.map(|family| family.full_name()).collect();
    for file in [RULES, TESTS_OF_RULES, DASHBOARD] {
        let text = read(file);
        let names = named(&text);
        assert!(names.len() > 10, "{file}: {names:?}");
        for name in names {
            let is_known = known.contains(name) || families.contains(name);
            assert!(is_known, "{file}: there is no metric {name}");
        }
    }
    let mut found = Vec::new();
    expressions(&serde_json::from_str(&read(DASHBOARD)).unwrap(), &mut found);
    for name in found.iter().flat_map(|expression| named(expression)) {
        assert!(known.contains(name), "there is no series {name}");
    }
}

/// Selectors such as `forebay_read_bytes_total{tier="memory"}`: the name, and the names of the labels.
fn selectors(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('{') {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = &text[..at];
        let name = &before[before.trim_end_matches(is_part).len()..];
        let Some(end) = text[at..]
            .find('}')
            .filter(|_| name.starts_with("forebay_"))
        else {
            continue;
        };
        let matchers = text[at + 1..at + end].split(',');
        let labels = matchers.filter_map(|matcher| {
            let label = matcher.split(['=', '!']).next()?.trim();
            (!label.is_empty()).then_some(label)
        });
        found.push((name, labels.collect()));
    }
    found
}

#[test]
fn labels_in_rules_and_dashboard_are_those_of_the_table() {
    let mut seen = 0;
    for file in [RULES, TESTS_OF_RULES, DASHBOARD] {
        let text = read(file);
        for (name, labels) in selectors(&text) {
            let mut families = table::FAMILIES.iter();
            let family = families.find(|family| series(family).iter().any(|own| own == name));
            let family = family.unwrap_or_else(|| panic!("{file}: {name}"));
            for label in labels {
                let is_own = family.labels.contains(&label)
                    || matches!(label, "instance" | "job")
                    || (label == "le" && family.kind == Kind::Histogram);
                assert!(is_own, "{file}: {name} has no label {label}");
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

/// Matchers of a selector such as `{outcome=~"failed|refused"}`: the label, and the values that it names.
fn matchers(selector: &str) -> Vec<(&str, Vec<&str>)> {
    let matchers = selector.split(',').filter_map(|matcher| {
        let (label, value) = matcher.split_once(['=', '!'])?;
        let value = value
            .trim_start_matches(['=', '~'])
            .trim()
            .trim_matches('"');
        Some((label.trim(), value.split('|').collect()))
    });
    matchers.collect()
}

/// The words between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The values that a label of a family may have: those in the lists of the code, or else those that the table names.
fn known_values(family: &Family, label: &str) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let errors = family == &table::NFS_ERRORS;
    match label {
        "cause" if family.name.starts_with("store_") => {
            let causes = forebay_object::Cause::ALL.iter();
            causes.map(|(_, name)| (*name).to_owned()).collect()
        }
        "for" if family == &table::NFS_CALL_WAIT => {
            let kinds = forebay_waits::For::ALL.iter();
            kinds.map(|(_, name)| (*name).to_owned()).collect()
        }
        "procedure" => owned(&forebay_nfs::nfs3::PROCEDURES),
        "status" if errors => {
            let known = forebay_nfs::nfs3::status_names().chain(["unknown"]);
            known.map(str::to_owned).collect()
        }
        "name" if family == &table::PROBLEM => {
            let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");
            let page = fs::read_to_string(page).unwrap();
            let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
            rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
                .collect()
        }
        _ => {
            // A family may refer to the values of another one.
            let words = quoted(family.meaning);
            let others = table::FAMILIES
                .iter()
                .filter(|other| words.contains(&other.name) && other.labels.contains(&label));
            let others = others.flat_map(|other| quoted(other.meaning));
            owned(&words.iter().copied().chain(others).collect::<Vec<_>>())
        }
    }
}

#[test]
fn values_of_labels_in_rules_and_dashboard_are_those_that_there_are() {
    // Their values are not of this program, or have no list.
    const OPEN: [&str; 7] = ["instance", "job", "le", "client", "version", "currency", ""];
    let mut seen = BTreeSet::new();
    for file in [RULES, TESTS_OF_RULES, DASHBOARD] {
        let text = read(file).replace('\\', "");
        for (at, _) in text.match_indices('{') {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let before = &text[..at];
            let name = &before[before.trim_end_matches(is_part).len()..];
            let mut families = table::FAMILIES.iter();
            let family = families.find(|family| series(family).iter().any(|own| own == name));
            let (Some(family), Some(end)) = (family, text[at..].find('}')) else {
                continue;
            };
            for (label, values) in matchers(&text[at + 1..at + end]) {
                if OPEN.contains(&label) {
                    continue;
                }
                let known = known_values(family, label);
                for value in values {
                    let is_known = known.iter().any(|one| one == value);
                    assert!(is_known, "{file}: {name} has no {label} {value}: {known:?}");
                    seen.insert((family.name, label.to_owned(), value.to_owned()));
                }
            }
        }
    }
    assert!(seen.len() >= 15, "{seen:?}");
}

#[test]
fn the_table_names_the_causes_of_requests() {
    for (_, name) in forebay_object::Cause::ALL {
        let words = quoted(table::STORE_REQUEST_DURATION.meaning);
        assert!(words.contains(&name), "{name}");
    }
}

#[test]
fn the_dashboard_shows_what_an_operator_asks_about() {
    let text = read(DASHBOARD);
    for family in [
        &table::NFS_CALL_WAIT,
        &table::NFS_LOCK_ANSWERS,
        &table::STORE_LINK_HELD,
        &table::ADMIN_REQUESTS,
        &table::SNAPSHOTS,
        &table::SNAPSHOTS_UNPUBLISHED,
        &table::SNAPSHOT_HELD,
        &table::NEXT_SNAPSHOT,
        &table::TRASH_OBJECTS,
        &table::TRASH,
        &table::TRASH_DELETED,
        &table::ARCHIVED_LOG,
    ] {
        let own = series(family);
        assert!(
            own.iter().any(|one| named(&text).contains(&one[..])),
            "{}",
            family.name
        );
    }
}

/// The expressions of the dashboard's panels and annotations.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "expr" => found.push(text.clone()),
                    member => expressions(member, found),
                }
            }
        }
        Value::Array(members) => members.iter().for_each(|one| expressions(one, found)),
        _ => {}
    }
}

/// Runs `promtool`, which must succeed and have nothing to say about `input`.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, which Debian has in the package prometheus");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "promtool {arguments:?}: {said}");
}

#[test]
#[ignore = "needs promtool; .ci/run runs it"]
fn promtool_accepts_rules_and_expressions() {
    promtool(&["check", "rules", deploy(RULES).to_str().unwrap()], "");
    let tests = deploy(TESTS_OF_RULES);
    promtool(&["test", "rules", tests.to_str().unwrap()], "");

    // It reads rules, and no dashboards: each expression becomes one.
    let mut found = Vec::new();
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 50, "{}", found.len());
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (number, expression) in found.iter().enumerate() {
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$__interval", "5m")
            .replace("$__range", "1h");
        let quoted = Value::String(expression);
        rules += &format!("  - {{record: \"panel:{number}\", expr: {quoted}}}\n");
    }
    let place = Place::new();
    let file = place.path("dashboard.yml");
    fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()], "");
}

#[test]
#[ignore = "needs promtool; .ci/run runs it"]
fn promtool_accepts_a_scrape() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--admin-listen=127.0.0.1:0"]);
    // All kinds of instruments have values, those with labels included.
    let mut client = gateway.client();
    client.put("file", &[7; 3_000_000]);
    client.get("file").unwrap();
    client.get("missing").unwrap_err();
    let root = client.mount();
    let file = client.lookup(&root, b"file").unwrap();
    client.write(&file, 5, b"stable", Stable::FileSync).unwrap();
    gateway.flush();
    let scrape = text(&address(&gateway), "/metrics");
    for needed in ["_bucket{", "_sum", "client=\"127.0.0.1\"", "status=\"NFS3"] {
        assert!(scrape.contains(needed), "{needed}\n{scrape}");
    }
    promtool(&["check", "metrics"], &scrape);
    gateway.stop_cleanly();
}
