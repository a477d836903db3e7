//! The headers of puts: checksums, encryption, storage class, tags.

mod support;

use forebay_object::{Checksum, Encryption, Fault, Store, StoreOptions, open};
use futures_util::{StreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use support::memory_s3::Behaviour;
use support::server::{Seen, Server};

const MD5_E_TAGS: Behaviour = Behaviour {
    ignores_conditions: false,
    denies: false,
    loses_answers_to_puts: false,
    conflicts: 0,
    failures: 0,
    needs_no_checksum: false,
    md5_e_tags_after: Some(0),
    archives: None,
};

async fn open_with(server: &Server, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = server.options();
    change(&mut options);
    open("s3://bucket/volume", &options).await.unwrap()
}

/// Puts a pack, an object of metadata, and one in parts; deletes two.
async fn use_it(store: &Store) {
    let put = |name: &str, bytes: Vec<u8>, options| {
        let path = store.path(name);
        async move {
            store
                .store
                .put_opts(&path, PutPayload::from(bytes), options)
                .await
        }
    };
    let data = store.data_options.clone();
    put("packs/01", vec![7; 700_000], data).await.unwrap();
    put("manifest", vec![1; 10], PutMode::Create.into())
        .await
        .unwrap();
    let mut upload = store
        .store
        .put_multipart(&store.path("table"))
        .await
        .unwrap();
    upload
        .put_part(PutPayload::from(vec![2; 300_000]))
        .await
        .unwrap();
    upload.complete().await.unwrap();
    let gone = ["packs/01", "manifest"].map(|name| Ok(store.path(name)));
    let deleted: Vec<_> = store
        .store
        .delete_stream(stream::iter(gone).boxed())
        .collect()
        .await;
    assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
}

/// The puts of a pack, of metadata, the beginning of an upload in parts and a part of it.
fn puts(server: &Server) -> [Seen; 4] {
    let last = |method, text| server.seen(method, text).pop().unwrap();
    [
        last("PUT", "/packs/01"),
        last("PUT", "/manifest"),
        last("POST", "uploads"),
        last("PUT", "partNumber"),
    ]
}

#[tokio::test]
async fn nothing_is_asked_for_that_was_not_set() {
    let server = Server::start(Behaviour::default()).await;
    use_it(&open_with(&server, |_| {}).await).await;
    for put in puts(&server) {
        for absent in [
            "x-amz-storage-class",
            "x-amz-tagging",
            "x-amz-server-side-encryption",
            "content-md5",
        ] {
            assert_eq!(put.header(absent), None, "{put:?}");
        }
    }
    let [pack, manifest, begin, part] = puts(&server);
    for put in [&pack, &manifest, &part] {
        assert!(put.header("x-amz-checksum-crc32").is_some(), "{put:?}");
    }
    assert_eq!(begin.header("x-amz-checksum-algorithm"), Some("CRC32"));
}

#[tokio::test]
async fn packs_have_the_storage_class_and_the_tags_and_metadata_have_not() {
    let server = Server::start(Behaviour::default()).await;
    let store = open_with(&server, |options| {
        options.storage_class = Some("STANDARD_IA".to_owned());
        options.tags = [("project", "a b&c"), ("kind", "pack")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    });
    use_it(&store.await).await;
    let [pack, others @ ..] = puts(&server);
    assert_eq!(pack.header("x-amz-storage-class"), Some("STANDARD_IA"));
    assert_eq!(
        pack.header("x-amz-tagging"),
        Some("project=a+b%26c&kind=pack")
    );
    for put in others {
        assert_eq!(put.header("x-amz-storage-class"), None, "{put:?}");
        assert_eq!(put.header("x-amz-tagging"), None, "{put:?}");
    }
}

#[tokio::test]
async fn everything_is_encrypted_as_was_asked_for() {
    let key = "arn:aws:kms:eu-central-1:1:key/k";
    for (encryption, sse, kms_key) in [
        (Encryption::Aes256, "AES256", None),
        (Encryption::Kms { key: None }, "aws:kms", None),
        (
            Encryption::Kms {
                key: Some(key.to_owned()),
            },
            "aws:kms",
            Some(key),
        ),
    ] {
        let server = Server::start(Behaviour::default()).await;
        let store = open_with(&server, |options| options.encryption = encryption).await;
        use_it(&store).await;
        let [pack, manifest, begin, part] = puts(&server);
        store
            .store
            .copy(&store.path("table"), &store.path("copy"))
            .await
            .unwrap();
        let copy = server.seen("PUT", "/copy").pop().unwrap();
        for put in [pack, manifest, begin, copy] {
            assert_eq!(
                put.header("x-amz-server-side-encryption"),
                Some(sse),
                "{put:?}"
            );
            let named = put.header("x-amz-server-side-encryption-aws-kms-key-id");
            assert_eq!(named, kms_key, "{put:?}");
        }
        // The start of the upload has set it.
        assert_eq!(part.header("x-amz-server-side-encryption"), None);
    }
}

#[tokio::test]
async fn an_md5_takes_the_place_of_the_crc32_everywhere() {
    let server = Server::start(MD5_E_TAGS).await;
    use_it(&open_with(&server, |options| options.checksum = Checksum::Md5).await).await;
    let [pack, manifest, begin, part] = puts(&server);
    let delete = server.seen("POST", "delete").pop().unwrap();
    for request in [pack, manifest, part, delete] {
        assert!(request.header("content-md5").is_some(), "{request:?}");
        for absent in ["x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"] {
            assert_eq!(request.header(absent), None, "{request:?}");
        }
        let signed = request.header("authorization").unwrap();
        assert!(signed.contains("content-md5"), "{signed}");
    }
    assert_eq!(begin.header("x-amz-checksum-algorithm"), None);
}

#[tokio::test]
async fn an_upload_may_go_without_a_checksum() {
    let server = Server::start(Behaviour {
        needs_no_checksum: true,
        ..Behaviour::default()
    })
    .await;
    use_it(&open_with(&server, |options| options.checksum = Checksum::Off).await).await;
    let [pack, manifest, begin, part] = puts(&server);
    for put in [pack, manifest, begin, part] {
        for absent in [
            "content-md5",
            "x-amz-checksum-crc32",
            "x-amz-checksum-algorithm",
        ] {
            assert_eq!(put.header(absent), None, "{put:?}");
        }
    }
}

#[tokio::test]
async fn what_was_stored_wrong_is_put_again() {
    let server = Server::start(Behaviour {
        md5_e_tags_after: Some(2),
        ..MD5_E_TAGS
    })
    .await;
    let store = open_with(&server, |options| options.checksum = Checksum::Md5).await;
    store
        .store
        .put(&store.path("x"), "bytes".into())
        .await
        .unwrap();
    assert_eq!(server.seen("PUT", "/volume/x").len(), 3);
}

#[tokio::test]
async fn a_part_that_was_stored_wrong_is_put_again() {
    let server = Server::start(Behaviour {
        md5_e_tags_after: Some(2),
        ..MD5_E_TAGS
    })
    .await;
    let store = open_with(&server, |options| options.checksum = Checksum::Md5).await;
    let mut upload = store.store.put_multipart(&store.path("x")).await.unwrap();
    upload.put_part("bytes".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(server.seen("PUT", "partNumber").len(), 3);
    let got = store.store.get(&store.path("x")).await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), "bytes");
}

#[tokio::test]
async fn a_server_whose_etags_are_other_sums_is_told_from_a_good_one() {
    let server = Server::start(Behaviour::default()).await;
    let store = open_with(&server, |options| options.checksum = Checksum::Md5).await;
    let refused = store.store.put(&store.path("x"), "bytes".into()).await;
    let error = refused.unwrap_err();
    assert_eq!(Fault::of(&error), Fault::Transient);
    assert!(error.to_string().contains("s3_checksum"), "{error}");
}
