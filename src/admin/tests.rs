//! The control socket with a fake gateway behind it that only answers requests.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_fs::Opening;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::cost::{Cost, CostOfCause};
use crate::health::{Health, Problem, State};
use crate::live::{BucketFlow, FileRow, Flow, Limits, Live, Point};
use crate::watch::Wait;

mod followers;
mod traces;

/// A gateway whose flush waits until the test releases it.
#[derive(Default)]
struct Fake {
    let_go: Notify,
    broken: bool,
    calls: forebay_nfs::CallWatch,
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
        dirty_bytes: 4000,
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
        },
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
    }
}

impl crate::trace::Paths for Fake {
    async fn path_of(&self, fileid: u64) -> Option<Vec<u8>> {
        (fileid > 0).then(|| b"/dir".to_vec())
    }
}

impl Control for Fake {
    async fn live(&self, after: u64) -> crate::live::Live {
        some_live(after)
    }

    fn calls(&self) -> forebay_nfs::CallWatch {
        self.calls.clone()
    }

    fn metrics(&self) -> crate::metrics::Metrics {
        crate::metrics::Metrics::new(Vec::new())
    }

    async fn flush(&self) -> Result<FlushReport, String> {
        if self.broken {
            return Err("the bucket is gone".to_owned());
        }
        self.let_go.notified().await;
        Ok(REPORT)
    }

    async fn exports(&self) -> Vec<ExportStatus> {
        vec![export()]
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
        some_status()
    }

    async fn scrub(&self, request: ScrubRequest) -> Result<ScrubReport, String> {
        match request {
            ScrubRequest::Status => Ok(some_scrub()),
            request => Err(format!("{request:?}")),
        }
    }

    async fn gc(&self, order: GcOrder) -> Result<GcReport, String> {
        match order {
            GcOrder::Status => Ok(some_gc()),
            GcOrder::Rewrite => Err("its rewrite_below is 0".to_owned()),
        }
    }

    async fn quota(&self, request: QuotaRequest) -> Result<Vec<QuotaReport>, String> {
        match request {
            QuotaRequest::List => Ok(vec![some_quota()]),
            request => Err(format!("{request:?}")),
        }
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
        never_verified: 1,
        oldest_verified: Some(0),
        newest_verified: Some(1_790_000_001),
        damaged_packs: vec![ScrubbedPack {
            object: "packs/01/0000010000000001.pack".to_owned(),
            verified: u64::MAX,
            missing: false,
            damaged_frames: 2,
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
        }],
        more_damaged_frames: 0,
    }
}

fn start(data_dir: &Path, fake: Fake) -> (Arc<Fake>, JoinHandle<()>) {
    let server = Server::bind(data_dir).unwrap();
    let fake = Arc::new(fake);
    let (_, control) = watch::channel(Some(fake.clone()));
    let answers = async move { server.run(control, &Opening::default()).await };
    (fake, tokio::spawn(answers))
}

/// Sends bytes unchanged and returns everything that comes back.
async fn send(data_dir: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(data_dir.join("control.sock"))
        .await
        .unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut reply = String::new();
    match stream.read_to_string(&mut reply).await {
        // The server does not read past a line that is too long, and closes.
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => reply,
    }
}

#[tokio::test]
async fn questions_and_orders_reach_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, _server) = start(dir.path(), Fake::default());
    assert_eq!(status(dir.path()).await.unwrap(), some_status());
    assert_eq!(live(dir.path(), 0).await.unwrap(), some_live(0));
    assert_eq!(live(dir.path(), 2).await.unwrap(), some_live(2));
    let exports = exports(dir.path()).await.unwrap();
    assert_eq!(exports, [export()]);
    assert_eq!(
        exports[0].to_string(),
        "/home 10.0.0.0/8(ro,root_squash,anonuid=150,anongid=100,sec=sys,secure,commit=disk,compression=3)"
    );
    fake.let_go.notify_one();
    assert_eq!(flush(dir.path(), None, None).await.unwrap(), REPORT);
}

