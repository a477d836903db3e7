//! Judges whether the model allows a reply.

mod recovered;

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_fs::Stopped;
use forebay_vfs::{Attributes, Error};

use crate::model::{Body, State};
use crate::operation::{Operation, Reply};
pub(crate) use recovered::Placed;

/// An operation at the time of its answer.
pub(crate) struct Case<'a> {
    pub(crate) operation: &'a Operation,
    /// The states while it ran, the first one from before it began.
    pub(crate) states: &'a [Arc<State>],
    /// The state after its record, if it changed anything.
    pub(crate) effect: Option<&'a Arc<State>>,
    /// Errors that mean "not now" are allowed: store or disk had faults.
    pub(crate) troubled: bool,
    /// A read of the log has failed while it ran.
    pub(crate) log_read_failed: bool,
    /// Snapshots whose deletion was ordered.
    pub(crate) deleting: &'a BTreeSet<String>,
    /// The snapshot that a clone needs.
    pub(crate) held: Option<&'a str>,
    /// Another restore ran when it began.
    pub(crate) is_second: bool,
    /// Objects that it brought back from the trash.
    pub(crate) back: &'a [u64],
    /// The place of what it restored.
    pub(crate) placed: Option<Placed>,
}

/// The attributes without the used space, which depends on publication.
fn bare(attributes: &Attributes) -> Attributes {
    Attributes {
        used: 0,
        ..*attributes
    }
}

