//! The clients that hold locks, or may: what NSM calls monitored.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_lock::Client;
use parking_lot::Mutex;

use super::Notebook;
use super::notebook::{Notes, Peer};

/// Independent parts, each with its own lock.
const SHARDS: usize = 16;

/// Clients that are noted at most, and of these those of one address.
const MAX_PEERS: usize = 4096;
const MAX_NAMES: usize = 64;

/// What is known of a client by one of its names.
struct Known {
    local: IpAddr,
    /// Calls that may be about to lock something.
    busy: usize,
    /// NSM state number that the client told last; 0 if none.
    state: i32,
}

type Shard = HashMap<IpAddr, HashMap<Vec<u8>, Known>>;

/// See the module's documentation.
pub(super) struct Peers {
    /// By address.
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    state: i32,
    /// Taken by who changes what is written. Every client that is in a shard is in the notebook.
    notebook: Arc<tokio::sync::Mutex<Arc<dyn Notebook>>>,
}

/// What the notebook said at a start.
pub(super) struct Opened {
    pub(super) peers: Peers,
    pub(super) previous: Vec<Peer>,
    /// Whether anybody held a lock, or it is not known.
    pub(super) held_locks: bool,
}

/// While it lives, the note about a client stays.
pub(crate) struct Guard<'a> {
    peers: &'a Peers,
    client: Client,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut shard = self.peers.shard(self.client.host).lock();
        if let Some(known) = Peers::find(&mut shard, &self.client) {
            known.busy = known.busy.saturating_sub(1);
        }
    }
}

impl Peers {
    /// Reads the notebook, and notes the new state number: odd, higher than the last one, and, since
    /// it follows the clock, higher than any of a notebook that was lost.
    pub(super) async fn open(
        notebook: Arc<dyn Notebook>,
        since_1970: Duration,
    ) -> io::Result<Opened> {
        let reader = notebook.clone();
        let content = blocking(move || reader.load()).await?;
        let notes = content.as_deref().map(Notes::decode);
        if matches!(notes, Some(None)) {
            tracing::error!(
                "the list of clients that hold locks is damaged: they cannot be told of the restart, and must mount again"
            );
        }
        let held_locks = match &notes {
            None => false,
            Some(None) => true,
            Some(Some(notes)) => !notes.clients.is_empty(),
        };
        let mut notes = notes.flatten().unwrap_or_default();
        // Half seconds would do until 2038.
        let clock = i32::try_from(since_1970.as_secs() / 2).unwrap_or(i32::MAX);
        notes.state = clock.max(notes.state.saturating_add(2)) | 1;
        let peers = Peers {
            shards: Default::default(),
            hasher: RandomState::new(),
            state: notes.state,
            notebook: Arc::new(tokio::sync::Mutex::new(notebook.clone())),
        };
        let content = notes.encode();
        blocking(move || notebook.replace(&content)).await?;
        for peer in &notes.clients {
            peers.add(peer);
        }
        Ok(Opened {
            peers,
            previous: notes.clients,
            held_locks,
        })
    }

    pub(super) fn state(&self) -> i32 {
        self.state
    }

    fn shard(&self, host: IpAddr) -> &Mutex<Shard> {
        // The index is taken modulo the length.
        &self.shards[self.hasher.hash_one(host) as usize % SHARDS]
    }

