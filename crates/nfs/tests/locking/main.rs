//! NLM and NSM over the wire: every procedure, every answer, callbacks, reboots and restarts.

#[path = "../common/mod.rs"]
mod common;
mod scene;

use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use forebay_nfs::handle::{Handles, Named, Tree};
use forebay_nfs::xdr::{Reader, Writer};
use forebay_nfs::{LockConfig, LockLimits, Squash};
use forebay_vfs::memory::MemoryFileSystem;
use scene::*;

#[test]
fn locks_of_two_clients_exclude_each_other_and_test_says_who_holds() {
    let mut scene = Scene::new();
    let (a, b) = (
        ask("a", &scene.file).at(10, 5),
        ask("b", &scene.file).at(14, 0),
    );
    let client = &mut scene.client;
    assert_eq!(client.nlm(TEST, &a), GRANTED);
    assert_eq!(client.nlm(LOCK, &a), GRANTED);
    assert_eq!(client.nlm(LOCK, &b), DENIED);
    let reply = client.call(NLM, 4, TEST, |w| b.arguments(TEST, w));
    let results = accepted(&reply);
    let mut reader = results.reader();
    assert_eq!(reader.opaque(1024), Ok(&b"cookie"[..]));
    assert_eq!(
        (reader.u32(), reader.bool(), reader.u32()),
        (Ok(DENIED), Ok(true), Ok(7))
    );
    assert_eq!(reader.opaque(1024), Ok(&b"7@a"[..]));
    assert_eq!(
        (reader.u64(), reader.u64(), reader.end()),
        (Ok(10), Ok(5), Ok(()))
    );
    assert_eq!(client.nlm(LOCK, &b.clone().at(15, 0)), GRANTED);
    assert_eq!(client.nlm(UNLOCK, &a.at(0, 0)), GRANTED);
    assert_eq!(client.nlm(LOCK, &b), GRANTED);
    // A range without a lock may be unlocked.
    assert_eq!(client.nlm(UNLOCK, &ask("c", &scene.file)), GRANTED);
    assert_eq!(scene.server.metric("nfs_locks"), 1);
    let answers = |status| scene.server.metric_of("nfs_lock_answers", &[status]);
    assert_eq!((answers("granted"), answers("denied")), (6, 2));
    let ping = scene.client.call(NLM, 4, 0, |_| {});
    assert!(accepted(&ping).0.is_empty());
}

#[test]
fn a_waiting_lock_is_granted_by_a_callback_with_what_was_asked_for() {
    let mut scene = Scene::new();
    let (a, b) = (
        ask("a", &scene.file),
        ask("b", &scene.file).at(3, 4).waiting(),
    );
    assert_eq!(scene.client.nlm(LOCK, &a), GRANTED);
    assert_eq!(scene.client.nlm(LOCK, &b), BLOCKED);
    assert_eq!(scene.client.nlm(LOCK, &b), BLOCKED);
    let answers = |status| scene.server.metric_of("nfs_lock_answers", &[status]);
    assert_eq!((answers("granted"), answers("blocked")), (1, 2));
    assert!(scene.side.nothing_came());
    assert_eq!(scene.client.nlm(UNLOCK, &a), GRANTED);
    let came = scene.side.next();
    assert_eq!((came.program, came.procedure), (NLM, GRANTED_CALL));
    // The arguments of GRANTED are those of TEST.
    let mut expected = Vec::new();
    b.arguments(TEST, &mut Writer::new(&mut expected));
    assert_eq!(came.arguments, expected);
    scene
        .server
        .wait_for("nfs_lock_callbacks", |told| told == 1);
    assert_eq!(scene.client.nlm(LOCK, &a), DENIED);
    assert!(scene.side.nothing_came(), "it was told once");
}

