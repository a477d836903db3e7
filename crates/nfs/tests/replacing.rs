//! Exports that are replaced while clients are connected: which rules apply from when.

mod common;

use std::sync::Arc;

use common::gated::Gated;
use common::*;
use forebay_nfs::{Export, ExportAccess, Rule, Squash};
use forebay_vfs::memory::MemoryFileSystem;

const ACCES: u32 = 13;
const ROFS: u32 = 30;
const STALE: u32 = 70;

fn root_with(rule: Rule) -> Vec<Export> {
    vec![Export {
        id: 1,
        path: b"/".to_vec(),
        rules: vec![rule],
    }]
}

fn read_only() -> Rule {
    Rule {
        access: ExportAccess::ReadOnly,
        ..rule("127.0.0.1", Squash::None)
    }
}

#[test]
fn new_rules_count_for_the_next_call_of_every_connection() {
    let fs = Arc::new(MemoryFileSystem::new());
    let (server, control) = Running::controlled(config(), |_| fs.clone());
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let root = clients[0].root();
    let file = clients[0].create(&root, "file");
    for (round, access) in [ExportAccess::ReadOnly, ExportAccess::ReadWrite]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let rule = Rule {
            access,
            ..read_only()
        };
        control.replace(root_with(rule), |_| fs.clone()).unwrap();
        let expected = if access == ExportAccess::ReadOnly {
            ROFS
        } else {
            0
        };
        for client in &mut clients {
            let written = client.write(&file, 0, b"text").status();
            assert_eq!(written, expected, "round {round}");
            assert_eq!(client.getattr(&file).status(), 0, "round {round}");
        }
    }
    assert_eq!(server.metric("nfs_connections_accepted"), 3);
}

#[test]
fn calls_under_way_end_under_the_rules_under_which_they_began() {
    let fs = Gated::new(true);
    let (server, control) = Running::controlled(config(), |_| fs.clone());
    let mut client = server.client();
    let root = client.root();
    fs.set_open(false);
    let waiting = client.send(NFS, 3, 8, |w| arguments(w, 8, &root, &root));
    server.wait_for("nfs_calls_waiting", |waiting| waiting == 1);
    control
        .replace(root_with(read_only()), |_| fs.clone())
        .unwrap();
    let refused = client.send(NFS, 3, 9, |w| arguments(w, 9, &root, &root));
    let reply = client.receive().unwrap();
    assert_eq!(reply[..4], refused.to_be_bytes());
    assert_eq!(accepted(&reply).status(), ROFS);
    fs.set_open(true);
    let reply = client.receive().unwrap();
    assert_eq!(reply[..4], waiting.to_be_bytes());
    assert_eq!(accepted(&reply).status(), 0);
}

#[test]
fn an_export_that_is_taken_away_and_given_back_keeps_its_handles() {
    let fs = Arc::new(MemoryFileSystem::new());
    let mut two = config();
    two.exports
        .push(export(2, "/other", "127.0.0.1", Squash::None));
    let (server, control) = Running::controlled(two, |_| fs.clone());
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let other = client.mkdir(&root, "other");
    let other_export = || export(2, "/other", "127.0.0.1", Squash::None);
    control
        .replace(vec![other_export()], |_| fs.clone())
        .unwrap();
    // As if the exports had never existed.
    assert_eq!(client.getattr(&file).status(), STALE);
    assert_eq!(client.mount("/"), Err(ACCES));
    assert_eq!(client.getattr(&other).status(), STALE, "of the export of /");
    let handle = client.mount("/other").unwrap();
    assert_eq!(client.getattr(&handle).status(), 0);
    // In another order.
    let back = vec![other_export(), export(1, "/", "127.0.0.1", Squash::Root)];
    control.replace(back, |_| fs.clone()).unwrap();
    assert_eq!(client.getattr(&file).status(), 0);
    assert_eq!(client.getattr(&handle).status(), 0);
    assert_eq!(client.mount("/"), Ok(root));
}

#[test]
fn a_client_whose_rule_changes_keeps_its_handles() {
    let fs = Arc::new(MemoryFileSystem::new());
    let (server, control) = Running::controlled(config(), |_| fs.clone());
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    // Another network for all, and one rule for this client only.
    let mut exports = root_with(rule("10.0.0.0/8", Squash::All));
    exports[0].rules.push(read_only());
    control.replace(exports, |_| fs.clone()).unwrap();
    assert_eq!(client.getattr(&file).status(), 0);
    assert_eq!(client.write(&file, 0, b"text").status(), ROFS);
    // And then no rule for this client.
    let others = root_with(rule("10.0.0.0/8", Squash::All));
    control.replace(others, |_| fs.clone()).unwrap();
    let denied = client.call(NFS, 3, 1, |w| w.opaque(&file));
    assert_eq!(denied[8..12], 1_u32.to_be_bytes(), "denied");
}

#[test]
fn exports_that_cannot_be_served_change_nothing() {
    let fs = Arc::new(MemoryFileSystem::new());
    let (server, control) = Running::controlled(config(), |_| fs.clone());
    let mut client = server.client();
    let root = client.root();
    let twice = [root_with(read_only()), root_with(read_only())].concat();
    let refused = control.replace(twice, |_| fs.clone()).unwrap_err();
    assert!(refused.to_string().contains("id 1"), "{refused}");
    client.create(&root, "still writable");
}
