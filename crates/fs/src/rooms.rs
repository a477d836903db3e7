//! The rooms of one volume, and how they are joined.
//!
//! ```text
//!   files ------------------------------> state, publisher, packs, damages
//!   healer, collector, scrub, snapshots -> their contexts
//!   publisher --------------------------> its context; the collector, the proof and the scrub observe its commits
//!   state ------------------------------> nothing of these
//! ```

use std::sync::Arc;

use async_trait::async_trait;
use forebay_clones::layers::Sources;
use forebay_environment::Environment;
use forebay_environment::state_file::LocalState;
use forebay_meta::Catalog;
use forebay_meta::record::{SnapshotRecord, TruncatedBlocks, VolumeState};
use forebay_object::{Cause, Store};
use forebay_pack_store::PackStore;
use forebay_quota::Accounts;
use forebay_reduction::dedup::Sharing;
use forebay_types::{BlockIndex, Inode, Lsn, SnapshotId, VolumeId};
use forebay_vfs::Verifier;
use forebay_wal::ReadFailed;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::FsConfig;
use crate::collector::{self, Collector};
use crate::damages::Damages;
use crate::files::Files;
use crate::fragments::Fragments;
use crate::healer::Healer;
use crate::publisher::{
    self, BetweenCheckpoints, CheckpointSource, Committer, Observer, Progress, Proof, Publisher,
};
use crate::restore::{self, Restore};
use crate::scrub::{self, Scrub};
use crate::snapshots::{self, Snapshots, SpaceOfSnapshots};
use crate::state::{
    Closed, LoggedBytes, Node, Parts, SnapshotList, State, StoreTrouble, TakenOver,
};
use crate::tasks::Engine;

/// The parts of [`Rooms::new`].
pub(crate) struct Foundation<'a> {
    pub(crate) config: FsConfig,
    pub(crate) environment: Environment,
    pub(crate) store: &'a Store,
    pub(crate) catalog: Catalog,
    pub(crate) packs: PackStore,
    pub(crate) accounts: Accounts,
    /// The volume's published state.
    pub(crate) taken: VolumeState,
    pub(crate) verifier: Verifier,
    /// The published snapshots.
    pub(crate) snapshots: Vec<(SnapshotId, SnapshotRecord)>,
    pub(crate) volume: VolumeId,
    /// Of a clone.
    pub(crate) sources: Sources,
}

/// The rooms of one volume.
pub(crate) struct Rooms {
    pub(crate) state: Arc<State>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) files: Arc<Files>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) scrub: Arc<Scrub>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) restore: Arc<Restore>,
    pub(crate) healer: Arc<Healer>,
    pub(crate) damages: Arc<Damages>,
}

impl Rooms {
    pub(crate) fn new(foundation: Foundation<'_>) -> Rooms {
        let Foundation {
            config,
            environment,
            store,
            catalog,
            packs,
            accounts,
            taken,
            verifier,
            snapshots,
            volume,
            sources,
        } = foundation;
        let (config, catalog, packs) = (Arc::new(config), Arc::new(catalog), Arc::new(packs));
        let damages = Arc::new(Damages::default());
        let sharing = Arc::new(Sharing::new(config.dedup));
        let state = Arc::new(State::new(Parts {
            config: config.clone(),
            environment: environment.clone(),
            catalog: catalog.clone(),
            accounts,
            trouble: StoreTrouble::new(store.health.clone()),
            next_inode: taken.next_inode,
            verifier,
            start: taken.published,
            snapshots: SnapshotList::new(
                taken.history.last_snapshot,
                environment.clock.now(),
                snapshots,
            ),
        }));
        let progress = Arc::new(Progress::new(taken, state.signals.clone()));
        let fragments = Arc::new(Fragments::new(config.copies_fragments_after()));
        let collector = Arc::new(Collector::new(collector::Context {
            config: config.clone(),
            environment: environment.clone(),
            catalog: catalog.clone(),
            packs: packs.clone(),
            sharing: sharing.clone(),
            memory: state.memory.clone(),
            signals: state.signals.clone(),
            foreground: state.clone(),
            fragments: fragments.clone(),
            sources: sources.clone(),
            snapshots: state.snapshots.clone(),
            trouble: state.trouble.clone(),
            progress: progress.clone(),
        }));
        let scrub = Arc::new(Scrub::new(scrub::Context {
            interval: config.scrub_interval,
            rate: config.scrub_rate,
            environment: environment.clone(),
            catalog: catalog.clone(),
            packs: packs.clone(),
            memory: state.memory.clone(),
            foreground: state.clone(),
            sources,
            snapshots: state.snapshots.clone(),
            damages: damages.clone(),
            late: collector.late_packs(),
            progress: progress.clone(),
        }));
        let snapshots = Arc::new(Snapshots::new(snapshots::Context {
            store: store.clone(),
            volume,
            packs: packs.clone(),
            catalog: catalog.clone(),
            list: state.snapshots.clone(),
            progress: progress.clone(),
            signals: state.signals.clone(),
        }));
        let proof = Arc::new(Proof::new(store));
        let mut observers: Vec<Arc<dyn Observer>> =
            vec![collector.clone(), proof.clone(), scrub.clone()];
        if config.snapshots_count {
            observers.push(Arc::new(SpaceOfSnapshots::new(
                state.accounts.volume().limit(),
                state.accounts.clone(),
                progress.clone(),
            )));
        }
        let committer = Arc::new(Committer {
            catalog: catalog.clone(),
            progress,
            sharing: sharing.clone(),
            signals: state.signals.clone(),
            trouble: state.trouble.clone(),
            random: environment.random.clone(),
            folder: environment.local.path().display().to_string(),
            observers,
        });
        let context = publisher::Context {
            config,
            environment,
            catalog,
            packs: packs.clone(),
            sharing: sharing.clone(),
            memory: state.memory.clone(),
            eager: state.eager.clone(),
            accounts: state.accounts.clone(),
            signals: state.signals.clone(),
            trouble: state.trouble.clone(),
            damages: damages.clone(),
            fragments: fragments.clone(),
            snapshots: state.snapshots.clone(),
            source: Arc::new(Checkpoints(state.clone())),
            foreground: state.clone(),
        };
        let between: [Arc<dyn BetweenCheckpoints>; 2] = [collector.clone(), snapshots.clone()];
        let publisher = Publisher::new(context, committer, proof, between.to_vec());
        let publisher = Arc::new(publisher);
        let files = Files::new(
            state.clone(),
            packs.clone(),
            publisher.clone(),
            damages.clone(),
            fragments,
        );
        let files = Arc::new(files);
        let restore = Arc::new(Restore::new(restore::Context {
            state: state.clone(),
            files: files.clone(),
            publisher: publisher.clone(),
            packs: packs.clone(),
            sharing: sharing.clone(),
            snapshots: snapshots.clone(),
        }));
        Rooms {
            healer: Arc::new(Healer::new(damages.clone(), files.clone())),
            state,
            packs,
            sharing,
            publisher,
            files,
            collector,
            scrub,
            snapshots,
            restore,
            damages,
        }
    }
}

