//! Tries random histories. A failing one is shrunk, and printed in a line of its own after the failure, so that the
//! end of the output has both.
//!
//! `FOREBAY_MODEL_CASES` sets how many histories each test tries (default 12).

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Calls `run` with histories from `strategy`; it panics if one fails.
pub(crate) fn try_all<S>(strategy: &S, run: impl Fn(S::Value))
where
    S: Strategy<Value: Debug>,
{
    let cases = std::env::var("FOREBAY_MODEL_CASES").map_or(12, |cases| cases.parse().unwrap());
    let config = Config {
        cases,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(strategy, |history| {
        run(history);
        Ok(())
    });
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => panic!("{why}\n  after {history:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
