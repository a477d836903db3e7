//! The proof that the bucket still has the objects that a publication builds on.
//!
//! A gateway that only writes does not notice when objects that it wrote before are deleted: by a rule that expires
//! objects, by hand, by a server that came back with another disk. It would recycle the log for a state that nobody
//! can read. So
//!
//! * after each checkpoint's commit, the gateway asks for one table of the metadata that is older than it, another
//!   one each time ([`MetaStore::prove`](forebay_meta::MetaStore::prove)). Only then is the checkpoint published: the
//!   log before it is recycled, blocks are clean, and waiting callers are answered;
//! * while checkpoints are published, the gateway asks in turn for the descriptor and for a pack that the last ones
//!   refer to, one of them every [`presence_interval`](crate::FsConfig::presence_interval);
//! * a flush asks for a table, for the descriptor, and for packs that were missing, before it confirms that the
//!   bucket holds everything.
//!
//! An idle volume sends no requests.
//!
//! ```text
//!              a table or the descriptor is not there
//!   proven ---------------------------------------------> gone: the checkpoint waits, as while the bucket is
//!     ^                                                    |     unreachable; the log keeps all of it; flushes fail
//!     +----------------- it is there again ----------------+
//!
//!   a pack is not there: its frames are damaged, and bytes of them in memory or the disk cache are uploaded again
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_environment::{Randomness, fraction};
use forebay_meta::{StoreError, VolumeDescriptor};
use forebay_object::Store;
use forebay_pack::object_name;
use forebay_types::PackId;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::observer::{AccountChange, Observer};
use super::{FlushError, Halted, Publisher};

/// How many packs of the last checkpoints are remembered; one of them is asked for.
const RECENT: usize = 64;
/// How many missing packs flushes ask for again.
const MOST_MISSING: usize = 16;

/// The knowledge of the objects that publications build on.
pub(crate) struct Proof {
    store: Arc<dyn ObjectStore>,
    descriptor: Path,
    looked: Mutex<Instant>,
    turn: AtomicU64,
    packs: Mutex<Packs>,
}

#[derive(Default)]
struct Packs {
    /// Packs that the last checkpoints refer to, the newest last.
    recent: VecDeque<PackId>,
    /// Packs that were missing.
    missing: BTreeSet<PackId>,
}

impl Proof {
    /// The proof of a volume whose descriptor was there a moment ago.
    pub(crate) fn new(store: &Store) -> Proof {
        Proof {
            store: store.store.clone(),
            descriptor: VolumeDescriptor::location(&store.root),
            looked: Mutex::new(Instant::now()),
            turn: AtomicU64::new(0),
            packs: Mutex::default(),
        }
    }

    /// Notes changed accounts: live packs are referred to.
    fn note_accounts(&self, changes: &[AccountChange]) {
        let mut packs = self.packs.lock();
        for change in changes {
            packs.recent.retain(|pack| *pack != change.pack);
            match change.after {
                Some(_) => packs.recent.push_back(change.pack),
                None => drop(packs.missing.remove(&change.pack)),
            }
        }
        while packs.recent.len() > RECENT {
            packs.recent.pop_front();
        }
    }

    /// Whether it is time to check something beside tables.
    fn is_due(&self, interval: Duration) -> bool {
        let mut looked = self.looked.lock();
        let is_due = looked.elapsed() >= interval;
        if is_due {
            *looked = Instant::now();
        }
        is_due
    }

    fn some_pack(&self, random: &dyn Randomness) -> Option<PackId> {
        let packs = self.packs.lock();
        let index = fraction(random) * packs.recent.len() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the index is rounded down, and the fraction is at least 0"
        )]
        let index = index as usize;
        packs.recent.get(index).copied()
    }

    /// Checks that the descriptor is in the bucket.
    async fn descriptor(&self) -> Result<(), StoreError> {
        match self.store.head(&self.descriptor).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::NotFound { .. }) => Err(StoreError::Gone(format!(
                "the volume's descriptor {} is gone from the bucket",
                self.descriptor
            ))),
            Err(error) => Err(StoreError::Transient(error.to_string())),
        }
    }
}

impl Observer for Proof {
    fn committed(&self, changes: &[AccountChange], _dead: &BTreeSet<PackId>) {
        self.note_accounts(changes);
    }
}

impl Publisher {
    /// Checks that the bucket has the objects on which the checkpoint builds whose batch was just committed. Returns
    /// when it has.
    pub(super) async fn prove_checkpoint(&self) -> Result<(), Halted> {
        let store = self.context.catalog.store();
        self.committer.insist(|| store.prove()).await?;
        let proof = &self.proof;
        if !proof.is_due(self.context.config.presence_interval) {
            return Ok(());
        }
        match proof.turn.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.committer.insist(|| proof.descriptor()).await,
            _ => {
                if let Some(pack) = proof.some_pack(&*self.context.environment.random) {
                    self.is_missing(pack).await?;
                }
                Ok(())
            }
        }
    }

    /// The same, before a flush confirms that the bucket holds everything. `just_proven` if that was done for a
    /// checkpoint that was published for the flush. Returns what the bucket does not hold though all of it was
    /// published.
    pub(super) async fn prove_all(
        &self,
        just_proven: bool,
    ) -> Result<Result<(), FlushError>, Halted> {
        let (store, proof) = (self.context.catalog.store(), &self.proof);
        if !just_proven {
            self.committer.insist(|| store.prove()).await?;
        }
        self.committer.insist(|| proof.descriptor()).await?;
        let missing = proof.packs.lock().missing.clone();
        for pack in missing {
            if self.is_missing(pack).await? {
                let what = format!("{} is gone from the bucket", object_name(pack));
                return Ok(Err(FlushError::PackGone(what)));
            }
        }
        Ok(Ok(()))
    }

    /// Whether a pack that the metadata need is missing in the bucket; then its frames are damaged.
    async fn is_missing(&self, pack: PackId) -> Result<bool, Halted> {
        // If the bucket does not answer, the next check asks again.
        let is_there = self.context.packs.has(pack).await.unwrap_or(true);
        let is_missing = !is_there
            && self
                .committer
                .insist(|| self.context.catalog.pack(pack))
                .await?
                .is_some();
        let mut packs = self.proof.packs.lock();
        if !is_missing {
            packs.missing.remove(&pack);
            return Ok(false);
        }
        packs.recent.retain(|recent| *recent != pack);
        if packs.missing.len() < MOST_MISSING && packs.missing.insert(pack) {
            let name = object_name(pack);
            tracing::error!(
                "{name} is gone from the bucket: another program has deleted it. Its bytes that are in memory or in the disk cache are uploaded again; the others are lost unless you restore the object. See `forebay scrub --status`"
            );
            self.committer.pack_missing(pack);
        }
        Ok(true)
    }
}
