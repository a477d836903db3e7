//! One conformance suite for all stores.

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod options;

/// A module of tests for a backend, which `$open` returns; each test has the attribute.
macro_rules! conformance {
    (#[$attribute:meta] $backend:ident, $open:expr, [$($case:ident),* $(,)?]) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                #[$attribute]
                async fn $case() {
                    let backend: crate::support::Backend = $open;
                    crate::cases::$case(&backend.store).await;
                }
            )*
        }
    };
}

macro_rules! all_cases {
    ($backend:ident, $open:expr) => {
        all_cases!(
            #[cfg(test)]
            $backend,
            $open
        );
    };
    (#[$attribute:meta] $backend:ident, $open:expr) => {
        conformance!(
            #[$attribute]
            $backend,
            $open,
            [
                probe_accepts_the_store_and_leaves_nothing_behind,
                an_object_is_put_read_overwritten_and_deleted,
                an_object_may_be_empty_large_or_in_many_pieces,
                ranges_are_exact,
                gets_obey_their_conditions,
                a_create_meets_an_object_and_leaves_it_alone,
                of_many_creates_at_once_one_wins,
                an_update_replaces_only_the_version_that_it_names,
                of_many_updates_at_once_none_is_lost,
                listings_follow_whole_path_segments,
                many_objects_are_deleted_in_one_go,
                an_upload_in_parts_appears_when_it_is_complete,
                an_object_is_copied_and_renamed,
                attributes_come_back_or_are_refused,
                every_request_is_counted,
            ]
        );
    };
}

all_cases!(memory, crate::support::memory().await);
all_cases!(file, crate::support::file().await);
all_cases!(s3_in_memory, crate::support::s3().await);
all_cases!(
    #[ignore = "needs the S3 server that FOREBAY_TEST_S3_SERVER names"]
    s3_real,
    crate::support::real_s3::start().await
);
