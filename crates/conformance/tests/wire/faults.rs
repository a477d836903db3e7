//! Errors below the server: damaged records and packs, a bucket that does not answer, a disk that fails.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::Stable;
use forebay_conformance::{Call, Status};
use forebay_object::faults::{FaultKind, Request};

use crate::resources::change_record;
use crate::stack::Stack;
use crate::table::{Caller, Scenario, Scene};
use crate::volume::disk::{Fault, Step};
use crate::volume::{eventually, pattern};

/// For a volume with damaged records of the known objects in its bucket.
pub(crate) const DAMAGED: &[Scenario] = &[Scenario {
    name: "the object's record in the bucket is damaged",
    gives: Status::IO,
    by: &Procedure::ALL,
    caller: Caller::Root,
    call: |scene, procedure| Call::any(procedure, &scene.known[&procedure], b"name", &scene.top),
}];

/// For a gateway that was restarted and whose bucket is unreachable.
pub(crate) const AWAY: &[Scenario] = &[Scenario {
    name: "the bucket that has the object does not answer",
    gives: Status::JUKEBOX,
    by: &Procedure::ALL,
    caller: Caller::Root,
    call: |scene, procedure| Call::any(procedure, &scene.known[&procedure], b"name", &scene.top),
}];

/// For a gateway whose log is on a disk that fails.
pub(crate) const LOG: &[Scenario] = &[Scenario {
    name: "the disk fails under a change that cannot be made twice",
    gives: Status::IO,
    by: &[Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link],
    caller: Caller::Root,
    call: |scene, procedure| {
        log_works(scene);
        let place = scene.place();
        let call = scene.ordinary(procedure, &place);
        scene.stack.disk().fail(Step::Flush, Fault::Io, 0, 1);
        call
    },
}];

fn log_works(scene: &Scene) {
    eventually("the log restarts", || {
        let status = scene.stack.life().volume.status();
        status.log_trouble.is_none()
    });
}

/// A volume with an object for each procedure, which a restarted gateway can read only from the bucket.
fn published() -> (Stack, BTreeMap<Procedure, Vec<u8>>, Vec<u64>) {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (mut known, mut inodes) = (BTreeMap::new(), Vec::new());
    for procedure in Procedure::ALL {
        let name = format!("for-{procedure:?}");
        let object = root.object(procedure, &top, name.as_bytes());
        inodes.push(root.attributes(&object).fileid);
        known.insert(procedure, object);
    }
    stack.stop();
    (stack, known, inodes)
}

/// The same volume with damaged records of these objects in its bucket.
pub(crate) fn damaged() -> Scene {
    let (mut stack, known, inodes) = published();
    for inode in inodes {
        change_record(&stack, inode, |_, _| Bytes::from_static(b"\xffnonsense"));
    }
    stack.start();
    let mut scene = Scene::new(stack);
    scene.known = known;
    scene
}

#[test]
fn damaged_records() {
    let mut scene = damaged();
    scene.prove(DAMAGED);
    // All other objects can be used.
    let place = scene.place();
    scene.root.file(&place, b"file");
}

#[test]
fn damaged_bytes() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    root.ok(&Call::write(
        &file,
        0,
        &pattern(1, 100_000),
        Stable::FileSync,
    ));
    stack.stop();
    stack.start();
    let faults = &stack.bucket.controls;
    faults.next(Request::Get, "packs/", FaultKind::WrongBytes, 100);
    let mut root = stack.root();
    let read = Call::read(&file, 0, 100_000);
    let results = root.call(&read);
    assert_eq!(results.status(), Status::IO);
    assert_eq!(results.attributes[0], Some(root.attributes(&file)));
    stack.bucket.controls.heal();
    assert_eq!(root.ok(&read).data, pattern(1, 100_000));
}

#[test]
fn a_bucket_that_is_away() {
    let (mut stack, known, _) = published();
    stack.start();
    let mut scene = Scene::new(stack);
    scene.known = known;
    scene.stack.set_away(true);
    scene.prove(AWAY);
    scene.stack.set_away(false);
    scene.root.ok(&Call::getattr(&scene.known[&Getattr]));
}

#[test]
fn a_disk_that_fails() {
    let mut scene = Scene::new(Stack::new());
    scene.prove(LOG);
    assert_eq!(scene.stack.disk().struck(), LOG[0].by.len() as u64);
    // The client is asked to repeat a write that may succeed later.
    log_works(&scene);
    let place = scene.place();
    let file = scene.root.file(&place, b"file");
    scene.stack.disk().fail(Step::Flush, Fault::Io, 0, 1);
    let write = Call::write(&file, 0, b"data", Stable::FileSync);
    assert_eq!(scene.root.status(&write), Status::JUKEBOX);
    log_works(&scene);
    scene.root.ok(&write);
}