    fn find<'a>(shard: &'a mut Shard, client: &Client) -> Option<&'a mut Known> {
        shard.get_mut(&client.host)?.get_mut(&client.name)
    }

    fn add(&self, peer: &Peer) {
        let mut shard = self.shard(peer.client.host).lock();
        let names = shard.entry(peer.client.host).or_default();
        names.entry(peer.client.name.clone()).or_insert(Known {
            local: peer.local,
            busy: 0,
            state: 0,
        });
    }

    /// Takes a guard, if the client is noted.
    fn guard(&self, client: &Client) -> Option<Guard<'_>> {
        let mut shard = self.shard(client.host).lock();
        Peers::find(&mut shard, client)?.busy += 1;
        Some(Guard {
            peers: self,
            client: client.clone(),
        })
    }

    /// Notes a client; the note is on stable storage when this returns. Where it has to be written, those
    /// go out of it that `holds` nothing.
    pub(super) async fn note(
        &self,
        peer: &Peer,
        holds: impl Fn(&Client) -> bool,
    ) -> io::Result<Guard<'_>> {
        if let Some(guard) = self.guard(&peer.client) {
            return Ok(guard);
        }
        let notebook = self.notebook.clone().lock_owned().await;
        // Another call may have been faster.
        if let Some(guard) = self.guard(&peer.client) {
            return Ok(guard);
        }
        let mut clients = self.remaining(holds);
        let host = peer.client.host;
        let names = clients.iter().filter(|other| other.client.host == host);
        if clients.len() >= MAX_PEERS || names.count() >= MAX_NAMES {
            return Err(io::Error::other("too many clients hold locks"));
        }
        clients.push(peer.clone());
        self.write(notebook, clients).await?;
        self.add(peer);
        let guard = self.guard(&peer.client);
        guard.ok_or_else(|| io::Error::other("the note is gone"))
    }

    /// Takes those out that `holds` nothing.
    pub(super) async fn tidy(&self, holds: impl Fn(&Client) -> bool) -> io::Result<()> {
        let notebook = self.notebook.clone().lock_owned().await;
        let clients = self.remaining(holds);
        self.write(notebook, clients).await
    }

    /// Forgets who holds nothing and is not about to, and gives the others. Only with the notebook
    /// locked: what is forgotten is not in it any more when somebody else looks.
    fn remaining(&self, holds: impl Fn(&Client) -> bool) -> Vec<Peer> {
        let mut remaining = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|host, names| {
                names.retain(|name, known| {
                    let client = Client {
                        host: *host,
                        name: name.clone(),
                    };
                    let stays = known.busy > 0 || holds(&client);
                    if stays {
                        let local = known.local;
                        remaining.push(Peer { client, local });
                    }
                    stays
                });
                !names.is_empty()
            });
        }
        remaining
    }

    /// Goes on to its end if its caller is dropped: what is written, and the lock on it, belong together.
    async fn write(
        &self,
        notebook: tokio::sync::OwnedMutexGuard<Arc<dyn Notebook>>,
        clients: Vec<Peer>,
    ) -> io::Result<()> {
        let notes = Notes {
            state: self.state,
            clients,
        };
        blocking(move || notebook.replace(&notes.encode())).await
    }

    /// The state number that a client told last; 0 if it never did.
    pub(super) fn last_state(&self, client: &Client) -> i32 {
        let mut shard = self.shard(client.host).lock();
        Peers::find(&mut shard, client).map_or(0, |known| known.state)
    }

    /// Which clients a machine is that says, under `name`, that it was booted anew. That is who locks under
    /// this name; the only one at its address, if it goes by another; or all there, if the name is the
    /// address. Of several none that the name does not fit.
    pub(super) fn rebooted(&self, host: IpAddr, name: &[u8], state: i32) -> Vec<Client> {
        let mut shard = self.shard(host).lock();
        let Some(names) = shard.get_mut(&host) else {
            return Vec::new();
        };
        let is_address = std::str::from_utf8(name).is_ok_and(|name| name.parse() == Ok(host));
        let fits = |known: &[u8]| is_one_machine(known, name);
        let any = names.keys().any(|known| fits(known));
        let all = is_address || !any && names.len() == 1;
        if !any && !all {
            tracing::warn!(
                client = %host,
                name = %name.escape_ascii(),
                "says that it was booted anew, but several clients at its address hold locks under other names: none of them is freed"
            );
        }
        let mut rebooted = Vec::new();
        for (known_as, known) in names {
            if all || fits(known_as) {
                known.state = state;
                rebooted.push(Client {
                    host,
                    name: known_as.clone(),
                });
            }
        }
        rebooted
    }
}

/// Whether two names are of one machine: the same but for case, or one of them the other without its domain.
fn is_one_machine(a: &[u8], b: &[u8]) -> bool {
    let short = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::len);
    let (short_a, short_b) = (short(a).unwrap_or(0), short(b).unwrap_or(0));
    let one_is_short = short_a == a.len() || short_b == b.len();
    a.eq_ignore_ascii_case(b)
        || one_is_short
            && a.split_at(short_a)
                .0
                .eq_ignore_ascii_case(b.split_at(short_b).0)
}

/// Does what may take its time beside the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
