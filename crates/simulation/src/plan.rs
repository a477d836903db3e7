//! Plans: the actions of a run, made from a seed before it begins.
//!
//! An action names its objects by random numbers ("the fifth directory, or any that exists"), which are resolved when
//! the action is executed. So every part of a plan is a plan, and a failing one can be shrunk to the few actions that
//! matter.

mod draft;

use std::fmt;

use crate::bucket::StoreFaults;
use crate::machine::DiskFaults;
use crate::model::Keep;
use crate::random::Random;

pub(crate) use draft::{Draft, Hidden, What};

/// One action of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A client begins an operation.
    Begin(Draft),
    /// All calls and tasks are polled this many times.
    Run(u8),
    /// The log's syncer runs once.
    Sync,
    /// The log's preparer runs once.
    Prepare,
    /// Time passes.
    Advance {
        /// Milliseconds.
        ms: u32,
    },
    /// The kernel writes some dirty sectors back.
    WriteBack(u64),
    /// A client gives up a call.
    GiveUp(u8),
    /// The faults of the store begin or end.
    Store(StoreFaults),
    /// The faults of the disk begin or end.
    Disk(DiskFaults),
    /// Another gateway opens the volume while this one runs.
    TakeOver,
    /// The volume is closed in order.
    Close,
    /// The world stops, and continues from the state that a crash at one of the stops leaves.
    Crash(Crash),
}

/// How a run continues after a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Chooses the stop.
    pub stop: u64,
    /// What the crash leaves.
    pub left: Left,
    /// What an operator does before the next life.
    pub then: Then,
}

/// What an operator does with the volume while no gateway serves it. The numbers choose the snapshot and the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// Makes a clone, or detaches or deletes the one that is there.
    Clone(u64),
    /// Takes the volume back to a snapshot.
    Restore(u64),
}

/// The part of the world that a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Left {
    /// The process was killed: the machine still has all written bytes.
    SameMachine,
    /// The process was killed in the middle of copying a record.
    TornCopy(u64),
    /// Bytes that were not flushed are partly lost, partly torn.
    PowerCut(u64),
    /// Only the bucket.
    Elsewhere,
    /// The bucket, and a machine that had the volume some lives ago.
    FormerMachine(u64),
}

/// Configuration of a volume's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Journal {
    /// A log that is flushed for every commit.
    Commit,
    /// A log, and commits wait for the bucket.
    Bucket,
    /// A log that is flushed in the background only.
    Async,
    /// No log: commits wait for the bucket.
    None,
}

/// The memory of a volume for file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// More than all files need.
    Enough,
    /// So little that dirty bytes leave it while the log has them.
    Tight,
}

/// The actions of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed of all random decisions in the run.
    pub seed: u64,
    /// How the volume is configured.
    pub journal: Journal,
    /// Whether dirty bytes close a checkpoint early.
    pub small_checkpoints: bool,
    /// The memory that its gateways have.
    pub memory: Memory,
    /// The volume's trash.
    pub keep: Keep,
    /// The faults that it may have.
    pub perils: Perils,
    /// The actions, each with its number in the full plan.
    pub actions: Vec<(u32, Action)>,
}

