//! Whole runs on a small project, whose suites search for words in its only source.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use forebay_mutants::{MutantsError, Options, Project, State, TABLE, run};

const SOURCE: &str = "fn flush() {\n    sync();\n    note();\n}\n";
const LOOKS_FOR_SYNC: &str = "grep -q sync crates/a/src/lib.rs";
const LOOKS_FOR_NOTE: &str = "grep -q note crates/a/src/lib.rs && touch left-behind";
const COMPILES: &str = "! grep -o 'error: could not compile' crates/a/src/lib.rs";

struct Small {
    folder: tempfile::TempDir,
    project: Project,
    said: RefCell<String>,
}

fn git(folder: &Path, arguments: &[&str]) {
    let author = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
    let mut command = Command::new("git");
    let status = command
        .current_dir(folder)
        .args(author)
        .args(arguments)
        .status();
    assert!(status.unwrap().success());
}

fn small(mutants: &[(&str, &str, &str)]) -> Small {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    for path in ["crates/a/src", "tests/mutants", "docs"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join("crates/a/src/lib.rs"), SOURCE).unwrap();
    let marks =
        format!("<!-- the output of {TABLE}: begin -->\n<!-- the output of {TABLE}: end -->\n");
    fs::write(root.join("docs/mutants.md"), marks).unwrap();
    for (name, suite, edit) in mutants {
        let text = format!("Defect {name}.\ncaught by: {suite}\n\n{edit}\n");
        fs::write(root.join(format!("tests/mutants/{name}.mutant")), text).unwrap();
    }
    git(&root, &["init", "--quiet"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "--message=a"]);
    Small {
        project: Project::around(&root).unwrap(),
        said: RefCell::new(String::new()),
        folder,
    }
}

impl Small {
    fn run(&self, every: bool, limit: u64) -> Result<bool, MutantsError> {
        let options = Options {
            every,
            together: false,
            limit: Duration::from_secs(limit),
            cache: self.folder.path().join("cache"),
        };
        let say = |text: &str| *self.said.borrow_mut() += &format!("{text}\n");
        run(
            &self.project,
            &self.project.mutants().unwrap(),
            &options,
            &say,
        )
    }

    fn states(&self) -> Vec<String> {
        let results = self.project.results().unwrap();
        let mutants = self.project.mutants().unwrap();
        let state = |mutant| match results.state(mutant) {
            State::Caught(Some(date)) if date.len() == 10 => "caught".to_owned(),
            other => other.to_string(),
        };
        mutants.iter().map(state).collect()
    }

    #[track_caller]
    fn has_said(&self, text: &str) {
        let said = self.said.borrow();
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn mutants_that_are_caught_pass() {
    let small = small(&[
        ("no-note", LOOKS_FOR_NOTE, "- note();"),
        ("no-sync", LOOKS_FOR_SYNC, "- sync();"),
    ]);
    assert!(small.run(false, 20).unwrap());
    assert_eq!(small.states(), ["caught", "caught"]);
    small.has_said("ok      no-sync (Defect no-sync), in ");
    small.has_said("2 passed, 0 failed");
    let root = small.project.root();
    let docs = fs::read_to_string(root.join("docs/mutants.md")).unwrap();
    assert!(docs.contains("2 defects: 2 caught."), "{docs}");
    // The defect was in the copy, which has its original source again, and nothing that suites have left.
    let tree = small.folder.path().join("cache/tree");
    for folder in [root, &tree] {
        let source = fs::read_to_string(folder.join("crates/a/src/lib.rs")).unwrap();
        assert_eq!(source, SOURCE);
        assert!(!folder.join("left-behind").exists());
    }
}

#[test]
fn holes_in_the_tests_fail_the_run_and_stop_nothing() {
    let small = small(&[
        ("a-unseen", LOOKS_FOR_NOTE, "- sync();"),
        (
            "b-broken",
            COMPILES,
            "+ // error: could not compile\n  sync();",
        ),
        ("c-stale", LOOKS_FOR_NOTE, "- sync(now);"),
        ("d-seen", LOOKS_FOR_SYNC, "- sync();"),
    ]);
    assert!(!small.run(false, 20).unwrap());
    assert_eq!(
        small.states(),
        [
            "**survived**",
            "**does not compile**",
            "*not tried yet*",
            "caught"
        ]
    );
    small.has_said(&format!(
        "a-unseen SURVIVED: Defect a-unseen\n        not noticed by {LOOKS_FOR_NOTE}"
    ));
    small.has_said("FAILED  b-broken does not compile\n        ");
    small.has_said("FAILED  c-stale does not fit: edit 1: ");
    small.has_said("1 passed, 3 failed");
}

#[test]
fn with_every_suite_one_that_notices_is_enough() {
    let small = small(&[
        ("a-unseen", LOOKS_FOR_NOTE, "- sync();"),
        ("b-seen", LOOKS_FOR_SYNC, "- sync();"),
    ]);
    assert!(small.run(true, 20).unwrap());
    // The table has only the suites that a mutant names.
    assert_eq!(small.states(), ["**survived**", "caught"]);
    small.has_said("ok      a-unseen (Defect a-unseen), in ");
    small.has_said(&format!(" s\n          caught by {LOOKS_FOR_SYNC}"));
}

#[test]
fn a_suite_that_hangs_has_noticed() {
    let hangs = format!("{LOOKS_FOR_SYNC} || sleep 60");
    let small = small(&[("no-sync", &hangs, "- sync();")]);
    assert!(small.run(false, 1).unwrap());
    assert_eq!(small.states(), ["caught"]);
    small.has_said("(it did not end)");
}

#[test]
fn a_suite_that_fails_without_a_defect_proves_nothing() {
    let suite = "echo seen; false";
    let small = small(&[("no-sync", suite, "- sync();")]);
    let error = small.run(false, 20).unwrap_err().to_string();
    assert_eq!(error, format!("fails without any defect: {suite}"));
    small.has_said("seen\n");
    assert_eq!(small.states(), ["*not tried yet*"]);
}
