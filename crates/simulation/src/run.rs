//! A run: the lives of a plan, one after the other, and after each of them every moment at which the world could have
//! stopped.

mod between;
mod states;

use std::fmt;

use forebay_fs::Volume;

use crate::history::History;
use crate::ledger::{Ledger, Unstable};
use crate::life::{Beginning, Trace, alone, live};
use crate::model::State;
use crate::plan::{Action, Crash, Left, Plan};
use crate::totals::Totals;
use crate::world::{World, WorldImage};
use between::Between;
use states::{Judge, Sighting};

/// The checks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Recoveries on the same machine.
    pub same: bool,
    /// Recoveries after a power cut.
    pub power: bool,
    /// Recoveries with nothing but the bucket.
    pub elsewhere: bool,
    /// Power cuts, each torn in its own way, per stop.
    pub power_cuts: u64,
}

impl Default for Scope {
    fn default() -> Scope {
        Scope {
            same: true,
            power: true,
            elsewhere: true,
            power_cuts: 2,
        }
    }
}

/// A promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The plan's seed.
    pub seed: u64,
    /// Number of the life, counted from 0.
    pub life: usize,
    /// The stop and the kind of crash; `None` if the running gateway failed.
    pub stop: Option<String>,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, life {}: ", self.seed, self.life)?;
        if let Some(stop) = &self.stop {
            write!(f, "{stop}: ")?;
        }
        f.write_str(&self.why)
    }
}

/// Runs a plan.
///
/// # Errors
///
/// The first promise that was broken.
pub fn run(plan: &Plan, scope: &Scope, trace: &mut Trace) -> Result<Totals, Failure> {
    let mut totals = Totals {
        runs: 1,
        ..Totals::default()
    };
    let failed = |life, stop, why| Failure {
        seed: plan.seed,
        life,
        stop,
        why,
    };
    let (mut image, mut history) = formatted(plan).map_err(|why| failed(0, None, why))?;
    let (mut ledger, mut unstable): (Ledger, Vec<Unstable>) = Default::default();
    // `None`: a machine that is yet to be made.
    let mut machine = None;
    for (life, actions) in lives(plan).into_iter().enumerate() {
        trace.note(|| format!("---- life {life}"));
        let world = World::of(&image, life as u64);
        let _end = world.ends_here();
        let on = machine.unwrap_or_else(|| world.add_machine());
        let beginning = Beginning {
            world,
            machine: on,
            plan,
            actions,
            ledger: ledger.clone(),
            unstable: std::mem::take(&mut unstable),
        };
        let lived = alone(live(beginning, &mut history, &mut totals, trace))
            .map_err(|why| failed(life, None, why))?;
        let mut judge = Judge {
            plan,
            scope,
            history: &history,
            unstable: &lived.unstable,
            machine: on,
            successor: (lived.machine != on).then_some(lived.machine),
            life: life as u64,
            totals: &mut totals,
        };
        judge
            .look_at(&lived.stops)
            .map_err(|(stop, why)| failed(life, Some(stop), why))?;
        let Some((_, Action::Crash(crash))) = actions.last() else {
            break;
        };
        let next = judge
            .go_on(&lived.stops, *crash)
            .map_err(|(stop, why)| failed(life, Some(stop), why))?;
        trace.note(|| {
            let (end, machine) = (next.end, next.machine);
            format!("the world goes on from {end} on machine {machine:?}")
        });
        history.forget_after(next.end, next.published);
        unstable = lived.unstable;
        unstable.retain(|write| write.end <= next.end);
        let mut between = Between {
            plan,
            scope,
            life: life as u64,
            history: &mut history,
            unstable: &unstable,
            totals: &mut totals,
            trace,
        };
        let next = between
            .act(crash.then, next)
            .map_err(|(stop, why)| failed(life, Some(stop), why))?;
        let Sighting {
            image: left,
            machine: left_machine,
            end,
            published: _,
            settled,
            bucket,
            verifier,
            certain,
        } = next;
        unstable.retain(|write| write.end <= end);
        if !certain {
            // The next verifier is a new one: clients send all of it again.
            unstable.clear();
        }
        ledger = Ledger {
            end,
            stable: settled,
            settled,
            bucket,
            answered: end,
            verifier,
            unstable: unstable.len(),
            ..Ledger::default()
        };
        (image, machine) = (left, left_machine);
    }
    Ok(totals)
}

/// A bucket with an empty volume.
fn formatted(plan: &Plan) -> Result<(WorldImage, History), String> {
    let world = World::of(&WorldImage::empty(plan.seed), 0);
    let now = world.tick();
    let machine = world.add_machine();
    alone(Volume::format_in(
        &world.store(),
        &world.environment(machine),
    ))
    .map_err(|error| format!("formatting: {error}"))?;
    let mut image = world.image();
    image.machines.clear();
    Ok((image, History::new(State::formatted(now, plan.keep))))
}

/// The actions of each life; each but perhaps the last ends with its crash.
fn lives(plan: &Plan) -> Vec<&[(u32, Action)]> {
    plan.actions
        .split_inclusive(|(_, action)| matches!(action, Action::Crash(_)))
        .collect()
}

/// The name under which a kind of crash is counted.
fn name(left: Left) -> &'static str {
    match left {
        Left::SameMachine => "same machine",
        Left::TornCopy(_) => "same machine, torn copy",
        Left::PowerCut(_) => "power cut",
        Left::Elsewhere => "another machine",
        Left::FormerMachine(_) => "a former machine",
    }
}

impl Crash {
    fn index(self, stops: usize) -> usize {
        // Half of the picks are the last few moments, in which most has happened.
        let pick = (self.stop / 4) as usize;
        if (self.stop / 2).is_multiple_of(2) {
            stops.saturating_sub(1 + pick % stops.clamp(1, 4))
        } else {
            pick % stops.max(1)
        }
    }
}
