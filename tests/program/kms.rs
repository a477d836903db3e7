//! A volume that a key of AWS KMS opens: which service is called, and when, and which errors are reported when it does
//! not answer as it should.

use std::time::{Duration, Instant};

use forebay_kms::fake::{ALIAS, Answer, FakeKms, KEY};
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::sealing::{secret, works};
use crate::support::{Gateway, Outcome, Place, Refusal, refused_with, run_with};

#[path = "../../crates/object/tests/support/authority.rs"]
mod authority;
#[path = "../../crates/object/tests/support/proxy.rs"]
mod proxy;

use authority::Authority;

const CONTENT: &[u8] = b"words that are written here and read nowhere else";
const CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "id"),
    ("AWS_SECRET_ACCESS_KEY", "a secret"),
];

/// A fake KMS that runs until it is dropped.
struct Kms {
    runtime: Runtime,
    service: FakeKms,
}

impl Kms {
    fn start(answer: Answer) -> Kms {
        let runtime = Runtime::new().unwrap();
        let service = runtime.block_on(FakeKms::start(answer)).unwrap();
        Kms { runtime, service }
    }

    /// Flags with which this service's key opens a volume.
    fn opened_by(&self, key: &str) -> Vec<String> {
        opened_by(&self.service.url, key)
    }

    /// The operations that it was asked for.
    fn asked(&self) -> Vec<String> {
        let requests = self.service.requests().into_iter();
        requests.map(|request| request.target).collect()
    }

    /// The same service with TLS under the name `kms.test`: its address, and the PEM of its certificate authority.
    fn with_tls(&self) -> (String, String) {
        let authority = Authority::new();
        let acceptor = authority.identity(&["kms.test"]).acceptor();
        let service = self.service.address.clone();
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        self.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, service) = (acceptor.clone(), service.clone());
                tokio::spawn(async move {
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        let mut service = TcpStream::connect(service).await.unwrap();
                        let _ = copy_bidirectional(&mut stream, &mut service).await;
                    }
                });
            }
        });
        (address, authority.pem)
    }
}

fn opened_by(url: &str, key: &str) -> Vec<String> {
    vec![
        "--encryption=aes-256-gcm".to_owned(),
        format!("--kms-key={key}"),
        format!("--kms-endpoint={url}"),
    ]
}

fn command(place: &Place, words: &[&str], opened_by: &[String]) -> Vec<String> {
    let words = words.iter().map(|&word| word.to_owned());
    let flags = place.flags("data").into_iter();
    words
        .chain(flags)
        .chain(opened_by.iter().cloned())
        .collect()
}

fn run(place: &Place, words: &[&str], opened_by: &[String]) -> Outcome {
    run_with(&command(place, words, opened_by), &CREDENTIALS)
}

#[track_caller]
fn refused(place: &Place, words: &[&str], opened_by: &[String]) -> Refusal {
    refused_with(&command(place, words, opened_by), &CREDENTIALS)
}

#[track_caller]
fn serve(place: &Place, data_dir: &str, opened_by: &[String]) -> Gateway {
    let flags = [place.flags(data_dir), opened_by.to_vec()].concat();
    Gateway::start(&flags, &CREDENTIALS)
}

fn listed(place: &Place) -> Value {
    let listed = works(run(place, &["keys", "list", "--json"], &[]));
    serde_json::from_str(&listed).unwrap()
}

#[test]
fn a_key_of_kms_makes_and_opens_a_volume_and_is_not_asked_while_it_is_served() {
    let place = Place::new();
    let kms = Kms::start(Answer::Well);
    let own = kms.opened_by(KEY);
    let made = works(run(&place, &["format"], &own));
    let (encrypt, decrypt) = ("TrentService.Encrypt", "TrentService.Decrypt");
    // The key is tested before anything is written to the bucket.
    let mut asked = vec![encrypt, decrypt, decrypt];
    assert_eq!(kms.asked(), asked);
    let request = kms.service.requests().swap_remove(0);
    // The region of the key's ARN.
    assert!(request.authorization.contains("/eu-central-1/kms/"));
    let volume = request.body["EncryptionContext"]["forebay:volume"].as_str();
    assert!(made.contains(volume.unwrap()), "{made}");

    let gateway = serve(&place, "data", &own);
    asked.push(decrypt);
    assert_eq!(kms.asked(), asked);
    gateway.client().put("file", CONTENT);
    gateway.flush();
    for words in [&["fsck", "--read-data"][..], &["gc"]] {
        works(run(&place, words, &own));
    }
    asked.extend([decrypt, decrypt]);
    assert_eq!(kms.asked(), asked);

    // KMS is unreachable, which no client notices.
    drop(kms);
    gateway.client().put("more", CONTENT);
    gateway.flush();
    assert_eq!(gateway.client().get("file").unwrap(), CONTENT);
    gateway.stop_cleanly();

    // From another machine, and with another name for the key.
    let kms = Kms::start(Answer::Well);
    let aliased = kms.opened_by(ALIAS);
    let gateway = serve(&place, "elsewhere", &aliased);
    assert_eq!(gateway.client().get("more").unwrap(), CONTENT);
    gateway.stop_cleanly();
    let folder = place.path("salvaged").display().to_string();
    works(run(&place, &["salvage", "--to", &folder], &aliased));
}

