//! Opening and changing key rings in a bucket.

use forebay_seal::FakeKeyService;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use super::*;

const VOLUME: VolumeId = VolumeId([7; 16]);

fn key_file(byte: u8) -> Arc<Unlock> {
    let content = vec![byte; 32].into();
    Arc::new(Unlock::KeyFile(KeyFile::new(content).unwrap()))
}

fn sealed() -> VolumeDescriptor {
    VolumeDescriptor {
        volume: VOLUME,
        created: 1,
        block_size: forebay_types::BLOCK_SIZE,
        protection: Protection::Aes256Gcm,
        origin: None,
    }
}

struct Bucket {
    store: Arc<dyn ObjectStore>,
    root: Path,
}

impl Bucket {
    /// With a ring that the key file of this byte opens.
    async fn with(byte: u8) -> Bucket {
        let bucket = Bucket {
            store: Arc::new(InMemory::new()),
            root: Path::from("some/prefix"),
        };
        let ring = make(VOLUME, 1, &key_file(byte)).await.unwrap();
        create(&bucket.store, &bucket.root, ring).await.unwrap();
        bucket
    }

    async fn load(&self, unlock: &Arc<Unlock>, seen: u64) -> Result<VolumeKeys, VolumeError> {
        let expected = Expected::Sealed(Arc::clone(unlock));
        VolumeKeys::load(&self.store, &self.root, &sealed(), &expected, seen).await
    }

    async fn change(
        &self,
        unlock: &Arc<Unlock>,
        change: RingChange,
    ) -> Result<RingChanged, VolumeError> {
        super::change(&self.store, &self.root, VOLUME, unlock, 0, &change).await
    }

    async fn slots(&self) -> Vec<u32> {
        let stored = StoredRing::load(&self.store, &self.root).await.unwrap();
        stored.ring.slots().map(|slot| slot.id.0).collect()
    }
}

#[tokio::test]
async fn what_is_expected_counts_and_not_what_the_bucket_says() {
    let bucket = Bucket::with(1).await;
    let open = VolumeDescriptor {
        protection: Protection::None { hash_key: [9; 32] },
        ..sealed()
    };
    let load = async |descriptor: &VolumeDescriptor, expected: &Expected| {
        VolumeKeys::load(&bucket.store, &bucket.root, descriptor, expected, 0).await
    };
    let keys = load(&open, &Expected::NotSealed).await.unwrap();
    assert_eq!(keys.secret(), &[9; 32]);
    assert!(keys.sealing().is_none());
    let error = load(&sealed(), &Expected::NotSealed).await.unwrap_err();
    assert!(matches!(error, VolumeError::Sealed { .. }), "{error}");
    assert!(error.to_string().contains("passphrase_file"), "{error}");
    let expected = Expected::Sealed(key_file(1));
    let error = load(&open, &expected).await.unwrap_err();
    assert!(matches!(error, VolumeError::NotSealed { .. }), "{error}");
    let keys = load(&sealed(), &expected).await.unwrap();
    assert!(keys.sealing().is_some());
    assert_eq!(keys.generation(), 1);
}

#[tokio::test]
async fn the_secret_of_a_volume_stays_when_everything_else_of_the_ring_changes() {
    let bucket = Bucket::with(1).await;
    let before = bucket.load(&key_file(1), 0).await.unwrap();
    bucket
        .change(&key_file(1), RingChange::Rotate(2))
        .await
        .unwrap();
    bucket
        .change(&key_file(1), RingChange::Exchange(key_file(2)))
        .await
        .unwrap();
    let after = bucket.load(&key_file(2), 0).await.unwrap();
    assert_eq!(before.secret(), after.secret());
    assert_eq!(after.generation(), 3);
    let current = |keys: &VolumeKeys| keys.sealing().unwrap().keys.current();
    assert_eq!(
        (current(&before), current(&after)),
        (DataKeyId(1), DataKeyId(2))
    );
    let error = bucket.load(&key_file(1), 0).await.unwrap_err();
    let wrong = VolumeError::KeyRing(RingError::WrongKeyFile { slots: 1 });
    assert_eq!(error.to_string(), wrong.to_string());
}

