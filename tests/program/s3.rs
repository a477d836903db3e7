//! The program on S3, and errors that keep it from its bucket.

mod faults;
mod refused;

use std::time::{Duration, Instant};

use crate::support::s3_server::{S3Server, free_address};
use crate::support::{Gateway, Place, Refusal, refused_with};

fn serve(place: &Place, store: &str, variables: &[(&str, &str)]) -> Refusal {
    let refusal = refused_by(place, store, variables);
    assert_eq!(refusal.code, 1, "{refusal:?}");
    refusal
}

fn refused_by(place: &Place, store: &str, variables: &[(&str, &str)]) -> Refusal {
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let store = format!("--store={store}");
    refused_with(
        &["serve", &data_dir, &store, "--listen=127.0.0.1:0"],
        variables,
    )
}

#[test]
fn what_cannot_lead_to_the_server_is_named() {
    let place = Place::new();
    let missing = place.path("no-such.pem");
    for (setting, value, why) in [
        ("FOREBAY_S3_CA", missing.to_str().unwrap(), "cannot be read"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "ALL_PROXY"),
    ] {
        let variables = [("AWS_ENDPOINT_URL", "https://s3.test"), (setting, value)];
        let refusal = refused_by(&place, "s3://bucket/prefix", &variables);
        assert_eq!(refusal.code, 2, "{refusal:?}");
        refusal.says(&[why]);
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let endpoint = format!("http://{}", free_address());
    let variables = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let refusal = serve(&Place::new(), "s3://bucket/prefix", &variables);
    refusal.says(&[
        "s3://bucket/prefix",
        "cannot be reached",
        "AWS_ENDPOINT_URL",
    ]);
}

#[test]
fn missing_credentials_are_named() {
    let endpoint = format!("http://{}", free_address());
    let variables = [("AWS_ENDPOINT_URL", &*endpoint)];
    let refusal = serve(&Place::new(), "s3://bucket/prefix", &variables);
    refusal.says(&["no credentials were found", "AWS_ACCESS_KEY_ID"]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_bucket_that_does_not_exist_is_named() {
    let server = S3Server::start();
    let refusal = serve(
        &Place::new(),
        "s3://no-such-bucket/prefix",
        &server.variables(),
    );
    refusal.says(&[
        "s3://no-such-bucket/prefix",
        "the bucket does not exist",
        "create it",
    ]);
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_wrong_secret_is_told_from_a_wrong_bucket() {
    let server = S3Server::start();
    let mut variables = server.variables();
    for (name, value) in &mut variables {
        if *name == "AWS_SECRET_ACCESS_KEY" {
            *value = "not the secret";
        }
    }
    let refusal = serve(&Place::new(), "s3://bucket/prefix", &variables);
    refusal.says(&["the secret is not the one", "check the access key"]);
    assert!(
        !refusal.error.contains("not the secret"),
        "a secret in a message"
    );
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_volume_on_s3_is_taken_elsewhere() {
    let server = S3Server::start();
    let place = Place::new();
    let flags = |data_dir: &str| {
        vec![
            "--store=s3://bucket/some/volume".to_owned(),
            format!("--data-dir={}", place.path(data_dir).display()),
            "--listen=127.0.0.1:0".to_owned(),
        ]
    };
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    let gateway = Gateway::start(&flags("data"), &server.variables());
    gateway.client().put("file", &data);
    gateway.flush();
    gateway.kill();
    std::fs::remove_dir_all(place.data_dir()).unwrap();

    let flags = [flags("elsewhere"), vec!["--take-over".to_owned()]].concat();
    let elsewhere = Gateway::start(&flags, &server.variables());
    assert!(elsewhere.client().get("file").unwrap() == data[..1 << 20]);
    elsewhere.stop_cleanly();
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn what_is_set_about_objects_and_the_link_reaches_the_server() {
    let server = S3Server::start();
    let place = Place::new();
    let mut flags: Vec<_> = [
        "--store=s3://bucket/volume",
        "--listen=127.0.0.1:0",
        "--compression=off",
        "--s3-checksum=md5",
        "--s3-tags=kind=tag-of-a-pack",
        "--s3-upload-limit=4MiB/s",
        "--s3-download-limit=none,00:00-24:00 2MiB/s",
    ]
    .map(str::to_owned)
    .into();
    if server.is_minio() {
        flags.push("--s3-storage-class=REDUCED_REDUNDANCY".to_owned());
    }
    let with_folder = |data_dir: &str| {
        let data_dir = format!("--data-dir={}", place.path(data_dir).display());
        [&flags[..], &[data_dir]].concat()
    };
    let data: Vec<u8> = (0..2 << 20_u32).flat_map(u32::to_be_bytes).collect();
    let gateway = Gateway::start(&with_folder("data"), &server.variables());
    let began = Instant::now();
    gateway.client().put("file", &data);
    gateway.flush();
    // 8 MiB, less the part that may be ahead of the limit.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1700), "{took:?}");
    gateway.stop_cleanly();

    let elsewhere = Gateway::start(&with_folder("elsewhere"), &server.variables());
    let began = Instant::now();
    assert!(elsewhere.client().get("file").unwrap() == data[..1 << 20]);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(350), "{took:?}");
    elsewhere.stop_cleanly();

    for text in ["kind=tag-of-a-pack", "REDUCED_REDUNDANCY"] {
        let kept = server.keeps(text).unwrap_or_default();
        assert!(
            !server.is_minio() || kept.values().any(|has| *has),
            "{text}"
        );
        for (name, has) in kept {
            assert_eq!(has, name.contains("/packs/"), "{text} of {name}");
        }
    }
}
