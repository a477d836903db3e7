//! Chooses the next operation of a writer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_client::Request;

use super::operation::{MODE, SMALL, data, make, request};
use super::{Writer, open_book, sequence};
use crate::content::{DataOp, Payload};
use crate::gate::Phase;
use crate::ledger::{File, Ledger, Pending};
use crate::random::Random;
use crate::tree::{Kind, NameOp, NodeId, OWN, Place, SHARED};

/// Most files and directories of a writer.
const FILES: usize = 10;
const DIRECTORIES: usize = 3;
const LINKS: usize = 14;

/// Sizes of files: most are [small](SMALL), some have as many pieces as several blocks, and a few reach over the end of
/// a block.
const MEDIUM: u64 = 400 << 10;
const LARGE: u64 = (4 << 20) + (96 << 10);

/// Number of slots of a file that is written in parallel.
const SLOTS: u64 = 6;
const SLOT: u64 = 20_000;

impl Writer {
    /// Chooses a call that can be made now, if there is one.
    pub(super) fn choose(&mut self) -> Option<(Request, Pending)> {
        let finishing = self.shared.finishing.load(Ordering::Acquire);
        let phase = self.shared.phase();
        let random = &mut self.random;
        let ledger = &mut *open_book(&self.ledger);
        if let Some(told) = self.told
            && let Some(found) = send_again(ledger, told)
        {
            crate::gate::count(&self.shared.counts.resent, 1);
            return with_request(ledger, found);
        }
        if finishing {
            return commit(ledger, random, true).and_then(|found| with_request(ledger, found));
        }
        for _ in 0..8 {
            let roll = random.below(100);
            let longest = self.style.longest_write;
            let found = match phase {
                Phase::Unstable => write(ledger, random, longest, Some(false)),
                Phase::StableWrites => write(ledger, random, longest, Some(true)),
                Phase::Commits => commit(ledger, random, true),
                Phase::Names => name(ledger, random),
                Phase::Any if self.style.sequencer => sequence::next(ledger, &mut self.turn),
                Phase::Any => match roll {
                    0..24 => name(ledger, random),
                    24..34 => commit(ledger, random, false),
                    34..40 => resize(ledger, random),
                    40..43 => mode(ledger, random),
                    43..51 => read(ledger, random),
                    _ => write(ledger, random, longest, None),
                },
            };
            if let Some(found) = found.and_then(|found| with_request(ledger, found)) {
                return Some(found);
            }
        }
        None
    }
}

fn with_request(ledger: &mut Ledger, pending: Pending) -> Option<(Request, Pending)> {
    Some((request(ledger, &pending)?, pending))
}

/// The object from which a call in flight removes a name, perhaps its last: no other call may use it.
fn doomed(ledger: &Ledger) -> Option<NodeId> {
    let place = ledger.pending.values().find_map(|pending| match pending {
        Pending::Name {
            op: NameOp::Remove { place } | NameOp::Rename { to: place, .. },
            ..
        } => Some(place),
        _ => None,
    })?;
    ledger.tree.names.get(place).copied()
}

/// Files with a name and a handle that no such call concerns.
fn files(ledger: &Ledger) -> Vec<NodeId> {
    let doomed = doomed(ledger);
    let file = |(node, kind): (&NodeId, &Kind)| {
        let usable = *kind == Kind::File
            && Some(*node) != doomed
            && ledger.identities.contains_key(node)
            && ledger.files.contains_key(node);
        usable.then_some(*node)
    };
    ledger.tree.kinds.iter().filter_map(file).collect()
}

/// A range that a COMMIT has shown to be lost, with the bytes that the client intends now.
fn send_again(ledger: &mut Ledger, told: forebay_client::Verifier) -> Option<Pending> {
    for node in files(ledger) {
        let Some(file) = ledger.files.get_mut(&node) else {
            continue;
        };
        // A COMMIT in flight counts the ranges.
        if file.committing {
            continue;
        }
        while let Some(index) = file.lost(told) {
            let range = file.unstable.get(index)?.clone();
            let part = file.parts.get(range.part)?;
            if part.busy {
                break;
            }
            file.unstable.remove(index);
            let part = file.parts.get(range.part)?;
            let bytes = part.meant.range(range.offset, range.length);
            // The file may have been truncated since.
            if bytes.is_empty() {
                continue;
            }
            let op = DataOp::Write {
                offset: range.offset,
                length: bytes.len(),
                payload: Payload::Bytes(Arc::from(bytes)),
            };
            return Some(data(node, vec![range.part], op, false));
        }
    }
    None
}

