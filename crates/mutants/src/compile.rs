//! One build of all test programs, and the errors of the compiler.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::project::MutantsError;

/// Number of last lines shown of a build that ends without an error of the compiler.
const LAST_LINES: usize = 20;

/// Result of a build.
#[derive(Debug, Default)]
pub(crate) struct Build {
    /// The executable files.
    pub(crate) programs: Vec<Program>,
    /// The errors of the compiler; without any, all was built.
    pub(crate) errors: Vec<CompilerError>,
}

/// An executable file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Name of its package.
    pub(crate) package: String,
    /// The folder of the package.
    pub(crate) folder: PathBuf,
    /// Kind of the target: `lib`, `bin`, `test` and others.
    pub(crate) kind: String,
    /// Name of the target.
    pub(crate) name: String,
    /// It runs tests.
    pub(crate) is_test: bool,
    /// The features of the package.
    pub(crate) features: Vec<String>,
    /// The file.
    pub(crate) path: PathBuf,
}

/// An error of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompilerError {
    /// The message in one line.
    pub(crate) message: String,
    /// The message as the compiler shows it.
    pub(crate) rendered: String,
    /// The lines that it is about, the main ones first. They are counted from zero.
    pub(crate) places: Vec<(PathBuf, usize)>,
}

/// Builds the tests of all packages in a folder, with these features.
pub(crate) fn build(
    folder: &Path,
    target: &Path,
    features: &[String],
) -> Result<Build, MutantsError> {
    // `setpriv` makes the build end together with this process.
    let mut command = Command::new("setpriv");
    command
        .args([
            "--pdeathsig",
            "TERM",
            "cargo",
            "build",
            "--locked",
            "--workspace",
            "--tests",
        ])
        .args(["--keep-going", "--message-format=json"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_TERM_COLOR", "never")
        .stdin(Stdio::null());
    if !features.is_empty() {
        command.arg("--features").arg(features.join(","));
    }
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("FOREBAY_") {
            command.env_remove(name);
        }
    }
    let failed = |error| MutantsError::Program {
        command: "cargo build --workspace --tests".to_owned(),
        error,
    };
    let output = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let build = read(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() && build.errors.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = said.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        return Err(failed(last.join("\n")));
    }
    Ok(build)
}

/// Reads the messages of a build, one in a line.
fn read(said: &str) -> Build {
    let mut build = Build::default();
    for line in said.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        match message["reason"].as_str() {
            Some("compiler-artifact") => build.programs.extend(program(&message)),
            Some("compiler-message") => build.errors.extend(error(&message["message"])),
            _ => {}
        }
    }
    build
}

fn program(message: &Value) -> Option<Program> {
    let target = &message["target"];
    let strings = |value: &Value| -> Option<Vec<String>> {
        let values = value.as_array()?.iter();
        Some(
            values
                .filter_map(|value| Some(value.as_str()?.to_owned()))
                .collect(),
        )
    };
    // `path+file:///folder#name@1.0.0`, or `path+file:///name#1.0.0`.
    let (source, version) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = match version.split_once('@') {
        Some((name, _)) => name,
        None => source.rsplit('/').next()?,
    };
    Some(Program {
        package: package.to_owned(),
        folder: Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .to_owned(),
        kind: strings(&target["kind"])?.into_iter().next()?,
        name: target["name"].as_str()?.to_owned(),
        is_test: message["profile"]["test"].as_bool()?,
        features: strings(&message["features"])?,
        path: message["executable"].as_str()?.into(),
    })
}

fn error(message: &Value) -> Option<CompilerError> {
    if message["level"] != "error" {
        return None;
    }
    let mut spans = Vec::new();
    collect(message, &mut spans);
    // The sum of all errors has no place.
    if spans.is_empty() && message["code"].is_null() {
        return None;
    }
    spans.sort_by_key(|(is_main, ..)| !is_main);
    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
    Some(CompilerError {
        message: text("message")
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
        rendered: text("rendered"),
        places: spans
            .into_iter()
            .map(|(_, path, line)| (path, line))
            .collect(),
    })
}

/// Collects the places of a message, of its notes, and of the macros that they are in.
fn collect(message: &Value, spans: &mut Vec<(bool, PathBuf, usize)>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        let is_main = span["is_primary"] == true;
        let mut span = span;
        while let (Some(path), Some(line)) =
            (span["file_name"].as_str(), span["line_start"].as_u64())
        {
            let line = usize::try_from(line)
                .unwrap_or(usize::MAX)
                .saturating_sub(1);
            spans.push((is_main, path.into(), line));
            span = &span["expansion"]["span"];
        }
    }
    for child in message["children"].as_array().into_iter().flatten() {
        let mut of_child = Vec::new();
        collect(child, &mut of_child);
        spans.extend(
            of_child
                .into_iter()
                .map(|(_, path, line)| (false, path, line)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_with_their_packages() {
        let said = concat!(
            "   not a message\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///a/crates/wal#forebay-wal@0.1.0","manifest_path":"/a/crates/wal/Cargo.toml","target":{"kind":["lib"],"name":"forebay_wal"},"profile":{"test":true},"features":["x"],"executable":"/t/wal-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///a/b#0.1.0","manifest_path":"/a/b/Cargo.toml","target":{"kind":["bin"],"name":"c"},"profile":{"test":false},"features":[],"executable":"/t/c"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///a/b#0.1.0","manifest_path":"/a/b/Cargo.toml","target":{"kind":["lib"],"name":"b"},"profile":{"test":false},"features":[],"executable":null}"#,
            "\n",
        );
        let build = read(said);
        let wal = Program {
            package: "forebay-wal".to_owned(),
            folder: "/a/crates/wal".into(),
            kind: "lib".to_owned(),
            name: "forebay_wal".to_owned(),
            is_test: true,
            features: vec!["x".to_owned()],
            path: "/t/wal-1".into(),
        };
        assert_eq!(build.programs[0], wal);
        assert_eq!(build.programs[1].package, "b");
        assert!(!build.programs[1].is_test);
        assert_eq!((build.programs.len(), build.errors.len()), (2, 0));
    }

    #[test]
    fn errors_are_read_with_their_places() {
        let said = concat!(
            r#"{"reason":"compiler-message","message":{"level":"warning","message":"unused","spans":[]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"error","code":null,"message":"aborting due to 1 previous error","spans":[]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"error","code":{"code":"E0308"},"message":"mismatched types\nmore","rendered":"error[E0308]: ...","children":[{"spans":[{"file_name":"c.rs","line_start":9,"is_primary":true}]}],"spans":[{"file_name":"b.rs","line_start":3,"is_primary":false},{"file_name":"a.rs","line_start":7,"is_primary":true,"expansion":{"span":{"file_name":"d.rs","line_start":1}}}]}}"#,
            "\n",
        );
        let errors = read(said).errors;
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].message, "mismatched types");
        let places: Vec<_> = errors[0]
            .places
            .iter()
            .map(|(path, line)| (path.to_str().unwrap(), *line))
            .collect();
        assert_eq!(places, [("a.rs", 6), ("d.rs", 0), ("b.rs", 2), ("c.rs", 8)]);
    }

    #[test]
    fn a_build_that_ends_without_an_error_of_the_compiler_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let error = build(folder.path(), &folder.path().join("target"), &[]).unwrap_err();
        assert!(
            error.to_string().contains("could not find `Cargo.toml`"),
            "{error}"
        );
    }
}
