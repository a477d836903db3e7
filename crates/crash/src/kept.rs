//! Snapshots that are made, deleted and restored while the program is killed.
//!
//! A worker ([`Keeper`]) makes one step after the other in a directory of its own: it writes two files in turn, makes
//! and removes names. The content after a step follows from its number. Beside the steps it runs `forebay snapshot` and
//! `forebay restore`:
//!
//! ```text
//!   steps      ...  17 ---] [--- 18 ---] [--- 19 ---] [--- 20 ...
//!   snapshot             [------------------]
//!                  the last answered step: 17    the last step that began: 19     so it has 17, 18 or 19
//! ```
//!
//! After a kill, each snapshot that was acknowledged must be there with the content after one of its steps, always the
//! same; each that was deleted must be gone; and each restored copy must be what its snapshot has.

mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::{Handle, LinkError};

use crate::check::{Mismatch, Then};
use crate::history::Stamp;
use crate::observe::{Observer, View};
use crate::server::Program;
pub use worker::Keeper;

/// Bytes of each file.
const BYTES: usize = 24 << 10;

/// Directory of the steps.
const STEPS: &str = "kept";
/// Directory of the restored copies.
const COPIES: &str = "copies";

/// What is known of a snapshot or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Ordered, and not answered.
    Begun,
    /// Acknowledged before this stamp.
    Made(Stamp),
    /// Its deletion was ordered, and not answered.
    Leaving,
    /// Its deletion was acknowledged.
    Gone,
}

/// A snapshot or a restored copy, with the first and the last step that may be its newest.
#[derive(Clone, Copy, Debug)]
struct Taken {
    from: u64,
    to: u64,
    standing: Standing,
}

/// What was acknowledged.
#[derive(Debug)]
pub struct Kept {
    /// The last step that began, and the last one that was answered.
    began: u64,
    answered: u64,
    snapshots: BTreeMap<String, Taken>,
    copies: BTreeMap<String, Taken>,
    /// Trees that an interrupted restore has left.
    left: Vec<String>,
    /// Names that were given.
    named: u64,
    program: Program,
    root: Handle,
    steps: Handle,
    back: Handle,
    /// Numbers for figures: made, deleted, restored.
    pub counts: [u64; 3],
}

/// What the worker and the harness share.
pub type SharedKept = Arc<Mutex<Kept>>;

/// Locks it. After a panic it is used as the panic left it.
pub fn open(kept: &SharedKept) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The numbers of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looked {
    /// Snapshots and copies.
    pub trees: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Kept {
    /// Makes everything that must be there before the first step.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn begin(
        observer: &mut Observer,
        root: Handle,
        program: &Program,
    ) -> Result<Kept, LinkError> {
        let (steps, _) = observer.make_directory(&root, STEPS)?;
        let (back, _) = observer.make_directory(&root, COPIES)?;
        for (name, bytes) in after(0) {
            let file = observer.make_file(&steps, &name)?;
            if !bytes.is_empty() {
                observer.put(&file, &bytes)?;
            }
        }
        Ok(Kept {
            began: 0,
            answered: 0,
            snapshots: BTreeMap::new(),
            copies: BTreeMap::new(),
            left: Vec::new(),
            named: 0,
            program: program.clone(),
            root,
            steps,
            back,
            counts: [0; 3],
        })
    }

    /// The program that serves from now on.
    pub fn serves(&mut self, program: &Program) {
        self.program = program.clone();
    }

    /// Compares everything after a crash. What was acknowledged before `floor` must be there, or all of it unless the
    /// machine was lost.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn compare(
        &mut self,
        observer: &mut Observer,
        (floor, now): (Stamp, Stamp),
        then: Then,
    ) -> Result<Looked, Mismatch> {
        let mut looked = Looked::default();
        let first = if then == Then::Forget {
            0
        } else {
            self.answered
        };
        let steps = self.steps.clone();
        let live = content(observer, &steps, STEPS)?;
        let step = fitting(&live, first, self.began, STEPS)?;
        (self.began, self.answered) = (step, step);
        let may_miss = |made: Stamp| then == Then::Forget && made >= floor;

        let directory = found(observer, &self.root, ".snapshot", ".snapshot")?;
        let listed = names(observer, &directory, ".snapshot")?;
        settle(&mut self.snapshots, &listed, ".snapshot", now, may_miss)?;
        for (name, taken) in &mut self.snapshots {
            if !matches!(taken.standing, Standing::Made(_)) {
                continue;
            }
            let place = format!(".snapshot/{name}");
            let image = found(observer, &directory, name, &place)?;
            let own = found(observer, &image, STEPS, &place)?;
            let content = content(observer, &own, &place)?;
            looked.add(&content);
            let step = fitting(&content, taken.from, taken.to, &place)?;
            (taken.from, taken.to) = (step, step);
        }

        let mut listed = names(observer, &self.back, COPIES)?;
        self.left = listed
            .extract_if(.., |name| name.starts_with(".forebay-restore"))
            .collect();
        for copy in self.copies.values_mut() {
            // The bucket may not have its removal.
            if then == Then::Forget && copy.standing == Standing::Gone {
                copy.standing = Standing::Leaving;
            }
        }
        settle(&mut self.copies, &listed, COPIES, now, may_miss)?;
        for (name, copy) in &mut self.copies {
            if !matches!(copy.standing, Standing::Made(_)) {
                continue;
            }
            let place = format!("{COPIES}/{name}");
            let own = found(observer, &self.back, name, &place)?;
            let content = content(observer, &own, &place)?;
            looked.add(&content);
            let step = fitting(&content, copy.from, copy.to, &place)?;
            (copy.from, copy.to) = (step, step);
        }
        Ok(looked)
    }
}