#[tokio::test]
async fn while_the_volume_is_opened_status_says_how_far_and_orders_wait() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::bind(dir.path()).unwrap();
    let (opened, control) = watch::channel(None);
    let opening = Opening::default();
    opening.begin("replaying the log, 3 of 70 MiB");
    let answers = async move { server.run(control, &opening).await };
    let _server = tokio::spawn(answers);
    let folder = dir.path().to_owned();
    let flushing = tokio::spawn(async move { flush(&folder, None, None).await });
    let error = status(dir.path()).await.unwrap_err();
    assert!(matches!(error, ClientError::Opening { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.ends_with("is still opening the volume: replaying the log, 3 of 70 MiB"),
        "{text}"
    );
    assert!(!flushing.is_finished());
    let fake = Arc::new(Fake::default());
    fake.let_go.notify_one();
    opened.send_replace(Some(fake));
    assert_eq!(flushing.await.unwrap().unwrap(), REPORT);
    assert_eq!(status(dir.path()).await.unwrap(), some_status());
    assert_eq!(live(dir.path(), 0).await.unwrap(), some_live(0));
    assert_eq!(live(dir.path(), 2).await.unwrap(), some_live(2));
}

#[tokio::test]
async fn questions_about_quotas_reach_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    let list = quota(dir.path(), QuotaRequest::List).await.unwrap();
    assert_eq!(list, [some_quota()]);
    // The longest possible path, of characters that JSON encodes as six bytes.
    let wish = QuotaRequest::Set {
        path: "\u{1}".repeat(2000),
        bytes: QuotaLimit::To(u64::MAX),
        files: QuotaLimit::None,
    };
    let error = quota(dir.path(), wish.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{wish:?}"));
}

#[test]
fn quotas_for_people_are_a_table_that_a_name_cannot_break() {
    let text = QuotaTable(&[some_quota()]).to_string();
    let row = "     1.0 MiB      3.0 GiB           12         none  /home\\n/ann  (counting in progress)\n";
    assert!(text.ends_with(row), "{text}");
    assert_eq!(QuotaTable(&[]).to_string(), "no quotas\n");
}

#[tokio::test]
async fn questions_about_a_path_of_any_bytes_reach_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    let path = VolumePath(b"/a b\x1b\xff%".to_vec());
    let found = whereabouts(dir.path(), path.clone(), |_| {}).await.unwrap();
    assert_eq!(found, some_where(&path.0));
    let text = found.to_string();
    assert!(
        text.starts_with("in the bucket: no, 30 bytes are not yet\n"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "{text}");
    let error = flush(dir.path(), Some(path), None).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no /a b\\x1b\\xff%");
}

#[tokio::test]
async fn a_flush_that_fails_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(
        dir.path(),
        Fake {
            broken: true,
            ..Fake::default()
        },
    );
    let error = flush(dir.path(), None, None).await.unwrap_err();
    assert_eq!(error.to_string(), "the bucket is gone");
}

#[tokio::test]
async fn a_flush_with_a_timeout_gives_up() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    let error = flush(dir.path(), None, Some(Duration::from_millis(50)))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    assert!(error.to_string().contains("within 50ms"), "{error}");
}

