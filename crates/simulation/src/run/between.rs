//! Between two lives no gateway serves the volume: an operator clones it, or takes it back to a snapshot. Each step of that
//! is a stop.

mod cloning;
mod restoring;

use std::sync::Arc;

use forebay_environment::Randomness;

use super::Scope;
use super::states::{Fault, Judge, Sighting};
use crate::audit;
use crate::history::History;
use crate::ledger::Unstable;
use crate::life::{Stop, Trace};
use crate::model::State;
use crate::plan::{Plan, Then};
use crate::totals::Totals;
use crate::world::{World, WorldImage};

/// The time between two lives.
pub(super) struct Between<'a> {
    pub(super) plan: &'a Plan,
    pub(super) scope: &'a Scope,
    /// Number of the life before.
    pub(super) life: u64,
    pub(super) history: &'a mut History,
    pub(super) unstable: &'a [Unstable],
    pub(super) totals: &'a mut Totals,
    pub(super) trace: &'a mut Trace,
}

/// A snapshot of the bucket, of which a clone is made, or to which the volume goes back.
struct Chosen {
    name: String,
    /// Its state can be read: it can not if a crash came between the commit of its record and that.
    is_kept: bool,
    then: Arc<State>,
}

/// Labels a failure.
fn at(what: &'static str) -> impl Fn(String) -> Fault {
    move |why| (what.to_owned(), why)
}

impl Between<'_> {
    /// Does what the plan has for this time, and returns the world in which the next life begins.
    pub(super) fn act(&mut self, then: Then, left: Sighting) -> Result<Sighting, Fault> {
        match then {
            Then::Nothing => Ok(left),
            Then::Clone(pick) => match self.history.cloned.clone() {
                Some(cloned) => self.end_clone(pick, &cloned, left),
                None => self.make_clone(pick, left),
            },
            Then::Restore(pick) => self.restore(pick, left),
        }
    }

    /// One of the snapshots that the bucket has.
    fn choose(&self, pick: u64, left: &Sighting) -> Result<Option<Chosen>, String> {
        let snapshots = audit::snapshots(&left.image.bucket)?;
        if snapshots.is_empty() {
            return Ok(None);
        }
        let state = self.history.at(left.published);
        let state = state.ok_or("the bucket has a state that never was")?;
        let at = (pick % snapshots.len() as u64) as usize;
        let Some((name, is_kept)) = snapshots.into_iter().nth(at) else {
            return Ok(None);
        };
        let then = state.snapshots().get(&name);
        let then = then.ok_or_else(|| format!("snapshot {name} is of a lost state"))?;
        Ok(Some(Chosen {
            is_kept,
            then: then.clone(),
            name,
        }))
    }

    /// Judges recoveries of a volume with another history.
    fn judge<'a>(&'a mut self, history: &'a History) -> Judge<'a> {
        Judge {
            plan: self.plan,
            scope: self.scope,
            history,
            unstable: self.unstable,
            machine: 0,
            successor: None,
            life: self.life,
            totals: self.totals,
        }
    }
}

/// The stops that differ in the bucket from the one before.
fn changes<'a>(before: &'a WorldImage, stops: &'a [Stop]) -> Vec<&'a Stop> {
    let mut last = &before.bucket;
    let mut changes = Vec::new();
    for stop in stops {
        if !stop.image.bucket.is_same(last) {
            changes.push(stop);
        }
        last = &stop.image.bucket;
    }
    changes
}

/// Random numbers of an operator's machine.
fn random(world: &World) -> Arc<dyn Randomness> {
    world.environment(0).random
}