#[test]
fn a_lock_that_waits_behind_many_is_granted_though_the_unlock_has_not_come_there() {
    let mut scene = Scene::new();
    let held = ask("a", &scene.file).at(0, 2);
    assert_eq!(scene.client.nlm(LOCK, &held), GRANTED);
    // Far more waiters for one byte than a call tries, and finally one for the other.
    for process in 100..300 {
        let mut many = ask("b", &scene.file).at(0, 1).waiting();
        many.process = process;
        assert_eq!(scene.client.nlm(LOCK, &many), BLOCKED);
    }
    let mut last = ask("b", &scene.file).at(1, 1).waiting();
    last.process = 300;
    assert_eq!(scene.client.nlm(LOCK, &last), BLOCKED);
    assert_eq!(scene.client.nlm(UNLOCK, &held), GRANTED);
    let mut told = Vec::new();
    for _ in 0..2 {
        let came = scene.side.next();
        assert_eq!((came.program, came.procedure), (NLM, GRANTED_CALL));
        let handle = |process: u32| format!("{process}@b").into_bytes();
        let is_for = |process| {
            let handle = handle(process);
            came.arguments
                .windows(handle.len())
                .any(|bytes| bytes == handle)
        };
        told.extend([100, 300].into_iter().filter(|process| is_for(*process)));
    }
    told.sort_unstable();
    assert_eq!(told, [100, 300]);
}

#[test]
fn a_grant_that_its_client_does_not_want_goes_to_the_next() {
    let mut scene = Scene::new();
    let (a, b, c) = (
        ask("a", &scene.file),
        ask("b", &scene.file),
        ask("c", &scene.file),
    );
    scene.client.nlm(LOCK, &a);
    assert_eq!(scene.client.nlm(LOCK, &b.waiting()), BLOCKED);
    assert_eq!(scene.client.nlm(LOCK, &c.waiting()), BLOCKED);
    scene.side.answer.store(DENIED, Ordering::Relaxed);
    scene.client.nlm(UNLOCK, &a);
    let callers = [scene.side.next(), scene.side.next()].map(|came| {
        let mut reader = Reader::new(&came.arguments);
        reader.opaque(1024).unwrap();
        reader.bool().unwrap();
        reader.opaque(1024).unwrap().to_vec()
    });
    assert_eq!(callers, [b"b", b"c"]);
    // c does not want it either, so it becomes free in the end.
    while scene.client.nlm(LOCK, &a) == DENIED {}
}

#[test]
fn a_client_that_cannot_be_called_gets_its_lock_by_asking_again() {
    // No process listens at port 1.
    let mut scene = Scene::with(|locks| locks.portmapper = 1);
    let (a, b) = (ask("a", &scene.file), ask("b", &scene.file).waiting());
    scene.client.nlm(LOCK, &a);
    assert_eq!(scene.client.nlm(LOCK, &b), BLOCKED);
    scene.client.nlm(UNLOCK, &a);
    assert_eq!(scene.client.nlm(LOCK, &a), DENIED, "it is b's turn");
    assert_eq!(scene.client.nlm(LOCK, &b), GRANTED);
    assert_eq!(scene.client.nlm(UNLOCK, &b), GRANTED);
    assert_eq!(scene.client.nlm(LOCK, &a), GRANTED);
}

#[test]
fn cancel_ends_waiting_and_nothing_else() {
    let mut scene = Scene::new();
    let (a, b) = (ask("a", &scene.file), ask("b", &scene.file).waiting());
    scene.client.nlm(LOCK, &a);
    assert_eq!(scene.client.nlm(CANCEL, &b), DENIED);
    assert_eq!(scene.client.nlm(LOCK, &b), BLOCKED);
    assert_eq!(scene.client.nlm(CANCEL, &b), GRANTED);
    assert_eq!(scene.client.nlm(CANCEL, &a), DENIED);
    scene.client.nlm(UNLOCK, &a);
    assert!(scene.side.nothing_came());
    assert_eq!(scene.client.nlm(LOCK, &a), GRANTED);
}

