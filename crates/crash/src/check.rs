//! Compares the state found after a crash with the histories of all writers.

use std::collections::{BTreeMap, BTreeSet};

use forebay_client::{FileKind, LinkError, Time};

use crate::content::Content;
use crate::history::{History, Interval, Stamp, meet};
use crate::ledger::{Identity, Ledger};
use crate::observe::{Seen, View};
use crate::tree::{Kind, NodeId, OWN, Place, SHARED, Tree};

/// The consequence of the crash for the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing was lost: unanswered calls are repeated.
    GoOn,
    /// Unstable writes may be lost, and unanswered calls with them; clients send again what they have not committed.
    SendAgain,
    /// The machine was lost: clients start over from the state found.
    Forget,
}

/// The extent of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Bytes of files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Names.
    pub names: u64,
    /// The latest moment whose state fits everything found.
    pub cut: Stamp,
}

/// Why the state found is impossible.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// It cannot even be read.
    #[error("{place}: {source}")]
    Unreadable {
        /// The object.
        place: String,
        /// The error.
        source: LinkError,
    },
    /// An object is in no state that it may be in.
    #[error("{place}: {why}")]
    State {
        /// The object.
        place: String,
        /// The error.
        why: String,
    },
    /// Each object is in a state of its own past, but these states are not of one moment, or of one too early.
    #[error("{0}")]
    Cut(String),
}

/// An object, its possible states, and the moments at which it had them.
struct Verdict {
    place: String,
    writer: usize,
    object: Object,
    states: Vec<usize>,
    moments: Vec<Interval>,
    last: usize,
}

#[derive(Clone, Copy)]
enum Object {
    Names,
    Part(NodeId, usize),
}

/// Compares everything, and makes the state found the base of all histories. Every step that was answered before
/// `floor` must be in it.
///
/// # Errors
/// The first mismatch.
pub fn compare(
    observer: &mut dyn View,
    ledgers: &mut [&mut Ledger],
    floor: Stamp,
    then: Then,
) -> Result<Compared, Mismatch> {
    let mut compared = Compared::default();
    let mut verdicts = Vec::new();
    if then == Then::Forget {
        // Stable data were on the disk, which is lost.
        ledgers
            .iter_mut()
            .for_each(|ledger| ledger.nothing_stable());
    }
    let shared = ledgers
        .first()
        .and_then(|ledger| ledger.identities.get(&SHARED));
    let shared = match shared {
        Some(identity) => look(observer, &identity.clone(), "shared")?,
        None => BTreeMap::new(),
    };
    strangers(&shared, ledgers.len())?;
    let mut found = Vec::new();
    for ledger in ledgers.iter_mut() {
        found.push(compare_writer(
            observer,
            ledger,
            &shared,
            &mut verdicts,
            &mut compared,
        )?);
    }
    let cut = common_moment(&verdicts, floor)?;
    compared.cut = cut.1;

    let mut names = vec![0; ledgers.len()];
    let mut parts = vec![BTreeMap::new(); ledgers.len()];
    for verdict in &verdicts {
        let in_cut =
            |(_, interval): &(&usize, &Interval)| meet([&[**interval][..], &[cut][..]]).is_ok();
        let mut states = verdict.states.iter().zip(&verdict.moments);
        let count = states.rfind(in_cut).map_or(0, |(count, _)| *count);
        match verdict.object {
            Object::Names => {
                if let Some(names) = names.get_mut(verdict.writer) {
                    *names = count;
                }
            }
            Object::Part(node, part) => {
                if let Some(parts) = parts.get_mut(verdict.writer) {
                    parts.insert((node, part), count);
                }
            }
        }
    }
    let (keep, resend) = (then != Then::Forget, then == Then::SendAgain);
    let settled = ledgers.iter_mut().zip(names).zip(parts).zip(found);
    for (((ledger, names), parts), found) in settled {
        ledger.settle(names, &parts, keep, resend);
        ledger.cookies = found.cookies;
        for (node, identity) in found.identities {
            ledger.identities.entry(node).or_insert(identity);
        }
    }
    Ok(compared)
}

/// The latest interval of moments that fits all objects.
fn common_moment(verdicts: &[Verdict], floor: Stamp) -> Result<Interval, Mismatch> {
    let limit = [Interval(floor, Stamp::MAX)];
    let unions =
        std::iter::once(&limit[..]).chain(verdicts.iter().map(|verdict| &verdict.moments[..]));
    match meet(unions) {
        Ok(moments) => Ok(moments
            .into_iter()
            .max_by_key(|moment| moment.1)
            .unwrap_or(Interval::ALL)),
        Err(index) => {
            let describe = |verdict: &Verdict| {
                format!(
                    "{} is as it was after step {:?} of {}, that is at {:?}",
                    verdict.place, verdict.states, verdict.last, verdict.moments
                )
            };
            let culprit = index.checked_sub(1).and_then(|index| verdicts.get(index));
            let mut text = format!(
                "the state found is not that of one moment, or it is older than {floor}, up to which all changes are promised: {}",
                culprit.map(describe).unwrap_or_default()
            );
            // Find a single object that conflicts with this one.
            for other in verdicts.iter().take(index) {
                let pair = culprit.map(|culprit| [&culprit.moments[..], &other.moments[..]]);
                if pair.is_some_and(|pair| meet(pair).is_err()) {
                    text.push_str("; while ");
                    text.push_str(&describe(other));
                    break;
                }
            }
            Err(Mismatch::Cut(text))
        }
    }
}