#[tokio::test]
async fn of_many_slots_added_at_once_none_is_lost() {
    let mut bucket = Bucket::with(1).await;
    // Each task has read the ring before the first one replaces it.
    let slow = ThrottleConfig {
        wait_put_per_call: std::time::Duration::from_millis(20),
        ..ThrottleConfig::default()
    };
    bucket.store = Arc::new(ThrottledStore::new(bucket.store, slow));
    let bucket = bucket;
    let add = |byte| bucket.change_owned(key_file(byte));
    let results = tokio::join!(add(2), add(3), add(4), add(5));
    for result in [results.0, results.1, results.2, results.3] {
        assert!(matches!(result, Ok(RingChanged::Added(_))), "{result:?}");
    }
    assert_eq!(bucket.slots().await, [1, 2, 3, 4, 5]);
    for byte in 1..=5 {
        bucket.load(&key_file(byte), 0).await.unwrap();
    }
}

impl Bucket {
    async fn change_owned(&self, new: Arc<Unlock>) -> Result<RingChanged, VolumeError> {
        self.change(&key_file(1), RingChange::Add(new)).await
    }
}

#[tokio::test]
async fn neither_the_last_slot_nor_the_own_one_can_be_removed() {
    let bucket = Bucket::with(1).await;
    let remove = async |byte, slot| {
        bucket
            .change(&key_file(byte), RingChange::Remove(SlotId(slot)))
            .await
    };
    let error = remove(1, 1).await.unwrap_err();
    assert!(
        matches!(error, VolumeError::KeyRing(RingError::LastSlot)),
        "{error}"
    );
    bucket
        .change(&key_file(1), RingChange::Add(key_file(2)))
        .await
        .unwrap();
    let error = remove(1, 1).await.unwrap_err();
    assert!(matches!(error, VolumeError::OwnSlot(SlotId(1))), "{error}");
    assert!(matches!(
        remove(2, 9).await.unwrap_err(),
        VolumeError::KeyRing(RingError::NoSuchSlot(SlotId(9)))
    ));
    assert_eq!(remove(2, 1).await.unwrap(), RingChanged::Removed(SlotId(1)));
    assert_eq!(bucket.slots().await, [2]);
}

#[tokio::test]
async fn a_ring_that_was_put_back_is_refused_where_a_newer_one_was_seen() {
    let bucket = Bucket::with(1).await;
    let at = location(&bucket.root);
    let old = bucket.store.get(&at).await.unwrap().bytes().await.unwrap();
    bucket
        .change(&key_file(1), RingChange::Rotate(2))
        .await
        .unwrap();
    let seen = bucket.load(&key_file(1), 1).await.unwrap().generation();
    bucket.store.put(&at, old.into()).await.unwrap();
    let error = bucket.load(&key_file(1), seen).await.unwrap_err();
    let older = RingError::Older { found: 1, seen: 2 };
    assert_eq!(error.to_string(), older.to_string());
    bucket.load(&key_file(1), 0).await.unwrap();
}

#[tokio::test]
async fn a_key_service_is_a_slot_like_the_others() {
    let bucket = Bucket::with(1).await;
    let service = FakeKeyService::new("a key");
    let service = Arc::new(Unlock::Service(Box::new(service)));
    bucket
        .change(&key_file(1), RingChange::Add(service.clone()))
        .await
        .unwrap();
    bucket.load(&service, 0).await.unwrap();
    let removed = bucket.change(&service, RingChange::Remove(SlotId(1)));
    assert_eq!(removed.await.unwrap(), RingChanged::Removed(SlotId(1)));
    assert!(bucket.load(&key_file(1), 0).await.is_err());
}

#[tokio::test]
async fn a_ring_that_is_gone_or_far_too_long_is_an_error_that_says_so() {
    let bucket = Bucket::with(1).await;
    let at = location(&bucket.root);
    let long = vec![b'x'; MAX_KEY_RING_LEN + 1];
    bucket.store.put(&at, long.into()).await.unwrap();
    let error = bucket.load(&key_file(1), 0).await.unwrap_err();
    assert!(error.to_string().contains("far too long"), "{error}");
    bucket.store.delete(&at).await.unwrap();
    let error = bucket.load(&key_file(1), 0).await.unwrap_err();
    assert!(matches!(error, VolumeError::NoKeyRing { .. }), "{error}");
}

#[tokio::test]
async fn nothing_of_what_opens_a_ring_is_shown() {
    let bucket = Bucket::with(1).await;
    let keys = bucket.load(&key_file(1), 0).await.unwrap();
    let secret = format!("{:?}", keys.secret());
    let passphrase = Passphrase::new("open sesame".into()).unwrap();
    let expected = Expected::Sealed(Arc::new(Unlock::Passphrase(passphrase)));
    let shown = format!("{keys:?} {expected:?} {:?}", key_file(1));
    assert!(
        !shown.contains("sesame") && !shown.contains(&secret),
        "{shown}"
    );
}
