//! The log of a gateway that was taken over: it is kept, under its own label, while the bucket has not all of it, and
//! it can be salvaged.

use super::*;
use forebay_fs::{LogConfig, OpenError};

#[test]
fn a_log_that_the_bucket_has_all_of_is_not_kept() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let file = first.create(b"file");
    first.write(file, 0, &pattern(1, MIB), Stability::FileSync);
    first.flush();
    first.crash();
    let elsewhere = bucket.seen_elsewhere();
    let second = elsewhere.start(|_| {});
    second.write(file, 0, &pattern(2, MIB), Stability::FileSync);
    second.stop();
    let first = bucket.start(|_| {});
    assert_bytes(&first.read(file, 0, 2 * MIB), &pattern(2, MIB));
    assert_eq!(archived_labels(&bucket), [""; 0]);
    // Its files are reused.
    first.write(file, 0, &pattern(3, MIB), Stability::FileSync);
    first.crash();
    let first = bucket.start(|_| {});
    assert_bytes(&first.read(file, 0, 2 * MIB), &pattern(3, MIB));
    first.crash();
}

#[test]
fn takeovers_to_and_fro_keep_each_log_under_its_own_label() {
    let bucket = Bucket::new();
    let sites = [bucket.seen_elsewhere(), bucket.seen_elsewhere()];
    let mut before: Option<Life> = None;
    for round in 0..6_u64 {
        let life = sites[(round % 2) as usize].start(|_| {});
        if let Some(overtaken) = before.take() {
            finds_out(&overtaken);
            overtaken.crash();
        }
        // Changes that it acknowledges now are never published.
        let name = format!("round-{round}");
        let file = life.create(name.as_bytes());
        life.write(file, 0, &pattern(round, 5000), Stability::FileSync);
        before = Some(life);
    }
    before.unwrap().crash();
    let _ = sites[0].start(|_| {});
    assert_eq!(
        archived_labels(&sites[0]),
        ["epoch-1", "epoch-3", "epoch-5"]
    );
    assert_eq!(archived_labels(&sites[1]), ["epoch-2", "epoch-4"]);
    let to = folder();
    for (round, label) in [(0_u64, "epoch-1"), (2, "epoch-3"), (4, "epoch-5")] {
        let target = to.path().join(label);
        let salvaged = salvage(&sites[0], label, &target, true);
        assert_eq!(salvaged.files.len(), 1, "{label}");
        let bytes = std::fs::read(target.join(format!("files/round-{round}"))).unwrap();
        assert_bytes(&bytes, &pattern(round, 5000));
    }
}

#[test]
fn a_log_whose_mark_is_lost_is_salvaged_whole_and_without_guesses() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let old = first.create(b"old");
    first.write(old, 0, &pattern(1, 5000), Stability::FileSync);
    first.flush();
    first.write(old, 1000, &pattern(2, 100), Stability::FileSync);
    first.crash();
    std::fs::remove_file(bucket.local.path().join("published")).unwrap();
    let elsewhere = bucket.seen_elsewhere();
    let second = elsewhere.start(|_| {});
    second.write(old, 0, &pattern(3, 5000), Stability::FileSync);
    second.stop();
    bucket.start(|_| {}).crash();
    let logs = Logs::open(bucket.local.path()).unwrap();
    let info = logs.info(&Label::parse("epoch-1")).unwrap();
    assert_eq!(info.published, None);
    let error = logs.forget(&info.label, false).unwrap_err().to_string();
    assert!(error.contains("was not salvaged yet"), "{error}");
    let to = folder();
    let salvaged = salvage(&bucket, "epoch-1", &to.path().join("x"), true);
    assert_eq!(salvaged.files.len(), 1);
    let file = &salvaged.files[0];
    // All of the log is there, even the published part, and nothing of the bucket's bytes below it.
    assert_eq!((&file.content, &*file.path), (&Content::RangesOnly, "/old"));
    let bytes = std::fs::read(to.path().join("x/files/old")).unwrap();
    let mut expected = pattern(1, 5000);
    expected[1000..1100].copy_from_slice(&pattern(2, 100));
    assert_bytes(&bytes, &expected);
}

#[test]
fn damage_in_a_kept_log_is_named_and_the_rest_is_salvaged() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let files: Vec<Inode> = (0..4)
        .map(|n| first.create(format!("file-{n}").as_bytes()))
        .collect();
    first.flush();
    for (n, file) in files.iter().enumerate() {
        first.write(*file, 0, &pattern(n as u64, 6000), Stability::FileSync);
    }
    first.crash();
    bucket.seen_elsewhere().start(|_| {}).stop();
    bucket.start(|_| {}).crash();
    let kept = std::fs::read_dir(bucket.local.path().join("log")).unwrap();
    let kept = kept
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("epoch-1-") && holds(path, &pattern(2, 6000)))
        .unwrap();
    let mut bytes = std::fs::read(&kept).unwrap();
    let at = find(&bytes, &pattern(2, 6000)).unwrap();
    bytes[at + 3000] ^= 1;
    std::fs::write(&kept, bytes).unwrap();
    let to = folder();
    let salvaged = salvage(&bucket, "epoch-1", &to.path().join("x"), true);
    assert_eq!(salvaged.gaps.len(), 1);
    assert!(salvaged.gaps[0].from > Lsn::ZERO);
    let names: Vec<_> = salvaged.files.iter().map(|file| &*file.path).collect();
    assert_eq!(names, ["/file-0", "/file-1", "/file-3"]);
    for n in [0_u64, 1, 3] {
        let bytes = std::fs::read(to.path().join(format!("x/files/file-{n}"))).unwrap();
        assert_bytes(&bytes, &pattern(n, 6000));
    }
}

