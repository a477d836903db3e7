//! Quotas: what the volume and directory trees may hold.
//!
//! A tree is a directory with a quota and everything below it, down to directories that have a quota of
//! their own. Every object counts in one tree or in none, and always in the volume; its record names the
//! tree by the inode of the root, and a new object gets the tree of its directory. So nobody looks up a
//! path to know where something counts: the node holds its accounts.
//!
//! ```text
//!   account    what is reserved and counted, live        crates/fs/src/quota/account.rs
//!   ledger     the same as of the published LSN          .../ledger.rs
//!   operator   set, remove and list quotas               .../operator.rs
//!   spread     counts what lay below a directory         .../spread.rs
//!              before it got a quota, in steps
//! ```
//!
//! What counts is what the attribute `used` of regular files shows, so that `df` and `du` agree: bytes
//! that were written, not holes. Directories, links and special files count as objects only.

mod account;
mod ledger;
mod operator;
mod spread;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use forebay_meta::record::{InodeRecord, QuotaRecord, Spread, UsageRecord, VolumeState};
use forebay_meta::{Batch, Catalog, Key, KeyRange, StoreError};
use forebay_types::Inode;
use forebay_vfs::{Result, Statistics};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

pub(crate) use account::{Account, Amount, Charge, Reservation, UNLIMITED};
pub(crate) use ledger::{Ledger, Share};
pub use operator::{DisplayPath, LimitChange, Quota, QuotaError};

use crate::core::Core;

/// Records that are read at a time when accounts are made.
const RECORDS_PER_SCAN: usize = 1024;

/// The accounts of a volume.
pub(crate) struct Accounts {
    volume: Arc<Account>,
    trees: RwLock<HashMap<Inode, Arc<Account>>>,
    /// What the bucket counts for each tree. Only the publisher changes it.
    published: Mutex<BTreeMap<Inode, Amount>>,
    /// Trees whose objects do not all count where they should yet.
    unsettled: Mutex<BTreeSet<Inode>>,
    wake: Notify,
    /// Held by whoever changes a quota, from the look at it to the change.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Accounts {
    /// The accounts as the bucket has them, under the volume's `limit`.
    pub(crate) async fn load(
        catalog: &Catalog,
        state: &VolumeState,
        limit: Amount,
    ) -> std::result::Result<Accounts, StoreError> {
        let used = Amount {
            bytes: match state.charged_bytes {
                Some(bytes) => bytes,
                None => count(catalog).await?,
            },
            files: state.used_inodes,
        };
        let accounts = Accounts {
            volume: Arc::new(Account::new(None, used, limit)),
            trees: RwLock::default(),
            published: Mutex::default(),
            unsettled: Mutex::default(),
            wake: Notify::new(),
            changing: tokio::sync::Mutex::new(()),
        };
        for (key, usage) in scan_all::<UsageRecord>(catalog, KeyRange::usages()).await? {
            let Key::Usage(root) = key else { continue };
            let used = Amount {
                bytes: usage.bytes,
                files: usage.files,
            };
            let account = Account::new(Some(root), used, NO_LIMIT);
            accounts.trees.write().insert(root, Arc::new(account));
            accounts.published.lock().insert(root, used);
        }
        accounts.read_limits(catalog).await?;
        Ok(accounts)
    }

    /// Sets the limits as overlay and store have them: when the bucket was read, and when the log
    /// was replayed over it.
    pub(crate) async fn read_limits(
        &self,
        catalog: &Catalog,
    ) -> std::result::Result<(), StoreError> {
        let quotas = scan_all::<QuotaRecord>(catalog, KeyRange::quotas()).await?;
        for account in self.trees.read().values() {
            account.set_limit(NO_LIMIT);
        }
        self.unsettled.lock().clear();
        for (key, quota) in quotas {
            let Key::Quota(root) = key else { continue };
            self.set(root, &quota);
        }
        Ok(())
    }

    /// The limits of a tree are these from now on.
    pub(crate) fn set(&self, root: Inode, quota: &QuotaRecord) {
        self.tree(root).set_limit(Amount {
            bytes: quota.limit_bytes,
            files: quota.limit_files,
        });
        let mut unsettled = self.unsettled.lock();
        if quota.spread == Spread::Done {
            unsettled.remove(&root);
        } else {
            unsettled.insert(root);
            self.wake.notify_one();
        }
    }

    pub(crate) fn volume(&self) -> &Arc<Account> {
        &self.volume
    }

    /// The account of a tree, also of one that is not known yet.
    pub(crate) fn tree(&self, root: Inode) -> Arc<Account> {
        if let Some(account) = self.trees.read().get(&root) {
            return account.clone();
        }
        let new = || Arc::new(Account::new(Some(root), Amount::default(), NO_LIMIT));
        self.trees.write().entry(root).or_insert_with(new).clone()
    }

    /// The charge of an object that the accounts hold already, as the bucket has it.
    pub(crate) fn charge(&self, record: &InodeRecord) -> Charge {
        let amount = Amount {
            bytes: record.charged_bytes(),
            files: 1,
        };
        let tree = record.tree.map(|root| self.tree(root));
        Charge::counted(self.volume.clone(), tree, amount)
    }

