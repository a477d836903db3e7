//! The calls of clients in flight, and the results of polling them.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_types::Inode;
use forebay_vfs::{FileSystem, Stability};

use super::Gateway;
use crate::judge::Case;
use crate::ledger::Unstable;
use crate::model::State;
use crate::operation::{self, Call, Operation, Reply};
use crate::world::Step;

/// Most calls in flight.
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
    /// End of its record, and the state after it.
    effect: Option<(u64, Arc<State>)>,
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
        if self.calls.running.len() >= LIMIT {
            self.poll_calls()?;
            if self.calls.running.len() >= LIMIT {
                return Ok(());
            }
        }
        if let Operation::DeleteSnapshot { name } = &operation {
            self.history.deleting.insert(name.clone());
        }
        let call = operation.call(&self.volume);
        self.totals.operations += 1;
        self.calls.running.push(Running {
            call,
            since: self.history.len() - 1,
            unstable: self.unstable.len(),
            began: self.history.end(),
            effect: None,
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
        let now = self.world.tick();
        let before = self.volume.status().end.0;
        self.recorder.lock().ledger.polling = true;
        let running = &mut self.calls.running[at];
        let mut context = Context::from_waker(Waker::noop());
        let polled = running.call.as_mut().poll(&mut context);
        let after = self.volume.status().end.0;
        {
            let ledger = &mut self.recorder.lock().ledger;
            ledger.polling = false;
            ledger.end = after;
        }
        if after != before {
            self.totals.records += 1;
            let running = &mut self.calls.running[at];
            let shown = || format!("{:?}", running.operation);
            if running.effect.is_some() {
                return Err(format!("{} was recorded twice", shown()));
            }
            let made = made(&self.volume, &running.operation);
            let state = self.history.newest();
            let effect = state.apply(&running.operation, now, made);
            match effect {
                Ok(Some(state)) => self.history.push(after, state),
                Ok(None) => return Err(format!("{} was recorded and changes nothing", shown())),
                Err(errors) => {
                    return Err(format!(
                        "{} was recorded, where it must fail with {errors:?}",
                        shown()
                    ));
                }
            }
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

    /// Handles the answer to a call.
    fn settle(&mut self, running: Running, reply: &Reply) -> Result<(), String> {
        let states: Vec<Arc<State>> = self.history.since(running.since).cloned().collect();
        let case = Case {
            operation: &running.operation,
            states: &states,
            effect: running.effect.as_ref().map(|(_, state)| state),
            troubled: self.troubled,
        };
        case.judge(reply)
            .map_err(|why| format!("{}: {why}", short(&running.operation)))?;
        self.trace
            .note(|| format!("answered {}: {}", short(&running.operation), brief(reply)));
        if matches!(reply, Reply::Failed(_) | Reply::Stopped(_)) {
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
            _ => {}
        }
        Ok(())
    }
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
    let mut lookup = std::pin::pin!(volume.lookup(&operation::ROOT, Inode(*directory), name));
    let mut context = Context::from_waker(Waker::noop());
    match lookup.as_mut().poll(&mut context) {
        Poll::Ready(Ok(attributes)) => attributes.inode.0,
        _ => 0,
    }
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
        Reply::Failed(error) => format!("{error:?}"),
        Reply::Stopped(why) => format!("stopped: {why}"),
        _ => "done".into(),
    }
}
