//! Options of the store on S3 with real servers: which options they accept, and what they report afterwards.

use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_s3::operation::head_object::HeadObjectOutput;
use aws_sdk_s3::types::{ServerSideEncryption, StorageClass};
use forebay_object::{Checksum, Encryption, LinkLimit, Store, StoreOptions, probe};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::support::authority::Authority;
use crate::support::real_s3::Server;

/// Puts a pack and an object of metadata, in one piece and in parts, reads and deletes them.
async fn use_it(store: &Store) {
    probe(store).await.unwrap();
    let bytes = vec![7; 700_000];
    let pack = store.path("packs/01");
    let options = store.data_options.clone();
    let payload = PutPayload::from(bytes.clone());
    store.store.put_opts(&pack, payload, options).await.unwrap();
    let got = store.store.get(&pack).await.unwrap();
    assert!(got.bytes().await.unwrap() == bytes);
    let mut upload = store
        .store
        .put_multipart(&store.path("table"))
        .await
        .unwrap();
    for len in [5 << 20, 10] {
        upload
            .put_part(PutPayload::from(vec![1; len]))
            .await
            .unwrap();
    }
    upload.complete().await.unwrap();
    for name in ["b", "c"] {
        store
            .store
            .put(&store.path(name), name.into())
            .await
            .unwrap();
    }
    let gone = ["b", "c"].map(|name| Ok(store.path(name)));
    let gone: Vec<_> = store
        .store
        .delete_stream(stream::iter(gone).boxed())
        .collect()
        .await;
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
}

/// A separate client, for requests that the store does not make.
struct Inspector(Client);

impl Inspector {
    fn new(options: &StoreOptions) -> Inspector {
        let own = options.credentials.as_ref().unwrap();
        let (key, secret) = (&own.access_key_id, &own.secret_access_key);
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http)
            .credentials_provider(Credentials::new(key, secret, None, None, "test"))
            .region(Region::new("us-east-1"))
            .endpoint_url(options.endpoint_url.as_ref().unwrap())
            .force_path_style(true)
            .build();
        Inspector(Client::from_conf(config))
    }

    async fn head(&self, path: &Path) -> HeadObjectOutput {
        let head = self.0.head_object().bucket("bucket").key(path.as_ref());
        head.send().await.unwrap()
    }

    async fn tags(&self, path: &Path) -> Vec<(String, String)> {
        let tags = self
            .0
            .get_object_tagging()
            .bucket("bucket")
            .key(path.as_ref());
        let tags = tags.send().await.unwrap().tag_set;
        tags.into_iter().map(|tag| (tag.key, tag.value)).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn every_kind_of_checksum_is_accepted() {
    let server = Server::start(None);
    for checksum in [Checksum::Crc32, Checksum::Md5, Checksum::Off] {
        let options = StoreOptions {
            checksum,
            ..server.options()
        };
        use_it(&server.open(&options).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn packs_have_their_tags_and_metadata_have_none() {
    let server = Server::start(None);
    let tags = vec![
        ("kind".to_owned(), "pack".to_owned()),
        ("project".to_owned(), "a b".to_owned()),
    ];
    let options = StoreOptions {
        tags: tags.clone(),
        ..server.options()
    };
    let store = server.open(&options).await;
    use_it(&store).await;
    let inspector = Inspector::new(&options);
    let mut found = inspector.tags(&store.path("packs/01")).await;
    found.sort();
    assert_eq!(found, tags);
    if server.is_minio {
        assert_eq!(inspector.tags(&store.path("table")).await, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn on_minio_packs_have_their_storage_class_and_metadata_have_not() {
    let server = Server::start(None);
    assert!(server.is_minio, "versitygw has none");
    let options = StoreOptions {
        storage_class: Some("REDUCED_REDUNDANCY".to_owned()),
        ..server.options()
    };
    let store = server.open(&options).await;
    use_it(&store).await;
    let inspector = Inspector::new(&options);
    let pack = inspector.head(&store.path("packs/01")).await;
    assert_eq!(pack.storage_class, Some(StorageClass::ReducedRedundancy));
    assert_eq!(
        inspector.head(&store.path("table")).await.storage_class,
        None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn on_minio_everything_is_encrypted_as_was_asked_for() {
    let server = Server::start(None);
    assert!(server.is_minio, "versitygw has none");
    let key = Some("forebay".to_owned());
    for (encryption, expected) in [
        (Encryption::Aes256, ServerSideEncryption::Aes256),
        (Encryption::Kms { key: None }, ServerSideEncryption::AwsKms),
        (Encryption::Kms { key }, ServerSideEncryption::AwsKms),
    ] {
        // An object that a key of the key management encrypts has an ETag that is no MD5.
        let options = StoreOptions {
            encryption,
            checksum: Checksum::Md5,
            ..server.options()
        };
        let store = server.open(&options).await;
        use_it(&store).await;
        for name in ["packs/01", "table"] {
            let head = Inspector::new(&options).head(&store.path(name)).await;
            assert_eq!(
                head.server_side_encryption,
                Some(expected.clone()),
                "{name}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn a_server_with_a_certificate_of_its_own_is_spoken_to() {
    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1"]);
    let server = Server::start(Some(&identity));
    let ca = server.folder().join("ca.pem");
    std::fs::write(&ca, &authority.pem).unwrap();
    let options = StoreOptions {
        ca: Some(ca),
        ..server.options()
    };
    use_it(&server.open(&options).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
async fn a_limit_takes_its_time_and_fails_nothing() {
    const MIB: usize = 1 << 20;
    let server = Server::start(None);
    let limit = LinkLimit {
        otherwise: Some(4 * MIB as u64),
        hours: Vec::new(),
    };
    let options = StoreOptions {
        upload_limit: limit.clone(),
        download_limit: limit,
        ..server.options()
    };
    let store = server.open(&options).await;
    // 12 MiB in each direction, less the bytes that may be ahead.
    let least = Duration::from_millis(2800);
    let names: Vec<_> = (0..6).map(|name| store.path(&name.to_string())).collect();
    let bytes = vec![7; 2 * MIB];
    let began = Instant::now();
    let puts = names
        .iter()
        .map(|path| store.store.put(path, bytes.clone().into()));
    for put in join_all(puts).await {
        put.unwrap();
    }
    let took = began.elapsed();
    assert!(took >= least, "{took:?}");
    let began = Instant::now();
    let gets = names.iter().map(async |path| {
        let got = store.store.get(path).await?;
        got.bytes().await
    });
    for got in join_all(gets).await {
        assert!(got.unwrap() == bytes);
    }
    let took = began.elapsed();
    assert!(took >= least, "{took:?}");
}