/// The key is in requests and replies, and the SDK's messages include requests if the environment enables them.
#[test]
fn the_volume_key_is_in_no_message_at_any_level() {
    let place = Place::new();
    let kms = Kms::start(Answer::Well);
    let traced = [kms.opened_by(KEY), vec!["--log-level=trace".to_owned()]].concat();
    let mut variables = CREDENTIALS.to_vec();
    variables.push(("LOG_SIGNABLE_BODY", "true"));
    let mut said = Vec::new();
    for words in [&["format"][..], &["fsck"], &["keys", "add-kms", ALIAS]] {
        let outcome = run_with(&command(&place, words, &traced), &variables);
        assert!(outcome.status.success(), "{}", outcome.stderr);
        said.push(outcome.stderr);
    }
    let flags = [place.flags("data"), traced].concat();
    let gateway = Gateway::start(&flags, &variables);
    gateway.client().put("file", CONTENT);
    let (code, messages) = gateway.stop();
    assert_eq!(code, Some(0), "{messages}");
    said.push(messages);
    let requests = kms.service.requests();
    let key = requests[0].body["Plaintext"].as_str().unwrap();
    assert_eq!(key.len(), 44, "32 bytes in base64");
    // As text, and as bytes that are printed one by one.
    let as_bytes = format!("{:?}", &key.as_bytes()[..8]);
    for text in said {
        assert!(text.contains(" TRACE "), "{text}");
        for shape in [&key[..16], as_bytes.trim_matches(['[', ']'])] {
            assert!(!text.contains(shape), "the key is in the messages");
        }
    }
}

#[test]
fn what_kms_does_not_open_is_refused_soon_and_says_why() {
    let place = Place::new();
    let kms = Kms::start(Answer::Well);
    works(run(&place, &["format"], &kms.opened_by(KEY)));

    let other = "arn:aws:kms:eu-central-1:111122223333:key/other";
    let refusal = refused(&place, &["serve"], &kms.opened_by(other));
    refusal.says(&[
        "the key service refused",
        other,
        "IncorrectKeyException",
        KEY,
    ]);

    let denied = Kms::start(Answer::Error(400, "AccessDeniedException"));
    let refusal = refused(&place, &["serve"], &denied.opened_by(KEY));
    refusal.says(&["AccessDeniedException", "kms:Decrypt", KEY]);
    let unchecked = run(&place, &["fsck"], &denied.opened_by(KEY));
    assert_eq!(unchecked.status.code(), Some(2), "{}", unchecked.stderr);

    let own = kms.opened_by(KEY);
    let refusal = refused_with(&command(&place, &["serve"], &own), &[]);
    refusal.says(&["no credentials for AWS KMS", "AWS_ACCESS_KEY_ID"]);

    // No process listens there; the call is tried three times.
    let started = Instant::now();
    let refusal = refused(&place, &["serve"], &opened_by("http://127.0.0.1:1", KEY));
    refusal.says(&["could not be asked", "AWS KMS cannot be reached"]);
    assert!(started.elapsed() < Duration::from_secs(30));

    // An address without TLS, as for an S3 server.
    let with_key = [
        "--encryption=aes-256-gcm".to_owned(),
        format!("--kms-key={KEY}"),
    ];
    let mut variables = CREDENTIALS.to_vec();
    variables.push(("AWS_ENDPOINT_URL", "http://192.0.2.1:9000"));
    let refusal = refused_with(&command(&place, &["serve"], &with_key), &variables);
    refusal.says(&["in the clear", "kms_endpoint", "AWS_ENDPOINT_URL_S3"]);

    let with_alias = [
        "--encryption=aes-256-gcm".to_owned(),
        format!("--kms-key={ALIAS}"),
    ];
    let refusal = refused(&place, &["serve"], &with_alias);
    refusal.says(&["the region of", "kms_region", ALIAS]);

    // A volume without a slot for KMS.
    let place = Place::new();
    let words = secret(&place, "words", b"open sesame\n");
    let by_words = sealed_by(&words.display().to_string());
    works(run(&place, &["format"], &by_words));
    let refusal = refused(&place, &["serve"], &kms.opened_by(KEY));
    refusal.says(&["no key service slot"]);
}

fn sealed_by(passphrase_file: &str) -> Vec<String> {
    vec![
        "--encryption=aes-256-gcm".to_owned(),
        format!("--passphrase-file={passphrase_file}"),
    ]
}

