//! The source of keys and salts.

/// A source of unpredictable bytes that never repeat: not after a restart, not in a copy of this machine.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`. Never returns before they are filled.
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's generator. Each call asks it, and none of its output is cached in this
/// process, which may be resumed twice from one image of the machine's memory: the kernel can
/// detect that, a process cannot.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// # Panics
    ///
    /// When the system has no generator. Nothing may be sealed then.
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the system gives random bytes");
    }
}

/// Bytes derived from a seed, the same in every run. Only for tests.
#[cfg(feature = "fake")]
#[derive(Debug)]
pub struct SeededEntropy {
    seed: u64,
    drawn: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "fake")]
impl SeededEntropy {
    /// A source that yields the same bytes whenever it is made with the same seed.
    pub fn new(seed: u64) -> SeededEntropy {
        SeededEntropy {
            seed,
            drawn: std::sync::atomic::AtomicU64::new(0),
        }
    }
}

#[cfg(feature = "fake")]
impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = self
            .drawn
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        blake3::Hasher::new()
            .update(&self.seed.to_le_bytes())
            .update(&drawn.to_le_bytes())
            .finalize_xof()
            .fill(bytes);
    }
}