#[test]
fn what_cannot_be_locked_says_why_and_strangers_learn_nothing() {
    let mut scene = Scene::new();
    let root = scene.client.root();
    let others = scene.client.mkdir(&root, "others");
    let theirs = scene.client.create(&others, "theirs");
    // The same file, by a valid handle of the export that is for other clients.
    let handles = Handles::new(config().handle_key, config().volume);
    let inode = handles.decode(&theirs).unwrap().inode;
    let elsewhere = handles.encode(Named {
        export: 2,
        tree: Tree::Live,
        inode,
    });
    let gone = scene.client.create(&root, "gone");
    assert_eq!(scene.client.nlm(LOCK, &ask("a", &gone)), GRANTED);
    let removed = scene.client.nfs(12, |w| {
        w.opaque(&root);
        w.opaque(b"gone");
    });
    assert_eq!(removed.status(), 0);
    for procedure in [TEST, LOCK] {
        let client = &mut scene.client;
        assert_eq!(client.nlm(procedure, &ask("a", &gone)), STALE_FH);
        assert_eq!(client.nlm(procedure, &ask("a", &elsewhere)), STALE_FH);
        assert_eq!(client.nlm(procedure, &ask("a", b"forged")), STALE_FH);
        assert_eq!(client.nlm(procedure, &ask("a", &root)), FAILED);
        assert_eq!(
            client.nlm(procedure, &ask("a", &scene.file).at(u64::MAX, 2)),
            FBIG
        );
    }
    for procedure in [CANCEL, UNLOCK] {
        assert_eq!(scene.client.nlm(procedure, &ask("a", b"forged")), STALE_FH);
    }
    assert_eq!(scene.client.share(SHARE, b"forged", "a", 0, 1), STALE_FH);
    assert_eq!(scene.client.share(UNSHARE, b"forged", "a", 0, 1), STALE_FH);
    // The last lock of a deleted file can be released.
    assert_eq!(scene.client.nlm(UNLOCK, &ask("a", &gone)), GRANTED);
    assert_eq!(scene.server.metric("nfs_locks"), 0);
}

#[test]
fn a_client_without_access_to_a_file_cannot_lock_it() {
    let mut scene = Scene::new();
    let private = scene.client.nfs(2, |w| {
        w.opaque(&scene.file);
        w.bool(true);
        w.u32(0o600);
        // Owner, group, size, times, guard.
        (0..6).for_each(|_| w.u32(0));
    });
    assert_eq!(private.status(), 0);
    let mut other = scene
        .server
        .client()
        .with_identity(As::User(1000, 1000, vec![]));
    assert_eq!(other.nlm(LOCK, &ask("b", &scene.file)), FAILED);
    assert_eq!(other.nlm(TEST, &ask("b", &scene.file)), FAILED);
    assert_eq!(scene.client.nlm(LOCK, &ask("a", &scene.file)), GRANTED);
}

#[test]
fn a_client_of_no_export_gets_nothing_but_null() {
    let page = Arc::new(Page::default());
    let mut closed = config();
    closed.exports = vec![export(1, "/", "192.0.2.0/24", Squash::None)];
    let locks = LockConfig::new(Duration::from_secs(600), page);
    let server = Running::locking(Arc::new(MemoryFileSystem::new()), closed, locks);
    let mut client = server.client();
    for program in [(NLM, 4), (NSM, 1)] {
        assert_eq!(
            accept_stat(&client.call(program.0, program.1, 0, |_| {})),
            0
        );
        let denied = client.call(program.0, program.1, 1, |_| {});
        assert_eq!(denied[8..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]);
    }
}

#[test]
fn other_versions_procedures_and_arguments_are_rejected() {
    let mut scene = Scene::new();
    let client = &mut scene.client;
    for version in [1, 2, 3, 5] {
        let reply = client.call(NLM, version, 0, |_| {});
        assert_eq!(reply[20..], [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4]);
    }
    assert_eq!(accept_stat(&client.call(NSM, 2, 0, |_| {})), 2);
    for procedure in [16, 19, 24, u32::MAX] {
        assert_eq!(accept_stat(&client.call(NLM, 4, procedure, |_| {})), 3);
    }
    assert_eq!(accept_stat(&client.call(NSM, 1, 5, |_| {})), 3);
    for procedure in (1..=10).chain(20..=23) {
        let garbage = client.call(NLM, 4, procedure, |w| w.u32(9));
        assert_eq!(accept_stat(&garbage), 4, "procedure {procedure}");
    }
    assert_eq!(accept_stat(&client.call(NSM, 1, 6, |w| w.u32(9))), 4);
    // A name that is longer than allowed.
    let long = client.call(NLM, 4, FREE_ALL, |w| {
        w.opaque(&[b'x'; 1025]);
        w.u32(1);
    });
    assert_eq!(accept_stat(&long), 4);
    let without = Running::memory();
    let reply = without.client().call(NLM, 4, 0, |_| {});
    assert_eq!(accept_stat(&reply), 1);
}

