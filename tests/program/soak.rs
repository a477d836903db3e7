//! The clients of the soak (`crates/soak`), briefly run: they behave as the table says, and their checks find planted
//! errors.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_crash::random::content;
use forebay_soak::compare::{everything, kept_files};
use forebay_soak::latency::Latencies;
use forebay_soak::ledger::{BLOCK_BYTES, Kept};
use forebay_soak::polite::{self, Meter};
use forebay_soak::rude::{self, KINDS, Tally};
use forebay_soak::world::World;

use crate::support::nfs::Stable;
use crate::support::{Gateway, Place, TIMEOUT};

/// Turns of each thread of a rude client: each of the 13 wrong records is sent once.
const TURNS: u64 = 13;

fn serve(place: &Place, commit: &str) -> (Gateway, World) {
    // Strangers are 127.0.1.x.
    let gateway = place.serve_with("data", &["--clients=127.0.0.0/24", commit]);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.port()));
    let world = World::new(address, gateway.client().mount());
    (gateway, world)
}

#[test]
fn each_kind_of_rude_client_gets_what_it_deserves() {
    let place = Place::new();
    // Other tests cover stability; thousands of names are made here.
    let (gateway, mut world) = serve(&place, "--commit=async");
    world.longest_pause = Duration::from_millis(1);
    world.turns = Some(TURNS);
    let world = Arc::new(world);
    let latencies = Arc::new(Latencies::default());
    for kind in KINDS {
        let tally = Arc::new(Tally::default());
        for thread in rude::start(&world, kind, &tally, &latencies) {
            thread.join().unwrap();
        }
        assert_eq!(world.findings(), [""; 0], "{}", kind.name);
        let turns = tally.turns.load(Ordering::Relaxed);
        assert_eq!(turns, TURNS * kind.threads as u64, "{}", kind.name);
        assert!(!gateway.client().mount().0.is_empty(), "{}", kind.name);
    }
    let compared = everything(&world, &world.ledger.so_far()).unwrap();
    assert!(compared.names > 0 && compared.blocks > 0, "{compared:?}");
    assert!(!gateway.messages().contains("panicked"));
    gateway.stop_cleanly();
}

#[test]
fn the_well_behaved_client_measures_and_remembers() {
    let place = Place::new();
    let (gateway, world) = serve(&place, "--commit=disk");
    let (world, meter) = (Arc::new(world), Arc::new(Meter::default()));
    let threads = polite::start(&world, &meter).unwrap();
    // Until each of its ten kinds of call was made: the least frequent ones come last.
    let deadline = Instant::now() + TIMEOUT;
    while world.ledger.so_far().kept.len() < 4 || meter.alone.figures().len() < 10 {
        assert!(Instant::now() < deadline, "{:?}", meter.alone.figures());
        assert!(world.pause(Duration::from_millis(20)));
        assert_eq!(world.findings(), [""; 0]);
    }
    world.end_polite();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(world.findings(), [""; 0]);
    gateway.kill();
    // On another port, to which the observer connects.
    let (gateway, again) = serve(&place, "--commit=disk");
    let compared = everything(&again, &world.ledger.so_far()).unwrap();
    assert!(compared.files >= 4 && compared.names >= 3, "{compared:?}");
    gateway.stop_cleanly();
}

#[test]
fn what_was_lost_is_found() {
    let place = Place::new();
    let (gateway, world) = serve(&place, "--commit=disk");
    let mut client = gateway.client();
    client.mkdir("files");
    let root = client.mount();
    let files = client.lookup(&root, b"files").unwrap();
    let kept = Kept {
        seed: 1,
        length: 100,
    };
    for name in ["right", "wrong", "missing"] {
        world.ledger.keep(format!("files/{name}"), kept);
    }
    let stable = Stable::FileSync;
    for (name, seed) in [("right", 1), ("wrong", 2), ("removed", 3)] {
        let file = client.create(&files, name.as_bytes());
        client.write(&file, 0, &content(seed, 100), stable).unwrap();
    }
    let differences = kept_files(&world, &world.ledger.so_far()).unwrap_err();
    assert_eq!(differences.len(), 2, "{differences:?}");
    assert!(
        differences[0].starts_with("files/missing"),
        "{differences:?}"
    );
    assert!(differences[1].starts_with("files/wrong"), "{differences:?}");

    world.ledger.exact("files".to_owned());
    world.ledger.name("files", 7);
    let blocks = client.create(&root, b"blocks");
    for (block, seed) in [(0, 10), (1, 11), (2, 12)] {
        let offset = block * BLOCK_BYTES as u64;
        client
            .write(&blocks, offset, &content(seed, BLOCK_BYTES), stable)
            .unwrap();
    }
    // Acknowledged and there; acknowledged, but other bytes there; not answered; not answered, and not executed.
    world.ledger.written("blocks", 0, 10);
    world.ledger.written("blocks", 1, 99);
    world.ledger.writing("blocks", 2, 12);
    world.ledger.writing("blocks", 3, 13);
    let differences = everything(&world, &world.ledger.so_far()).unwrap_err();
    let expected = [
        "files/missing",
        "files/wrong",
        "files/missing is not listed",
        "files/removed was removed and is listed",
        "files/f0000007 is not listed",
        "block 1 of blocks",
    ];
    assert_eq!(differences.len(), expected.len(), "{differences:?}");
    for (found, expected) in differences.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} is not {expected}");
    }
}
