//! A run that compiles mutants together, on a small project of its own.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use forebay_mutants::{Options, Project, TABLE, run};

const SOURCE: &str = "\
/// Adds.
pub fn sum(a: u32, b: u32) -> u32 {
    let all = a + b;
    all.min(LIMIT)
}

const LIMIT: u32 = 100;

/// Counts.
pub fn numbers() -> impl Iterator<Item = u32> {
    (0..3).map(|number| number + 1)
}

/// Doubles.
pub const fn twice(a: u32) -> u32 {
    a * 2
}
";

const TESTS: &str = "
#[cfg(test)]
mod tests {
    #[test]
    fn sums() {
        assert_eq!(super::sum(1, 2), 3);
    }

    #[test]
    fn others() {
        assert_eq!(super::numbers().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(super::twice(2), 4);
    }
}
";

const SUMS: &str = "cargo test -p small --lib sums";
const OTHERS: &str = "cargo test -p small --lib others";

const MUTANTS: [(&str, &str, &str); 6] = [
    ("a-less", SUMS, "- let all = a + b;\n+ let all = a + b - 1;"),
    ("b-unseen", SUMS, "- all.min(LIMIT)\n+ all.min(9)"),
    (
        "c-other-type",
        OTHERS,
        "- (0..3).map(|number| number + 1)\n+ (0..3).map(|number| number + 2)",
    ),
    ("d-constant", OTHERS, "- a * 2\n+ a * 3"),
    ("e-broken", SUMS, "- all.min(LIMIT)\n+ \"all\""),
    (
        "f-shell",
        "grep -q 'a [*] 2' crates/small/src/lib.rs",
        "- a * 2\n+ a + a",
    ),
];

fn git(folder: &Path, arguments: &[&str]) {
    let author = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
    let mut command = Command::new("git");
    let command = command.current_dir(folder).args(author).args(arguments);
    assert!(command.status().unwrap().success());
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn small(root: &Path) -> Project {
    write(
        root,
        "Cargo.toml",
        "[workspace]\nmembers = [\"crates/small\"]\nresolver = \"3\"\n",
    );
    let package = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    write(root, "crates/small/Cargo.toml", package);
    let lock = "version = 4\n\n[[package]]\nname = \"small\"\nversion = \"0.1.0\"\n";
    write(root, "Cargo.lock", lock);
    write(root, "crates/small/src/lib.rs", &format!("{SOURCE}{TESTS}"));
    let marks =
        format!("<!-- the output of {TABLE}: begin -->\n<!-- the output of {TABLE}: end -->\n");
    write(root, "docs/mutants.md", &marks);
    for (name, suite, edit) in MUTANTS {
        let text = format!("Defect {name}.\ncaught by: {suite}\n\n{edit}\n");
        write(root, &format!("tests/mutants/{name}.mutant"), &text);
    }
    git(root, &["init", "--quiet"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "--message=a"]);
    Project::around(root).unwrap()
}

#[test]
fn mutants_that_compile_together_share_a_build_and_the_rest_is_tried_alone() {
    let folder = tempfile::tempdir().unwrap();
    let project = small(&folder.path().join("root"));
    let options = Options {
        every: false,
        together: true,
        limit: Duration::from_secs(100),
        cache: folder.path().join("cache"),
    };
    let said = RefCell::new(String::new());
    let say = |text: &str| *said.borrow_mut() += &format!("{text}\n");
    let mutants = project.mutants().unwrap();
    assert!(!run(&project, &mutants, &options, &say).unwrap());
    let said = said.borrow();
    for text in [
        "  alone: c-other-type: its switched function has `match` arms have incompatible types\n",
        "  alone: d-constant: crates/small/src/lib.rs:16 is in a constant function\n",
        "  alone: e-broken: its switched function has mismatched types\n",
        "  alone: f-shell: ",
        "ok      a-less (Defect a-less), in ",
        "FAILED  b-unseen SURVIVED: Defect b-unseen\n",
        "FAILED  e-broken does not compile\n",
        "4 passed, 2 failed\n",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    let results = project.results().unwrap();
    let states = mutants
        .iter()
        .map(|mutant| results.state(mutant).to_string());
    let failed: Vec<_> = states
        .filter(|state| !state.starts_with("caught"))
        .collect();
    assert_eq!(failed, ["**survived**", "**does not compile**"]);
    assert!(project.untried(mutants).unwrap().is_empty());
}