#[test]
fn a_key_of_kms_takes_the_place_of_a_passphrase_and_stays_beside_a_new_one() {
    let place = Place::new();
    let kms = Kms::start(Answer::Well);
    let by_kms = kms.opened_by(KEY);
    let file = |name: &str| secret(&place, name, name.as_bytes()).display().to_string();
    let (first, second) = (file("first words"), file("second words"));
    works(run(&place, &["format"], &sealed_by(&first)));
    let endpoint = format!("--endpoint={}", kms.service.url);
    let add = ["keys", "add-kms", KEY, &endpoint];

    let denied = Kms::start(Answer::Error(400, "AccessDeniedException"));
    let elsewhere = format!("--endpoint={}", denied.service.url);
    let add_denied = ["keys", "add-kms", KEY, &elsewhere];
    let refusal = refused(&place, &add_denied, &sealed_by(&first));
    refusal.says(&["AccessDeniedException", "kms:Encrypt"]);

    let added = works(run(&place, &add, &sealed_by(&first)));
    assert!(added.contains("slot 2"), "{added}");
    let (encrypt, decrypt) = ("TrentService.Encrypt", "TrentService.Decrypt");
    assert_eq!(kms.asked(), [encrypt, decrypt], "it is tried at once");
    let slots = &listed(&place)["slots"];
    assert_eq!(slots[1]["kind"], "service");
    assert_eq!(slots[1]["service"], "aws-kms");
    assert_eq!(slots[1]["key"], KEY);
    let table = works(run(&place, &["keys", "list"], &[]));
    assert!(table.contains(&format!("2     aws-kms {KEY}\n")), "{table}");

    let refusal = refused(&place, &["keys", "remove", "2"], &by_kms);
    refusal.says(&["slot 2", "key ring was opened with", "--kms-key"]);
    let change = format!("--new-passphrase-file={second}");
    let change = ["keys", "change-passphrase", &change];
    let changed = works(run(&place, &change, &sealed_by(&first)));
    assert!(changed.contains("slot 3 opens the volume now, and slot 1 is removed"));
    serve(&place, "data", &by_kms).stop_cleanly();
    serve(&place, "data", &sealed_by(&second)).stop_cleanly();
    works(run(&place, &["keys", "rotate"], &by_kms));
    // One more slot for the same service: its region comes from the settings, because the alias names none.
    let by_region = [by_kms.clone(), vec!["--kms-region=eu-west-3".to_owned()]].concat();
    let added = works(run(&place, &["keys", "add-kms", ALIAS], &by_region));
    assert!(added.contains("slot 4"), "{added}");
    let requests = kms.service.requests();
    let wrapped = requests.iter().rfind(|request| request.target == encrypt);
    let authorization = &wrapped.unwrap().authorization;
    assert!(authorization.contains("/eu-west-3/kms/"), "{authorization}");
    // The configured service is not asked for a key in another region.
    let other = KEY.replace("1234abcd", "5678abcd");
    let before = kms.asked().len();
    let add = command(&place, &["keys", "add-kms", &other], &by_region);
    let mut variables = CREDENTIALS.to_vec();
    variables.push(("AWS_ENDPOINT_URL_KMS", "http://127.0.0.1:1"));
    refused_with(&add, &variables).says(&["AWS KMS cannot be reached"]);
    let add = ["keys", "add-kms", &other, &endpoint];
    works(run(&place, &add, &by_region));
    assert_eq!(kms.asked().len(), before + 4);
    let requests = kms.service.requests();
    let wrapped = requests.iter().rfind(|request| request.target == encrypt);
    let authorization = &wrapped.unwrap().authorization;
    assert!(
        authorization.contains("/eu-central-1/kms/"),
        "{authorization}"
    );
    works(run(&place, &["keys", "remove", "3"], &by_kms));
    let refusal = refused(&place, &["serve"], &sealed_by(&second));
    refusal.says(&["no passphrase slot"]);
    serve(&place, "data", &by_kms).stop_cleanly();
}

/// The settings for the connection to S3 also apply to the connection to KMS.
#[test]
fn kms_is_reached_through_the_proxy_and_trusted_by_the_authorities_that_are_set() {
    let place = Place::new();
    let kms = Kms::start(Answer::Well);
    let (address, pem) = kms.with_tls();
    let proxy = kms.runtime.block_on(proxy::Proxy::start(address));
    let ca = place.path("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let mut flags = opened_by("https://kms.test", KEY);
    flags.push(format!("--s3-proxy={}", proxy.url));
    let refusal = refused(&place, &["format"], &flags);
    refusal.says(&["AWS KMS cannot be reached", "UnknownIssuer"]);
    assert!(kms.asked().is_empty());
    assert!(!place.bucket().join("forebay.volume").exists());
    flags.push(format!("--s3-ca={}", ca.display()));
    let made = run(&place, &["format"], &flags);
    works(made);
    assert_eq!(kms.asked().len(), 3);
    for line in proxy.asked() {
        assert_eq!(line, "CONNECT kms.test:443 HTTP/1.1");
    }
    let heads = proxy.heads();
    assert!(heads.iter().all(|head| !head.contains("X-Amz-Target")));

    let wrong = place.path("wrong.pem");
    std::fs::write(&wrong, "nothing").unwrap();
    let last = flags.len() - 1;
    flags[last] = format!("--s3-ca={}", wrong.display());
    let refusal = refused(&place, &["serve"], &flags);
    refusal.says(&["s3_ca", "no certificate"]);
}
