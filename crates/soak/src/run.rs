//! One run: the gateway with little memory, the well-behaved client alone, then beside the rude ones, two kills, and a
//! comparison of everything.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_client::{Handle, Link, LinkError, Reply, Request, Steady};
use forebay_crash::server::{Program, Server, ServerError, free_address};
use rustix::process::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::compare::{self, Compared};
use crate::latency::{self, Figures};
use crate::memory::{Sampler, processor_time};
use crate::polite::{self, Meter};
use crate::rude::{self, Kind, Tally};
use crate::world::World;

/// `memory_limit` of the gateway: the least value that it takes.
const MEMORY_LIMIT: u64 = 64 << 20;

/// `metadata_cache` of the gateway.
const METADATA_CACHE: u64 = 64 << 20;

/// The highest allocated memory of the program: `memory_limit`, and as docs/settings.md promises in addition 128 MiB,
/// `metadata_cache`, and for names a third of `memory_limit`.
pub const MEMORY_BOUND: u64 = MEMORY_LIMIT + METADATA_CACHE + (128 << 20) + MEMORY_LIMIT / 3;

/// Bytes of messages that the gateway may print, and more for each minute.
const MESSAGE_BYTES: u64 = 256 << 10;
const MESSAGE_BYTES_PER_MINUTE: u64 = 64 << 10;

/// Pause between two checks whether the gateway still runs.
const LOOK: Duration = Duration::from_millis(100);

/// Time limit of `flush` at the end: all of memory over a slow link, and the metadata.
const FLUSH_LIMIT: &str = "600s";

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The executable.
    pub program: PathBuf,
    /// Folder in which the work folder is made. On a disk: in memory the log would count as memory.
    pub folder: PathBuf,
    /// URL of an empty prefix in a bucket; `None` for a folder in the work folder.
    pub store: Option<String>,
    /// How long the rude clients are active.
    pub time: Duration,
    /// How long the well-behaved client is measured alone before that.
    pub alone: Duration,
    /// The rude clients.
    pub kinds: Vec<&'static Kind>,
    /// Further flags of the gateway.
    pub flags: Vec<String>,
}

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The gateway does not run.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A call that must work before the clients begin has failed.
    #[error("before the rude clients began: {0}")]
    Client(#[from] LinkError),
    /// An error of the system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// A requirement, and its violations.
pub type Check = (String, Vec<String>);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The requirements.
    pub checks: Vec<Check>,
    /// Latencies of the well-behaved client alone.
    pub alone: BTreeMap<String, Figures>,
    /// Latencies beside the rude clients.
    pub beside: BTreeMap<String, Figures>,
    /// Further notes, line by line.
    pub notes: Vec<String>,
    /// The work folder, if something failed.
    pub kept: Option<PathBuf>,
}

impl Outcome {
    /// The table of latencies.
    pub fn table(&self) -> String {
        latency::table(&self.alone, &self.beside)
    }
}

