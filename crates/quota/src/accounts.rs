//! All accounts of a volume.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use forebay_meta::record::{
    InodeRecord, QuotaRecord, Recount, TrashTotals, UsageRecord, VolumeState,
};
use forebay_meta::{Batch, Catalog, Key, KeyRange, StoreError};
use forebay_types::Inode;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::account::{Account, Amount, Charge, UNLIMITED};
use crate::ledger::Ledger;

/// How many records are read at a time when accounts are loaded.
const RECORDS_PER_SCAN: usize = 1024;

/// The accounts of a volume.
pub struct Accounts {
    volume: Arc<Account>,
    /// Of the objects in the trash, which do not count in the volume. It has no limit.
    trash: Arc<Account>,
    trees: RwLock<HashMap<Inode, Arc<Account>>>,
    /// The published counts of each tree. Only the publisher changes them.
    published: Mutex<BTreeMap<Inode, Amount>>,
    /// Trees whose objects do not all count where they should yet.
    unsettled: Mutex<BTreeSet<Inode>>,
    wake: Notify,
    /// Held during a change of a quota, from the look at it to the change.
    pub changing: tokio::sync::Mutex<()>,
}

impl Accounts {
    /// Loads the published accounts, under the volume's `limit`.
    pub async fn load(
        catalog: &Catalog,
        state: &VolumeState,
        limit: Amount,
    ) -> Result<Accounts, StoreError> {
        let used = Amount {
            bytes: match state.charged_bytes {
                Some(bytes) => bytes,
                None => count(catalog).await?,
            },
            files: state.used_inodes,
        };
        let trash = Amount {
            bytes: state.trash.bytes,
            files: state.trash.files,
        };
        let accounts = Accounts {
            volume: Arc::new(Account::new(None, used, limit)),
            trash: Arc::new(Account::new(None, trash, NO_LIMIT)),
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

    /// Sets the limits from overlay and store: after the bucket was read, and after the log was replayed over it.
    pub async fn read_limits(&self, catalog: &Catalog) -> Result<(), StoreError> {
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

    /// Sets the limits of a tree.
    pub fn set(&self, root: Inode, quota: &QuotaRecord) {
        self.tree(root).set_limit(Amount {
            bytes: quota.limit_bytes,
            files: quota.limit_files,
        });
        let mut unsettled = self.unsettled.lock();
        if quota.recount == Recount::Done {
            unsettled.remove(&root);
        } else {
            unsettled.insert(root);
            self.wake.notify_one();
        }
    }

    /// A tree whose objects do not all count where they should; `None` if there is none.
    pub fn next_unsettled(&self) -> Option<Inode> {
        self.unsettled.lock().first().copied()
    }

    /// Returns when there may be another one.
    pub fn unsettled_changed(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Notes that all objects of this tree count where they should.
    pub fn settled(&self, root: Inode) {
        self.unsettled.lock().remove(&root);
    }

    /// The account of the volume.
    pub fn volume(&self) -> &Arc<Account> {
        &self.volume
    }

    /// The account of the trash.
    pub fn trash(&self) -> &Arc<Account> {
        &self.trash
    }

    /// The account of a tree; a new one if the tree is not known yet.
    pub fn tree(&self, root: Inode) -> Arc<Account> {
        if let Some(account) = self.trees.read().get(&root) {
            return account.clone();
        }
        let new = || Arc::new(Account::new(Some(root), Amount::default(), NO_LIMIT));
        self.trees.write().entry(root).or_insert_with(new).clone()
    }

    /// The charge of an object that the accounts hold already, from its published record.
    pub fn charge(&self, record: &InodeRecord) -> Charge {
        let amount = Amount {
            bytes: record.charged_bytes(),
            files: 1,
        };
        let tree = record.tree.map(|root| self.tree(root));
        Charge::counted(self.of(record).clone(), tree, amount)
    }

    /// Counts an object that has this record from now on in its accounts: in the volume and its tree, or in the trash.
    pub fn place(&self, charge: &mut Charge, record: &InodeRecord) {
        charge.count_in(self.of(record));
        if charge.root() != record.tree {
            charge.move_to(record.tree.map(|root| self.tree(root)));
        }
    }

    fn of(&self, record: &InodeRecord) -> &Arc<Account> {
        match record.is_in_trash() {
            true => &self.trash,
            false => &self.volume,
        }
    }

    /// The charge of an object that will be made.
    pub fn new_charge(&self, record: &InodeRecord) -> Charge {
        let tree = record.tree.map(|root| self.tree(root));
        Charge::counted(self.volume.clone(), tree, Amount::default())
    }

    /// Adds the changes of `ledger` to a batch, and returns the volume's state after it.
    pub fn enter(&self, ledger: &Ledger, batch: &mut Batch, state: VolumeState) -> VolumeState {
        let published = self.published.lock();
        for (&root, difference) in &ledger.trees {
            let before = published.get(&root).copied().unwrap_or_default();
            let after = difference.after(before);
            if after.files == 0 {
                // The tree ends with the last of its objects: nothing can be added to it any more.
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
        let trash = ledger.trash.after(Amount {
            bytes: state.trash.bytes,
            files: state.trash.files,
        });
        VolumeState {
            charged_bytes: Some(after.bytes),
            used_inodes: after.files,
            trash: TrashTotals {
                bytes: trash.bytes,
                files: trash.files,
            },
            ..state
        }
    }

    /// Notes that the batch to which [`enter`](Accounts::enter) added is in the bucket.
    pub fn entered(&self, ledger: &Ledger) {
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
            // Unless it has become a tree again since.
            let unused = |account: &Arc<Account>| {
                Arc::strong_count(account) == 1 && account.used().files == 0
            };
            if trees.get(&root).is_some_and(unused) {
                trees.remove(&root);
            }
        }
    }
}

/// The quota of a tree that will end: without limits, until nothing counts in it.
pub const LEAVING: QuotaRecord = QuotaRecord {
    limit_bytes: UNLIMITED,
    limit_files: UNLIMITED,
    recount: Recount::Leaving,
};

/// The limits of a tree without a quota.
pub const NO_LIMIT: Amount = Amount {
    bytes: UNLIMITED,
    files: UNLIMITED,
};

/// Counts the bytes of all files, for a volume that was last written by a version that did not count them.
async fn count(catalog: &Catalog) -> Result<u64, StoreError> {
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

/// All records of a range with few records.
pub async fn scan_all<R: forebay_meta::Record>(
    catalog: &Catalog,
    mut range: KeyRange,
) -> Result<Vec<(Key, R)>, StoreError> {
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
