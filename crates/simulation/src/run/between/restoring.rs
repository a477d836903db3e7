//! The whole volume goes back to a snapshot.

use forebay_clones::CloneError;
use forebay_clones::restore::{Restore, Restored, restore_in};
use forebay_fs::Expected;
use forebay_meta::record::Timestamp;
use forebay_types::Epoch;

use super::{Between, at, changes};
use crate::audit;
use crate::bucket::{BucketImage, MetaBucket};
use crate::history::History;
use crate::ledger::Ledger;
use crate::life::{Recorder, Stop, alone};
use crate::random::Random;
use crate::run::states::{Fault, Sighting};
use crate::world::{Step, World};

/// How far a restore has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The volume is as it was.
    Untouched,
    /// The state before is a snapshot.
    Kept,
    /// The volume has gone back.
    Back,
}

/// The histories of a volume that goes back.
struct Histories {
    kept: History,
    back: History,
}

impl Between<'_> {
    /// Takes the volume back to a snapshot, if there is one.
    pub(super) fn restore(&mut self, pick: u64, left: Sighting) -> Result<Sighting, Fault> {
        let what = at("a restore of the volume");
        let Some(chosen) = self.choose(pick, &left).map_err(&what)? else {
            return Ok(left);
        };
        let before = format!("before {}", self.life);
        let world = World::of(&left.image, 61);
        let _end = world.ends_here();
        let recorder = Recorder::watch(&world, Ledger::default());
        let now = world.now();
        let request = Restore {
            snapshot: chosen.name.clone(),
            before: before.clone(),
            by: "simulation".into(),
            now: Timestamp {
                seconds: now.seconds,
                nanos: now.nanos,
            },
            seen: Epoch(0),
            take_over: false,
        };
        let done = alone(restored(&world, request, &left.image.bucket));
        world.observe(None);
        match (chosen.is_kept, done) {
            (true, Ok(done)) if (&done.snapshot.name, &done.before) == (&chosen.name, &before) => {}
            (false, Err(CloneError::NotKept(_))) => return Ok(left),
            (_, done) => return Err(what(format!("to {}: {done:?}", chosen.name))),
        }
        self.totals.taken_back += 1;
        self.trace
            .note(|| format!("the volume goes back to snapshot {}", chosen.name));

        // No log continues the volume.
        let position = left.published;
        let mut kept = self.history.clone();
        kept.forget_after(position, position);
        let with = kept.newest().with_snapshot(&before);
        let mut back = kept.clone();
        back.replace_newest(position, with.back_to(&chosen.then));
        kept.replace_newest(position, with);
        let histories = Histories { kept, back };

        let stops = recorder.lock().take();
        let mut phases = Vec::new();
        for stop in changes(&left.image, &stops) {
            let phase = phase(stop, &before).map_err(&what)?;
            self.check_restoring((stop, phase), &histories, &left)
                .map_err(|why| (format!("a restore of the volume, {:?}", stop.step), why))?;
            phases.push((stop, phase));
        }
        // One in four is cut off.
        let mut random = Random::of(pick, 8);
        let ends_at = match random.percent(25) {
            true => random.pick(&phases).copied(),
            false => phases.last().copied(),
        };
        let Some((stop, phase)) = ends_at else {
            return Err(what("it has changed nothing".into()));
        };
        *self.history = match phase {
            Phase::Untouched => return Ok(left),
            Phase::Kept => histories.kept,
            Phase::Back => histories.back,
        };
        Ok(Sighting {
            image: stop.image.clone(),
            machine: left.machine,
            end: position,
            published: position,
            settled: position,
            bucket: position,
            verifier: None,
            certain: false,
        })
    }

    /// Checks what is left when a restore is cut off: on another machine, and on the one that had the volume.
    fn check_restoring(
        &mut self,
        (stop, phase): (&Stop, Phase),
        histories: &Histories,
        left: &Sighting,
    ) -> Result<(), String> {
        audit::audit(&stop.image.bucket)?;
        let untouched = self.history.clone();
        let history = match phase {
            Phase::Untouched => &untouched,
            Phase::Kept => &histories.kept,
            Phase::Back => &histories.back,
        };
        let published = (left.published, left.published);
        let on_its_machine = match phase {
            // Records that only the memory of the machine has are lost in a power cut, whatever a recovery has read.
            Phase::Untouched => (left.settled, left.end),
            Phase::Kept | Phase::Back => published,
        };
        let elsewhere = (None, published);
        let same = left.machine.map(|machine| (Some(machine), on_its_machine));
        for (machine, positions) in [Some(elsewhere), same].into_iter().flatten() {
            let image = (&stop.image, left.published);
            let kind = "a volume half taken back";
            self.judge(history)
                .check_left(image, machine, positions, kind)
                .map_err(|why| format!("on machine {machine:?}: {why}"))?;
        }
        Ok(())
    }
}

/// How far the restore has come at a stop.
fn phase(stop: &Stop, before: &str) -> Result<Phase, String> {
    if stop.step == Step::ReplacedMetadata {
        return Ok(Phase::Back);
    }
    let snapshots = audit::snapshots(&stop.image.bucket)?;
    Ok(match snapshots.contains_key(before) {
        true => Phase::Kept,
        false => Phase::Untouched,
    })
}

/// Restores the volume. If a gateway has left a note that it holds it, the restore has to be refused first.
async fn restored(
    world: &World,
    request: Restore,
    before: &BucketImage,
) -> Result<Restored, CloneError> {
    let (states, store) = (MetaBucket(world.clone()), world.store());
    let expected = Expected::NotSealed;
    match restore_in(&states, &store, &expected, &request).await {
        Err(CloneError::Held(_)) if world.image().bucket.is_same(before) => {
            let request = Restore {
                take_over: true,
                ..request
            };
            restore_in(&states, &store, &expected, &request).await
        }
        done => done,
    }
}
