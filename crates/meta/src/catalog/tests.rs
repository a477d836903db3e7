//! Overlay and store read as one, also beside a publisher.

use std::collections::BTreeMap;

use async_trait::async_trait;
use forebay_types::ByteRange;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::record::{FrameAddress, Kind};
use crate::store::MemoryStore;

/// Whether something happens before or after the store underneath answers a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

type Hook = Box<dyn FnOnce() + Send>;

/// A store in which an action runs just before or after it answers a reader.
struct Interleaving {
    store: MemoryStore,
    hook: Mutex<Option<(When, Hook)>>,
}

impl Interleaving {
    fn run(&self, now: When) {
        let hook = self.hook.lock().take_if(|(when, _)| *when == now);
        if let Some((_, hook)) = hook {
            hook();
        }
    }
}

#[async_trait]
impl MetaStore for Interleaving {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.run(When::Before);
        let value = self.store.get(key).await;
        self.run(When::After);
        value
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.run(When::Before);
        let found = self.store.scan(range, limit).await;
        self.run(When::After);
        found
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.store.commit(batch).await
    }

    async fn prove(&self) -> Result<(), StoreError> {
        self.store.prove().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}

struct Bench {
    catalog: Catalog,
    store: Arc<Interleaving>,
}

impl Bench {
    fn new() -> Bench {
        let store = Arc::new(Interleaving {
            store: MemoryStore::new(),
            hook: Mutex::new(None),
        });
        Bench {
            catalog: Catalog::new(Arc::new(Overlay::new()), store.clone()),
            store,
        }
    }

    /// Runs `action` in the middle of the next read.
    fn interleave(&self, when: When, action: impl FnOnce(&Catalog) + Send + 'static) {
        let catalog = self.catalog.clone();
        *self.store.hook.lock() = Some((when, Box::new(move || action(&catalog))));
    }
}

fn put(catalog: &Catalog, key: &'static str, value: &'static str) {
    let mut batch = Batch::new();
    batch.put_encoded(key.into(), value.into());
    catalog.apply(&batch);
}

fn rename(catalog: &Catalog, from: &'static str, to: &'static str) {
    let mut batch = Batch::new();
    batch.delete_encoded(from.into());
    batch.put_encoded(to.into(), "file".into());
    catalog.apply(&batch);
}

/// Publishes the overlay's changes, in all three steps. The stores of these tests answer at once.
fn publish(catalog: &Catalog) {
    let closed = catalog.overlay().close();
    let batch = closed.to_batch();
    let mut commit = catalog.store().commit(&batch);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let committed = commit.as_mut().poll(&mut context);
    assert_eq!(committed, std::task::Poll::Ready(Ok(())));
    catalog.overlay().discard_oldest();
}

async fn keys(catalog: &Catalog) -> Vec<String> {
    let found = catalog.scan(&KeyRange::all(), 99).await.unwrap();
    found
        .into_iter()
        .map(|(key, _)| String::from_utf8(key.to_vec()).unwrap())
        .collect()
}

#[tokio::test]
async fn a_get_that_a_publication_overtakes_finds_the_key() {
    for when in [When::Before, When::After] {
        let bench = Bench::new();
        put(&bench.catalog, "stored", "old");
        publish(&bench.catalog);
        bench.interleave(when, |catalog| {
            put(catalog, "stored", "new");
            publish(catalog);
        });
        let value = bench.catalog.get(b"stored").await.unwrap().unwrap();
        assert_eq!(value, if when == When::Before { "new" } else { "old" });
        assert_eq!(bench.catalog.get(b"stored").await.unwrap().unwrap(), "new");
    }
}

#[tokio::test]
async fn a_scan_that_a_publication_overtakes_loses_no_key() {
    for when in [When::Before, When::After] {
        let bench = Bench::new();
        put(&bench.catalog, "a", "stored");
        publish(&bench.catalog);
        put(&bench.catalog, "b", "in the overlay");
        bench.interleave(when, publish);
        assert_eq!(keys(&bench.catalog).await, ["a", "b"]);
        assert_eq!(keys(&bench.catalog).await, ["a", "b"]);
    }
}

