//! Whether the bucket still has what a publication builds on.
//!
//! A gateway that only writes does not notice when what it wrote before is deleted: by a rule that expires objects, by
//! hand, by a server that came back with another disk. It would recycle the log for a state that nobody can read. So
//!
//! * after each checkpoint's commit, one table of the metadata that is older than it is asked for, another one each time
//!   ([`MetaStore::prove`](forebay_meta::MetaStore::prove)). Only then is the checkpoint published: the log before it is
//!   recycled, blocks are clean, and who waits for it is answered;
//! * while checkpoints are published, the descriptor and a pack that the last ones refer to are asked for in turn, one of
//!   them every [`presence_interval`](crate::FsConfig::presence_interval);
//! * a flush asks for a table, for the descriptor, and for packs that were missing before it says that the bucket holds
//!   everything.
//!
//! An idle volume asks for nothing.
//!
//! ```text
//!              a table or the descriptor is not there
//!   proven ---------------------------------------------> gone: the checkpoint waits, as it does while the bucket is
//!     ^                                                    |     away; the log keeps all of it; flushes fail
//!     +----------------- it is there again ----------------+
//!
//!   a pack is not there: its frames are damaged, and what memory or the disk cache has of them is uploaded again
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_meta::{StoreError, VolumeDescriptor};
use forebay_object::Store;
use forebay_pack::object_name;
use forebay_types::PackId;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Halted;
use super::collector::AccountChange;
use crate::core::{Core, FlushError, Stopped};
use crate::environment::{Randomness, fraction};

/// Packs of the last checkpoints, one of which is asked for.
const RECENT: usize = 64;
/// Missing packs that flushes ask for again.
const MOST_MISSING: usize = 16;
/// Pauses between two looks for what is gone.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Objects that the volume consists of are not in the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    /// Which.
    pub(crate) what: String,
    pub(crate) since: Instant,
}

/// What is known of the objects that publications build on.
pub(crate) struct Proof {
    store: Arc<dyn ObjectStore>,
    descriptor: Path,
    looked: Mutex<Instant>,
    turn: AtomicU64,
    packs: Mutex<Packs>,
    /// Replaced after each look that finds something gone.
    gone: watch::Sender<Option<Gone>>,
    /// Somebody wants to know whether it still is.
    recheck: Notify,
}

#[derive(Default)]
struct Packs {
    /// Those that the last checkpoints refer to, the newest last.
    recent: VecDeque<PackId>,
    /// Those that were not there.
    missing: BTreeSet<PackId>,
}

impl Proof {
    /// Of a volume whose descriptor was there a moment ago.
    pub(super) fn new(store: &Store) -> Proof {
        Proof {
            store: store.store.clone(),
            descriptor: VolumeDescriptor::location(&store.root),
            looked: Mutex::new(Instant::now()),
            turn: AtomicU64::new(0),
            packs: Mutex::default(),
            gone: watch::Sender::new(None),
            recheck: Notify::new(),
        }
    }

    /// What is gone, and nothing is published before it is back.
    pub(crate) fn gone(&self) -> Option<Gone> {
        self.gone.borrow().clone()
    }

    /// The next look that finds something gone, or finds it gone still.
    pub(super) fn next_gone(&self) -> impl Future<Output = String> + use<> {
        let mut gone = self.gone.subscribe();
        if gone.borrow().is_some() {
            self.recheck.notify_one();
        }
        async move {
            loop {
                if gone.changed().await.is_err() {
                    std::future::pending().await
                }
                if let Some(gone) = &*gone.borrow_and_update() {
                    return gone.what.clone();
                }
            }
        }
    }

    /// Accounts of packs have changed: those that live are referred to.
    pub(super) fn committed(&self, changes: &[AccountChange]) {
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

    /// Whether it is time to look for something beside tables.
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
        packs.recent.get(index as usize).copied()
    }

    /// Asks for the descriptor.
    async fn descriptor(&self) -> Result<(), StoreError> {
        match self.store.head(&self.descriptor).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::NotFound { .. }) => Err(StoreError::Gone(format!(
                "{}, the object that says what volume this is, is gone from the bucket",
                self.descriptor
            ))),
            Err(error) => Err(StoreError::Transient(error.to_string())),
        }
    }

    /// Notes that something is not there.
    fn note(&self, what: &str, explained: impl FnOnce() -> String) {
        let since = match self.gone() {
            Some(gone) => gone.since,
            None => {
                tracing::error!("{}", explained());
                Instant::now()
            }
        };
        let what = what.to_owned();
        self.gone.send_replace(Some(Gone { what, since }));
    }

    /// Notes that what was gone is there again.
    fn found(&self) {
        if let Some(gone) = self.gone.send_replace(None) {
            tracing::info!(
                "what was gone from the bucket is there again, after {:?}; publishing goes on",
                gone.since.elapsed()
            );
        }
    }
}

