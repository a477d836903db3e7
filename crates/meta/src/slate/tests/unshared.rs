//! Keys that may differ between two kept states.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::slate::keys_that_may_differ;

async fn kept(bucket: &TestBucket, name: &str) -> SlateReader {
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let (path, timeout) = (Path::from("volume/meta"), settings().timeout);
    let opened = SlateReader::open_kept(store, path, name, timeout, None).await;
    opened.unwrap().unwrap()
}

fn key(n: u32) -> Bytes {
    format!("i{n:06}").into_bytes().into()
}

fn put(changes: &mut Batch, n: u32, value: u8) {
    changes.put_encoded(key(n), vec![value; 100].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_read_from_the_tables_that_only_one_state_has() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    let mut changes = Batch::new();
    (0..20_000).for_each(|n| put(&mut changes, n, 1));
    store.commit(&changes).await.unwrap();
    store.keep("one").await.unwrap();
    let mut changes = Batch::new();
    put(&mut changes, 7, 2);
    // The same value again.
    put(&mut changes, 8, 1);
    put(&mut changes, 20_000, 2);
    changes.delete_encoded(key(9));
    changes.put_encoded("other".into(), "x".into());
    store.commit(&changes).await.unwrap();
    store.keep("two").await.unwrap();

    let (one, two) = (kept(&bucket, "one").await, kept(&bucket, "two").await);
    let wanted = |key: &[u8]| key.starts_with(b"i");
    let keys = keys_that_may_differ(&one, &two, wanted).await.unwrap();
    assert_eq!(keys, Some([7, 8, 9, 20_000].map(key).to_vec()));
    let back = keys_that_may_differ(&two, &one, wanted).await.unwrap();
    assert_eq!(back, keys);
    let none = keys_that_may_differ(&one, &one, wanted).await.unwrap();
    assert_eq!(none, Some(Vec::new()));

    // As much again as there is.
    let mut changes = Batch::new();
    (0..20_000).for_each(|n| put(&mut changes, n, 3));
    store.commit(&changes).await.unwrap();
    store.keep("three").await.unwrap();
    let three = kept(&bucket, "three").await;
    assert_eq!(
        keys_that_may_differ(&one, &three, wanted).await.unwrap(),
        None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_that_differs_is_missing_whatever_was_merged_meanwhile() {
    const STATES: u32 = COMPACT_AT_TABLES as u32 * 2;
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    let mut changes = Batch::new();
    (0..8_000).for_each(|n| put(&mut changes, n, 0));
    store.commit(&changes).await.unwrap();
    for state in 0..STATES {
        let mut changes = Batch::new();
        for n in 0..20 {
            let n = (n * 977 + state * 3571) % 300;
            match (n + state) % 4 {
                0 => changes.delete_encoded(key(n)),
                _ => put(&mut changes, n, (state % 5) as u8),
            }
        }
        store.commit(&changes).await.unwrap();
        store.keep(&state.to_string()).await.unwrap();
    }
    let (mut states, mut found) = (Vec::new(), 0);
    for state in 0..STATES {
        let reader = kept(&bucket, &state.to_string()).await;
        let entries = reader.scan(&KeyRange::all(), 10_000).await.unwrap();
        states.push((reader, entries.into_iter().collect::<BTreeMap<_, _>>()));
    }
    for (older, old) in &states {
        for (newer, new) in &states {
            let keys = keys_that_may_differ(older, newer, |_| true).await.unwrap();
            let Some(keys) = keys else { continue };
            found += 1;
            let keys: BTreeSet<Bytes> = keys.into_iter().collect();
            let all: BTreeSet<&Bytes> = old.keys().chain(new.keys()).collect();
            let differing = all.into_iter().filter(|key| old.get(*key) != new.get(*key));
            for key in differing {
                assert!(keys.contains(key), "{key:?}");
            }
        }
    }
    // Each with itself, at least.
    assert!(found >= STATES);
}
