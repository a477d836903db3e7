//! The configuration file.
//!
//! For every file: it is refused with a message, or its values are the same after they are written (`forebay config`)
//! and read again.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use forebay::config::{Config, Inputs};
use tempfile::TempDir;

use crate::Target;

/// The target.
pub const TARGET: Target = Target {
    name: "config_file",
    run,
    seeds,
    max_bytes: 1024,
};

thread_local! {
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Inputs of the program without flags; `file` is the configuration file that the environment names, if any.
pub(super) fn inputs(file: Option<&Path>) -> Inputs {
    Inputs {
        flags: Vec::new(),
        file: file.map(Path::to_owned),
        variables: vec![("HOME".into(), "/home/user".into())],
        system_file: "/nonexistent/forebay.toml".into(),
        is_root: false,
    }
}

/// Reads a configuration from a file with this content. Returns `None` if it is refused.
pub(super) fn load(content: &[u8]) -> Option<Config> {
    FOLDER.with_borrow_mut(|folder| {
        let folder = match folder {
            Some(folder) => folder,
            none => none.insert(tempfile::tempdir().expect("a temporary folder")),
        };
        let path = folder.path().join("forebay.toml");
        fs::write(&path, content).expect("a file in it");
        match Config::load(&inputs(Some(&path))) {
            Ok(config) => Some(config),
            Err(errors) => {
                assert!(!errors.to_string().trim().is_empty());
                None
            }
        }
    })
}

/// Checks that a configuration has the same values after it is written and read again.
pub(super) fn check(config: &Config) {
    let text = config.to_toml();
    let again = load(text.as_bytes())
        .unwrap_or_else(|| panic!("the parser refuses the written configuration:\n{text}"));
    for (one, other) in config.shown().iter().zip(again.shown()) {
        assert_eq!(one.value, other.value, "{}", one.setting.key);
    }
    assert!(config.to_json().is_object());
}

fn run(content: &[u8]) {
    if let Some(config) = load(content) {
        check(&config);
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let shown = Config::load(&inputs(None)).map(|config| config.to_toml());
    vec![
        ("default", shown.unwrap_or_default().into_bytes()),
        ("store", b"store = \"s3://bucket/a/b\"\ndata_dir = '/srv/forebay'\n".to_vec()),
        ("clients", b"clients = [\"10.0.0.0/8\", \"fd00::/8\"] # ours\nsquash = \"root\"\n".to_vec()),
        ("values", b"log_limit = \"1.5GiB\"\nupload_parallel = 4\nlog = \"none\"\ncheckpoint_interval = \"1m 2s\"\n".to_vec()),
        ("wrong", b"[section]\nlog_limit = 1\n\"store\" = true\nlisten = \"::1\"\nlog_limt = 3\n".to_vec()),
        ("text", b"\xef\xbb\xbfdata_dir = \"\"\"\\u00e9\\\n  x\"\"\"\nvolume_limit = 0x10\n".to_vec()),
    ]
}
