//! A restore that was a mistake.

use super::*;

#[test]
fn trap_13_a_restore_of_a_volume_is_undone_by_another_one() {
    run(|| async {
        let (place, then, files) = source(&Expected::NotSealed).await;
        restored(&place, "s", "before").await.unwrap();
        let volume = open(&place).await;
        compare(&volume, &then).await;
        close(volume).await;
        restored(&place, "before", "between").await.unwrap();
        let volume = open(&place).await;
        compare(&volume, &files).await;
        compare(&*volume.open_snapshot("between").await.unwrap(), &then).await;
        close(volume).await;
        is_sound(&place).await;
    });
}
