//! The table procedure × error.
//!
//! A cell is *shown* by a [`Scenario`], which is run over the wire and must return that status; or *excused* with the
//! reason why it is impossible. Errors that RFC 1813 does not list for a procedure have a reason as well ([`BEYOND`])
//! and are shown like all others.

use std::collections::BTreeMap;

use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{How, Node, Set};
use forebay_conformance::{Call, Status};

use crate::stack::{Client, Stack, is_of_directories};
use crate::{faults, kinds, names, resources, rights};

/// The caller of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Root.
    Root,
    /// A user who owns nothing.
    User,
    /// Root on a machine that may not write.
    ReadOnly,
}

/// A way to cause an error.
pub(crate) struct Scenario {
    /// Name of the scenario.
    pub(crate) name: &'static str,
    pub(crate) gives: Status,
    /// The procedures that show it.
    pub(crate) by: &'static [Procedure],
    pub(crate) caller: Caller,
    /// Prepares everything and returns the call.
    pub(crate) call: fn(&mut Scene, Procedure) -> Call,
}

/// The environment of scenarios.
pub(crate) struct Scene {
    pub(crate) stack: Stack,
    pub(crate) root: Client,
    user: Client,
    read_only: Client,
    /// The volume's root directory.
    pub(crate) top: Vec<u8>,
    /// Handles of objects that existed before the gateway was started, by the procedure that each is for.
    pub(crate) known: BTreeMap<Procedure, Vec<u8>>,
    names: u32,
}

impl Scene {
    pub(crate) fn new(stack: Stack) -> Scene {
        let mut root = stack.root();
        Scene {
            top: root.top(),
            user: stack.user(1000),
            read_only: stack.read_only(),
            root,
            stack,
            known: BTreeMap::new(),
            names: 0,
        }
    }

    /// A name that is free in the root directory.
    pub(crate) fn name(&mut self) -> Vec<u8> {
        self.names += 1;
        format!("scene-{}", self.names).into_bytes()
    }

    /// A new directory in which all users may do everything.
    pub(crate) fn place(&mut self) -> Vec<u8> {
        let name = self.name();
        let place = self.root.directory(&self.top, &name);
        self.root.chmod(&place, 0o777);
        place
    }

    /// A call on the object of `procedure` in `place`, whose name does not exist or, for procedures that look one up,
    /// exists.
    pub(crate) fn ordinary(&mut self, procedure: Procedure, place: &[u8]) -> Call {
        match procedure {
            Lookup | Remove | Rename => drop(self.root.file(place, b"name")),
            Rmdir => drop(self.root.directory(place, b"name")),
            _ => {}
        }
        let object = match is_of_directories(procedure) {
            true => place.to_vec(),
            false => self.root.object(procedure, place, b"object"),
        };
        Call::any(procedure, &object, b"name", place)
    }

    /// Runs scenarios: each must return its status, and the attributes in its reply must be those of the objects that
    /// it was called on.
    pub(crate) fn prove(&mut self, scenarios: &[Scenario]) {
        for scenario in scenarios {
            for procedure in scenario.by {
                let what = format!("{procedure:?}: {}", scenario.name);
                let call = (scenario.call)(self, *procedure);
                let client = match scenario.caller {
                    Caller::Root => &mut self.root,
                    Caller::User => &mut self.user,
                    Caller::ReadOnly => &mut self.read_only,
                };
                let results = client.call(&call);
                assert_eq!(results.status(), scenario.gives, "{what}");
                let changes = results.changes.iter().map(|change| {
                    assert_eq!(change.before, None, "{what}: nothing was changed");
                    &change.after
                });
                // Only LINK has both, the file's attributes first.
                let told = results.attributes.iter().chain(changes);
                for (object, told) in call.handles.iter().zip(told) {
                    let now = self.root.call(&Call::getattr(object));
                    let now = now.attributes.into_iter().flatten().next();
                    assert_eq!(*told, now, "{what}: attributes after it");
                }
            }
        }
    }
}

/// A call of one of the procedures that make objects, with initial attributes.
pub(crate) fn make(procedure: Procedure, directory: &[u8], set: Set) -> Call {
    match procedure {
        Create => Call::create(directory, b"new", How::Unchecked(set)),
        Mkdir => Call::mkdir(directory, b"new", &set),
        Symlink => Call::symlink(directory, b"new", &set, b"path"),
        _ => Call::mknod(directory, b"new", Node::Socket(set)),
    }
}

/// Why an error in the RFC's list is impossible, or why one that is not in it is returned.
struct Excuse {
    error: Status,
    by: &'static [Procedure],
    why: &'static str,
}

