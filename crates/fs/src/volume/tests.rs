//! A volume whose engines panic, one after the other, and bounds of work that no test outside reaches.

mod trash;

use forebay_vfs::CreateMode;

use super::*;
use forebay_types::Inode;
use forebay_vfs::{Credentials, FileSystem as _, SetAttributes};

const CALLER: Credentials = Credentials::ROOT;

/// Opens the volume, with a panic in place of the engine `name`; returns the names of all engines.
async fn open(
    store: &Store,
    folder: &std::path::Path,
    name: Option<&str>,
) -> (Volume, Vec<&'static str>) {
    let config = FsConfig::new(folder.to_owned());
    let environment = Environment::real(folder.to_owned());
    let opened = open::open(store, config, environment, None).await.unwrap();
    let names = Mutex::new(Vec::new());
    let volume = Volume::begin_with(opened, |engine| {
        names.lock().push(engine.name);
        match Some(engine.name) == name {
            true => Engine::new(engine.name, async { panic!("on purpose") }),
            false => engine,
        }
    });
    (volume, names.into_inner())
}

async fn store() -> Store {
    let inner = Arc::new(object_store::memory::InMemory::new());
    let path = object_store::path::Path::default();
    Store::new(inner, path, "memory://".to_owned(), Default::default())
}

#[tokio::test]
async fn a_panic_in_any_engine_names_it_stops_the_volume_and_loses_nothing() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    Volume::format(&bucket).await.unwrap();
    let (volume, names) = open(&bucket, folder.path(), None).await;
    assert_eq!(names.len(), 11, "{names:?}");
    volume.close(Duration::from_secs(60)).await;
    drop(volume);
    for (number, name) in names.iter().enumerate() {
        let (volume, _) = open(&bucket, folder.path(), Some(name)).await;
        // It may come before the stop or after it.
        let file = format!("{number}");
        let mode = CreateMode::Unchecked(SetAttributes::default());
        let made = volume
            .create(&CALLER, Inode::ROOT, file.as_bytes(), &mode)
            .await;
        let why = volume.stopped().await.to_string();
        assert!(why.contains(&format!("`{name}`")), "{name}: {why}");
        let refused = volume.create(&CALLER, Inode::ROOT, b"later", &mode).await;
        assert_eq!(refused.err(), Some(forebay_vfs::Error::Delay), "{name}");
        assert_eq!(volume.close(Duration::from_secs(1)).await, Closed::InLog);
        drop(volume);
        let (volume, _) = open(&bucket, folder.path(), None).await;
        if made.is_ok() {
            volume
                .lookup(&CALLER, Inode::ROOT, file.as_bytes())
                .await
                .unwrap();
        }
        assert_eq!(
            volume.close(Duration::from_secs(60)).await,
            Closed::Published
        );
    }
}