#[tokio::test]
async fn a_scan_that_a_rename_and_its_publication_overtake_sees_one_name() {
    for when in [When::Before, When::After] {
        let bench = Bench::new();
        put(&bench.catalog, "1", "file");
        bench.interleave(when, |catalog| {
            rename(catalog, "1", "9");
            publish(catalog);
        });
        assert_eq!(keys(&bench.catalog).await, ["9"], "it was done again");
        rename(&bench.catalog, "9", "5");
        bench.interleave(when, |catalog| rename(catalog, "5", "7"));
        assert_eq!(
            keys(&bench.catalog).await,
            ["5"],
            "the state at its beginning"
        );
        assert_eq!(keys(&bench.catalog).await, ["7"]);
    }
}

#[tokio::test]
async fn a_deleted_key_does_not_come_back_while_its_deletion_is_published() {
    for when in [When::Before, When::After] {
        let bench = Bench::new();
        put(&bench.catalog, "a", "old");
        publish(&bench.catalog);
        let mut batch = Batch::new();
        batch.delete_encoded("a".into());
        bench.catalog.apply(&batch);
        bench.interleave(when, publish);
        assert_eq!(keys(&bench.catalog).await, [""; 0]);
        assert_eq!(bench.catalog.get(b"a").await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_beside_a_busy_publisher_see_numbers_only_grow() {
    let catalog = Catalog::new(Arc::new(Overlay::new()), Arc::new(MemoryStore::new()));
    put(&catalog, "n", "00000000000000000000");
    let reader = |scans: bool| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            let mut last = Bytes::new();
            for _ in 0..2000 {
                let value = if scans {
                    let mut found = catalog.scan(&KeyRange::all(), 9).await.unwrap();
                    assert_eq!(found.len(), 1);
                    found.remove(0).1
                } else {
                    catalog.get(b"n").await.unwrap().expect("it vanished")
                };
                assert!(value >= last, "{last:?} and then {value:?}");
                last = value;
                tokio::task::yield_now().await;
            }
        })
    };
    let readers = [reader(false), reader(true)];
    let mut n = 0u64;
    while !readers.iter().all(|reader| reader.is_finished()) {
        n += 1;
        let mut batch = Batch::new();
        batch.put_encoded("n".into(), format!("{n:020}").into());
        catalog.apply(&batch);
        if n.is_multiple_of(3) {
            let closed = catalog.overlay().close();
            catalog.store().commit(&closed.to_batch()).await.unwrap();
            catalog.overlay().discard_oldest();
            tokio::task::yield_now().await;
        }
    }
    for reader in readers {
        reader.await.unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Close,
    Commit,
    Scan(u8, u8, usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..40).prop_map(Step::Put),
        4 => (0u8..40).prop_map(Step::Delete),
        1 => Just(Step::Close),
        1 => Just(Step::Commit),
        3 => (0u8..40, 0u8..45, 0usize..12).prop_map(|(a, b, n)| Step::Scan(a, b, n)),
    ]
}

proptest! {
    #[test]
    fn scans_match_a_model_whatever_lies_where(steps in proptest::collection::vec(any_step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let catalog = Catalog::new(Arc::new(Overlay::new()), Arc::new(MemoryStore::new()));
        let mut model = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let mut batch = Batch::new();
            match step {
                Step::Put(key) => {
                    let value = Bytes::from(number.to_string());
                    batch.put_encoded(vec![key].into(), value.clone());
                    model.insert(Bytes::from(vec![key]), value);
                }
                Step::Delete(key) => {
                    batch.delete_encoded(vec![key].into());
                    model.remove(&[key][..]);
                }
                Step::Close => {
                    let _ = catalog.overlay().close();
                }
                Step::Commit => {
                    if let Some(closed) = catalog.overlay().oldest_closed() {
                        runtime.block_on(catalog.store().commit(&closed.to_batch())).unwrap();
                        catalog.overlay().discard_oldest();
                    }
                }
                Step::Scan(start, end, limit) => {
                    let range = KeyRange { start: vec![start].into(), end: vec![end].into() };
                    let found = runtime.block_on(catalog.scan(&range, limit)).unwrap();
                    let expected = model.iter().filter(|(key, _)| range.contains(key)).take(limit);
                    let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
                    prop_assert_eq!(found, expected);
                }
            }
            catalog.apply(&batch);
        }
    }
}

