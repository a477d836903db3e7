//! The share reservations of one file.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::request::Share;
use crate::{Client, Incarnation};

/// Reservations by owner, and counts by kind: so a new one need not be compared with each of them.
#[derive(Default)]
pub(crate) struct Shares {
    shares: BTreeMap<(Arc<Client>, Vec<u8>), Share>,
    /// Numbers of reservations with this access, and of those that deny it: reading, writing.
    access: [usize; 2],
    deny: [usize; 2],
}

/// Whether reading, and whether writing, is set in the bits.
fn bits(of: u32) -> [bool; 2] {
    [of & 1 != 0, of & 2 != 0]
}

fn key(share: &Share) -> (Arc<Client>, Vec<u8>) {
    (share.client.clone(), share.handle.clone())
}

impl Shares {
    pub(crate) fn len(&self) -> usize {
        self.shares.len()
    }

    /// Whether another owner's reservation excludes this one, or is excluded by it.
    pub(crate) fn conflict(&self, share: &Share) -> bool {
        let own = self.shares.get(&key(share));
        let clashes = |wanted: u32, others: &[usize; 2], own: u32| {
            let own = bits(own).map(usize::from);
            let others = others.iter().zip(own).map(|(all, own)| all - own);
            bits(wanted)
                .into_iter()
                .zip(others)
                .any(|(wanted, others)| wanted && others > 0)
        };
        clashes(share.deny, &self.access, own.map_or(0, |own| own.access))
            || clashes(share.access, &self.deny, own.map_or(0, |own| own.deny))
    }

    pub(crate) fn has(&self, share: &Share) -> bool {
        self.shares.contains_key(&key(share))
    }

    /// Sets the owner's reservation; replaces an existing one.
    pub(crate) fn set(&mut self, share: Share) {
        self.remove(&share);
        for (all, own) in [
            (&mut self.access, share.access),
            (&mut self.deny, share.deny),
        ] {
            for (count, has) in all.iter_mut().zip(bits(own)) {
                *count += usize::from(has);
            }
        }
        self.shares.insert(key(&share), share);
    }

    /// Removes the owner's reservation, if there is one.
    pub(crate) fn remove(&mut self, share: &Share) {
        let Some(share) = self.shares.remove(&key(share)) else {
            return;
        };
        for (all, own) in [
            (&mut self.access, share.access),
            (&mut self.deny, share.deny),
        ] {
            for (count, has) in all.iter_mut().zip(bits(own)) {
                *count -= usize::from(has);
            }
        }
    }

    /// Removes all reservations of `client`, except those of its incarnation `but`.
    pub(crate) fn free(&mut self, client: &Client, but: Option<Incarnation>) {
        let lowest = (Arc::new(client.clone()), Vec::new());
        let own = self.shares.range(lowest..).map(|(_, share)| share);
        let own = own.take_while(|share| *share.client == *client);
        let gone = own.filter(|share| but != Some(share.incarnation));
        for share in gone.cloned().collect::<Vec<_>>() {
            self.remove(&share);
        }
    }
}