impl Looked {
    fn add(&mut self, content: &Content) {
        self.trees += 1;
        self.bytes += content
            .values()
            .map(|bytes| bytes.len() as u64)
            .sum::<u64>();
    }
}

/// Compares a listing with what is known, which it decides.
fn settle(
    known: &mut BTreeMap<String, Taken>,
    listed: &[String],
    directory: &str,
    now: Stamp,
    may_miss: impl Fn(Stamp) -> bool,
) -> Result<(), Mismatch> {
    for name in listed {
        let place = format!("{directory}/{name}");
        let taken = known
            .get_mut(name)
            .ok_or_else(|| wrong(&place, "nobody made it"))?;
        match taken.standing {
            Standing::Gone => return Err(wrong(&place, "its deletion was acknowledged")),
            Standing::Begun => taken.standing = Standing::Made(now),
            Standing::Leaving if directory == COPIES => {}
            Standing::Leaving => taken.standing = Standing::Made(now),
            Standing::Made(_) => {}
        }
    }
    let mut lost = None;
    known.retain(|name, taken| {
        if listed.contains(name) {
            return true;
        }
        match taken.standing {
            Standing::Gone => true,
            Standing::Begun => false,
            Standing::Leaving => {
                taken.standing = Standing::Gone;
                true
            }
            Standing::Made(made) => {
                if !may_miss(made) {
                    lost = Some(name.clone());
                }
                false
            }
        }
    });
    match lost {
        Some(name) => Err(wrong(
            &format!("{directory}/{name}"),
            "it was acknowledged, and is lost",
        )),
        None => Ok(()),
    }
}

/// Files by name.
type Content = BTreeMap<String, Vec<u8>>;

/// The content of the directory after a step: file `a` has the number of the last step that wrote it, so has `b`, and
/// there is a name for every fourth step until it is removed. One name is there from the start, so that the fourth step
/// has something to remove, and each step changes the content.
fn after(step: u64) -> Content {
    let mut content = Content::new();
    let last = |rest: u64| (1..=step).rev().take(4).find(|step| step % 4 == rest);
    for (name, rest) in [("a", 1), ("b", 2)] {
        content.insert(name.to_owned(), bytes(last(rest).unwrap_or(0)));
    }
    if step < 4 {
        content.insert(name(0), Vec::new());
    }
    for made in (1..=step).rev().take(8).filter(|step| step % 4 == 3) {
        if made + 5 > step {
            content.insert(name(made), Vec::new());
        }
    }
    content
}

/// The name that a step makes; the fifth step after it removes it. The fourth step removes that of step 0.
fn name(step: u64) -> String {
    format!("n-{step}")
}

