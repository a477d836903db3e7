//! The deliberate defects of `tests/mutants/` still fit the code. That the suites catch them takes long and
//! is `tests/mutants.sh`'s to show.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants");
    let mut patches: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "patch")
        })
        .collect();
    patches.sort();
    patches
}

#[test]
fn each_says_what_it_breaks_and_which_suite_notices() {
    let patches = patches();
    assert!(patches.len() >= 25, "{} are few", patches.len());
    for path in patches {
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        let defect = lines.next().and_then(|line| line.strip_prefix("# "));
        assert!(defect.is_some_and(|defect| !defect.is_empty()), "{path:?}");
        let suite = lines
            .next()
            .and_then(|line| line.strip_prefix("# caught by: "));
        assert!(suite.is_some_and(|suite| !suite.is_empty()), "{path:?}");
    }
}

#[test]
fn each_applies_to_the_code_as_it_is() {
    let mut stale = Vec::new();
    for path in patches() {
        let check = Command::new("git")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["apply", "--check"])
            .arg(&path)
            .output()
            .unwrap();
        if !check.status.success() {
            stale.push(format!(
                "{}: {}",
                path.display(),
                String::from_utf8_lossy(&check.stderr)
            ));
        }
    }
    assert!(stale.is_empty(), "make these anew:\n{}", stale.join("\n"));
}
