//! Calls as they are answered, for those that watch them: traces and the log of slow calls.
//!
//! Without a watcher a call costs one comparison: its time with the time from which on someone wants to see calls.
//! A watcher that takes them too slowly loses some, which are counted; no call waits for one.
//!
//! * `arguments`: the object, names, offset and size of a call.

mod arguments;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use forebay_waits::Summary;
use parking_lot::RwLock;
use tokio::sync::mpsc;

use crate::engine::Session;
use crate::nfs3::{PROCEDURES, Status};
use crate::rpc::{Answered, Call, Credential, Reply};
use arguments::Arguments;

/// No time: longer than any call.
const NEVER: u64 = u64::MAX;

/// A call of NFS that was answered.
#[derive(Clone, Debug)]
pub struct SeenCall {
    /// When its last byte was read.
    pub arrived: SystemTime,
    /// Address of the client.
    pub client: IpAddr,
    /// The user, as the call claims; `None` without AUTH_SYS.
    pub user: Option<u32>,
    /// Name of the procedure.
    pub procedure: &'static str,
    /// Number of the file or directory that its handle names; `None` without a handle that this server made.
    pub fileid: Option<u64>,
    /// The name in that directory that the call is about. From the network: it may have any bytes, at most 255.
    pub name: Option<Vec<u8>>,
    /// The directory and name that LINK or RENAME makes.
    pub to: Option<(u64, Vec<u8>)>,
    /// Offset in bytes of READ, WRITE and COMMIT.
    pub offset: Option<u64>,
    /// Bytes that are read, written, committed, or wanted of a listing.
    pub size: Option<u64>,
    /// `ok`, the name of an `nfsstat3`, or `refused` if the call was denied or rejected.
    pub result: &'static str,
    /// From its last byte to the reply.
    pub time: Duration,
    /// What it has waited for, and the requests that it has caused.
    pub summary: Summary,
}

/// The calls that a watcher wants.
#[derive(Clone, Debug, Default)]
pub struct CallFilter {
    /// Only those of this client.
    pub client: Option<IpAddr>,
    /// Only those of this procedure, of [`PROCEDURES`].
    pub procedure: Option<&'static str>,
    /// Only those that take at least this long.
    pub at_least: Duration,
}

