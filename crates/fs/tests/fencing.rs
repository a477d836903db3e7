//! Two gateways and one bucket: the later one has the volume, whatever the earlier one was doing, and the changes
//! that only the earlier one had acknowledged are kept and can be recovered.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::common::{Bucket, Life, ROOT, assert_bytes, eventually, folder, pattern, user};
use forebay_fs::{Expected, Stopped, Takeover, Volume};
use forebay_object::faults::{FaultKind, Request};
use forebay_salvage::logs::{Content, Logs, Salvage};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability};
use forebay_view::View;
use forebay_wal::Label;

mod kept_logs;

const MIB: usize = 1 << 20;

/// Makes the gateway publish; it must find that it was taken over.
#[track_caller]
fn finds_out(first: &Life) {
    let flushed = first.run(|volume| async move { volume.flush().await });
    assert_eq!(flushed, Err(Stopped::Fenced.into()));
    assert_eq!(first.volume.status().stopped, Some(Stopped::Fenced));
}

/// Asserts that no change that must be stable is acknowledged any more.
#[track_caller]
fn refuses_changes(first: &Life, inode: Inode) {
    first.run(|volume: Volume| async move {
        let commit = volume.commit(&ROOT, inode, 0, 0).await;
        assert_eq!(commit.err(), Some(Error::Delay));
        for stability in [
            Stability::Unstable,
            Stability::DataSync,
            Stability::FileSync,
        ] {
            let write = volume.write(&ROOT, inode, 0, b"late", stability).await;
            assert_eq!(write.err(), Some(Error::Delay));
        }
        let mode = CreateMode::Unchecked(SetAttributes::default());
        let create = volume.create(&ROOT, Inode::ROOT, b"late", &mode).await;
        assert_eq!(create.err(), Some(Error::Delay));
        let remove = volume.remove(&ROOT, Inode::ROOT, b"kept").await;
        assert_eq!(remove.err(), Some(Error::Delay));
    });
}

/// Asserts that the fenced gateway has not changed existing objects, and that the added ones are its own: packs under
/// its epoch, tables that no manifest names, and SlateDB's notes on its own merges.
#[track_caller]
fn changed_nothing(
    before: &BTreeMap<String, Vec<u8>>,
    after: &BTreeMap<String, Vec<u8>>,
    epoch: u64,
) {
    for (name, bytes) in before {
        assert!(
            after.get(name) == Some(bytes),
            "{name} was changed or deleted"
        );
    }
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        let own = match name.strip_prefix("packs/") {
            Some(pack) => {
                let digits = pack
                    .split('/')
                    .next_back()
                    .unwrap()
                    .trim_end_matches(".pack");
                u64::from_str_radix(digits, 16).unwrap() >> 40 == epoch
            }
            None => name.starts_with("meta/compacted/") || name.starts_with("meta/compactions/"),
        };
        assert!(own, "{name} was made");
    }
}

/// Every object, at a moment when the gateway of `site`, which may still be merging tables in the background, sends
/// no requests.
fn objects_while_quiet(site: &Bucket) -> BTreeMap<String, Vec<u8>> {
    site.controls.everything.close();
    // Requests in flight end.
    std::thread::sleep(Duration::from_millis(60));
    site.objects()
}

/// Salvages the log that the gateway of `bucket` had archived under `label`, with and without the volume as its base.
fn salvage(bucket: &Bucket, label: &str, to: &Path, with_base: bool) -> Salvage {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let logs = Logs::open(bucket.local.path()).unwrap();
        let base = if with_base {
            Some(
                View::open(&bucket.store().await, &Expected::NotSealed)
                    .await
                    .unwrap(),
            )
        } else {
            None
        };
        logs.salvage(&Label::parse(label), to, base.as_ref())
            .await
            .unwrap()
    })
}

