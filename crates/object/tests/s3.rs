//! Properties of the store on S3.

mod support;

use forebay_object::{Fault, Restore, RestoreTier, Store, StoreOptions, open};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use support::memory_s3::{Behaviour, Server};

async fn open_volume(server: &Server, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = server.options();
    change(&mut options);
    open("s3://bucket/a/volume", &options).await.unwrap()
}

async fn round_trip(store: &Store) {
    let bytes = vec![7; 300_000];
    let payload = PutPayload::from(bytes.clone());
    let path = store.path("x");
    store.store.put(&path, payload).await.unwrap();
    assert!(store.store.get(&path).await.unwrap().bytes().await.unwrap() == bytes);
    let mut upload = store.store.put_multipart(&store.path("y")).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    upload.complete().await.unwrap();
}

#[tokio::test]
async fn payloads_may_be_left_out_of_the_signature() {
    let server = Server::start(Behaviour::default()).await;
    round_trip(&open_volume(&server, |options| options.unsigned_payload = true).await).await;
}

#[tokio::test]
async fn a_volume_at_the_root_of_a_bucket_has_no_prefix() {
    let server = Server::start(Behaviour::default()).await;
    let store = open("s3://bucket", &server.options()).await.unwrap();
    assert_eq!(store.root, Path::default());
    round_trip(&store).await;
    let listed: Vec<_> = store.store.list(None).collect().await;
    assert_eq!(listed.len(), 2);
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_not_reported_as_a_conflict_with_itself() {
    let server = Server::start(Behaviour {
        loses_answers_to_puts: true,
        ..Behaviour::default()
    })
    .await;
    let store = open_volume(&server, |_| {}).await;
    let path = store.path("x");
    let created = store
        .store
        .put_opts(&path, "x".into(), PutMode::Create.into())
        .await;
    // The object exists; the caller has to find that out.
    assert!(matches!(created, Err(Error::Generic { .. })), "{created:?}");
    assert_eq!(
        store.store.get(&path).await.unwrap().bytes().await.unwrap(),
        "x"
    );
}

#[tokio::test]
async fn a_conditional_put_is_sent_again_when_the_server_did_nothing() {
    let server = Server::start(Behaviour {
        conflicts: 2,
        ..Behaviour::default()
    })
    .await;
    let store = open_volume(&server, |_| {}).await;
    let path = store.path("x");
    let created = store
        .store
        .put_opts(&path, "x".into(), PutMode::Create.into())
        .await;
    created.unwrap();
}

#[tokio::test]
async fn an_unconditional_put_outlives_a_failure_of_the_server() {
    let server = Server::start(Behaviour {
        failures: 2,
        ..Behaviour::default()
    })
    .await;
    let store = open_volume(&server, |_| {}).await;
    store.store.put(&store.path("x"), "x".into()).await.unwrap();
}

#[tokio::test]
async fn an_archived_object_is_named_and_restored_only_if_asked() {
    let behaviour = Behaviour {
        archives: Some(3),
        ..Behaviour::default()
    };
    let server = Server::start(behaviour).await;
    let asked = Restore::As {
        tier: RestoreTier::Standard,
        days: 3,
    };
    for (restore, can_be_read) in [(Restore::Off, false), (asked, true)] {
        let store = open_volume(&server, |options| options.restore = restore).await;
        let path = store.path("packs/archived");
        store.store.put(&path, "bytes".into()).await.unwrap();
        for _ in 0..2 {
            let error = match store.store.get(&path).await {
                Ok(found) => {
                    assert!(can_be_read);
                    assert_eq!(found.bytes().await.unwrap(), "bytes");
                    continue;
                }
                Err(error) => error,
            };
            assert_eq!(Fault::of(&error), Fault::Archived);
            let text = format!("{error} {:?}", error);
            assert!(text.contains("packs/archived is archived"), "{text}");
        }
        assert_eq!(store.store.get(&path).await.is_ok(), can_be_read);
        // An answer, and no sign of an outage.
        assert!(store.health.outage().is_none());
    }
}
