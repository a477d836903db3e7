//! Cases that every store has to pass.

use std::sync::Arc;

use bytes::Bytes;
use forebay_object::{Store, probe};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, MultipartUpload, ObjectStore,
    ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion,
};

async fn put(store: &Store, name: &str, bytes: &'static [u8], mode: PutMode) -> Result<PutResult> {
    let payload = PutPayload::from_static(bytes);
    store
        .store
        .put_opts(&store.path(name), payload, mode.into())
        .await
}

async fn get(store: &Store, name: &str) -> Result<Bytes> {
    store.store.get(&store.path(name)).await?.bytes().await
}

async fn names(store: &Store, prefix: &str) -> Vec<String> {
    let listed = store.store.list(Some(&store.path(prefix)));
    sorted(
        store,
        listed
            .map_ok(|object| object.location)
            .try_collect()
            .await
            .unwrap(),
    )
}

fn sorted(store: &Store, locations: Vec<Path>) -> Vec<String> {
    let root = if store.root.as_ref().is_empty() {
        String::new()
    } else {
        format!("{}/", store.root)
    };
    let mut names: Vec<_> = locations
        .iter()
        .map(|location| location.as_ref().strip_prefix(&root).unwrap().to_owned())
        .collect();
    names.sort();
    names
}

pub(crate) async fn probe_accepts_the_store_and_leaves_nothing_behind(store: &Store) {
    probe(store).await.unwrap();
    assert_eq!(names(store, "probe").await, [""; 0]);
}

pub(crate) async fn an_object_is_put_read_overwritten_and_deleted(store: &Store) {
    let created = put(store, "o/x", b"first", PutMode::Overwrite)
        .await
        .unwrap();
    assert_eq!(get(store, "o/x").await.unwrap(), "first");
    let meta = store.store.head(&store.path("o/x")).await.unwrap();
    assert_eq!((meta.size, &meta.e_tag), (5, &created.e_tag));
    assert_eq!(meta.location, store.path("o/x"));
    let age = meta.last_modified.timestamp() - now_s();
    assert!(age.abs() < 60, "{age} s off");

    let overwritten = put(store, "o/x", b"second", PutMode::Overwrite)
        .await
        .unwrap();
    assert_ne!(created.e_tag, overwritten.e_tag);
    assert_eq!(get(store, "o/x").await.unwrap(), "second");

    store.store.delete(&store.path("o/x")).await.unwrap();
    assert!(matches!(
        get(store, "o/x").await,
        Err(Error::NotFound { .. })
    ));
    let head = store.store.head(&store.path("o/x")).await;
    assert!(matches!(head, Err(Error::NotFound { .. })));
}

fn now_s() -> i64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .cast_signed()
}

pub(crate) async fn an_object_may_be_empty_large_or_in_many_pieces(store: &Store) {
    put(store, "l/empty", b"", PutMode::Overwrite)
        .await
        .unwrap();
    assert_eq!(get(store, "l/empty").await.unwrap(), "");

    let pieces: Vec<_> = (0..40_u8).map(|n| Bytes::from(vec![n; 100_000])).collect();
    let whole: Vec<u8> = pieces.concat();
    let payload: PutPayload = pieces.into_iter().collect();
    store
        .store
        .put(&store.path("l/large"), payload)
        .await
        .unwrap();
    assert!(get(store, "l/large").await.unwrap() == whole);
}

pub(crate) async fn ranges_are_exact(store: &Store) {
    put(store, "r", b"0123456789", PutMode::Overwrite)
        .await
        .unwrap();
    let path = store.path("r");
    let range = async |range: GetRange| {
        let options = GetOptions::new().with_range(Some(range));
        let result = store.store.get_opts(&path, options).await?;
        assert_eq!(result.meta.size, 10);
        let range = result.range.clone();
        Ok::<_, Error>((range, result.bytes().await?))
    };
    let whole = |bytes: &'static str, at: std::ops::Range<u64>| (at, Bytes::from(bytes));
    assert_eq!(range((2..5).into()).await.unwrap(), whole("234", 2..5));
    assert_eq!(range((0..1).into()).await.unwrap(), whole("0", 0..1));
    assert_eq!(range((8..99).into()).await.unwrap(), whole("89", 8..10));
    assert_eq!(
        range(GetRange::Offset(7)).await.unwrap(),
        whole("789", 7..10)
    );
    assert_eq!(
        range(GetRange::Suffix(3)).await.unwrap(),
        whole("789", 7..10)
    );
    assert!(range((10..11).into()).await.is_err());
    assert!(range(GetRange::Bounded(3..3)).await.is_err());

    let parts = store
        .store
        .get_ranges(&path, &[0..2, 4..6, 9..10])
        .await
        .unwrap();
    assert_eq!(parts, ["01", "45", "9"]);
}

