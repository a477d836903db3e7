//! Errors for lack of bytes, objects, or names of one object; and names on both sides of a tree's border.

use bytes::Bytes;
use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{Set, Stable};
use forebay_conformance::{Call, Status};
use forebay_fs::LimitChange;
use forebay_meta::record::InodeRecord;
use forebay_meta::{Batch, Key, Record as _};
use forebay_types::Inode;
use forebay_vfs::LINK_MAX;

use crate::stack::Stack;
use crate::table::{Caller, Scenario, Scene};
use crate::volume::folder;

/// Limits the tree below a directory of the root.
fn limit(scene: &Scene, name: &[u8], bytes: LimitChange, files: LimitChange) {
    let path = [b"/", name].concat();
    let life = scene.stack.life();
    let set = life.run(|volume| async move { volume.set_quota(&path, bytes, files).await });
    set.unwrap();
}

/// A directory in which no further object may be made.
fn tree(scene: &mut Scene) -> Vec<u8> {
    let (top, name) = (scene.top.clone(), scene.name());
    let directory = scene.root.directory(&top, &name);
    limit(scene, &name, LimitChange::Keep, LimitChange::To(1));
    directory
}

/// Sets the number of names of an object in the bucket.
///
/// A gateway must not run meanwhile.
pub(crate) fn set_names(stack: &Stack, inode: u64, nlink: u32) {
    change_record(stack, inode, |key, value| {
        let record = InodeRecord::decode(key, &value).unwrap();
        InodeRecord { nlink, ..record }.encode()
    });
}

/// Changes the record of an object in the bucket.
///
/// A gateway must not run meanwhile.
pub(crate) fn change_record(stack: &Stack, inode: u64, change: impl FnOnce(&[u8], Bytes) -> Bytes) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = stack.bucket.store().await;
        let folder = folder();
        let environment = forebay_fs::Environment::real(folder.path().to_owned());
        let metadata = environment.metadata.open(&store, 0, None).await.unwrap();
        let key = Key::Inode(Inode(inode)).encode();
        let value = metadata.get(&key).await.unwrap().unwrap();
        let mut batch = Batch::new();
        batch.put_encoded(key.clone(), change(&key, value));
        metadata.commit(&batch).await.unwrap();
        metadata.close().await.unwrap();
    });
}

pub(crate) const LIMITS: &[Scenario] = &[
    Scenario {
        name: "a tree that has as many bytes as it may",
        gives: Status::DQUOT,
        by: &[Write],
        caller: Caller::Root,
        call: |scene, _| {
            let (top, name) = (scene.top.clone(), scene.name());
            let directory = scene.root.directory(&top, &name);
            limit(scene, &name, LimitChange::To(4096), LimitChange::Keep);
            let file = scene.root.file(&directory, b"file");
            let full = Call::write(&file, 0, &[1; 4096], Stable::Unstable);
            scene.root.ok(&full);
            Call::write(&file, 4096, b"x", Stable::Unstable)
        },
    },
    Scenario {
        name: "a tree that has as many objects as it may",
        gives: Status::DQUOT,
        by: &[Create, Mkdir, Symlink, Mknod],
        caller: Caller::Root,
        call: |scene, procedure| {
            let directory = tree(scene);
            Call::any(procedure, &directory, b"name", &directory)
        },
    },
    Scenario {
        name: "names inside and outside of a tree with a limit",
        gives: Status::XDEV,
        by: &[Rename, Link],
        caller: Caller::Root,
        call: |scene, procedure| {
            let (tree, place) = (tree(scene), scene.place());
            let file = scene.root.file(&place, b"name");
            match procedure {
                Rename => Call::rename((&place, b"name"), (&tree, b"new")),
                _ => Call::link(&file, &tree, b"new"),
            }
        },
    },
];

/// For a volume that has as many objects and bytes as its limits allow.
pub(crate) const FULL: &[Scenario] = &[
    Scenario {
        name: "a volume that has as many objects as it may",
        gives: Status::NOSPC,
        by: &[Create, Mkdir, Symlink, Mknod],
        caller: Caller::Root,
        call: |scene, procedure| Call::any(procedure, &scene.top, b"one-too-many", &scene.top),
    },
    Scenario {
        name: "a volume that has as many bytes as it may",
        gives: Status::NOSPC,
        by: &[Write],
        caller: Caller::Root,
        call: |scene, _| {
            let file = scene.root.ok(&Call::lookup(&scene.top, b"filler-0"));
            let file = file.handle.unwrap();
            Call::write(&file, 1 << 16, b"x", Stable::Unstable)
        },
    },
];

/// For a volume with a file `most` that has one name less than the maximum, and a directory `wide` that has room for no
/// further directory.
pub(crate) const LINKS: &[Scenario] = &[
    Scenario {
        name: "an object with as many names as there can be",
        gives: Status::MLINK,
        by: &[Link],
        caller: Caller::Root,
        call: |scene, _| {
            let file = scene.root.ok(&Call::lookup(&scene.top, b"most"));
            let file = file.handle.unwrap();
            assert_eq!(scene.root.attributes(&file).nlink, LINK_MAX - 1);
            scene.root.ok(&Call::link(&file, &scene.top, b"last"));
            Call::link(&file, &scene.top, b"one-too-many")
        },
    },
    Scenario {
        name: "a directory with as many directories as there can be",
        gives: Status::MLINK,
        by: &[Mkdir, Rename],
        caller: Caller::Root,
        call: |scene, procedure| {
            let wide = scene.root.ok(&Call::lookup(&scene.top, b"wide"));
            let wide = wide.handle.unwrap();
            let name = scene.name();
            scene.root.directory(&scene.top, &name);
            match procedure {
                Mkdir => Call::mkdir(&wide, b"one-too-many", &Set::default()),
                _ => Call::rename((&scene.top, &name), (&wide, b"one-too-many")),
            }
        },
    },
];

#[test]
fn trees_with_limits() {
    Scene::new(Stack::new()).prove(LIMITS);
}

#[test]
fn a_volume_without_room() {
    let stack = Stack::with(|config| {
        config.volume_limit = 1 << 16;
        config.inode_limit = 4;
    });
    let mut scene = Scene::new(stack);
    // The root counts.
    for number in 0..3 {
        let name = format!("filler-{number}");
        let file = scene.root.file(&scene.top, name.as_bytes());
        if number == 0 {
            let full = Call::write(&file, 0, &[1; 1 << 16], Stable::FileSync);
            scene.root.ok(&full);
        }
    }
    scene.prove(FULL);
    // Overwriting takes no more room, and removing frees it.
    scene.root.ok(&Call::remove(&scene.top, b"filler-1"));
    let call = Call::any(Procedure::Create, &scene.top, b"again", b"");
    scene.root.ok(&call);
}

#[test]
fn objects_with_as_many_names_as_pathconf_says() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"most");
    let directory = root.directory(&top, b"wide");
    let [file, directory] = [file, directory].map(|object| root.attributes(&object).fileid);
    let told = root.ok(&Call::pathconf(&top)).numbers[0];
    assert_eq!(told, u64::from(LINK_MAX));
    stack.stop();
    set_names(&stack, file, LINK_MAX - 1);
    set_names(&stack, directory, LINK_MAX);
    stack.start();
    Scene::new(stack).prove(LINKS);
}
