//! The well-behaved client: a few calls at a steady pace over four connections from one address, like a machine with
//! `nconnect=4` and little load. It measures each call, checks every byte it reads, and records acknowledged data.

mod attributes;
mod files;
mod listing;
mod reads;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_client::{
    Create, Failure, Handle, Link, LinkError, Reply, Request, Stable, Status, Steady,
};
use forebay_crash::random::content;

use crate::latency::Latencies;
use crate::world::{Door, World};

/// Its address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A call without an answer for this time, while the server runs, counts as unanswered.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// How long it waits before it repeats a call that was answered "later".
const LATER: Duration = Duration::from_millis(100);

/// Size of the file that it reads all the time.
const HOT_BYTES: usize = 4 << 20;

/// Seed of that file's bytes.
const HOT_SEED: u64 = 7_001;

/// Number of names in its small directory.
const SMALL_NAMES: u32 = 50;

/// Directory of the files that it makes.
const FILES: &str = "polite/files";

/// Latencies before and after the rude clients have begun.
#[derive(Debug, Default)]
pub struct Meter {
    /// Alone.
    pub alone: Latencies,
    /// Beside the rude clients.
    pub beside: Arc<Latencies>,
    rude: AtomicBool,
}

impl Meter {
    /// Called when the rude clients begin.
    pub fn rude_clients_begin(&self) {
        self.rude.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> &Latencies {
        match self.rude.load(Ordering::Relaxed) {
            true => &self.beside,
            false => &self.alone,
        }
    }
}

/// A kind of call that is measured.
struct Call {
    /// Name in the table.
    name: &'static str,
    /// Whether it needs no bucket, so that the goal applies.
    has_goal: bool,
    /// Interval between two calls.
    interval: Duration,
}

/// The objects that the client makes before it begins.
#[derive(Clone, Debug)]
struct Home {
    hot: Handle,
    small: Handle,
    files: Handle,
}

/// A connection of the well-behaved client.
struct Client {
    world: Arc<World>,
    meter: Arc<Meter>,
    home: Home,
    link: Link<Door>,
}

/// Why a connection cannot continue.
enum Trouble {
    /// The link has ended.
    Link(LinkError),
    /// A call was answered with an error, or with wrong bytes.
    Wrong(String),
}

impl From<LinkError> for Trouble {
    fn from(error: LinkError) -> Trouble {
        Trouble::Link(error)
    }
}

impl Client {
    fn new(world: &Arc<World>, meter: &Arc<Meter>, home: &Home) -> Client {
        let link = Link::new(Door::new(world.clone()), world.first_call(), TIMEOUT);
        Client {
            world: world.clone(),
            meter: meter.clone(),
            home: home.clone(),
            link: link.from_address(IpAddr::V4(ADDRESS)),
        }
    }

    /// Repeats a call until it is answered other than with "later", and measures it unless the server was restarted
    /// meanwhile.
    /// `fine` is a status that counts as success for a call that was sent twice, because the first one may have been
    /// executed.
    fn ask<T>(
        &mut self,
        call: &Call,
        request: &Request,
        fine: Option<Status>,
        results: impl Fn(Reply) -> Result<T, Failure>,
    ) -> Result<Option<T>, Trouble> {
        let opening = self.world.opening();
        let began = Instant::now();
        let (mut later, mut repeated) = (0, false);
        let result = loop {
            self.link.send(request)?;
            let answer = self.link.receive()?.ok_or(LinkError::Gone)?;
            repeated |= answer.sent > 1;
            match results(answer.reply) {
                Err(Failure::Status(Status::JUKEBOX)) if began.elapsed() < TIMEOUT => {
                    later += 1;
                    thread::sleep(LATER);
                }
                other => break other,
            }
        };
        if opening.is_some() && opening == self.world.opening() {
            let latencies = self.meter.now();
            latencies.record(
                call.name,
                call.has_goal,
                call.interval,
                began.elapsed(),
                later,
            );
        }
        match result {
            Ok(results) => Ok(Some(results)),
            Err(Failure::Status(status)) if repeated && fine == Some(status) => Ok(None),
            Err(failure) => Err(Trouble::Wrong(format!(
                "{} of the well-behaved client: {failure}",
                call.name
            ))),
        }
    }

