//! Exports in the file, and the TLS settings that they require.

use super::*;

/// The exports of a file, as text.
fn exports(text: &str) -> Vec<String> {
    let export = |export: &Export| {
        let own = export.written().map(|(_, value)| value.to_string());
        format!("{} {}", export.path, own.join(" "))
    };
    let config = Places::new().system_file(text).load();
    config.exports.iter().map(export).collect()
}

#[test]
fn without_exports_in_the_file_the_root_is_exported_with_the_general_settings() {
    assert_eq!(
        exports("clients = [\"10.0.0.0/8\"]\nsquash = \"all\"\ncommit = \"bucket\""),
        [
            "/ 10.0.0.0/8 rw all_squash 65534 65534 sys secure none,tls,mtls bucket auto 1-9 hidden none hidden"
        ]
    );
}

#[test]
fn an_export_has_the_general_settings_but_for_its_own() {
    let listed = exports(
        r#"
            commit = "bucket"
            [[export]]
            path = "/"
            [[export]]
            path = "//scratch/of all/"
            clients = ["10.0.0.0/8", "192.168.1.7"]
            access = "ro"
            squash = "none"
            anonuid = 150
            anongid = 100
            sec = ["sys", "none"]
            source_port = "insecure"
            xprtsec = "none:mtls"
            commit = "async"
            compression = "off"
            compression_level = 3
            snapshot_directory = "visible"
            trash = "24h"
        "#,
    );
    assert_eq!(
        listed,
        [
            "/ 127.0.0.0/8,::1 rw auto 65534 65534 sys secure none,tls,mtls bucket auto 1-9 hidden none hidden",
            "/scratch/of all 10.0.0.0/8,192.168.1.7 ro no_root_squash 150 100 sys,none insecure none,mtls async off 3 visible 1day hidden"
        ]
    );
}

#[test]
fn a_path_may_have_several_tables_with_clients_of_their_own() {
    let listed = exports(
        r#"
            [[export]]
            path = "/a"
            clients = ["10.0.0.0/8"]
            [[export]]
            path = "/a"
            clients = ["10.1.0.0/16"]
            access = "ro"
        "#,
    );
    assert!(listed[0].starts_with("/a 10.0.0.0/8 rw"), "{listed:?}");
    assert!(listed[1].starts_with("/a 10.1.0.0/16 ro"), "{listed:?}");
}

#[test]
fn what_is_wrong_with_an_export_is_named_with_its_line() {
    let error = |text: &str| Places::new().system_file(text).error();
    assert_eq!(
        error("export = 5"),
        "system.toml:1: `export` is a list of tables: begin each with a line [[export]]"
    );
    assert_eq!(
        error("\n[[export]]\ncommit = \"disk\""),
        "system.toml:2: an export needs a path, such as path = \"/home\""
    );
    assert_eq!(
        error("[[export]]\npath = \"home\""),
        "system.toml:2: path = `home`: has to begin with /, the root of the volume"
    );
    assert_eq!(
        error("[[export]]\npath = \"/a/../b\""),
        "system.toml:2: path = `/a/../b`: leave out `..`"
    );
    assert_eq!(
        error("[[export]]\npath = \"/a\"\n[[export]]\npath = \"/a/\""),
        "system.toml:4: /a is exported to 127.0.0.0/8 twice, so the rules are ambiguous; leave it out of one [[export]]"
    );
    assert_eq!(
        error("[[export]]\npath = \"/a\"\nlog_limit = \"1GiB\""),
        "system.toml:3: `log_limit` is a setting of the whole gateway, not of an [[export]]: write it above the first [[export]]"
    );
    assert_eq!(
        error("[[export]]\npath = \"/a\"\nmood = 1"),
        "system.toml:3: unknown key `mood` in [[export]]; it takes path, clients, access, squash, anonuid, anongid, sec, source_port, xprtsec, commit, compression, compression_level, snapshot_directory, trash and trash_directory"
    );
    for (key, right) in [
        ("client", "clients"),
        ("acces", "access"),
        ("paht", "path"),
        ("anon_uid", "anonuid"),
    ] {
        assert_eq!(
            error(&format!("[[export]]\npath = \"/a\"\n{key} = \"x\"")),
            format!("system.toml:3: unknown key `{key}` in [[export]]; did you mean `{right}`?")
        );
    }
    for header in ["[[exports]]", "[exports]", "[[Export]]", "[[exprot]]"] {
        let name = header.trim_matches(['[', ']']);
        assert_eq!(
            error(&format!("{header}\npath = \"/a\"")),
            format!("system.toml:1: unknown key `{name}`; did you mean [[export]]?")
        );
    }
    let section = error("[volume]\nlog_limit = \"1GiB\"");
    assert!(
        section
            .contains("unknown key `volume`; the file has no sections but [[export]] and [prices]"),
        "{section}"
    );
    assert_eq!(
        error("[[export]]\npath = \"/a\"\nsec = \"krb5\""),
        "system.toml:3: sec = `krb5`: Kerberos is not supported: the gateway identifies clients by their addresses, and with sys trusts the user ids that they send; expected sys, none or both"
    );
    let named = error("[[export]]\npath = \"/a\"\nclients = \"*.example.com\"");
    assert!(named.contains("which is not resolved"), "{named}");
    assert_eq!(
        error("[[export]]\npath = \"/a\"\ncommit = \"paper\""),
        "system.toml:3: commit = `paper`: not one of the words; expected disk, bucket or async"
    );
    assert_eq!(
        error("[[export]]\npath = \"/a\"\ncommit = 1.5"),
        "system.toml:3: commit = `1.5`: a TOML float does not fit; expected disk, bucket or async"
    );
    assert_eq!(
        error("log = \"none\"\n[[export]]\npath = \"/a\"\ncommit = \"async\"")
            .split(':')
            .nth(1),
        Some("4")
    );
}

#[test]
fn tls_is_not_asked_for_where_there_is_none() {
    let error = |text: &str| Places::new().system_file(text).error();
    assert_eq!(
        error("[[export]]\npath = \"/a\"\nxprtsec = \"tls:mtls\""),
        "system.toml:3: xprtsec = tls,mtls for /a asks for TLS, which needs tls_certificate and tls_key: set that, or add none to xprtsec"
    );
    let files = "tls_certificate = \"/c\"\ntls_key = \"/k\"\n";
    let mtls = "[[export]]\npath = \"/a\"\nxprtsec = \"mtls\"";
    assert_eq!(
        error(&format!("{files}{mtls}")),
        "system.toml:5: xprtsec = mtls for /a asks for certificates of clients, which needs tls_client_ca: set that, or add none to xprtsec"
    );
    let with_authority = format!("{files}tls_client_ca = \"/a\"\n{mtls}");
    Places::new().system_file(&with_authority).load();
    let tls = format!("{files}xprtsec = [\"tls\"]");
    Places::new().system_file(&tls).load();
}

#[test]
fn the_files_of_tls_come_together() {
    let error = |text: &str| Places::new().system_file(text).error();
    assert_eq!(
        error("tls_certificate = \"/c\""),
        "tls_certificate = /c (system.toml:1) needs tls_key: set both, or neither"
    );
    assert_eq!(
        error("tls_key = \"/k\""),
        "tls_key = /k (system.toml:1) needs tls_certificate: set both, or neither"
    );
    let alone = error("tls_client_ca = \"/a\"");
    assert!(
        alone.contains("set tls_certificate and tls_key as well"),
        "{alone}"
    );
}