#[tokio::test]
async fn status_is_answered_while_as_many_flushes_wait_as_may() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, _server) = start(dir.path(), Fake::default());
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let dir = dir.path().to_owned();
            tokio::spawn(async move { flush(&dir, None, None).await })
        })
        .collect();
    // All sixteen are waiting when a further one is refused.
    let refused = loop {
        match flush(dir.path(), None, Some(Duration::from_millis(50))).await {
            Err(ClientError::Refused(problem)) => break problem,
            other => assert!(
                matches!(other, Err(ClientError::Silent { .. })),
                "{other:?}"
            ),
        }
    };
    assert!(refused.contains("16 other requests wait"), "{refused}");
    assert_eq!(status(dir.path()).await.unwrap(), some_status());
    assert_eq!(live(dir.path(), 0).await.unwrap(), some_live(0));
    assert_eq!(live(dir.path(), 2).await.unwrap(), some_live(2));
    for flush in waiting {
        while !flush.is_finished() {
            fake.let_go.notify_waiters();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One that was refused in favour of the further one is acceptable as well.
        let result = flush.await.unwrap();
        assert!(
            matches!(result, Ok(REPORT) | Err(ClientError::Refused(_))),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn silent_clients_do_not_keep_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(
            UnixStream::connect(dir.path().join("control.sock"))
                .await
                .unwrap(),
        );
    }
    // More than may be served at once: the first sixteen are disconnected when their time is over.
    let answer = timeout(Duration::from_secs(30), async {
        loop {
            if let Ok(status) = status(dir.path()).await {
                return status;
            }
        }
    });
    assert_eq!(answer.await.unwrap(), some_status());
}

#[tokio::test]
async fn nonsense_is_answered_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    for nonsense in [
        &b"\n"[..],
        b"status\n",
        b"{}\n",
        b"{\"command\":\"drop\"}\n",
        b"{\"command\":\"flush\",\"now\":true}\n",
        b"\xff\xfe\n",
        b"[[[[[[[[[[[[[[[[\n",
    ] {
        let reply = send(dir.path(), nonsense).await;
        assert!(
            reply.starts_with(r#"{"error":"not a request: "#),
            "{nonsense:?}: {reply}"
        );
    }
    let endless = vec![b'x'; 100_000];
    let reply = send(dir.path(), &endless).await;
    assert!(
        reply.is_empty() || reply.contains("more than 16384 bytes"),
        "{reply}"
    );
    assert_eq!(status(dir.path()).await.unwrap(), some_status());
    assert_eq!(live(dir.path(), 0).await.unwrap(), some_live(0));
    assert_eq!(live(dir.path(), 2).await.unwrap(), some_live(2));
}

#[tokio::test]
async fn nobody_else_may_connect() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("a/b");
    let (_fake, _server) = start(&data_dir, Fake::default());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data_dir.join("control.sock")), 0o600);
    assert_eq!(mode(&data_dir), 0o700);
}

#[tokio::test]
async fn a_second_gateway_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    let error = Server::bind(dir.path()).unwrap_err();
    assert!(matches!(error, FolderError::InUse(_)), "{error}");
    assert!(error.to_string().contains("--data-dir"), "{error}");
    assert_eq!(status(dir.path()).await.unwrap(), some_status());
    assert_eq!(live(dir.path(), 0).await.unwrap(), some_live(0));
    assert_eq!(live(dir.path(), 2).await.unwrap(), some_live(2));
}

#[tokio::test]
async fn without_a_gateway_the_error_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = status(dir.path()).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::NotRunning { left, .. } if left.is_empty()),
        "{error}"
    );
    assert!(
        error.to_string().contains("start one with `forebay serve`"),
        "{error}"
    );
}

#[tokio::test]
async fn the_socket_of_a_killed_gateway_is_named_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    // A listener that is closed without removing its file, as by SIGKILL.
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("control.sock")).unwrap());
    let error = status(dir.path()).await.unwrap_err();
    assert!(error.to_string().contains("was killed"), "{error}");
    let (_fake, _server) = start(dir.path(), Fake::default());
    assert_eq!(status(dir.path()).await.unwrap(), some_status());
    assert_eq!(live(dir.path(), 0).await.unwrap(), some_live(0));
    assert_eq!(live(dir.path(), 2).await.unwrap(), some_live(2));
}

#[tokio::test]
async fn a_file_in_the_socket_s_place_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("control.sock");
    std::fs::write(&file, "precious").unwrap();
    let error = Server::bind(dir.path()).unwrap_err();
    assert!(matches!(error, FolderError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[tokio::test]
async fn a_stopped_gateway_leaves_no_socket_and_frees_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, server) = start(dir.path(), Fake::default());
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    assert!(!dir.path().join("control.sock").exists());
    Server::bind(dir.path()).unwrap();
}

#[tokio::test]
async fn a_folder_whose_path_is_too_long_for_a_socket_works() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("long".repeat(30)).join("longer".repeat(30));
    let (_fake, _server) = start(&data_dir, Fake::default());
    assert_eq!(status(&data_dir).await.unwrap(), some_status());
}

