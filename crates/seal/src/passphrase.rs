//! Derivation of a key from a passphrase.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::object::SALT_LEN;
use crate::{Passphrase, SECRET_LEN, Secret};

/// The cost of one guess of a passphrase: the parameters of Argon2id (RFC 9106). They are stored
/// with the data that they were used for, so that the default may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argon2Cost {
    /// Memory in KiB, from 8 per lane to [`Argon2Cost::MAX_MEMORY_KIB`].
    pub memory_kib: u32,
    /// Passes over the memory, from 1 to [`Argon2Cost::MAX_PASSES`].
    pub passes: u32,
    /// Lanes of the memory, from 1 to [`Argon2Cost::MAX_LANES`]. An attacker with more cores than
    /// this program uses can process them in parallel.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// [`Argon2Cost::RECOMMENDED`].
    fn default() -> Argon2Cost {
        Argon2Cost::RECOMMENDED
    }
}

impl Argon2Cost {
    /// The second recommended choice of RFC 9106, section 4: 64 MiB, 3 passes, 4 lanes. The first one takes 2 GiB, more
    /// than a gateway may have.
    pub const RECOMMENDED: Argon2Cost = Argon2Cost {
        memory_kib: 64 << 10,
        passes: 3,
        lanes: 4,
    };

    /// The memory of the first recommended choice of RFC 9106. The parameters are read from the
    /// bucket before any of it is authenticated, so write access to the bucket must not be enough
    /// to make this program allocate any amount.
    pub const MAX_MEMORY_KIB: u32 = 2 << 20;
    /// Maximum number of passes, for the same reason: with the maximum of memory they take minutes, not days.
    pub const MAX_PASSES: u32 = 64;
    /// Maximum number of lanes.
    pub const MAX_LANES: u32 = 64;

    /// Checks that the parameters are within the bounds.
    pub(crate) fn check(&self) -> Result<(), InvalidCost> {
        let is_valid = (1..=Self::MAX_LANES).contains(&self.lanes)
            && (1..=Self::MAX_PASSES).contains(&self.passes)
            && (8 * self.lanes..=Self::MAX_MEMORY_KIB).contains(&self.memory_kib);
        is_valid.then_some(()).ok_or(InvalidCost::Bounds)
    }

    /// Derives a key from a passphrase and a salt.
    pub(crate) fn stretch(
        &self,
        passphrase: &Passphrase,
        salt: &[u8; SALT_LEN],
    ) -> Result<Secret, InvalidCost> {
        self.check()?;
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(SECRET_LEN))
            .map_err(|_| InvalidCost::Bounds)?;
        let mut memory = Memory::take(params.block_count())?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        Secret::try_filled(|key| {
            let memory = memory.0.as_mut_slice();
            argon2
                .hash_password_into_with_memory(passphrase.bytes(), salt, key, memory)
                .map_err(|_| InvalidCost::Bounds)
        })
    }
}

/// Why no key can be derived from a passphrase with these parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCost {
    /// The parameters are beyond the bounds.
    #[error(
        "the cost of a passphrase has to be 1 to {max_lanes} lanes, 1 to {max_passes} passes and 8 \
         KiB for each lane to {max_memory} KiB",
        max_lanes = Argon2Cost::MAX_LANES,
        max_passes = Argon2Cost::MAX_PASSES,
        max_memory = Argon2Cost::MAX_MEMORY_KIB
    )]
    Bounds,
    /// The machine does not have that much memory.
    #[error("not enough memory for the cost of the passphrase")]
    Memory,
}

/// The working memory of Argon2. It is wiped: with it, an attacker could test a guess at the price of one block.
struct Memory(Vec<Block>);

impl Memory {
    fn take(blocks: usize) -> Result<Memory, InvalidCost> {
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(blocks)
            .map_err(|_| InvalidCost::Memory)?;
        memory.resize(blocks, Block::new());
        Ok(Memory(memory))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_from_passphrase_salt_and_cost() {
        let cost = Argon2Cost {
            memory_kib: 16,
            passes: 1,
            lanes: 2,
        };
        let key = |cost: Argon2Cost, text: &str, salt| {
            let passphrase = Passphrase::new(text.into()).unwrap();
            *cost
                .stretch(&passphrase, &[salt; SALT_LEN])
                .unwrap()
                .expose()
        };
        let one = key(cost, "open", 1);
        assert_eq!(one, key(cost, "open", 1));
        assert_ne!(one, key(cost, "open", 2));
        assert_ne!(one, key(cost, "opem", 1));
        assert_ne!(one, key(Argon2Cost { passes: 2, ..cost }, "open", 1));
    }

    #[test]
    fn costs_beyond_the_bounds_are_refused_before_memory_is_taken() {
        let passphrase = Passphrase::new("open".into()).unwrap();
        let good = Argon2Cost::RECOMMENDED;
        for cost in [
            Argon2Cost { lanes: 0, ..good },
            Argon2Cost { lanes: 65, ..good },
            Argon2Cost { passes: 0, ..good },
            Argon2Cost { passes: 65, ..good },
            Argon2Cost {
                memory_kib: 31,
                ..good
            },
            Argon2Cost {
                memory_kib: u32::MAX,
                ..good
            },
        ] {
            let refused = cost.stretch(&passphrase, &[0; SALT_LEN]);
            assert_eq!(refused.unwrap_err(), InvalidCost::Bounds, "{cost:?}");
        }
        assert_eq!(good.check(), Ok(()));
    }
}
