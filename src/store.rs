//! Opens the store according to the configuration.

use forebay_clones::layers::{self, Sources};
use forebay_meta::VolumeDescriptor;
use forebay_meta::volume::VolumeError;
use forebay_object::{Checksum, Encryption, Needs, Restore, RestoreTier, Store, StoreOptions};

use tokio::time::Instant;

use crate::config::{self, Config};

/// The options of the store beside its URL. `create` creates a missing folder.
pub(crate) fn options(config: &Config, create: bool) -> StoreOptions {
    StoreOptions {
        create,
        path_style: config.s3_path_style.decided(),
        unsigned_payload: config.s3_unsigned_payload.is_on(),
        checksum: match config.s3_checksum {
            config::Checksum::Crc32 => Checksum::Crc32,
            config::Checksum::Md5 => Checksum::Md5,
            config::Checksum::Off => Checksum::Off,
        },
        encryption: match config.s3_encryption {
            config::Encryption::None => Encryption::Bucket,
            config::Encryption::Aes256 => Encryption::Aes256,
            config::Encryption::Kms => Encryption::Kms {
                key: config.s3_kms_key.0.clone(),
            },
        },
        storage_class: config.s3_storage_class.0.clone(),
        tags: config.s3_tags.0.clone(),
        restore: restore(config),
        upload_limit: config.s3_upload_limit.clone(),
        download_limit: config.s3_download_limit.clone(),
        ca: config.s3_ca.path().map(ToOwned::to_owned),
        proxy: config.s3_proxy.clone(),
        ..StoreOptions::default()
    }
}

/// Opens the store of the configuration. `create` creates a missing folder.
///
/// # Errors
/// Why it cannot be used, as a message to the user.
pub(crate) async fn open(config: &Config, create: bool) -> Result<Store, String> {
    let opened = forebay_object::open(&config.store.to_string(), &options(config, create)).await;
    opened.map_err(|error| error.to_string())
}

/// Checks the environment and the configuration of the store and of a key service. Makes no request to them.
///
/// # Errors
/// The first thing to be corrected, as a message to the user.
pub fn check(config: &Config) -> Result<(), String> {
    let checked = forebay_object::check(&config.store.to_string(), &options(config, false));
    let checked = checked.and_then(|()| match config.kms_key.0 {
        Some(_) => forebay_object::check_environment(),
        None => Ok(()),
    });
    checked.map_err(|error| error.to_string())
}

/// Opens the store of the configuration with what lies at the sources of a clone; returns the sources as well.
///
/// # Errors
/// Why it cannot be used, as a message to the user.
pub(crate) async fn open_whole(config: &Config) -> Result<(Store, Sources), String> {
    let store = open(config, false).await?;
    // What is wrong with the descriptor, the command itself reports.
    let Ok(descriptor) = VolumeDescriptor::load(&store.store, &store.root).await else {
        return Ok((store, Sources::default()));
    };
    let at = |error: VolumeError| error.at(&store.url).to_string();
    let sources = Sources::of(&store, &descriptor).map_err(at)?;
    let whole = layers::over(&store, &descriptor).map_err(at)?;
    Ok((whole, sources))
}

/// Runs work that needs the store, and ends it at the store's first permanent refusal.
///
/// # Errors
/// The store's message and the remedy, for the user.
pub(crate) async fn unless_refused<T, E>(
    store: &Store,
    needs: Needs,
    work: impl Future<Output = Result<T, E>>,
) -> Result<Result<T, E>, String> {
    let done = store.unless_refused(needs, work).await;
    done.map_err(|refusal| format!("{}: {refusal}", store.url))
}

/// Like [`unless_refused`], if the error of the work is for the user as well: the store's last message is added to
/// it.
///
/// # Errors
/// Why it was not done, as a message to the user.
pub(crate) async fn attempt<T>(
    store: &Store,
    needs: Needs,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let begun = Instant::now();
    let done = unless_refused(store, needs, work).await?;
    done.map_err(|error| store.explained(begun, error))
}

fn restore(config: &Config) -> Restore {
    let days = config.s3_restore_days;
    let tier = match config.s3_restore {
        config::Restore::Off => return Restore::Off,
        config::Restore::Expedited => RestoreTier::Expedited,
        config::Restore::Standard => RestoreTier::Standard,
        config::Restore::Bulk => RestoreTier::Bulk,
    };
    Restore::As { tier, days }
}
