//! Checks README and `docs/`: the table of settings is the program's own, links lead to existing files, and tests that
//! are named as proof exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TABLE_BEGINS: &str = "<!-- the output of `forebay config --markdown`: begin -->\n";
const TABLE_ENDS: &str = "<!-- the output of `forebay config --markdown`: end -->";

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and every text in `docs/`.
fn texts() -> Vec<(PathBuf, String)> {
    let mut texts = vec![project().join("README.md")];
    let mut folders = vec![project().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                None if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => texts.push(path),
                _ => {}
            }
        }
    }
    texts
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

/// The links of a text: the shown text and the target.
fn links(text: &str) -> Vec<(&str, &str)> {
    text.match_indices("](")
        .filter_map(|(middle, _)| {
            let shown = text[..middle].rsplit('[').next()?;
            let target = text[middle + 2..].split(')').next()?;
            Some((shown, target))
        })
        .collect()
}

/// Letters, digits and underscores: no path, and no sentence.
fn is_function_name(text: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    !text.is_empty() && text.bytes().all(plain)
}

#[test]
fn the_table_of_settings_is_what_the_program_prints() {
    let settings = fs::read_to_string(project().join("docs/settings.md")).unwrap();
    let (_, rest) = settings
        .split_once(TABLE_BEGINS)
        .expect("the table has its first marker");
    let (table, _) = rest
        .split_once(TABLE_ENDS)
        .expect("the table has its second marker");
    let printed = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["config", "--markdown"])
        .output()
        .unwrap();
    assert!(printed.status.success());
    assert_eq!(
        table.trim(),
        String::from_utf8(printed.stdout).unwrap().trim(),
        "put the output of `forebay config --markdown` between the markers in docs/settings.md"
    );
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    let metrics = fs::read_to_string(project().join("docs/metrics.md")).unwrap();
    let (_, table) = metrics
        .split_once("<!-- metrics -->\n")
        .expect("the table has its marker");
    assert_eq!(
        table.trim(),
        forebay_metrics::table::markdown().trim(),
        "put the output of `just metrics` behind the marker in docs/metrics.md"
    );
}

#[test]
fn links_lead_to_files_that_are_there() {
    let mut seen = 0;
    for (path, text) in texts() {
        for (_, target) in links(&text) {
            if target.starts_with("https://") || target.starts_with('#') {
                continue;
            }
            let file = target.split('#').next().unwrap_or(target);
            let there = path.parent().unwrap().join(file);
            assert!(there.exists(), "{}: {target} is not there", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// A link whose text is a function's name, `[`a_name`](a_file.rs)`, claims that the file has that function.
#[test]
fn tests_that_are_named_as_proof_exist() {
    let mut seen = 0;
    for (path, text) in texts() {
        for (shown, target) in links(&text) {
            let name = shown
                .strip_prefix('`')
                .and_then(|name| name.strip_suffix('`'));
            let Some(name) = name.filter(|name| is_function_name(name)) else {
                continue;
            };
            if !target.ends_with(".rs") {
                continue;
            }
            let source = fs::read_to_string(path.parent().unwrap().join(target)).unwrap();
            let has_it = source.contains(&format!("fn {name}("));
            assert!(has_it, "{}: {target} has no {name}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// A supervisor that restarted a gateway after a takeover, with the right to take the volume, would make two gateways
/// take it from each other in turns.
#[test]
fn supervisors_do_not_take_a_volume_back() {
    let unit = fs::read_to_string(project().join("deploy/forebay.service")).unwrap();
    let settings: Vec<_> = unit.lines().filter(|line| !line.starts_with('#')).collect();
    let stays_down = settings
        .iter()
        .find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    let taken_over = forebay::serve::TAKEN_OVER.to_string();
    assert!(stays_down.is_some_and(|codes| codes.split(' ').any(|code| code == taken_over)));
    let compose = fs::read_to_string(project().join("docker-compose.yml")).unwrap();
    for text in [settings.join("\n"), compose] {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        for line in lines {
            let line = line.to_ascii_lowercase();
            assert!(
                !line.contains("take-over") && !line.contains("takeover"),
                "{line}"
            );
        }
    }
}
