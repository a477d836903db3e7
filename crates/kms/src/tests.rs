//! Tests with a [service in this process](crate::fake).

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use forebay_seal::{KeyRing, LockedRing, SystemEntropy};

use super::*;
use crate::fake::{ALIAS, Answer, FakeKms, KEY};

const VOLUME: VolumeId = VolumeId([0xab; 16]);
const OTHER: VolumeId = VolumeId([0xcd; 16]);

async fn service(answer: Answer) -> FakeKms {
    FakeKms::start(answer).await.unwrap()
}

fn way() -> SharedHttpClient {
    http_client(None, &Proxy::Direct, true).unwrap()
}

fn config(endpoint: &str) -> config::Builder {
    config::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("id", "a secret", None, None, "test"))
        .endpoint_url(endpoint)
        .http_client(way())
}

/// The key of this name, reached with this configuration.
fn over(config: config::Builder, key: &str, answer: Duration) -> Kms {
    Kms {
        options: KmsOptions {
            key: key.to_owned(),
            ..KmsOptions::default()
        },
        http: way(),
        client: OnceCell::new_with(Some(Connected {
            client: set_up(config, answer),
            credentials: CredentialSource::fixed(Credentials::new(
                "id", "a secret", None, None, "test",
            )),
        })),
    }
}

fn kms_of(fake: &FakeKms, key: &str) -> Kms {
    over(config(&fake.url), key, Duration::from_millis(300))
}

fn kms(fake: &FakeKms) -> Kms {
    kms_of(fake, KEY)
}

fn secret_of(byte: u8) -> Secret {
    Secret::take(&mut [byte; SECRET_LEN])
}

#[tokio::test]
async fn a_key_is_unwrapped_for_the_volume_that_it_was_wrapped_for_and_no_other() {
    let fake = service(Answer::Well).await;
    let kms = kms(&fake);
    let wrapped = kms.wrap(&secret_of(7), VOLUME).await.unwrap();
    let unwrapped = kms.unwrap(&wrapped, KEY, VOLUME).await.unwrap();
    assert_eq!(unwrapped.expose(), &[7; SECRET_LEN]);

    let refused = kms.unwrap(&wrapped, KEY, OTHER).await.unwrap_err();
    let ServiceError::Refused(why) = refused else {
        panic!("{refused}")
    };
    assert!(
        why.contains("this key did not wrap this volume key"),
        "{why}"
    );
}

/// An attacker with write access to the bucket can have put a slot there that names another key.
#[tokio::test]
async fn what_another_key_has_wrapped_is_refused_whatever_the_slot_says() {
    let fake = service(Answer::Well).await;
    let other = "arn:aws:kms:eu-central-1:999999999999:key/other\n";
    let wrapped = kms_of(&fake, other)
        .wrap(&secret_of(7), VOLUME)
        .await
        .unwrap();
    for named in [other, KEY] {
        let refused = kms(&fake).unwrap(&wrapped, named, VOLUME).await;
        let ServiceError::Refused(why) = refused.unwrap_err() else {
            panic!("{named}")
        };
        assert!(why.contains("wrapped with another key"), "{why}");
        assert_eq!(why.contains(r"key/other\n)"), named == other, "{why}");
        assert_eq!(fake.requests().pop().unwrap().body["KeyId"], KEY);
    }
    // An alias is the key that it stands for, on either side.
    let wrapped = kms_of(&fake, ALIAS).wrap(&secret_of(7), VOLUME).await;
    let wrapped = wrapped.unwrap();
    kms(&fake).unwrap(&wrapped, ALIAS, VOLUME).await.unwrap();
    let aliased = kms_of(&fake, ALIAS);
    aliased.unwrap(&wrapped, KEY, VOLUME).await.unwrap();
}

#[tokio::test]
async fn the_volume_key_goes_through_no_network_in_the_clear() {
    // A network reserved for documentation, which leads nowhere.
    let kms = over(config("http://192.0.2.1:9000"), KEY, ANSWER_TIMEOUT);
    let started = std::time::Instant::now();
    let refused = kms.wrap(&secret_of(7), VOLUME).await.unwrap_err();
    let ServiceError::Refused(why) = refused else {
        panic!("{refused}")
    };
    assert!(
        why.contains("in the clear") && why.contains("kms_endpoint"),
        "{why}"
    );
    assert!(
        started.elapsed() < CONNECT_TIMEOUT,
        "no connection was tried"
    );
}

#[tokio::test]
async fn requests_are_signed_and_name_key_and_volume() {
    let fake = service(Answer::Well).await;
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
    let fake = service(Answer::Well).await;
    let kms = kms(&fake);
    let mut ring = KeyRing::create(VOLUME, 0, &SystemEntropy);
    ring.add_service(&kms).await.unwrap();
    let locked = LockedRing::decode(&ring.encode().unwrap()).unwrap();
    locked.unlock_with_service(VOLUME, &kms).await.unwrap();
}

/// A single request for any number of slots: each request may take half a minute.
#[tokio::test]
async fn a_service_that_is_away_is_asked_for_one_slot() {
    let fake = service(Answer::Well).await;
    let mut ring = KeyRing::create(VOLUME, 0, &SystemEntropy);
    for _ in 0..3 {
        ring.add_service(&kms(&fake)).await.unwrap();
    }
    let locked = LockedRing::decode(&ring.encode().unwrap()).unwrap();
    let away = service(Answer::Error(500, "KMSInternalException")).await;
    let refused = locked.unlock_with_service(VOLUME, &kms(&away)).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("could not be asked"), "{error}");
    assert_eq!(away.requests().len(), ATTEMPTS as usize);
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
        let fake = service(Answer::Error(status, code)).await;
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
        let fake = service(answer).await;
        let refused = kms(&fake)
            .unwrap(b"wrapped", KEY, VOLUME)
            .await
            .unwrap_err();
        assert!(matches!(refused, ServiceError::Unavailable(_)), "{refused}");
        assert!(fake.requests().len() <= ATTEMPTS as usize);
    }
    // No server listens there.
    let nowhere = over(config("http://127.0.0.1:1"), KEY, ANSWER_TIMEOUT);
    let refused = nowhere.unwrap(b"wrapped", KEY, VOLUME).await.unwrap_err();
    let ServiceError::Unavailable(why) = refused else {
        panic!("{refused}")
    };
    assert!(why.contains("check the network"), "{why}");
}

#[tokio::test]
async fn a_service_that_stumbles_once_is_asked_again() {
    let fake = service(Answer::WellAfter(2)).await;
    kms(&fake).wrap(&secret_of(7), VOLUME).await.unwrap();
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn what_is_no_key_is_not_taken_for_one() {
    let fake = service(Answer::Plaintext(b"short")).await;
    let refused = kms(&fake)
        .unwrap(b"wrapped", KEY, VOLUME)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("has 5 bytes, not 32"),
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
    let fake = service(Answer::Well).await;
    let config = config(&fake.url).credentials_provider(NoCredentials);
    let kms = over(config, KEY, ANSWER_TIMEOUT);
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

/// Debug output of a service contains no secret.
#[tokio::test]
async fn debug_output_has_no_secret() {
    let fake = service(Answer::Well).await;
    assert!(!format!("{:?}", kms(&fake)).contains("a secret"));
}