/// Handle for watching the calls of a server. Its clones belong to the same server.
#[derive(Clone, Debug, Default)]
pub struct CallWatch(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    /// Nanoseconds from which on a call is looked at.
    above: AtomicU64,
    watched: RwLock<Watched>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            above: AtomicU64::new(NEVER),
            watched: RwLock::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Watched {
    /// Calls that take as long are counted as slow.
    slow: Option<Duration>,
    watchers: Vec<Watcher>,
    /// The number of the next watcher.
    next: u64,
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    filter: CallFilter,
    calls: mpsc::Sender<SeenCall>,
    lost: Arc<AtomicU64>,
}

impl Watched {
    fn above(&self) -> u64 {
        let watchers = self.watchers.iter().map(|own| own.filter.at_least);
        let times = watchers.chain(self.slow).map(nanos);
        times.min().unwrap_or(NEVER)
    }
}

impl CallWatch {
    /// Counts calls that take at least this long as slow from now on; `None` counts none.
    pub fn count_slow(&self, limit: Option<Duration>) {
        let mut watched = self.0.watched.write();
        watched.slow = limit;
        self.0.above.store(watched.above(), Ordering::Relaxed);
    }

    /// Watches the calls that are answered from now on, until the result is dropped. At most `room` of them are kept
    /// while they are not taken.
    pub fn watch(&self, filter: CallFilter, room: usize) -> SeenCalls {
        let (calls, taken) = mpsc::channel(room);
        let lost = Arc::new(AtomicU64::new(0));
        let mut watched = self.0.watched.write();
        let number = watched.next;
        watched.next += 1;
        watched.watchers.push(Watcher {
            number,
            filter,
            calls,
            lost: lost.clone(),
        });
        self.0.above.store(watched.above(), Ordering::Relaxed);
        SeenCalls {
            number,
            watch: Arc::downgrade(&self.0),
            calls: taken,
            lost,
        }
    }

    /// Nanoseconds from which on a call is to be passed to [`CallWatch::answered`].
    #[inline]
    pub(crate) fn above(&self) -> u64 {
        self.0.above.load(Ordering::Relaxed)
    }

    /// A call was answered, after at least [`CallWatch::above`].
    #[cold]
    pub(crate) fn answered<F>(
        &self,
        session: &Session<F>,
        record: &[u8],
        procedure: u32,
        reply: &Reply,
        time: Duration,
    ) {
        let watched = self.0.watched.read();
        if watched.slow.is_some_and(|limit| time >= limit) {
            session.engine.metrics.slow_calls.add(1);
        }
        let Some(procedure) = PROCEDURES.get(procedure as usize) else {
            return;
        };
        let client = session.client.address;
        let mut seen = None;
        for watcher in &watched.watchers {
            if !watcher.filter.admits(client, procedure, time) {
                continue;
            }
            let seen = seen.get_or_insert_with(|| see(session, record, procedure, reply, time));
            if watcher.calls.try_send(seen.clone()).is_err() {
                watcher.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl CallFilter {
    fn admits(&self, client: IpAddr, procedure: &str, time: Duration) -> bool {
        self.client.is_none_or(|wanted| wanted == client)
            && self.procedure.is_none_or(|wanted| wanted == procedure)
            && time >= self.at_least
    }
}

/// The calls that a watcher gets.
#[derive(Debug)]
pub struct SeenCalls {
    number: u64,
    watch: Weak<Watch>,
    calls: mpsc::Receiver<SeenCall>,
    lost: Arc<AtomicU64>,
}

/// What a watcher gets.
#[derive(Clone, Debug)]
pub enum Seen {
    /// The next call.
    Call(Box<SeenCall>),
    /// This number of calls is left out here: they were not taken fast enough.
    Lost(u64),
}

impl SeenCalls {
    /// Returns the next call, or the number of those that were left out; `None` when the server has ended. May be
    /// cancelled without loss.
    pub async fn next(&mut self) -> Option<Seen> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            return Some(Seen::Lost(lost));
        }
        let call = self.calls.recv().await?;
        Some(Seen::Call(Box::new(call)))
    }
}

impl Drop for SeenCalls {
    fn drop(&mut self) {
        let Some(watch) = self.watch.upgrade() else {
            return;
        };
        let mut watched = watch.watched.write();
        watched.watchers.retain(|own| own.number != self.number);
        watch.above.store(watched.above(), Ordering::Relaxed);
    }
}

fn see<F>(
    session: &Session<F>,
    record: &[u8],
    procedure: &'static str,
    reply: &Reply,
    time: Duration,
) -> SeenCall {
    let call = Call::decode(record).ok();
    let user = call.as_ref().and_then(|call| match &call.credential {
        Credential::Sys(caller) => Some(caller.uid),
        Credential::None | Credential::Tls => None,
    });
    let arguments = call.map(|call| Arguments::of(procedure, call.arguments));
    let arguments = arguments.unwrap_or_default();
    let fileid = |handle: &[u8]| {
        let named = session.engine.handles.decode(handle).ok()?;
        Some(named.inode.0)
    };
    let to = arguments.to.and_then(|(directory, name)| {
        let directory = fileid(directory)?;
        Some((directory, arguments::kept(name)))
    });
    let call = forebay_waits::current();
    SeenCall {
        arrived: SystemTime::now()
            .checked_sub(time)
            .unwrap_or(SystemTime::UNIX_EPOCH),
        client: session.client.address,
        user,
        procedure,
        fileid: arguments.handle.and_then(fileid),
        name: arguments.name.map(arguments::kept),
        to,
        offset: arguments.offset,
        size: arguments.size,
        result: result(reply),
        time,
        summary: call
            .map(|call| call.summary(Instant::now()))
            .unwrap_or_default(),
    }
}

fn result(reply: &Reply) -> &'static str {
    match reply.answered() {
        Answered::Status(0) => "ok",
        Answered::Status(status) => {
            let mut names = Status::NAMES.iter();
            let name = names.find(|(known, _)| *known == status);
            name.map_or("unknown", |(_, name)| name)
        }
        Answered::Refused => "refused",
    }
}

/// A time in nanoseconds.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn calls_are_looked_at_from_the_shortest_time_that_is_wanted() {
        let watch = CallWatch::default();
        assert_eq!(watch.above(), NEVER);
        watch.count_slow(Some(SECOND));
        assert_eq!(watch.above(), 1_000_000_000);
        let filter = CallFilter {
            at_least: 2 * SECOND,
            ..CallFilter::default()
        };
        let slower = watch.watch(filter, 1);
        assert_eq!(watch.above(), 1_000_000_000);
        let all = watch.watch(CallFilter::default(), 1);
        assert_eq!(watch.above(), 0);
        drop(all);
        watch.count_slow(None);
        assert_eq!(watch.above(), 2_000_000_000);
        drop(slower);
        assert_eq!(watch.above(), NEVER);
    }

    #[test]
    fn a_filter_has_to_hold_as_a_whole() {
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let filter = CallFilter {
            client: Some(one),
            procedure: Some("READ"),
            at_least: SECOND,
        };
        assert!(filter.admits(one, "READ", SECOND));
        assert!(!filter.admits(other, "READ", SECOND));
        assert!(!filter.admits(one, "WRITE", SECOND));
        assert!(!filter.admits(one, "READ", SECOND / 2));
        assert!(CallFilter::default().admits(other, "NULL", Duration::ZERO));
    }

    #[tokio::test]
    async fn the_end_of_the_server_ends_a_watch() {
        let watch = CallWatch::default();
        let mut calls = watch.watch(CallFilter::default(), 1);
        drop(watch);
        assert!(calls.next().await.is_none());
    }
}