/// Labels of the archived logs.
fn archived_labels(bucket: &Bucket) -> Vec<String> {
    let logs = Logs::open(bucket.local.path()).unwrap();
    let labels = logs.list().into_iter().map(|log| log.label);
    labels
        .filter(|label| *label != Label::Current)
        .map(|label| label.to_string())
        .collect()
}

#[test]
fn a_gateway_taken_over_while_it_is_partitioned_stops_at_its_next_publish_and_its_log_is_salvaged()
{
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let docs = first.mkdir(Inode::ROOT, b"docs");
    let kept = first.create(b"kept");
    first.write(kept, 0, &pattern(1, MIB), Stability::FileSync);
    let deep = first.create_in(docs, b"deep");
    first.write(deep, 0, &pattern(2, 10_000), Stability::FileSync);
    first.flush();
    let published = first.volume.status().published;
    let verifier =
        first.run(|volume| async move { volume.commit(&ROOT, kept, 0, 0).await.unwrap().1 });

    // The connection to the store is cut: clients notice nothing.
    bucket.controls.set_down(true);
    first.write(kept, 4096, &pattern(3, 4096), Stability::FileSync);
    first.truncate(deep, 5000);
    let new = first.create_in(docs, b"new");
    first.write(new, 100, &pattern(4, 3 * MIB), Stability::Unstable);
    first.commit(new);
    let gone = first.create(b"gone");
    first.write(gone, 0, b"short-lived", Stability::FileSync);
    first.remove(b"gone");

    // Another machine takes over, and its clients go on.
    let elsewhere = bucket.seen_elsewhere();
    let second = elsewhere.start(|_| {});
    assert_eq!(second.volume.epoch().0, first.volume.epoch().0 + 1);
    let theirs = second.create(b"theirs");
    assert_ne!(
        theirs, new,
        "one number, and two files that clients have handles of"
    );
    second.write(theirs, 0, &pattern(5, 2 * MIB), Stability::FileSync);
    second.flush();
    let before = objects_while_quiet(&elsewhere);

    bucket.controls.set_down(false);
    finds_out(&first);
    refuses_changes(&first, kept);
    changed_nothing(&before, &bucket.objects(), first.volume.epoch().0);
    first.crash();
    changed_nothing(&before, &bucket.objects(), 1);
    elsewhere.controls.everything.open();
    assert_bytes(&second.read(theirs, 0, 3 * MIB), &pattern(5, 2 * MIB));
    second.stop();

    // Started again, it serves what the second one wrote, and keeps its log for the operator.
    let first = bucket.start(|_| {});
    assert_bytes(&first.read(theirs, 0, 3 * MIB), &pattern(5, 2 * MIB));
    assert_bytes(&first.read(kept, 0, 2 * MIB), &pattern(1, MIB));
    assert_eq!(first.try_lookup(docs, b"new"), Err(Error::NotFound));
    let (_, drawn) =
        first.run(|volume| async move { volume.commit(&ROOT, kept, 0, 0).await.unwrap() });
    assert_ne!(drawn, verifier, "clients must send again what is gone");
    assert_eq!(archived_labels(&bucket), ["epoch-1"]);
    let logs = Logs::open(bucket.local.path()).unwrap();
    let info = logs.info(&Label::parse("epoch-1")).unwrap();
    assert_eq!(
        info.published.map(|published| published.lsn),
        Some(published)
    );
    assert_eq!(info.note.unwrap().taken_by.1.0, 2);
    let unpublished = info.unpublished;
    assert_eq!(unpublished.data_bytes, (4096 + 3 * MIB + 11) as u64);
    let paths: Vec<_> = unpublished.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["/kept", "/docs/deep", "/docs/new", "/gone"]);

    // The gateway runs meanwhile.
    let to = folder();
    let target = to.path().join("salvaged");
    let salvaged = salvage(&bucket, "epoch-1", &target, true);
    let contents: Vec<_> = salvaged.files.iter().map(|file| &file.content).collect();
    assert_eq!(
        contents,
        [
            &Content::Merged,
            &Content::Merged,
            &Content::Whole,
            &Content::Removed
        ]
    );
    let file = |path: &str| std::fs::read(target.join("files").join(path)).unwrap();
    let mut merged = pattern(1, MIB);
    merged[4096..8192].copy_from_slice(&pattern(3, 4096));
    assert_bytes(&file("kept"), &merged);
    assert_bytes(&file("docs/deep"), &pattern(2, 10_000)[..5000]);
    let mut whole = vec![0; 100];
    whole.extend(pattern(4, 3 * MIB));
    assert_bytes(&file("docs/new"), &whole);
    assert!(!target.join("files/gone").exists());
    assert!(salvaged.gaps.is_empty() && salvaged.not_understood.is_empty());

    // Without the store only the written ranges are there, and the salvage says so.
    let target = to.path().join("ranges");
    let salvaged = salvage(&bucket, "epoch-1", &target, false);
    let kept = &salvaged.files[0];
    assert_eq!(
        (&kept.content, &kept.ranges[..]),
        (&Content::RangesOnly, &[(4096, 8192)][..])
    );
    let bytes = std::fs::read(target.join(kept.file.as_ref().unwrap())).unwrap();
    assert_bytes(&bytes, &merged_onto_nothing());
    first.crash();

    // A log that was forgotten is deleted.
    assert!(logs.forget(&Label::parse("epoch-1"), false).unwrap() > 0);
    assert_eq!(archived_labels(&bucket), [""; 0]);
}

