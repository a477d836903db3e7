//! Counters and gauges.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// The sum so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Subtracts `amount`, which was added before.
    #[inline]
    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
