//! The rude and hostile clients: the table of their kinds, and their common code.
//!
//! Each kind is a function in a file of its own. It has a table row, an address, and a directory in the root of the
//! volume with the name of the kind. When its connection breaks it starts over.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forebay_client::{
    Caller, Create, Failure, Handle, Link, LinkError, Malformed, Reply, Request, Status, Steady,
};

use crate::latency::Latencies;
use crate::wire::Wire;
use crate::world::World;

mod big_listing;
mod byte_gaps;
mod churn;
mod copy_and_list;
mod credentials;
mod deaf;
mod deep_rename;
mod denied;
mod drip;
mod emptied;
mod exclusive;
mod flood;
mod forged;
mod fragments;
mod garbage;
mod half_records;
mod huge_counts;
mod lengths;
mod links;
mod locks;
mod mounts;
mod names;
mod notify;
mod odd_names;
mod outrun;
mod past_end;
mod random_sync;
mod rename_listing;
mod replays;
mod spool;
mod strangers;
mod tls_hello;
mod trickle;
mod truncate;
mod vanish;

/// A rude client closes its connection after this time without an answer to a call.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A kind of rude client.
#[derive(Debug)]
pub struct Kind {
    /// Its name, and that of its directory.
    pub name: &'static str,
    /// Its behaviour, in a sentence.
    pub does: &'static str,
    /// Its address; the exports name 127.0.0.0/24.
    pub address: Ipv4Addr,
    /// Number of its threads.
    pub threads: usize,
    /// Pause between two turns of a thread.
    pub pause_ms: u64,
    /// The work of a turn, as the table of kinds shows it: the work and the pause give the rate.
    pub turn: &'static str,
    run: fn(&mut Place<'_>) -> Result<(), Trouble>,
}

macro_rules! kinds {
    ($(($net:literal, $host:literal) $module:ident $name:literal $threads:literal x $pause_ms:literal ms: $turn:literal; $does:literal)*) => {
        &[$(Kind {
            name: $name,
            does: $does,
            address: Ipv4Addr::new(127, 0, $net, $host),
            threads: $threads,
            pause_ms: $pause_ms,
            turn: $turn,
            run: $module::run,
        }),*]
    };
}

/// All kinds of rude clients, with their rates: the end of the address 127.0.x.y, module, name, threads, pause between
/// turns, the work of a turn; and the sentence. With these rates all of them together leave the gateway and the
/// well-behaved client a part of two processors: harm is to come from the kind of their calls, not from their number.
pub const KINDS: &[Kind] = kinds! {
    (0, 10) outrun "outrun" 2 x 25 ms: "a WRITE of 1 MiB, 8 under way";
        "writes large files faster than the bucket takes them, so that memory is full"
    (0, 11) copy_and_list "copy-and-list" 1 x 50 ms: "a WRITE of 1 MiB, 16 under way; each tenth turn a GETATTR and a LOOKUP";
        "copies a large file and lists beside it over the same connection, as `cp` and `ls` on one mount"
    (0, 12) drip "drip" 1 x 100 ms: "20 KB of replies from each of 12 connections";
        "asks for many MiB and takes the replies slowly, without ever stopping"
    (0, 13) deaf "deaf" 1 x 500 ms: "as many READs of 1 MiB as the socket takes, on each of 8 connections";
        "asks for many MiB and never reads a reply"
    (0, 14) half_records "half-records" 1 x 500 ms: "512 KiB of 1 MiB on each of 24 connections that is not open any more";
        "announces records of 1 MiB, sends half of each, and waits"
    (1, 15) strangers "strangers" 1 x 1000 ms: "up to 50 new connections, 200 in all, and one MNT";
        "has an address that is in no export, and keeps connections on which it says nothing"
    (0, 16) churn "churn" 1 x 20 ms: "a connection: with a NULL, without, or closed in one direction";
        "opens connections and closes them at once"
    (0, 17) garbage "garbage" 1 x 100 ms: "300 random bytes, with and without a record mark";
        "sends bytes that are no RPC"
    (0, 18) lengths "lengths" 1 x 100 ms: "one record of 13 wrong ones";
        "sends records whose marks, lengths and values contradict each other"
    (0, 19) tls_hello "tls-hello" 1 x 200 ms: "a TLS hello, with and without an AUTH_TLS call before it";
        "speaks TLS to a gateway that has none"
    (0, 20) fragments "fragments" 1 x 100 ms: "a GETATTR of 100 fragments";
        "sends each call in fragments of one byte"
    (0, 21) deep_rename "deep-rename" 1 x 20 ms: "a level, and a RENAME from the root's side to the bottom";
        "makes an ever deeper tree and renames across directories into its depth"
    (0, 22) rename_listing "rename-listing" 1 x 10 ms: "an entry of the listing is renamed";
        "renames the names that it lists while it lists them"
    (0, 23) big_listing "big-listing" 1 x 200 ms: "a READDIRPLUS of 1 MiB";
        "lists a directory of 3,000 names from the start, from the middle and from cookies that it has made up"
    (0, 24) huge_counts "huge-counts" 1 x 50 ms: "one call of 7";
        "asks for replies of 4 GiB, of nothing, and of one byte"
    (0, 25) emptied "emptied" 1 x 20 ms: "10 CREATEs and 10 REMOVEs; each tenth turn a listing";
        "fills directories, empties them, and lists them when they are empty"
    (0, 26) spool "spool" 1 x 20 ms: "CREATE, WRITE of 1 KiB, RENAME to another directory, REMOVE";
        "is a queue of messages: files that come, move and go"
    (0, 27) locks "locks" 1 x 20 ms: "16 LOCKs and 16 UNLOCKs, of 400 owners";
        "locks and unlocks parts of one file in the name of many owners, and waits for some"
    (0, 28) notify "notify" 1 x 20 ms: "10 SM_NOTIFYs and 10 LOCKs under new names";
        "says in ever other names that machines have restarted"
    (0, 29) byte_gaps "byte-gaps" 1 x 100 ms: "50 WRITEs of one byte; each tenth turn a READ of 1 MiB over them";
        "writes single bytes with gaps between them and reads over them"
    (0, 30) random_sync "random-sync" 1 x 10 ms: "a WRITE of 4 KiB, FILE_SYNC";
        "writes blocks at random places of a file, each stable, as a database does"
    (0, 31) truncate "truncate" 1 x 20 ms: "a SETATTR of the size, and a WRITE of 4 KiB at the end";
        "truncates a file up and down"
    (0, 32) names "names" 1 x 100 ms: "32 CREATEs at once";
        "makes names, and never removes one"
    (0, 33) forged "forged" 1 x 20 ms: "a GETATTR and a WRITE";
        "uses file handles that it has made up, or changed in one bit"
    (0, 34) replays "replays" 1 x 50 ms: "3 CREATEs under one number";
        "repeats transaction numbers, with the same and with other content"
    (0, 35) exclusive "exclusive" 1 x 50 ms: "4 CREATEs and a REMOVE";
        "makes the same name EXCLUSIVE under the same and under other verifiers"
    (0, 36) past_end "past-end" 1 x 20 ms: "one call of 6";
        "reads and writes behind the end of files and of all offsets"
    (0, 37) mounts "mounts" 1 x 20 ms: "17 calls of MOUNT";
        "mounts and unmounts paths that exist, paths that do not, and bytes that are no path"
    (0, 38) denied "denied" 1 x 20 ms: "10 calls that have to be refused";
        "is a user without rights, and makes calls that only root may make"
    (0, 39) vanish "vanish" 1 x 100 ms: "8 calls or half a WRITE of 1 MiB, then a reset";
        "vanishes in the middle of calls"
    (0, 40) flood "flood" 1 x 20 ms: "64 GETATTRs at once";
        "asks the same again and again"
    (0, 41) credentials "credentials" 1 x 50 ms: "one call of 10";
        "has credentials of all kinds, and speaks other versions and programs"
    (0, 42) trickle "trickle" 1 x 200 ms: "one byte on each of 16 connections";
        "sends a record byte by byte"
    (0, 43) links "links" 1 x 20 ms: "LINK and REMOVE; each fourth turn two SYMLINKs";
        "gives one file many names, and makes symbolic links that point to each other"
    (0, 44) odd_names "odd-names" 1 x 50 ms: "one name of 10, made, looked up and removed";
        "uses names that are empty, too long, no text, or have a meaning of their own"
};

/// The kind of this name.
pub fn named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

impl Kind {
    fn pause(&self) -> Duration {
        Duration::from_millis(self.pause_ms)
    }
}

/// The table of kinds, in Markdown.
pub fn table() -> String {
    let mut text = String::from(
        "| kind | address | threads | a turn | pause | it |\n|---|---|--:|---|--:|---|\n",
    );
    for kind in KINDS {
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} ms | {} |\n",
            kind.name, kind.address, kind.threads, kind.turn, kind.pause_ms, kind.does
        ));
    }
    text
}

