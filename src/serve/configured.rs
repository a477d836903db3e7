//! The line about the configuration with which a gateway starts.

use crate::config::{Config, LogMode, Value};

/// Logs in one line what the gateway is configured to do. Addresses of stores hold no credentials.
pub(super) fn say(config: &Config) {
    let mut commits: Vec<_> = config
        .exports
        .iter()
        .map(|export| export.commit.word())
        .collect();
    commits.sort_unstable();
    commits.dedup();
    let log_limit = match config.log {
        LogMode::Disk => config.log_limit.to_string(),
        LogMode::None => "none".to_owned(),
    };
    tracing::info!(
        store = %config.store,
        data_dir = %config.data_dir.display(),
        listen = %config.listen,
        admin_listen = %config.admin_listen.write(),
        exports = config.exports.len(),
        commit = %commits.join(","),
        log_limit = %log_limit,
        memory_limit = %config.memory_limit,
        metadata_cache = %config.metadata_cache,
        disk_cache_limit = %config.disk_cache_limit,
        compression = %config.compression.word(),
        encryption = %config.encryption.word(),
        seal_log = %config.seal_log.word(),
        log_level = %config.log_level.write(),
        version = %env!("CARGO_PKG_VERSION"),
        "starting"
    );
}