/// Both ends of a few hundred connections are open files of this process or of the gateway, which inherits the limit.
fn allow_open_files() -> std::io::Result<()> {
    const WANTED: u64 = 4096;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < WANTED) {
        limit.current = Some(limit.maximum.map_or(WANTED, |most| most.min(WANTED)));
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

fn program(options: &Options, work: &std::path::Path) -> Result<Program, ServerError> {
    let store = options.store.clone();
    let store = store.unwrap_or_else(|| format!("file://{}", work.join("bucket").display()));
    let mut flags = vec![
        // Strangers are 127.0.1.x.
        "--clients=127.0.0.0/24".to_owned(),
        format!("--memory-limit={MEMORY_LIMIT}B"),
        format!("--metadata-cache={METADATA_CACHE}B"),
        "--checkpoint-bytes=8MiB".to_owned(),
        "--pack-bytes=2MiB".to_owned(),
        "--upload-parallel=2".to_owned(),
        "--log-segment=16MiB".to_owned(),
        "--log-limit=512MiB".to_owned(),
    ];
    if store.starts_with("s3://") {
        // Slower than one of the writers, so that memory is full all the time.
        flags.push("--s3-upload-limit=4MiB/s".to_owned());
    }
    flags.extend(options.flags.iter().cloned());
    Ok(Program {
        path: options.program.clone(),
        store,
        data_dir: work.join("data"),
        address: free_address()?,
        flags,
        key_file: None,
        messages: work.join("messages"),
    })
}

fn mount(address: SocketAddr, first_call: u32) -> Result<Handle, LinkError> {
    let link = Link::new(Steady::new(address), first_call, polite::TIMEOUT);
    let mut link = link.from_address(IpAddr::V4(Ipv4Addr::LOCALHOST));
    link.get(&Request::mount(b"/"), Reply::mounted)
}

/// A gateway whose memory is sampled.
struct Watched {
    program: Program,
    server: Option<Server>,
    sampler: Sampler,
    /// Processor time of the killed servers, in seconds.
    processor: f64,
}

impl Watched {
    /// Starts the gateway; returns the time until it serves.
    fn start(&mut self) -> Result<Duration, ServerError> {
        let server = self.server.insert(self.program.start()?);
        self.sampler.watch(server.process_id());
        server.wait_ready()
    }

    /// Sends SIGKILL.
    fn kill(&mut self) -> Result<(), ServerError> {
        self.processor = self.processor();
        self.server.take().map_or(Ok(()), Server::kill)
    }

    /// Waits until `until` or until `done` returns true, and checks that the gateway runs.
    fn watch(&mut self, until: Instant, done: impl Fn() -> bool) -> Result<(), ServerError> {
        while Instant::now() < until && !done() {
            if let Some(server) = &mut self.server {
                server.still_runs()?;
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Processor time of all servers so far, in seconds.
    fn processor(&self) -> f64 {
        let server = self.server.as_ref();
        let now = server.and_then(|server| processor_time(server.process_id()));
        self.processor + now.unwrap_or(0.0)
    }
}

/// Executes a run. `say` receives messages about its progress.
///
/// # Errors
/// If the gateway cannot be started, or ends by itself.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<Outcome, RunError> {
    allow_open_files()?;
    let work = TempDir::with_prefix_in("forebay-soak.", &options.folder)?;
    let mut watched = Watched {
        program: program(options, work.path())?,
        server: None,
        sampler: Sampler::start(),
        processor: 0.0,
    };
    watched.start()?;
    let address = watched.program.address;
    let world = Arc::new(World::new(address, mount(address, 1)?));
    let meter = Arc::new(Meter::default());
    let polite = polite::start(&world, &meter)?;
    watched.watch(Instant::now() + options.alone, || false)?;
    let outcome = beside(options, say, &world, &meter, polite, &mut watched);
    // All threads end after any failure, too.
    world.end_all();
    let (mut checks, notes) = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            say(&format!("kept: {}", work.keep().display()));
            return Err(error);
        }
    };
    let name = "the well-behaved client got correct answers, and no rude client a wrong one";
    checks.insert(0, check(name, world.findings()));
    let failed = checks.iter().any(|(_, wrong)| !wrong.is_empty());
    Ok(Outcome {
        checks,
        alone: meter.alone.figures(),
        beside: meter.beside.figures(),
        notes,
        kept: failed.then(|| work.keep()),
    })
}

/// The part with the rude clients, to its end.
fn beside(
    options: &Options,
    say: &dyn Fn(&str),
    world: &Arc<World>,
    meter: &Arc<Meter>,
    polite: Vec<JoinHandle<()>>,
    watched: &mut Watched,
) -> Result<(Vec<Check>, Vec<String>), RunError> {
    let (mut checks, mut notes) = (Vec::new(), Vec::new());
    let (began, processor) = (Instant::now(), watched.processor());
    let own_processor = processor_time(std::process::id()).unwrap_or(0.0);
    say(&format!(
        "{} kinds of rude clients begin",
        options.kinds.len()
    ));
    meter.rude_clients_begin();
    let (mut tallies, mut rude) = (Vec::new(), Vec::new());
    for kind in &options.kinds {
        let tally = Arc::new(Tally::default());
        rude.extend(rude::start(world, kind, &tally, &meter.beside));
        tallies.push((kind, tally));
    }
    watched.watch(began + options.time / 2, || false)?;

    say("SIGKILL in the middle");
    let before = world.ledger.so_far();
    world.close();
    watched.kill()?;
    let took = watched.start()?;
    world.reopen();
    say(&format!(
        "it serves again after {:.2} s",
        took.as_secs_f64()
    ));
    let compared = compare::kept_files(world, &before);
    checks.push(nothing_lost(
        "after the kill in the middle",
        compared,
        &mut notes,
    ));
    watched.watch(began + options.time, || false)?;

    say("the well-behaved client ends");
    world.end_polite();
    let limit = Instant::now() + 2 * polite::TIMEOUT;
    let ended = || polite.iter().all(JoinHandle::is_finished);
    watched.watch(limit, ended)?;
    let unanswered = match ended() {
        true => Vec::new(),
        false => vec![format!("not after {:?}", 2 * polite::TIMEOUT)],
    };
    checks.push(check(
        "each call of the well-behaved client is answered",
        unanswered,
    ));
    let seconds = began.elapsed().as_secs_f64();
    let own = processor_time(std::process::id()).unwrap_or(0.0) - own_processor;
    notes.push(format!(
        "the gateway used {:.2} of a processor, all clients together {:.2}",
        (watched.processor() - processor) / seconds,
        own / seconds
    ));

    say("SIGKILL beside the rude clients, which end then");
    world.close();
    watched.kill()?;
    world.end_all();
    let panicked = polite.into_iter().chain(rude).map(JoinHandle::join);
    let panicked = panicked
        .filter(Result::is_err)
        .map(|_| "see above".to_owned());
    checks.push(check("no client panicked", panicked.collect()));
    let took = watched.start()?;
    say(&format!(
        "it serves again after {:.2} s",
        took.as_secs_f64()
    ));
    let compared = compare::everything(world, &world.ledger.so_far());
    checks.push(nothing_lost(
        "after the kill at the end",
        compared,
        &mut notes,
    ));
    checks.extend(last_checks(watched, began.elapsed())?);
    let samples = watched.sampler.samples();
    notes.push(format!(
        "memory: at most {} MiB of {}, {:.0} s after the start, in {} samples; {} in the end; at most {} open files",
        samples.peak >> 20,
        MEMORY_BOUND >> 20,
        samples.peak_after.as_secs_f64(),
        samples.count,
        samples.last >> 20,
        samples.files
    ));
    notes.push(turns(&tallies));
    Ok((checks, notes))
}

/// A check that holds if `wrong` is empty.
fn check(name: impl Into<String>, wrong: Vec<String>) -> Check {
    (name.into(), wrong)
}

fn nothing_lost(
    when: &str,
    compared: Result<Compared, Vec<String>>,
    notes: &mut Vec<String>,
) -> Check {
    let name = format!("nothing acknowledged is lost {when}");
    match compared {
        Ok(compared) => {
            notes.push(format!("compared {when}: {compared}"));
            check(name, Vec::new())
        }
        Err(differences) => check(name, differences),
    }
}

/// The checks after all clients have ended. The server is killed before the bucket is checked.
fn last_checks(watched: &mut Watched, ran: Duration) -> Result<Vec<Check>, RunError> {
    let failed = |asked: Result<String, ServerError>| asked.err().map(|error| error.to_string());
    let program = &watched.program;
    let flushed = program.ask(&["flush", "--timeout", FLUSH_LIMIT]);
    let mut checks = vec![check(
        "the bucket gets everything",
        failed(flushed).into_iter().collect(),
    )];
    let store = program.store.clone();
    watched.kill()?;
    let program = &watched.program;
    let checked = program.ask(&["fsck", "--read-data", "--quiet", "--store", &store]);
    checks.push(check(
        "fsck finds nothing",
        failed(checked).into_iter().collect(),
    ));

    let samples = watched.sampler.samples();
    let passed = (samples.peak > MEMORY_BOUND).then(|| {
        let (peak, at) = (samples.peak >> 20, samples.peak_after.as_secs_f64());
        format!("{peak} MiB, {at:.0} s after the start")
    });
    let name = format!("allocated memory stays below {} MiB", MEMORY_BOUND >> 20);
    checks.push(check(name, passed.into_iter().collect()));
    let messages = fs::read(&program.messages)?;
    let bound = MESSAGE_BYTES + MESSAGE_BYTES_PER_MINUTE * (ran.as_secs() / 60);
    let passed = (messages.len() as u64 > bound).then(|| {
        let kib = messages.len() >> 10;
        format!("{kib} KiB in {} s; {}", ran.as_secs(), frequent(&messages))
    });
    let name = format!("the gateway's messages stay below {} KiB", bound >> 10);
    checks.push(check(name, passed.into_iter().collect()));
    let text = String::from_utf8_lossy(&messages);
    let panics = text.lines().filter(|line| line.contains("panicked at"));
    checks.push(check(
        "the gateway never panics",
        panics.take(20).map(str::to_owned).collect(),
    ));
    Ok(checks)
}

/// The most frequent kind of message, with its numbers left out.
fn frequent(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for line in text.lines() {
        let kind = line.replace(|letter: char| letter.is_ascii_digit(), "");
        kinds.entry(kind).or_insert((0, line)).0 += 1;
    }
    let most = kinds.into_values().max_by_key(|(count, _)| *count);
    most.map_or_else(String::new, |(count, line)| {
        format!("{count} times as this: {line}")
    })
}

/// The counts of each kind.
fn turns(tallies: &[(&&'static Kind, Arc<Tally>)]) -> String {
    let turns = tallies.iter().map(|(kind, tally)| {
        let restarts = tally.restarts.load(Ordering::Relaxed);
        let unanswered = tally.unanswered.load(Ordering::Relaxed);
        let turns = tally.turns.load(Ordering::Relaxed);
        let unanswered = match unanswered {
            0 => String::new(),
            calls => format!(", unanswered for two minutes {calls}"),
        };
        format!("{} {turns} ({restarts}{unanswered})", kind.name)
    });
    let turns: Vec<_> = turns.collect();
    format!("turns, and how often it began again: {}", turns.join(", "))
}
