//! A part of the tree that stays as it is.

use forebay_client::{Handle, Verifier};

use super::Failure;
use crate::check::Then;
use crate::observe::Observer;
use crate::random::Random;

/// A directory that no writer changes, and a file in it.
pub(super) struct Landmark {
    pub(super) directory: Handle,
    /// Names and cookies, in their order.
    pub(super) names: Vec<(String, u64)>,
    pub(super) file: Handle,
    pub(super) verifier: Verifier,
}

impl Landmark {
    /// Compares the verifier, and a listing from somewhere in the middle.
    pub(super) fn look(
        &mut self,
        observer: &mut Observer,
        random: &mut Random,
        then: Then,
    ) -> Result<(), Failure> {
        let verifier = observer.verifier(&self.file)?;
        let same = verifier == self.verifier;
        if same != (then == Then::GoOn) {
            let how = if same { "the same" } else { "another one" };
            return Err(Failure::Other(format!(
                "the write verifier is {how} after a crash that {} have lost unstable writes",
                if same { "may" } else { "cannot" }
            )));
        }
        self.verifier = verifier;
        let from = random.below(self.names.len() as u64) as usize;
        let cookie = self.names.get(from).map_or(0, |(_, cookie)| *cookie);
        let listed = observer.list(&self.directory, cookie)?;
        let listed: Vec<_> = listed
            .into_iter()
            .map(|(name, _, cookie)| (name, cookie))
            .collect();
        if self.names.get(from + 1..) != Some(&listed[..]) {
            return Err(Failure::Other(format!(
                "a listing that goes on from cookie {cookie} gives {} names instead of {}, or others",
                listed.len(),
                self.names.len() - from - 1
            )));
        }
        Ok(())
    }
}