#[tokio::test]
async fn typed_reads_find_their_records() {
    let catalog = Catalog::new(Arc::new(Overlay::new()), Arc::new(MemoryStore::new()));
    let directory = Inode(7);
    let mut batch = Batch::new();
    for cookie in 3..=9 {
        let name = Bytes::from(format!("name {cookie}"));
        let record = CookieRecord {
            inode: Inode(cookie),
            kind: Kind::Regular,
            name: name.clone(),
        };
        batch.put(&Key::Cookie(directory, cookie), &record);
        let record = NameRecord {
            inode: Inode(cookie),
            cookie,
            kind: Kind::Regular,
        };
        batch.put(&Key::Name(directory, name), &record);
    }
    let mut map = BlockMap::new();
    let frame = FrameAddress {
        pack: PackId(1),
        offset: 0,
        stored_len: 10,
        raw_len: 10,
        raw_start: 0,
        crc32: 0,
        origin: None,
    };
    map.insert(ByteRange::new(0, 10), frame).unwrap();
    for block in [0, 4] {
        let key = BlockKey {
            inode: Inode(5),
            block: BlockIndex(block),
        };
        batch.put(&Key::Block(key), &map);
    }
    let account = PackRecord {
        bytes: 10,
        raw_bytes: 10,
        live_bytes: 10,
        frames: 1,
        born: Default::default(),
    };
    batch.put(&Key::Pack(PackId(1)), &account);
    catalog.apply(&batch);
    publish(&catalog);

    let listed = catalog.cookies_after(directory, 4, 3).await.unwrap();
    let cookies: Vec<_> = listed.iter().map(|(cookie, _)| *cookie).collect();
    assert_eq!(cookies, [5, 6, 7]);
    assert_eq!(listed[0].1.name, "name 5");
    assert!(
        catalog
            .cookies_after(directory, 9, 3)
            .await
            .unwrap()
            .is_empty()
    );
    let name = catalog.name(directory, b"name 4").await.unwrap().unwrap();
    assert_eq!((name.inode, name.cookie), (Inode(4), 4));
    assert!(catalog.name(Inode(8), b"name 4").await.unwrap().is_none());
    // A caller that knows that the bucket cannot have the name does not ask it.
    let new = catalog.name_if_published(directory, b"name 4", || false);
    assert_eq!(new.await.unwrap(), None);
    let old = catalog.name_if_published(directory, b"name 4", || true);
    assert_eq!(old.await.unwrap(), Some(name));
    assert_eq!(
        catalog.block_map(Inode(5), BlockIndex(4)).await.unwrap(),
        Some(map)
    );
    assert_eq!(
        catalog.block_map(Inode(5), BlockIndex(1)).await.unwrap(),
        None
    );
    let blocks = catalog
        .block_maps(Inode(5), BlockIndex(1), 9)
        .await
        .unwrap();
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].0, BlockIndex(4));
    assert_eq!(catalog.pack(PackId(1)).await.unwrap(), Some(account));
    assert!(catalog.volume_state().await.unwrap().is_none());

    let mut batch = Batch::new();
    batch.delete(&Key::Name(directory, "name 4".into()));
    batch.put(&Key::Name(directory, "another".into()), &name);
    batch.put_encoded(Key::Inode(Inode(5)).encode(), "rubbish".into());
    catalog.apply(&batch);
    // Unpublished names are known without a call of `is_published`.
    for (asked, found) in [(&b"name 4"[..], None), (b"another", Some(name))] {
        let entry = catalog.name_if_published(directory, asked, || panic!("asked in vain"));
        assert_eq!(entry.await.unwrap(), found);
    }
    let error = catalog.inode(Inode(5)).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt(why) if why.contains("i:0000000000000005")),
        "{error}"
    );
}