/// Counts of a kind's work in a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// Turns of all of its threads.
    pub turns: AtomicU64,
    /// Number of restarts after a connection broke or a call had no answer.
    pub restarts: AtomicU64,
    /// Of these, calls without an answer for two minutes.
    pub unanswered: AtomicU64,
}

/// Why a client cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The connection has ended: the client starts over.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// The same over a [`Link`], or the server breaks the protocol.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A forbidden answer.
    #[error("{0}")]
    Wrong(String),
}

impl From<Malformed> for Trouble {
    fn from(error: Malformed) -> Trouble {
        Trouble::Wrong(error.to_string())
    }
}

/// Returns a forbidden answer as an error.
fn wrong<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Wrong(what.into()))
}

/// State of one thread of a kind.
pub(crate) struct Place<'w> {
    world: &'w World,
    kind: &'static Kind,
    tally: &'w Tally,
    latencies: &'w Latencies,
    /// Number of the thread within its kind.
    thread: usize,
    /// Number of its lives so far, which makes names that it has not used before.
    life: u64,
    /// Turns of this thread.
    turn: u64,
    random: forebay_crash::random::Random,
}

impl Place<'_> {
    /// Waits for the next turn; returns false when the run ends.
    fn turn(&mut self) -> bool {
        let pause = self.kind.pause().min(self.world.longest_pause);
        if self.world.turns.is_some_and(|turns| self.turn >= turns) || !self.world.pause(pause) {
            return false;
        }
        self.turn += 1;
        self.tally.turns.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Whether this turn is one in `turns`.
    fn each(&self, turns: u64) -> bool {
        self.turn.is_multiple_of(turns)
    }

    /// A connection for calls as root.
    fn link(&self) -> Link<Steady> {
        let (world, source) = (self.world, IpAddr::V4(self.kind.address));
        Link::new(Steady::new(world.address), world.first_call(), TIMEOUT).from_address(source)
    }

    /// A connection for calls as a user.
    fn link_as(&self, uid: u32) -> Link<Steady> {
        self.link().in_the_name_of(Caller { uid, gid: uid })
    }

    /// A connection for any bytes.
    fn wire(&self) -> io::Result<Wire> {
        Wire::open(self.kind.address, self.world.address, None)
    }

    /// A connection for which the kernel buffers little.
    fn narrow_wire(&self) -> io::Result<Wire> {
        Wire::open(self.kind.address, self.world.address, Some(64 << 10))
    }

    /// The directory of this kind.
    fn home(&self, link: &mut Link<Steady>) -> Result<Handle, Trouble> {
        directory(link, &self.world.root, self.kind.name)
    }

    /// A directory for this thread in this life.
    fn own(&self, link: &mut Link<Steady>) -> Result<Handle, Trouble> {
        let home = self.home(link)?;
        directory(link, &home, &self.own_name())
    }

    /// Name of that directory.
    fn own_name(&self) -> String {
        format!("{}-{}", self.thread, self.life)
    }

    /// Makes the bytes unique; only the first ones differ.
    fn stamp(&mut self, data: &mut [u8]) {
        if let Some(first) = data.first_chunk_mut() {
            *first = self.random.number().to_le_bytes();
        }
    }
}

