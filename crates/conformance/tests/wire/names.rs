//! Errors of handles without an object, and of names.

use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{How, Set};
use forebay_conformance::{Call, Status};

use crate::stack::{OTHER_EXPORT, Stack, is_of_directories};
use crate::table::{Caller, Scenario, Scene};

/// Procedures that make a name.
const MAKERS: [Procedure; 5] = [Create, Mkdir, Symlink, Mknod, Link];
/// Procedures with a name among their arguments.
const NAMED: [Procedure; 9] = [
    Lookup, Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link,
];

/// Calls with `name` where they have one, in a directory where everything else is valid.
fn with_name(scene: &mut Scene, procedure: Procedure, name: &[u8]) -> Call {
    let place = scene.place();
    let object = match procedure {
        Link => scene.root.file(&place, b"object"),
        _ => place.clone(),
    };
    Call::any(procedure, &object, name, &place)
}

/// A handle of a removed object.
fn removed(scene: &mut Scene, procedure: Procedure) -> Vec<u8> {
    let top = scene.top.clone();
    let name = scene.name();
    let object = scene.root.object(procedure, &top, &name);
    let removal = match is_of_directories(procedure) {
        true => Call::rmdir(&top, &name),
        false => Call::remove(&top, &name),
    };
    scene.root.ok(&removal);
    object
}

pub(crate) const HANDLES: &[Scenario] = &[
    Scenario {
        name: "the object was removed",
        gives: Status::STALE,
        by: &Procedure::ALL,
        caller: Caller::Root,
        call: |scene, procedure| {
            let object = removed(scene, procedure);
            Call::any(procedure, &object, b"name", &scene.top)
        },
    },
    Scenario {
        name: "the second directory was removed",
        gives: Status::STALE,
        by: &[Rename, Link],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let directory = removed(scene, Mkdir);
            let file = scene.root.file(&place, b"name");
            match procedure {
                Rename => Call::rename((&place, b"name"), (&directory, b"new")),
                _ => Call::link(&file, &directory, b"new"),
            }
        },
    },
    Scenario {
        name: "a handle of which one bit is another",
        gives: Status::STALE,
        by: &Procedure::ALL,
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let mut object = scene.root.object(procedure, &place, b"object");
            if let Some(byte) = object.last_mut() {
                *byte ^= 1;
            }
            Call::any(procedure, &object, b"name", &place)
        },
    },
    Scenario {
        name: "bytes that have not the form of a handle",
        gives: Status::BADHANDLE,
        by: &Procedure::ALL,
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let mut object = scene.root.object(procedure, &place, b"object");
            object.push(0);
            Call::any(procedure, &object, b"name", &place)
        },
    },
    Scenario {
        name: "no handle at all",
        gives: Status::BADHANDLE,
        by: &Procedure::ALL,
        caller: Caller::Root,
        call: |scene, procedure| Call::any(procedure, b"", b"name", &scene.top),
    },
    Scenario {
        name: "the second handle is none",
        gives: Status::BADHANDLE,
        by: &[Rename, Link],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let object = scene.root.object(procedure, &place, b"object");
            Call::any(procedure, &object, b"name", b"no handle")
        },
    },
];

pub(crate) const NAMES: &[Scenario] = &[
    Scenario {
        name: "a name that is not there",
        gives: Status::NOENT,
        by: &[Lookup, Remove, Rmdir, Rename],
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, b"nothing"),
    },
    Scenario {
        name: "a name of 256 bytes",
        gives: Status::NAMETOOLONG,
        by: &NAMED,
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, &[b'n'; 256]),
    },
    Scenario {
        name: "a path of 4097 bytes in a symbolic link",
        gives: Status::NAMETOOLONG,
        by: &[Symlink],
        caller: Caller::Root,
        call: |scene, _| Call::symlink(&scene.place(), b"new", &Set::default(), &[b'p'; 4097]),
    },
    Scenario {
        // Section 3.2.2, as for the following scenarios.
        name: "an empty name",
        gives: Status::ACCES,
        by: &NAMED,
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, b""),
    },
    Scenario {
        name: "a name with a slash",
        gives: Status::ACCES,
        by: &NAMED,
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, b"a/b"),
    },
    Scenario {
        name: "a name with a NUL",
        gives: Status::ACCES,
        by: &NAMED,
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, b"a\0b"),
    },
    Scenario {
        name: "a new name with a slash",
        gives: Status::ACCES,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.file(&place, b"old");
            Call::rename((&place, b"old"), (&place, b"/"))
        },
    },
    Scenario {
        name: "a name that is taken",
        gives: Status::EXIST,
        by: &MAKERS,
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            scene.root.file(&place, b"name");
            let object = match procedure {
                Link => scene.root.file(&place, b"object"),
                _ => place.clone(),
            };
            Call::any(procedure, &object, b"name", &place)
        },
    },
    Scenario {
        name: "a dot is always taken",
        gives: Status::EXIST,
        by: &MAKERS,
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, b"."),
    },
    Scenario {
        name: "two dots are always taken",
        gives: Status::EXIST,
        by: &MAKERS,
        caller: Caller::Root,
        call: |scene, procedure| with_name(scene, procedure, b".."),
    },
    Scenario {
        name: "an unchecked CREATE where a directory is",
        gives: Status::EXIST,
        by: &[Create],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.directory(&place, b"name");
            Call::create(&place, b"name", How::Unchecked(Set::default()))
        },
    },
    Scenario {
        name: "RMDIR of two dots",
        gives: Status::EXIST,
        by: &[Rmdir],
        caller: Caller::Root,
        call: |scene, _| Call::rmdir(&scene.place(), b".."),
    },
    Scenario {
        name: "RMDIR of a dot",
        gives: Status::INVAL,
        by: &[Rmdir],
        caller: Caller::Root,
        call: |scene, _| Call::rmdir(&scene.place(), b"."),
    },
    Scenario {
        name: "REMOVE of a dot",
        gives: Status::ACCES,
        by: &[Remove],
        caller: Caller::Root,
        call: |scene, _| Call::remove(&scene.place(), b"."),
    },
    Scenario {
        name: "REMOVE of two dots",
        gives: Status::ACCES,
        by: &[Remove],
        caller: Caller::Root,
        call: |scene, _| Call::remove(&scene.place(), b".."),
    },
    Scenario {
        name: "RENAME of a dot",
        gives: Status::INVAL,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            Call::rename((&place, b"."), (&place, b"new"))
        },
    },
    Scenario {
        name: "RENAME to two dots",
        gives: Status::INVAL,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.file(&place, b"old");
            Call::rename((&place, b"old"), (&place, b".."))
        },
    },
    Scenario {
        name: "a directory is moved below itself",
        gives: Status::INVAL,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            let upper = scene.root.directory(&place, b"upper");
            let lower = scene.root.directory(&upper, b"lower");
            Call::rename((&place, b"upper"), (&lower, b"new"))
        },
    },
    Scenario {
        name: "names in two exports",
        gives: Status::XDEV,
        by: &[Rename, Link],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            // Only the first call makes it; later ones find it there.
            let set = Set::default();
            let made = Call::mkdir(&scene.top, OTHER_EXPORT.as_bytes(), &set);
            scene.root.call(&made);
            let other = scene.root.mount(b"/other").unwrap();
            let object = scene.root.object(procedure, &place, b"name");
            Call::any(procedure, &object, b"name", &other)
        },
    },
];

#[test]
fn handles_that_name_nothing() {
    Scene::new(Stack::new()).prove(HANDLES);
}

#[test]
fn names_that_cannot_be_taken_found_or_be() {
    Scene::new(Stack::new()).prove(NAMES);
}
