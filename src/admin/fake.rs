//! A gateway that only answers: for tests of the control socket, of admin HTTP and of the life of a gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;
use crate::cost::{Cost, CostOfCause};
use crate::health::{Health, Problem, State};
use crate::live::{BucketFlow, FileRow, Flow, Limits, Live, Point};
use crate::watch::Wait;

/// A gateway, with what a test wants of it besides.
pub(crate) struct FakeWith<T> {
    pub(crate) own: T,
    pub(crate) status: Mutex<Status>,
    /// None: the handler panics.
    pub(crate) exports: Vec<ExportStatus>,
    pub(crate) calls: forebay_nfs::CallWatch,
    /// Notified when a flush begins.
    pub(crate) flushing: Notify,
    /// Lets a flush end.
    pub(crate) let_go: Notify,
    /// Flushes and orders fail.
    pub(crate) broken: bool,
    /// The requests about the scrub and about packs, as text.
    pub(crate) orders: Mutex<Vec<String>>,
    /// How many parts an undelete of a path has, each of half a MiB, and how many of them were taken.
    pub(crate) parts: u64,
    pub(crate) taken: AtomicU64,
}

pub(crate) type Fake = FakeWith<()>;

impl<T: Default> Default for FakeWith<T> {
    fn default() -> FakeWith<T> {
        FakeWith {
            own: T::default(),
            status: Mutex::new(some_status()),
            exports: vec![export()],
            calls: forebay_nfs::CallWatch::default(),
            flushing: Notify::new(),
            let_go: Notify::new(),
            broken: false,
            orders: Mutex::default(),
            parts: 0,
            taken: AtomicU64::new(0),
        }
    }
}

impl<T: Send + Sync + 'static> crate::trace::Paths for FakeWith<T> {
    async fn path_of(&self, fileid: u64) -> Option<Vec<u8>> {
        (fileid > 0).then(|| b"/dir".to_vec())
    }
}

impl<T: Send + Sync + 'static> Control for FakeWith<T> {
    async fn flush(&self) -> Result<FlushReport, String> {
        if self.broken {
            return Err("the bucket is gone".to_owned());
        }
        self.flushing.notify_one();
        self.let_go.notified().await;
        Ok(REPORT)
    }

    async fn flush_path(&self, path: VolumePath) -> Result<FlushReport, PathRefusal> {
        Err(PathRefusal::NotFound(format!(
            "there is no {}",
            path.0.escape_ascii()
        )))
    }

    async fn whereabouts(
        &self,
        path: VolumePath,
        seen: Arc<AtomicU64>,
    ) -> Result<WhereReport, PathRefusal> {
        seen.fetch_add(1, Ordering::Relaxed);
        Ok(some_where(&path.0))
    }

    async fn status(&self) -> Status {
        self.status.lock().clone()
    }

    async fn quota(&self, request: QuotaRequest) -> Result<Vec<QuotaReport>, String> {
        match request {
            QuotaRequest::List => Ok(vec![some_quota()]),
            request => Err(format!("{request:?}")),
        }
    }

    fn restored_so_far(&self) -> u64 {
        7
    }

    async fn restore(&self, order: RestoreOrder) -> Result<RestoreReport, String> {
        self.let_go.notified().await;
        match self.broken {
            true => Err("there is no such snapshot".to_owned()),
            false => Ok(RestoreReport {
                path: order.to.unwrap_or(order.path),
                moved_aside: None,
                objects: 1,
                bytes: 5,
                seconds: 0.5,
            }),
        }
    }

    async fn snapshot(&self, request: SnapshotRequest) -> Result<Vec<SnapshotReport>, String> {
        match request {
            SnapshotRequest::List => Ok(vec![some_snapshot()]),
            request => Err(format!("{request:?}")),
        }
    }

    /// Two parts before the report, or only the first of them; for a path as many as are asked for.
    async fn trash(
        &self,
        request: TrashRequest,
        some: mpsc::Sender<Vec<TrashRow>>,
    ) -> Result<TrashReport, String> {
        if let TrashRequest::Path { .. } = request {
            for id in 0..self.parts {
                let name = VolumePath(vec![b'x'; 1 << 19]);
                let row = TrashRow {
                    name,
                    ..some_trash(id)
                };
                some.send(vec![row]).await.unwrap();
                self.taken.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(TrashReport::default());
        }
        for id in 1..=2 {
            some.send(vec![some_trash(id)]).await.unwrap();
            if self.broken {
                return Err(format!("{request:?}"));
            }
        }
        Ok(TrashReport {
            objects: vec![some_trash(3)],
            left: 4,
            next: None,
        })
    }

    async fn scrub(&self, request: ScrubRequest) -> Result<ScrubReport, String> {
        self.orders.lock().push(format!("{request:?}"));
        match request {
            ScrubRequest::Stop => Err("no round is under way".to_owned()),
            ScrubRequest::Start { .. } if self.broken => Err(format!("{request:?}")),
            ScrubRequest::Start { .. } | ScrubRequest::Status => Ok(some_scrub()),
        }
    }

    async fn gc(&self, order: GcOrder) -> Result<GcReport, String> {
        self.orders.lock().push(format!("{order:?}"));
        match order {
            GcOrder::Rewrite if self.broken => Err("its rewrite_below is 0".to_owned()),
            GcOrder::Rewrite | GcOrder::Status => Ok(some_gc()),
        }
    }

    async fn exports(&self) -> Vec<ExportStatus> {
        assert!(!self.exports.is_empty(), "this handler panics on purpose");
        self.exports.clone()
    }

    async fn live(&self, after: u64) -> Live {
        some_live(after)
    }

    fn calls(&self) -> forebay_nfs::CallWatch {
        self.calls.clone()
    }

    fn metrics(&self) -> crate::metrics::Metrics {
        crate::metrics::Metrics::new(Vec::new())
    }
}