/// Makes or opens a directory.
fn directory(link: &mut Link<Steady>, parent: &Handle, name: &str) -> Result<Handle, Trouble> {
    let made = link.call(&Request::mkdir(parent, name.as_bytes(), 0o755))?;
    match made.made() {
        Ok(found) => Ok(found.handle),
        Err(Failure::Status(Status::EXIST)) => lookup(link, parent, name),
        Err(failure) => wrong(format!("MKDIR of {name}: {failure}")),
    }
}

fn lookup(link: &mut Link<Steady>, parent: &Handle, name: &str) -> Result<Handle, Trouble> {
    let request = Request::lookup(parent, name.as_bytes());
    Ok(link.get(&request, Reply::found)?.handle)
}

/// Makes an empty file; an existing one is emptied.
fn file(link: &mut Link<Steady>, parent: &Handle, name: &str) -> Result<Handle, Trouble> {
    let request = Request::create(parent, name.as_bytes(), Create::Unchecked, 0o644);
    Ok(link.get(&request, Reply::made)?.handle)
}

/// The result of a call: success, or its status.
fn status(link: &mut Link<Steady>, request: &Request) -> Result<Option<Status>, Trouble> {
    match link.call(request)?.done() {
        Ok(()) => Ok(None),
        Err(Failure::Status(status)) => Ok(Some(status)),
        Err(Failure::Malformed(error)) => Err(error.into()),
    }
}