/// Faults that a plan may have besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perils {
    /// Faults of store and disk, takeovers, clients that give up.
    pub faults: bool,
    /// Between lives the volume is cloned, and goes back to snapshots.
    pub clones: bool,
    /// The memory of gateways with a log; without it, one plan in three has a tight one.
    pub memory: Option<Memory>,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64, perils: Perils) -> Plan {
        let mut random = Random::of(seed, 5);
        let journal = match random.below(10) {
            0 => Journal::Async,
            1 => Journal::None,
            2 => Journal::Bucket,
            _ => Journal::Commit,
        };
        let small_checkpoints = random.percent(50);
        let keep = Keep {
            seconds: [0, 0, 0, 1, 4, 20, 100_000][random.below(7) as usize],
            // More than any file needs.
            limit: match random.percent(50) {
                true => 30_000,
                false => u64::MAX,
            },
        };
        let mut bursts = Random::of(seed, 8);
        let drawn = match bursts.below(3) {
            0 => Memory::Tight,
            _ => Memory::Enough,
        };
        let memory = match journal {
            // Dirty bytes cannot leave memory.
            Journal::None => Memory::Enough,
            _ => perils.memory.unwrap_or(drawn),
        };
        let mut operator = Random::of(seed, 6);
        let kind = match perils.clones {
            true => operator.below(6),
            // Nothing is done with it.
            false => 6,
        };
        let mut actions = Vec::new();
        for life in 0..3 + random.below(3) {
            let with_faults = perils.faults && random.percent(if life == 0 { 30 } else { 60 });
            let length = 20 + random.below(60);
            let burst = match memory {
                Memory::Tight if bursts.percent(80) => bursts.below(length),
                _ => length,
            };
            for at in 0..length {
                if at == burst {
                    actions.extend(in_burst(&mut bursts, with_faults));
                }
                actions.push(action(&mut random, with_faults));
            }
            if perils.faults && random.percent(15) {
                actions.push(Action::TakeOver);
                for _ in 0..random.below(12) {
                    actions.push(action(&mut random, false));
                }
            } else if random.percent(15) {
                actions.push(Action::Close);
            }
            actions.push(Action::Crash(Crash {
                stop: random.number(),
                left: left(&mut random),
                then: then(&mut operator, kind),
            }));
        }
        Plan {
            seed,
            journal,
            small_checkpoints,
            memory,
            keep,
            perils,
            actions: (0..).zip(actions).collect(),
        }
    }

    /// The same plan with only these actions.
    pub fn only(&self, numbers: &[u32]) -> Plan {
        Plan {
            actions: self
                .actions
                .iter()
                .filter(|(number, _)| numbers.contains(number))
                .cloned()
                .collect(),
            ..self.clone()
        }
    }
}

/// The actions of a clone's gateway, in one life.
pub(crate) fn of_clone(pick: u64, perils: Perils) -> Vec<(u32, Action)> {
    let mut random = Random::of(pick, 7);
    let with_faults = perils.faults && random.percent(40);
    let length = 5 + random.below(25);
    let mut actions: Vec<_> = (0..length)
        .map(|_| action(&mut random, with_faults))
        .collect();
    actions.push(Action::Crash(Crash {
        stop: random.number(),
        left: left(&mut random),
        then: Then::Nothing,
    }));
    (0..).zip(actions).collect()
}

/// One plan in six has clones, and one in six restores of the volume; some of these have both.
fn then(random: &mut Random, kind: u64) -> Then {
    let pick = random.number();
    match (kind, random.below(4)) {
        (0, 0..=2) | (1, 0) => Then::Clone(pick),
        (0, 3) | (1, 1..=2) => Then::Restore(pick),
        _ => Then::Nothing,
    }
}

fn left(random: &mut Random) -> Left {
    match random.below(10) {
        0..=2 => Left::SameMachine,
        3 => Left::TornCopy(random.number()),
        4..=6 => Left::PowerCut(random.number()),
        7 => Left::Elsewhere,
        _ => Left::FormerMachine(random.number()),
    }
}

fn action(random: &mut Random, faults: bool) -> Action {
    match random.below(100) {
        0..=59 => Action::Begin(Draft::of(random)),
        60..=73 => Action::Run(1 + random.below(4) as u8),
        74..=83 => Action::Sync,
        84..=88 => Action::Prepare,
        89..=91 => Action::Advance {
            ms: [1, 60, 150, 700, 6000][random.below(5) as usize],
        },
        92..=93 => Action::WriteBack(random.number()),
        94 if faults => Action::GiveUp(random.below(8) as u8),
        95..=97 if faults => Action::Store(match random.below(5) {
            0 => StoreFaults {
                outage: true,
                ..StoreFaults::default()
            },
            1 => StoreFaults {
                failing: 1 + random.below(3) as u32,
                ..StoreFaults::default()
            },
            2 => StoreFaults {
                ghosts: 1 + random.below(2) as u32,
                ..StoreFaults::default()
            },
            _ => StoreFaults::default(),
        }),
        98..=99 if faults => Action::Disk(disk_faults(random)),
        _ => Action::Begin(Draft {
            what: What::Flush,
            picks: [0; 5],
        }),
    }
}

