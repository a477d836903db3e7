//! Balances that must not become negative.
//!
//! One that would is a fault of the program, or of the data that it was computed from. It must not wrap round, and must not
//! pass in silence: tests stop there, and a gateway goes on with 0, counts it and logs it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::to_usize;

/// How often it has happened in this process.
static UNDERFLOWS: AtomicU64 = AtomicU64::new(0);

/// Takes `amount` from `balance`, which has at least as much. `account` names the balance in the log.
///
/// # Panics
///
/// In debug builds, if `balance` is smaller.
#[inline]
pub fn taken(account: &'static str, balance: u64, amount: u64) -> u64 {
    match balance.checked_sub(amount) {
        Some(rest) => rest,
        None => underflow(account, balance, amount),
    }
}

/// The same for a number of things.
///
/// # Panics
///
/// In debug builds, if `balance` is smaller.
#[inline]
pub fn taken_count(account: &'static str, balance: usize, amount: usize) -> usize {
    match balance.checked_sub(amount) {
        Some(rest) => rest,
        None => to_usize(underflow(account, balance as u64, amount as u64)),
    }
}

/// The same for a number of 32 bits, such as a count of links.
///
/// # Panics
///
/// In debug builds, if `balance` is smaller.
#[inline]
pub fn taken_u32(account: &'static str, balance: u32, amount: u32) -> u32 {
    match balance.checked_sub(amount) {
        Some(rest) => rest,
        None => {
            underflow(account, balance.into(), amount.into());
            0
        }
    }
}

/// How often a balance would have become negative since the process began.
pub fn underflows() -> u64 {
    UNDERFLOWS.load(Ordering::Relaxed)
}

#[cold]
fn underflow(account: &'static str, balance: u64, amount: u64) -> u64 {
    let before = UNDERFLOWS.fetch_add(1, Ordering::Relaxed);
    // Each time that the number doubles: a fault may come with every call.
    if (before + 1).is_power_of_two() {
        tracing::error!(
            "accounting: {account} is {balance}, and cannot be reduced by {amount}; it is set to 0. This is a bug: please report it. `forebay fsck` checks the volume's counts"
        );
    }
    debug_assert!(
        balance >= amount,
        "{account} is {balance}, and cannot be reduced by {amount}"
    );
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_taken() {
        assert_eq!(taken("packs", 7, 7), 0);
        assert_eq!(taken_count("calls", 7, 3), 4);
        assert_eq!(taken_u32("links", 2, 1), 1);
    }

    #[test]
    #[cfg_attr(
        debug_assertions,
        should_panic(expected = "packs is 3, and cannot be reduced by 4")
    )]
    fn more_is_counted_and_never_wraps_round() {
        let before = underflows();
        assert_eq!(taken("packs", 3, 4), 0);
        assert!(underflows() > before);
    }
}
