//! Operations whose objects are not chosen yet.

mod recovered;

use std::collections::BTreeSet;

use forebay_vfs::{CreateMode, Device, FileKind, SetAttributes, SetTime, Stability, Timestamp};

use crate::model::{HIGH, LOW, State};
use crate::operation::{NewObject, Operation};
use crate::random::Random;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each name says it")]
pub enum What {
    CreateUnchecked,
    CreateGuarded,
    CreateExclusive,
    Mkdir,
    Symlink,
    Mknod,
    Link,
    Remove,
    Rmdir,
    Rename,
    Truncate,
    Chmod,
    SetTimes,
    WriteUnstable,
    WriteDataSync,
    WriteFileSync,
    Commit,
    Read,
    List,
    Lookup,
    Flush,
    Snapshot,
    DeleteSnapshot,
    Restore,
    Undelete,
}

/// Weight of each kind.
const MIX: [(What, u64); 24] = [
    (What::CreateUnchecked, 6),
    (What::CreateGuarded, 4),
    (What::CreateExclusive, 4),
    (What::Mkdir, 4),
    (What::Symlink, 2),
    (What::Mknod, 2),
    (What::Link, 4),
    (What::Remove, 6),
    (What::Rmdir, 2),
    (What::Rename, 8),
    (What::Truncate, 7),
    (What::Chmod, 3),
    (What::SetTimes, 2),
    (What::WriteUnstable, 22),
    (What::WriteDataSync, 4),
    (What::WriteFileSync, 4),
    (What::Commit, 8),
    (What::Read, 6),
    (What::List, 2),
    (What::Lookup, 2),
    (What::Snapshot, 3),
    (What::DeleteSnapshot, 1),
    (What::Restore, 5),
    (What::Undelete, 3),
];

/// Names that clients use.
const NAMES: [&[u8]; 7] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"file",
    b"\xff long \x01 name",
];

/// An operation that is resolved when it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its kind.
    pub what: What,
    /// Random numbers that choose its objects and arguments.
    pub picks: [u32; 5],
}

impl Draft {
    pub(super) fn of(random: &mut Random) -> Draft {
        let total = MIX.iter().map(|(_, weight)| weight).sum();
        let mut at = random.below(total);
        let mut what = What::Read;
        for (own, weight) in MIX {
            if at < weight {
                what = own;
                break;
            }
            at -= weight;
        }
        Draft {
            what,
            picks: [(); 5].map(|()| random.number() as u32),
        }
    }

    /// An operation on any of the newer objects.
    pub(super) fn in_burst(what: What, random: &mut Random) -> Draft {
        let mut picks = [(); 5].map(|()| random.number() as u32);
        // See `object`: one of twelve.
        picks[0] = (picks[0] & !31) + 12 + picks[0] % 20;
        Draft { what, picks }
    }

    /// A READ of one of the newer files: of its first bytes, or of those about the border of its first block.
    pub(super) fn read_of(number: u32) -> Draft {
        // See `object` and `offset`.
        let at = if number.is_multiple_of(3) { 0 } else { 4 };
        Draft {
            what: What::Read,
            picks: [number * 32 + 12, at, 5999, 0, 0],
        }
    }

    /// A WRITE, mostly unstable, of some KiB.
    pub(super) fn large_write(random: &mut Random) -> Draft {
        let what = match random.below(10) {
            0 => What::WriteFileSync,
            1 => What::WriteDataSync,
            _ => What::WriteUnstable,
        };
        let mut draft = Draft::in_burst(what, random);
        // See `write`: 4096 bytes, or up to 2500.
        draft.picks[2] = [5, 5, 12][random.below(3) as usize];
        draft
    }