fn disk_faults(random: &mut Random) -> DiskFaults {
    let none = DiskFaults::default();
    match random.below(3) {
        0 => DiskFaults {
            failing_flushes: 1 + random.below(2) as u32,
            drops_pages: random.percent(50),
            ..none
        },
        1 => DiskFaults { full: true, ..none },
        _ => none,
    }
}

/// Many writes in a short time, more than memory has room for. With faults, the store is often away meanwhile.
fn in_burst(random: &mut Random, faults: bool) -> Vec<Action> {
    let is_away = faults && random.percent(70);
    let store = |outage| {
        Action::Store(StoreFaults {
            outage,
            ..StoreFaults::default()
        })
    };
    let mut actions = Vec::new();
    actions.extend(is_away.then(|| store(true)));
    for _ in 0..20 + random.below(30) {
        actions.push(match random.below(100) {
            0..=54 => Action::Begin(Draft::large_write(random)),
            55..=70 => Action::Begin(Draft::in_burst(What::Read, random)),
            71..=79 => Action::Sync,
            80..=82 => Action::Run(1),
            83..=85 => Action::Prepare,
            86 => Action::Begin(Draft::in_burst(What::Snapshot, random)),
            87..=92 => Action::Begin(Draft::in_burst(What::CreateUnchecked, random)),
            // Writers that wait for room look again.
            93..=94 => Action::Advance { ms: 120 },
            95 => Action::WriteBack(random.number()),
            96 if faults => Action::Disk(DiskFaults {
                failing_reads: 1 + random.below(3) as u32,
                ..DiskFaults::default()
            }),
            97 if faults => Action::Disk(DiskFaults {
                failing_flushes: 1,
                drops_pages: true,
                ..DiskFaults::default()
            }),
            _ => action(random, false),
        });
    }
    // Before the bucket has all of it.
    let reads = (0..18).map(|number| Action::Begin(Draft::read_of(number)));
    actions.extend(reads);
    actions.extend(is_away.then(|| store(false)));
    actions
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Begin(draft) => write!(f, "a client begins {:?}", draft.what),
            Action::Run(turns) => write!(f, "everybody gets {turns} turns"),
            Action::Sync => write!(f, "the syncer gets a turn"),
            Action::Prepare => write!(f, "the preparer gets a turn"),
            Action::Advance { ms } => write!(f, "{ms} ms pass"),
            Action::WriteBack(_) => write!(f, "the kernel writes some dirty sectors back"),
            Action::GiveUp(_) => write!(f, "a client gives up"),
            Action::Store(faults) => write!(f, "the store: {faults:?}"),
            Action::Disk(faults) => write!(f, "the disk: {faults:?}"),
            Action::TakeOver => write!(f, "another gateway takes over"),
            Action::Close => write!(f, "the volume is closed"),
            Action::Crash(crash) => {
                write!(f, "a crash; remaining state: {:?}", crash.left)?;
                match crash.then {
                    Then::Nothing => Ok(()),
                    Then::Clone(_) => write!(f, "; then a clone is made, or ends"),
                    Then::Restore(_) => write!(f, "; then the volume goes back to a snapshot"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_a_part_of_it_keeps_the_numbers() {
        let perils = Perils {
            faults: true,
            clones: true,
            memory: None,
        };
        let plan = Plan::of(7, perils);
        assert_eq!(plan, Plan::of(7, perils));
        let part = plan.only(&[3, 5]);
        assert_eq!(
            part.actions,
            [plan.actions[3].clone(), plan.actions[5].clone()]
        );
    }
}
