//! Accounts: usage and limits of the volume and of each tree.
//!
//! ```text
//!            reserve, before the record            settle, with the change in memory
//!   limit <------------------------- growth  ------------------------------------> used
//!                                      |
//!                                      +-- dropped: given back, the change was not made
//! ```
//!
//! Plain numbers that change atomically: a reservation guarantees its room, whatever other tasks do at the same
//! moment, so that all together never exceed a limit, and no lock is taken. Amounts that are counted without a
//! reservation (replay, an operator's changes, a publication that corrects an estimate) may exceed it; then nothing
//! grows until enough was removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::balance::taken;
use forebay_types::{CheckpointId, Inode};
use forebay_vfs::Error;

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Bytes, rounded up to units of 512 for each file, and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of objects.
    pub files: u64,
}

/// One number and its limit.
#[derive(Debug)]
struct Meter {
    used: AtomicU64,
    limit: AtomicU64,
}

impl Meter {
    fn new(used: u64, limit: u64) -> Meter {
        Meter {
            used: AtomicU64::new(used),
            limit: AtomicU64::new(limit),
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// Adds `more` if the limit allows it. Zero is always allowed, even above the limit.
    fn take(&self, more: u64) -> bool {
        if more == 0 {
            return true;
        }
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let after = used.checked_add(more)?;
                (after <= self.limit()).then_some(after)
            });
        taken.is_ok()
    }

    /// Replaces a count of `from` by a count of `to`.
    fn shift(&self, from: u64, to: u64) {
        if from == to {
            return;
        }
        let changed = |used: u64| match to.checked_sub(from) {
            Some(more) => used.saturating_add(more),
            None => taken("an account of a quota", used, from - to),
        };
        // The closure always returns a number.
        let _ = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                Some(changed(used))
            });
    }
}

/// Usage and limit of the volume or of one tree.
#[derive(Debug)]
pub struct Account {
    /// The root of the tree; none for the volume.
    root: Option<Inode>,
    bytes: Meter,
    files: Meter,
    /// Number of the last checkpoint in which too much may have been counted; 0 for none. Its publication corrects
    /// that.
    loose: AtomicU64,
}

impl Account {
    /// The account of the tree below `root`, or of the volume.
    pub fn new(root: Option<Inode>, used: Amount, limit: Amount) -> Account {
        Account {
            root,
            bytes: Meter::new(used.bytes, limit.bytes),
            files: Meter::new(used.files, limit.files),
            loose: AtomicU64::new(0),
        }
    }

    /// The usage, including reservations.
    pub fn used(&self) -> Amount {
        Amount {
            bytes: self.bytes.used(),
            files: self.files.used(),
        }
    }

    /// The limit; [`UNLIMITED`] for none.
    pub fn limit(&self) -> Amount {
        Amount {
            bytes: self.bytes.limit(),
            files: self.files.limit(),
        }
    }

    /// Changes the limit. The usage stays.
    pub fn set_limit(&self, limit: Amount) {
        self.bytes.limit.store(limit.bytes, Ordering::Release);
        self.files.limit.store(limit.files, Ordering::Release);
    }

    fn take(&self, growth: Amount) -> bool {
        if !self.bytes.take(growth.bytes) {
            return false;
        }
        let taken = self.files.take(growth.files);
        if !taken {
            self.bytes.shift(growth.bytes, 0);
        }
        taken
    }

    fn shift(&self, from: Amount, to: Amount) {
        self.bytes.shift(from.bytes, to.bytes);
        self.files.shift(from.files, to.files);
    }
}

/// Room for a change. It is given back when dropped, unless the change was [settled](Charge::settle).
#[derive(Debug)]
pub struct Reservation {
    accounts: Accounted,
    growth: Amount,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.accounts.shift(self.growth, Amount::default());
    }
}

/// The accounts in which an object counts.
#[derive(Clone, Debug)]
struct Accounted {
    volume: Arc<Account>,
    tree: Option<Arc<Account>>,
}

