//! Tries random histories. One that fails is shrunk, and told in a line of its own after what failed, so that the
//! end of an output has both.
//!
//! `FOREBAY_MODEL_CASES` sets how many each test tries (default 12).

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Calls `run` with histories out of `strategy`; it panics where one fails.
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