#[test]
fn asynchronous_calls_are_answered_by_calls() {
    let mut scene = Scene::new();
    let (a, b) = (ask("a", &scene.file), ask("b", &scene.file).waiting());
    let results = |scene: &mut Scene, procedure: u32, ask: &Ask| {
        let reply = scene
            .client
            .call(NLM, 4, procedure + 5, |w| ask.arguments(procedure, w));
        assert!(accepted(&reply).0.is_empty());
        let came = scene.side.next();
        assert_eq!((came.program, came.procedure), (NLM, procedure + 10));
        let mut reader = Reader::new(&came.arguments);
        assert_eq!(reader.opaque(1024), Ok(&b"cookie"[..]));
        reader.u32().unwrap()
    };
    assert_eq!(results(&mut scene, LOCK, &a), GRANTED);
    assert_eq!(results(&mut scene, TEST, &b), DENIED);
    assert_eq!(results(&mut scene, LOCK, &b), BLOCKED);
    assert_eq!(results(&mut scene, CANCEL, &b), GRANTED);
    assert_eq!(results(&mut scene, UNLOCK, &a), GRANTED);
    // The server itself waits for no locks.
    let reply = scene
        .client
        .call(NLM, 4, GRANTED_CALL, |w| a.arguments(TEST, w));
    assert_eq!(status(&accepted(&reply)), DENIED);
    let reply = scene.client.call(NLM, 4, 10, |w| a.arguments(TEST, w));
    assert!(accepted(&reply).0.is_empty());
    assert_eq!(scene.side.next().procedure, 15);
    for procedure in 11..=15 {
        let reply = scene.client.call(NLM, 4, procedure, |w| w.u32(0));
        assert!(accepted(&reply).0.is_empty());
    }
}

#[test]
fn share_reservations_of_two_clients() {
    let mut scene = Scene::new();
    let (file, client) = (scene.file.clone(), &mut scene.client);
    let (read, write) = (1, 2);
    assert_eq!(client.share(SHARE, &file, "a", write, read), GRANTED);
    assert_eq!(client.share(SHARE, &file, "b", 0, write), DENIED);
    assert_eq!(client.share(SHARE, &file, "b", 0, read), GRANTED);
    assert_eq!(client.share(UNSHARE, &file, "a", write, read), GRANTED);
    assert_eq!(client.share(SHARE, &file, "b", 0, write), GRANTED);
    assert_eq!(scene.server.metric("nfs_locks"), 1);
}

#[test]
fn unmonitored_locks_do_not_wait_and_go_with_free_all() {
    let mut scene = Scene::new();
    let (a, b) = (ask("a", &scene.file), ask("b", &scene.file).waiting());
    assert_eq!(scene.client.nlm(NM_LOCK, &a), GRANTED);
    assert_eq!(scene.client.nlm(NM_LOCK, &b), DENIED);
    let noted = scene.page.content.lock().unwrap().clone().unwrap();
    assert!(!String::from_utf8(noted).unwrap().contains("client"));
    assert_eq!(scene.client.nlm(LOCK, &b), BLOCKED);
    let free_all = |client: &mut Client, name: &[u8]| {
        let reply = client.call(NLM, 4, FREE_ALL, |w| {
            w.opaque(name);
            w.u32(5);
        });
        assert!(accepted(&reply).0.is_empty());
    };
    free_all(&mut scene.client, b"c");
    assert!(scene.side.nothing_came());
    free_all(&mut scene.client, b"a");
    assert_eq!(scene.side.next().procedure, GRANTED_CALL);
}

#[test]
fn a_repeated_call_that_comes_late_does_not_lock_again() {
    let mut scene = Scene::new();
    let a = ask("a", &scene.file);
    let xid = scene.client.send(NLM, 4, LOCK, |w| a.arguments(LOCK, w));
    let first = scene.client.receive().unwrap();
    assert_eq!(scene.client.nlm(UNLOCK, &a), GRANTED);
    let mut again = scene.server.client();
    again.xid = xid;
    let message = again.message(NLM, 4, LOCK, |w| a.arguments(LOCK, w));
    again.send_record(&message);
    assert_eq!(again.receive().unwrap(), first);
    assert_eq!(scene.client.nlm(LOCK, &ask("b", &scene.file)), GRANTED);
}

