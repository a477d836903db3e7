//! The steps of a restore in the model, and the content that is lost with a checkpoint.

use std::sync::Arc;

use forebay_vfs::{FileKind, SetAttributes, SetTime, Timestamp};

use super::object::Grafted;
use super::{Body, Content, Object, State};

/// A change that a restore makes under its own name; objects are those of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Makes an object in the copy of a directory; `None`: in that of the target.
    Make {
        from: u64,
        directory: Option<u64>,
        name: Vec<u8>,
    },
    /// Another name of a file that was made.
    Link {
        from: u64,
        directory: u64,
        name: Vec<u8>,
    },
    /// The attributes; a file has its content before.
    Finish { from: u64 },
}

/// Leaves the size of a restored file, and not its content.
fn lose_content(object: &mut Object) {
    if let Some(grafted) = object.grafted.take() {
        object.body = Body::Regular(grafted.without);
    }
}

impl State {
    /// The changes that restore `top` of this state: a directory after its names.
    pub(crate) fn stages(&self, top: u64) -> Vec<Stage> {
        let mut stages = vec![Stage::Make {
            from: top,
            directory: None,
            name: Vec::new(),
        }];
        self.fill(top, &mut Vec::new(), &mut stages);
        stages
    }

    /// The changes to an object that was made: everything below it, and its attributes. Names of the `seen` files are links.
    fn fill(&self, from: u64, seen: &mut Vec<u64>, stages: &mut Vec<Stage>) {
        let is_directory = self
            .get(from)
            .is_some_and(|object| object.kind() == FileKind::Directory);
        let names = is_directory.then(|| self.names_in(from));
        for (name, below) in names.into_iter().flatten() {
            let name = name.to_vec();
            if seen.contains(&below) {
                stages.push(Stage::Link {
                    from: below,
                    directory: from,
                    name,
                });
                continue;
            }
            seen.push(below);
            stages.push(Stage::Make {
                from: below,
                directory: Some(from),
                name,
            });
            self.fill(below, seen, stages);
        }
        stages.push(Stage::Finish { from });
    }

    /// This state with the content of `from` in a restored file, by a record that ends at `end`. Without `content` it has
    /// a hole.
    pub(crate) fn grafted(
        &self,
        inode: u64,
        (from, content): (&Content, bool),
        end: u64,
        now: Timestamp,
    ) -> State {
        let mut state = self.clone();
        if let Some(object) = state.change(inode) {
            object.changed(now);
            let without = Content::of_size(from.size());
            object.body = Body::Regular(match content {
                true => from.clone(),
                false => without.clone(),
            });
            object.grafted = content.then_some(Grafted { end, without });
        }
        state
    }

    /// This state with a restored tree whose content is in the bucket.
    pub(crate) fn settled(mut self, top: u64) -> State {
        let below = self.names_below(top);
        let below: Vec<u64> = below.into_iter().map(|(.., inode)| inode).collect();
        for inode in below.into_iter().chain([top]) {
            if self.get(inode).is_some_and(|file| file.grafted.is_some())
                && let Some(object) = self.change(inode)
            {
                object.grafted = None;
            }
        }
        self
    }

    /// What is left of this state where a crash lost all that was not `published`: the log has the sizes of restored
    /// files, and not their content.
    pub(crate) fn after_crash(self: &Arc<State>, published: u64) -> Arc<State> {
        let is_lost = |object: &Object| {
            object
                .grafted
                .as_ref()
                .is_some_and(|grafted| grafted.end > published)
        };
        let lost = self.objects().filter(|(_, object)| is_lost(object));
        let lost: Vec<u64> = lost.map(|(inode, _)| inode).collect();
        // A client may remove what a restore has left.
        let trash = self.trash().filter(|(_, trashed)| is_lost(&trashed.object));
        let trash: Vec<_> = trash
            .map(|(inode, trashed)| (inode, trashed.clone()))
            .collect();
        let snapshots: Vec<_> = self
            .snapshots
            .iter()
            .map(|(name, kept)| (name, kept.after_crash(published)))
            .filter(|(name, left)| !Arc::ptr_eq(left, &self.snapshots[*name]))
            .map(|(name, left)| (name.clone(), left))
            .collect();
        if lost.is_empty() && trash.is_empty() && snapshots.is_empty() {
            return self.clone();
        }
        let mut state = self.as_ref().clone();
        for inode in lost {
            if let Some(object) = state.change(inode) {
                lose_content(object);
            }
        }
        for (inode, mut trashed) in trash {
            lose_content(Arc::make_mut(&mut trashed.object));
            state.trash.insert(inode, Arc::new(trashed));
        }
        state.snapshots.extend(snapshots);
        Arc::new(state)
    }

    /// Whether `copy` in this state is what `from` is in `then`, with everything below it.
    pub(crate) fn is_copy(&self, copy: u64, then: &State, from: u64) -> bool {
        let (Some(own), Some(other)) = (self.get(copy), then.get(from)) else {
            return false;
        };
        let attributes = (own.mode, own.uid, own.gid, own.atime, own.mtime)
            == (other.mode, other.uid, other.gid, other.atime, other.mtime);
        let content = match (&own.body, &other.body) {
            (Body::Directory { .. }, Body::Directory { .. }) => {
                let own: Vec<_> = self.names_in(copy).collect();
                let other: Vec<_> = then.names_in(from).collect();
                own.len() == other.len()
                    && own
                        .iter()
                        .zip(&other)
                        .all(|(own, other)| own.0 == other.0 && self.is_copy(own.1, then, other.1))
            }
            (own, other) => own == other,
        };
        attributes && content
    }
}

impl Object {
    /// The attributes that its copy gets.
    pub(crate) fn as_set(&self) -> SetAttributes {
        SetAttributes {
            mode: Some(self.mode),
            uid: Some(self.uid),
            gid: Some(self.gid),
            size: None,
            atime: SetTime::To(self.atime),
            mtime: SetTime::To(self.mtime),
        }
    }
}
