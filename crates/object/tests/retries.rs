//! Requests to a failing store: limits, repeats, budget, outage and recovery, by count.

use std::sync::Arc;
use std::time::Duration;

use forebay_object::faults::{FaultKind, Faults, FaultyStore, Request};
use forebay_object::{Fault, FileStore, RetrySettings, Store};
use futures_util::TryStreamExt;
use object_store::chunked::ChunkedStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode};
use tokio::time::Instant;

struct Scene {
    faults: Arc<Faults>,
    faulty: FaultyStore,
    store: Store,
}

impl Scene {
    fn new() -> Scene {
        let faults = Arc::<Faults>::default();
        let faulty = FaultyStore::new(Arc::new(InMemory::new()), Arc::clone(&faults));
        let settings = RetrySettings {
            seed: Some(1),
            ..RetrySettings::default()
        };
        let store = Store::new(
            Arc::new(faulty.clone()),
            Path::default(),
            "test".to_owned(),
            settings,
        );
        Scene {
            faults,
            faulty,
            store,
        }
    }

    async fn put(&self, name: &str) -> Result<(), Error> {
        let path = Path::from(name);
        self.store
            .store
            .put(&path, "0123456789".into())
            .await
            .map(drop)
    }

    async fn get(&self, name: &str) -> Result<bytes::Bytes, Error> {
        self.store.store.get(&Path::from(name)).await?.bytes().await
    }
}

/// The bodies of a whole object and of a range of it.
async fn parts_of(inner: Arc<dyn ObjectStore>, object: &[u8]) -> [Vec<bytes::Bytes>; 2] {
    let url = "test".to_owned();
    let store = Store::new(inner, Path::default(), url, RetrySettings::default()).store;
    let path = Path::from("object");
    store.put(&path, object.to_vec().into()).await.unwrap();
    let whole = store.get(&path).await.unwrap();
    let options = GetOptions::new().with_range(Some(2..object.len() as u64 - 1));
    let range = store.get_opts(&path, options).await.unwrap();
    [
        whole.into_stream().try_collect().await.unwrap(),
        range.into_stream().try_collect().await.unwrap(),
    ]
}

#[tokio::test]
async fn bodies_come_in_one_piece_whether_in_parts_or_out_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileStore::open(folder.path(), false).unwrap();
    let in_parts = ChunkedStore::new(Arc::new(InMemory::new()), 3000);
    let inner: [Arc<dyn ObjectStore>; 2] = [Arc::new(file), Arc::new(in_parts)];
    // Longer than the parts in which files are streamed.
    let object: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    for inner in inner {
        let expected = [[&object[..]], [&object[2..object.len() - 1]]];
        assert_eq!(parts_of(inner, &object).await, expected);
    }
}

