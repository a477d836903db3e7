//! How the configuration has the store opened.

use forebay_object::{Checksum, Encryption, StoreOptions};

use crate::config::{self, Config};

/// What `config` says about the store beside its URL. `create` makes a folder where there is none.
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
        upload_limit: config.s3_upload_limit.clone(),
        download_limit: config.s3_download_limit.clone(),
        ca: config.s3_ca.path().map(ToOwned::to_owned),
        proxy: config.s3_proxy.clone(),
        ..StoreOptions::default()
    }
}