impl Core {
    /// Looks whether the bucket has what the checkpoint builds on whose batch has just been committed. Returns when it has.
    pub(super) async fn prove_checkpoint(&self) -> Result<(), Halted> {
        let store = self.catalog.store();
        self.insist(|| store.prove()).await?;
        let proof = &self.checkpoints.proof;
        if !proof.is_due(self.config.presence_interval) {
            return Ok(());
        }
        match proof.turn.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.insist(|| proof.descriptor()).await,
            _ => {
                if let Some(pack) = proof.some_pack(&*self.environment.random) {
                    self.is_missing(pack).await?;
                }
                Ok(())
            }
        }
    }

    /// The same before it is said that the bucket holds everything. `just_proven` if that was done for a checkpoint that
    /// was published for it. Gives what the bucket does not hold though all of it was published.
    pub(super) async fn prove_all(
        &self,
        just_proven: bool,
    ) -> Result<Result<(), FlushError>, Halted> {
        let (store, proof) = (self.catalog.store(), &self.checkpoints.proof);
        if !just_proven {
            self.insist(|| store.prove()).await?;
        }
        self.insist(|| proof.descriptor()).await?;
        let missing = proof.packs.lock().missing.clone();
        for pack in missing {
            if self.is_missing(pack).await? {
                let what = format!("{} is gone from the bucket", object_name(pack));
                return Ok(Err(FlushError::PackGone(what)));
            }
        }
        Ok(Ok(()))
    }

    /// Whether the bucket does not have a pack that the metadata need; its frames are damaged then.
    async fn is_missing(&self, pack: PackId) -> Result<bool, Halted> {
        // One that cannot be asked for now is asked for later.
        let is_there = self.packs.has(pack).await.unwrap_or(true);
        let is_missing = !is_there && self.insist(|| self.catalog.pack(pack)).await?.is_some();
        let mut packs = self.checkpoints.proof.packs.lock();
        if !is_missing {
            packs.missing.remove(&pack);
            return Ok(false);
        }
        packs.recent.retain(|recent| *recent != pack);
        if packs.missing.len() < MOST_MISSING && packs.missing.insert(pack) {
            let name = object_name(pack);
            tracing::error!(
                "{name} is gone from the bucket: somebody or something has deleted it. What memory or the disk cache has of its bytes is uploaded again; the others are lost unless the object is put back. See `forebay scrub --status`"
            );
            self.scrubs.is_gone(pack);
        }
        Ok(true)
    }

    /// Waits a while before the next look for what is gone; `Err` when the volume stops meanwhile.
    pub(super) async fn wait_for_what_is_gone(
        &self,
        what: &str,
        attempt: u32,
    ) -> Result<(), Halted> {
        let proof = &self.checkpoints.proof;
        if !self.is_open() {
            // Nobody is served yet, and the log is as it was.
            self.stop(Stopped::Failed(self.explain_gone(what)));
            return Err(Halted);
        }
        proof.note(what, || self.explain_gone(what));
        let ceiling = FIRST_PAUSE
            .saturating_mul(1 << attempt.saturating_sub(1).min(8))
            .min(LONGEST_PAUSE);
        let pause = ceiling.mul_f64(0.5 + 0.5 * fraction(&*self.environment.random));
        let mut stopped = self.watch_stopped();
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => Err(Halted),
            () = proof.recheck.notified() => Ok(()),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// What was gone is there again.
    pub(super) fn what_was_gone_is_back(&self) {
        self.checkpoints.proof.found();
    }

    /// What a flush says of it.
    pub(super) fn gone(&self, what: &str) -> FlushError {
        FlushError::Gone(self.explain_gone(what))
    }

    pub(crate) fn explain_gone(&self, what: &str) -> String {
        explain(what, &self.environment.local.path().display().to_string())
    }
}

/// What is gone, what is done about it, and what to do.
fn explain(what: &str, folder: &str) -> String {
    format!(
        "{what}: objects of this volume were deleted, or the server came back with another disk. Nothing more is published, and the log in {folder} keeps what was not; writes go on until it is full. Put the objects back (earlier versions of them, or a copy of the bucket), and the gateway goes on by itself. If that is not possible, copy what clients can still read, stop the gateway, and keep {folder}: `forebay log salvage current --data-dir {folder} --to NEWFOLDER` writes what is in the log as files, and `forebay salvage` what is left of the packs"
    )
}
