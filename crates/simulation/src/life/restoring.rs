//! Follows the records of a restore: which step each of them was, and the state after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_fs::{RestoreRequest, Volume};
use forebay_vfs::{CreateMode, FileKind, SetAttributes, Timestamp};

use super::probe;
use crate::model::{Body, Stage, State};
use crate::operation::{NewObject, Operation};

/// Numbered names that are looked for.
const NUMBERS: usize = 40;

/// A restore that runs.
pub(super) struct Restoring {
    then: Arc<State>,
    top: u64,
    name: Vec<u8>,
    stages: Vec<Stage>,
    /// Number of stages that are done.
    done: usize,
    /// The restored file has its content, or a part of the bytes that it gets.
    has_content: bool,
    /// Copies of the snapshot's objects.
    made: BTreeMap<u64, u64>,
    /// Where it is until it has its place.
    staged: Option<(u64, Vec<u8>)>,
    /// End of the last record before it has its place.
    end: u64,
    /// The directory in which it got its name.
    pub(super) placed: Option<u64>,
    /// The name that the object has that was at its place.
    pub(super) aside: Option<Vec<u8>>,
}

impl Restoring {
    /// A restore that begins; `None` if there is no such object.
    pub(super) fn of(request: &RestoreRequest, state: &State) -> Option<Restoring> {
        let then = state.snapshots().get(&request.snapshot)?.clone();
        let top = then.at_path(&request.path)?;
        let path = request.to.as_ref().unwrap_or(&request.path);
        let name = path.rsplit(|byte| *byte == b'/').next()?.to_vec();
        Some(Restoring {
            stages: then.stages(top),
            then,
            top,
            name,
            done: 0,
            has_content: false,
            made: BTreeMap::new(),
            staged: None,
            end: 0,
            placed: None,
            aside: None,
        })
    }

    /// The name that the restored object gets.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The objects that it has made, until they have their place.
    pub(super) fn staged(&self) -> impl Iterator<Item = u64> {
        let made = self.made.values().copied();
        made.filter(|_| self.placed.is_none())
    }

    /// Number of objects that it puts back.
    pub(super) fn objects(&self) -> u64 {
        self.made.len() as u64
    }

    /// The position that must be in the bucket before it has its place.
    pub(super) fn end_of_staging(&self) -> u64 {
        self.end
    }

    /// The state after a record of this restore that ends at `end`.
    pub(super) fn follow(
        &mut self,
        volume: &Volume,
        state: &State,
        (now, end): (Timestamp, u64),
    ) -> Result<State, String> {
        let step = self.step(volume, state, now)?;
        let is_staging = matches!(step, Step::Staged(..) | Step::Grafted(..));
        let state = match step {
            Step::Grafted(inode, is_whole) => {
                let from = match &self.then.get(self.from()).map(|object| &object.body) {
                    Some(Body::Regular(content)) => content.clone(),
                    _ => return Err("content of something that is no file".into()),
                };
                state.grafted(inode, (&from, is_whole), end, now)
            }
            Step::Staged(operation, new) | Step::Done(operation, new) => {
                let applied = state.apply_past_trash(&operation, now, new);
                applied.ok_or_else(|| format!("a restore recorded {operation:?}"))?
            }
        };
        if is_staging {
            self.end = end;
        }
        if self.placed.is_none() {
            return Ok(state);
        }
        let copy = self.made.get(&self.top).copied().unwrap_or_default();
        if !state.is_copy(copy, &self.then, self.top) {
            return Err(
                "a restore has given its name to something else than the snapshot has".into(),
            );
        }
        Ok(state.settled(copy))
    }

    fn from(&self) -> u64 {
        match self.stages.get(self.done) {
            Some(Stage::Make { from, .. } | Stage::Link { from, .. } | Stage::Finish { from }) => {
                *from
            }
            None => 0,
        }
    }

    fn step(&mut self, volume: &Volume, state: &State, now: Timestamp) -> Result<Step, String> {
        let Some((directory, staged)) = self.staged.clone() else {
            return self.begin(volume, state);
        };
        let copy = self.made.get(&self.top).copied().unwrap_or_default();
        let (from, to) = (directory, directory);
        if self.placed.is_some() {
            return Err("a restore goes on after its last step".into());
        }
        if probe::is_free(volume, directory, &staged) {
            if probe::found(volume, directory, &self.name) != Some(copy) {
                return Ok(self.removed(state, (directory, &staged, copy)));
            }
            if self.done < self.stages.len() {
                return Err(format!(
                    "a restore has its name after {} of {} steps",
                    self.done,
                    self.stages.len()
                ));
            }
            self.placed = Some(directory);
            let (old, new) = (staged, self.name.clone());
            return Ok(Step::Done(Operation::Rename { from, old, to, new }, 0));
        }
        let below = state.names_below(copy);
        let gone = below
            .iter()
            .find(|(directory, name, _)| probe::is_free(volume, *directory, name));
        if let Some(gone) = gone {
            return Ok(self.removed(state, *gone));
        }
        match self.stages.get(self.done).cloned() {
            Some(stage) => self.stage(volume, &stage, now),
            None => self.aside(volume, state, directory),
        }
    }

    /// The first record: an object under a name of its own.
    fn begin(&mut self, volume: &Volume, state: &State) -> Result<Step, String> {
        for directory in state.of_kind(FileKind::Directory) {
            for name in numbered(b"", b".forebay-restore") {
                if state.lookup(directory, &name).is_none()
                    && let Some(inode) = probe::found(volume, directory, &name)
                {
                    self.staged = Some((directory, name.clone()));
                    return self.make(directory, name, inode);
                }
            }
        }
        Err("a restore has recorded something, and made nothing".into())
    }

