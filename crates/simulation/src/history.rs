//! The states of the file system by log position, each at the position where it begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::State;

/// A clone of the volume, which is in the bucket.
#[derive(Clone)]
pub(crate) struct Cloned {
    /// The snapshot that it needs.
    pub(crate) snapshot: String,
    /// Its own history; it is published.
    pub(crate) history: History,
}

/// Every state since the volume was formatted to which a recovery may still lead.
#[derive(Clone)]
pub(crate) struct History {
    /// Position after the record that led to the state, and the state; ascending.
    states: Vec<(u64, Arc<State>)>,
    /// Inodes of deleted objects.
    pub(crate) gone: Vec<u64>,
    /// Snapshots whose deletion was ordered: they may exist or not.
    pub(crate) deleting: BTreeSet<String>,
    /// The clone that is there.
    pub(crate) cloned: Option<Arc<Cloned>>,
}

impl History {
    pub(crate) fn new(formatted: State) -> History {
        History::beginning(0, Arc::new(formatted))
    }

    /// That of a volume whose log begins at a position, in this state.
    pub(crate) fn beginning(position: u64, state: Arc<State>) -> History {
        History {
            states: vec![(position, state)],
            gone: Vec::new(),
            deleting: BTreeSet::new(),
            cloned: None,
        }
    }

    /// Whether the clone needs this snapshot.
    pub(crate) fn needs(&self, snapshot: &str) -> bool {
        let cloned = self.cloned.as_ref();
        cloned.is_some_and(|cloned| cloned.snapshot == snapshot)
    }

    /// Number of states.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn end(&self) -> u64 {
        self.states.last().map_or(0, |(end, _)| *end)
    }

    /// The newest state. There always is one.
    pub(crate) fn newest(&self) -> &Arc<State> {
        &self.states[self.states.len() - 1].1
    }

    /// The states from index `first` on.
    pub(crate) fn since(&self, first: usize) -> impl Iterator<Item = &Arc<State>> {
        let states = self.states.get(first..).unwrap_or_default();
        states.iter().map(|(_, state)| state)
    }

    /// The state that begins exactly at a position.
    pub(crate) fn at(&self, position: u64) -> Option<&Arc<State>> {
        let found = self
            .states
            .binary_search_by_key(&position, |(end, _)| *end)
            .ok()?;
        self.states.get(found).map(|(_, state)| state)
    }

    /// The position after the record that follows the one that ends at `position`.
    pub(crate) fn next_after(&self, position: u64) -> Option<u64> {
        let next = self.states.partition_point(|(end, _)| *end <= position);
        self.states.get(next).map(|(end, _)| *end)
    }

    /// Whether no state from `position` on has anything in the trash that leaves by itself until then.
    pub(crate) fn trash_rests_since(&self, position: u64, seconds: u64) -> bool {
        let mut states = self.states.iter().rev();
        let first = states.position(|(end, _)| *end <= position).unwrap_or(0);
        let states = self.states.iter().rev().take(first + 1);
        states
            .map(|(_, state)| state)
            .all(|state| state.trash_rests_until(seconds))
    }

    /// Adds the state after a record that ends at `end`.
    pub(crate) fn push(&mut self, end: u64, state: State) {
        let newest = self.newest().clone();
        for (inode, _) in newest.objects() {
            if state.get(inode).is_none() {
                self.gone.push(inode);
            }
        }
        self.states.push((end, Arc::new(state)));
    }

    /// Another state takes the place of the one at `position`, which is the newest: the volume was restored.
    pub(crate) fn replace_newest(&mut self, position: u64, state: State) {
        let before = self.states.pop();
        let before = before.into_iter().flat_map(|(_, state)| {
            let inodes: Vec<u64> = state.objects().map(|(inode, _)| inode).collect();
            inodes
        });
        self.gone.extend(before);
        self.gone.retain(|inode| state.get(*inode).is_none());
        self.states.push((position, Arc::new(state)));
    }

    /// Drops the states after `position`, whose records are lost, and from the others the content of restored files that
    /// was not `published`.
    pub(crate) fn forget_after(&mut self, position: u64, published: u64) {
        self.states.retain(|(end, _)| *end <= position);
        for (_, state) in &mut self.states {
            *state = state.after_crash(published);
        }
        let newest = self.newest().clone();
        // An object that no state has that is left was made after `position`, or by a record that a restore has replaced. Its
        // number is given out again, perhaps to an object that a restore stages. Clients have no handle of that.
        let states = &self.states;
        let was_there = |inode: u64| {
            let mut states = states.iter().rev();
            states.any(|(_, state)| state.get(inode).is_some())
        };
        self.gone
            .retain(|inode| newest.get(*inode).is_none() && was_there(*inode));
    }
}

#[cfg(test)]
mod tests {
    use forebay_vfs::{CreateMode, SetAttributes, Timestamp};

    use super::*;
    use crate::model::{Keep, ROOT};
    use crate::operation::Operation;

    /// Makes an object, and deletes it.
    fn pass_through(history: &mut History, inode: u64, (made, deleted): (u64, u64)) {
        let (directory, name) = (ROOT, b"a".to_vec());
        let create = Operation::Create {
            directory,
            name: name.clone(),
            mode: CreateMode::Guarded(SetAttributes::default()),
        };
        let remove = Operation::Remove { directory, name };
        for (end, operation) in [(made, create), (deleted, remove)] {
            let state = history.newest().clone();
            let state = state.apply(&operation, Timestamp::default(), inode);
            history.push(end, state.unwrap().unwrap());
        }
    }

    #[test]
    fn objects_that_were_made_after_the_stop_are_forgotten() {
        let formatted = State::formatted(Timestamp::default(), Keep::default());
        let mut history = History::new(formatted);
        pass_through(&mut history, 2, (10, 20));
        pass_through(&mut history, 3, (30, 40));
        assert_eq!(history.gone, [2, 3]);
        // Object 3 is there.
        let mut later = history.clone();
        later.forget_after(30, 30);
        assert_eq!(later.gone, [2]);
        history.forget_after(20, 20);
        assert_eq!(history.gone, [2]);
        history.forget_after(0, 0);
        assert!(history.gone.is_empty());
    }
}