    /// The operation in a file system with this state. It leaves `hidden` objects alone. `serial` makes the
    /// written bytes unlike all others.
    pub(crate) fn resolve(&self, state: &State, hidden: Hidden<'_>, serial: u64) -> Operation {
        let [first, second, third, fourth, fifth] = self.picks;
        let at = |kind| object(state, hidden, kind, first);
        let directory = at(FileKind::Directory);
        let file = at(FileKind::Regular);
        let free = || name(second);
        let taken = |directory, pick| existing(state, hidden, directory, pick);
        let mode = fourth.is_multiple_of(3).then_some(fourth >> 8 & 0o777);
        match self.what {
            What::CreateUnchecked => Operation::Create {
                directory,
                name: free(),
                mode: CreateMode::Unchecked(SetAttributes {
                    size: third.is_multiple_of(3).then(|| size(fifth)),
                    mode,
                    ..SetAttributes::default()
                }),
            },
            What::CreateGuarded => Operation::Create {
                directory,
                name: free(),
                mode: CreateMode::Guarded(SetAttributes {
                    mode,
                    ..SetAttributes::default()
                }),
            },
            What::CreateExclusive => Operation::Create {
                directory,
                name: free(),
                mode: CreateMode::Exclusive([(third % 3) as u8; 8]),
            },
            What::Mkdir => Operation::Make {
                directory,
                name: free(),
                object: NewObject::Directory,
                mode,
            },
            What::Symlink => Operation::Make {
                directory,
                name: free(),
                object: NewObject::Symlink(vec![b't'; 1 + third as usize % 60]),
                mode: None,
            },
            What::Mknod => {
                let kind = match third % 4 {
                    0 => FileKind::Fifo,
                    1 => FileKind::Socket,
                    2 => FileKind::BlockDevice,
                    _ => FileKind::CharDevice,
                };
                let device = match kind {
                    FileKind::BlockDevice | FileKind::CharDevice => Device {
                        major: fifth & 0xff,
                        minor: fifth >> 8,
                    },
                    _ => Device::default(),
                };
                Operation::Make {
                    directory,
                    name: free(),
                    object: NewObject::Special(kind, device),
                    mode,
                }
            }
            What::Link => Operation::Link {
                inode: object(state, hidden, FileKind::Regular, third),
                directory,
                name: free(),
            },
            What::Remove => Operation::Remove {
                directory,
                name: taken(directory, second),
            },
            What::Rmdir => Operation::Rmdir {
                directory,
                name: taken(directory, second),
            },
            What::Rename => {
                let to = if fourth.is_multiple_of(2) {
                    directory
                } else {
                    object(state, hidden, FileKind::Directory, fourth / 2)
                };
                Operation::Rename {
                    from: directory,
                    old: taken(directory, second),
                    to,
                    new: if fifth.is_multiple_of(2) {
                        name(third)
                    } else {
                        taken(to, third)
                    },
                }
            }
            What::Truncate => Operation::SetAttributes {
                inode: file,
                set: SetAttributes {
                    size: Some(if second.is_multiple_of(3) {
                        0
                    } else {
                        size(third)
                    }),
                    ..SetAttributes::default()
                },
                guard: guard(state, file, fourth),
            },
            What::Chmod => {
                let inode = if second.is_multiple_of(4) {
                    directory
                } else {
                    file
                };
                Operation::SetAttributes {
                    inode,
                    set: SetAttributes {
                        mode: Some(third & 0o777),
                        uid: fourth.is_multiple_of(4).then_some(fifth % 10),
                        ..SetAttributes::default()
                    },
                    guard: None,
                }
            }
            What::SetTimes => Operation::SetAttributes {
                inode: file,
                set: SetAttributes {
                    atime: SetTime::To(Timestamp {
                        seconds: i64::from(third),
                        nanos: fourth % 1_000_000_000,
                    }),
                    mtime: SetTime::Now,
                    ..SetAttributes::default()
                },
                guard: guard(state, file, fifth),
            },
            What::WriteUnstable => write(file, self.picks, serial, Stability::Unstable),
            What::WriteDataSync => write(file, self.picks, serial, Stability::DataSync),
            What::WriteFileSync => write(file, self.picks, serial, Stability::FileSync),
            What::Commit => Operation::Commit { inode: file },
            What::Read => Operation::Read {
                inode: file,
                offset: offset(second),
                count: 1 + third % 6000,
            },
            What::List => Operation::List {
                directory,
                cookie: u64::from(second % 8),
                max: 1 + third as usize % 9,
            },
            What::Lookup => Operation::Lookup {
                directory,
                name: taken(directory, second),
            },
            What::Flush => Operation::Flush,
            What::Snapshot => Operation::Snapshot {
                name: format!("s{serial}"),
            },
            What::DeleteSnapshot => {
                let snapshots = state.snapshots();
                let pick = first as usize % snapshots.len().max(1);
                Operation::DeleteSnapshot {
                    name: snapshots.keys().nth(pick).cloned().unwrap_or_default(),
                }
            }
            What::Restore if state.snapshots().is_empty() && !first.is_multiple_of(8) => {
                Operation::Snapshot {
                    name: format!("s{serial}"),
                }
            }
            What::Restore => self.restore(state, directory),
            What::Undelete if state.trash().next().is_none() && !first.is_multiple_of(8) => {
                Operation::Remove {
                    directory,
                    name: taken(directory, second),
                }
            }
            What::Undelete => self.undelete(state, directory),
        }
    }
}