impl Case<'_> {
    /// Returns why the reply is wrong, if it is.
    pub(crate) fn judge(&self, reply: &Reply) -> Result<(), String> {
        match reply {
            _ if self.operation.has_many_records() => self.judge_many(reply),
            Reply::Failed(Error::Io) if matches!(self.operation, Operation::Read { .. }) => {
                let why = "EIO, and the disk has every byte that is in the log alone";
                self.log_read_failed.then_some(()).ok_or_else(|| why.into())
            }
            Reply::Stopped(Stopped::Failed(why)) if why.contains("in the log alone") => {
                Err(format!("the volume stopped: {why}"))
            }
            Reply::Failed(Error::Delay | Error::Io) | Reply::Stopped(_) if self.troubled => Ok(()),
            // An earlier call has deleted it: what the model cannot know.
            Reply::Failed(Error::NotFound)
                if matches!(self.operation, Operation::DeleteSnapshot { .. }) =>
            {
                Ok(())
            }
            Reply::Held if self.deletes_held() => Ok(()),
            Reply::Held => Err(format!("no clone needs it, but {:?}", self.held)),
            Reply::Failed(error) => self.judge_failure(*error),
            Reply::Stopped(why) => Err(format!("the volume stopped without a reason: {why}")),
            _ => {
                if self.effect.is_none() {
                    self.some(|state| {
                        let effect = state.apply(self.operation, Default::default(), 0);
                        matches!(effect, Ok(None))
                    })
                    .ok_or("it succeeded without a record, and the model would change something or fail")?;
                }
                self.judge_success(reply)
            }
        }
    }

    fn some(&self, fits: impl Fn(&State) -> bool) -> Option<()> {
        self.states.iter().any(|state| fits(state)).then_some(())
    }

    /// Whether it deletes the snapshot that a clone needs.
    fn deletes_held(&self) -> bool {
        matches!(self.operation, Operation::DeleteSnapshot { name } if self.held == Some(name))
    }

    fn judge_failure(&self, error: Error) -> Result<(), String> {
        if self.effect.is_some() {
            return Err(format!("{error:?} although it was recorded"));
        }
        self.some(|state| {
            let effect = state.apply(self.operation, Default::default(), 0);
            effect.is_err_and(|errors| errors.contains(&error))
        })
        .ok_or_else(|| {
            let expected = self.states.last().map(|state| {
                state
                    .apply(self.operation, Default::default(), 0)
                    .map(|_| "success")
            });
            format!("{error:?}, where the model says {expected:?}")
        })
    }

    fn judge_success(&self, reply: &Reply) -> Result<(), String> {
        match (self.operation, reply) {
            (
                Operation::Read {
                    inode,
                    offset,
                    count,
                },
                Reply::Read(read),
            ) => {
                let data: Vec<u8> = read.data.concat();
                // A READ beside a WRITE may see a part of it, under the size from before; but no byte that never
                // existed.
                let seen: Vec<(Vec<u8>, bool)> = self
                    .states
                    .iter()
                    .filter_map(|state| state.read(*inode, *offset, *count))
                    .collect();
                let size = seen
                    .iter()
                    .any(|(bytes, eof)| bytes.len() == data.len() && *eof == read.eof);
                let known = |at: usize| seen.iter().any(|(bytes, _)| bytes.get(at) == data.get(at));
                if size && (0..data.len()).all(known) {
                    return Ok(());
                }
                let expected = seen.last().map_or(&[][..], |(bytes, _)| bytes);
                Err(format!(
                    "bytes that the file never had: {}",
                    difference(&data, expected)
                ))
            }
            (
                Operation::List {
                    directory,
                    cookie,
                    max,
                },
                Reply::Listed(listing),
            ) => {
                let found: Vec<_> = listing
                    .entries
                    .iter()
                    .map(|entry| (entry.cookie, entry.name.to_vec(), entry.inode.0))
                    .collect();
                // A READDIR beside a RENAME may see either name or both (RFC 1813 promises no more); names that existed
                // all the time must be in it, and no name that never existed.
                let all: Vec<_> = self
                    .states
                    .iter()
                    .filter_map(|state| listed(state, *directory))
                    .collect();
                let seen = |entry| all.iter().any(|listing| listing.contains(entry));
                let last = match found.last() {
                    Some((last, ..)) if !listing.end => *last,
                    _ => u64::MAX,
                };
                let stayed = all.first().is_some_and(|first| {
                    first
                        .iter()
                        .filter(|entry| entry.0 > *cookie && entry.0 <= last)
                        .filter(|entry| all.iter().all(|listing| listing.contains(entry)))
                        .all(|entry| found.contains(entry))
                });
                let sound = found.len() <= *max && found.is_sorted() && found.iter().all(seen);
                (sound && stayed)
                    .then_some(())
                    .ok_or_else(|| format!("a listing that never was: {found:?}"))
            }
            (Operation::Lookup { directory, name }, Reply::Found(found)) => self
                // The name and the attributes are read separately, and other calls may run in between.
                .some(|state| state.lookup(*directory, name) == Some(found.inode.0))
                .and_then(|()| {
                    self.some(|state| state.attributes(found.inode.0) == Some(bare(found)))
                })
                .ok_or_else(|| format!("attributes that never were: {found:?}")),
            (_, Reply::Created(created)) => match self.effect {
                // An existing file may lose its last name while CREATE waits for the disk.
                Some(_) if created.attributes.nlink > 0 => self.expect(&created.attributes),
                Some(_) => Ok(()),
                None => Ok(()),
            },
            (_, Reply::Linked(attributes, change)) => {
                self.expect(attributes)?;
                change.after.map_or(Ok(()), |after| self.expect(&after))
            }
            (_, Reply::Changed(change)) => change.after.map_or(Ok(()), |after| self.expect(&after)),
            (_, Reply::Renamed(from, to)) => [from.after, to.after]
                .iter()
                .flatten()
                .try_for_each(|after| self.expect(after)),
            (
                Operation::Write {
                    data, stability, ..
                },
                Reply::Written(written),
            ) => {
                if written.count as usize != data.len() || written.stability < *stability {
                    return Err(format!(
                        "{written:?} for {} bytes {stability:?}",
                        data.len()
                    ));
                }
                match (self.effect, written.change.after) {
                    (Some(_), Some(after)) => self.expect(&after),
                    _ => Ok(()),
                }
            }
            (Operation::Commit { .. }, Reply::Committed(..))
            | (Operation::Flush, Reply::Flushed(_))
            | (Operation::Snapshot { .. }, Reply::Kept)
            | (Operation::DeleteSnapshot { .. }, Reply::Deleted(false)) => Ok(()),
            (Operation::DeleteSnapshot { .. }, Reply::Deleted(true)) if !self.deletes_held() => {
                Ok(())
            }
            _ => Err("a reply to something else".into()),
        }
    }

    /// Checks that the attributes are those after the change or, without a change, those at some moment.
    fn expect(&self, found: &Attributes) -> Result<(), String> {
        let found = bare(found);
        let fits = |state: &State| state.attributes(found.inode.0) == Some(found);
        let fitting = match self.effect {
            // Another client's change may come between the record and the read of a directory's attributes.
            Some(effect) => fits(effect) || self.some(fits).is_some(),
            None => self.some(fits).is_some(),
        };
        if fitting {
            return Ok(());
        }
        let expected = self
            .effect
            .and_then(|state| state.attributes(found.inode.0));
        Err(format!(
            "attributes {found:?} where {expected:?} were expected"
        ))
    }
}

/// The listing of a directory: cookies, names, inodes.
pub(crate) fn listed(state: &State, directory: u64) -> Option<Vec<(u64, Vec<u8>, u64)>> {
    let Body::Directory {
        parent, entries, ..
    } = &state.get(directory)?.body
    else {
        return None;
    };
    let dots = [(1, b".".to_vec(), directory), (2, b"..".to_vec(), *parent)];
    let named = entries
        .iter()
        .map(|(cookie, (name, inode))| (*cookie, name.clone(), *inode));
    Some(dots.into_iter().chain(named).collect())
}

/// Describes in a few words where two byte strings differ.
pub(crate) fn difference(found: &[u8], expected: &[u8]) -> String {
    if found.len() != expected.len() {
        return format!("{} bytes instead of {}", found.len(), expected.len());
    }
    let differing: Vec<usize> = (0..found.len())
        .filter(|at| found[*at] != expected[*at])
        .collect();
    match (differing.first(), differing.last()) {
        (Some(first), Some(last)) => format!(
            "{} bytes differ, from {first} to {last}; there {:02x?} instead of {:02x?}",
            differing.len(),
            &found[*first..(first + 8).min(found.len())],
            &expected[*first..(first + 8).min(found.len())]
        ),
        _ => "nothing differs".into(),
    }
}