fn holds(path: &Path, bytes: &[u8]) -> bool {
    find(&std::fs::read(path).unwrap_or_default(), bytes).is_some()
}

fn find(all: &[u8], bytes: &[u8]) -> Option<usize> {
    all.windows(bytes.len()).position(|window| window == bytes)
}

#[test]
fn salvage_writes_over_nothing_and_takes_nobody_for_another() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let file = first.create(b"file");
    first
        .set(
            &ROOT,
            file,
            SetAttributes {
                mode: Some(0o666),
                ..Default::default()
            },
        )
        .unwrap();
    first.run(|volume: Volume| async move {
        let nobody = user(1000, 1000, &[]);
        volume
            .write(&nobody, file, 0, b"text", Stability::FileSync)
            .await
            .unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let logs = Logs::open(bucket.local.path()).unwrap();
    let to = folder();
    let refused = |label: &str, to: &Path, base: Option<&View>| {
        let salvaged = runtime.block_on(logs.salvage(&Label::parse(label), to, base));
        salvaged.unwrap_err().to_string()
    };
    // A gateway is writing this log, and will publish it itself.
    let error = refused("current", &to.path().join("x"), None);
    assert!(error.contains("a gateway is writing the log"), "{error}");
    let error = refused("epoch-9", &to.path().join("x"), None);
    assert!(
        error.contains("there is no log epoch-9") && error.contains("current"),
        "{error}"
    );
    first.crash();
    let error = refused("current", to.path(), None);
    assert!(error.contains("exists already"), "{error}");
    let foreign = Bucket::new();
    let base = runtime.block_on(async {
        View::open(&foreign.store().await, &Expected::NotSealed)
            .await
            .unwrap()
    });
    let error = refused("current", &to.path().join("x"), Some(&base));
    assert!(error.contains("belongs to volume"), "{error}");
    let error = logs.forget(&Label::Current, true).unwrap_err().to_string();
    assert!(error.contains("cannot be forgotten"), "{error}");
    // When no gateway runs, the current log can be salvaged.
    let salvaged = salvage(&bucket, "current", &to.path().join("x"), true);
    assert_eq!(salvaged.files[0].content, Content::Whole);
    let bytes = std::fs::read(to.path().join("x/files/file")).unwrap();
    assert_eq!(bytes, b"text");
    drop(base);
}

#[test]
fn archived_logs_that_take_the_log_s_limit_keep_further_ones_from_being_archived_until_they_are_forgotten()
 {
    let bucket = Bucket::new();
    let elsewhere = bucket.seen_elsewhere();
    let config = || {
        let mut config = bucket.config();
        config.log = LogConfig::Disk {
            limit: 256 << 10,
            segment: 64 << 10,
        };
        config
    };
    let bytes = pattern(1, 40_000);
    let mut archived = 0;
    let refused = loop {
        let first = match bucket.try_start_with(config()) {
            Ok(first) => first,
            Err(error) => break error,
        };
        let found = forebay_salvage::logs::archived(bucket.local.path()).unwrap();
        assert_eq!(found.logs, archived);
        // Segments without records take no room.
        assert!(found.bytes <= archived * 50_000, "{found:?}");
        archived += 1;
        assert!(archived < 20, "{found:?}");
        let file = first.create(format!("file-{archived}").as_bytes());
        first.write(file, 0, &bytes, Stability::FileSync);
        first.crash();
        elsewhere.start(|_| {}).stop();
    };
    assert!(
        matches!(refused, OpenError::ArchiveFull { .. }),
        "{refused}"
    );
    let said = refused.to_string();
    assert!(said.contains("forebay log forget --all-salvaged"), "{said}");
    // A log that does not fit stays as it was: it is the current log, and every other is whole.
    assert_eq!(archived_labels(&bucket).len() as u64, archived - 1);
    let logs = Logs::open(bucket.local.path()).unwrap();
    for info in logs.list() {
        assert_eq!(
            info.unpublished.data_bytes,
            bytes.len() as u64,
            "{}",
            info.label
        );
    }
    let label = logs.archived().remove(0);
    let to = folder();
    salvage(&bucket, &label.to_string(), &to.path().join("x"), true);
    logs.forget(&label, false).unwrap();
    let first = bucket.try_start_with(config()).unwrap();
    assert_eq!(archived_labels(&bucket).len() as u64, archived - 1);
    first.stop();
}
