//! Which clients are in the client list, for how long, and which of them a reboot notice applies to.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A client list in memory that can fail on demand.
#[derive(Default)]
struct Page {
    content: Mutex<Option<Vec<u8>>>,
    is_full: AtomicBool,
}

impl ClientListStore for Page {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.content.lock().clone())
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.content.lock() = Some(content.to_vec());
        Ok(())
    }
}

impl Page {
    /// The names that a next start would read.
    fn names(&self) -> Vec<String> {
        let content = self.content.lock().clone().unwrap();
        let clients = ClientList::decode(&content).unwrap().clients;
        let name = |peer: Peer| String::from_utf8(peer.client.name).unwrap();
        let mut names: Vec<String> = clients.into_iter().map(name).collect();
        names.sort();
        names
    }
}

fn host(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn peer(last: u8, name: &str) -> Peer {
    Peer {
        client: Client {
            host: host(last),
            name: name.into(),
        },
        local: host(200),
    }
}

async fn open(page: &Arc<Page>) -> Opened {
    Peers::open(page.clone(), Duration::from_secs(1000))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_noted_client_is_known_to_the_next_start() {
    let page = Arc::new(Page::default());
    let first = open(&page).await;
    assert!(!first.held_locks && first.previous.is_empty());
    drop(first.peers.note(&peer(1, "box"), |_| true).await.unwrap());
    drop(first.peers.note(&peer(1, "box"), |_| true).await.unwrap());
    assert_eq!(page.names(), ["box"]);
    let next = open(&page).await;
    assert!(next.held_locks);
    assert_eq!(next.previous, [peer(1, "box")]);
    assert!(next.peers.guard(&peer(1, "box").client).is_some());
}

#[tokio::test]
async fn the_state_number_is_odd_and_rises_whatever_the_clock_does() {
    let page = Arc::new(Page::default());
    let mut last = 0;
    for seconds in [1_790_000_000, 1_790_000_000, 5, 1_790_000_100] {
        let opened = Peers::open(page.clone(), Duration::from_secs(seconds)).await;
        let state = opened.unwrap().peers.state();
        assert!(state > last && state % 2 == 1, "{state} after {last}");
        last = state;
    }
    // And without the client list, as on another machine.
    let lost = Peers::open(
        Arc::new(Page::default()),
        Duration::from_secs(1_790_000_200),
    );
    assert!(lost.await.unwrap().peers.state() > last);
}

#[tokio::test]
async fn a_damaged_list_means_that_somebody_may_have_held_locks() {
    let page = Arc::new(Page::default());
    *page.content.lock() = Some(b"forebay-locks 1\nstate 5\n".to_vec());
    let opened = open(&page).await;
    assert!(opened.held_locks && opened.previous.is_empty());
}

#[tokio::test]
async fn without_a_note_there_is_no_lock() {
    let page = Arc::new(Page::default());
    let peers = open(&page).await.peers;
    page.is_full.store(true, Ordering::Relaxed);
    assert!(peers.note(&peer(1, "box"), |_| true).await.is_err());
    page.is_full.store(false, Ordering::Relaxed);
    drop(peers.note(&peer(1, "box"), |_| true).await.unwrap());
    assert_eq!(page.names(), ["box"]);
}

#[tokio::test]
async fn a_peer_without_locks_goes_when_the_list_is_written_but_not_before_a_lock() {
    let page = Arc::new(Page::default());
    let peers = open(&page).await.peers;
    let busy = peers.note(&peer(1, "busy"), |_| true).await.unwrap();
    drop(peers.note(&peer(2, "idle"), |_| true).await.unwrap());
    drop(peers.note(&peer(3, "third"), |_| false).await.unwrap());
    assert_eq!(page.names(), ["busy", "third"]);
    // A client that was removed is added again.
    drop(peers.note(&peer(2, "idle"), |_| true).await.unwrap());
    assert_eq!(page.names(), ["busy", "idle", "third"]);
    drop(busy);
    peers.tidy(|client| client.host == host(3)).await.unwrap();
    assert_eq!(page.names(), ["third"]);
}

#[tokio::test]
async fn one_address_cannot_fill_the_list_with_names() {
    let page = Arc::new(Page::default());
    let peers = open(&page).await.peers;
    for number in 0..MAX_NAMES {
        let name = format!("n{number}");
        drop(peers.note(&peer(1, &name), |_| true).await.unwrap());
    }
    assert!(peers.note(&peer(1, "more"), |_| true).await.is_err());
    drop(peers.note(&peer(2, "more"), |_| true).await.unwrap());
    drop(peers.note(&peer(1, "n0"), |_| true).await.unwrap());
    // Unused room goes to other clients.
    drop(peers.note(&peer(1, "more"), |_| false).await.unwrap());
}

#[tokio::test]
async fn a_reboot_is_that_of_the_peer_with_its_name() {
    let page = Arc::new(Page::default());
    let peers = open(&page).await.peers;
    let of = |client: u8, name: &str| {
        let names = peers.rebooted(host(client), name.as_bytes(), 9);
        let name = |client: Client| String::from_utf8(client.name).unwrap();
        let mut names: Vec<String> = names.into_iter().map(name).collect();
        names.sort();
        names
    };
    for (number, name) in [(1, "web1"), (1, "web2.example.org"), (2, "db")] {
        drop(peers.note(&peer(number, name), |_| true).await.unwrap());
    }
    assert_eq!(of(1, "web1"), ["web1"]);
    assert_eq!(of(1, "WEB1.example.org"), ["web1"]);
    assert_eq!(of(1, "web2"), ["web2.example.org"]);
    // Another domain is another machine.
    assert!(of(1, "web2.example.com").is_empty());
    assert!(of(1, "web3").is_empty());
    assert_eq!(of(1, "192.0.2.1"), ["web1", "web2.example.org"]);
    // There is only one candidate.
    assert_eq!(of(2, "renamed"), ["db"]);
    // No machine can take the locks of another away.
    assert!(of(3, "db").is_empty());
    assert_eq!(peers.last_state(&peer(2, "db").client), 9);
    assert_eq!(peers.last_state(&peer(3, "db").client), 0);
}