/// The bytes that a step writes.
fn bytes(step: u64) -> Vec<u8> {
    let mut number = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(BYTES);
    while bytes.len() < BYTES {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// The step after which the content is this, of those from `first` to `last`.
fn fitting(content: &Content, first: u64, last: u64, place: &str) -> Result<u64, Mismatch> {
    let written = |step: u64| content.get(if step % 4 == 1 { "a" } else { "b" });
    let is_near = |step: &u64| {
        // Most steps are ruled out without making all bytes.
        !matches!(step % 4, 1 | 2)
            || written(*step).is_some_and(|found| found.get(..8) == bytes(*step).get(..8))
    };
    let found = (first..=last)
        .rev()
        .filter(is_near)
        .find(|step| after(*step) == *content);
    found.ok_or_else(|| {
        let shown: Vec<_> = content
            .iter()
            .map(|(name, bytes)| (name, bytes.len()))
            .collect();
        wrong(
            place,
            &format!("{shown:?} is not what steps {first} to {last} have made"),
        )
    })
}

fn wrong(place: &str, why: &str) -> Mismatch {
    Mismatch::State {
        place: place.to_owned(),
        why: why.to_owned(),
    }
}

fn names(
    observer: &mut Observer,
    directory: &Handle,
    place: &str,
) -> Result<Vec<String>, Mismatch> {
    let listed = observer.list(directory, 0);
    let listed = listed.map_err(|source| Mismatch::Unreadable {
        place: place.to_owned(),
        source,
    })?;
    Ok(listed.into_iter().map(|(name, ..)| name).collect())
}

fn found(
    observer: &mut Observer,
    directory: &Handle,
    name: &str,
    place: &str,
) -> Result<Handle, Mismatch> {
    observer
        .find(directory, name)
        .map_err(|source| Mismatch::Unreadable {
            place: place.to_owned(),
            source,
        })
}

fn content(observer: &mut Observer, directory: &Handle, place: &str) -> Result<Content, Mismatch> {
    let unreadable = |source| Mismatch::Unreadable {
        place: place.to_owned(),
        source,
    };
    let tree = observer.tree(directory, "").map_err(unreadable)?;
    let mut content = Content::new();
    for (path, seen) in tree {
        let bytes = observer.read(&seen.handle, seen.attributes.size);
        let name = path.trim_start_matches('/').to_owned();
        content.insert(name, bytes.map_err(unreadable)?);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_shows_the_step() {
        for step in 0..40 {
            assert_eq!(fitting(&after(step), 0, 60, "").ok(), Some(step));
        }
        let mut mixed = after(17);
        mixed.insert("b".to_owned(), bytes(22));
        assert!(fitting(&mixed, 0, 60, "").is_err());
        assert!(fitting(&after(17), 18, 60, "").is_err());
        assert!(fitting(&after(17), 0, 16, "").is_err());
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_deleted_must_not() {
        let taken = |standing| {
            let taken = Taken {
                from: 1,
                to: 1,
                standing,
            };
            BTreeMap::from([("s".to_owned(), taken)])
        };
        let try_with = |standing, listed: &[&str], floor: Stamp| {
            let listed: Vec<_> = listed.iter().map(|name| (*name).to_owned()).collect();
            let mut known = taken(standing);
            let settled = settle(&mut known, &listed, ".snapshot", 9, |made| made >= floor);
            settled
                .is_ok()
                .then(|| known.get("s").map(|one| one.standing))
        };
        let never = Stamp::MAX;
        assert_eq!(try_with(Standing::Made(5), &[], never), None);
        assert_eq!(try_with(Standing::Made(5), &[], 5), Some(None));
        assert_eq!(try_with(Standing::Made(5), &["t"], never), None);
        assert_eq!(try_with(Standing::Gone, &["s"], never), None);
        assert_eq!(try_with(Standing::Begun, &[], never), Some(None));
        let made = Some(Some(Standing::Made(9)));
        assert_eq!(try_with(Standing::Begun, &["s"], never), made);
        assert_eq!(try_with(Standing::Leaving, &["s"], never), made);
        let gone = Some(Some(Standing::Gone));
        assert_eq!(try_with(Standing::Leaving, &[], never), gone);
    }
}
