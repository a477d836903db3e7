//! The clients that hold locks, or may hold some soon: NSM calls them monitored.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_lock::Client;
use forebay_types::{balance, to_usize};
use parking_lot::Mutex;

use super::ClientListStore;
use super::client_list::{ClientList, Peer};

/// Independent parts, each with its own lock.
const SHARDS: usize = 16;

/// Limits on the number of clients in the client list: of all, and of those with one address.
const MAX_PEERS: usize = 4096;
const MAX_NAMES: usize = 64;

/// State of a client under one of its names.
struct Known {
    local: IpAddr,
    /// Calls that may be about to lock something.
    busy: usize,
    /// NSM state number that the client sent last; 0 if none.
    state: i32,
}

type Shard = HashMap<IpAddr, HashMap<Vec<u8>, Known>>;

/// See the module's documentation.
pub(super) struct Peers {
    /// Clients by address.
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    state: i32,
    /// Locked by every task that changes the content. Every client that is in a shard is in the client list.
    client_list: Arc<tokio::sync::Mutex<Arc<dyn ClientListStore>>>,
}

/// The content of the client list at a start.
pub(super) struct Opened {
    pub(super) peers: Peers,
    pub(super) previous: Vec<Peer>,
    /// True if any client held a lock, or if that is unknown.
    pub(super) held_locks: bool,
}

/// Keeps a client in the client list while it lives.
pub(crate) struct Guard<'a> {
    peers: &'a Peers,
    client: Client,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut shard = self.peers.shard(self.client.host).lock();
        if let Some(known) = Peers::find(&mut shard, &self.client) {
            known.busy = balance::taken_count("calls of a client", known.busy, 1);
        }
    }
}

impl Peers {
    /// Reads the client list, and stores the new state number: odd, higher than the last one, and, because
    /// it follows the clock, higher than any in a client list that was lost.
    pub(super) async fn open(
        client_list: Arc<dyn ClientListStore>,
        since_1970: Duration,
    ) -> io::Result<Opened> {
        let reader = client_list.clone();
        let content = blocking(move || reader.load()).await?;
        let list = content.as_deref().map(ClientList::decode);
        if matches!(list, Some(None)) {
            tracing::error!(
                "the list of clients that hold locks is damaged: they cannot be notified of the restart, and must mount again"
            );
        }
        let held_locks = match &list {
            None => false,
            Some(None) => true,
            Some(Some(list)) => !list.clients.is_empty(),
        };
        let mut list = list.flatten().unwrap_or_default();
        // Units of two seconds fit until 2106; whole seconds would only fit until 2038.
        let clock = i32::try_from(since_1970.as_secs() / 2).unwrap_or(i32::MAX);
        list.state = clock.max(list.state.saturating_add(2)) | 1;
        let peers = Peers {
            shards: Default::default(),
            hasher: RandomState::new(),
            state: list.state,
            client_list: Arc::new(tokio::sync::Mutex::new(client_list.clone())),
        };
        let content = list.encode();
        blocking(move || client_list.replace(&content)).await?;
        for peer in &list.clients {
            peers.add(peer);
        }
        Ok(Opened {
            peers,
            previous: list.clients,
            held_locks,
        })
    }

    pub(super) fn state(&self) -> i32 {
        self.state
    }

    fn shard(&self, host: IpAddr) -> &Mutex<Shard> {
        // The index is taken modulo the length.
        &self.shards[to_usize(self.hasher.hash_one(host)) % SHARDS]
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

    /// Takes a guard, if the client is in the client list.
    fn guard(&self, client: &Client) -> Option<Guard<'_>> {
        let mut shard = self.shard(client.host).lock();
        Peers::find(&mut shard, client)?.busy += 1;
        Some(Guard {
            peers: self,
            client: client.clone(),
        })
    }

    /// Adds a client; it is on stable storage when this returns. If the client list has to be written for that, the
    /// clients that hold nothing, as `holds` says, are removed from it.
    pub(super) async fn note(
        &self,
        peer: &Peer,
        holds: impl Fn(&Client) -> bool,
    ) -> io::Result<Guard<'_>> {
        if let Some(guard) = self.guard(&peer.client) {
            return Ok(guard);
        }
        let client_list = self.client_list.clone().lock_owned().await;
        // Another call may have added the client meanwhile.
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
        self.write(client_list, clients).await?;
        self.add(peer);
        let guard = self.guard(&peer.client);
        guard.ok_or_else(|| io::Error::other("the note is gone"))
    }

    /// Removes the clients that hold nothing, as `holds` says.
    pub(super) async fn tidy(&self, holds: impl Fn(&Client) -> bool) -> io::Result<()> {
        let client_list = self.client_list.clone().lock_owned().await;
        let clients = self.remaining(holds);
        self.write(client_list, clients).await
    }

    /// Removes the clients that hold nothing and are not about to, and returns the others. Requires the client list's
    /// lock: the removed clients are not in the client list any more when the next task reads it.
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

    /// Continues to its end if its caller is dropped, because the write and the lock on the client list belong together.
    async fn write(
        &self,
        client_list: tokio::sync::OwnedMutexGuard<Arc<dyn ClientListStore>>,
        clients: Vec<Peer>,
    ) -> io::Result<()> {
        let list = ClientList {
            state: self.state,
            clients,
        };
        blocking(move || client_list.replace(&list.encode())).await
    }

    /// The state number that a client sent last; 0 if it never sent one.
    pub(super) fn last_state(&self, client: &Client) -> i32 {
        let mut shard = self.shard(client.host).lock();
        Peers::find(&mut shard, client).map_or(0, |known| known.state)
    }

    /// Returns the clients that a reboot notice from `host` under `name` applies to. These are the clients that lock
    /// under this name; or the only client at its address, if it uses another name; or all clients there, if the name
    /// is the address. If several clients share the address, those whose name does not match are not affected.
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
                "a client reports a reboot, but several clients at its address hold locks under other names: no locks are released"
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

/// Whether two names belong to one machine: they differ in case only, or one is the other without its domain.
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

/// Runs blocking work outside the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