#[test]
fn status_for_people_names_what_the_bucket_does_not_have() {
    let text = some_status().to_string();
    for part in [
        "volume        00ff, epoch 7\n",
        "archived logs 2 with 3.0 MiB, the oldest of 2026-09-21T14:13:20Z: see `forebay log list`\n",
        "unpublished   4.8 KiB of log, the oldest 1s 250ms old\n",
        "LSN           published 4096, durable 8192, end 9000\n",
        "memory        1.0 MiB of 1.0 GiB\n",
        "log error     writers may have to wait: No space left on device\n",
        "compression   level 4 for the last pack, 8.0 MiB became 3.0 MiB since the start\n",
        "disk cache    10.0 GiB, 5 of 9 frames found since the start, 1 damaged: check its disk\n",
        "space         300.0 MiB in 40 packs, 80% in use, 30.0 MiB of 350.0 MiB of files shared; 3 to rewrite, which frees 20.0 MiB; 2 rewritten since the start; orphans deleted: 1\n",
        "dedup         3.0 MiB not uploaded since the start; 40 frames are known, and those of earlier runs are being read\n",
        "store error   for 3s: 503 SlowDown\n",
        "requests      WRITE 12\n",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let idle = Status {
        oldest_unpublished_age_seconds: None,
        store_error: None,
        archived_logs: ArchivedLogs::default(),
        log_error: None,
        disk_cache: None,
        damaged_frames: 0,
        dedup: None,
        log_limit_bytes: 0,
        ..some_status()
    };
    let text = idle.to_string();
    assert!(
        text.contains("unpublished   nothing: the bucket has everything\n"),
        "{text}"
    );
    assert!(text.contains("log           none\n"), "{text}");
    assert!(text.contains("disk cache    none\n"), "{text}");
    assert!(!text.contains("log error"), "{text}");
    assert!(!text.contains("archived"), "{text}");
    assert!(!text.contains("dedup"), "{text}");
}

#[tokio::test]
async fn the_scrub_is_asked_and_shown_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let (_, running) = start(folder.path(), Fake::default());
    let report = scrub(folder.path(), ScrubRequest::Status).await.unwrap();
    assert_eq!(report, some_scrub());
    let shown = report.to_string();
    for words in [
        "9 of 10, from 1970-01-01T00:00:00Z to 2026-09-21T",
        "5 of 10 packs, 40.0 MiB of 80.0 MiB, 4.0 MiB/s, about 10s left; waiting: clients read or write",
        "it ended early: it was stopped",
        "each pack every 30days, at 8.0 MiB/s at most",
        "packs/01/0000010000000001.pack has 2 damaged frames",
        "and 3 more",
        r"/home\n/ann (inode 17): bytes 0 to 4096",
        "partly healed: 100 bytes are lost",
    ] {
        assert!(shown.contains(words), "{words} is not in\n{shown}");
    }
    let refused = scrub(folder.path(), ScrubRequest::Start { age_seconds: 7 }).await;
    assert!(refused.unwrap_err().to_string().contains("age_seconds: 7"));
    running.abort();
}

#[tokio::test]
async fn rewriting_is_asked_for_and_shown_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let (_, running) = start(folder.path(), Fake::default());
    let report = gc(folder.path(), GcOrder::Status).await.unwrap();
    assert_eq!(report, some_gc());
    assert_eq!(
        report.to_string(),
        "3 packs to rewrite, which frees 20.0 MiB; 2 rewritten since the gateway's start; 16.0 MiB/s at most; \
         waiting: 503\\nSlowDown"
    );
    let refused = gc(folder.path(), GcOrder::Rewrite).await.unwrap_err();
    assert_eq!(refused.to_string(), "its rewrite_below is 0");
    running.abort();
}

#[test]
fn however_much_is_shared_no_more_than_all_is_in_use() {
    assert_eq!(percent_in_use(300, 200, 100), 100);
    assert_eq!(percent_in_use(150, 100, 100), 50);
    assert_eq!(percent_in_use(0, 0, 0), 100);
    // A missing number of shared bytes comes from an older gateway.
    assert_eq!(percent_in_use(300, 0, 100), 100);
}