impl Accounted {
    fn shift(&self, from: Amount, to: Amount) {
        self.volume.shift(from, to);
        if let Some(tree) = &self.tree {
            tree.shift(from, to);
        }
    }
}

/// The amount that one object counts, and its accounts. Kept under the object's lock.
#[derive(Debug)]
pub struct Charge {
    accounts: Accounted,
    amount: Amount,
}

impl Charge {
    /// The charge of an object whose `amount` is in the accounts already.
    pub fn counted(volume: Arc<Account>, tree: Option<Arc<Account>>, amount: Amount) -> Charge {
        Charge {
            accounts: Accounted { volume, tree },
            amount,
        }
    }

    /// The charge of an object that will be in the same tree and counts nothing yet.
    pub fn of_child(&self) -> Charge {
        Charge {
            accounts: self.accounts.clone(),
            amount: Amount::default(),
        }
    }

    /// The amount that the object counts.
    pub fn amount(&self) -> Amount {
        self.amount
    }

    /// The tree's account.
    pub fn tree(&self) -> Option<&Arc<Account>> {
        self.accounts.tree.as_ref()
    }

    /// The root of the tree.
    pub fn root(&self) -> Option<Inode> {
        self.accounts.tree.as_ref().and_then(|tree| tree.root)
    }

    /// Reserves room for the object to count `to`; gives nothing back if that is less.
    ///
    /// # Errors
    ///
    /// [`Error::Quota`] if the tree has no room, [`Error::NoSpace`] if the volume has none.
    pub fn reserve(&self, to: Amount) -> Result<Reservation, Error> {
        let growth = Amount {
            bytes: to.bytes.saturating_sub(self.amount.bytes),
            files: to.files.saturating_sub(self.amount.files),
        };
        let Accounted { volume, tree } = &self.accounts;
        if tree.as_ref().is_some_and(|tree| !tree.take(growth)) {
            return Err(Error::Quota);
        }
        if !volume.take(growth) {
            if let Some(tree) = tree {
                tree.shift(growth, Amount::default());
            }
            return Err(Error::NoSpace);
        }
        Ok(Reservation {
            accounts: self.accounts.clone(),
            growth,
        })
    }

    /// Counts `to` for the object from now on, which includes its reservation.
    pub fn settle(&mut self, to: Amount, reserved: Option<Reservation>) {
        let mut from = self.amount;
        if let Some(mut reserved) = reserved {
            from.bytes += reserved.growth.bytes;
            from.files += reserved.growth.files;
            // The reservation has nothing left to give back.
            reserved.growth = Amount::default();
        }
        self.accounts.shift(from, to);
        self.amount = to;
    }

    /// Counts the object in the volume, or in the trash in its place, from now on.
    pub fn count_in(&mut self, account: &Arc<Account>) {
        if !Arc::ptr_eq(&self.accounts.volume, account) {
            self.accounts.volume.shift(self.amount, Amount::default());
            account.shift(Amount::default(), self.amount);
            self.accounts.volume = account.clone();
        }
    }

    /// Counts the object in another tree, or in none, from now on.
    pub fn move_to(&mut self, tree: Option<Arc<Account>>) {
        if let Some(old) = &self.accounts.tree {
            old.shift(self.amount, Amount::default());
        }
        if let Some(new) = &tree {
            new.shift(Amount::default(), self.amount);
        }
        self.accounts.tree = tree;
    }

    /// Notes that too much may be counted until the open checkpoint is published.
    pub fn loosen(&self, open: CheckpointId) {
        for account in self.accounts() {
            account.loose.fetch_max(open.0, Ordering::AcqRel);
        }
    }

    /// Whether too much may still be counted when the checkpoints up to `published` are published.
    pub fn is_loose(&self, published: CheckpointId) -> bool {
        self.accounts()
            .any(|account| account.loose.load(Ordering::Acquire) > published.0)
    }

    fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        let Accounted { volume, tree } = &self.accounts;
        tree.iter().chain([volume])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(bytes: u64, files: u64) -> Amount {
        Amount { bytes, files }
    }