/// Makes a call that must return one of these statuses; 0 is success.
fn expect(link: &mut Link<Steady>, request: &Request, allowed: &[u32]) -> Result<(), Trouble> {
    let status = status(link, request)?.map_or(0, |status| status.0);
    match allowed.contains(&status) {
        true => Ok(()),
        false => wrong(format!(
            "{} was answered with {}, and not with one of {allowed:?}",
            request.name,
            match status {
                0 => "success".to_owned(),
                other => Status(other).to_string(),
            }
        )),
    }
}

/// Takes answers until at most `under_way` calls are in flight; each must be success, or JUKEBOX.
fn settle(link: &mut Link<Steady>, under_way: usize) -> Result<(), Trouble> {
    while link.outstanding() > under_way {
        let Some(answer) = link.receive()? else {
            return Ok(());
        };
        match answer.reply.done() {
            Ok(()) | Err(Failure::Status(Status::JUKEBOX)) => {}
            Err(failure) => return wrong(format!("one of many calls: {failure}")),
        }
    }
    Ok(())
}

/// Starts all threads of a kind.
pub fn start(
    world: &Arc<World>,
    kind: &'static Kind,
    tally: &Arc<Tally>,
    latencies: &Arc<Latencies>,
) -> Vec<JoinHandle<()>> {
    let threads = (0..kind.threads).map(|thread| {
        let (world, tally, latencies) = (world.clone(), tally.clone(), latencies.clone());
        thread::spawn(move || lives(&world, kind, &tally, &latencies, thread))
    });
    threads.collect()
}

/// Starts over whenever a connection has ended.
fn lives(world: &World, kind: &'static Kind, tally: &Tally, latencies: &Latencies, thread: usize) {
    let mut place = Place {
        world,
        kind,
        tally,
        latencies,
        thread,
        life: 0,
        turn: 0,
        random: forebay_crash::random::Random::new(kind.pause_ms + thread as u64),
    };
    loop {
        match (kind.run)(&mut place) {
            // Errors at the end of the run do not count.
            _ if world.is_ending() => return,
            Ok(()) => return,
            Err(Trouble::Wrong(what)) => world.finding(format!("{}: {what}", kind.name)),
            Err(Trouble::Link(LinkError::Gone) | Trouble::Connection(_)) => {}
            Err(Trouble::Link(LinkError::Stuck { .. })) => {
                tally.unanswered.fetch_add(1, Ordering::Relaxed);
            }
            Err(Trouble::Link(error)) => world.finding(format!("{}: {error}", kind.name)),
        }
        tally.restarts.fetch_add(1, Ordering::Relaxed);
        place.life += 1;
        if !world.pause(Duration::from_millis(100)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_and_an_address_of_its_own() {
        let mut names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        let mut addresses: Vec<_> = KINDS.iter().map(|kind| kind.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!((names.len(), addresses.len()), (KINDS.len(), KINDS.len()));
        assert!(!addresses.contains(&crate::polite::ADDRESS));
        assert!(names.len() >= 20, "{} kinds", names.len());
    }

    #[test]
    fn the_documentation_has_the_table_of_kinds() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/soak.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains(&table()),
            "docs/soak.md wants this table:\n{}",
            table()
        );
    }
}