pub(crate) fn some_status() -> Status {
    Status {
        health: Health::with(vec![Problem::new(
            State::Degraded,
            "bucket_away",
            "the bucket does not answer: 503 SlowDown".to_owned(),
        )]),
        waits: vec![Wait {
            name: "log_full".to_owned(),
            message: "calls wait for room in the log; 2 wait now, 5 have waited since it began"
                .to_owned(),
            for_seconds: 90.0,
            waiting: 2,
            total: 5,
        }],
        version: "1.2.3".to_owned(),
        uptime_seconds: 61.5,
        volume: "00ff".to_owned(),
        store: "s3://bucket/prefix".to_owned(),
        listen: "127.0.0.1:2049".to_owned(),
        admin_listen: Some("127.0.0.1:9049".to_owned()),
        epoch: 7,
        published_lsn: 4096,
        durable_lsn: 8192,
        log_end_lsn: 9000,
        unpublished_bytes: 4904,
        oldest_unpublished_age_seconds: Some(1.25),
        publication_bytes_per_second: Some(2 << 20),
        dirty_bytes: 4000,
        spilled_bytes: 1000,
        waiting_checkpoints: 2,
        memory_bytes: 1 << 20,
        memory_limit_bytes: 1 << 30,
        names_bytes: 1 << 20,
        names_limit_bytes: 64 << 20,
        log_bytes: 32 << 20,
        log_limit_bytes: 4 << 30,
        archived_logs: ArchivedLogs {
            logs: 2,
            bytes: 3 << 20,
            oldest_seconds: Some(1_790_000_000),
        },
        log_error: Some(LogError {
            message: "No space left on device".to_owned(),
            for_seconds: None,
        }),
        compression: Compression {
            level: Some(4),
            raw_bytes: 8 << 20,
            stored_bytes: 3 << 20,
        },
        metadata_cache: Some(MetadataCache {
            used_bytes: 3 << 20,
            limit_bytes: 64 << 20,
            hits: 90,
            misses: 10,
        }),
        disk_cache: Some(DiskCache {
            limit_bytes: 10 << 30,
            hits: 5,
            misses: 3,
            damaged: 1,
            failed: false,
        }),
        space: Space {
            known: Some(KnownSpace {
                packs: 40,
                stored_bytes: 300 << 20,
                raw_bytes: 400 << 20,
                live_bytes: 350 << 20,
                shared_bytes: 30 << 20,
            }),
            packs_to_rewrite: 3,
            dead_bytes_to_free: 20 << 20,
            packs_rewritten: 2,
            bytes_copied: 1 << 20,
            packs_left_alone: 0,
            orphans_deleted: 1,
            fragmented_blocks: 5,
            defragmented_blocks: 6,
            defragmented_bytes: 24 << 20,
        },
        snapshots: 4,
        snapshot_held_bytes: 7 << 20,
        trash_objects: 9,
        trash_bytes: 3 << 20,
        next_snapshot: Some(1_795_737_600),
        damaged_frames: 2,
        dedup: Some(Deduplication {
            saved_bytes: 3 << 20,
            known_frames: 40,
            learning: true,
        }),
        checkpoint: 12,
        checkpoint_state: CheckpointState::Uploading,
        uploads_in_flight: 2,
        store_error: Some(StoreError {
            message: "503 SlowDown".to_owned(),
            for_seconds: 3.0,
        }),
        requests: [("WRITE".to_owned(), 12)].into(),
        requests_by_cause: vec![RequestTotal {
            method: "put".to_owned(),
            cause: "publish".to_owned(),
            requests: 12,
            sent_bytes: 1 << 20,
            received_bytes: 0,
        }],
        cost: Cost {
            currency: "USD".to_owned(),
            prices: "of a test".to_owned(),
            per_day: 0.5,
            storage_per_day: Some(0.125),
            window_seconds: 3600.0,
            since_start: 0.03,
            by_cause: vec![CostOfCause {
                cause: "publish".to_owned(),
                requests: 12,
                since_start: 0.03,
                per_day: 0.375,
            }],
        },
    }
}