fn merged_onto_nothing() -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    bytes[4096..].copy_from_slice(&pattern(3, 4096));
    bytes
}

/// The object that a publication of the first gateway is about to put when the second one takes over.
#[derive(Clone, Copy, Debug)]
enum Step {
    Packs,
    Table,
    Manifest,
}

#[test]
fn a_takeover_at_any_step_of_a_publish_leaves_the_volume_to_the_second_gateway() {
    for step in [Step::Packs, Step::Table, Step::Manifest] {
        let bucket = Bucket::new();
        let first = bucket.start(|_| {});
        let kept = first.create(b"kept");
        first.write(kept, 0, &pattern(1, MIB), Stability::FileSync);
        first.flush();
        first.write(kept, 0, &pattern(2, MIB), Stability::FileSync);
        let new = first.create(b"new");
        first.write(new, 0, &pattern(3, MIB), Stability::FileSync);

        let controls = bucket.controls.clone();
        let gate = || match step {
            Step::Packs => &controls.pack_puts,
            Step::Table => &controls.meta_puts,
            Step::Manifest => &controls.manifest_puts,
        };
        gate().close();
        let flush = first.spawn(|volume| async move { volume.flush().await });
        eventually("the publish comes to the step", || gate().held() > 0);

        let elsewhere = bucket.seen_elsewhere();
        let second = elsewhere.start(|_| {});
        assert_bytes(&second.read(kept, 0, 2 * MIB), &pattern(1, MIB));
        assert_eq!(second.try_lookup(Inode::ROOT, b"new"), Err(Error::NotFound));
        second.write(kept, 0, &pattern(4, MIB), Stability::FileSync);
        second.flush();
        let before = objects_while_quiet(&elsewhere);

        gate().open();
        assert_eq!(first.join(flush), Err(Stopped::Fenced.into()), "{step:?}");
        refuses_changes(&first, kept);
        first.crash();
        changed_nothing(&before, &bucket.objects(), 1);
        elsewhere.controls.everything.open();
        second.write(kept, 10, b"and on", Stability::FileSync);
        second.stop();

        // A later gateway finds the writes of the second one, from the bucket alone.
        let third = bucket.start_elsewhere(|_| {});
        let mut expected = pattern(4, MIB);
        expected[10..16].copy_from_slice(b"and on");
        assert_bytes(&third.read(kept, 0, 2 * MIB), &expected);
        third.stop();

        bucket.start(|_| {}).crash();
        assert_eq!(archived_labels(&bucket), ["epoch-1"]);
        let to = folder();
        let salvaged = salvage(&bucket, "epoch-1", &to.path().join("x"), true);
        let contents: Vec<_> = salvaged.files.iter().map(|file| &file.content).collect();
        assert_eq!(contents, [&Content::MergedWithLater, &Content::Whole]);
        let file = |path: &str| std::fs::read(to.path().join("x/files").join(path)).unwrap();
        assert_bytes(&file("kept"), &pattern(2, MIB));
        assert_bytes(&file("new"), &pattern(3, MIB));
    }
}

