//! The gateway's side of the control socket: status, and the orders of an operator.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use forebay_fs::{
    CollectorWait, LimitChange, PathError, RestoreRequest, SnapshotError, SnapshotInfo,
};
use forebay_nfs::CallWatch;
use forebay_salvage::logs;
use tokio::sync::mpsc;

use super::NfsGateway;
use crate::admin::{
    self, ArchivedLogs, CheckpointState, Compression, Control, Deduplication, DiskCache,
    ExportStatus, FlushReport, GcOrder, GcReport, KnownSpace, LogError, MetadataCache, PathRefusal,
    QuotaLimit, QuotaReport, QuotaRequest, RestoreOrder, RestoreReport, ScrubReport, ScrubRequest,
    SnapshotReport, SnapshotRequest, Space, Status, StoreError, TrashReport, TrashRequest,
    TrashRow, VolumePath, WhereReport,
};
use crate::exports;
use crate::health::Health;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::schedule::made_by_user;
use crate::scrub;
use crate::trace::Paths;
use crate::watch;

impl Paths for NfsGateway {
    async fn path_of(&self, fileid: u64) -> Option<Vec<u8>> {
        Paths::path_of(&self.volume, fileid).await
    }
}

impl Control for NfsGateway {
    fn calls(&self) -> CallWatch {
        self.calls.clone()
    }

