//! The worker: steps, and commands beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use forebay_client::{FileKind, Handle, LinkError, Reach as _};

use super::{SharedKept, Standing, Taken, bytes, name, open};
use crate::gate::{Gate, Phase, Shared};
use crate::observe::Observer;
use crate::random::Random;
use crate::server::ServerError;

/// How many snapshots and copies stay.
const MOST: usize = 2;
/// The pause between steps.
const PAUSE: Duration = Duration::from_millis(4);
/// Numbers of observers from which those of the worker begin.
const FIRST: u32 = 0x4000;

/// Why the worker cannot go on.
#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Command(#[from] ServerError),
}

/// The worker.
pub struct Keeper {
    shared: Arc<Shared>,
    kept: SharedKept,
    random: Random,
}

impl Keeper {
    /// A worker that records into `kept`.
    pub fn new(shared: Arc<Shared>, kept: SharedKept, random: Random) -> Keeper {
        Keeper {
            shared,
            kept,
            random,
        }
    }

    /// Works until `finishing` is set or an error is found, which it reports.
    pub fn run(mut self) {
        let mut gate = Gate::new(self.shared.clone());
        let mut life = 0;
        while !self.is_finishing()
            && let Some(reached) = gate.reach()
        {
            life += 1;
            match self.serve(reached.address, life) {
                Ok(()) => {}
                // The end of the program.
                Err(_) if self.shared.is_closed() => {}
                Err(wrong) => {
                    self.shared.fail(format!("snapshots: {wrong}"));
                    break;
                }
            }
        }
        self.shared.end();
    }

    fn is_finishing(&self) -> bool {
        self.shared.finishing.load(Ordering::Acquire)
    }

