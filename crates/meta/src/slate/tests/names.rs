//! Objects stored under another object's name are detected, also tables, whose checksums do not name their table.

use super::*;
use crate::slate::{Condition, SlateObjects};
use object_store::ObjectStoreExt;

async fn bytes_of(bucket: &TestBucket, path: &Path) -> Bytes {
    let found = bucket.raw().get(path).await.unwrap();
    found.bytes().await.unwrap()
}

async fn tables_of(bucket: &TestBucket) -> Vec<Path> {
    let names = bucket.objects().await.into_iter().map(Path::from);
    names
        .filter(|path| path.as_ref().contains("/compacted/"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_one_layout_under_each_others_names_are_damage() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    for n in 1..=2 {
        store.commit(&numbered(n)).await.unwrap();
    }
    store.close().await.unwrap();
    let tables = tables_of(&bucket).await;
    let [one, other] = &tables[..] else {
        panic!("{tables:?}");
    };
    let (first, second) = (bytes_of(&bucket, one).await, bytes_of(&bucket, other).await);
    assert_eq!(first.len(), second.len(), "they are laid out alike");
    bucket.raw().put(one, second.into()).await.unwrap();
    bucket.raw().put(other, first.into()).await.unwrap();
    let read = match open(&bucket, settings()).await {
        Ok(store) => store.get(b"latest").await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    let shared: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let path = Path::from("volume/meta");
    let objects = SlateObjects::new(shared, path, settings().timeout, None);
    let mut damaged = Vec::new();
    for object in objects.list().await.unwrap() {
        if let Condition::Damaged(_) = objects.look_at(&object).await.unwrap() {
            damaged.push(object.location);
        }
    }
    assert_eq!(damaged, tables);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_many_parts_is_read_as_it_was_written() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    let mut large = Batch::new();
    let value = |n: u32| Bytes::from(vec![n as u8; 40_000]);
    for n in 0..700_u32 {
        large.put_encoded(n.to_be_bytes().to_vec().into(), value(n));
    }
    store.commit(&large).await.unwrap();
    store.close().await.unwrap();
    // Larger than an object that SlateDB puts in one piece.
    let mut longest = 0;
    for table in tables_of(&bucket).await {
        longest = longest.max(bytes_of(&bucket, &table).await.len());
    }
    assert!(longest > 20 << 20, "{longest}");
    let store = open(&bucket, settings()).await.unwrap();
    for n in [0, 1, 349, 698, 699] {
        let found = store.get(&u32::to_be_bytes(n)).await.unwrap();
        assert_eq!(found, Some(value(n)), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_tables_are_not_tied_to_their_names_is_refused_as_an_earlier_one() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    for name in bucket.objects().await {
        let path = Path::from(name);
        let mut bytes = bytes_of(&bucket, &path).await.to_vec();
        let Some(at) = bytes.len().checked_sub(8) else {
            continue;
        };
        if bytes[at..].starts_with(b"FBc2") {
            bytes[at..at + 4].copy_from_slice(b"FBck");
            bucket.raw().put(&path, bytes.into()).await.unwrap();
        }
    }
    let refusal = open(&bucket, settings()).await.err();
    let Some(StoreError::Fatal(why)) = refusal else {
        panic!("{refusal:?}");
    };
    assert!(why.contains("copy its files into a new volume"), "{why}");
}
