//! Forebay: fuzz targets for all code that reads bytes from outside.
//!
//! A target is a function of a byte string that panics when a property of Forebay does not hold for it. The properties
//! are more than the absence of panics: see the head of each module of [`targets`].
//!
//! | target | input | source |
//! |---|---|---|
//! | [`record_marking`](targets::record_marking) | the stream of an NFS connection, as records | a peer |
//! | [`rpc`](targets::rpc) | records: RPC, all 22 NFS procedures, MOUNT | a peer |
//! | [`nfs_calls`](targets::nfs_calls) | well-formed calls, one after the other, damaged at times | a peer |
//! | [`control`](targets::control) | lines of the control socket | a local peer |
//! | [`log_recovery`](targets::log_recovery) | segment files of the log | the disk |
//! | [`sealed_log`](targets::sealed_log) | segment files of a sealed log | an attacker with the disk |
//! | [`log_payloads`](targets::log_payloads) | payloads of data, truncate and metadata records | the disk |
//! | [`local_state`](targets::local_state) | the file `state` | the disk |
//! | [`disk_cache_region`](targets::disk_cache_region) | regions of the disk cache | the disk |
//! | [`pack_frame`](targets::pack_frame) | frames | the bucket |
//! | [`pack_index`](targets::pack_index) | packs and their indexes, names of packs | the bucket |
//! | [`key_ring`](targets::key_ring) | the object `forebay.keys` | the bucket |
//! | [`metadata`](targets::metadata) | keys and values of the metadata | the bucket |
//! | [`metadata_objects`](targets::metadata_objects) | objects below `meta/`: sealed, or with a trailer | the bucket |
//! | [`volume_descriptor`](targets::volume_descriptor) | the object `forebay.volume` | the bucket |
//! | [`config_file`](targets::config_file) | the configuration file | the administrator |
//! | [`settings`](targets::settings) | flags and environment variables | the administrator |
//!
//! Formats that others define and read are not here: SlateDB's tables and manifests, and the XML of S3, which the AWS
//! SDK parses.
//!
//! Checksums would stop a fuzzer before all code behind them. So the inputs of such targets begin with a byte of flags,
//! and one of them makes the target repair the checksums before it reads: [`repair`].
//!
//! The same targets run in three ways. `cargo test` replays the [`corpus`] of the repository and some thousand
//! [mutations](mutate) of it; `cargo run --release -p forebay-fuzz` mutates for a given time; `fuzz/run` runs
//! libFuzzer, which is guided by the coverage of the code. `docs/fuzzing.md` has the commands.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

pub mod corpus;
pub mod harness;
pub mod input;
pub mod mutate;
mod nfs;
pub mod repair;
pub mod targets;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its module and of its folder in the corpus.
    pub name: &'static str,
    /// Runs it. Panics if a property does not hold.
    pub run: fn(&[u8]),
    /// Inputs made with the real encoders, by name: the starting points of mutations.
    pub seeds: fn() -> Vec<(&'static str, Vec<u8>)>,
    /// Longest input that is worth trying, in bytes.
    pub max_bytes: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    targets::record_marking::TARGET,
    targets::rpc::TARGET,
    targets::nfs_calls::TARGET,
    #[cfg(feature = "program")]
    targets::control::TARGET,
    targets::log_recovery::TARGET,
    targets::sealed_log::TARGET,
    #[cfg(feature = "program")]
    targets::log_payloads::TARGET,
    #[cfg(feature = "program")]
    targets::local_state::TARGET,
    targets::disk_cache_region::TARGET,
    targets::pack_frame::TARGET,
    targets::pack_index::TARGET,
    targets::key_ring::TARGET,
    #[cfg(feature = "metadata")]
    targets::metadata::TARGET,
    #[cfg(feature = "metadata")]
    targets::metadata_objects::TARGET,
    #[cfg(feature = "metadata")]
    targets::volume_descriptor::TARGET,
    #[cfg(feature = "program")]
    targets::config_file::TARGET,
    #[cfg(feature = "program")]
    targets::settings::TARGET,
];

/// The target with this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
