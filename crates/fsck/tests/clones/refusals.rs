//! What is refused where a note cannot be read, or a clone is half deleted.

use super::*;

#[test]
fn a_note_on_a_clone_that_cannot_be_read_holds_every_snapshot() {
    run(|| async {
        let (place, _, _) = source(&Expected::NotSealed).await;
        let note = place.bucket().join("clones/whose");
        std::fs::create_dir_all(note.parent().unwrap()).unwrap();
        std::fs::write(&note, b"no note").unwrap();
        assert!(matches!(
            standings(&place).await[..],
            [Standing::Unknown(_)]
        ));
        let volume = opened(&place).await;
        let held = volume.status().held_bytes;
        let refused = volume.delete_snapshot("s").await.unwrap_err();
        let SnapshotError::Cloned { clones, .. } = refused else {
            panic!("{refused}");
        };
        assert!(clones.contains("clones/whose"), "{clones}");
        settled(&place, &volume).await;
        assert_eq!(volume.status().held_bytes, held);
        std::fs::remove_file(&note).unwrap();
        volume.delete_snapshot("s").await.unwrap();
        settled(&place, &volume).await;
        close(volume).await;
        is_sound(&place).await;
    });
}

#[test]
fn a_holder_that_cannot_be_read_keeps_a_volume_from_being_restored() {
    run(|| async {
        let (place, _, _) = source(&Expected::NotSealed).await;
        let note = place.bucket().join("forebay.holder");
        let good = std::fs::read(&note).unwrap();
        std::fs::write(&note, b"whose").unwrap();
        let before = place.objects();
        let refused = restored(&place, "s", "before").await.unwrap_err();
        assert!(matches!(refused, CloneError::Held(_)), "{refused}");
        assert!(refused.to_string().contains("cannot be read"), "{refused}");
        assert!(
            place.objects() == before,
            "nothing is changed, and no gateway is fenced"
        );
        std::fs::write(&note, good).unwrap();
        restored(&place, "s", "before").await.unwrap();
        is_sound(&place).await;
    });
}

#[test]
fn a_half_deleted_clone_is_no_interrupted_attempt() {
    run(|| async {
        let (place, _, _) = source(&Expected::NotSealed).await;
        let other = empty(&Expected::NotSealed);
        clone(&place, &other, "s").await.unwrap();
        let volume = opened(&other).await;
        put(&volume, &mut Files::new(), "own", 900, MIB).await;
        volume.flush().await.unwrap();
        close(volume).await;
        // The descriptor goes first.
        std::fs::remove_file(other.bucket().join("forebay.volume")).unwrap();
        assert_eq!(standings(&place).await, [Standing::Missing]);
        let before = other.objects();
        clone(&place, &other, "s").await.unwrap_err();
        assert!(other.objects() == before, "its identity is not used again");
        // And its source keeps the snapshot.
        let volume = opened(&place).await;
        let refused = volume.delete_snapshot("s").await.unwrap_err();
        assert!(matches!(refused, SnapshotError::Cloned { .. }), "{refused}");
        close(volume).await;
    });
}
