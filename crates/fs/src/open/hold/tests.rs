//! The table of verdicts, row by row, and that a refused gateway leaves the note as it is.

use forebay_types::VolumeId;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;

use super::*;

const OURS: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];

fn note(gateway: [u8; 16], instance: u8) -> Holder {
    Holder {
        volume: VolumeId([7; 16]),
        gateway,
        instance: [instance; 16],
        host: "nas1".to_owned(),
        process: 4711,
        address: "127.0.0.1:2049".to_owned(),
        data_dir: "/var/lib/forebay".to_owned(),
        since: 1_790_000_000,
        publishes_every_ms: 5000,
        has_log: true,
        stopped: None,
    }
}

fn left_with(unpublished_bytes: u64) -> Holder {
    Holder {
        stopped: Some(StoppedInOrder {
            at: 1_790_000_100,
            unpublished_bytes,
        }),
        ..note(OTHER, 2)
    }
}

fn candidate(takeover: Takeover) -> Candidate {
    Candidate {
        note: note(OURS, 1),
        continues: false,
        is_copied: false,
        e_tag: None,
        takeover,
        url: "memory://x".to_owned(),
        data_dir: "/data".into(),
    }
}

fn bucket() -> (Arc<dyn ObjectStore>, Path) {
    (Arc::new(InMemory::new()), Path::from("prefix"))
}

async fn stored(store: &Arc<dyn ObjectStore>) -> Holder {
    let found = StoredHolder::load(store, &Path::from("prefix")).await;
    found.unwrap().unwrap().holder.unwrap()
}

async fn take(store: &Arc<dyn ObjectStore>, candidate: Candidate) -> Result<Hold, OpenError> {
    Hold::take(store.clone(), Path::from("prefix"), candidate, None, || {
        Ok(())
    })
    .await
}

#[test]
fn every_row_of_the_table() {
    let fresh = candidate(Takeover::Refuse);
    let continuing = Candidate {
        continues: true,
        ..candidate(Takeover::Refuse)
    };
    let copied = Candidate {
        is_copied: true,
        ..candidate(Takeover::Refuse)
    };
    let unreadable = Err("it is not text".to_owned());
    let rows = [
        (None, [Verdict::Free; 3]),
        (Some(Ok(left_with(0))), [Verdict::Free; 3]),
        (
            Some(Ok(note(OURS, 9))),
            [Verdict::Own, Verdict::Own, Verdict::Held],
        ),
        (
            Some(unreadable),
            [Verdict::Held, Verdict::Own, Verdict::Held],
        ),
        (Some(Ok(left_with(1))), [Verdict::Held; 3]),
        (Some(Ok(note(OTHER, 2))), [Verdict::Held; 3]),
    ];
    for (found, verdicts) in rows {
        for (candidate, verdict) in [&fresh, &continuing, &copied].into_iter().zip(verdicts) {
            assert_eq!(candidate.judge(found.as_ref()), verdict, "{found:?}");
        }
    }
}