#[tokio::test]
async fn a_body_that_comes_in_one_part_is_not_copied() {
    let [whole, range] = parts_of(Arc::new(InMemory::new()), b"0123456789").await;
    assert_eq!(range[0].as_ptr(), whole[0][2..].as_ptr());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_early_is_asked_for_again_and_never_handed_on() {
    let scene = Scene::new();
    scene.put("x").await.unwrap();
    for name in ["whole", "range"] {
        scene
            .faults
            .next(Request::Get, "x", FaultKind::ShortBody, 3);
        let got = if name == "whole" {
            scene.get("x").await.unwrap()
        } else {
            let path = Path::from("x");
            scene.store.store.get_range(&path, 0..10).await.unwrap()
        };
        assert_eq!(got, "0123456789", "{name}");
    }
    scene
        .faults
        .next(Request::Get, "x", FaultKind::ShortBody, 4);
    let error = scene.get("x").await.unwrap_err();
    assert!(error.to_string().contains("instead of 10"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_cut_off_and_repeated() {
    let scene = Scene::new();
    scene.faults.next(Request::Put, "x", FaultKind::Hang, 3);
    // The test also ends if no request is aborted.
    tokio::time::timeout(Duration::from_secs(3600), scene.put("x"))
        .await
        .expect("it is waited for")
        .unwrap();
    scene.faults.next(Request::Get, "x", FaultKind::Hang, 3);
    scene.get("x").await.unwrap();
    scene.faults.next(Request::Delete, "x", FaultKind::Hang, 3);
    scene.store.store.delete(&Path::from("x")).await.unwrap();
    assert_eq!(scene.faults.injected()[&FaultKind::Hang], 9);

    scene.faults.next(Request::List, "", FaultKind::Hang, 4);
    let error = scene.store.store.list(None).try_collect::<Vec<_>>().await;
    assert_eq!(Fault::of(&error.unwrap_err()), Fault::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_create_is_not_repeated_unless_nothing_was_done() {
    let scene = Scene::new();
    let create = async |name: &str| {
        let path = Path::from(name);
        let mode = PutMode::Create.into();
        scene.store.store.put_opts(&path, "x".into(), mode).await
    };
    scene
        .faults
        .next(Request::Put, "lost", FaultKind::LostAnswer, 1);
    let lost = create("lost").await;
    assert!(
        matches!(lost, Err(Error::Generic { .. })),
        "a conflict with itself: {lost:?}"
    );
    assert_eq!(scene.get("lost").await.unwrap(), "x");

    scene
        .faults
        .next(Request::Put, "slow", FaultKind::SlowDown, 3);
    create("slow").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn puts_and_deletes_that_worked_are_repeated_without_harm() {
    let scene = Scene::new();
    scene
        .faults
        .next(Request::Put, "x", FaultKind::LostAnswer, 3);
    scene.put("x").await.unwrap();
    scene
        .faults
        .next(Request::Delete, "x", FaultKind::LostAnswer, 1);
    scene.store.store.delete(&Path::from("x")).await.unwrap();
    assert!(matches!(scene.get("x").await, Err(Error::NotFound { .. })));
}

/// Ten callers at a store that fails every third request.
#[tokio::test(start_paused = true)]
async fn repeats_that_fail_stay_within_the_budget() {
    let scene = Arc::new(Scene::new());
    for (probability, name) in [(0.33, "a third"), (0.8, "most")] {
        scene
            .faults
            .fail_at_random(FaultKind::ServerError, probability);
        let failed_before = *scene
            .faults
            .injected()
            .get(&FaultKind::ServerError)
            .unwrap_or(&0);
        let before = scene.faulty.counts().puts;
        let mut calls = tokio::task::JoinSet::new();
        for caller in 0..10 {
            let scene = Arc::clone(&scene);
            calls.spawn(async move {
                for i in 0..100 {
                    // This caller does not repeat a request that has failed for good.
                    let _ = scene.put(&format!("{caller} {i}")).await;
                }
            });
        }
        calls.join_all().await;
        let succeeded = scene.faulty.counts().puts - before;
        let failed = scene.faults.injected()[&FaultKind::ServerError] - failed_before;
        eprintln!("{name}: of 1000 calls {succeeded} succeeded, with {failed} failures");
        // One try each, the successful repeats, and the budget of the failed ones.
        assert!(failed + succeeded <= 1000 + 20 + succeeded * 6 / 5);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_noticed_costs_a_trickle_and_its_end_is_noticed() {
    let scene = Scene::new();
    scene.put("x").await.unwrap();
    scene.faults.set_down(true);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3600) {
        let error = scene.get("x").await.unwrap_err();
        assert!(Fault::of(&error).is_transient(), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let asked = scene.faults.refused();
    assert!((240..=600).contains(&asked), "{asked} requests in an hour");
    let (why, since) = scene.store.health.outage().unwrap();
    assert!(
        why.contains("down") && since > Duration::from_secs(3500),
        "{why} {since:?}"
    );

    scene.faults.set_down(false);
    let back = Instant::now();
    while scene.get("x").await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        back.elapsed() <= Duration::from_secs(16),
        "{:?}",
        back.elapsed()
    );
    assert!(scene.store.health.outage().is_none());
}

#[tokio::test(start_paused = true)]
async fn when_a_store_is_back_a_thousand_callers_are_no_storm() {
    let scene = Arc::new(Scene::new());
    scene.put("x").await.unwrap();
    scene.faults.set_down(true);
    for _ in 0..6 {
        let _ = scene.get("x").await;
    }
    assert!(scene.store.health.outage().is_some());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let scene = Arc::clone(&scene);
        calls.spawn(async move {
            while scene.get("x").await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.faults.everything.close();
    scene.faults.set_down(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.faults.everything.held(), 1, "one probe");
    scene.faults.everything.open();
    calls.join_all().await;
    let gets = scene.faulty.counts().gets;
    assert_eq!(gets, 1000, "each caller asked the store once");
}