impl Rooms {
    /// The engines of the volume; the gateway keeps `local` in its folder.
    pub(crate) fn engines(&self, local: &Arc<Mutex<LocalState>>) -> Vec<Engine> {
        let publisher = || self.publisher.clone();
        vec![
            Engine::new("publisher", publisher().publish_forever()).causing(Cause::Publish),
            Engine::new("deletions", publisher().delete_forever()).causing(Cause::Collector),
            Engine::new("fingerprints", publisher().learn_frames()).causing(Cause::Other),
            Engine::new("eager uploads", publisher().upload_eagerly_forever())
                .causing(Cause::Publish),
            Engine::new("log", self.state.clone().watch_log(local.clone())),
            Engine::new("quotas", self.files.clone().move_counts_forever()),
            Engine::new("trash", self.files.clone().empty_trash_forever()),
            Engine::new("collector", self.collector.clone().run_forever())
                .causing(Cause::Collector),
            Engine::new("scrub", self.scrub.clone().run_forever()).causing(Cause::Scrub),
            Engine::new("healer", self.healer.clone().run_forever()).causing(Cause::Heal),
            Engine::new("memory", self.state.memory.clone().free_unused_forever()),
        ]
    }
}

/// The state, as the publisher's source of checkpoints.
struct Checkpoints(Arc<State>);

#[async_trait]
impl CheckpointSource for Checkpoints {
    fn close(&self) -> Option<Closed> {
        self.0.take_checkpoint()
    }

    fn waiting(&self) -> usize {
        self.0.waiting_checkpoints()
    }

    fn open_since(&self) -> Option<Instant> {
        self.0.checkpoint_lock.read().since()
    }

    fn wants_to_close(&self) -> bool {
        self.0.overlay_is_half_full()
    }

    fn take_over(&self, blocks: Vec<(Arc<Node>, BlockIndex)>) -> Option<TakenOver> {
        self.0.take_over(blocks)
    }

    async fn read_logged(
        &self,
        inode: Inode,
        records: Vec<Lsn>,
    ) -> Vec<Result<LoggedBytes, ReadFailed>> {
        self.0.read_logged(inode, records).await
    }

    fn published(&self, next_inode: u64) {
        self.0.checkpoint_published(next_inode);
    }

    fn recycle(&self, end: Lsn, state: &VolumeState) {
        self.0.recycle(end, state);
    }

    fn truncated_collected(&self, inode: Inode, left: TruncatedBlocks) {
        // A node that is just loaded may still have the older record. Those blocks have no maps, and are not valid.
        if let Some(node) = self.0.nodes.peek(inode) {
            node.lock().truncated_collected(&left);
        }
    }

    fn next_log_attempt(&self) -> Option<Instant> {
        self.0.log_health.next_attempt()
    }

    async fn restart_log(&self) {
        self.0.restart_log().await;
    }
}
