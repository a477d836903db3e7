//! Errors that a request brings about by itself: by its handles, its names, the kinds of its objects, and who
//! makes it.

use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{How, Node, Set, SetTime, Stable};
use forebay_conformance::{Call, Status};

use crate::stack::{OTHER_EXPORT, Stack, is_of_directories};
use crate::table::{Scenario, Scene, Who};

/// Those that make a name.
const MAKERS: [Procedure; 5] = [Create, Mkdir, Symlink, Mknod, Link];
/// Those that have a name among their arguments.
const NAMED: [Procedure; 9] = [
    Lookup, Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link,
];

/// A mode to set.
fn mode(mode: u32) -> Set {
    Set {
        mode: Some(mode),
        ..Set::default()
    }
}

/// A size to set.
fn size(size: u64) -> Set {
    Set {
        size: Some(size),
        ..Set::default()
    }
}

/// A time that is none: a second has 10^9 nanoseconds.
const NO_TIME: Set = Set {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::To((5, 1_000_000_000)),
};

/// What belongs to another.
const FOREIGN: Set = Set {
    mode: None,
    uid: Some(7),
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

/// One of the procedures that make objects, with attributes to begin with.
fn make(procedure: Procedure, directory: &[u8], set: Set) -> Call {
    match procedure {
        Create => Call::create(directory, b"new", How::Unchecked(set)),
        Mkdir => Call::mkdir(directory, b"new", &set),
        Symlink => Call::symlink(directory, b"new", &set, b"path"),
        _ => Call::mknod(directory, b"new", Node::Socket(set)),
    }
}

/// A call for the object of `procedure` in `place`, where the name it has does not exist, or for those that look
/// for one does.
fn ordinary(scene: &mut Scene, procedure: Procedure, place: &[u8]) -> Call {
    match procedure {
        Lookup | Remove | Rename => drop(scene.root.file(place, b"name")),
        Rmdir => drop(scene.root.directory(place, b"name")),
        _ => {}
    }
    let object = match is_of_directories(procedure) {
        true => place.to_vec(),
        false => scene.root.object(procedure, place, b"object"),
    };
    Call::any(procedure, &object, b"name", place)
}

/// Calls with `name` where they have one, in a directory where everything else is well.
fn with_name(scene: &mut Scene, procedure: Procedure, name: &[u8]) -> Call {
    let place = scene.place();
    let object = match procedure {
        Link => scene.root.file(&place, b"object"),
        _ => place.clone(),
    };
    Call::any(procedure, &object, name, &place)
}

/// A handle of what was removed.
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
        who: Who::Root,
        call: |scene, procedure| {
            let object = removed(scene, procedure);
            Call::any(procedure, &object, b"name", &scene.top)
        },
    },
    Scenario {
        name: "the second directory was removed",
        gives: Status::STALE,
        by: &[Rename, Link],
        who: Who::Root,
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
        who: Who::Root,
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
        who: Who::Root,
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
        who: Who::Root,
        call: |scene, procedure| Call::any(procedure, b"", b"name", &scene.top),
    },
    Scenario {
        name: "the second handle is none",
        gives: Status::BADHANDLE,
        by: &[Rename, Link],
        who: Who::Root,
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
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, b"nothing"),
    },
    Scenario {
        name: "a name of 256 bytes",
        gives: Status::NAMETOOLONG,
        by: &NAMED,
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, &[b'n'; 256]),
    },
    Scenario {
        name: "a path of 4097 bytes in a symbolic link",
        gives: Status::NAMETOOLONG,
        by: &[Symlink],
        who: Who::Root,
        call: |scene, _| Call::symlink(&scene.place(), b"new", &Set::default(), &[b'p'; 4097]),
    },
    Scenario {
        // Section 3.2.2, as of the following.
        name: "an empty name",
        gives: Status::ACCES,
        by: &NAMED,
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, b""),
    },
    Scenario {
        name: "a name with a slash",
        gives: Status::ACCES,
        by: &NAMED,
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, b"a/b"),
    },
    Scenario {
        name: "a name with a NUL",
        gives: Status::ACCES,
        by: &NAMED,
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, b"a\0b"),
    },
    Scenario {
        name: "a new name with a slash",
        gives: Status::ACCES,
        by: &[Rename],
        who: Who::Root,
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
        who: Who::Root,
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
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, b"."),
    },
    Scenario {
        name: "two dots are always taken",
        gives: Status::EXIST,
        by: &MAKERS,
        who: Who::Root,
        call: |scene, procedure| with_name(scene, procedure, b".."),
    },
    Scenario {
        name: "an unchecked CREATE where a directory is",
        gives: Status::EXIST,
        by: &[Create],
        who: Who::Root,
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
        who: Who::Root,
        call: |scene, _| Call::rmdir(&scene.place(), b".."),
    },
    Scenario {
        name: "RMDIR of a dot",
        gives: Status::INVAL,
        by: &[Rmdir],
        who: Who::Root,
        call: |scene, _| Call::rmdir(&scene.place(), b"."),
    },
    Scenario {
        name: "REMOVE of a dot",
        gives: Status::ACCES,
        by: &[Remove],
        who: Who::Root,
        call: |scene, _| Call::remove(&scene.place(), b"."),
    },
    Scenario {
        name: "REMOVE of two dots",
        gives: Status::ACCES,
        by: &[Remove],
        who: Who::Root,
        call: |scene, _| Call::remove(&scene.place(), b".."),
    },
    Scenario {
        name: "RENAME of a dot",
        gives: Status::INVAL,
        by: &[Rename],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            Call::rename((&place, b"."), (&place, b"new"))
        },
    },
    Scenario {
        name: "RENAME to two dots",
        gives: Status::INVAL,
        by: &[Rename],
        who: Who::Root,
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
        who: Who::Root,
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
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            // It is there from the first time on.
            let set = Set::default();
            let made = Call::mkdir(&scene.top, OTHER_EXPORT.as_bytes(), &set);
            scene.root.call(&made);
            let other = scene.root.mount(b"/other").unwrap();
            let object = scene.root.object(procedure, &place, b"name");
            Call::any(procedure, &object, b"name", &other)
        },
    },
];