    fn account(root: Option<u64>, limit: Amount) -> Arc<Account> {
        Arc::new(Account::new(root.map(Inode), Amount::default(), limit))
    }

    #[test]
    fn what_is_reserved_and_not_used_is_given_back_in_both_accounts() {
        let volume = account(None, amount(2000, 9));
        let tree = account(Some(5), amount(1000, 3));
        let mut charge = Charge::counted(volume.clone(), Some(tree.clone()), amount(0, 0));
        let reserved = charge.reserve(amount(1000, 1)).unwrap();
        assert_eq!(tree.used(), amount(1000, 1));
        assert_eq!(
            charge.of_child().reserve(amount(1, 0)).err(),
            Some(Error::Quota)
        );
        charge.settle(amount(600, 1), Some(reserved));
        assert_eq!(tree.used(), amount(600, 1));
        drop(charge.reserve(amount(900, 1)).unwrap());
        assert_eq!(
            (tree.used(), volume.used()),
            (amount(600, 1), amount(600, 1))
        );
        charge.settle(amount(0, 0), None);
        assert_eq!((tree.used(), volume.used()), (amount(0, 0), amount(0, 0)));
    }

    #[test]
    fn a_full_volume_takes_nothing_from_the_tree() {
        let volume = account(None, amount(500, 9));
        let tree = account(Some(5), amount(1000, 3));
        let charge = Charge::counted(volume.clone(), Some(tree.clone()), amount(0, 0));
        assert_eq!(charge.reserve(amount(501, 1)).err(), Some(Error::NoSpace));
        assert_eq!(charge.reserve(amount(1, 4)).err(), Some(Error::Quota));
        assert_eq!((tree.used(), volume.used()), (amount(0, 0), amount(0, 0)));
    }

    #[test]
    fn above_a_lowered_limit_nothing_grows_and_everything_may_shrink() {
        let volume = account(None, amount(UNLIMITED, UNLIMITED));
        let tree = account(Some(5), amount(1000, 3));
        let mut charge = Charge::counted(volume, Some(tree.clone()), amount(0, 0));
        charge.settle(amount(1000, 1), None);
        tree.set_limit(amount(400, 1));
        assert!(charge.reserve(amount(1000, 1)).is_ok(), "nothing more");
        assert!(charge.reserve(amount(800, 1)).is_ok(), "less");
        assert_eq!(charge.reserve(amount(1001, 1)).err(), Some(Error::Quota));
        charge.settle(amount(300, 1), None);
        assert!(charge.reserve(amount(400, 1)).is_ok());
    }

    #[test]
    fn an_object_that_moves_counts_in_one_tree_and_always_in_the_volume() {
        let volume = account(None, amount(UNLIMITED, UNLIMITED));
        let [one, other] = [5, 6].map(|root| account(Some(root), amount(1, 1)));
        let mut charge = Charge::counted(volume.clone(), Some(one.clone()), amount(0, 0));
        charge.settle(amount(700, 1), None);
        charge.move_to(Some(other.clone()));
        assert_eq!((one.used(), other.used()), (amount(0, 0), amount(700, 1)));
        charge.move_to(None);
        assert_eq!(
            (other.used(), volume.used()),
            (amount(0, 0), amount(700, 1))
        );
    }

    #[test]
    fn many_reservations_at_once_never_pass_the_limit_together() {
        let volume = account(None, amount(UNLIMITED, UNLIMITED));
        let tree = account(Some(5), amount(100 * 512, UNLIMITED));
        let charge = Charge::counted(volume, Some(tree.clone()), amount(0, 0));
        let succeeded = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut own = charge.of_child();
                        if let Ok(reserved) = own.reserve(amount(512, 1)) {
                            assert!(tree.used().bytes <= 100 * 512);
                            own.settle(amount(512, 1), Some(reserved));
                            succeeded.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(succeeded.into_inner(), 100);
        assert_eq!(tree.used(), amount(100 * 512, 100));
    }
}