/// The result of the comparison for one writer's objects.
struct Learned {
    identities: BTreeMap<NodeId, Identity>,
    cookies: BTreeMap<Place, u64>,
}

fn look(
    observer: &mut dyn View,
    directory: &Identity,
    path: &str,
) -> Result<BTreeMap<String, Seen>, Mismatch> {
    observer
        .tree(&directory.handle, path)
        .map_err(|source| Mismatch::Unreadable {
            place: path.to_owned(),
            source,
        })
}

/// Checks that the shared directory has no names except those of the writers.
fn strangers(shared: &BTreeMap<String, Seen>, writers: usize) -> Result<(), Mismatch> {
    let known: Vec<_> = (0..writers)
        .map(|writer| format!("shared/w{writer}-"))
        .collect();
    match shared
        .keys()
        .find(|path| !known.iter().any(|start| path.starts_with(start)))
    {
        Some(path) => Err(state(path.clone(), "no writer created it".to_owned())),
        None => Ok(()),
    }
}

fn state(place: String, why: String) -> Mismatch {
    Mismatch::State { place, why }
}

fn compare_writer(
    observer: &mut dyn View,
    ledger: &Ledger,
    shared: &BTreeMap<String, Seen>,
    verdicts: &mut Vec<Verdict>,
    compared: &mut Compared,
) -> Result<Learned, Mismatch> {
    let writer = ledger.writer;
    let place = |path: &str| format!("writer {writer}: {path}");
    let own = ledger.identities.get(&OWN).cloned();
    let own = own.ok_or_else(|| state(place("own"), "no handle".to_owned()))?;
    let mut seen = look(observer, &own, "own")?;
    let mine = format!("shared/w{writer}-");
    let in_shared = shared.iter().filter(|(path, _)| path.starts_with(&mine));
    seen.extend(in_shared.map(|(path, seen)| (path.clone(), seen.clone())));
    compared.names += seen.len() as u64;

    let mut nearest: Option<(usize, String)> = None;
    let states = ledger.names.matches(|tree, _| {
        let wrong = differences(tree, &seen, ledger);
        let nearer = nearest
            .as_ref()
            .is_none_or(|(least, _)| wrong.len() <= *least);
        if nearer {
            nearest = Some((
                wrong.len(),
                wrong.iter().take(4).cloned().collect::<Vec<_>>().join("; "),
            ));
        }
        wrong.is_empty()
    });
    let Some(count) = states.last().copied() else {
        let (wrong, text) = nearest.unwrap_or_default();
        let why = format!(
            "in none of the states that are allowed after {} of {} steps; {wrong} differences from the nearest: {text}",
            ledger.names.stable,
            ledger.names.steps.len()
        );
        return Err(state(place("names"), why));
    };
    let tree = ledger.names.state(count);
    verdicts.push(verdict(
        place("names"),
        writer,
        Object::Names,
        &ledger.names,
        states,
    ));

    let paths = tree.paths();
    cookies_stay(ledger, &paths, &seen)?;
    let mut learned = Learned {
        identities: BTreeMap::new(),
        cookies: BTreeMap::new(),
    };
    let mut read = BTreeSet::new();
    for (path, (name, node)) in &paths {
        let Some(found) = seen.get(path) else {
            continue;
        };
        learned.cookies.insert(name.clone(), found.cookie);
        let identity = Identity {
            handle: found.handle.clone(),
            fileid: found.attributes.fileid,
        };
        learned.identities.insert(*node, identity);
        // A file with several names is read once.
        if tree.kinds.get(node) == Some(&Kind::File) && read.insert(*node) {
            let path = place(path);
            compare_file(observer, ledger, &path, *node, found, verdicts, compared)?;
        }
    }
    Ok(learned)
}

/// Differences between the names found and a state of the names.
fn differences(tree: &Tree, seen: &BTreeMap<String, Seen>, ledger: &Ledger) -> Vec<String> {
    let mut wrong = Vec::new();
    let paths = tree.paths();
    for (path, (_, node)) in &paths {
        let Some(found) = seen.get(path) else {
            wrong.push(format!("{path} is missing"));
            continue;
        };
        let attributes = &found.attributes;
        let kind = match (attributes.kind, &found.target) {
            (FileKind::Regular, _) => Some(Kind::File),
            (FileKind::Directory, _) => Some(Kind::Directory),
            (FileKind::Symlink, Some(target)) => Some(Kind::Symlink(target.clone())),
            _ => None,
        };
        if kind.as_ref() != tree.kinds.get(node) {
            wrong.push(format!(
                "{path} is {kind:?} instead of {:?}",
                tree.kinds.get(node)
            ));
        }
        let nlink = tree.nlink(*node);
        if attributes.nlink as usize != nlink {
            wrong.push(format!(
                "{path} has {} links instead of {nlink}",
                attributes.nlink
            ));
        }
        if let Some(known) = ledger.identities.get(node) {
            if known.fileid != attributes.fileid {
                wrong.push(format!(
                    "{path} is inode {} instead of {}",
                    attributes.fileid, known.fileid
                ));
            } else if known.handle != found.handle {
                wrong.push(format!("{path} has another file handle than before"));
            }
        }
    }
    for path in seen.keys().filter(|path| !paths.contains_key(*path)) {
        wrong.push(format!("{path} should not be there"));
    }
    wrong
}