pub(crate) const KINDS: &[Scenario] = &[
    Scenario {
        name: "a file in place of a directory",
        gives: Status::NOTDIR,
        by: &[
            Lookup,
            Create,
            Mkdir,
            Symlink,
            Mknod,
            Remove,
            Rmdir,
            Rename,
            Link,
            Readdir,
            Readdirplus,
        ],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            Call::any(procedure, &file, b"name", &file)
        },
    },
    Scenario {
        name: "a symbolic link in place of a directory",
        gives: Status::NOTDIR,
        by: &[Lookup, Create, Readdir],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let link = Call::symlink(&place, b"link", &Set::default(), b".");
            let link = scene.root.made(&link);
            Call::any(procedure, &link, b"name", &link)
        },
    },
    Scenario {
        name: "the second directory is a file",
        gives: Status::NOTDIR,
        by: &[Rename],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            Call::rename((&place, b"file"), (&file, b"new"))
        },
    },
    Scenario {
        name: "RMDIR of a file",
        gives: Status::NOTDIR,
        by: &[Rmdir],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.file(&place, b"file");
            Call::rmdir(&place, b"file")
        },
    },
    Scenario {
        name: "a directory over a file",
        gives: Status::NOTDIR,
        by: &[Rename],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.directory(&place, b"directory");
            scene.root.file(&place, b"file");
            Call::rename((&place, b"directory"), (&place, b"file"))
        },
    },
    Scenario {
        name: "a file over a directory",
        gives: Status::ISDIR,
        by: &[Rename],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.directory(&place, b"directory");
            scene.root.file(&place, b"file");
            Call::rename((&place, b"file"), (&place, b"directory"))
        },
    },
    Scenario {
        name: "a directory in place of a file",
        gives: Status::ISDIR,
        by: &[Setattr, Read, Write, Remove, Commit],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let directory = scene.root.directory(&place, b"name");
            match procedure {
                Setattr => Call::setattr(&directory, &size(0), None),
                Remove => Call::remove(&place, b"name"),
                _ => Call::any(procedure, &directory, b"", b""),
            }
        },
    },
    Scenario {
        name: "a named pipe in place of a file",
        gives: Status::INVAL,
        by: &[Setattr, Read, Write, Commit, Readlink],
        who: Who::Root,
        call: |scene, procedure| {
            let node = Call::mknod(&scene.place(), b"fifo", Node::Fifo(Set::default()));
            let fifo = scene.root.made(&node);
            match procedure {
                Setattr => Call::setattr(&fifo, &size(0), None),
                _ => Call::any(procedure, &fifo, b"", b""),
            }
        },
    },
    Scenario {
        name: "READLINK of a file",
        gives: Status::INVAL,
        by: &[Readlink],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            Call::readlink(&scene.root.file(&place, b"file"))
        },
    },
    Scenario {
        name: "a directory with a name in it",
        gives: Status::NOTEMPTY,
        by: &[Rmdir, Rename],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let full = scene.root.directory(&place, b"full");
            scene.root.file(&full, b"file");
            scene.root.directory(&place, b"empty");
            match procedure {
                Rmdir => Call::rmdir(&place, b"full"),
                _ => Call::rename((&place, b"empty"), (&place, b"full")),
            }
        },
    },
    Scenario {
        name: "a further name of a directory",
        gives: Status::PERM,
        by: &[Link],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            let directory = scene.root.directory(&place, b"directory");
            Call::link(&directory, &place, b"new")
        },
    },
    Scenario {
        name: "MKNOD of a regular file",
        gives: Status::BADTYPE,
        by: &[Mknod],
        who: Who::Root,
        call: |scene, _| Call::mknod(&scene.place(), b"new", Node::Other(1)),
    },
    Scenario {
        name: "MKNOD of a directory",
        gives: Status::BADTYPE,
        by: &[Mknod],
        who: Who::Root,
        call: |scene, _| Call::mknod(&scene.place(), b"new", Node::Other(2)),
    },
    Scenario {
        name: "MKNOD of a symbolic link",
        gives: Status::BADTYPE,
        by: &[Mknod],
        who: Who::Root,
        call: |scene, _| Call::mknod(&scene.place(), b"new", Node::Other(5)),
    },
    Scenario {
        name: "a symbolic link without a path",
        gives: Status::INVAL,
        by: &[Symlink],
        who: Who::Root,
        call: |scene, _| Call::symlink(&scene.place(), b"new", &Set::default(), b""),
    },
    Scenario {
        name: "a time with 10^9 nanoseconds",
        gives: Status::INVAL,
        by: &[Setattr, Create, Mkdir, Symlink, Mknod],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            match procedure {
                Setattr => Call::setattr(&place, &NO_TIME, None),
                _ => make(procedure, &place, NO_TIME),
            }
        },
    },
    Scenario {
        name: "a size of 2^63",
        gives: Status::FBIG,
        by: &[Setattr, Create, Write],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            match procedure {
                Setattr => Call::setattr(&file, &size(1 << 63), None),
                Create => make(Create, &place, size(1 << 63)),
                _ => Call::write(&file, (1 << 63) - 1, b"x", Stable::Unstable),
            }
        },
    },
    Scenario {
        name: "the guard is another moment",
        gives: Status::NOT_SYNC,
        by: &[Setattr],
        who: Who::Root,
        call: |scene, _| {
            let place = scene.place();
            let (seconds, nanos) = scene.root.attributes(&place).ctime;
            let another = (seconds, (nanos + 1) % 1_000_000_000);
            Call::setattr(&place, &mode(0o700), Some(another))
        },
    },
    Scenario {
        name: "a reply too small for one name",
        gives: Status::TOOSMALL,
        by: &[Readdir, Readdirplus],
        who: Who::Root,
        call: |scene, procedure| {
            let place = scene.place();
            match procedure {
                Readdir => Call::readdir(&place, 0, [0; 8], 100),
                _ => Call::readdirplus(&place, 0, [0; 8], 8192, 100),
            }
        },
    },
];

