//! The calls of clients in flight, and the results of polling them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_vfs::{FileKind, Stability, Timestamp};

use super::restoring::Restoring;
use super::{Gateway, probe};
use crate::audit;
use crate::judge::{Case, Placed};
use crate::ledger::Unstable;
use crate::model::State;
use crate::operation::{Call, Operation, Reply};
use crate::world::{Step, World};

/// Most calls in flight, but for READs.
const LIMIT: usize = 6;

/// A call in flight.
struct Running {
    operation: Operation,
    call: Call,
    /// Index of the first state that it may have seen.
    since: usize,
    /// Number of unstable writes that were answered before it began.
    unstable: usize,
    /// Position of the log when it began.
    began: u64,
    /// End of its last record, and the state after it.
    effect: Option<(u64, Arc<State>)>,
    /// The steps of a restore.
    restoring: Option<Restoring>,
    /// Another restore ran when it began.
    is_second: bool,
    /// A read of the log has failed while it ran.
    log_read_failed: bool,
    /// Objects that it brought back from the trash.
    back: Vec<u64>,
}

/// All calls in flight.
#[derive(Default)]
pub(super) struct Calls {
    running: Vec<Running>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn give_up(&mut self, pick: u8) {
        if !self.running.is_empty() {
            self.running.remove(pick as usize % self.running.len());
        }
    }

    pub(super) fn is_restoring(&self) -> bool {
        self.running.iter().any(|call| call.restoring.is_some())
    }

    /// The objects of a restore that runs.
    pub(super) fn staged(&self) -> BTreeSet<u64> {
        let restoring = self
            .running
            .iter()
            .filter_map(|call| call.restoring.as_ref());
        restoring.flat_map(Restoring::staged).collect()
    }

    /// Whether an operation takes away a name as that of a restore that runs has.
    pub(super) fn takes_target(&self, operation: &Operation) -> bool {
        let (Operation::Remove { name, .. }
        | Operation::Rmdir { name, .. }
        | Operation::Rename { old: name, .. }) = operation
        else {
            return false;
        };
        let mut restoring = self
            .running
            .iter()
            .filter_map(|call| call.restoring.as_ref());
        restoring.any(|one| one.name() == name)
    }

    pub(super) fn drop_all(&mut self) {
        self.running.clear();
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations = self.running.iter().map(|running| &running.operation);
        f.debug_list().entries(operations).finish()
    }
}

