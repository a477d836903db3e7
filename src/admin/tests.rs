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
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fake::{
    Fake, REPORT, export, some_gc, some_live, some_quota, some_scrub, some_snapshot, some_status,
    some_where,
};
use super::*;

mod followers;
mod traces;
mod trash;

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

#[tokio::test]
async fn questions_about_snapshots_reach_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let (_fake, _server) = start(dir.path(), Fake::default());
    let list = snapshot(dir.path(), SnapshotRequest::List).await.unwrap();
    assert_eq!(list, [some_snapshot()]);
    let wish = SnapshotRequest::Create {
        name: Some("now".to_owned()),
        by: "uid 7".to_owned(),
    };
    let error = snapshot(dir.path(), wish.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{wish:?}"));
}

#[test]
fn snapshots_for_people_are_a_table_that_a_name_cannot_break() {
    let later = SnapshotReport {
        name: "later".to_owned(),
        published: false,
        used_bytes: None,
        used_files: None,
        unique_bytes: None,
        held_bytes: None,
        ..some_snapshot()
    };
    let text = SnapshotTable(&[some_snapshot(), later]).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[1],
        "2026-11-27T09:15:00Z           12      3.0 GiB      1.0 MiB      5.0 MiB  before\\nupgrade, by uid 0"
    );
    assert!(lines[2].ends_with("later, by uid 0  (not in the bucket yet)"));
    assert_eq!(SnapshotTable(&[]).to_string(), "no snapshots\n");
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
async fn a_restore_says_how_far_it_is_until_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, _server) = start(dir.path(), Fake::default());
    let order = RestoreOrder {
        path: VolumePath(b"/large".to_vec()),
        from: "s".into(),
        to: None,
        replace: false,
    };
    let said = AtomicU64::new(0);
    let progress = |objects| {
        said.store(objects, Ordering::Relaxed);
        fake.let_go.notify_one();
    };
    let report = restore(dir.path(), order, progress).await.unwrap();
    assert_eq!(said.load(Ordering::Relaxed), fake.restored_so_far());
    assert_eq!(report.path, VolumePath(b"/large".to_vec()));
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
        "unpublished   4.8 KiB of log, the oldest 1s 250ms old; the bucket takes 2.0 MiB a second\n",
        "checkpoint    12 is open, the one before is being uploaded, 2 wait; 2 uploads in flight\n",
        "dirty         3.9 KiB, 1000 B of it in the log alone\n",
        "LSN           published 4096, durable 8192, end 9000\n",
        "memory        1.0 MiB of 1.0 GiB\n",
        "log error     writers may have to wait: No space left on device\n",
        "compression   level 4 for the last pack, 8.0 MiB became 3.0 MiB since the start\n",
        "metadata      3.0 MiB of 64.0 MiB, 90 of 100 parts of tables found since the start\n",
        "disk cache    10.0 GiB, 5 of 9 frames found since the start, 1 damaged: check its disk\n",
        "space         300.0 MiB in 40 packs, 80% in use, 30.0 MiB of 350.0 MiB of files shared; 3 to rewrite, which frees 20.0 MiB; 2 rewritten since the start; 5 fragmented blocks; 6 blocks defragmented since the start; orphans deleted: 1\n",
        "snapshots     4, which hold 7.0 MiB\n",
        "trash         9 objects, 3.0 MiB\n",
        "next snapshot 2026-11-27T00:00:00Z (UTC)\n",
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
        snapshots: 0,
        snapshot_held_bytes: 0,
        trash_objects: 0,
        next_snapshot: None,
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
    assert!(!text.contains("snapshots"), "{text}");
}

#[tokio::test]
async fn the_scrub_is_asked_and_shown_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake {
        broken: true,
        ..Fake::default()
    };
    let (_, running) = start(folder.path(), fake);
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
    let fake = Fake {
        broken: true,
        ..Fake::default()
    };
    let (_, running) = start(folder.path(), fake);
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
