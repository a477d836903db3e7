//! The sealing store below SlateDB, compared with one that does not seal.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_seal::{DataKeyId, DataKeys, SECRET_LEN, Secret, SystemEntropy};
use forebay_types::VolumeId;
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use proptest::prelude::*;

use super::bucket::{Operation, TestBucket};
use crate::slate::Sealing;
use crate::slate::sealed::{Refused, SealedStore};

pub(super) const FOLDER: &str = "volume/meta";
const CHUNK: usize = 4 << 10;
const HEADER: usize = 44;

fn secret(id: u32) -> (DataKeyId, Secret) {
    (DataKeyId(id), Secret::take(&mut [id as u8 + 1; SECRET_LEN]))
}

/// The keys 1 to `newest` of a volume.
pub(super) fn sealing(newest: u32) -> Sealing {
    let keys = DataKeys::new(VolumeId([3; 16]), secret(newest), (1..newest).map(secret));
    Sealing {
        keys: Arc::new(keys),
        entropy: Arc::new(SystemEntropy),
    }
}

fn sealed(bucket: &TestBucket) -> SealedStore {
    SealedStore::new(Arc::new(bucket.clone()), FOLDER.into(), sealing(2))
}

fn at(name: &str) -> Path {
    Path::from(format!("{FOLDER}/{name}"))
}

fn plain(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 / 7) as u8).collect()
}

/// In several pieces.
fn payload(bytes: &[u8]) -> PutPayload {
    let pieces = bytes.chunks(5000).map(Bytes::copy_from_slice);
    pieces.collect()
}

/// The result of a GET: bytes, their range, and the length of the object.
async fn get(
    store: &dyn ObjectStore,
    location: &Path,
    range: Option<GetRange>,
) -> Result<(Bytes, Range<u64>, u64), Error> {
    let options = GetOptions {
        range,
        ..GetOptions::default()
    };
    let found = store.get_opts(location, options).await?;
    let (range, len) = (found.range.clone(), found.meta.size);
    Ok((found.bytes().await?, range, len))
}

fn refused(result: Result<(Bytes, Range<u64>, u64), Error>) -> String {
    let error = result.unwrap_err();
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return refused.to_string();
        }
        source = cause.source();
    }
    panic!("{error:?}");
}

/// Lengths around the borders of chunks.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..100_usize,
        (1..4_usize, 0..7_usize).prop_map(|(chunks, more)| chunks * CHUNK + more - 3),
        0..4 * CHUNK,
    ]
}