const EXCUSED: &[Excuse] = &[
    Excuse {
        error: Status::SERVERFAULT,
        by: &Procedure::ALL,
        why: "every error of the file system has a status that says what it is",
    },
    Excuse {
        error: Status::NOTSUPP,
        by: &[
            Setattr,
            Readlink,
            Create,
            Mkdir,
            Symlink,
            Mknod,
            Rmdir,
            Rename,
            Link,
            Readdirplus,
        ],
        why: "all of NFSv3 is supported: links of both kinds, special files, exclusive creation, times",
    },
    Excuse {
        error: Status::NXIO,
        by: &[Read],
        why: "devices belong to clients; the server opens none, and reading one is NFS3ERR_INVAL",
    },
    Excuse {
        error: Status::BAD_COOKIE,
        by: &[Readdir, Readdirplus],
        why: "cookies only go up and never come again: whatever number comes, the listing goes on behind it",
    },
    Excuse {
        error: Status::ACCES,
        by: &[Readlink],
        why: "permission bits of symbolic links mean nothing, as on Linux",
    },
    Excuse {
        error: Status::NOSPC,
        by: &[Setattr, Rename, Link],
        why: "holes, names and attributes take no space, and no object is made",
    },
    Excuse {
        error: Status::DQUOT,
        by: &[Setattr, Rename, Link],
        why: "holes, names and attributes are not counted; across the border of a tree it is NFS3ERR_XDEV",
    },
    Excuse {
        error: Status::EXIST,
        by: &[Rename],
        why: "what cannot be replaced is NFS3ERR_ISDIR, NFS3ERR_NOTDIR or NFS3ERR_NOTEMPTY, which say why, as \
              POSIX and Linux have it",
    },
    Excuse {
        error: Status::INVAL,
        by: &[Link],
        why: "what could be wrong with its arguments has errors of its own",
    },
];

/// Why errors are returned that are not in the RFC's list.
const BEYOND: &[Excuse] = &[
    Excuse {
        error: Status::JUKEBOX,
        by: &Procedure::ALL,
        why: "section 2.6: any procedure that was begun and is not done in time",
    },
    Excuse {
        error: Status::IO,
        by: &[Fsinfo, Pathconf],
        why: "they give attributes, which may be damaged in the bucket",
    },
    Excuse {
        error: Status::ISDIR,
        by: &[Setattr, Read, Write, Remove, Commit],
        why: "a directory where a file is wanted: EISDIR, as on Linux",
    },
    Excuse {
        error: Status::INVAL,
        by: &[Create, Mkdir, Symlink, Mknod, Commit],
        why: "SETATTR, SYMLINK and WRITE have it for the same: times that are none, an empty path, what is \
              neither file nor directory",
    },
    Excuse {
        error: Status::FBIG,
        by: &[Setattr, Create],
        why: "WRITE has it for the same: a size beyond maxfilesize",
    },
    Excuse {
        error: Status::PERM,
        by: &[Create, Mkdir, Symlink, Mknod],
        why: "SETATTR has it for the same: what root alone may want, another owner or a device",
    },
    Excuse {
        error: Status::PERM,
        by: &[Remove, Rmdir, Rename],
        why: "a name in a sticky directory that belongs to others: EPERM, as on Linux",
    },
    Excuse {
        error: Status::PERM,
        by: &[Link],
        why: "a further name of a directory: EPERM, as POSIX has it",
    },
    Excuse {
        error: Status::MLINK,
        by: &[Mkdir],
        why: "RENAME has it for the same: a directory is a name of the one above it",
    },
];

/// All scenarios.
fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    let groups: [&[Scenario]; 8] = [
        names::HANDLES,
        names::NAMES,
        kinds::KINDS,
        rights::RIGHTS,
        resources::LIMITS,
        resources::FULL,
        resources::LINKS,
        faults::DAMAGED,
    ];
    let others: [&[Scenario]; 2] = [faults::AWAY, faults::LOG];
    groups.into_iter().chain(others).flatten()
}

/// Whether a scenario shows this error.
pub(crate) fn is_shown(procedure: Procedure, status: Status) -> bool {
    scenarios().any(|scenario| scenario.gives == status && scenario.by.contains(&procedure))
}

fn among(excuses: &[Excuse], procedure: Procedure, status: Status) -> usize {
    let fits = |excuse: &&Excuse| excuse.error == status && excuse.by.contains(&procedure);
    excuses.iter().filter(fits).count()
}

#[test]
fn every_error_of_the_rfc_is_shown_or_excused_and_every_other_has_a_reason() {
    for procedure in Procedure::ALL {
        for status in Status::ALL {
            let is_listed = procedure.errors().contains(status);
            let cell = format!("{procedure:?} {status}");
            let proofs = (
                is_shown(procedure, *status),
                among(EXCUSED, procedure, *status),
                among(BEYOND, procedure, *status),
            );
            match (is_listed, proofs) {
                (true, (true, 0, 0) | (false, 1, 0)) => {}
                (false, (true, 0, 1) | (false, 0, 0)) => {}
                _ => panic!("{cell}: listed {is_listed}; shown, excused, beyond {proofs:?}"),
            }
        }
    }
    let reasons = EXCUSED.iter().chain(BEYOND);
    assert!(reasons.into_iter().all(|excuse| excuse.why.len() > 20));
}

#[test]
fn scenarios_have_names_of_their_own() {
    let mut names: Vec<&str> = scenarios().map(|scenario| scenario.name).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}