#[test]
fn at_the_limit_and_without_a_note_there_are_no_locks() {
    let limits = LockLimits {
        per_host: 1,
        ..LockLimits::default()
    };
    let mut scene = Scene::with(|locks| locks.limits = limits);
    scene.page.is_full.store(true, Ordering::Relaxed);
    let a = ask("a", &scene.file).at(0, 10);
    assert_eq!(scene.client.nlm(LOCK, &a), NOLOCKS);
    scene.page.is_full.store(false, Ordering::Relaxed);
    assert_eq!(scene.client.nlm(LOCK, &a), GRANTED);
    assert_eq!(scene.client.nlm(LOCK, &a.clone().at(20, 1)), NOLOCKS);
    // The lock would have to be split.
    assert_eq!(scene.client.nlm(UNLOCK, &a.clone().at(5, 1)), NOLOCKS);
    assert_eq!(scene.client.nlm(UNLOCK, &a), GRANTED);
}

/// Sends SM_NOTIFY by datagram; returns the reply.
fn rebooted(scene: &Scene, name: &str, state: u32) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let message = scene.client.message(NSM, 1, 6, |w| {
        w.opaque(name.as_bytes());
        w.u32(state);
    });
    socket.send_to(&message, scene.server.address).unwrap();
    let mut reply = [0; 128];
    let received = socket.recv(&mut reply).unwrap();
    reply[..received].to_vec()
}

#[test]
fn a_client_that_was_booted_again_has_no_locks_from_before() {
    let mut scene = Scene::new();
    let a = ask("a", &scene.file).at(0, 10);
    scene.client.nlm(LOCK, &a);
    let b = ask("b", &scene.file).at(50, 1);
    scene.client.nlm(LOCK, &b);
    let c = ask("c", &scene.file);
    assert_eq!(scene.client.nlm(LOCK, &c.clone().waiting()), BLOCKED);
    assert_eq!(accepted(&rebooted(&scene, "a", 5)).0, []);
    assert!(scene.side.nothing_came(), "b holds still");
    // The notice arrives again, after the rebooted client has locked something.
    let new = Ask { state: 5, ..a };
    assert_eq!(scene.client.nlm(LOCK, &new), GRANTED);
    rebooted(&scene, "a", 5);
    assert_eq!(scene.client.nlm(LOCK, &c), DENIED);
    rebooted(&scene, "a", 7);
    rebooted(&scene, "b", 7);
    assert_eq!(scene.side.next().procedure, GRANTED_CALL);
}

#[test]
fn datagrams_are_for_notices_alone() {
    let scene = Scene::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let ask = |message: &[u8]| {
        socket.send_to(message, scene.server.address).unwrap();
        let mut reply = [0; 128];
        let received = socket.recv(&mut reply).unwrap();
        reply[..received].to_vec()
    };
    // A datagram that is not a call gets no answer: the reply that arrives is to the next one.
    socket.send_to(b"?", scene.server.address).unwrap();
    assert_eq!(
        accept_stat(&ask(&scene.client.message(NFS, 3, 0, |_| {}))),
        1
    );
    assert_eq!(
        accept_stat(&ask(&scene.client.message(NLM, 4, 0, |_| {}))),
        1
    );
    assert_eq!(
        accept_stat(&ask(&scene.client.message(NSM, 2, 0, |_| {}))),
        2
    );
    assert_eq!(
        accept_stat(&ask(&scene.client.message(NSM, 1, 0, |_| {}))),
        0
    );
}

#[test]
fn the_status_monitor_monitors_nobody_and_tells_its_state() {
    let mut scene = Scene::new();
    let mut states = HashSet::new();
    for procedure in 1..=4 {
        let reply = scene.client.call(NSM, 1, procedure, |w| w.opaque(b"host"));
        let results = accepted(&reply);
        let mut reader = results.reader();
        if procedure <= 2 {
            assert_eq!(reader.u32(), Ok(1), "it fails");
        }
        states.insert(reader.u32().unwrap());
        reader.end().unwrap();
    }
    assert_eq!(states.len(), 1);
    assert!(states.iter().all(|state| state % 2 == 1));
}