fn range() -> impl Strategy<Value = Option<GetRange>> {
    let position = || len().prop_map(|at| at as u64);
    prop_oneof![
        Just(None),
        (position(), position())
            .prop_map(|(start, len)| Some(GetRange::Bounded(start..start + len))),
        position().prop_map(|start| Some(GetRange::Offset(start))),
        position().prop_map(|len| Some(GetRange::Suffix(len))),
    ]
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime.block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_range_is_as_without_sealing_and_one_request(
        len in len(),
        ranges in prop::collection::vec(range(), 1..12),
    ) {
        run(async {
            let (bucket, reference) = (TestBucket::default(), InMemory::new());
            let (store, location) = (sealed(&bucket), at("compacted/1.sst"));
            let payload = payload(&plain(len));
            store.put(&location, payload.clone()).await.unwrap();
            reference.put(&location, payload).await.unwrap();
            for range in ranges {
                let before = bucket.requests();
                let found = get(&store, &location, range.clone()).await;
                match get(&reference, &location, range.clone()).await {
                    Ok(expected) => {
                        prop_assert_eq!(found.unwrap(), expected);
                        prop_assert_eq!(bucket.requests() - before, 1, "{:?}", range);
                    }
                    Err(_) => prop_assert!(found.is_err(), "{range:?}"),
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn uploads_in_parts_are_as_without_sealing(
        parts in prop::collection::vec(len(), 0..5),
    ) {
        run(async {
            let (bucket, reference) = (TestBucket::default(), TestBucket::default());
            let (store, location) = (sealed(&bucket), at("compacted/1.sst"));
            let whole = plain(parts.iter().sum());
            for store in [&store as &dyn ObjectStore, &reference] {
                let mut upload = store.put_multipart(&location).await.unwrap();
                let mut rest = &whole[..];
                for part in &parts {
                    let (now, later) = rest.split_at(*part);
                    upload.put_part(payload(now)).await.unwrap();
                    rest = later;
                }
                upload.complete().await.unwrap();
            }
            let (bytes, _, len) = get(&store, &location, None).await.unwrap();
            prop_assert_eq!(len as usize, whole.len());
            prop_assert!(bytes == whole);
            // Parts of less than a chunk, and empty ones, are joined.
            if parts.iter().all(|part| *part >= CHUNK) && !parts.is_empty() {
                prop_assert_eq!(bucket.requests(), reference.requests() + 1);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn an_upload_whose_last_part_failed_has_failed() {
    let bucket = TestBucket::default();
    let (store, name) = (sealed(&bucket), at("compacted/1.sst"));
    let mut upload = store.put_multipart(&name).await.unwrap();
    upload.put_part(payload(&plain(CHUNK))).await.unwrap();
    bucket.fail(Operation::Everything);
    assert!(upload.complete().await.is_err());
    bucket.heal();
    assert!(upload.complete().await.is_err());
    assert!(upload.put_part("more".into()).await.is_err());
    upload.abort().await.unwrap();
    let gone = store.get(&name).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn listings_and_heads_have_the_lengths_of_what_was_put() {
    let bucket = TestBucket::default();
    let store = sealed(&bucket);
    let lens = [0, 1, CHUNK, CHUNK + 1, 5 * CHUNK - 1];
    for len in lens {
        let name = at(&format!("wal/{len:08}.sst"));
        store.put(&name, payload(&plain(len))).await.unwrap();
        let found = store.head(&name).await.unwrap();
        assert_eq!(found.size, len as u64);
        let stored = bucket.raw().head(&name).await.unwrap().size as usize;
        assert_eq!(stored, len + len.div_ceil(CHUNK).max(1) * HEADER);
    }
    let folder = at("wal");
    let lens = lens.map(|len| len as u64);
    let sizes = |listed: Vec<object_store::ObjectMeta>| -> Vec<u64> {
        listed.iter().map(|meta| meta.size).collect()
    };
    let listed = store.list(Some(&folder)).try_collect().await.unwrap();
    assert_eq!(sizes(listed), lens);
    let listed = store.list_with_delimiter(Some(&folder)).await.unwrap();
    assert_eq!(sizes(listed.objects), lens);
    let first = at("wal/00000000.sst");
    let listed = store.list_with_offset(Some(&folder), &first);
    assert_eq!(sizes(listed.try_collect().await.unwrap()), lens[1..]);
    let ranges = [0..10, 100..101, 19_000..19_100];
    let pieces = store.get_ranges(&at("wal/00020479.sst"), &ranges).await;
    for (piece, range) in pieces.unwrap().iter().zip(ranges) {
        let whole = plain(5 * CHUNK - 1);
        assert_eq!(piece[..], whole[range.start as usize..range.end as usize]);
    }
}

#[tokio::test]
async fn conditions_hold_as_before() {
    let store = sealed(&TestBucket::default());
    let name = at("gc/manifest.boundary");
    let create = || PutOptions::from(PutMode::Create);
    let put = store.put_opts(&name, "1".into(), create()).await.unwrap();
    let again = store.put_opts(&name, "2".into(), create()).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    let update = || PutOptions::from(PutMode::Update(put.clone().into()));
    store.put_opts(&name, "3".into(), update()).await.unwrap();
    let again = store.put_opts(&name, "4".into(), update()).await;
    assert!(matches!(again, Err(Error::Precondition { .. })));
    let found = store.get(&name).await.unwrap();
    let options = GetOptions {
        if_none_match: found.meta.e_tag.clone(),
        ..GetOptions::default()
    };
    let same = store.get_opts(&name, options).await;
    assert!(matches!(same, Err(Error::NotModified { .. })));
    assert_eq!(found.bytes().await.unwrap(), "3");
    store.delete(&name).await.unwrap();
    let gone = store.get(&name).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn what_was_put_elsewhere_or_unsealed_is_refused_and_named() {
    let bucket = TestBucket::default();
    let store = sealed(&bucket);
    let [first, second] = ["manifest/1.manifest", "manifest/2.manifest"].map(at);
    store.put(&first, "one".into()).await.unwrap();
    bucket.raw().copy(&first, &second).await.unwrap();
    let unsealed = at("manifest/3.manifest");
    bucket.raw().put(&unsealed, "one".into()).await.unwrap();
    let older = at("compacted/4.sst");
    let newest = SealedStore::new(Arc::new(bucket.clone()), FOLDER.into(), sealing(9));
    newest.put(&older, "nine".into()).await.unwrap();
    let short = at("compacted/5.sst");
    store.put(&short, payload(&plain(3 * CHUNK))).await.unwrap();
    let stored = bucket.raw().get(&short).await.unwrap().bytes().await;
    let stored = stored.unwrap().slice(..CHUNK + HEADER);
    bucket.raw().put(&short, stored.into()).await.unwrap();
    let emptied = at("compacted/6.sst");
    bucket.raw().put(&emptied, PutPayload::new()).await.unwrap();

    let late = GetRange::Bounded(2 * CHUNK as u64..3 * CHUNK as u64);
    let early = GetRange::Bounded(0..10);
    let all = tokio::join!(
        get(&store, &second, None),
        get(&store, &unsealed, None),
        get(&store, &older, None),
        get(&store, &short, Some(late)),
        get(&store, &short, Some(early.clone())),
        get(&store, &emptied, Some(early)),
        get(&store, &emptied, None),
    );
    for (why, location, words) in [
        (refused(all.0), &second, "does not authenticate"),
        (refused(all.1), &unsealed, "is not sealed"),
        (refused(all.2), &older, "no data key 9"),
        (refused(all.3), &short, "ends before the requested range"),
        (refused(all.4), &short, "does not authenticate"),
        (refused(all.5), &emptied, "ends before the requested range"),
        (refused(all.6), &emptied, "is not sealed"),
    ] {
        assert!(why.contains(words), "{why}");
        assert!(why.contains(location.as_ref()), "{why}");
    }
    assert_eq!(
        store.get(&first).await.unwrap().bytes().await.unwrap(),
        "one"
    );
    // Newer keys open what older ones have sealed.
    let found = newest.get(&first).await.unwrap();
    assert_eq!(found.bytes().await.unwrap(), "one");
}

#[tokio::test]
async fn what_arrives_damaged_is_read_again() {
    let bucket = TestBucket::default();
    let (store, name) = (sealed(&bucket), at("compacted/1.sst"));
    store.put(&name, payload(&plain(3 * CHUNK))).await.unwrap();
    for range in [
        None,
        Some(GetRange::Suffix(2 * CHUNK as u64 + 5)),
        Some(GetRange::Bounded(5..CHUNK as u64)),
    ] {
        let before = bucket.requests();
        bucket.damage_on_the_way("/compacted/", 2);
        let read = get(&store, &name, range.clone()).await.unwrap();
        let range = range.map_or(0..3 * CHUNK, |range| {
            let range = range.as_range(3 * CHUNK as u64).unwrap();
            range.start as usize..range.end as usize
        });
        assert_eq!(read.0, plain(3 * CHUNK)[range]);
        assert_eq!(
            (bucket.damage_to_come(), bucket.requests() - before),
            (0, 3)
        );
    }
}

#[tokio::test]
async fn nothing_is_copied_renamed_or_put_beside_the_folder() {
    let store = sealed(&TestBucket::default());
    let (name, other) = (at("manifest/1.manifest"), at("manifest/2.manifest"));
    store.put(&name, "one".into()).await.unwrap();
    assert!(store.copy(&name, &other).await.is_err());
    assert!(store.rename(&name, &other).await.is_err());
    assert!(store.get(&name).await.is_ok());
    for beside in ["volume/metadata/1", "packs/1", "volume"] {
        assert!(store.put(&beside.into(), "one".into()).await.is_err());
        assert!(store.get(&beside.into()).await.is_err());
    }
}