#[test]
fn a_fenced_gateway_deletes_no_pack_that_its_successor_uses() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let file = first.create(b"file");
    first.write(file, 0, &pattern(1, MIB), Stability::FileSync);
    first.flush();
    let dead = bucket.packs();
    // It is about to delete the pack to which nothing refers any more.
    bucket.controls.pack_deletes.close();
    first.write(file, 0, &pattern(2, MIB), Stability::FileSync);
    let flush = first.spawn(|volume| async move { volume.flush().await });
    eventually("a pack is to be deleted", || {
        bucket.controls.pack_deletes.held() > 0
    });

    let elsewhere = bucket.seen_elsewhere();
    let second = elsewhere.start(|_| {});
    // The second one deletes it as well, overwrites the file, and has dead packs of its own.
    for round in 3..6 {
        second.write(file, 0, &pattern(round, MIB), Stability::FileSync);
        second.flush();
    }
    eventually("the second deletes dead packs", || {
        !bucket.packs().contains(&dead[0]) && bucket.packs().len() == 1
    });
    let before = objects_while_quiet(&elsewhere);
    bucket.controls.pack_deletes.open();
    let _ = first.join(flush);
    if first.volume.status().stopped.is_none() {
        first.write(file, 0, &pattern(9, MIB), Stability::FileSync);
        finds_out(&first);
    }
    first.crash();
    changed_nothing(&before, &bucket.objects(), 1);
    elsewhere.controls.everything.open();
    second.crash();
    let third = bucket.start_elsewhere(|_| {});
    assert_bytes(&third.read(file, 0, 2 * MIB), &pattern(5, MIB));
    third.crash();
}

#[test]
fn of_two_gateways_that_open_at_the_same_moment_one_can_publish() {
    let bucket = Bucket::new();
    for round in 0..4 {
        let sites = [bucket.seen_elsewhere(), bucket.seen_elsewhere()];
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let start = |site: &Bucket| {
                let Ok(life) = site.try_start_with(site.config()) else {
                    return (None, false);
                };
                (Some(life), true)
            };
            let tasks: Vec<_> = sites
                .iter()
                .map(|site| scope.spawn(move || start(site)))
                .collect();
            let lives: Vec<_> = tasks
                .into_iter()
                .map(|task| task.join().unwrap().0)
                .collect();
            // No gateway writes before this: both have opened the volume, or were refused.
            let published = lives.iter().map(|life| {
                let Some(life) = life else { return false };
                life.run(|volume: Volume| async move {
                    let mode = CreateMode::Unchecked(SetAttributes::default());
                    let name = format!("round-{round}");
                    let made = volume
                        .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                        .await;
                    made.is_ok() && volume.flush().await.is_ok()
                })
            });
            published.collect()
        });
        let winners = outcomes.iter().filter(|published| **published).count();
        assert_eq!(winners, 1, "round {round}");
    }
    let third = bucket.start_elsewhere(|_| {});
    assert_eq!(third.list(Inode::ROOT, 10).len(), 2 + 4);
    third.crash();
}