/// WRITE into an idle part of a file, stable or not.
fn write(
    ledger: &Ledger,
    random: &mut Random,
    longest: u64,
    wanted: Option<bool>,
) -> Option<Pending> {
    let node = *random.pick(&files(ledger))?;
    let file = ledger.files.get(&node)?;
    let stable = wanted.unwrap_or_else(|| random.percent(22));
    let index = random.below(file.parts.len() as u64) as usize;
    let part = file.parts.get(index)?;
    if part.busy {
        return None;
    }
    let (start, limit) = match part.now.slot {
        // Its slots exist only when the file has its size.
        Some(_) if part.now.bytes.is_empty() => {
            return wanted.is_none().then(|| give_size(node, file)).flatten();
        }
        Some((start, length)) => (start, length),
        None => (0, file.limit),
    };
    let length = match random.below(10) {
        0..6 => 1 + random.below(4096),
        6..9 => 1 + random.below(longest.min(32 << 10)),
        _ => 1 + random.below(longest),
    };
    let length = length.min(limit);
    let mut offset = random.below(limit - length + 1);
    // Large files test the ends of blocks.
    if limit == LARGE && random.percent(80) {
        offset = (4 << 20) - random.below(96 << 10).min(offset);
        offset = offset.min(limit - length);
    }
    let op = DataOp::Write {
        offset: start + offset,
        length: length as usize,
        payload: Payload::Seed(random.number()),
    };
    Some(data(node, vec![index], op, stable))
}

/// The first operation on a file with slots: sets its size.
fn give_size(node: NodeId, file: &File) -> Option<Pending> {
    if file.parts.iter().any(|part| part.busy) {
        return None;
    }
    let parts = (0..file.parts.len()).collect();
    Some(data(node, parts, DataOp::Resize(file.limit), true))
}

fn resize(ledger: &Ledger, random: &mut Random) -> Option<Pending> {
    let node = *random.pick(&files(ledger))?;
    let file = ledger.files.get(&node)?;
    let part = file.parts.first().filter(|part| !part.busy)?;
    if file.is_slotted() {
        return None;
    }
    let size = match random.below(4) {
        0 => random.below(file.limit),
        1 => part.now.bytes.len() as u64 + random.below(9000),
        _ => random.below(part.now.bytes.len() as u64 + 1),
    };
    let op = DataOp::Resize(size.min(file.limit));
    Some(data(node, vec![0], op, true))
}

fn mode(ledger: &Ledger, random: &mut Random) -> Option<Pending> {
    let node = *random.pick(&files(ledger))?;
    let file = ledger.files.get(&node)?;
    if file.is_slotted() || file.parts.first()?.busy {
        return None;
    }
    let op = DataOp::Mode(0o600 | random.below(0o100) as u32);
    Some(data(node, vec![0], op, true))
}

fn read(ledger: &Ledger, random: &mut Random) -> Option<Pending> {
    let node = *random.pick(&files(ledger))?;
    let file = ledger.files.get(&node)?;
    let index = random.below(file.parts.len() as u64) as usize;
    let part = file.parts.get(index).filter(|part| !part.busy)?;
    let within = random.below(part.now.bytes.len() as u64);
    let offset = part.now.start() + within;
    let expected = part.now.range(offset, 1 + random.below(64 << 10) as usize);
    if expected.is_empty() {
        return None;
    }
    Some(Pending::Read {
        node,
        part: index,
        offset,
        expected: expected.to_vec(),
    })
}

