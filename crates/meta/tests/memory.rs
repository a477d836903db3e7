//! The store's memory stays within its documented bound while metadata grows beyond it.
//!
//! A test binary of its own, because it measures the resident memory of the whole process.
#![cfg(target_os = "linux")]

mod growth;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_bounded_under_sustained_commits_and_reads() {
    growth::memory_stays_bounded(None).await;
}