    /// The same for a call for which no error counts as success.
    fn get<T>(
        &mut self,
        call: &Call,
        request: &Request,
        results: impl Fn(Reply) -> Result<T, Failure>,
    ) -> Result<T, Trouble> {
        let got = self.ask(call, request, None, results)?;
        got.ok_or_else(|| Trouble::Wrong(format!("{}: no results", call.name)))
    }
}

fn wrong(what: impl Into<String>) -> Trouble {
    Trouble::Wrong(format!("the well-behaved client: {}", what.into()))
}

/// One round of a connection's calls, repeated without end; the argument is the number of rounds before.
type Round = fn(&mut Client, u64) -> Result<(), Trouble>;

const ROUNDS: [(Round, Duration); 4] = [
    (attributes::round, attributes::INTERVAL),
    (reads::round, reads::INTERVAL),
    (files::round, files::INTERVAL),
    (listing::round, listing::INTERVAL),
];

/// Makes the files that the client needs, and starts it.
///
/// # Errors
/// If they cannot be made.
pub fn start(world: &Arc<World>, meter: &Arc<Meter>) -> Result<Vec<JoinHandle<()>>, LinkError> {
    let home = make_home(world)?;
    world.ledger.exact(FILES.to_owned());
    let threads = ROUNDS.map(|(round, interval)| {
        let (world, meter, home) = (world.clone(), meter.clone(), home.clone());
        thread::spawn(move || rounds(&world, &meter, &home, round, interval))
    });
    Ok(threads.into())
}

fn rounds(world: &Arc<World>, meter: &Arc<Meter>, home: &Home, round: Round, interval: Duration) {
    let mut client = Client::new(world, meter, home);
    let mut number = 0;
    while world.pause_polite(interval) {
        number += 1;
        match round(&mut client, number) {
            Ok(()) => {}
            Err(Trouble::Link(_)) if world.is_ending() => return,
            Err(Trouble::Link(error)) => {
                world.finding(format!("the well-behaved client: {error}"));
                client = Client::new(world, meter, home);
            }
            Err(Trouble::Wrong(what)) => world.finding(what),
        }
    }
}

fn make_home(world: &World) -> Result<Home, LinkError> {
    let link = Link::new(Steady::new(world.address), world.first_call(), TIMEOUT);
    let mut link = link.from_address(IpAddr::V4(ADDRESS));
    let mut directory = |parent: &Handle, name: &[u8]| {
        let made = link.get(&Request::mkdir(parent, name, 0o755), Reply::made);
        made.map(|found| found.handle)
    };
    let own = directory(&world.root, b"polite")?;
    let small = directory(&own, b"small")?;
    let files = directory(&own, b"files")?;
    let mut file = |parent: &Handle, name: &str| {
        let create = Request::create(parent, name.as_bytes(), Create::Unchecked, 0o644);
        link.get(&create, Reply::made).map(|found| found.handle)
    };
    for number in 0..SMALL_NAMES {
        file(&small, &small_name(number))?;
    }
    let hot = file(&own, "hot")?;
    for (index, piece) in content(HOT_SEED, HOT_BYTES).chunks(1 << 20).enumerate() {
        let write = Request::write(&hot, (index as u64) << 20, piece, Stable::FileSync);
        link.get(&write, Reply::written)?;
    }
    let kept = crate::ledger::Kept {
        seed: HOT_SEED,
        length: HOT_BYTES,
    };
    world.ledger.keep("polite/hot".to_owned(), kept);
    Ok(Home { hot, small, files })
}

fn small_name(number: u32) -> String {
    format!("name{number:03}")
}