/// Checks that a name keeps its cookie unless an operation changed it.
fn cookies_stay(
    ledger: &Ledger,
    paths: &BTreeMap<String, (Place, NodeId)>,
    seen: &BTreeMap<String, Seen>,
) -> Result<(), Mismatch> {
    let touched: BTreeSet<_> = ledger
        .names
        .steps
        .iter()
        .flat_map(|step| step.op.places())
        .collect();
    for (path, (name, _)) in paths {
        let before = ledger.cookies.get(name).filter(|_| !touched.contains(name));
        if let (Some(before), Some(found)) = (before, seen.get(path))
            && *before != found.cookie
        {
            let why = format!("cookie {} instead of {before}", found.cookie);
            return Err(state(format!("writer {}: {path}", ledger.writer), why));
        }
    }
    Ok(())
}

fn compare_file(
    observer: &mut dyn View,
    ledger: &Ledger,
    path: &str,
    node: NodeId,
    found: &Seen,
    verdicts: &mut Vec<Verdict>,
    compared: &mut Compared,
) -> Result<(), Mismatch> {
    let Some(file) = ledger.files.get(&node) else {
        return Err(state(
            path.to_owned(),
            "the harness knows no such file".to_owned(),
        ));
    };
    let attributes = &found.attributes;
    let bytes = observer
        .read(&found.handle, attributes.size)
        .map_err(|source| Mismatch::Unreadable {
            place: path.to_owned(),
            source,
        })?;
    compared.files += 1;
    compared.bytes += bytes.len() as u64;
    if bytes.len() as u64 != attributes.size {
        let why = format!("{} bytes can be read of {}", bytes.len(), attributes.size);
        return Err(state(path.to_owned(), why));
    }
    for (index, part) in file.parts.iter().enumerate() {
        let place = match part.now.slot {
            Some((start, _)) => format!("{path}, slot at {start}"),
            None => path.to_owned(),
        };
        let here = part.now.part_of(&bytes);
        let states = part.history.matches(|content, mtime| {
            content.bytes == here && fits(content, mtime, attributes.mode, attributes.mtime)
        });
        if states.is_empty() {
            let why = format!(
                "in none of the states that are allowed after {} of {} steps: {}",
                part.history.stable,
                part.history.steps.len(),
                distance(&part.history, here, attributes.mode, attributes.mtime)
            );
            return Err(state(place, why));
        }
        let object = Object::Part(node, index);
        verdicts.push(verdict(place, ledger.writer, object, &part.history, states));
    }
    Ok(())
}

/// Whether permission bits and mtime fit, for a whole file.
fn fits(content: &Content, known: Option<Time>, mode: u32, mtime: Time) -> bool {
    content.slot.is_some() || content.mode == mode && known.is_none_or(|known| known == mtime)
}

/// How the nearest state differs from the state found.
fn distance(history: &History<Content>, here: &[u8], mode: u32, mtime: Time) -> String {
    let mut nearest = (usize::MAX, String::new());
    let mut count = 0;
    let steps = history.steps.len();
    // All states, including those before the stable ones, which show what was lost.
    let all = History {
        stable: 0,
        ..history.clone()
    };
    all.matches(|content, known| {
        let common = content.bytes.len().min(here.len());
        let differing = content.bytes.iter().zip(here).filter(|(a, b)| a != b).count();
        let total = differing + content.bytes.len().max(here.len()) - common;
        if total <= nearest.0 {
            let first = content.bytes.iter().zip(here).position(|(a, b)| a != b);
            nearest = (
                total,
                format!(
                    "nearest to it after step {count} of {steps}, with {total} bytes that differ (first {first:?}), length {} instead of {}, mode {mode:o} instead of {:o}, mtime {mtime:?} instead of {known:?}",
                    here.len(),
                    content.bytes.len(),
                    content.mode
                ),
            );
        }
        count += 1;
        false
    });
    nearest.1
}

fn verdict<S: crate::history::State>(
    place: String,
    writer: usize,
    object: Object,
    history: &History<S>,
    states: Vec<usize>,
) -> Verdict {
    Verdict {
        place,
        writer,
        object,
        moments: states
            .iter()
            .map(|count| history.interval(*count))
            .collect(),
        last: history.steps.len(),
        states,
    }
}
