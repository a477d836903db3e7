//! The targets: one module each, whose head says what holds for every input.

pub mod config_file;
pub mod control;
pub mod local_state;
pub mod log_payloads;
pub mod log_recovery;
pub mod metadata;
pub mod nfs_calls;
pub mod pack_frame;
pub mod pack_index;
pub mod record_marking;
pub mod rpc;
pub mod settings;
pub mod volume_descriptor;