pub(crate) const RIGHTS: &[Scenario] = &[
    Scenario {
        name: "an export that is read-only for the client",
        gives: Status::ROFS,
        by: &Procedure::CHANGES,
        who: Who::ReadOnly,
        call: |scene, procedure| {
            let place = scene.place();
            ordinary(scene, procedure, &place)
        },
    },
    Scenario {
        name: "a directory that is closed to the caller",
        gives: Status::ACCES,
        by: &[
            Lookup,
            Create,
            Mkdir,
            Symlink,
            Mknod,
            Remove,
            Rmdir,
            Rename,
            Link,
            Readdir,
            Readdirplus,
        ],
        who: Who::User,
        call: |scene, procedure| {
            let place = scene.place();
            let call = ordinary(scene, procedure, &place);
            scene.root.chmod(&place, 0o700);
            call
        },
    },
    Scenario {
        name: "a directory that the caller may search and not change",
        gives: Status::ACCES,
        by: &[Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link],
        who: Who::User,
        call: |scene, procedure| {
            let place = scene.place();
            let call = ordinary(scene, procedure, &place);
            scene.root.chmod(&place, 0o755);
            call
        },
    },
    Scenario {
        name: "a file that is closed to the caller",
        gives: Status::ACCES,
        by: &[Setattr, Read, Write],
        who: Who::User,
        call: |scene, procedure| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            scene.root.chmod(&file, 0o600);
            match procedure {
                Setattr => Call::setattr(&file, &size(0), None),
                _ => Call::any(procedure, &file, b"", b""),
            }
        },
    },
    Scenario {
        name: "the mode of what belongs to another",
        gives: Status::PERM,
        by: &[Setattr],
        who: Who::User,
        call: |scene, _| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            Call::setattr(&file, &mode(0o777), None)
        },
    },
    Scenario {
        name: "an object for another owner",
        gives: Status::PERM,
        by: &[Create, Mkdir, Symlink, Mknod],
        who: Who::User,
        call: |scene, procedure| make(procedure, &scene.place(), FOREIGN),
    },
    Scenario {
        name: "names of others in a sticky directory",
        gives: Status::PERM,
        by: &[Remove, Rmdir, Rename],
        who: Who::User,
        call: |scene, procedure| {
            let place = scene.place();
            let call = ordinary(scene, procedure, &place);
            scene.root.chmod(&place, 0o1777);
            call
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

#[test]
fn objects_of_the_wrong_kind_and_values_that_cannot_be() {
    Scene::new(Stack::new()).prove(KINDS);
}

#[test]
fn callers_without_the_right() {
    Scene::new(Stack::new()).prove(RIGHTS);
}
