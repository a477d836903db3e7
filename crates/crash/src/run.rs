//! One run: load, kill, compare, continue.

mod figures;
mod landmark;
mod scene;

pub use figures::Figures;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::check::{Mismatch, Then};
use crate::gate::Phase;
use crate::history::Stamp;
use crate::observe::TIMEOUT;
use crate::options::{Mode, Options};
use crate::power::{Loss, PowerError, cut_power};
use crate::random::Random;
use crate::server::{Begun, Server, ServerError};
use scene::Scene;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The program does not run as it should.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server does not answer as it should.
    #[error("{0}")]
    Link(#[from] forebay_client::LinkError),
    /// The state found does not match the acknowledged operations.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    /// The power cut could not be simulated.
    #[error("the power cut: {0}")]
    Power(#[from] PowerError),
    /// Errors that writers have found.
    #[error("{}", .0.join("\n"))]
    Writers(Vec<String>),
    /// Another error.
    #[error("{0}")]
    Other(String),
    /// A file or folder of the harness could not be used.
    #[error("{what}: {source}")]
    Files {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Numbers of operations and comparisons.
    pub figures: Figures,
    /// The failure, and the folder that is kept for it.
    pub failure: Option<(Failure, std::path::PathBuf)>,
}

/// Percentage of lost machines before which the bucket is flushed and the answer counts.
const FLUSHED: u64 = 30;
/// Percentage of kills that are aimed at the middle of a publication.
const FLUSHING: u64 = 30;
/// One in this many lost machines is lost late enough that the age of the state is checked.
const LATE: u64 = 8;
/// Time that an upload may take beyond the interval, besides four times the slowest flush.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// Runs one mode to its end.
///
/// # Errors
/// If there is no folder to work in; every other failure is part of the outcome.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let mut scene = Scene::new(options)?;
    let result = rounds(options, &mut scene);
    scene.gather_counts();
    let figures = scene.figures.clone();
    let failure = match result {
        Ok(()) => None,
        Err(failure) => {
            scene.note(&failure);
            Some((failure, scene.keep()))
        }
    };
    Ok(Outcome { figures, failure })
}

fn rounds(options: &Options, scene: &mut Scene) -> Result<(), Failure> {
    let mut random = Random::new(options.seed ^ 0x6b69_6c6c);
    let began = Instant::now();
    let mut server = scene.begin()?;
    let mut round = 0;
    while scene.figures.kills < options.kills && began.elapsed() < options.limit {
        round += 1;
        let time = Duration::from_millis(50 + random.below(1950));
        server = match options.mode {
            Mode::Kill => {
                scene.linger(&mut server, time)?;
                let flushing = aim(scene, &mut server, &mut random, FLUSHING)?;
                let floor = scene.kill(server)?;
                drop(flushing);
                let server = scene.start(&mut random)?;
                scene.look(server, floor, Then::GoOn)?
            }
            Mode::Recovery => {
                scene.linger(&mut server, time)?;
                let flushing = aim(scene, &mut server, &mut random, FLUSHING)?;
                let floor = scene.kill(server)?;
                drop(flushing);
                let server = kill_recovery(scene, &mut random)?;
                scene.look(server, floor, Then::GoOn)?
            }
            Mode::PowerCut => {
                scene.linger(&mut server, time)?;
                cut(scene, server, &mut random)?
            }
            Mode::LostMachine => lose(scene, server, &mut random, round, time)?,
        };
    }
    finish(options, scene, server, &mut random)
}

/// Closes and publishes a checkpoint, in a percentage of the calls, so that the kill that follows hits the middle of
/// it.
fn aim(
    scene: &mut Scene,
    server: &mut Server,
    random: &mut Random,
    share: u64,
) -> Result<Option<Begun>, Failure> {
    if !random.percent(share) {
        return Ok(None);
    }
    let flushing = scene.program.begin(&["flush", "--timeout", "60s"])?;
    scene.linger(server, Duration::from_millis(random.below(80)))?;
    Ok(Some(flushing))
}

/// Kills the program several times while it starts, and lets it start in the end.
fn kill_recovery(scene: &mut Scene, random: &mut Random) -> Result<Server, Failure> {
    for _ in 0..random.below(5) {
        let mut server = scene.start_unready(random)?;
        let usual = scene.usual_start().as_micros() as u64;
        let delay = Duration::from_micros(random.below(usual + 1));
        if !server.is_ready_within(delay)? {
            scene.figures.kills_before_ready += 1;
        }
        server.kill()?;
        scene.figures.kills += 1;
    }
    scene.start(random)
}

/// Writers only send unstable writes for a while, then one kind of call that must flush the log; then the power is cut.
fn cut(scene: &mut Scene, mut server: Server, random: &mut Random) -> Result<Server, Failure> {
    settle(scene, &mut server)?;
    scene.linger(&mut server, Duration::from_millis(random.below(300)))?;
    // If these calls did not flush the data that they promise, no other call would flush them instead.
    let kinds = [Phase::Commits, Phase::StableWrites, Phase::Names];
    if let Some(kind) = random.pick(&kinds) {
        scene.shared.set_phase(*kind);
        scene.linger(&mut server, Duration::from_millis(10 + random.below(60)))?;
        settle(scene, &mut server)?;
    }
    // Everything promised so far lies before it; later writes are unstable.
    let durable = scene.program.status_number("durable_lsn")?;
    scene.linger(&mut server, Duration::from_millis(random.below(60)))?;
    scene.kill(server)?;
    let loss = match random.percent(30) {
        true => Loss::All,
        false => Loss::Torn(random.number()),
    };
    let cut = cut_power(&scene.program.data_dir, durable, loss)?;
    scene.figures.unsynced_bytes += cut.unsynced;
    scene.figures.lost_bytes += cut.lost;
    scene.shared.set_phase(Phase::Any);
    let server = scene.start(random)?;
    scene.look(server, 0, Then::SendAgain)
}

/// Restricts writers to unstable writes, and waits until all calls that promise more have their answers.
fn settle(scene: &mut Scene, server: &mut Server) -> Result<(), Failure> {
    scene.shared.set_phase(Phase::Unstable);
    let began = Instant::now();
    while scene.shared.stable_calls.load(Ordering::Acquire) > 0 {
        scene.linger(server, Duration::from_millis(5))?;
        if began.elapsed() > TIMEOUT {
            return Err(Failure::Other(
                "calls that promise stable storage have no answer".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Simulates the loss of the machine: the next one has the bucket and nothing else.
fn lose(
    scene: &mut Scene,
    mut server: Server,
    random: &mut Random,
    round: u64,
    time: Duration,
) -> Result<Server, Failure> {
    let time = match round % LATE {
        3 => scene.interval + scene.allowance() + Duration::from_millis(1500),
        _ => time,
    };
    scene.linger(&mut server, time)?;
    let mut flushing = None;
    if random.percent(FLUSHED) {
        scene.flush(&mut server)?;
        scene.linger(&mut server, Duration::from_millis(random.below(1000)))?;
    } else {
        flushing = aim(scene, &mut server, random, 2 * FLUSHING)?;
    }
    let killed = Instant::now();
    scene.kill(server)?;
    drop(flushing);
    let floor = scene.promised(killed);
    scene.lose_folder()?;
    let server = scene.start(random)?;
    let server = scene.look(server, floor, Then::Forget)?;
    scene.note_age(killed);
    Ok(server)
}

/// Writers commit their data and end; then comes a last kill, after which everything must be there.
fn finish(
    options: &Options,
    scene: &mut Scene,
    mut server: Server,
    random: &mut Random,
) -> Result<(), Failure> {
    scene.shared.finishing.store(true, Ordering::Release);
    let began = Instant::now();
    while !scene.shared.all_ended(Duration::from_millis(20)) {
        scene.linger(&mut server, Duration::ZERO)?;
        if began.elapsed() > 2 * TIMEOUT {
            return Err(Failure::Other(
                "the writers do not come to an end".to_owned(),
            ));
        }
    }
    let mut floor: Stamp = scene.shared.clock.tick();
    if options.mode == Mode::LostMachine {
        floor = scene.flush(&mut server)?;
    }
    scene.kill(server)?;
    if options.mode == Mode::LostMachine {
        scene.lose_folder()?;
    }
    let then = match options.mode {
        Mode::LostMachine => Then::Forget,
        _ => Then::GoOn,
    };
    let server = scene.start(random)?;
    let server = scene.look(server, floor, then)?;
    scene.all_as_meant()?;
    server.kill()?;
    Ok(())
}