    fn make(&mut self, directory: u64, name: Vec<u8>, inode: u64) -> Result<Step, String> {
        let from = self.from();
        self.made.insert(from, inode);
        self.done += 1;
        self.has_content = false;
        let then = self.then.get(from);
        let object = match then.map(|object| &object.body) {
            Some(Body::Regular(_)) => {
                let mode = CreateMode::Guarded(SetAttributes {
                    mode: Some(0o600),
                    ..SetAttributes::default()
                });
                let create = Operation::Create {
                    directory,
                    name,
                    mode,
                };
                return Ok(Step::Staged(create, inode));
            }
            Some(Body::Directory { .. }) => NewObject::Directory,
            Some(Body::Symlink(target)) => NewObject::Symlink(target.clone()),
            Some(Body::Special(kind, device)) => NewObject::Special(*kind, *device),
            None => return Err("the snapshot does not have what is restored".into()),
        };
        let mode = match object {
            NewObject::Directory => 0o700,
            _ => 0o600,
        };
        let make = Operation::Make {
            directory,
            name,
            object,
            mode: Some(mode),
        };
        Ok(Step::Staged(make, inode))
    }

    fn stage(&mut self, volume: &Volume, stage: &Stage, now: Timestamp) -> Result<Step, String> {
        let copy = |from| self.made.get(from).copied().unwrap_or_default();
        match stage {
            Stage::Make {
                directory, name, ..
            } => {
                let directory = directory.as_ref().map(copy).unwrap_or_default();
                let inode = probe::found(volume, directory, name)
                    .ok_or_else(|| format!("a restore has not made {}", name.escape_ascii()))?;
                self.make(directory, name.clone(), inode)
            }
            Stage::Link {
                from,
                directory,
                name,
            } => {
                let link = Operation::Link {
                    inode: copy(from),
                    directory: copy(directory),
                    name: name.clone(),
                };
                self.done += 1;
                Ok(Step::Staged(link, 0))
            }
            Stage::Finish { from } => {
                let inode = copy(from);
                let then = self.then.get(*from).ok_or("nothing to restore")?;
                let found = probe::attributes(volume, inode).ok_or("it is gone")?;
                if let Body::Regular(content) = &then.body {
                    // Its content comes with the time of now, and its attributes with those of then.
                    if found.mtime == now {
                        let is_whole = found.used > 0 || content.is_zero();
                        self.has_content |= is_whole;
                        return Ok(Step::Grafted(inode, is_whole));
                    }
                    if !self.has_content {
                        return Err("a restored file has no content".into());
                    }
                }
                self.done += 1;
                let set = Operation::SetAttributes {
                    inode,
                    set: then.as_set(),
                    guard: None,
                };
                Ok(Step::Staged(set, 0))
            }
        }
    }

    /// A name that it removes after an error.
    fn removed(&self, state: &State, (directory, name, inode): (u64, &[u8], u64)) -> Step {
        let name = name.to_vec();
        let kind = state.get(inode).map(|object| object.kind());
        Step::Done(
            match kind {
                Some(FileKind::Directory) => Operation::Rmdir { directory, name },
                _ => Operation::Remove { directory, name },
            },
            0,
        )
    }

    /// The object that has the name of the restored one gets another name, or its own back.
    fn aside(&mut self, volume: &Volume, state: &State, directory: u64) -> Result<Step, String> {
        let (from, to) = (directory, directory);
        for name in numbered(&self.name, b".before-restore") {
            let known = state.lookup(directory, &name);
            match known {
                None => {
                    let Some(inode) = probe::found(volume, directory, &name) else {
                        continue;
                    };
                    self.aside = Some(name.clone());
                    // A client may have taken the name away before the link was made.
                    let had_name = state.lookup(directory, &self.name) == Some(inode);
                    let is_free = probe::is_free(volume, directory, &self.name);
                    let step = match had_name && is_free {
                        true => Operation::Rename {
                            from,
                            old: self.name.clone(),
                            to,
                            new: name,
                        },
                        false => Operation::Link {
                            inode,
                            directory,
                            name,
                        },
                    };
                    return Ok(Step::Done(step, 0));
                }
                Some(inode) if probe::is_free(volume, directory, &name) => {
                    self.aside = None;
                    let is_back = state.lookup(directory, &self.name).is_none()
                        && probe::found(volume, directory, &self.name) == Some(inode);
                    return Ok(match is_back {
                        true => Step::Done(
                            Operation::Rename {
                                from,
                                old: name,
                                to,
                                new: self.name.clone(),
                            },
                            0,
                        ),
                        false => self.removed(state, (directory, &name, inode)),
                    });
                }
                Some(_) => {}
            }
        }
        Err("a restore has recorded something after its last step".into())
    }
}

/// A step of a restore.
enum Step {
    /// An operation on what has no place yet, and the inode that it has made.
    Staged(Operation, u64),
    /// A file has its content, or, if its checkpoint was closed meanwhile, only its size.
    Grafted(u64, bool),
    /// Another operation.
    Done(Operation, u64),
}

/// The names that a restore gives to its own tree, or to the one that was there before.
fn numbered(stem: &[u8], ending: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (1..NUMBERS).map(move |number| {
        let number = match number {
            1 => String::new(),
            number => format!("-{number}"),
        };
        [stem, ending, number.as_bytes()].concat()
    })
}
