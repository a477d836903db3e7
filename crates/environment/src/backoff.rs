//! Pauses between attempts.

use std::time::Duration;

use crate::environment::{Randomness, fraction};

/// The pause after `attempt` attempts (1 or more): doubles from 100 ms to 5 s. A random part, up to half of it, is
/// left out, so that tasks that failed together do not try again together.
pub fn backoff(attempt: u32, random: &dyn Randomness) -> Duration {
    let ceiling =
        Duration::from_millis(100 << attempt.saturating_sub(1).min(6)).min(Duration::from_secs(5));
    ceiling.mul_f64(0.5 + 0.5 * fraction(random))
}
