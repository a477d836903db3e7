//! NLM (RFC 1813, appendix II) on the real file system. The decisions of the lock table are tested in
//! `crates/nfs/tests/locking/main.rs`.

use forebay_client::xdr::{Decoder, Encoder};
use forebay_conformance::Call;
use forebay_conformance::Procedure::Getattr;
use forebay_conformance::call::{Node, Set};

use crate::faults::damaged;
use crate::stack::{Client, Stack};

/// Program number and version.
const NLM: u32 = 100_021;
const VERSION: u32 = 4;

/// Procedures that need an existing file.
const TEST: u32 = 1;
const LOCK: u32 = 2;
const UNLOCK: u32 = 4;
const SHARE: u32 = 20;
const NM_LOCK: u32 = 22;

/// `nlm4_stats`. NLM4_DEADLCK and NLM4_ROFS are never returned: clients must detect deadlocks themselves, and files of
/// a read-only export can be locked like those of a local one.
const GRANTED: u32 = 0;
const DENIED_GRACE_PERIOD: u32 = 4;
const STALE_FH: u32 = 7;
const FAILED: u32 = 9;

/// Requests an exclusive lock, or a reservation, on a whole file, and returns the status.
fn ask(client: &mut Client, procedure: u32, file: &[u8]) -> u32 {
    let cookie = Encoder::default().opaque(b"cookie");
    let lock = |encoder: Encoder| {
        let encoder = encoder.opaque(b"caller").opaque(file).opaque(b"owner");
        encoder.u32s(&[7]).u64(0).u64(0)
    };
    let arguments = match procedure {
        TEST => lock(cookie.u32s(&[1])),
        LOCK | NM_LOCK => lock(cookie.u32s(&[0, 1])).u32s(&[0, 3]),
        UNLOCK => lock(cookie),
        _ => {
            let named = cookie.opaque(b"caller").opaque(file).opaque(b"owner");
            // No deny, access for reading, no reclaim.
            named.u32s(&[0, 1, 0])
        }
    };
    let results = client.0.exchange(NLM, VERSION, procedure, &arguments.0);
    let mut results = Decoder::new(results.unwrap().unwrap());
    assert_eq!(results.opaque().unwrap(), b"cookie");
    let status = results.u32().unwrap();
    if procedure == SHARE {
        results.u32().unwrap();
    }
    results.end().unwrap();
    status
}

#[test]
fn only_files_can_be_locked_also_with_read_permission_alone() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    let directory = root.directory(&top, b"directory");
    let link = Call::symlink(&top, b"link", &Set::default(), b"file");
    let link = root.made(&link);
    let fifo = root.made(&Call::mknod(&top, b"fifo", Node::Fifo(Set::default())));
    for procedure in [TEST, LOCK, NM_LOCK, SHARE] {
        for object in [&directory, &link, &fifo] {
            assert_eq!(ask(&mut root, procedure, object), FAILED);
        }
        let mut read_only = stack.read_only();
        assert_eq!(ask(&mut read_only, procedure, &file), GRANTED);
        ask(&mut read_only, UNLOCK, &file);
    }
    root.ok(&Call::remove(&top, b"file"));
    for procedure in [TEST, LOCK, NM_LOCK, SHARE] {
        assert_eq!(ask(&mut root, procedure, &file), STALE_FH);
        assert_eq!(ask(&mut root, procedure, b""), STALE_FH);
    }
    // A lock held when the file was removed can be released.
    assert_eq!(ask(&mut root, UNLOCK, &file), GRANTED);
}

#[test]
fn a_file_whose_bucket_is_away_is_asked_for_again_and_a_damaged_one_is_not() {
    let mut scene = damaged();
    let file = scene.root.file(&scene.top, b"sound");
    for procedure in [TEST, LOCK, NM_LOCK, SHARE] {
        let damaged = &scene.known[&Getattr];
        assert_eq!(ask(&mut scene.root, procedure, damaged), FAILED);
    }
    let mut stack = scene.stack;
    stack.stop();
    stack.start();
    let mut root = stack.root();
    stack.set_away(true);
    for procedure in [TEST, LOCK, NM_LOCK, SHARE] {
        assert_eq!(ask(&mut root, procedure, &file), DENIED_GRACE_PERIOD);
    }
    stack.set_away(false);
    assert_eq!(ask(&mut root, LOCK, &file), GRANTED);
}