    /// Works as long as one process serves. Rests in every second one: a snapshot closes a checkpoint and publishes it,
    /// and the others show how far the bucket may be behind.
    fn serve(&mut self, address: SocketAddr, life: u32) -> Result<(), Wrong> {
        let mut observer = Observer::new(address, FIRST | life & (FIRST - 1));
        while !self.is_finishing() && !self.shared.is_closed() {
            // Flushes of its own must not hide that others are missing.
            self.shared.stable_calls.fetch_add(1, Ordering::AcqRel);
            let worked = match self.shared.phase() == Phase::Any && !life.is_multiple_of(2) {
                true => self.work(&mut observer),
                false => Ok(()),
            };
            self.shared.stable_calls.fetch_sub(1, Ordering::AcqRel);
            worked?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn work(&mut self, observer: &mut Observer) -> Result<(), Wrong> {
        self.clean(observer)?;
        match self.random.below(10) {
            0..=4 => self.snapshot(observer),
            5 | 6 => self.delete(observer),
            _ => self.restore(observer),
        }
    }

    /// The next step.
    fn step(&self, observer: &mut Observer) -> Result<(), Wrong> {
        let (step, directory) = {
            let mut kept = open(&self.kept);
            kept.began += 1;
            (kept.began, kept.steps.clone())
        };
        match step % 4 {
            1 | 2 => {
                let file = if step % 4 == 1 { "a" } else { "b" };
                let handle = observer.find(&directory, file)?;
                observer.put(&handle, &bytes(step))?;
            }
            3 => drop(observer.make_file(&directory, &name(step))?),
            _ => observer.remove(&directory, &name(step.saturating_sub(5)))?,
        }
        open(&self.kept).answered = step;
        Ok(())
    }

    /// Runs a command, with steps beside it. Returns whether it is done, and the outcome of the steps: the program may
    /// be killed after it has acknowledged the command.
    fn command(
        &self,
        observer: &mut Observer,
        words: &[&str],
    ) -> (Result<bool, Wrong>, Result<(), Wrong>) {
        let program = open(&self.kept).program.clone();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let command = thread::spawn(move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            program.ask(&words)
        });
        let mut stepped = Ok(());
        while !command.is_finished() {
            stepped = stepped.and_then(|()| self.step(observer));
            thread::sleep(PAUSE);
        }
        let done = match command.join() {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(ServerError::Command { said, .. }))
                if said.contains("is not in the bucket yet") =>
            {
                Ok(false)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(false),
        };
        (done, stepped)
    }

    fn snapshot(&mut self, observer: &mut Observer) -> Result<(), Wrong> {
        let name = {
            let mut kept = open(&self.kept);
            kept.named += 1;
            let name = format!("s-{}", kept.named);
            let taken = Taken {
                from: kept.answered,
                to: u64::MAX,
                standing: Standing::Begun,
            };
            kept.snapshots.insert(name.clone(), taken);
            name
        };
        let (done, stepped) = self.command(observer, &["snapshot", "create", &name]);
        let mut kept = open(&self.kept);
        let to = kept.began;
        if let Some(taken) = kept.snapshots.get_mut(&name) {
            taken.to = to;
            if matches!(done, Ok(true)) {
                taken.standing = Standing::Made(self.shared.clock.tick());
                kept.counts[0] += 1;
            }
        }
        stepped?;
        done.map(drop)
    }

    fn delete(&mut self, observer: &mut Observer) -> Result<(), Wrong> {
        let name = {
            let mut kept = open(&self.kept);
            let is_made =
                |(_, one): &(&String, &mut Taken)| matches!(one.standing, Standing::Made(_));
            let mut made: Vec<_> = kept.snapshots.iter_mut().filter(is_made).collect();
            if made.len() <= MOST {
                return Ok(());
            }
            let pick = self.random.below(made.len() as u64) as usize;
            let (name, taken) = made.swap_remove(pick);
            taken.standing = Standing::Leaving;
            name.clone()
        };
        let (done, stepped) = self.command(observer, &["snapshot", "delete", &name]);
        let mut kept = open(&self.kept);
        if let (Some(taken), Ok(done)) = (kept.snapshots.get_mut(&name), &done) {
            match done {
                true => {
                    taken.standing = Standing::Gone;
                    kept.counts[1] += 1;
                }
                false => taken.standing = Standing::Made(self.shared.clock.tick()),
            }
        }
        stepped?;
        done.map(drop)
    }

    fn restore(&mut self, observer: &mut Observer) -> Result<(), Wrong> {
        let (from, name) = {
            let mut kept = open(&self.kept);
            let made = kept.snapshots.iter();
            let made: Vec<_> = made
                .filter(|(_, one)| matches!(one.standing, Standing::Made(_)))
                .map(|(name, one)| (name.clone(), *one))
                .collect();
            let Some((from, one)) = self.random.pick(&made) else {
                return Ok(());
            };
            kept.named += 1;
            let name = format!("r-{}", kept.named);
            let copy = Taken {
                standing: Standing::Begun,
                ..*one
            };
            kept.copies.insert(name.clone(), copy);
            (from.clone(), name)
        };
        let (path, to) = (
            format!("/{}", super::STEPS),
            format!("/{}/{name}", super::COPIES),
        );
        let words: [&str; 6] = ["restore", &path, "--from", &from, "--to", &to];
        let (done, stepped) = self.command(observer, &words);
        let mut kept = open(&self.kept);
        match &done {
            Ok(true) => {
                if let Some(copy) = kept.copies.get_mut(&name) {
                    copy.standing = Standing::Made(self.shared.clock.tick());
                    kept.counts[2] += 1;
                }
            }
            Ok(false) => drop(kept.copies.remove(&name)),
            Err(_) => {}
        }
        stepped?;
        done.map(drop)
    }

    /// Removes trees that interrupted restores have left, and the oldest copies.
    fn clean(&self, observer: &mut Observer) -> Result<(), Wrong> {
        let (back, doomed) = {
            let mut kept = open(&self.kept);
            let left = std::mem::take(&mut kept.left);
            let made = |copy: &&mut Taken| matches!(copy.standing, Standing::Made(_));
            let surplus = kept.copies.values_mut().filter(made).count();
            let surplus = surplus.saturating_sub(MOST);
            for copy in kept.copies.values_mut().filter(made).take(surplus) {
                copy.standing = Standing::Leaving;
            }
            let copies = kept.copies.iter();
            let leaving = copies.filter(|(_, copy)| copy.standing == Standing::Leaving);
            let leaving: Vec<_> = leaving.map(|(name, _)| name.clone()).collect();
            (kept.back.clone(), [left, leaving].concat())
        };
        for name in doomed {
            remove_tree(observer, &back, &name)?;
            if let Some(copy) = open(&self.kept).copies.get_mut(&name) {
                copy.standing = Standing::Gone;
            }
        }
        Ok(())
    }
}

/// Removes a directory and everything in it, which has no directories.
fn remove_tree(observer: &mut Observer, parent: &Handle, name: &str) -> Result<(), Wrong> {
    let top = observer.find(parent, name)?;
    if observer.attributes(&top)?.kind == FileKind::Directory {
        for (name, ..) in observer.list(&top, 0)? {
            observer.remove(&top, &name)?;
        }
        return Ok(observer.remove_directory(parent, name)?);
    }
    Ok(observer.remove(parent, name)?)
}