    async fn flush(&self) -> Result<FlushReport, String> {
        let (before, started) = (self.costs.uploaded_bytes(), Instant::now());
        let published = self
            .volume
            .flush()
            .await
            .map_err(|error| error.to_string())?;
        Ok(FlushReport {
            path: None,
            published_lsn: published.0,
            uploaded_bytes: self.costs.uploaded_bytes() - before,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    async fn flush_path(&self, path: VolumePath) -> Result<FlushReport, PathRefusal> {
        let (before, started) = (self.costs.uploaded_bytes(), Instant::now());
        let flushed = self.volume.flush_path(&path.0).await.map_err(refusal)?;
        Ok(FlushReport {
            path: Some(String::from_utf8_lossy(&path.0).into_owned()),
            published_lsn: flushed.published.0,
            uploaded_bytes: match flushed.waited {
                true => self.costs.uploaded_bytes() - before,
                false => 0,
            },
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    async fn whereabouts(
        &self,
        path: VolumePath,
        seen: Arc<AtomicU64>,
    ) -> Result<WhereReport, PathRefusal> {
        let found = self.volume.whereabouts(&path.0, &seen).await;
        Ok(WhereReport::new(&path.0, &found.map_err(refusal)?))
    }

    async fn exports(&self) -> Vec<ExportStatus> {
        exports::described(&self.exports.lock())
    }

    fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    async fn live(&self, after: u64) -> Live {
        self.recorder.live(after).await
    }

    async fn status(&self) -> Status {
        let status = self.volume.status();
        let waits = self.watcher.waits();
        let data_dir = self.data_dir.clone();
        let archived = tokio::task::spawn_blocking(move || logs::archived(&data_dir));
        // Logs that cannot be counted now appear in `forebay log`, with the error.
        let archived = archived.await.ok().and_then(Result::ok).unwrap_or_default();
        Status {
            health: Health::of(&status, watch::problems(&waits)),
            waits,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            volume: status.volume.to_string(),
            store: self.store_url.clone(),
            listen: self.address.to_string(),
            admin_listen: self.admin_address.map(|address| address.to_string()),
            epoch: status.epoch.0,
            published_lsn: status.published.0,
            durable_lsn: status.durable.0,
            log_end_lsn: status.end.0,
            unpublished_bytes: status.unpublished_bytes(),
            oldest_unpublished_age_seconds: status.oldest_unpublished.map(|age| age.as_secs_f64()),
            publication_bytes_per_second: status.publication_rate,
            dirty_bytes: status.dirty_bytes,
            spilled_bytes: status.spilled_bytes,
            waiting_checkpoints: status.waiting_checkpoints,
            memory_bytes: status.memory_bytes,
            memory_limit_bytes: status.memory_limit,
            names_bytes: status.names_bytes,
            names_limit_bytes: status.names_limit,
            log_bytes: status.log.map_or(0, |(used, _)| used),
            log_limit_bytes: status.log.map_or(0, |(_, limit)| limit),
            archived_logs: ArchivedLogs {
                logs: archived.logs,
                bytes: archived.bytes,
                oldest_seconds: archived.oldest,
            },
            log_error: status.log_trouble.map(|(message, since)| LogError {
                message,
                for_seconds: since.map(|since| since.as_secs_f64()),
            }),
            compression: Compression {
                level: status.compression.level,
                raw_bytes: status.compression.raw_bytes,
                stored_bytes: status.compression.stored_bytes,
            },
            metadata_cache: status.metadata_cache.map(|cache| {
                let parts = [cache.blocks, cache.indexes, cache.filters];
                MetadataCache {
                    used_bytes: cache.used_bytes,
                    limit_bytes: cache.limit_bytes,
                    hits: parts.iter().map(|part| part.hits).sum(),
                    misses: parts.iter().map(|part| part.misses).sum(),
                }
            }),
            disk_cache: status.disk_cache.map(|cache| DiskCache {
                limit_bytes: cache.limit_bytes,
                hits: cache.hits,
                misses: cache.misses,
                damaged: cache.damaged,
                failed: cache.failed,
            }),
            space: space(&status.collector),
            snapshots: status.snapshots as u64,
            snapshot_held_bytes: status.held_bytes,
            trash_objects: status.trash_entries,
            trash_bytes: status.trash_bytes,
            next_snapshot: self.keeper.next(self.volume.now().seconds),
            damaged_frames: status.damaged_frames,
            dedup: status.dedup.map(|dedup| Deduplication {
                saved_bytes: dedup.saved_bytes,
                known_frames: dedup.known_frames,
                learning: dedup.is_learning,
            }),
            checkpoint: status.checkpoint.0,
            checkpoint_state: match status.stage {
                forebay_fs::Stage::Idle => CheckpointState::Open,
                forebay_fs::Stage::Uploading => CheckpointState::Uploading,
                forebay_fs::Stage::Publishing => CheckpointState::Publishing,
            },
            uploads_in_flight: status.uploads as u64,
            store_error: status.store_trouble.map(|(message, since)| StoreError {
                message,
                for_seconds: since.as_secs_f64(),
            }),
            requests: self.costs.by_kind(),
            requests_by_cause: self.costs.by_cause(),
            cost: self.costs.cost(),
        }
    }

    async fn scrub(&self, request: ScrubRequest) -> Result<ScrubReport, String> {
        scrub::answer(&self.volume, request).await
    }

    async fn gc(&self, order: GcOrder) -> Result<GcReport, String> {
        let collector = match order {
            GcOrder::Rewrite => self.volume.collect_now(),
            GcOrder::Status => Ok(self.volume.status().collector),
        };
        let collector = collector.map_err(|refusal| refusal.to_string())?;
        Ok(GcReport {
            store: self.store_url.clone(),
            running: collector.is_ordered,
            packs_to_rewrite: collector.to_rewrite,
            dead_bytes_to_free: collector.to_rewrite_bytes,
            packs_rewritten: collector.rewritten,
            bytes_copied: collector.copied_bytes,
            packs_left_alone: collector.left_alone,
            rate_bytes: self.background_rate,
            waits_for: collector.waits_for.map(|wait| match wait {
                CollectorWait::Others => "clients write, or uploads are in flight".to_owned(),
                CollectorWait::Bucket(why) => format!("the bucket does not answer: {why}"),
            }),
        })
    }

    async fn restore(&self, order: RestoreOrder) -> Result<RestoreReport, String> {
        let started = Instant::now();
        let restored = self.volume.restore(RestoreRequest {
            snapshot: order.from,
            path: order.path.0,
            to: order.to.map(|to| to.0),
            replace: order.replace,
        });
        let restored = restored.await.map_err(|error| error.to_string())?;
        Ok(RestoreReport {
            path: VolumePath(restored.path),
            moved_aside: restored.moved_aside.map(VolumePath),
            objects: restored.objects,
            bytes: restored.bytes,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    fn restored_so_far(&self) -> u64 {
        self.volume.restored_so_far()
    }

    async fn snapshot(&self, request: SnapshotRequest) -> Result<Vec<SnapshotReport>, String> {
        let snapshots = self.do_snapshot(request).await;
        snapshots.map_err(|error| error.to_string())
    }

    async fn trash(
        &self,
        request: TrashRequest,
        some: mpsc::Sender<Vec<TrashRow>>,
    ) -> Result<TrashReport, String> {
        super::trash::answer(&self.volume, request, some).await
    }

    async fn quota(&self, request: QuotaRequest) -> Result<Vec<QuotaReport>, String> {
        let quotas = self.do_quota(request).await;
        let quotas = quotas.map_err(|error| error.to_string())?;
        Ok(quotas.into_iter().map(quota_report).collect())
    }
}

impl NfsGateway {
    async fn do_snapshot(
        &self,
        request: SnapshotRequest,
    ) -> Result<Vec<SnapshotReport>, SnapshotError> {
        let volume = &self.volume;
        let name = match request {
            SnapshotRequest::List => {
                let all = volume.snapshots().await?;
                return Ok(all.into_iter().map(snapshot_report).collect());
            }
            SnapshotRequest::Delete { name } => {
                volume.delete_snapshot(&name).await?;
                return Ok(Vec::new());
            }
            SnapshotRequest::Show { name } => name,
            SnapshotRequest::Create { name, by } => {
                let name = name.unwrap_or_else(|| admin::utc(volume.now().seconds));
                let made = volume.make_snapshot(&name, &made_by_user(by)).await?;
                return Ok(vec![snapshot_report(made)]);
            }
        };
        let mut all = volume.snapshots().await?;
        let given = volume.snapshot_given(&name);
        all.retain(|one| Some(one.id) == given);
        if all.is_empty() {
            return Err(SnapshotError::NotFound(name));
        }
        Ok(all.into_iter().map(snapshot_report).collect())
    }

    async fn do_quota(
        &self,
        request: QuotaRequest,
    ) -> Result<Vec<forebay_fs::Quota>, forebay_fs::QuotaError> {
        let volume = &self.volume;
        match request {
            QuotaRequest::List => volume.quotas().await,
            QuotaRequest::Show { path } => Ok(vec![volume.quota(path.as_bytes()).await?]),
            QuotaRequest::Set { path, bytes, files } => {
                let (bytes, files) = (limit_change(bytes), limit_change(files));
                let set = volume.set_quota(path.as_bytes(), bytes, files);
                Ok(vec![set.await?])
            }
            QuotaRequest::Remove { path } => {
                volume.remove_quota(path.as_bytes()).await?;
                Ok(Vec::new())
            }
        }
    }
}

/// Why a path is refused.
fn refusal(error: PathError) -> PathRefusal {
    let why = error.to_string();
    match error {
        PathError::Bad(..) => PathRefusal::Bad(why),
        PathError::NotFound(_) | PathError::NotADirectory(_) | PathError::Link(_) => {
            PathRefusal::NotFound(why)
        }
        PathError::Unreadable(..) | PathError::Flush(_) | PathError::Volume(_) => {
            PathRefusal::Unavailable(why)
        }
    }
}

fn snapshot_report(snapshot: SnapshotInfo) -> SnapshotReport {
    let counts = snapshot.counts;
    let holds = counts.and_then(|counts| counts.holds);
    SnapshotReport {
        name: snapshot.name,
        id: snapshot.id.0,
        made: snapshot.made.seconds,
        made_by: snapshot.made_by,
        published: snapshot.is_published,
        used_bytes: counts.map(|counts| counts.used_bytes),
        used_files: counts.map(|counts| counts.used_inodes),
        unique_bytes: holds.map(|holds| holds.unique_bytes),
        held_bytes: holds.map(|holds| holds.all_bytes),
    }
}

fn limit_change(limit: QuotaLimit) -> LimitChange {
    match limit {
        QuotaLimit::Keep => LimitChange::Keep,
        QuotaLimit::None => LimitChange::Unlimited,
        QuotaLimit::To(limit) => LimitChange::To(limit),
    }
}

fn quota_report(quota: forebay_fs::Quota) -> QuotaReport {
    QuotaReport {
        path: String::from_utf8_lossy(&quota.path).into_owned(),
        inode: quota.inode.0,
        limit_bytes: quota.limit_bytes,
        limit_files: quota.limit_files,
        used_bytes: quota.used_bytes,
        used_files: quota.used_files,
        counting: quota.counting,
    }
}

/// The content of packs, in the types of the control socket.
fn space(collector: &forebay_fs::CollectorStatus) -> Space {
    let known = collector.space.map(|space| KnownSpace {
        packs: space.packs,
        stored_bytes: space.stored_bytes,
        raw_bytes: space.raw_bytes,
        live_bytes: space.live_bytes,
        shared_bytes: space.shared_bytes,
    });
    Space {
        known,
        packs_to_rewrite: collector.to_rewrite,
        dead_bytes_to_free: collector.to_rewrite_bytes,
        packs_rewritten: collector.rewritten,
        bytes_copied: collector.copied_bytes,
        packs_left_alone: collector.left_alone,
        orphans_deleted: collector.orphans_deleted,
        fragmented_blocks: collector.fragmented_blocks,
        defragmented_blocks: collector.defragmented_blocks,
        defragmented_bytes: collector.defragmented_bytes,
    }
}
