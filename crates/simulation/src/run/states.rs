//! Crash states: for each stop, the state that each kind of crash leaves, recovered and compared.

mod expected;

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Scope, name};
use crate::audit;
use crate::bucket::BucketImage;
use crate::history::History;
use crate::ledger::{Ledger, Unstable};
use crate::life::{Recorder, Stop, alone, collect, delete_snapshots, publish};
use crate::plan::{Crash, Journal, Left, Plan};
use crate::random::Random;
use crate::recovery::{
    compare, compare_contents, compare_snapshots, config, empty_trash, open_and_compare, outlives,
    undelete,
};
use crate::totals::Totals;
use crate::world::{World, WorldImage};
use expected::Expected;

/// One in this many recoveries is stopped itself.
const INNER: u64 = 24;

/// The stop, and what is wrong.
pub(super) type Fault = (String, String);

/// Checks the stops of one life.
pub(super) struct Judge<'a> {
    pub(super) plan: &'a Plan,
    pub(super) scope: &'a Scope,
    pub(super) history: &'a History,
    pub(super) unstable: &'a [Unstable],
    /// The gateway's machine.
    pub(super) machine: usize,
    /// The machine of the gateway that took over.
    pub(super) successor: Option<usize>,
    pub(super) life: u64,
    pub(super) totals: &'a mut Totals,
}

/// The world after a crash.
pub(super) struct Sighting {
    pub(super) image: WorldImage,
    pub(super) machine: Option<usize>,
    pub(super) end: u64,
    /// The published position of the bucket.
    pub(super) published: u64,
    pub(super) settled: u64,
    pub(super) bucket: u64,
    pub(super) verifier: Option<[u8; 8]>,
    /// Nothing that was answered can be lost.
    pub(super) certain: bool,
}