/// COMMIT of a file with uncommitted writes, or of any file.
fn commit(ledger: &Ledger, random: &mut Random, needed: bool) -> Option<Pending> {
    let mut files = files(ledger);
    files.retain(|node| {
        let file = ledger.files.get(node);
        file.is_some_and(|file| !(file.committing || needed && file.unstable.is_empty()))
    });
    let node = *random.pick(&files)?;
    let file = ledger.files.get(&node)?;
    Some(Pending::Commit {
        node,
        covers: file
            .parts
            .iter()
            .map(|part| part.history.answered())
            .collect(),
        ranges: file.unstable.len(),
    })
}

/// An operation on names.
fn name(ledger: &mut Ledger, random: &mut Random) -> Option<Pending> {
    if ledger.names_busy {
        return None;
    }
    let idle = |ledger: &Ledger, node: &NodeId| !ledger.files.get(node).is_some_and(File::is_busy);
    let tree = &ledger.tree;
    let of_kind = |wanted: fn(&Kind) -> bool| -> Vec<NodeId> {
        let kinds = tree.kinds.iter().filter(|(_, kind)| wanted(kind));
        let known = kinds.filter(|(node, _)| ledger.identities.contains_key(node));
        known.map(|(node, _)| *node).collect()
    };
    let files = of_kind(|kind| *kind == Kind::File);
    let mut directories = of_kind(|kind| *kind == Kind::Directory);
    let names: Vec<_> = tree
        .names
        .iter()
        .map(|(place, node)| (place.clone(), *node))
        .collect();
    let count = directories.len();
    // The shared directory and the writer's own are chosen more often than those below.
    directories.extend([OWN, SHARED, SHARED]);
    let directory = *random.pick(&directories)?;
    let prefix = match directory {
        SHARED => format!("w{}-", ledger.writer),
        _ => String::new(),
    };
    let fresh = |node: NodeId| Place {
        directory,
        name: format!("{prefix}n{}", node.0),
    };
    let op = match random.below(12) {
        0..4 if files.len() < FILES => {
            let node = ledger.new_node();
            let file = match random.below(10) {
                0..6 => File::new(0, 0, SMALL, MODE),
                6..8 => File::new(0, 0, MEDIUM, MODE),
                8 => File::new(0, 0, LARGE, MODE),
                _ => File::new(SLOTS, SLOT, SLOTS * SLOT, MODE),
            };
            ledger.files.insert(node, file);
            make(fresh(node), node, Kind::File)
        }
        4 if count < DIRECTORIES + 2 => {
            let node = ledger.new_node();
            make(fresh(node), node, Kind::Directory)
        }
        5 if names.len() < FILES + LINKS => {
            let node = ledger.new_node();
            let target = format!("../target/of/{}", random.number());
            make(fresh(node), node, Kind::Symlink(target))
        }
        6 if names.len() < FILES + LINKS => {
            let node = *random.pick(&files)?;
            let name = ledger.new_node();
            NameOp::Link {
                place: fresh(name),
                node,
            }
        }
        7 | 8 => {
            let (from, moved) = random.pick(&names)?.clone();
            let over = random.pick(&names).filter(|_| random.clone().percent(30));
            let to = match over {
                // A file takes the place of another one.
                Some((place, replaced))
                    if *replaced != moved
                        && files.contains(&moved)
                        && files.contains(replaced)
                        && idle(ledger, replaced) =>
                {
                    place.clone()
                }
                _ => fresh(ledger.new_node()),
            };
            // A directory is not moved, so that it cannot get below itself.
            let is_directory = ledger.tree.kinds.get(&moved) == Some(&Kind::Directory);
            let to = match is_directory {
                true => Place {
                    directory: from.directory,
                    name: match from.directory {
                        SHARED => format!("w{}-{}", ledger.writer, to.name.replace('-', "_")),
                        _ => to.name,
                    },
                },
                false => to,
            };
            NameOp::Rename { from, to }
        }
        _ => {
            let (place, node) = random.pick(&names)?.clone();
            let is_directory = ledger.tree.kinds.get(&node) == Some(&Kind::Directory);
            if is_directory && !ledger.tree.is_empty(node) || !idle(ledger, &node) {
                return None;
            }
            NameOp::Remove { place }
        }
    };
    Some(Pending::Name { op, done: None })
}
