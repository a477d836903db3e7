//! The output of `forebay config`.

use super::*;

/// A configuration in which no value is the default.
fn unusual() -> Places {
    let mut places = Places::new();
    for (setting, text) in SETTINGS.iter().zip([
        "s3://bucket/a b",
        "/srv/with \"quotes\" \\ and # signs/\u{7f}",
        "5TB",
        "on",
        "allow",
        "[::]:12049",
        "10.0.0.0/8,fd00::/8",
        "ro",
        "all",
        "150",
        "100",
        "none",
        "insecure",
        "visible",
        "1day",
        "off",
        "mtls",
        "/certificate.pem",
        "/key.pem",
        "/ca.pem",
        "async",
        "77",
        "1m5s",
        "off",
        "disk",
        "1GB",
        "16MB",
        "3GiB",
        "17MiB",
        "300MiB",
        "1s500ms",
        "100MB",
        "off",
        "2-7",
        "fast",
        "7",
        "9MiB",
        "66",
        "2m30s",
        "33MiB",
        "12",
        "1h",
        "on",
        "on",
        "md5",
        "aws:kms",
        "alias/key",
        "STANDARD_IA",
        "project=x y,owner=me",
        "bulk",
        "30",
        "100MiB/s,08:00-18:00 10MiB/s,22:00-06:00 none",
        "20MB/s",
        "/s3-ca.pem",
        "http://proxy:3128",
        "15m x 8,1d x 30",
        "5GiB",
        "30days",
        "3MiB",
        "aes-256-gcm",
        "on",
        "none",
        "none",
        "alias/key",
        "eu-central-1",
        "https://kms.example.com",
        "[::1]:19049",
        "/admin.pem",
        "/admin.key",
        "/token",
        "nas.example.com,192.0.2.7",
        "warn,nfs=debug",
        "json",
        "250ms",
        // Others need a program with this feature.
        if cfg!(feature = "otlp") {
            "http://127.0.0.1:4318"
        } else {
            "none"
        },
        "0.01",
        "3",
        "0.5",
        "0.1",
        "0.09",
        "EUR",
    ]) {
        places = places.flag(setting.key, text);
    }
    assert_eq!(places.inputs.flags.len(), SETTINGS.len());
    places
}

#[test]
fn what_config_prints_can_be_fed_back() {
    let config = unusual().load();
    let defaults = Places::new().load();
    for (unusual, default) in config.shown().iter().zip(defaults.shown()) {
        let same = unusual.value == default.value;
        // The log has only one mode in which all its other settings matter, and only one credential opens a volume.
        let usual = match unusual.setting.key {
            "otlp_endpoint" => !cfg!(feature = "otlp"),
            key => ["log", "passphrase_file", "key_file"].contains(&key),
        };
        assert_eq!(same, usual, "{}", unusual.setting.key);
    }
    let fed_back = Places::new().system_file(&config.to_toml()).load();
    for (before, after) in config.shown().iter().zip(fed_back.shown()) {
        assert_eq!(before.value, after.value, "{}", before.setting.key);
        assert!(
            matches!(after.source, Source::File { .. }),
            "{}",
            before.setting.key
        );
    }
}

#[test]
fn config_says_where_every_value_came_from() {
    let places = Places::new()
        .system_file("commit = \"async\"")
        .variable("FOREBAY_LOG_LIMIT", "1GiB")
        .flag("s3_unsigned_payload", "on");
    let config = places.load();
    let text = config.to_toml();
    let has = |key: &str, value: &str, source: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{key} =")))
            .unwrap();
        assert!(line.starts_with(&format!("{key} = {value} ")), "{line}");
        assert!(line.ends_with(&format!("# {source}")), "{line}");
    };
    has(
        "commit",
        "\"async\"",
        &format!("{}:1", places.inputs.system_file.display()),
    );
    has("log_limit", "\"1GiB\"", "FOREBAY_LOG_LIMIT");
    has("s3_unsigned_payload", "\"on\"", "--s3-unsigned-payload");
    has("upload_parallel", "4", "default");
    has("clients", "[\"127.0.0.0/8\", \"::1\"]", "default");

    let json = config.to_json();
    assert_eq!(json["log_limit"]["value"], "1GiB");
    assert_eq!(json["log_limit"]["source"], "FOREBAY_LOG_LIMIT");
    assert_eq!(json["upload_parallel"]["value"], 4);
    assert_eq!(json["clients"]["value"][1], "::1");
    // The exports are the additional entry.
    assert_eq!(json.as_object().unwrap().len(), SETTINGS.len() + 1);
    assert_eq!(json["export"][0]["commit"], "async");
}

#[test]
fn exports_are_shown_as_they_can_be_fed_back_and_only_where_they_were_listed() {
    let text = "[[export]]\npath = \"/a \\\"b\\\"\"\nsquash = \"none\"";
    let config = Places::new().system_file(text).load();
    let again = Places::new().system_file(&config.to_toml()).load();
    assert_eq!(config.exports, again.exports);
    assert!(!Places::new().load().to_toml().contains("export"));
}

#[test]
fn the_markdown_table_has_a_row_for_each_setting() {
    let table = markdown_table();
    assert_eq!(table.lines().count(), 2 + SETTINGS.len());
    assert!(table.contains(
        "| `log_segment` | size, 4MiB to 1GiB | `32MiB` | Size of one file of the log. |\n"
    ));
    // A bar within a cell would end the cell.
    assert!(table.lines().all(|line| line.matches('|').count() == 5));
}
