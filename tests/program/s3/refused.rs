//! Starts that cannot succeed: they end at once, and report the problem and the remedy.

use super::refused_by;
use crate::support::s3_proxy::{Fault, Proxy};
use crate::support::s3_server::S3Server;
use crate::support::{Gateway, Place};

/// A variable that cannot be part of a request would make the SDK panic.
#[test]
fn a_variable_that_cannot_be_sent_is_named_and_not_told() {
    for (name, value, why) in [
        ("AWS_ACCESS_KEY_ID", "AKIAHIDDEN\n", "line break"),
        ("AWS_SECRET_ACCESS_KEY", "HIDDEN\r\n", "line break"),
        ("AWS_SESSION_TOKEN", " HIDDEN", "space"),
        ("AWS_REGION", "us-east-1\n", "line break"),
        ("AWS_REGION", "us east", "not a region"),
        ("AWS_PROFILE", "HIDDEN\n", "line break"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1\n", "line break"),
        ("AWS_ENDPOINT_URL_S3", "127.0.0.1:1", "http://"),
        (
            "AWS_ENDPOINT_URL",
            "http://key:HIDDEN@127.0.0.1:1",
            "AWS_ACCESS_KEY_ID",
        ),
    ] {
        let refusal = refused_by(&Place::new(), "s3://bucket/prefix", &[(name, value)]);
        assert_eq!(refusal.code, 2, "{refusal:?}");
        refusal.says(&[name, why]);
        assert!(!refusal.error.contains("HIDDEN"), "{refusal:?}");
    }
}

#[test]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
fn a_server_that_refuses_what_a_start_needs_ends_it_with_its_own_words() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.endpoint(), 1);
    let endpoint = proxy.endpoint();
    let mut variables = server.variables();
    variables[0] = ("AWS_ENDPOINT_URL", &*endpoint);
    let place = Place::new();
    let store = "s3://bucket/volume";
    let flags = [
        format!("--store={store}"),
        format!("--data-dir={}", place.data_dir().display()),
        "--listen=127.0.0.1:0".to_owned(),
    ];
    let gateway = Gateway::start(&flags, &variables);
    gateway.client().put("file", &[7; 1000]);
    gateway.stop_cleanly();
    for (fault, words) in [
        (
            Fault::Denied,
            ["AccessDenied", "permission denied", "s3:PutObject"],
        ),
        (
            Fault::QuotaUsedUp,
            [
                "XMinioAdminBucketQuotaExceeded",
                "the quota of the bucket",
                "raise it",
            ],
        ),
        (
            Fault::Full,
            ["XMinioStorageFull", "disks are full", "make room"],
        ),
        (
            Fault::Expired,
            ["ExpiredToken", "have expired", "renew them"],
        ),
    ] {
        proxy.one_in(1, fault);
        let refusal = refused_by(&place, store, &variables);
        assert_eq!(refusal.code, 1, "{refusal:?}");
        refusal.says(&words);
        assert!(!refusal.error.contains("no answer"), "{refusal:?}");
        proxy.heal();
    }
    let gateway = Gateway::start(&flags, &variables);
    assert!(gateway.client().get("file").unwrap() == [7; 1000]);
    gateway.stop_cleanly();
}
