//! Properties of the store in a local folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use forebay_object::{Fault, FileStore};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use tempfile::TempDir;

async fn names(store: &FileStore) -> Vec<String> {
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    listed
        .into_iter()
        .map(|object| object.location.to_string())
        .collect()
}

#[tokio::test]
async fn a_new_folder_belongs_to_its_user_alone() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("volume");
    FileStore::open(&folder, true).unwrap();
    let mode = fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn uploads_cut_off_by_a_crash_and_the_lock_are_not_listed() {
    let folder = TempDir::new().unwrap();
    let store = FileStore::open(folder.path(), false).unwrap();
    let path = Path::from("object");
    let version: UpdateVersion = store.put(&path, "old".into()).await.unwrap().into();
    store
        .put_opts(&path, "new".into(), PutMode::Update(version).into())
        .await
        .unwrap();
    // The remains of an upload in several parts after the process has died.
    let mut upload = store.put_multipart(&Path::from("cut off")).await.unwrap();
    upload.put_part("half".into()).await.unwrap();
    std::mem::forget(upload);

    assert_eq!(names(&store).await, ["object"]);
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 3, "the object, the lock and the upload");
}

/// An ETag is derived from inode, length and time. The inode may be reused and the length may be the same, so the time
/// has to differ by more than a tick of the kernel's clock.
#[tokio::test]
async fn no_two_versions_have_one_etag_however_fast_they_follow() {
    let folder = TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap();
    let store = FileStore::open(folder.path(), false).unwrap();
    let path = Path::from("object");
    store.put(&path, "0".into()).await.unwrap();
    let mut present = store.head(&path).await.unwrap();
    for n in 1..10_u8 {
        let version = UpdateVersion {
            e_tag: present.e_tag.clone(),
            version: None,
        };
        let mode = PutMode::Update(version);
        store
            .put_opts(&path, vec![n].into(), mode.into())
            .await
            .unwrap();
        let next = store.head(&path).await.unwrap();
        let age = next.last_modified - present.last_modified;
        assert!(age.num_milliseconds() >= 10, "version {n}: {age}");
        assert_ne!(next.e_tag, present.e_tag);
        present = next;
    }
}

/// Two processes have two stores on one folder; so do two stores in one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_gateways_that_update_one_version_one_wins() {
    let folder = TempDir::new().unwrap();
    let stores = [(); 2].map(|()| FileStore::open(folder.path(), false).unwrap());
    let path = Path::from("object");
    for round in 0..10_u8 {
        let put = stores[0].put(&path, vec![round].into()).await.unwrap();
        let update = |store: usize| {
            let mode = PutMode::Update(put.clone().into());
            stores[store].put_opts(&path, "update".into(), mode.into())
        };
        let (one, other) = tokio::join!(update(0), update(1));
        let lost = match (one, other) {
            (Ok(_), Err(lost)) | (Err(lost), Ok(_)) => lost,
            both => panic!("{both:?}"),
        };
        assert!(matches!(lost, Error::Precondition { .. }), "{lost}");
    }
}

#[tokio::test]
async fn a_range_behind_the_end_is_told_apart_from_a_disk_that_fails() {
    let folder = TempDir::new().unwrap();
    let store = FileStore::open(folder.path(), false).unwrap();
    let path = Path::from("object");
    store.put(&path, "12345".into()).await.unwrap();
    for range in [5..6, 100..200] {
        let error = store.get_range(&path, range).await.unwrap_err();
        assert_eq!(Fault::of(&error), Fault::OutOfRange, "{error}");
        assert!(error.to_string().contains("has 5 bytes"), "{error}");
    }
    assert_eq!(store.get_range(&path, 4..6).await.unwrap(), "5");
}