pub(crate) fn some_live(after: u64) -> Live {
    let point = |sequence| Point {
        sequence,
        time: 1_790_000_000.0 + sequence as f64,
        reads: Flow {
            calls_per_second: 500.0,
            bytes_per_second: Some(2_048_000.0),
            median_seconds: Some(0.000_1),
            p99_seconds: None,
        },
        writes: Flow::default(),
        names: Flow::default(),
        errors_per_second: 0.0,
        bucket: BucketFlow::default(),
        log_bytes: 32e6,
        memory_bytes: 1e6,
        names_bytes: 0.0,
        disk_cache_bytes: 0.0,
        dirty_bytes: 4000.0,
        unpublished_bytes: 4904.0,
        unpublished_age_seconds: 1.25,
        health: State::Degraded,
    };
    let mut live = Live {
        interval_seconds: 2.0,
        time: 1_790_000_010.0,
        limits: Limits {
            log_bytes: Some(4e9),
            ..Limits::default()
        },
        series: (1..=3).map(point).collect(),
        files: vec![FileRow {
            path: Some("/home/\\n".to_owned()),
            fileid: 7,
            calls_per_second: 500.0,
            read_bytes_per_second: 2_048_000.0,
            written_bytes_per_second: 0.0,
        }],
        ..Live::default()
    };
    live.leave_out(after);
    live
}

pub(crate) fn some_where(path: &[u8]) -> WhereReport {
    let found = forebay_fs::Whereabouts {
        kind: forebay_fs::Kind::Directory,
        objects: 3,
        files: 2,
        directories: 1,
        size_bytes: 5000,
        is_in_bucket: Some(false),
        unpublished_objects: 1,
        unflushed_bytes: 10,
        log_bytes: 20,
        uploaded_bytes: 5,
        since: None,
        published_bytes: 4970,
        stored_bytes: 3000,
        shared_bytes: 100,
        packs: 2,
        memory_bytes: 30,
        disk_cache_bytes: 40,
        unknown: None,
    };
    WhereReport::new(path, &found)
}