#[test]
fn of_two_gateways_that_open_a_free_volume_at_the_same_moment_one_is_refused_and_fences_nobody() {
    let bucket = Bucket::new();
    for round in 0..4 {
        let mut sites = [(); 2].map(|()| bucket.seen_elsewhere());
        for site in &mut sites {
            site.takeover = Takeover::Refuse;
        }
        let starts: Vec<_> = std::thread::scope(|scope| {
            let start = |site: &Bucket| site.try_start_with(site.config());
            let tasks: Vec<_> = sites
                .iter()
                .map(|site| scope.spawn(move || start(site)))
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        let (held, refused): (Vec<_>, Vec<_>) = starts.into_iter().partition(Result::is_ok);
        assert_eq!((held.len(), refused.len()), (1, 1), "round {round}");
        for error in refused.into_iter().filter_map(Result::err) {
            assert!(error.is_held(), "{error}");
        }
        for life in held.into_iter().flatten() {
            life.create(format!("round-{round}").as_bytes());
            life.flush();
            life.stop();
        }
    }
    let last = bucket.start(|_| {});
    assert_eq!(last.list(Inode::ROOT, 10).len(), 2 + 4);
    last.stop();
}

#[test]
fn a_start_that_is_refused_leaves_a_free_volume_free() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.create(b"file");
    life.stop();
    let elsewhere = || {
        let mut site = bucket.seen_elsewhere();
        site.takeover = Takeover::Refuse;
        site
    };
    let first = elsewhere();
    let faults = &first.controls;
    for times in 1..=2 {
        faults.next(Request::Put, "manifest", FaultKind::Refused, 1);
        let error = first.try_start_with(first.config()).err().unwrap();
        assert!(error.to_string().contains("no permission"), "{error}");
        assert_eq!(faults.injected()[&FaultKind::Refused], times);
    }
    let second = elsewhere().start(|_| {});
    assert_eq!(second.list(Inode::ROOT, 10).len(), 2 + 1);
    second.stop();
}

/// A client still has the handle, and must not reach another file with it.
#[test]
fn a_number_that_was_given_out_and_lost_is_never_given_out_again() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    first.flush();
    let lost: Vec<Inode> = (0..5)
        .map(|number| first.create(format!("lost-{number}").as_bytes()))
        .collect();
    first.crash();
    // Its successor assigns others, and they are lost as well.
    let second = bucket.seen_elsewhere();
    let life = second.start(|_| {});
    let also = life.create(b"lost too");
    life.crash();
    let third = bucket.seen_elsewhere();
    let life = third.start(|_| {});
    for number in 0..20 {
        life.create(format!("made-{number}").as_bytes());
    }
    for inode in lost.into_iter().chain([also]) {
        assert_eq!(life.getattr(inode), Err(Error::Stale), "{inode:?}");
    }
    // If the log continues, nothing is lost and no number is skipped.
    let last = life.create(b"last");
    life.stop();
    let life = third.start(|_| {});
    assert_eq!(life.create(b"next").0, last.0 + 1);
    life.crash();
}

/// The state of the bucket that a starting gateway has read is valid only if it is unchanged when the gateway holds
/// the volume.
#[test]
fn a_gateway_that_comes_and_goes_while_another_one_starts_keeps_what_it_has_written() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let published = life.create(b"published");
    life.write(published, 0, b"first", Stability::FileSync);
    life.flush();
    life.write(published, 0, b"in the log alone", Stability::FileSync);
    life.crash();

    let elsewhere = bucket.seen_elsewhere();
    let life = bucket.start_interrupted(move || {
        let life = elsewhere.start(|_| {});
        let inode = life.create(b"meanwhile");
        life.write(inode, 0, b"of the other one", Stability::FileSync);
        life.stop();
    });
    let inode = life.lookup(b"meanwhile").inode;
    assert_bytes(&life.read(inode, 0, 100), b"of the other one");
    // Its own log is archived, as it would have been if the other one had come before.
    assert_bytes(&life.read(published, 0, 100), b"first");
    let new = life.create(b"new");
    assert!(new.0 > inode.0, "{new:?} was given out before");
    life.stop();
    let logs = Logs::open(bucket.local.path()).unwrap().list();
    let labels: Vec<_> = logs.iter().map(|log| log.label.clone()).collect();
    assert!(labels.contains(&Label::parse("epoch-1")), "{labels:?}");
}
