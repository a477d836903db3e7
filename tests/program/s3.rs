//! The program on S3, and what keeps it from its bucket.

mod faults;

use crate::support::s3_server::{S3Server, free_address};
use crate::support::{Gateway, Place, Refusal, refused_with};

fn serve(place: &Place, store: &str, variables: &[(&str, &str)]) -> Refusal {
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let store = format!("--store={store}");
    let refusal = refused_with(
        &["serve", &data_dir, &store, "--listen=127.0.0.1:0"],
        variables,
    );
    assert_eq!(refusal.code, 1, "{refusal:?}");
    refusal
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
fn a_bucket_that_does_not_exist_is_named() {
    let Some(server) = S3Server::start() else {
        return;
    };
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
fn a_wrong_secret_is_told_from_a_wrong_bucket() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let mut variables = server.variables();
    for (name, value) in &mut variables {
        if *name == "AWS_SECRET_ACCESS_KEY" {
            *value = "not the secret";
        }
    }
    let refusal = serve(&Place::new(), "s3://bucket/prefix", &variables);
    refusal.says(&["does not accept the credentials", "check the access key"]);
    assert!(
        !refusal.error.contains("not the secret"),
        "a secret in a message"
    );
}

#[test]
fn a_volume_on_s3_is_taken_elsewhere() {
    let Some(server) = S3Server::start() else {
        return;
    };
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

    let elsewhere = Gateway::start(&flags("elsewhere"), &server.variables());
    assert!(elsewhere.client().get("file").unwrap() == data[..1 << 20]);
    elsewhere.stop_cleanly();
}