impl Judge<'_> {
    /// Checks every stop, with each kind of crash whose state differs from that at the stop before.
    pub(super) fn look_at(&mut self, stops: &[Stop]) -> Result<(), Fault> {
        let mut last: Option<&Stop> = None;
        for (at, stop) in stops.iter().enumerate() {
            self.totals.stops += 1;
            let (run, life) = (self.plan.seed, self.life);
            let seed = |label| Random::of(run, life << 40 | (at as u64) << 8 | label).number();
            let machine = &stop.image.machines[self.machine];
            let same_machine =
                last.is_some_and(|last| last.image.machines[self.machine].is_same(machine));
            let same_bucket =
                last.is_some_and(|last| last.image.bucket.is_same(&stop.image.bucket));
            let mut ways = Vec::new();
            if !same_bucket {
                self.audit(stop, &stop.image.bucket)?;
                if self.scope.elsewhere {
                    ways.push(Left::Elsewhere);
                    if self.life > 0 && stop.ledger.opened && seed(1).is_multiple_of(3) {
                        ways.push(Left::FormerMachine(seed(2)));
                    }
                }
            }
            if !(same_machine && same_bucket) {
                if self.scope.same && !machine.has_lost_pages() {
                    ways.push(Left::SameMachine);
                    if stop.step == crate::world::Step::Appended {
                        ways.push(Left::TornCopy(seed(3)));
                    }
                }
                if self.scope.power {
                    ways.extend(
                        (0..self.scope.power_cuts).map(|cut| Left::PowerCut(seed(16 + cut))),
                    );
                }
            }
            for left in ways {
                self.check(stop, last, left)?;
            }
            last = Some(stop);
        }
        Ok(())
    }

    fn audit(&mut self, stop: &Stop, bucket: &BucketImage) -> Result<(), Fault> {
        self.totals.audits += 1;
        self.totals.most_unknown_packs = self
            .totals
            .most_unknown_packs
            .max(audit::unknown_packs(bucket));
        audit::audit(bucket)
            .map_err(|why| (format!("{:?}", stop.step), format!("the bucket: {why}")))
    }

    /// Continues from one of the stops.
    pub(super) fn go_on(&mut self, stops: &[Stop], crash: Crash) -> Result<Sighting, Fault> {
        let at = crash.index(stops.len());
        let Some(stop) = stops.get(at) else {
            return Err(("nowhere".into(), "there is no stop to go on from".into()));
        };
        let before = at.checked_sub(1).and_then(|before| stops.get(before));
        let has_lost_pages = stop.image.machines[self.machine].has_lost_pages();
        let left = match crash.left {
            Left::SameMachine | Left::TornCopy(_) if has_lost_pages => Left::PowerCut(crash.stop),
            Left::TornCopy(_) if stop.step != crate::world::Step::Appended => Left::SameMachine,
            Left::FormerMachine(_) if !stop.ledger.opened => Left::Elsewhere,
            left => left,
        };
        self.check(stop, before, left)
    }

    /// The world after a crash of kind `left` at a stop, and the machine on which the volume is opened then; `None` for
    /// a new one.
    fn leave(&self, stop: &Stop, before: Option<&Stop>, left: Left) -> (WorldImage, Option<usize>) {
        let mut image = stop.image.clone();
        let mut machine = Some(self.machine);
        if let (true, Some(successor)) = (stop.ledger.fenced, self.successor)
            && !matches!(left, Left::FormerMachine(_))
        {
            // The gateway that holds the volume crashes, and its log with it.
            machine = Some(successor);
        }
        let on = machine.unwrap_or(self.machine);
        match left {
            Left::SameMachine => {}
            Left::TornCopy(seed) => {
                if let Some(before) = before.and_then(|before| before.image.machines.get(on)) {
                    image.machines[on] = image.machines[on].torn_copy(before, seed);
                }
            }
            Left::PowerCut(seed) => image.machines[on] = image.machines[on].power_cut(seed),
            Left::Elsewhere => machine = None,
            Left::FormerMachine(pick) => {
                let others: Vec<usize> = (0..image.machines.len())
                    .filter(|other| Some(*other) != machine)
                    .collect();
                machine = Random::new(pick).pick(&others).copied();
            }
        }
        (image, machine)
    }

    fn check(&mut self, stop: &Stop, before: Option<&Stop>, left: Left) -> Result<Sighting, Fault> {
        let at = || format!("{:?}, {left:?}", stop.step);
        let (image, machine) = self.leave(stop, before, left);
        let expected = self
            .expected(stop, before, left, &image.bucket)
            .map_err(|why| (at(), why))?;
        self.totals.count(name(left));
        let published = audit::published(&image.bucket).map_err(|why| (at(), why))?;
        let (end, inner) = self
            .recover((&image, published), machine, &expected, Some(&stop.ledger))
            .map_err(|why| (at(), why))?;
        let stays = matches!(left, Left::SameMachine | Left::TornCopy(_));
        let settled = if stays {
            stop.ledger.survives_power_cut(self.plan.journal).min(end)
        } else {
            end
        };
        for (step, inner_image, inner_machine) in inner {
            let left = (&inner_image, published);
            self.check_inner(&stop.ledger, settled, end, left, inner_machine)
                .map_err(|why| (format!("{}, then in recovery {step:?}", at()), why))?;
        }
        let certain = stays && !stop.ledger.contested && self.plan.journal != Journal::None;
        Ok(Sighting {
            image,
            machine,
            end,
            published,
            settled,
            bucket: stop.ledger.bucket.min(end),
            verifier: expected.verifier.filter(|_| certain),
            certain,
        })
    }

    /// Checks that the volume on an image opens exactly at a position, of which a power cut leaves `settled` at least.
    pub(super) fn check_left(
        &mut self,
        (image, published): (&WorldImage, u64),
        machine: Option<usize>,
        (settled, position): (u64, u64),
        kind: &'static str,
    ) -> Result<(), String> {
        self.totals.count(kind);
        let expected = Expected {
            honest: self.unstable.len(),
            ..Expected::exactly(position)
        };
        let ledger = Ledger::default();
        let (end, inner) = self.recover((image, published), machine, &expected, Some(&ledger))?;
        for (step, inner_image, inner_machine) in inner {
            let left = (&inner_image, published);
            self.check_inner(&ledger, settled, end, left, inner_machine)
                .map_err(|why| format!("then in recovery {step:?}: {why}"))?;
        }
        Ok(())
    }

    /// Opens the volume on an image, which lost the content of restored files that was not `published`, compares it, and
    /// sometimes publishes the recovered state as well. Returns some of the stops on the way.
    #[allow(clippy::type_complexity, reason = "used in one place")]
    fn recover(
        &mut self,
        (image, published): (&WorldImage, u64),
        machine: Option<usize>,
        expected: &Expected,
        ledger: Option<&Ledger>,
    ) -> Result<(u64, Vec<(crate::world::Step, WorldImage, usize)>), String> {
        let count = self.totals.crash_states();
        let watched = ledger.is_some() && count.is_multiple_of(INNER);
        let world = World::of(image, 1000 + count % 7);
        let _end = world.ends_here();
        let machine = machine.unwrap_or_else(|| world.add_machine());
        let recorder: Option<Arc<Mutex<Recorder>>> =
            watched.then(|| Recorder::watch(&world, Ledger::default()));
        let (plan, history) = (self.plan, self.history);
        let mut collected = None;
        let recovered = alone(async {
            let opening = open_and_compare(&world, machine, plan, history, published);
            let recovered = opening.await?;
            if watched {
                let (volume, state) = (&recovered.volume, &recovered.state);
                let published = publish(&world, machine, volume).await?;
                if published != recovered.end {
                    return Err(format!(
                        "recovered to {}, and publishing it led to {published}",
                        recovered.end
                    ));
                }
                compare(volume, state)
                    .await
                    .map_err(|why| format!("recovered and published: {why}"))?;
                compare_snapshots(volume, state, history)
                    .await
                    .map_err(|why| format!("recovered and published: {why}"))?;
                // Later states are not in this history.
                world.observe(None);
                collect(&world, machine, volume).await?;
                compare_contents(volume, state)
                    .await
                    .map_err(|why| format!("recovered and collected: {why}"))?;
                compare_snapshots(volume, state, history)
                    .await
                    .map_err(|why| format!("recovered and collected: {why}"))?;
                let mut state = state.clone();
                if plan.keep.seconds > 0 {
                    state = undelete(&world, machine, volume, state).await?;
                    compare_contents(volume, &state)
                        .await
                        .map_err(|why| format!("undeleted: {why}"))?;
                    self.totals.emptied += empty_trash(&world, machine, volume, &state).await?;
                }
                if let Some(cloned) = &history.cloned {
                    outlives(&world, machine, volume, plan, cloned).await?;
                    self.totals.held += 1;
                }
                self.totals.snapshots += delete_snapshots(&world, machine, volume).await?;
                compare_contents(volume, &state)
                    .await
                    .map_err(|why| format!("with all snapshots deleted: {why}"))?;
                collected = Some(volume.status().collector);
            }
            Ok((recovered.end, recovered.verifier))
        });
        world.observe(None);
        let (end, verifier) = recovered?;
        if let Some(collected) = collected {
            let bucket = world.image().bucket;
            let config = config(plan);
            // Fewer bytes are not worth the requests.
            let least = config.pack_bytes / 32;
            audit::audit(&bucket)
                .and_then(|()| audit::leftovers(&bucket, config.rewrite_below, least))
                .map_err(|why| format!("the bucket after collecting: {why}"))?;
            self.totals.collections += 1;
            self.totals.collected_packs += collected.rewritten + collected.orphans_deleted;
        }
        let within = (expected.from..=expected.to).contains(&end) || expected.or == Some(end);
        if !within {
            return Err(format!(
                "recovered to {end}, which must be from {} to {}{}",
                expected.from,
                expected.to,
                expected.or.map_or(String::new(), |or| format!(", or {or}"))
            ));
        }
        self.check_verifier(end, verifier, expected)?;
        let mut inner = Vec::new();
        if let Some(recorder) = recorder {
            let mut stops = recorder.lock().take();
            if let Some(last) = stops.last() {
                audit::audit(&last.image.bucket)
                    .map_err(|why| format!("the bucket after recovery: {why}"))?;
                self.totals.audits += 1;
            }
            let mut random = Random::of(self.plan.seed, count);
            for _ in 0..3 {
                if !stops.is_empty() {
                    let at = random.below(stops.len() as u64) as usize;
                    let stop = stops.swap_remove(at);
                    inner.push((stop.step, stop.image, machine));
                }
            }
        }
        Ok((end, inner))
    }

    fn check_verifier(
        &self,
        end: u64,
        verifier: Option<[u8; 8]>,
        expected: &Expected,
    ) -> Result<(), String> {
        let Some(found) = verifier else { return Ok(()) };
        if expected.or != Some(end) && expected.verifier.is_some_and(|known| known != found) {
            return Err("the write verifier has changed though nothing can be lost".into());
        }
        let told = &self.unstable[..expected.honest.min(self.unstable.len())];
        match told
            .iter()
            .find(|write| write.end > end && write.verifier == found)
        {
            Some(lost) => Err(format!(
                "a write that ends at {} was answered UNSTABLE, recovery came to {end}, and the write verifier is the same",
                lost.end
            )),
            None => Ok(()),
        }
    }

    /// A recovery was stopped itself, and is repeated.
    #[allow(clippy::too_many_arguments, reason = "used in one place")]
    fn check_inner(
        &mut self,
        ledger: &Ledger,
        settled: u64,
        end: u64,
        (image, kept): (&WorldImage, u64),
        machine: usize,
    ) -> Result<(), String> {
        let published = audit::published(&image.bucket)?;
        audit::audit(&image.bucket)?;
        let pick = Random::of(self.plan.seed, self.totals.crash_states()).number();
        let logged = self.plan.journal != Journal::None && !ledger.fenced;
        let mut left_image = image.clone();
        let (on, expected, kind) = match pick % 3 {
            0 => (None, Expected::exactly(published), "another machine"),
            1 => (Some(machine), Expected::exactly(end), "same machine"),
            _ => {
                left_image.machines[machine] = left_image.machines[machine].power_cut(pick);
                let from = if logged { settled.max(published) } else { end };
                let expected = Expected {
                    from: from.min(end),
                    ..Expected::exactly(end)
                };
                (Some(machine), expected, "power cut")
            }
        };
        self.totals.within_recovery += 1;
        self.totals.count(kind);
        self.recover((&left_image, kept), on, &expected, None)
            .map(drop)
    }
}