#[tokio::test]
async fn a_held_volume_is_refused_with_its_holder_and_left_as_it_is() {
    for held in [note(OTHER, 2), left_with(512)] {
        let (store, root) = bucket();
        held.put(&store, &root, None).await.unwrap();
        let keep = || panic!("nothing is kept of a start that is refused");
        let refused = Hold::take(
            store.clone(),
            root.clone(),
            candidate(Takeover::Refuse),
            None,
            keep,
        );
        let refused = refused.await.map(drop).unwrap_err();
        assert!(refused.is_held());
        let said = refused.to_string();
        for part in [
            "nas1",
            "4711",
            "127.0.0.1:2049",
            "/var/lib/forebay",
            "2026-09-21 14:13:20 UTC",
            "5s",
            "--take-over",
            "That is this machine",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(said.contains("512 bytes"), held.stopped.is_some(), "{said}");
        assert_eq!(stored(&store).await, held);
        let emptied = Candidate {
            data_dir: "/var/lib/forebay".into(),
            ..candidate(Takeover::Refuse)
        };
        let said = take(&store, emptied).await.map(drop).unwrap_err();
        assert!(said.to_string().contains("state file"), "{said}");

        let taken = take(&store, candidate(Takeover::Allow)).await.unwrap();
        assert_eq!(stored(&store).await, note(OURS, 1));
        // The gateway that was taken over can no longer mark the volume as free.
        let other = Hold {
            free: Mutex::default(),
            store: store.clone(),
            root,
            note: held,
            version: Mutex::new(UpdateVersion {
                e_tag: Some("0".to_owned()),
                version: None,
            }),
        };
        other.release(1_790_000_200, 0).await.unwrap_err();
        assert_eq!(other.successor().await, Some(note(OURS, 1)));
        assert_eq!(taken.successor().await, None);
        taken.release(1_790_000_300, 0).await.unwrap();
        assert!(stored(&store).await.is_free());
    }
}

#[tokio::test]
async fn of_many_that_start_at_once_one_takes_a_free_volume() {
    for is_new in [true, false] {
        let (store, root) = bucket();
        if !is_new {
            left_with(0).put(&store, &root, None).await.unwrap();
        }
        let starts = (0..20).map(|number| {
            let store = store.clone();
            let candidate = Candidate {
                note: note([number + 10; 16], number),
                ..candidate(Takeover::Refuse)
            };
            tokio::spawn(async move { take(&store, candidate).await.map(|hold| hold.note) })
        });
        let mut winners = Vec::new();
        for start in starts.collect::<Vec<_>>() {
            match start.await.unwrap() {
                Ok(note) => winners.push(note),
                Err(error) => assert!(error.is_held(), "{error}"),
            }
        }
        assert_eq!(winners, [stored(&store).await]);
    }
}

#[tokio::test]
async fn a_restart_replaces_its_own_note_and_nobody_elses() {
    let (store, _) = bucket();
    let first = take(&store, candidate(Takeover::Refuse)).await.unwrap();
    let restarted = |instance: u8| Candidate {
        note: note(OURS, instance),
        continues: true,
        e_tag: first.e_tag(),
        ..candidate(Takeover::Refuse)
    };
    take(&store, restarted(3)).await.unwrap();
    assert_eq!(stored(&store).await, note(OURS, 3));
    // Its folder knows an older note, and the stored one is its own all the same.
    take(&store, restarted(4)).await.unwrap();
    assert_eq!(stored(&store).await, note(OURS, 4));
    let other = Candidate {
        note: note(OTHER, 5),
        ..candidate(Takeover::Allow)
    };
    take(&store, other).await.unwrap();
    let refused = take(&store, restarted(6)).await.map(drop).unwrap_err();
    assert!(refused.is_held(), "{refused}");
    assert_eq!(stored(&store).await, note(OTHER, 5));
}

#[tokio::test]
async fn a_note_that_cannot_be_read_stops_all_but_the_gateway_whose_log_goes_on() {
    let (store, root) = bucket();
    let damage = || async {
        let name = root.clone().join(HOLDER_NAME);
        store.put(&name, b"\x00\xff".to_vec().into()).await.unwrap();
    };
    damage().await;
    let refused = take(&store, candidate(Takeover::Refuse)).await;
    let said = refused.map(drop).unwrap_err().to_string();
    assert!(
        said.contains(HOLDER_NAME) && said.contains("--take-over"),
        "{said}"
    );
    let continuing = Candidate {
        continues: true,
        ..candidate(Takeover::Refuse)
    };
    take(&store, continuing).await.unwrap();
    damage().await;
    take(&store, candidate(Takeover::Allow)).await.unwrap();
}

#[tokio::test]
async fn a_free_volume_is_given_back_as_it_was_and_a_taken_one_is_not() {
    let (store, root) = bucket();
    left_with(0).put(&store, &root, None).await.unwrap();
    let held = take(&store, candidate(Takeover::Refuse)).await.unwrap();
    assert_eq!(stored(&store).await, note(OURS, 1));
    held.give_back().await;
    assert_eq!(stored(&store).await, left_with(0));
    // Not over the note of a gateway that has taken it meanwhile.
    let held = take(&store, candidate(Takeover::Refuse)).await.unwrap();
    let third = Candidate {
        note: note([3; 16], 3),
        ..candidate(Takeover::Allow)
    };
    let last = take(&store, third).await.unwrap();
    held.give_back().await;
    assert_eq!(stored(&store).await, note([3; 16], 3));
    // The gateway that it was taken from may have changes that the bucket does not have.
    last.give_back().await;
    assert_eq!(stored(&store).await, note([3; 16], 3));
    // So may one that had it for a moment, between this note and the opening of the metadata.
    let (store, root) = bucket();
    left_with(0).put(&store, &root, None).await.unwrap();
    let held = take(&store, candidate(Takeover::Refuse)).await.unwrap();
    let between = Candidate {
        note: note(OTHER, 4),
        ..candidate(Takeover::Allow)
    };
    take(&store, between).await.unwrap();
    held.take_again().await.unwrap();
    held.give_back().await;
    assert_eq!(stored(&store).await, note(OURS, 1));
}

#[tokio::test]
async fn a_volume_without_a_note_is_free_again_after_a_failed_opening() {
    let (store, _) = bucket();
    let held = take(&store, candidate(Takeover::Refuse)).await.unwrap();
    held.give_back().await;
    assert!(stored(&store).await.is_free());
    let other = Candidate {
        note: note(OTHER, 2),
        ..candidate(Takeover::Refuse)
    };
    take(&store, other).await.unwrap();
}