impl Gateway<'_> {
    /// Begins an operation of a client, and polls it once.
    pub(super) fn begin(&mut self, operation: Operation) -> Result<(), String> {
        let limit = match operation {
            // Readers do not wait behind writers.
            Operation::Read { .. } => 2 * LIMIT,
            _ => LIMIT,
        };
        if self.calls.running.len() >= limit {
            self.poll_calls()?;
            if self.calls.running.len() >= limit {
                return Ok(());
            }
        }
        if let Operation::DeleteSnapshot { name } = &operation
            && !self.history.needs(name)
        {
            self.history.deleting.insert(name.clone());
        }
        let call = operation.call(&self.volume, self.plan.keep.seconds);
        self.totals.operations += 1;
        let is_restore = |operation: &Operation| matches!(operation, Operation::Restore(_));
        let mut others = self.calls.running.iter();
        let is_second = others.any(|other| is_restore(&other.operation));
        let restoring = match &operation {
            Operation::Restore(request) => Restoring::of(request, self.history.newest()),
            _ => None,
        };
        self.calls.running.push(Running {
            call,
            since: self.history.len() - 1,
            unstable: self.unstable.len(),
            began: self.history.end(),
            effect: None,
            restoring,
            is_second,
            log_read_failed: false,
            back: Vec::new(),
            operation,
        });
        self.poll(self.calls.running.len() - 1).map(drop)
    }

    /// Polls every call once.
    pub(super) fn poll_calls(&mut self) -> Result<(), String> {
        let mut at = 0;
        while at < self.calls.running.len() {
            if !self.poll(at)? {
                at += 1;
            }
        }
        Ok(())
    }

    /// Polls one call; returns whether it has ended.
    fn poll(&mut self, at: usize) -> Result<bool, String> {
        self.notice()?;
        let now = self.world.tick();
        let before = self.volume.status().end.0;
        let failed_reads = failed_log_reads(&self.world, self.machine);
        self.recorder.lock().ledger.polling = true;
        let running = &mut self.calls.running[at];
        let mut context = Context::from_waker(Waker::noop());
        let polled = running.call.as_mut().poll(&mut context);
        running.log_read_failed |= failed_reads != failed_log_reads(&self.world, self.machine);
        let after = self.volume.status().end.0;
        {
            let ledger = &mut self.recorder.lock().ledger;
            ledger.polling = false;
            ledger.end = after;
        }
        if after != before {
            self.totals.records += 1;
            let state = self.effect(at, (now, after))?;
            self.history.push(after, state);
            let running = &mut self.calls.running[at];
            running.effect = Some((after, self.history.newest().clone()));
            self.trace
                .note(|| format!("{after}: {}", short(&running.operation)));
            self.world.step(Step::Appended);
        }
        let Poll::Ready(reply) = polled else {
            return Ok(false);
        };
        let running = self.calls.running.remove(at);
        self.settle(running, &reply)?;
        Ok(true)
    }

    /// The state after a record of a call, which ends at `end`.
    fn effect(&mut self, at: usize, (now, end): (Timestamp, u64)) -> Result<State, String> {
        let running = &mut self.calls.running[at];
        let operation = &running.operation;
        let state = self.history.newest();
        let shown = |why| format!("{operation:?}: {why}");
        match operation {
            Operation::Restore(_) => {
                let restoring = running.restoring.as_mut();
                let restoring = restoring.ok_or("a restore of nothing was recorded")?;
                let followed = restoring.follow(&self.volume, state, (now, end));
                let followed = followed.map_err(shown)?;
                if restoring.placed.is_some() {
                    let published = audit::published(&self.world.image().bucket)?;
                    let whole = restoring.end_of_staging();
                    if published < whole && !self.recorder.lock().ledger.fenced {
                        return Err(format!(
                            "a restore has its name, and the bucket is at {published} instead of {whole}"
                        ));
                    }
                }
                return Ok(followed);
            }
            Operation::Undelete { to, .. } => {
                let states = self.history.since(running.since);
                let (state, inode) = back(&self.volume, state, states, (to.as_deref(), now))
                    .map_err(|why| format!("{operation:?}: {why}"))?;
                running.back.push(inode);
                return Ok(state);
            }
            _ if running.effect.is_some() => return Err(shown("recorded twice".to_owned())),
            _ => {}
        }
        match state.apply(operation, now, made(&self.volume, operation)) {
            Ok(Some(state)) => Ok(state),
            Ok(None) => Err(format!("{operation:?} was recorded and changes nothing")),
            Err(errors) => Err(format!(
                "{operation:?} was recorded, where it must fail with {errors:?}"
            )),
        }
    }

    /// Handles the answer to a call.
    fn settle(&mut self, running: Running, reply: &Reply) -> Result<(), String> {
        let states: Vec<Arc<State>> = self.history.since(running.since).cloned().collect();
        let case = Case {
            operation: &running.operation,
            states: &states,
            effect: running.effect.as_ref().map(|(_, state)| state),
            troubled: self.troubled,
            deleting: &self.history.deleting,
            held: self.history.cloned.as_deref().map(|one| &*one.snapshot),
            is_second: running.is_second,
            log_read_failed: running.log_read_failed,
            back: &running.back,
            placed: running.restoring.as_ref().and_then(|restoring| {
                Some(Placed {
                    directory: restoring.placed?,
                    objects: restoring.objects(),
                    aside: restoring.aside.clone(),
                })
            }),
        };
        case.judge(reply)
            .map_err(|why| format!("{}: {why}", short(&running.operation)))?;
        self.trace
            .note(|| format!("answered {}: {}", short(&running.operation), brief(reply)));
        if matches!(
            reply,
            Reply::Failed(_) | Reply::Stopped(_) | Reply::NotRestored(_) | Reply::NotUndeleted(_)
        ) {
            self.totals.failed_operations += 1;
            return Ok(());
        }
        let mut recorder = self.recorder.lock();
        let ledger = &mut recorder.ledger;
        if ledger.fenced {
            // The answer concerns the gateway's own log, which is never read again.
            return Ok(());
        }
        let end = running.effect.as_ref().map(|(end, _)| *end);
        if let Some(end) = end {
            ledger.answer(end);
            if running.operation.is_stable() {
                ledger.promise_stable(end);
            }
        }
        match (&running.operation, reply) {
            (Operation::Write { inode, .. }, Reply::Written(written)) => {
                if written.stability > Stability::Unstable {
                    end.into_iter().for_each(|end| ledger.promise_stable(end));
                } else if let Some(end) = end {
                    self.unstable.push(Unstable {
                        inode: *inode,
                        end,
                        verifier: written.verifier.0,
                    });
                    ledger.unstable = self.unstable.len();
                }
                if !self.disk_troubled {
                    self.totals.expect_verifier(ledger, written.verifier.0)?;
                }
            }
            (Operation::Commit { inode }, Reply::Committed(_, verifier)) => {
                let earlier = self.unstable[..running.unstable].iter();
                let committed = earlier
                    .filter(|write| write.inode == *inode && write.verifier == verifier.0)
                    .map(|write| write.end)
                    .max();
                committed
                    .into_iter()
                    .for_each(|end| ledger.promise_stable(end));
                if !self.disk_troubled {
                    self.totals.expect_verifier(ledger, verifier.0)?;
                }
            }
            (Operation::Flush, Reply::Flushed(lsn)) => {
                if lsn.0 < running.began {
                    return Err(format!("FLUSH of all before {} gave {lsn}", running.began));
                }
                ledger.promise_bucket(lsn.0);
            }
            (Operation::Restore(_), Reply::Restored(restored)) => {
                let restoring = running.restoring.as_ref();
                let end = restoring.map_or(0, Restoring::end_of_staging);
                ledger.promise_bucket(end);
                self.totals.restored += restored.objects;
            }
            (Operation::Undelete { .. }, _) => self.totals.undeleted += running.back.len() as u64,
            _ => {}
        }
        Ok(())
    }
}

