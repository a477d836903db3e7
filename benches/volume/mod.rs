//! A volume for measurements: its bucket is in memory, its log in a folder that the benchmark chooses.

#![allow(dead_code, reason = "no benchmark needs all of it")]

use std::path::Path;
use std::time::Duration;

use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_object::StoreOptions;
use tempfile::TempDir;

/// A volume that is open, and its local folder.
pub(crate) struct Opened {
    pub(crate) volume: Volume,
    _local: TempDir,
}

/// A log with the default size of segment, small enough for any machine's memory. It survives power cuts if its folder
/// does.
pub(crate) const LOG: LogConfig = LogConfig::Disk {
    limit: 1 << 30,
    segment: 32 << 20,
};

/// Makes a volume and opens it with defaults, except for the log, which lies in a new folder within `folder`.
pub(crate) async fn open(log: LogConfig, folder: &Path) -> Opened {
    open_with(log, folder, |_| ()).await
}

/// The same with other settings as well.
pub(crate) async fn open_with(
    log: LogConfig,
    folder: &Path,
    set: impl FnOnce(&mut FsConfig),
) -> Opened {
    let local = tempfile::tempdir_in(folder).expect("a local folder");
    let options = StoreOptions::default();
    let store = forebay_object::open("memory://", &options).await;
    let store = store.expect("a store in memory");
    let mut config = FsConfig::new(local.path().to_owned());
    config.log = log;
    set(&mut config);
    let formatted = Volume::format_as(&store, &config.expected).await;
    formatted.expect("a new volume");
    let volume = Volume::open(&store, config).await.expect("an open volume");
    Opened {
        volume,
        _local: local,
    }
}

/// Settings of a volume that publishes when it is flushed, and not before.
pub(crate) fn publish_on_request(config: &mut FsConfig) {
    config.checkpoint_interval = Duration::from_secs(3600);
    config.checkpoint_bytes = 1 << 40;
    config.early_bytes = u64::MAX;
}

impl Opened {
    pub(crate) async fn close(self) {
        self.volume.close(Duration::from_secs(10)).await;
    }
}
