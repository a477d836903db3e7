//! Clones are made, live, and are detached or deleted.

use std::sync::Arc;

use forebay_clones::{CloneError, detach, make};
use forebay_fs::{Expected, SnapshotError, Volume};
use forebay_object::Store;

use super::{Between, Chosen, at, changes, random};
use crate::audit;
use crate::bucket::MetaBucket;
use crate::history::{Cloned, History};
use crate::ledger::Ledger;
use crate::life::{
    Beginning, Recorder, Stop, alone, by_hand, collect, delete_snapshots, live, publish,
};
use crate::plan::{Action, of_clone};
use crate::recovery::{compare_clone, config, forget, open_and_compare};
use crate::run::states::{Fault, Judge, Sighting};
use crate::world::{World, WorldImage};

/// The object that makes a prefix a volume.
const DESCRIPTOR: &str = "forebay.volume";

async fn make_in(world: &World, name: &str) -> Result<make::Made, CloneError> {
    let (source, to) = places(world);
    let now = world.now().seconds.cast_unsigned();
    let (states, random) = (MetaBucket(world.clone()), random(world));
    let expected = Expected::NotSealed;
    make::make_in(&states, (&source, &to), name, &expected, now, &*random).await
}

async fn detach_in(world: &World) -> Result<detach::Detached, CloneError> {
    let (_, clone) = places(world);
    let states = MetaBucket(world.clone());
    detach::detach_in(&states, &clone, &Expected::NotSealed, &|_, _| {}).await
}

fn places(world: &World) -> (Store, Store) {
    (world.store(), world.beside())
}