/// Objects that clients do not find in a state.
#[derive(Clone, Copy)]
pub(crate) struct Hidden<'a> {
    /// Deleted ones: their numbers are used all the same.
    pub(crate) gone: &'a [u64],
    /// Those of a restore that runs.
    pub(crate) staged: &'a BTreeSet<u64>,
}

/// Usually an object of this kind, sometimes another one, sometimes a deleted one.
fn object(state: &State, hidden: Hidden<'_>, kind: FileKind, pick: u32) -> u64 {
    let Hidden { gone, staged } = hidden;
    let odd = pick % 32;
    let pick = pick as usize / 32;
    if odd == 0 && !gone.is_empty() {
        return gone[pick % gone.len()];
    }
    let mut fitting = state.of_kind(kind);
    if odd == 1 || fitting.is_empty() {
        fitting = state.objects().map(|(inode, _)| inode).collect();
    }
    fitting.retain(|inode| !staged.contains(inode));
    // Newer objects are chosen more often.
    let last = fitting.len().saturating_sub(if odd < 12 { 2 } else { 12 });
    let fitting = &fitting[last..];
    fitting
        .get(pick % fitting.len().max(1))
        .copied()
        .unwrap_or(1)
}

fn name(pick: u32) -> Vec<u8> {
    NAMES[pick as usize % NAMES.len()].to_vec()
}

/// Usually an existing name.
fn existing(state: &State, hidden: Hidden<'_>, directory: u64, pick: u32) -> Vec<u8> {
    let names = state.names_in(directory);
    let names: Vec<&[u8]> = names
        .filter(|(_, inode)| !hidden.staged.contains(inode))
        .map(|(name, _)| name)
        .collect();
    match names.get(pick as usize / 12 % names.len().max(1)) {
        Some(name) if !pick.is_multiple_of(12) => name.to_vec(),
        _ => name(pick / 12),
    }
}

/// A size that a file may get: in a window, at its edges, or in the hole between them.
fn size(pick: u32) -> u64 {
    match pick % 8 {
        0 => LOW.end + u64::from(pick) % (HIGH.start - LOW.end),
        1 | 2 => HIGH.start + u64::from(pick / 8) % (HIGH.end - HIGH.start),
        3 => u64::from(pick / 8 % 3) * 4096,
        _ => u64::from(pick / 8) % LOW.end,
    }
}

/// Offset of a READ or WRITE.
fn offset(pick: u32) -> u64 {
    match pick % 8 {
        0 | 1 => HIGH.start + u64::from(pick / 8) % (HIGH.end - HIGH.start - 1),
        2 => u64::from(pick / 8 % 2) * 4096,
        3 => u64::from(pick / 8 % 20) * 512,
        4 => 0,
        _ => u64::from(pick / 8) % (LOW.end - 1),
    }
}

/// Length in bytes of writes whose content is one of a few.
const ALIKE: u64 = 1300;

fn write(inode: u64, picks: [u32; 5], serial: u64, stability: Stability) -> Operation {
    let offset = offset(picks[1]);
    let window = if offset < LOW.end { LOW } else { HIGH };
    let wanted = match picks[2] % 16 {
        0 => 0,
        1..=4 => 1 + u64::from(picks[3]) % 30,
        5 => 4096,
        6..=8 => 512,
        9..=11 => ALIKE,
        _ => 1 + u64::from(picks[3]) % 2500,
    };
    let mut data = vec![0; wanted.min(window.end - offset) as usize];
    // Some content comes again and again, in all files and places.
    let content = match wanted {
        ALIKE => serial % 3,
        _ => serial,
    };
    Random::new(content).fill(&mut data);
    Operation::Write {
        inode,
        offset,
        data,
        stability,
    }
}

/// Sometimes a guard on the object's ctime, right or wrong.
fn guard(state: &State, inode: u64, pick: u32) -> Option<Timestamp> {
    let ctime = state.get(inode)?.ctime;
    match pick % 8 {
        0 => Some(ctime),
        1 => Some(Timestamp {
            nanos: ctime.nanos ^ 1,
            ..ctime
        }),
        _ => None,
    }
}
