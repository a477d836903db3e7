//! The configuration as a whole: the sources of values, and the errors.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

mod exports;
mod kms;
mod output;

/// The sources of a configuration, all empty at first but for a home.
struct Places {
    dir: TempDir,
    inputs: Inputs,
}

impl Places {
    fn new() -> Places {
        let dir = tempfile::tempdir().unwrap();
        let inputs = Inputs {
            flags: Vec::new(),
            file: None,
            variables: vec![
                ("HOME".into(), "/home/me".into()),
                ("PATH".into(), "/bin".into()),
            ],
            system_file: dir.path().join("system.toml"),
            is_root: false,
        };
        Places { dir, inputs }
    }

    fn flag(mut self, key: &'static str, text: &str) -> Places {
        self.inputs.flags.push((key, text.to_owned()));
        self
    }

    fn variable(mut self, name: &str, text: &str) -> Places {
        self.inputs.variables.push((name.into(), text.into()));
        self
    }

    /// The file that is read if none is named.
    fn system_file(self, text: &str) -> Places {
        std::fs::write(&self.inputs.system_file, text).unwrap();
        self
    }

    /// Another file, and its path.
    fn other_file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("other.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self) -> Config {
        Config::load(&self.inputs).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The only error, without the temporary folder's path.
    fn error(&self) -> String {
        let errors = Config::load(&self.inputs).expect_err("must be refused");
        assert_eq!(errors.0.len(), 1, "{errors}");
        errors
            .to_string()
            .replace(&format!("{}/", self.dir.path().display()), "")
    }
}

const GIB: u64 = 1 << 30;

#[test]
fn defaults_are_a_sound_configuration() {
    let config = Places::new().load();
    assert_eq!(
        config.store.as_str(),
        "file:///home/me/.local/share/forebay/bucket"
    );
    assert_eq!(
        config.data_dir,
        PathBuf::from("/home/me/.local/share/forebay")
    );
    assert_eq!(config.listen.to_string(), "127.0.0.1:2049");
    assert_eq!(config.clients.write().to_string(), "127.0.0.0/8,::1");
    assert_eq!(config.log, LogMode::Disk);
    assert_eq!(config.commit, CommitMode::Disk);
    assert_eq!(config.log_limit.bytes(), 4 * GIB);
    assert_eq!(config.checkpoint_interval, Duration::from_secs(5));
    assert!(!config.s3_unsigned_payload.is_on());
    assert!(
        SETTINGS
            .iter()
            .all(|setting| config.source(setting.key) == Source::Default)
    );
}

#[test]
fn every_default_is_within_its_own_bounds_and_spelled_as_it_is_shown() {
    let config = Places::new().load();
    for shown in config.shown() {
        if let Default::Fixed(text) = shown.setting.default {
            assert_eq!(shown.value.to_string(), text, "{}", shown.setting.key);
        }
    }
}

#[test]
fn the_data_dir_follows_the_user_of_the_program() {
    let data_dir = |places: Places| places.load().data_dir;
    let xdg = Places::new().variable("XDG_DATA_HOME", "/data");
    assert_eq!(data_dir(xdg), PathBuf::from("/data/forebay"));
    let relative = Places::new().variable("XDG_DATA_HOME", "data");
    assert_eq!(
        data_dir(relative),
        PathBuf::from("/home/me/.local/share/forebay")
    );
    let mut root = Places::new();
    root.inputs.is_root = true;
    assert_eq!(data_dir(root), PathBuf::from("/var/lib/forebay"));
}

#[test]
fn the_store_follows_the_data_dir_unless_it_is_set() {
    let places = Places::new().flag("data_dir", "/srv/x");
    assert_eq!(places.load().store.as_str(), "file:///srv/x/bucket");
    let places = places.variable("FOREBAY_STORE", "s3://bucket/prefix");
    assert_eq!(places.load().store.as_str(), "s3://bucket/prefix");
}

#[test]
fn without_a_home_the_data_dir_must_be_named() {
    let mut places = Places::new();
    places.inputs.variables.clear();
    let errors = Config::load(&places.inputs).unwrap_err().to_string();
    assert!(
        errors.starts_with("data_dir is not set and has no default here"),
        "{errors}"
    );
    assert!(
        errors.contains("--data-dir or FOREBAY_DATA_DIR"),
        "{errors}"
    );
    assert_eq!(
        places.flag("data_dir", "/srv").load().data_dir,
        PathBuf::from("/srv")
    );
}

#[test]
fn a_relative_data_dir_is_made_absolute() {
    let here = std::env::current_dir().unwrap();
    let config = Places::new().flag("data_dir", "volume").load();
    assert_eq!(config.data_dir, here.join("volume"));
    assert_eq!(
        config.store.as_str(),
        format!("file://{}/volume/bucket", here.display())
    );
}

#[test]
fn the_file_beats_the_default() {
    let places = Places::new().system_file("\n# sizes\nlog_limit = \"1GiB\"\n");
    let config = places.load();
    assert_eq!(config.log_limit.bytes(), GIB);
    let path = places.inputs.system_file.clone();
    assert_eq!(config.source("log_limit"), Source::File { path, line: 3 });
}

#[test]
fn the_environment_beats_the_file() {
    let places = Places::new()
        .system_file("log_limit = \"1GiB\"")
        .variable("FOREBAY_LOG_LIMIT", "2GiB");
    let config = places.load();
    assert_eq!(config.log_limit.bytes(), 2 * GIB);
    assert_eq!(
        config.source("log_limit"),
        Source::Variable("FOREBAY_LOG_LIMIT".to_owned())
    );
}

#[test]
fn a_flag_beats_the_environment() {
    let places = Places::new()
        .variable("FOREBAY_LOG_LIMIT", "2GiB")
        .flag("log_limit", "3GiB");
    let config = places.load();
    assert_eq!(config.log_limit.bytes(), 3 * GIB);
    assert_eq!(
        config.source("log_limit"),
        Source::Flag("--log-limit".to_owned())
    );
}

#[test]
fn a_flag_beats_the_file() {
    let places = Places::new()
        .system_file("log_limit = \"1GiB\"")
        .flag("log_limit", "3GiB");
    assert_eq!(places.load().log_limit.bytes(), 3 * GIB);
}

#[test]
fn the_environment_and_a_flag_beat_the_default() {
    let config = Places::new()
        .variable("FOREBAY_COMMIT", "async")
        .flag("s3_unsigned_payload", "on")
        .load();
    assert_eq!(config.commit, CommitMode::Async);
    assert!(config.s3_unsigned_payload.is_on());
}

#[test]
fn a_weaker_source_that_is_wrong_does_not_matter_when_a_stronger_one_is_right() {
    let places = Places::new()
        .variable("FOREBAY_LOG_LIMIT", "lots")
        .flag("log_limit", "3GiB");
    assert_eq!(places.load().log_limit.bytes(), 3 * GIB);
}

#[test]
fn a_named_file_replaces_that_of_the_system() {
    let mut places = Places::new().system_file("log_limit = \"1GiB\"\ncommit = \"async\"");
    let other = places.other_file("log_limit = \"2GiB\"");
    let named_by_variable = places.inputs.clone();
    places.inputs.file = Some(other.clone());
    let config = places.load();
    assert_eq!(
        (config.log_limit.bytes(), config.commit),
        (2 * GIB, CommitMode::Disk)
    );

    places.inputs = named_by_variable;
    places
        .inputs
        .variables
        .push(("FOREBAY_CONFIG".into(), other.into()));
    assert_eq!(places.load().log_limit.bytes(), 2 * GIB);
    places.inputs.file = Some("/nonexistent/forebay.toml".into());
    let error = places.error();
    assert!(
        error.starts_with(
            "cannot read the configuration file /nonexistent/forebay.toml (named by --config)"
        ),
        "{error}"
    );
}

#[test]
fn a_named_file_that_is_missing_is_an_error() {
    let places = Places::new().variable("FOREBAY_CONFIG", "/nonexistent/forebay.toml");
    let error = places.error();
    assert!(error.contains("(named by FOREBAY_CONFIG)"), "{error}");
}

#[test]
fn the_file_has_strings_numbers_switches_and_lists() {
    let places = Places::new().system_file(
        "upload_parallel = 8\n\
         log_limit = 2_147_483_648\n\
         s3_unsigned_payload = true\n\
         s3_path_style = false\n\
         clients = [\"10.0.0.0/8\", \"192.168.1.7\"]\n",
    );
    let config = places.load();
    assert_eq!(config.upload_parallel, 8);
    assert_eq!(config.log_limit.bytes(), 2 * GIB);
    assert!(config.s3_unsigned_payload.is_on());
    assert_eq!(config.s3_path_style.decided(), Some(false));
    assert_eq!(config.clients.write().to_string(), "10.0.0.0/8,192.168.1.7");
}

#[test]
fn unknown_keys_name_the_nearest_right_one() {
    for (text, error) in [
        (
            "commit = \"async\"\nlog_limt = 1",
            "system.toml:2: unknown key `log_limt`; did you mean `log_limit`?",
        ),
        (
            "memorylimit = 1",
            "system.toml:1: unknown key `memorylimit`; did you mean `memory_limit`?",
        ),
        (
            "[limits]\nlog = 1",
            "system.toml:1: unknown key `limits`; the file has no sections but [[export]] and [prices]: write other settings without a header, above the first [[export]]",
        ),
        (
            "zzz = 1",
            "system.toml:1: unknown key `zzz`; `forebay config --markdown` lists all settings",
        ),
    ] {
        assert_eq!(Places::new().system_file(text).error(), error);
    }
}

#[test]
fn a_section_with_the_name_of_a_setting_is_refused() {
    let error = Places::new().system_file("[log]\nlimit = 1").error();
    assert!(error.starts_with("system.toml:1: log = "), "{error}");
    assert!(
        error.ends_with("a TOML table does not fit; expected disk or none"),
        "{error}"
    );
}

#[test]
fn prices_are_a_table_of_the_file() {
    let text = "[prices]\nreads = 0.5\nwrites = 7\ncurrency = \"EUR\"\n[[export]]\npath = \"/\"";
    let config = Places::new().system_file(text).load();
    assert_eq!(config.prices_reads.amount(), 0.5);
    assert_eq!(config.prices_writes.amount(), 7.0);
    assert_eq!(config.prices_currency.0, "EUR");
    assert_eq!(config.prices_storage.amount(), 0.023);
    let places = Places::new().variable("FOREBAY_PRICES_READS", "0.25");
    assert_eq!(places.load().prices_reads.amount(), 0.25);
    // What is printed is read again.
    let again = Places::new().system_file(&config.to_toml()).load();
    assert_eq!(again.prices_writes.amount(), 7.0);
    let error = |text: &str| Places::new().system_file(text).error();
    assert_eq!(
        error("[prices]\n\nreads = -0.5"),
        "system.toml:3: prices_reads = `-0.5`: negative; expected a price such as 0.005"
    );
    assert_eq!(
        error("[prices]\nstorage = nan"),
        "system.toml:2: prices_storage = `nan`: not a number; expected a price such as 0.005"
    );
    assert_eq!(
        error("[prices]\nread = 1"),
        "system.toml:2: unknown key `prices.read`; did you mean `reads`?"
    );
    assert_eq!(
        error("[prices]\nvolume_limit = 1"),
        "system.toml:2: unknown key `prices.volume_limit`; \
         [prices] takes writes, reads, deletes, storage, download, currency"
    );
    assert_eq!(
        error("prices_reads = 1"),
        "system.toml:1: unknown key `prices_reads`; write it as `prices.reads`"
    );
    let error = error("prices = 1");
    assert!(error.contains("unknown key `prices`"), "{error}");
}

#[test]
fn unknown_variables_name_the_nearest_right_one() {
    let error = Places::new().variable("FOREBAY_LOG_LIMT", "1GiB").error();
    assert_eq!(
        error,
        "unknown environment variable `FOREBAY_LOG_LIMT`; did you mean `FOREBAY_LOG_LIMIT`?"
    );
    let error = Places::new()
        .variable("FOREBAY_SERVICE_HOST", "10.0.0.1")
        .error();
    assert!(error.contains("enableServiceLinks: false"), "{error}");
}

#[test]
fn bad_values_name_key_source_value_and_what_is_expected() {
    let file = |text: &str| Places::new().system_file(text).error();
    assert_eq!(
        file("\nlog_limit = \"4Gb8\""),
        "system.toml:2: log_limit = `4Gb8`: not a size; \
         expected a size such as 64MiB (1024s) or 64MB (1000s), 16MiB to 64TiB"
    );
    assert_eq!(
        file("checkpoint_interval = 5"),
        "system.toml:1: checkpoint_interval = `5`: no unit; \
         expected a duration such as 5s, 250ms or 1h30m, 100ms to 1h"
    );
    assert_eq!(
        file("upload_parallel = 1.5"),
        "system.toml:1: upload_parallel = `1.5`: a TOML float does not fit; \
         expected a whole number, 1 to 64"
    );
    assert_eq!(
        file("commit = [\"disk\"]"),
        "system.toml:1: commit = `[\"disk\"]`: a TOML array does not fit; expected disk, bucket or async"
    );
    let variable = |name: &str, text: &str| Places::new().variable(name, text).error();
    assert_eq!(
        variable("FOREBAY_LOG", "ssd"),
        "FOREBAY_LOG: log = `ssd`: not one of the words; expected disk or none"
    );
    assert_eq!(
        variable("FOREBAY_LISTEN", "2049"),
        "FOREBAY_LISTEN: listen = `2049`: not an IP address with a port; \
         expected an IP address and a port such as 127.0.0.1:2049 or [::1]:2049"
    );
    let flag = |key, text: &str| Places::new().flag(key, text).error();
    assert_eq!(
        flag("upload_parallel", "0"),
        "--upload-parallel: upload_parallel = `0`: too small; expected a whole number, 1 to 64"
    );
    assert_eq!(
        flag("checkpoint_interval", "2h"),
        "--checkpoint-interval: checkpoint_interval = `2h`: too large; \
         expected a duration such as 5s, 250ms or 1h30m, 100ms to 1h"
    );
    assert_eq!(
        flag("data_dir", "~/forebay"),
        "--data-dir: data_dir = `~/forebay`: only a shell expands ~; expected the path of a folder"
    );
}

#[test]
fn an_empty_value_is_not_the_default() {
    for setting in SETTINGS {
        let places = Places::new().variable(&setting.variable(), "");
        let errors = Config::load(&places.inputs)
            .expect_err(setting.key)
            .to_string();
        assert!(errors.contains(&setting.variable()), "{errors}");
    }
}

#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    let mut places = Places::new();
    let value = OsString::from_vec(b"/srv/\xff".to_vec());
    places
        .inputs
        .variables
        .push(("FOREBAY_DATA_DIR".into(), value));
    let error = places.error();
    assert!(
        error.contains("FOREBAY_DATA_DIR: data_dir = `/srv/\u{fffd}`: not UTF-8"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_the_line() {
    let error = Places::new()
        .system_file("commit = \"async\"\nlog_limit = 4GiB\n")
        .error();
    assert!(
        error.starts_with("system.toml:2: not valid TOML: "),
        "{error}"
    );
    let error = Places::new()
        .system_file("commit = \"async\"\ncommit = \"disk\"\n")
        .error();
    assert!(
        error.starts_with("system.toml:2: not valid TOML: duplicate key"),
        "{error}"
    );
}

#[test]
fn all_faults_are_reported_at_once() {
    let places = Places::new()
        .system_file("log_limt = 1\ncommit = \"maybe\"")
        .variable("FOREBAY_STOER", "s3://x")
        .flag("s3_unsigned_payload", "yes");
    let errors = Config::load(&places.inputs).unwrap_err();
    assert_eq!(errors.0.len(), 4, "{errors}");
    assert_eq!(errors.to_string().lines().count(), 4);
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let conflict = |settings: &[(&'static str, &str)]| {
        let places = settings
            .iter()
            .fold(Places::new(), |places, (key, text)| places.flag(key, text));
        places.error()
    };
    assert_eq!(
        conflict(&[("log_limit", "256MiB"), ("log_segment", "128MiB")]),
        "log_limit = 256MiB (--log-limit) must be at least 512MiB, \
         four times log_segment = 128MiB (--log-segment)"
    );
    assert_eq!(
        conflict(&[("log_limit", "128MiB"), ("checkpoint_bytes", "65MiB")]),
        "log_limit = 128MiB (--log-limit) must be at least 130MiB, \
         twice checkpoint_bytes = 65MiB (--checkpoint-bytes)"
    );
    assert_eq!(
        conflict(&[("memory_limit", "128MiB")]),
        "memory_limit = 128MiB (--memory-limit) must be at least 256MiB, \
         four times checkpoint_bytes = 64MiB; raise it or lower that one"
    );
    assert_eq!(
        conflict(&[("upload_parallel", "64"), ("pack_bytes", "16MiB")]),
        "upload_parallel = 64 (--upload-parallel) times pack_bytes = 16MiB (--pack-bytes) is 1GiB, \
         and must not be more than half of memory_limit = 1GiB"
    );
    assert_eq!(
        conflict(&[("scrub_interval", "59m")]),
        "scrub_interval = 59m (--scrub-interval) must be 0s, for never, or at least 1h: every pack is read each time"
    );
    let error = conflict(&[("log", "none"), ("commit", "async")]);
    assert!(
        error.starts_with(
            "--commit: commit = async for / has no meaning with log = none (--log): COMMIT waits"
        ),
        "{error}"
    );
}

#[test]
fn a_small_gateway_is_possible() {
    let config = Places::new()
        .flag("memory_limit", "64MiB")
        .flag("checkpoint_bytes", "8MiB")
        .flag("log_limit", "16MiB")
        .flag("log_segment", "4MiB")
        .load();
    assert_eq!(config.memory_limit.bytes(), 64 << 20);
    // Without a log its limits do not matter.
    Places::new()
        .flag("log", "none")
        .flag("log_limit", "16MiB")
        .load();
}

#[test]
fn a_key_is_of_use_with_its_kind_of_encryption_alone() {
    let named = "s3_kms_key = \"alias/k\"\n";
    let both = format!("{named}s3_encryption = \"aws:kms\"");
    let config = Places::new().system_file(&both).load();
    assert_eq!(config.s3_kms_key.0.as_deref(), Some("alias/k"));
    assert_eq!(
        Places::new().system_file(named).error(),
        "s3_kms_key = alias/k (system.toml:1) has no effect with s3_encryption = none: set that to aws:kms, or leave the key out"
    );
}