impl Between<'_> {
    /// Makes a clone of a snapshot, if there is one, and lets it live.
    pub(super) fn make_clone(&mut self, pick: u64, left: Sighting) -> Result<Sighting, Fault> {
        let chosen = self.choose(pick, &left).map_err(at("a clone"))?;
        let Some(chosen) = chosen else {
            return Ok(left);
        };
        self.race(pick, &chosen, &left)
            .map_err(at("a clone of a snapshot that is being deleted"))?;
        let world = World::of(&left.image, 50);
        let _end = world.ends_here();
        let recorder = Recorder::watch(&world, Ledger::default());
        let made = alone(make_in(&world, &chosen.name));
        world.observe(None);
        match (chosen.is_kept, made) {
            (true, Ok(_)) => {}
            (false, Err(CloneError::NotKept(_))) => return Ok(left),
            (_, made) => {
                let why = format!("of snapshot {}: {made:?}", chosen.name);
                return Err(at("a clone")(why));
            }
        }
        self.trace
            .note(|| format!("a clone of snapshot {} is made", chosen.name));
        self.totals.clones += 1;
        self.history.deleting.remove(&chosen.name);
        let image = world.image();
        let cloned = self.cloned(&chosen, &image).map_err(at("a clone"))?;
        let stops = recorder.lock().take();
        for stop in changes(&left.image, &stops) {
            self.check_making(stop, &chosen.name, &cloned)
                .map_err(|why| (format!("a clone, {:?}", stop.step), why))?;
        }
        let (image, cloned) = self.live_in_clone(pick, &image, cloned)?;
        self.history.cloned = Some(Arc::new(cloned));
        Ok(Sighting { image, ..left })
    }

    /// The clone as it begins.
    fn cloned(&self, chosen: &Chosen, image: &WorldImage) -> Result<Cloned, String> {
        let end = audit::published(&image.bucket.seen_from_beside())?;
        Ok(Cloned {
            snapshot: chosen.name.clone(),
            history: History::beginning(end, chosen.then.clone()),
        })
    }

    /// Checks a stop while a clone is made: there is a whole clone or none, and the source is as it was.
    fn check_making(&mut self, stop: &Stop, name: &str, cloned: &Cloned) -> Result<(), String> {
        self.totals.count("a clone half made");
        let image = &stop.image;
        audit::audit(&image.bucket)?;
        let (plan, history) = (self.plan, &*self.history);
        let is_there = image.bucket.seen_from_beside().has(DESCRIPTOR);
        let gives_up = self.totals.crash_states().is_multiple_of(3);
        alone(async {
            let world = World::of(image, 51);
            let _end = world.ends_here();
            let machine = world.add_machine();
            let recovered = open_and_compare(&world, machine, plan, history, u64::MAX).await?;
            if is_there {
                return compare_clone(image, plan, cloned).await;
            }
            if gives_up {
                forget(&world).await?;
                publish(&world, machine, &recovered.volume).await?;
                let deleted = by_hand(&world, machine, recovered.volume.delete_snapshot(name));
                let deleted = deleted.await?;
                return deleted.map_err(|error| format!("after giving up: {error}"));
            }
            let made = make_in(&world, name).await;
            made.map_err(|error| format!("made again: {error}"))?;
            compare_clone(&world.image(), plan, cloned)
                .await
                .map_err(|why| format!("made again: {why}"))
        })
    }

    /// A gateway deletes the snapshot while a clone of it is made. If there is a clone then, it is whole.
    fn race(&mut self, pick: u64, chosen: &Chosen, left: &Sighting) -> Result<(), String> {
        if !chosen.is_kept {
            return Ok(());
        }
        self.totals.count("a clone beside a deletion");
        let (plan, history) = (self.plan, &*self.history);
        let name = &chosen.name;
        let world = World::of(&left.image, 52);
        let _end = world.ends_here();
        let machine = world.add_machine();
        let made = alone(async {
            let volume = open_and_compare(&world, machine, plan, history, u64::MAX).await?;
            let volume = volume.volume;
            world.set_delays(40);
            let waits = pick >> 8;
            let making = async {
                for _ in 0..waits % 12 {
                    tokio::task::yield_now().await;
                }
                make_in(&world, name).await
            };
            let deleting = async {
                for _ in 0..(waits >> 8) % 40 {
                    tokio::task::yield_now().await;
                }
                by_hand(&world, machine, volume.delete_snapshot(name)).await
            };
            let (made, deleted) = futures_util::future::join(making, deleting).await;
            world.set_delays(0);
            match deleted? {
                Ok(()) | Err(SnapshotError::Cloned { .. }) => {}
                Err(error) => return Err(format!("the deletion: {error}")),
            }
            collect(&world, machine, &volume).await?;
            match made {
                Ok(_) => Ok(true),
                Err(
                    CloneError::NoSnapshot(_)
                    | CloneError::BeingDeleted(_)
                    | CloneError::NotKept(_),
                ) => Ok(false),
                Err(error) => Err(format!("{error:?}")),
            }
        })?;
        let image = world.image();
        audit::audit(&image.bucket)?;
        if made {
            self.totals.raced += 1;
            alone(compare_clone(&image, plan, &self.cloned(chosen, &image)?))?;
        }
        let world = World::of(&image, 53);
        let _end = world.ends_here();
        alone(async {
            if made {
                forget(&world).await?;
            }
            // Only the next opening deletes what a note held after the deletion had begun.
            let machine = world.add_machine();
            let (store, environment) = (world.store(), world.environment(machine));
            let volume = Volume::open_in(&store, config(plan), environment).await;
            let volume = volume.map_err(|error| error.to_string())?;
            delete_snapshots(&world, machine, &volume).await?;
            collect(&world, machine, &volume).await
        })?;
        let bucket = world.image().bucket;
        audit::audit(&bucket)?;
        let snapshots = audit::snapshot_records(&bucket)?;
        match snapshots {
            0 => Ok(()),
            left => Err(format!("{left} deleted snapshots are still there")),
        }
    }

    /// A life of a clone. Returns the world after it, in which it is published.
    fn live_in_clone(
        &mut self,
        pick: u64,
        image: &WorldImage,
        cloned: Cloned,
    ) -> Result<(WorldImage, Cloned), Fault> {
        let source = image.bucket.clone();
        let mut history = cloned.history;
        let actions = of_clone(pick, self.plan.perils);
        let image_then = image.seen_from_clone();
        let world = World::of(&image_then, 54);
        let _end = world.ends_here();
        let machine = world.add_machine();
        let end = history.end();
        let beginning = Beginning {
            world,
            machine,
            plan: self.plan,
            actions: &actions,
            ledger: Ledger {
                end,
                stable: end,
                settled: end,
                bucket: end,
                answered: end,
                ..Ledger::default()
            },
            unstable: Vec::new(),
        };
        self.trace.note(|| "---- the clone".to_owned());
        let lived = live(beginning, &mut history, self.totals, self.trace);
        let lived = alone(lived).map_err(at("the clone's gateway"))?;
        let mut judge = Judge {
            unstable: &lived.unstable,
            machine,
            // Other random numbers than those of the volume's lives.
            life: 100 + self.life,
            ..self.judge(&history)
        };
        let labelled = |(stop, why)| (format!("the clone, {stop}"), why);
        judge.look_at(&lived.stops).map_err(labelled)?;
        let Some((_, Action::Crash(crash))) = actions.last() else {
            return Err(at("the clone")("its life has no end".into()));
        };
        let next = judge.go_on(&lived.stops, *crash).map_err(labelled)?;
        history.forget_after(next.end, next.published);
        let world = World::of(&next.image, 55);
        let _end = world.ends_here();
        let machine = next.machine.unwrap_or_else(|| world.add_machine());
        let recovered = alone(async {
            let opening = open_and_compare(&world, machine, self.plan, &history, u64::MAX);
            let recovered = opening.await?;
            let end = publish(&world, machine, &recovered.volume).await?;
            match end == recovered.end {
                true => Ok((end, recovered.state)),
                false => Err(format!("recovered to {}, published {end}", recovered.end)),
            }
        });
        let (end, state) = recovered.map_err(at("the clone after its life"))?;
        let after = image.after(&world.image());
        let (was, is) = (source.seen_from_beside(), after.bucket.seen_from_beside());
        if !is.is_same_beside(&was) {
            return Err(at("the clone")("it has changed its source".into()));
        }
        let mut last = History::beginning(end, state);
        last.deleting = history.deleting;
        let snapshot = cloned.snapshot;
        Ok((
            after,
            Cloned {
                snapshot,
                history: last,
            },
        ))
    }

    /// Detaches the clone, or deletes it.
    pub(super) fn end_clone(
        &mut self,
        pick: u64,
        cloned: &Cloned,
        left: Sighting,
    ) -> Result<Sighting, Fault> {
        let plan = self.plan;
        alone(compare_clone(&left.image, plan, cloned)).map_err(at("the clone, later"))?;
        let image = match pick.is_multiple_of(2) {
            true => self.detach(cloned, &left)?,
            false => self
                .delete_clone(cloned, &left)
                .map_err(at("the clone, deleted"))?,
        };
        self.history.cloned = None;
        Ok(Sighting { image, ..left })
    }

    /// Detaches the clone, which then needs nothing of its source.
    fn detach(&mut self, cloned: &Cloned, left: &Sighting) -> Result<WorldImage, Fault> {
        let (plan, what) = (self.plan, at("the clone, detached"));
        let world = World::of(&left.image, 56);
        let _end = world.ends_here();
        let recorder = Recorder::watch(&world, Ledger::default());
        let detached = alone(detach_in(&world));
        world.observe(None);
        detached.map_err(|error| what(error.to_string()))?;
        self.trace.note(|| "the clone is detached".to_owned());
        self.totals.detached += 1;
        let stops = recorder.lock().take();
        for stop in changes(&left.image, &stops) {
            self.totals.count("a clone half detached");
            let again = World::of(&stop.image, 57);
            let _end = again.ends_here();
            let checked = alone(async {
                compare_clone(&stop.image, plan, cloned).await?;
                match detach_in(&again).await {
                    Ok(_) | Err(CloneError::NoClone(_)) => Ok(()),
                    Err(error) => Err(format!("again: {error}")),
                }
            });
            let alone = alone_without_source(&again.image());
            checked
                .and_then(|()| self.is_whole(&alone, cloned))
                .map_err(|why| (format!("the clone, detached, {:?}", stop.step), why))?;
        }
        let mut image = world.image();
        self.is_whole(&alone_without_source(&image), cloned)
            .map_err(&what)?;
        if image.bucket.notes() > 0 {
            return Err(what("its note is left at the source".into()));
        }
        image.bucket = image.bucket.alone();
        Ok(image)
    }

    /// Checks a clone whose source is gone.
    fn is_whole(&self, image: &WorldImage, cloned: &Cloned) -> Result<(), String> {
        audit::audit(&image.bucket.seen_from_beside())?;
        alone(compare_clone(image, self.plan, cloned))
            .map_err(|why| format!("without its source: {why}"))
    }

    /// Deletes the objects of the clone. It still holds its snapshot, until it is forgotten.
    fn delete_clone(&mut self, cloned: &Cloned, left: &Sighting) -> Result<WorldImage, String> {
        let (plan, history) = (self.plan, &*self.history);
        let mut image = left.image.clone();
        image.bucket = image.bucket.alone();
        self.totals.count("a clone deleted");
        let world = World::of(&image, 58);
        let _end = world.ends_here();
        alone(async {
            let machine = world.add_machine();
            let volume = open_and_compare(&world, machine, plan, history, u64::MAX).await?;
            let deleting = || volume.volume.delete_snapshot(&cloned.snapshot);
            let held = by_hand(&world, machine, deleting()).await?;
            if !matches!(held, Err(SnapshotError::Cloned { .. })) {
                return Err(format!("its snapshot is deleted before that: {held:?}"));
            }
            forget(&world).await?;
            let deleted = by_hand(&world, machine, deleting()).await?;
            deleted.map_err(|error| format!("its snapshot is not deleted: {error}"))
        })?;
        let world = World::of(&image, 59);
        let _end = world.ends_here();
        alone(forget(&world))?;
        self.trace.note(|| "the clone is deleted".to_owned());
        Ok(world.image())
    }
}

/// The world after all objects of the source were deleted.
fn alone_without_source(image: &WorldImage) -> WorldImage {
    let mut image = image.clone();
    image.bucket = image.bucket.seen_from_beside().alone().seen_from_beside();
    image
}
