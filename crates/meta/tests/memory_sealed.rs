//! The store's memory stays within its documented bound while metadata grows beyond it, in a sealed volume too.
//!
//! A test binary of its own, because it measures the resident memory of the whole process.
#![cfg(target_os = "linux")]

mod growth;

use std::sync::Arc;

use forebay_meta::Sealing;
use forebay_seal::{DataKeyId, DataKeys, Secret, SystemEntropy};
use forebay_types::VolumeId;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_bounded_under_sustained_commits_and_reads_of_a_sealed_volume() {
    let current = (DataKeyId(1), Secret::draw(&SystemEntropy));
    let sealing = Sealing {
        keys: Arc::new(DataKeys::new(VolumeId([1; 16]), current, [])),
        entropy: Arc::new(SystemEntropy),
    };
    growth::memory_stays_bounded(Some(sealing)).await;
}
