//! Deletes objects that were replaced long enough ago: tables, manifests, notes of merges, and SlateDB's empty logs.
//!
//! SlateDB's collector reads the manifest of each checkpoint three times in each round: for tables, for its logs and
//! for the files that fence. With 1,000 snapshots these are 3,000 requests a minute. Manifests never change, so here
//! each is read once while the gateway runs, and [`Held`] keeps what it names. The rules are SlateDB's:
//!
//! ```text
//!  manifests, notes of merges   SlateDB's collector, which reads the newest manifest only; it also removes checkpoints
//!                               that have expired
//!  tables                       older than the retention, the oldest noted merge and the newest unmerged table;
//!                               no manifest of a checkpoint and not the newest one names them
//!  logs                         older than the retention; before the newest manifest's log, and no checkpoint's
//! ```

mod held;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::compactor::CompactorStateView;
use slatedb::config::{GarbageCollectorDirectoryOptions, GarbageCollectorOptions};
use slatedb::manifest::SsTableId;
use slatedb::{GarbageCollectorBuilder, VersionedManifest};
use slatedb_common::clock::{DefaultSystemClock, SystemClock};

use held::Held;

/// Requests in flight.
const REQUESTS: usize = 8;

/// Deletes in single rounds.
pub(super) struct Collector {
    store: Arc<dyn ObjectStore>,
    path: Path,
    retention: Duration,
    admin: Admin,
    held: Held,
}

/// Why a round ended early.
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Collector {
    /// A collector of the store under `path`. Replaced objects stay for `retention`.
    pub(super) fn new(store: Arc<dyn ObjectStore>, path: Path, retention: Duration) -> Collector {
        Collector {
            admin: AdminBuilder::new(path.clone(), store.clone()).build(),
            store,
            path,
            retention,
            held: Held::default(),
        }
    }

    /// Does one round. What it could not delete is left to the next one.
    pub(super) async fn collect(&mut self) {
        self.collect_notes().await;
        let doomed = match self.find().await {
            Ok(doomed) => doomed,
            Err(error) => {
                tracing::warn!(error, "cannot find out which metadata tables to delete");
                return;
            }
        };
        let deleting = doomed.into_iter().map(|location| {
            let store = &self.store;
            async move {
                if let Err(error) = store.delete(&location).await {
                    tracing::warn!(%error, "cannot delete {location}");
                }
            }
        });
        let deleting = futures_util::stream::iter(deleting);
        deleting.buffer_unordered(REQUESTS).collect::<()>().await;
    }

    /// Lets SlateDB's collector delete manifests and notes of merges.
    async fn collect_notes(&self) {
        let directory = GarbageCollectorDirectoryOptions {
            interval: None,
            min_age: self.retention,
            dry_run: false,
        };
        let options = GarbageCollectorOptions {
            manifest_options: Some(directory),
            compactions_options: Some(directory),
            wal_options: None,
            wal_fence_options: None,
            compacted_options: None,
            detach_options: None,
            ..GarbageCollectorOptions::default()
        };
        GarbageCollectorBuilder::new(self.path.clone(), Arc::clone(&self.store))
            .with_options(options)
            .build()
            .run_gc_once()
            .await;
    }

    /// The tables and logs that may be deleted.
    pub(super) async fn find(&mut self) -> Result<Vec<Path>, Failure> {
        let now_ms = DefaultSystemClock::new().now().timestamp_millis();
        let before_ms = now_ms.saturating_sub(i64::try_from(self.retention.as_millis())?);
        // It reads notes of merges before the manifest: a merge that ends in between has its tables in the manifest.
        let state = self.admin.read_compactor_state_view().await?;
        let newest = state.manifest();
        self.learn(newest).await?;
        let named: HashSet<SsTableId> = tables(newest).collect();

        let before_table_ms = first_table_to_stay_ms(&state, before_ms);
        let mut doomed = Vec::new();
        for (object, name) in self.list("compacted").await? {
            let Ok(id) = name.parse().map(SsTableId::new) else {
                continue;
            };
            let is_old = made_ms(id) < before_table_ms;
            if is_old && !named.contains(&id) && !self.held.holds_table(id) {
                doomed.push(object.location);
            }
        }
        for (object, name) in self.list("wal").await? {
            let Ok(id) = name.parse() else { continue };
            let is_old = object.last_modified.timestamp_millis() < before_ms;
            if is_old && id < newest.replay_after_wal_id() && !self.held.holds_log(id) {
                doomed.push(object.location);
            }
        }
        Ok(doomed)
    }

    /// Number of tables that checkpoints hold, as far as it knows.
    #[cfg(test)]
    pub(super) fn held_tables(&self) -> usize {
        self.held.len()
    }

    /// Reads the manifests of checkpoints that it does not know.
    async fn learn(&mut self, newest: &VersionedManifest) -> Result<(), Failure> {
        let checkpoints = newest.checkpoints().iter();
        let referred: BTreeSet<u64> = checkpoints.map(|one| one.manifest_id).collect();
        self.held.retain(&referred);
        let unknown: Vec<u64> = referred
            .into_iter()
            .filter(|id| !self.held.knows(*id))
            .collect();
        let admin = &self.admin;
        let reads = unknown.into_iter().map(|id| async move {
            match admin.read_manifest(Some(id)).await? {
                Some(manifest) => Ok::<_, Failure>(manifest),
                None => Err(format!("manifest {id}, of a checkpoint, is gone").into()),
            }
        });
        let mut manifests = futures_util::stream::iter(reads).buffer_unordered(REQUESTS);
        while let Some(manifest) = manifests.try_next().await? {
            let logs = manifest.replay_after_wal_id().saturating_add(1)..manifest.next_wal_sst_id();
            self.held.learn(manifest.id(), tables(&manifest), logs);
        }
        Ok(())
    }

    /// Objects in a folder, with their names without extension.
    async fn list(&self, folder: &str) -> Result<Vec<(ObjectMeta, String)>, Failure> {
        let folder = self.path.clone().join(folder);
        let listed: Vec<_> = self.store.list(Some(&folder)).try_collect().await?;
        let named = listed.into_iter().filter_map(|object| {
            let name = object.location.filename()?.strip_suffix(".sst")?;
            let name = name.to_owned();
            Some((object, name))
        });
        Ok(named.collect())
    }
}

fn tables(manifest: &VersionedManifest) -> impl Iterator<Item = SsTableId> {
    manifest.all_sst_views().map(|view| view.sst.id)
}

/// The time in the name of a table.
fn made_ms(table: SsTableId) -> i64 {
    i64::try_from(table.value().timestamp_ms()).unwrap_or(i64::MAX)
}

/// The time from which on no table is deleted, even if nothing names it: it may be new.
fn first_table_to_stay_ms(state: &CompactorStateView, before_ms: i64) -> i64 {
    let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    // A merge writes its tables before the manifest names them; they are younger than its note.
    let merges = state.compactions().into_iter();
    let merges = merges.flat_map(|all| all.recent_compactions());
    let merge_ms = merges.map(|merge| time(merge.id().timestamp_ms())).min();
    // So does a commit.
    let newest = state.manifest();
    let commit_ms = match newest.l0().iter().map(|view| made_ms(view.sst.id)).max() {
        Some(ms) => Some(ms),
        None => newest
            .last_compacted_l0_sst_view_id()
            .map(|id| time(id.timestamp_ms())),
    };
    before_ms
        .min(merge_ms.unwrap_or(0))
        .min(commit_ms.unwrap_or(0))
}
