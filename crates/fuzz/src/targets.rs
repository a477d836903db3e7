//! The targets: one module each, whose head has the properties that hold for every input.

#[cfg(feature = "program")]
pub mod config_file;
#[cfg(feature = "program")]
pub mod control;
pub mod disk_cache_region;
pub mod key_ring;
#[cfg(feature = "program")]
pub mod local_state;
#[cfg(feature = "program")]
pub mod log_payloads;
pub mod log_recovery;
#[cfg(feature = "metadata")]
pub mod metadata;
#[cfg(feature = "metadata")]
pub mod metadata_objects;
pub mod nfs_calls;
pub mod pack_frame;
pub mod pack_index;
pub mod record_marking;
pub mod rpc;
pub mod sealed_log;
#[cfg(feature = "program")]
pub mod settings;
#[cfg(feature = "metadata")]
pub mod volume_descriptor;
