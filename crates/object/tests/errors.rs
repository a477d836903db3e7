//! An unusable store is refused with one clear message that gives the remedy.

mod support;

use std::net::TcpListener;
use std::process::Command;

use forebay_object::{Fault, OpenError, ProbeError, StoreOptions, open, probe};
use support::memory_s3::{Behaviour, Server};
use support::s3_options;
use tempfile::TempDir;

/// Opens an unusable store, and returns the fault and the message.
async fn fault(url: &str, options: &StoreOptions) -> (Fault, String) {
    let error = open(url, options).await.unwrap_err();
    let message = error.to_string();
    match error {
        OpenError::Store { fault, .. } => (fault, message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_missing_folder_is_an_error_unless_it_is_to_be_created() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("a/b/volume");
    let url = format!("file://{}", folder.display());
    let error = open(&url, &StoreOptions::default()).await.unwrap_err();
    assert!(matches!(error, OpenError::FolderMissing { .. }));
    assert!(
        error.to_string().contains("does not exist: create it"),
        "{error}"
    );
    assert!(!folder.exists());

    let options = StoreOptions {
        create: true,
        ..StoreOptions::default()
    };
    assert_eq!(open(&url, &options).await.unwrap().url, url);
    assert!(folder.is_dir());
    open(&url, &StoreOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_file_is_no_folder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let url = format!("file://{}", file.path().display());
    let error = open(&url, &StoreOptions::default()).await.unwrap_err();
    assert!(matches!(error, OpenError::Folder { .. }));
    assert!(error.to_string().contains("not a directory"), "{error}");
}

#[tokio::test]
async fn a_missing_bucket_is_named() {
    let server = Server::start(Behaviour::default()).await;
    let (fault, message) = fault("s3://other/volume", &server.options()).await;
    assert_eq!(fault, Fault::BucketMissing);
    assert!(
        message.starts_with("s3://other/volume: the bucket does not exist: create it"),
        "{message}"
    );
}

#[tokio::test]
async fn a_wrong_secret_is_named_and_never_shown() {
    let server = Server::start(Behaviour::default()).await;
    let mut options = server.options();
    options.credentials.as_mut().unwrap().secret_access_key = "wrongsecret".to_owned();
    let (fault, message) = fault("s3://bucket/volume", &options).await;
    assert_eq!(fault, Fault::BadCredentials);
    assert!(message.contains("check the access key"), "{message}");
    assert!(!message.contains("wrongsecret") && !format!("{options:?}").contains("wrongsecret"));
}

#[tokio::test]
async fn a_lack_of_permission_is_named() {
    let server = Server::start(Behaviour {
        denies: true,
        ..Behaviour::default()
    })
    .await;
    let (fault, message) = fault("s3://bucket/volume", &server.options()).await;
    assert_eq!(fault, Fault::Denied);
    assert!(message.contains("permission denied: allow"), "{message}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_and_no_hang() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (fault, message) = fault("s3://bucket/volume", &s3_options(&address, "secret")).await;
    assert_eq!(fault, Fault::Unreachable);
    assert!(fault.is_transient());
    assert!(message.contains("AWS_ENDPOINT_URL"), "{message}");
}

/// The environment decides here, so the test starts itself again in an environment of its own.
#[tokio::test]
async fn missing_credentials_are_named() {
    const NAME: &str = "missing_credentials_are_named";
    const IS_CHILD: &str = "FOREBAY_TEST_IS_CHILD";
    if std::env::var_os(IS_CHILD).is_some() {
        let (fault, message) = fault("s3://bucket/volume", &StoreOptions::default()).await;
        assert_eq!(fault, Fault::NoCredentials, "{message}");
        assert!(message.contains("AWS_ACCESS_KEY_ID"), "{message}");
        return;
    }
    let home = TempDir::new().unwrap();
    // For AWS itself, and for a server of one's own.
    for endpoint in [None, Some(("AWS_ENDPOINT_URL", "http://127.0.0.1:1"))] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env_clear()
            .env(IS_CHILD, "1")
            .env("HOME", home.path())
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(endpoint)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_not_fit_for_a_volume() {
    let server = Server::start(Behaviour {
        ignores_conditions: true,
        ..Behaviour::default()
    })
    .await;
    let store = open("s3://bucket/volume", &server.options()).await.unwrap();
    let error = probe(&store).await.unwrap_err();
    assert!(matches!(error, ProbeError::ConditionIgnored { .. }));
    assert!(
        error
            .to_string()
            .starts_with("s3://bucket/volume ignores conditional writes"),
        "{error}"
    );
    // The probe has deleted its objects.
    let left = store.store.list_with_delimiter(None).await.unwrap();
    assert!(left.objects.is_empty() && left.common_prefixes.is_empty());
}

#[tokio::test]
async fn a_store_that_went_away_after_opening_fails_the_probe_by_name() {
    let server = Server::start(Behaviour::default()).await;
    let store = open("s3://bucket/volume", &server.options()).await.unwrap();
    drop(server);
    let error = probe(&store).await.unwrap_err();
    let ProbeError::Failed { step, fault, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*step, *fault), ("create an object", Fault::Unreachable));
}
