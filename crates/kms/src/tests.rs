//! Against a service in this process that speaks the protocol of KMS (JSON 1.1).

mod fake;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use forebay_seal::{KeyRing, LockedRing, SystemEntropy};

use super::*;
use fake::{Answer, FakeKms};

const KEY: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
const VOLUME: VolumeId = VolumeId([0xab; 16]);
const OTHER: VolumeId = VolumeId([0xcd; 16]);

fn config(endpoint: &str) -> config::Builder {
    config::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("id", "a secret", None, None, "test"))
        .endpoint_url(endpoint)
        .http_client(http_client())
}

fn kms(fake: &FakeKms) -> Kms {
    Kms::over(config(&fake.url), KEY, Duration::from_millis(300))
}

fn secret_of(byte: u8) -> Secret {
    Secret::take(&mut [byte; SECRET_LEN])
}

#[tokio::test]
async fn a_key_is_unwrapped_for_the_volume_that_it_was_wrapped_for_and_no_other() {
    let fake = FakeKms::start(Answer::Well).await;
    let kms = kms(&fake);
    let wrapped = kms.wrap(&secret_of(7), VOLUME).await.unwrap();
    let unwrapped = kms.unwrap(&wrapped, KEY, VOLUME).await.unwrap();
    assert_eq!(unwrapped.expose(), &[7; SECRET_LEN]);

    let refused = kms.unwrap(&wrapped, KEY, OTHER).await.unwrap_err();
    let ServiceError::Refused(why) = refused else {
        panic!("{refused}")
    };
    assert!(
        why.contains("not what that key has wrapped for this volume"),
        "{why}"
    );
    let refused = kms
        .unwrap(&wrapped, "alias/other", VOLUME)
        .await
        .unwrap_err();
    assert!(matches!(refused, ServiceError::Refused(_)), "{refused}");
}

#[tokio::test]
async fn requests_are_signed_and_name_key_and_volume() {
    let fake = FakeKms::start(Answer::Well).await;
    kms(&fake).wrap(&secret_of(7), VOLUME).await.unwrap();
    let request = fake.requests().pop().unwrap();
    assert_eq!(request.target, "TrentService.Encrypt");
    assert!(
        request
            .authorization
            .starts_with("AWS4-HMAC-SHA256 Credential=id/")
    );
    assert!(
        request
            .authorization
            .contains("/eu-central-1/kms/aws4_request")
    );
    assert_eq!(request.body["KeyId"], KEY);
    assert_eq!(request.body["EncryptionContext"][CONTEXT], "ab".repeat(16));
}

#[tokio::test]
async fn a_key_ring_is_unlocked_with_it() {
    let fake = FakeKms::start(Answer::Well).await;
    let kms = kms(&fake);
    let mut ring = KeyRing::create(VOLUME, 0, &SystemEntropy);
    ring.add_service(&kms).await.unwrap();
    let locked = LockedRing::decode(&ring.encode().unwrap()).unwrap();
    locked.unlock_with_service(VOLUME, &kms).await.unwrap();
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    for (status, code, advice) in [
        (
            400,
            "AccessDeniedException",
            "allow these credentials kms:Decrypt",
        ),
        (
            400,
            "NotFoundException",
            "check the key, its region and its account",
        ),
        (400, "DisabledException", "enable the key"),
        (400, "KMSInvalidStateException", "cancel that"),
        (400, "UnrecognizedClientException", "check the credentials"),
        (400, "ExpiredTokenException", "renew the credentials"),
        (
            400,
            "SomethingNewException",
            "see the service's documentation",
        ),
    ] {
        let fake = FakeKms::start(Answer::Error(status, code)).await;
        let refused = kms(&fake).wrap(&secret_of(7), VOLUME).await.unwrap_err();
        let ServiceError::Refused(why) = refused else {
            panic!("{code}: {refused}")
        };
        assert!(
            why.contains(code) && why.contains(advice) && why.contains(KEY),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_service_that_is_away_may_be_asked_again() {
    for answer in [
        Answer::Error(400, "ThrottlingException"),
        Answer::Error(500, "KMSInternalException"),
        Answer::Error(503, "Other"),
        Answer::Never,
    ] {
        let fake = FakeKms::start(answer).await;
        let refused = kms(&fake)
            .unwrap(b"wrapped", KEY, VOLUME)
            .await
            .unwrap_err();
        assert!(matches!(refused, ServiceError::Unavailable(_)), "{refused}");
        assert!(fake.requests().len() <= ATTEMPTS as usize);
    }
    // Nobody listens there.
    let nowhere = Kms::over(config("http://127.0.0.1:1"), KEY, ANSWER_TIMEOUT);
    let refused = nowhere.unwrap(b"wrapped", KEY, VOLUME).await.unwrap_err();
    let ServiceError::Unavailable(why) = refused else {
        panic!("{refused}")
    };
    assert!(why.contains("check the network"), "{why}");
}

#[tokio::test]
async fn a_service_that_stumbles_once_is_asked_again() {
    let fake = FakeKms::start(Answer::WellAfter(2)).await;
    kms(&fake).wrap(&secret_of(7), VOLUME).await.unwrap();
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn what_is_no_key_is_not_taken_for_one() {
    let fake = FakeKms::start(Answer::Plaintext(b"short")).await;
    let refused = kms(&fake)
        .unwrap(b"wrapped", KEY, VOLUME)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("has 5 bytes and not 32"),
        "{refused}"
    );
}

#[derive(Debug)]
struct NoCredentials;

impl ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("none here")))
    }
}

#[tokio::test]
async fn missing_credentials_are_named() {
    let fake = FakeKms::start(Answer::Well).await;
    let config = config(&fake.url).credentials_provider(NoCredentials);
    let kms = Kms::over(config, KEY, ANSWER_TIMEOUT);
    let refused = kms.wrap(&secret_of(7), VOLUME).await.unwrap_err();
    assert!(
        refused.to_string().contains("there are no credentials"),
        "{refused}"
    );
    assert!(fake.requests().is_empty());
}

#[test]
fn a_region_is_taken_from_an_arn() {
    assert_eq!(region_of(KEY), Some("eu-central-1"));
    assert_eq!(
        region_of("arn:aws-cn:kms:cn-north-1:1:alias/a"),
        Some("cn-north-1")
    );
    for key in [
        "alias/forebay",
        "1234abcd",
        "arn:aws:s3:::bucket",
        "arn:aws:kms::1:key/a",
        "",
    ] {
        assert_eq!(region_of(key), None, "{key}");
    }
}

/// Whoever prints a service shows no secret.
#[tokio::test]
async fn debug_output_has_no_secret() {
    let fake = FakeKms::start(Answer::Well).await;
    assert!(!format!("{:?}", kms(&fake)).contains("a secret"));
}
