//! Finds directories that lie below themselves, which no path from the root reaches.
//!
//! A directory usually has a larger number than its parent, because the parent was made first; only moved directories
//! may have a smaller one. Going up from child to parent in a loop, the numbers cannot always fall: so each loop has a
//! directory whose parent has no smaller number, a *climber*. It is enough to go up from each climber, and to stop at
//! a directory that was visited before.
//!
//! ```text
//!   next() --> Ask(directory) --> answer(its parent) --+
//!     ^                                                |
//!     +------------------------------------------------+     until Done
//! ```

use std::collections::{HashMap, HashSet};

use forebay_types::Inode;

use crate::finding::{Finding, Sink};

/// Most directories that are remembered as visited.
const PASSED_LIMIT: usize = 1 << 20;

/// The next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read the parent of this directory.
    Ask(Inode),
    /// Nothing.
    Done,
}

/// Goes up from climbers.
pub(crate) struct Loops {
    climbers: Vec<Inode>,
    /// Directories that this walk has visited, and when.
    walk: HashMap<Inode, u64>,
    at: Option<Inode>,
    /// Directories that earlier walks have visited, whatever the outcome.
    passed: HashSet<Inode>,
}

impl Loops {
    pub(crate) fn new(climbers: Vec<Inode>) -> Loops {
        Loops {
            climbers,
            walk: HashMap::new(),
            at: None,
            passed: HashSet::new(),
        }
    }

    /// The next action of the caller.
    pub(crate) fn next(&mut self) -> Step {
        while self.at.is_none() {
            self.at = match self.climbers.pop() {
                Some(climber) if self.passed.contains(&climber) => continue,
                Some(climber) => Some(climber),
                None => return Step::Done,
            };
        }
        self.at.map_or(Step::Done, Step::Ask)
    }

    /// Takes the parent of the directory that was asked for; `None` if that is no directory, which other judges report.
    pub(crate) fn answer(&mut self, parent: Option<Inode>, sink: &mut dyn Sink) {
        let Some(at) = self.at.take() else { return };
        let number = self.walk.len() as u64;
        self.walk.insert(at, number);
        let Some(parent) = parent.filter(|parent| *parent != Inode::ROOT) else {
            return self.end();
        };
        if let Some(first) = self.walk.get(&parent) {
            sink.found(Finding::Loop {
                inode: parent,
                directories: number + 1 - first,
            });
            self.end();
        } else if self.passed.contains(&parent) {
            self.end();
        } else {
            self.at = Some(parent);
        }
    }

    fn end(&mut self) {
        if self.passed.len() > PASSED_LIMIT {
            self.passed.clear();
        }
        self.passed
            .extend(self.walk.drain().map(|(inode, _)| inode));
    }
}