pub(crate) async fn gets_obey_their_conditions(store: &Store) {
    let first = put(store, "c/get", b"first", PutMode::Overwrite)
        .await
        .unwrap();
    let second = put(store, "c/get", b"second", PutMode::Overwrite)
        .await
        .unwrap();
    let path = store.path("c/get");
    let with = async |options: GetOptions| store.store.get_opts(&path, options).await;

    for head in [false, true] {
        let options = || GetOptions::new().with_head(head);
        with(options().with_if_match(second.e_tag.clone()))
            .await
            .unwrap();
        let stale = with(options().with_if_match(first.e_tag.clone())).await;
        assert!(
            matches!(stale, Err(Error::Precondition { .. })),
            "{stale:?}"
        );
        with(options().with_if_none_match(first.e_tag.clone()))
            .await
            .unwrap();
        let same = with(options().with_if_none_match(second.e_tag.clone())).await;
        assert!(matches!(same, Err(Error::NotModified { .. })), "{same:?}");
    }
}

pub(crate) async fn a_create_meets_an_object_and_leaves_it_alone(store: &Store) {
    put(store, "c/new", b"mine", PutMode::Create).await.unwrap();
    let again = put(store, "c/new", b"yours", PutMode::Create).await;
    assert!(
        matches!(again, Err(Error::AlreadyExists { .. })),
        "{again:?}"
    );
    assert_eq!(get(store, "c/new").await.unwrap(), "mine");
}

pub(crate) async fn of_many_creates_at_once_one_wins(store: &Store) {
    let path = store.path("c/race");
    let rivals = (0..8_u8).map(|rival| {
        let payload = PutPayload::from(vec![rival; 1000]);
        store.store.put_opts(&path, payload, PutMode::Create.into())
    });
    let results: Vec<_> = stream::iter(rivals).buffer_unordered(8).collect().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for lost in results.into_iter().filter_map(Result::err) {
        assert!(matches!(lost, Error::AlreadyExists { .. }), "{lost}");
    }
    let bytes = get(store, "c/race").await.unwrap();
    assert!(bytes.len() == 1000 && bytes.iter().all(|byte| *byte == bytes[0]));
}

pub(crate) async fn an_update_replaces_only_the_version_that_it_names(store: &Store) {
    let first = put(store, "c/up", b"first", PutMode::Create).await.unwrap();
    let first = UpdateVersion::from(first);
    let second = put(store, "c/up", b"other", PutMode::Update(first.clone()))
        .await
        .unwrap();
    let stale = put(store, "c/up", b"stale", PutMode::Update(first.clone())).await;
    assert!(
        matches!(stale, Err(Error::Precondition { .. })),
        "{stale:?}"
    );
    assert_eq!(get(store, "c/up").await.unwrap(), "other");

    // The ETag of a listing works for it as well.
    let meta = store.store.head(&store.path("c/up")).await.unwrap();
    assert_eq!(meta.e_tag, second.e_tag);
    put(store, "c/up", b"third", PutMode::Update(second.into()))
        .await
        .unwrap();

    let gone = put(store, "c/gone", b"new", PutMode::Update(first)).await;
    assert!(matches!(gone, Err(Error::Precondition { .. })), "{gone:?}");
    assert!(matches!(
        get(store, "c/gone").await,
        Err(Error::NotFound { .. })
    ));
}