/// Number of reads of a machine's open log that have failed.
fn failed_log_reads(world: &World, machine: usize) -> u64 {
    world.machine(machine, |machine| machine.failed_reads)
}

/// The inode of the object that a recorded operation has made, if it makes one.
fn made(volume: &forebay_fs::Volume, operation: &Operation) -> u64 {
    let (Operation::Create {
        directory, name, ..
    }
    | Operation::Make {
        directory, name, ..
    }) = operation
    else {
        return 0;
    };
    probe::found(volume, *directory, name).unwrap_or_default()
}

/// The state after an object has come back from the trash, and its inode. It gets its name in its own directory, unless
/// it gets another name on purpose, or that directory was gone at some time since the call began.
fn back<'a>(
    volume: &forebay_fs::Volume,
    state: &State,
    mut states: impl Iterator<Item = &'a Arc<State>>,
    (to, now): (Option<&[u8]>, Timestamp),
) -> Result<(State, u64), String> {
    let is_back = |inode: &u64| probe::attributes(volume, *inode).is_some();
    let (inode, trashed) = state
        .trash()
        .find(|(inode, _)| is_back(inode))
        .ok_or("nothing has come back from the trash")?;
    let name = match to {
        Some(to) => to.rsplit(|byte| *byte == b'/').next().unwrap_or(to),
        None => &trashed.name,
    };
    for directory in state.of_kind(FileKind::Directory) {
        if probe::found(volume, directory, name) != Some(inode) {
            continue;
        }
        let mut missing = || states.any(|state| state.get(trashed.directory).is_none());
        if directory != trashed.directory && to.is_none() && !missing() {
            return Err(format!("object {inode} is back in {directory}"));
        }
        let state = state.brought_back(inode, (directory, name), now);
        return Ok((state.ok_or("it is not in the trash")?, inode));
    }
    Err(format!("object {inode} has come back and has no name"))
}

/// An operation in one line.
fn short(operation: &Operation) -> String {
    match operation {
        Operation::Write {
            inode,
            offset,
            data,
            stability,
        } => format!(
            "WRITE {stability:?} {} bytes at {offset} of {inode}",
            data.len()
        ),
        other => format!("{other:?}"),
    }
}

/// A reply in one line.
fn brief(reply: &Reply) -> String {
    match reply {
        Reply::Created(created) => format!("inode {}", created.attributes.inode),
        Reply::Written(written) => format!("{:?}", written.stability),
        Reply::Committed(_, verifier) => format!("committed, verifier {verifier:02x?}"),
        Reply::Read(read) => format!("{} bytes", read.data.concat().len()),
        Reply::Listed(listing) => format!("{} entries", listing.entries.len()),
        Reply::Flushed(lsn) => format!("published up to {lsn}"),
        Reply::NotRestored(error) => error.to_string(),
        Reply::NotUndeleted(error) => error.to_string(),
        Reply::Failed(error) => format!("{error:?}"),
        Reply::Stopped(why) => format!("stopped: {why}"),
        _ => "done".into(),
    }
}