#[test]
fn after_a_restart_holders_of_locks_are_notified_and_nobody_else_gets_any() {
    let mut scene = Scene::new();
    let a = ask("a", &scene.file);
    assert_eq!(scene.client.nlm(LOCK, &a), GRANTED);
    let mut scene = scene.restarted(|_| {});
    // By both names that the client may know.
    let notices = [scene.side.next(), scene.side.next()].map(|came| {
        assert_eq!((came.program, came.procedure), (NSM, 6));
        let mut reader = Reader::new(&came.arguments);
        let name = String::from_utf8(reader.opaque(1024).unwrap().to_vec()).unwrap();
        assert_eq!(reader.u32().unwrap() % 2, 1);
        name
    });
    assert_eq!(notices, ["127.0.0.1", "server.example.org"]);
    let b = ask("b", &scene.file);
    assert_eq!(scene.client.nlm(LOCK, &b), GRACE);
    assert_eq!(scene.client.nlm(NM_LOCK, &b), GRACE);
    assert_eq!(scene.client.nlm(TEST, &b), GRACE);
    assert_eq!(scene.client.share(SHARE, &scene.file, "b", 0, 1), GRACE);
    let in_grace = || {
        scene
            .server
            .metric_of("nfs_lock_answers", &["denied_grace_period"])
    };
    assert_eq!(in_grace(), 4);
    // Unlocking is always possible.
    assert_eq!(scene.client.nlm(UNLOCK, &a), GRANTED);
    let again = Ask {
        reclaim: true,
        ..a.clone()
    };
    assert_eq!(scene.client.nlm(LOCK, &again), GRANTED);
    let thief = Ask {
        reclaim: true,
        ..b.clone()
    };
    assert_eq!(scene.client.nlm(LOCK, &thief), DENIED);
    // And once more, until the grace period is over.
    let mut scene = scene.restarted(|locks| locks.grace = Duration::from_secs(2));
    assert_eq!(scene.client.nlm(LOCK, &again), GRANTED);
    while scene.client.nlm(LOCK, &b) == GRACE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(scene.client.nlm(LOCK, &b), DENIED);
    assert_eq!(scene.client.nlm(LOCK, &again), GRACE, "too late");
    assert_eq!(scene.client.nlm(UNLOCK, &a), GRANTED);
    assert_eq!(scene.client.nlm(LOCK, &b), GRANTED);
}

#[test]
fn a_client_without_locks_at_an_orderly_stop_delays_nobody() {
    let mut scene = Scene::new();
    let a = ask("a", &scene.file);
    scene.client.nlm(LOCK, &a);
    scene.client.nlm(UNLOCK, &a);
    scene.server.begin_stop();
    scene.server.stopped();
    let mut scene = scene.restarted(|_| {});
    assert_eq!(scene.client.nlm(LOCK, &a), GRANTED);
    assert!(scene.side.nothing_came());
}

#[test]
fn a_file_in_a_snapshot_has_shared_locks_only() {
    let scene = Scene::new();
    let (mut client, fs, live) = (scene.client, scene.fs, scene.file);
    let root = client.root();
    // The image has a root of the same number, and a file of its own.
    let image = Arc::new(MemoryFileSystem::new());
    let other = Running::new(image.clone(), config());
    other.client().create(&root, "file");
    fs.add_snapshot("then", image);
    let mut at = root;
    for name in [".snapshot", "then", "file"] {
        (at, _) = client.lookup(&at, name.as_bytes()).found();
    }
    let (exclusive, shared) = (
        ask("a", &at),
        Ask {
            exclusive: false,
            ..ask("b", &at)
        },
    );
    assert_eq!(client.nlm(LOCK, &exclusive), ROFS);
    assert_eq!(client.nlm(TEST, &exclusive), ROFS);
    for procedure in [TEST, LOCK, NM_LOCK, UNLOCK] {
        assert_eq!(client.nlm(procedure, &shared), GRANTED);
    }
    assert_eq!(client.nlm(CANCEL, &shared), DENIED);
    // The live file has the same number, and is another file.
    assert_eq!(client.nlm(LOCK, &ask("a", &live)), GRANTED);
    assert_eq!(client.nlm(LOCK, &shared), GRANTED);
    assert_eq!(scene.server.metric("nfs_locks"), 1);
}