pub(crate) fn some_quota() -> QuotaReport {
    QuotaReport {
        path: "/home\n/ann".to_owned(),
        inode: 7,
        limit_bytes: Some(3 << 30),
        limit_files: None,
        used_bytes: 1 << 20,
        used_files: 12,
        counting: true,
    }
}

pub(crate) fn some_snapshot() -> SnapshotReport {
    SnapshotReport {
        name: "before\nupgrade".to_owned(),
        id: 3,
        made: 1_795_770_900,
        made_by: "uid 0".to_owned(),
        published: true,
        used_bytes: Some(3 << 30),
        used_files: Some(12),
        unique_bytes: Some(1 << 20),
        held_bytes: Some(5 << 20),
    }
}

pub(crate) const REPORT: FlushReport = FlushReport {
    path: None,
    published_lsn: 9000,
    uploaded_bytes: 4904,
    seconds: 0.5,
};

pub(crate) fn export() -> ExportStatus {
    ExportStatus {
        path: "/home".to_owned(),
        client: "10.0.0.0/8".to_owned(),
        access: "ro".to_owned(),
        squash: "root_squash".to_owned(),
        anonuid: 150,
        anongid: 100,
        sec: "sys".to_owned(),
        source_port: "secure".to_owned(),
        xprtsec: "none:tls:mtls".to_owned(),
        commit: "disk".to_owned(),
        compression: "3".to_owned(),
        snapshot_directory: "hidden".to_owned(),
        trash_directory: "hidden".to_owned(),
        trash: "none".to_owned(),
    }
}

pub(crate) fn some_trash(id: u64) -> TrashRow {
    TrashRow {
        id,
        path: Some(VolumePath(b"/home/file".to_vec())),
        name: VolumePath(b"file".to_vec()),
        kind: "file".to_owned(),
        size_bytes: 10,
        removed: 1_790_000_000,
        removed_by: 1000,
        until: 1_790_003_600,
    }
}

pub(crate) fn some_gc() -> GcReport {
    GcReport {
        store: "s3://bucket/prefix".to_owned(),
        running: true,
        packs_to_rewrite: 3,
        dead_bytes_to_free: 20 << 20,
        packs_rewritten: 2,
        bytes_copied: 1 << 20,
        packs_left_alone: 0,
        rate_bytes: 16 << 20,
        waits_for: Some("503\nSlowDown".to_owned()),
    }
}

pub(crate) fn some_scrub() -> ScrubReport {
    ScrubReport {
        rate_bytes: 8 << 20,
        interval_seconds: Some(30 * 86_400),
        running: Some(ScrubRound {
            since: 1_790_000_000,
            packs: 10,
            bytes: 80 << 20,
            packs_done: 5,
            bytes_done: 40 << 20,
            bytes_per_second: 4 << 20,
            waits_for: Some("clients read or write".to_owned()),
        }),
        last: Some(LastScrub {
            at: 1_789_000_000,
            packs: 9,
            bytes: 72 << 20,
            damaged: 1,
            cut_short: Some("it was stopped".to_owned()),
        }),
        next: None,
        packs: 10,
        pack_bytes: 80 << 20,
        held_packs: 2,
        held_bytes: 16 << 20,
        never_verified: 1,
        oldest_verified: Some(0),
        newest_verified: Some(1_790_000_001),
        damaged_packs: vec![ScrubbedPack {
            object: "packs/01/0000010000000001.pack".to_owned(),
            verified: u64::MAX,
            missing: false,
            damaged_frames: 2,
            held: true,
            snapshots: vec!["before\nupgrade".to_owned()],
        }],
        more_damaged_packs: 3,
        damaged_frames: vec![DamagedFrame {
            object: "packs/01/0000010000000001.pack".to_owned(),
            offset: 40,
            inode: 17,
            path: Some("/home\n/ann".to_owned()),
            from: 0,
            to: 4096,
            why: "its CRC32 is wrong".to_owned(),
            state: DamageState::PartlyHealed,
            lost_bytes: Some(100),
            snapshots: vec!["monday".to_owned()],
        }],
        more_damaged_frames: 0,
    }
}
