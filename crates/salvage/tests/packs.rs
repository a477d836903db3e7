//! A volume whose metadata are destroyed, salvaged from its packs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use forebay_fs::Expected;
use forebay_fsck::Progress;
use forebay_salvage::packs::{Salvage, SalvageError, Salvaged, Unsalvaged, salvage};
use forebay_types::Inode;
use forebay_vfs::FileSystem;

#[path = "../../fsck/tests/place/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{Place, WHO, close, create, key_file, noise, write};

async fn salvaged(place: &Place, to: &Path) -> Result<(Salvaged, Vec<Unsalvaged>), SalvageError> {
    let store = place.store().await;
    let mut lost = Vec::new();
    let progress = Arc::new(Progress::default());
    let what = Salvage {
        store: store.store,
        root: store.root,
        expected: place.expected.clone(),
    };
    let salvaged = salvage(what, to, progress, &mut lost).await?;
    Ok((salvaged, lost))
}

fn file(folder: &Path, inode: Inode) -> Vec<u8> {
    let path = folder.join(format!("files/{}/{inode}", inode.0 / 10_000));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Makes a volume with files of several kinds, and deletes its metadata. Returns the files' contents.
async fn destroyed() -> (Place, Vec<(Inode, Vec<u8>)>) {
    destroyed_of(Expected::NotSealed).await
}

async fn destroyed_of(expected: Expected) -> (Place, Vec<(Inode, Vec<u8>)>) {
    let place = Place::of(expected).await;
    let volume = place.open().await;
    let mut files = Vec::new();
    for (seed, len) in [(1, 3), (2, 70_000), (3, 9 << 20)] {
        let inode = create(&volume, Inode::ROOT, &format!("file-{seed}")).await;
        let data = noise(seed, len);
        write(&volume, inode, 0, &data).await;
        files.push((inode, data));
    }
    // Bytes that a codec compresses.
    let text = create(&volume, Inode::ROOT, "text").await;
    let data = b"the same again and again, ".repeat(20_000);
    write(&volume, text, 0, &data).await;
    files.push((text, data));
    volume.flush().await.unwrap();
    // Written over, in later packs, at both ends of a block.
    let (inode, data) = &mut files[2];
    for (round, at) in [(7, 100), (8, (4 << 20) - 50), (9, 100)] {
        let patch = noise(round, 5000);
        write(&volume, *inode, at as u64, &patch).await;
        data[at..at + patch.len()].copy_from_slice(&patch);
        volume.flush().await.unwrap();
    }
    let sparse = create(&volume, Inode::ROOT, "sparse").await;
    write(&volume, sparse, 50 << 20, b"far behind").await;
    let mut data = vec![0; 50 << 20];
    data.extend_from_slice(b"far behind");
    files.push((sparse, data));
    close(volume).await;
    fs::remove_dir_all(place.bucket().join("meta")).unwrap();
    (place, files)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_come_back_without_metadata() {
    for expected in [Expected::NotSealed, key_file(1)] {
        let (place, files) = destroyed_of(expected).await;
        let to = place.folder.path().join("salvaged");
        let (salvaged, lost) = salvaged(&place, &to).await.unwrap();
        assert_eq!(lost, []);
        assert_eq!((salvaged.files, salvaged.unsalvaged), (5, 0));
        assert_eq!(salvaged.packs, place.packs().len() as u64);
        for (inode, data) in &files {
            assert!(file(&to, *inode) == *data, "inode {inode}");
        }
        let again = self::salvaged(&place, &to).await.unwrap_err();
        assert!(matches!(again, SalvageError::Exists(_)), "{again}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_volume_gives_nothing_without_its_keys() {
    let (mut place, _) = destroyed_of(key_file(1)).await;
    for expected in [Expected::NotSealed, key_file(2)] {
        place.expected = expected;
        let to = place.folder.path().join("salvaged");
        let refused = salvaged(&place, &to).await.unwrap_err();
        assert!(matches!(refused, SalvageError::Volume(_)), "{refused}");
        assert!(!to.exists());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_without_header_and_index_are_understood_by_their_frames() {
    let (place, files) = destroyed().await;
    for pack in place.packs() {
        let mut bytes = fs::read(&pack).unwrap();
        bytes[..40].fill(0);
        let end = bytes.len();
        bytes[end - 80..].fill(0);
        fs::write(&pack, bytes).unwrap();
    }
    let to = place.folder.path().join("salvaged");
    let (salvaged, lost) = salvaged(&place, &to).await.unwrap();
    assert_eq!(salvaged.files, 5);
    for (inode, data) in &files {
        assert!(file(&to, *inode) == *data, "inode {inode}");
    }
    // The bytes behind the last frame are as many as its index had.
    assert_eq!(lost, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_frame_is_named_and_hides_no_other() {
    let (place, files) = destroyed().await;
    let (inode, data) = &files[1];
    let pack = &place.packs()[0];
    let mut bytes = fs::read(pack).unwrap();
    let at = bytes.windows(64).position(|window| *window == data[..64]);
    bytes[at.unwrap() + 1000] ^= 1;
    fs::write(pack, bytes).unwrap();
    let to = place.folder.path().join("salvaged");
    let (salvaged, lost) = salvaged(&place, &to).await.unwrap();
    assert_eq!((salvaged.files, lost.len()), (4, 1));
    assert!(lost[0].is_all, "{lost:?}");
    assert!(pack.ends_with(&lost[0].object), "{lost:?}");
    let [of] = lost[0].of[..] else {
        panic!("{lost:?}")
    };
    assert_eq!((of.inode, of.from, of.to), (*inode, 0, 70_000));
    for (inode, data) in files.iter().filter(|(other, _)| other != inode) {
        assert!(file(&to, *inode) == *data, "inode {inode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_that_are_cut_off_or_of_others_give_what_they_have() {
    let (place, files) = destroyed().await;
    let packs = place.packs();
    let whole = fs::read(&packs[0]).unwrap();
    // In the last frame, which lies behind all small ones.
    fs::write(&packs[0], &whole[..whole.len() - 1000]).unwrap();
    // A pack under the number of another, and an object that is no pack.
    let folder = packs[0].parent().unwrap();
    fs::copy(&packs[1], folder.join("00000f0000000001.pack")).unwrap();
    let other = place.bucket().join("packs/02");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("00000f0000000002.pack"), noise(77, 3000)).unwrap();
    fs::write(other.join("00000f0000000102.pack"), b"").unwrap();
    let to = place.folder.path().join("salvaged");
    let (_, lost) = salvaged(&place, &to).await.unwrap();
    for (inode, data) in &files[..2] {
        assert!(file(&to, *inode) == *data, "inode {inode}");
    }
    assert!(lost.len() >= 2, "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_descriptor_it_says_so() {
    let (place, _) = destroyed().await;
    fs::remove_file(place.bucket().join("forebay.volume")).unwrap();
    let to = place.folder.path().join("salvaged");
    let error = salvaged(&place, &to).await.unwrap_err();
    assert!(matches!(error, SalvageError::Volume(_)), "{error}");
    assert!(!to.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_file_may_come_back_with_its_pack() {
    let place = Place::new().await;
    let volume = place.open().await;
    let kept = create(&volume, Inode::ROOT, "kept").await;
    let gone = create(&volume, Inode::ROOT, "gone").await;
    write(&volume, kept, 0, b"kept").await;
    write(&volume, gone, 0, b"gone").await;
    volume.flush().await.unwrap();
    volume.remove(&WHO, Inode::ROOT, b"gone").await.unwrap();
    close(volume).await;
    fs::remove_dir_all(place.bucket().join("meta")).unwrap();
    let to = place.folder.path().join("salvaged");
    salvaged(&place, &to).await.unwrap();
    assert_eq!(file(&to, kept), b"kept");
    assert_eq!(file(&to, gone), b"gone");
}
