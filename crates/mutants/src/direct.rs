//! Suites as programs of one build, which start without cargo.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::compile::Program;
use crate::suite::Call;

/// Characters that a shell would not leave as they are.
const OF_SHELLS: &[char] = &[
    '\'', '"', '\\', '$', '`', '|', '&', ';', '<', '>', '*', '?', '(', ')', '#', '~', '=',
];

/// A command of cargo in a suite.
#[derive(Debug, Default)]
struct Cargo<'s> {
    /// It is `cargo run`, else `cargo test`.
    runs: bool,
    /// Seconds of a `timeout` before it.
    limit: Option<u64>,
    package: Option<&'s str>,
    features: Vec<&'s str>,
    /// Kinds and names of targets; a library has no name.
    targets: Vec<(&'s str, Option<&'s str>)>,
    arguments: Vec<&'s str>,
}

impl<'s> Cargo<'s> {
    /// Reads a suite; `None` if it is another command, or has options that would change the build.
    fn parse(suite: &'s str) -> Option<Cargo<'s>> {
        if suite.contains(OF_SHELLS) {
            return None;
        }
        let mut words = suite.split_whitespace().peekable();
        let mut cargo = Cargo::default();
        if words.next_if_eq(&"timeout").is_some() {
            cargo.limit = Some(words.next()?.parse().ok()?);
        }
        words.next_if_eq(&"cargo")?;
        cargo.runs = match words.next()? {
            "test" => false,
            "run" => true,
            _ => return None,
        };
        while let Some(word) = words.next() {
            match word {
                "-q" | "--quiet" => {}
                "-p" | "--package" => cargo.package = Some(words.next()?),
                "--features" => cargo.features.extend(words.next()?.split(',')),
                "--lib" => cargo.targets.push(("lib", None)),
                "--test" => cargo.targets.push(("test", Some(words.next()?))),
                "--bin" => cargo.targets.push(("bin", Some(words.next()?))),
                "--" => {
                    cargo.arguments.extend(words);
                    break;
                }
                _ if word.starts_with('-') || cargo.runs => return None,
                filter => cargo.arguments.push(filter),
            }
        }
        Some(cargo)
    }

    fn wants(&self, program: &Program, root: &Path) -> bool {
        let of_package = match self.package {
            Some(package) => program.package == package,
            None => program.folder == root,
        };
        let of_target = |(kind, name): &(&str, Option<&str>)| {
            program.kind == *kind && name.is_none_or(|name| program.name == name)
        };
        of_package
            && program.is_test != self.runs
            && (self.targets.is_empty() || self.targets.iter().any(of_target))
    }
}

/// The programs that a suite runs, one after the other. `None` if it is not made of programs of this build, which is one
/// of the folder `root`. Tests in documentation are left out.
pub(crate) fn calls(suite: &str, programs: &[Program], root: &Path) -> Option<Vec<Call>> {
    let cargo = Cargo::parse(suite)?;
    let wanted: Vec<_> = programs
        .iter()
        .filter(|program| cargo.wants(program, root))
        .collect();
    let has_all = |program: &&Program| {
        let mut features = cargo.features.iter();
        features.all(|feature| program.features.iter().any(|has| has == feature))
    };
    let named = cargo.targets.len();
    if wanted.is_empty()
        || wanted.len() < named
        || cargo.runs && wanted.len() > 1
        || !wanted.iter().all(has_all)
    {
        return None;
    }
    let call = |program: &&Program| {
        let arguments = cargo.arguments.iter().map(OsString::from);
        Call {
            command: [program.path.clone().into()]
                .into_iter()
                .chain(arguments)
                .collect(),
            folder: if cargo.runs { root } else { &program.folder }.to_owned(),
            variables: vec![
                (
                    "CARGO_MANIFEST_DIR".to_owned(),
                    program.folder.clone().into(),
                ),
                ("CARGO_PKG_NAME".to_owned(), program.package.clone().into()),
            ],
            limit: cargo.limit.map(Duration::from_secs),
        }
    };
    Some(wanted.iter().map(call).collect())
}

/// The features that suites ask for, as the build of all packages names them.
pub(crate) fn features(suites: &[&str]) -> Vec<String> {
    let mut features = BTreeSet::new();
    for cargo in suites.iter().filter_map(|suite| Cargo::parse(suite)) {
        if let Some(package) = cargo.package {
            features.extend(
                cargo
                    .features
                    .iter()
                    .map(|feature| format!("{package}/{feature}")),
            );
        }
    }
    features.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, kind: &str, name: &str, is_test: bool) -> Program {
        let folder = if package == "root" {
            "/r".to_owned()
        } else {
            format!("/r/crates/{package}")
        };
        Program {
            package: package.to_owned(),
            folder: folder.into(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            is_test,
            features: vec!["faults".to_owned()],
            path: format!("/t/{package}-{kind}-{name}").into(),
        }
    }

    fn shown(suite: &str) -> Option<Vec<String>> {
        let programs = [
            program("a", "lib", "a", true),
            program("a", "test", "one", true),
            program("a", "bin", "walk", false),
            program("a", "bin", "walk", true),
            program("root", "test", "one", true),
        ];
        let calls = calls(suite, &programs, Path::new("/r"))?;
        let shown = |call: &Call| {
            let words: Vec<_> = call
                .command
                .iter()
                .map(|word| word.to_string_lossy())
                .collect();
            format!("{}: {}", call.folder.display(), words.join(" "))
        };
        Some(calls.iter().map(shown).collect())
    }

    #[track_caller]
    fn runs(suite: &str, expected: &[&str]) {
        assert_eq!(
            shown(suite).as_deref(),
            Some(
                expected
                    .iter()
                    .map(|&text| text.to_owned())
                    .collect::<Vec<_>>()
            )
            .as_deref()
        );
    }

    #[test]
    fn tests_run_in_the_folder_of_their_package() {
        runs("cargo test -p a --lib", &["/r/crates/a: /t/a-lib-a"]);
        runs(
            "cargo test -p a --test one two::",
            &["/r/crates/a: /t/a-test-one two::"],
        );
        runs(
            "timeout 9 cargo test --test one -- --exact x",
            &["/r: /t/root-test-one --exact x"],
        );
        runs(
            "cargo test -p a --features faults --test one",
            &["/r/crates/a: /t/a-test-one"],
        );
    }

    #[test]
    fn a_suite_without_a_target_runs_all_tests_of_its_package() {
        let all = [
            "/r/crates/a: /t/a-lib-a",
            "/r/crates/a: /t/a-test-one",
            "/r/crates/a: /t/a-bin-walk",
        ];
        runs("cargo test -p a", &all);
    }

    #[test]
    fn other_programs_run_in_the_folder_of_the_checkout() {
        runs(
            "cargo run -q -p a --bin walk -- --seed 1",
            &["/r: /t/a-bin-walk --seed 1"],
        );
    }

    #[test]
    fn other_commands_are_left_to_the_shell() {
        for suite in [
            "tests/crash.sh",
            "cargo test -p a --release",
            "cargo test -p a --features other --lib",
            "cargo test -p a --test two",
            "cargo test -p b",
            "cargo run -p a --bin walk fast",
            "cargo clippy",
            "cargo test -p a --lib | cat",
            "A=b cargo test -p a --lib",
            "timeout",
        ] {
            assert_eq!(shown(suite), None, "{suite}");
        }
    }

    #[test]
    fn the_build_has_the_features_of_all_suites() {
        let suites = [
            "cargo test -p a --features x,y --lib",
            "cargo test -p b",
            "cargo test -p a --features x",
        ];
        assert_eq!(features(&suites), ["a/x", "a/y"]);
    }
}