pub(crate) async fn of_many_updates_at_once_none_is_lost(store: &Store) {
    put(store, "c/count", b"0", PutMode::Create).await.unwrap();
    let increments = (0..4).map(|_| async {
        let path = store.path("c/count");
        loop {
            let got = store.store.get(&path).await.unwrap();
            let version = UpdateVersion {
                e_tag: got.meta.e_tag.clone(),
                version: got.meta.version.clone(),
            };
            let text = String::from_utf8(got.bytes().await.unwrap().to_vec()).unwrap();
            let next = (text.parse::<u32>().unwrap() + 1).to_string();
            let mode = PutMode::Update(version);
            match store.store.put_opts(&path, next.into(), mode.into()).await {
                Ok(_) => break,
                Err(Error::Precondition { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    stream::iter(increments)
        .buffer_unordered(4)
        .collect::<Vec<()>>()
        .await;
    assert_eq!(get(store, "c/count").await.unwrap(), "4");
}

pub(crate) async fn listings_follow_whole_path_segments(store: &Store) {
    for name in [
        "t/a/1", "t/a/2", "t/a/b/3", "t/ab/4", "t/c", "t/d/5", "t/e/6",
    ] {
        put(store, name, b"x", PutMode::Overwrite).await.unwrap();
    }
    assert_eq!(names(store, "t/a").await, ["t/a/1", "t/a/2", "t/a/b/3"]);
    assert_eq!(names(store, "t").await.len(), 7);
    assert_eq!(names(store, "t/none").await, [""; 0]);

    let prefix = store.path("t");
    let after = store
        .store
        .list_with_offset(Some(&prefix), &store.path("t/a/b/3"));
    let after = after
        .map_ok(|object| object.location)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(sorted(store, after), ["t/ab/4", "t/c", "t/d/5", "t/e/6"]);

    let level = store
        .store
        .list_with_delimiter(Some(&prefix))
        .await
        .unwrap();
    assert_eq!(
        sorted(store, level.common_prefixes),
        ["t/a", "t/ab", "t/d", "t/e"]
    );
    let objects = level.objects.into_iter().map(|object| object.location);
    assert_eq!(sorted(store, objects.collect()), ["t/c"]);
}

pub(crate) async fn many_objects_are_deleted_in_one_go(store: &Store) {
    let mut locations = Vec::new();
    for n in 0..20 {
        put(store, &format!("d/{n:02}"), b"x", PutMode::Overwrite)
            .await
            .unwrap();
        locations.push(store.path(&format!("d/{n:02}")));
    }
    let kept = locations.pop().unwrap();
    let stream = stream::iter(locations.clone().into_iter().map(Ok)).boxed();
    let deleted: Vec<_> = store
        .store
        .delete_stream(stream)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(deleted, locations);
    assert_eq!(names(store, "d").await, ["d/19"]);
    store.store.delete(&kept).await.unwrap();
}

pub(crate) async fn an_upload_in_parts_appears_when_it_is_complete(store: &Store) {
    let path = store.path("m/whole");
    let mut upload = store.store.put_multipart(&path).await.unwrap();
    let part = |byte: u8| PutPayload::from(vec![byte; 5 << 20]);
    let (first, second) = (upload.put_part(part(1)), upload.put_part(part(2)));
    // The parts may arrive in any order.
    second.await.unwrap();
    first.await.unwrap();
    upload
        .put_part(PutPayload::from_static(b"end"))
        .await
        .unwrap();
    assert_eq!(names(store, "m").await, [""; 0]);
    let result = upload.complete().await.unwrap();
    let bytes = get(store, "m/whole").await.unwrap();
    assert_eq!(bytes.len(), (10 << 20) + 3);
    assert!(bytes[..5 << 20].iter().all(|byte| *byte == 1));
    assert!(bytes[5 << 20..10 << 20].iter().all(|byte| *byte == 2));
    assert_eq!(bytes[10 << 20..], *b"end");
    let meta = store.store.head(&path).await.unwrap();
    assert_eq!(meta.e_tag, result.e_tag);

    let mut aborted = store
        .store
        .put_multipart(&store.path("m/aborted"))
        .await
        .unwrap();
    aborted.put_part(part(3)).await.unwrap();
    MultipartUpload::abort(aborted.as_mut()).await.unwrap();
    let mut empty = store
        .store
        .put_multipart(&store.path("m/empty"))
        .await
        .unwrap();
    empty.complete().await.unwrap();
    assert_eq!(names(store, "m").await, ["m/empty", "m/whole"]);
}

pub(crate) async fn an_object_is_copied_and_renamed(store: &Store) {
    let (from, copy, moved) = (
        store.path("y/a b%"),
        store.path("y/copy"),
        store.path("y/moved"),
    );
    store.store.put(&from, "body".into()).await.unwrap();
    store.store.copy(&from, &copy).await.unwrap();
    store.store.rename(&copy, &moved).await.unwrap();
    assert!(matches!(
        get(store, "y/copy").await,
        Err(Error::NotFound { .. })
    ));
    assert_eq!(get(store, "y/moved").await.unwrap(), "body");
}

/// SlateDB marks its conditional puts with an attribute if a store supports attributes, and does
/// without if the store reports that it does not.
pub(crate) async fn attributes_come_back_or_are_refused(store: &Store) {
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::ContentType, "text/plain".into());
    attributes.insert(Attribute::Metadata("slatedbputid".into()), "id 1".into());
    let options = PutOptions {
        mode: PutMode::Create,
        attributes: attributes.clone(),
        ..PutOptions::default()
    };
    let path = store.path("a");
    match store.store.put_opts(&path, "x".into(), options).await {
        Ok(_) => {
            for head in [false, true] {
                let options = GetOptions::new().with_head(head);
                let got = store.store.get_opts(&path, options).await.unwrap();
                assert_eq!(got.attributes, attributes);
            }
        }
        Err(Error::NotImplemented { .. }) => {
            assert!(matches!(get(store, "a").await, Err(Error::NotFound { .. })));
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn every_request_is_counted(store: &Store) {
    let counting = Arc::new(forebay_object::CountingStore::new(store.store.clone()));
    let counted = Store {
        store: counting.clone(),
        ..store.clone()
    };
    put(&counted, "n/a", b"1234", PutMode::Overwrite)
        .await
        .unwrap();
    get(&counted, "n/a").await.unwrap();
    counted
        .store
        .get_range(&store.path("n/a"), 1..3)
        .await
        .unwrap();
    counted.store.head(&store.path("n/a")).await.unwrap();
    names(&counted, "n").await;
    counted.store.delete(&store.path("n/a")).await.unwrap();
    let counts = counting.counts();
    assert_eq!((counts.puts, counts.gets, counts.heads), (1, 2, 1));
    assert_eq!((counts.lists, counts.deletes), (1, 1));
    assert_eq!((counts.bytes_put, counts.bytes_got), (4, 4 + 2));
    assert_eq!(counts.requests(), 6);
}