    /// The charge of an object that is about to be made.
    pub(crate) fn new_charge(&self, record: &InodeRecord) -> Charge {
        let tree = record.tree.map(|root| self.tree(root));
        Charge::counted(self.volume.clone(), tree, Amount::default())
    }

    /// Adds what `ledger` says to a batch, and gives the volume's state after it.
    pub(crate) fn enter(
        &self,
        ledger: &Ledger,
        batch: &mut Batch,
        state: VolumeState,
    ) -> VolumeState {
        let published = self.published.lock();
        for (&root, difference) in &ledger.trees {
            let before = published.get(&root).copied().unwrap_or_default();
            let after = difference.after(before);
            if after.files == 0 {
                // The last of its objects takes the tree along: nothing can come to it any more.
                batch.delete(&Key::Usage(root));
                batch.delete(&Key::Quota(root));
                continue;
            }
            let usage = UsageRecord {
                bytes: after.bytes,
                files: after.files,
            };
            batch.put(&Key::Usage(root), &usage);
        }
        let before = Amount {
            bytes: state.charged_bytes.unwrap_or_default(),
            files: state.used_inodes,
        };
        let after = ledger.volume.after(before);
        VolumeState {
            charged_bytes: Some(after.bytes),
            used_inodes: after.files,
            ..state
        }
    }

    /// The batch that [`enter`](Accounts::enter) added to is in the bucket.
    pub(crate) fn entered(&self, ledger: &Ledger) {
        let mut published = self.published.lock();
        for (&root, difference) in &ledger.trees {
            let before = published.get(&root).copied().unwrap_or_default();
            let after = difference.after(before);
            if after.files > 0 {
                published.insert(root, after);
                continue;
            }
            published.remove(&root);
            let mut trees = self.trees.write();
            // Not if it has become a tree again since.
            let unused = |account: &Arc<Account>| {
                Arc::strong_count(account) == 1 && account.used().files == 0
            };
            if trees.get(&root).is_some_and(unused) {
                trees.remove(&root);
            }
        }
    }
}

/// The quota of a tree that is to go: without limits, until nothing counts there.
pub(crate) const LEAVING: QuotaRecord = QuotaRecord {
    limit_bytes: UNLIMITED,
    limit_files: UNLIMITED,
    spread: Spread::Leaving,
};

const NO_LIMIT: Amount = Amount {
    bytes: UNLIMITED,
    files: UNLIMITED,
};

/// Counts the bytes of all files, for a volume that was last written by a version that did not.
async fn count(catalog: &Catalog) -> std::result::Result<u64, StoreError> {
    let mut bytes: u64 = 0;
    let mut range = KeyRange::inodes();
    loop {
        let found = catalog
            .records::<InodeRecord>(&range, RECORDS_PER_SCAN)
            .await?;
        for (_, record) in &found {
            bytes = bytes.saturating_add(record.charged_bytes());
        }
        match found.last() {
            Some((last, _)) if found.len() == RECORDS_PER_SCAN => {
                range = range.after(&last.encode());
            }
            _ => return Ok(bytes),
        }
    }
}

/// All records of a range that holds few.
async fn scan_all<R: forebay_meta::Record>(
    catalog: &Catalog,
    mut range: KeyRange,
) -> std::result::Result<Vec<(Key, R)>, StoreError> {
    let mut all = Vec::new();
    loop {
        let found = catalog.records::<R>(&range, RECORDS_PER_SCAN).await?;
        let full = found.len() == RECORDS_PER_SCAN;
        all.extend(found);
        match all.last() {
            Some((last, _)) if full => range = range.after(&last.encode()),
            _ => return Ok(all),
        }
    }
}

impl Core {
    /// Sizes of the volume.
    pub(crate) fn statistics(&self) -> Statistics {
        let volume = self.accounts.volume();
        let (limit, used) = (volume.limit(), volume.used());
        let (bytes, files) = (free(limit.bytes, used.bytes), free(limit.files, used.files));
        Statistics {
            total_bytes: limit.bytes,
            free_bytes: bytes,
            available_bytes: bytes,
            total_files: limit.files,
            free_files: files,
            available_files: files,
        }
    }

    /// Sizes of what an object counts in: its tree, where that has a quota, else the volume. What is
    /// available is never more than what the volume has left.
    pub(crate) async fn statistics_at(&self, inode: Inode) -> Result<Statistics> {
        let volume = self.statistics();
        let node = self.node(inode).await?;
        let Some(tree) = node.lock_live()?.charge.tree().cloned() else {
            return Ok(volume);
        };
        let (limit, used) = (tree.limit(), tree.used());
        if limit == NO_LIMIT {
            return Ok(volume);
        }
        let total_bytes = limit.bytes.min(volume.total_bytes);
        let total_files = limit.files.min(volume.total_files);
        let free_bytes = free(total_bytes, used.bytes);
        let free_files = free(total_files, used.files);
        Ok(Statistics {
            total_bytes,
            free_bytes,
            available_bytes: free_bytes.min(volume.free_bytes),
            total_files,
            free_files,
            available_files: free_files.min(volume.free_files),
        })
    }
}

fn free(limit: u64, used: u64) -> u64 {
    limit.saturating_sub(used)
}
