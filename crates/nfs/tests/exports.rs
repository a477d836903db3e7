//! The rules of exports over the wire: what a client may do, as which user, from where, and what it can find out.

mod common;

use std::sync::Arc;

use common::*;
use forebay_nfs::xdr::Writer;
use forebay_nfs::{
    Anonymous, Export, ExportAccess, Flavors, NOBODY, Rule, ServerConfig, SourcePort, Squash,
};
use forebay_vfs::memory::MemoryFileSystem;

const NOENT: u32 = 2;
const ACCES: u32 = 13;
const ROFS: u32 = 30;
const STALE: u32 = 70;
/// Reply, denied, AUTH_ERROR, AUTH_TOOWEAK.
const TOO_WEAK: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5];

/// SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
const CHANGES: [u32; 10] = [2, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The root directory under these rules.
fn with_rules(rules: Vec<Rule>) -> ServerConfig {
    let path = b"/".to_vec();
    ServerConfig {
        exports: vec![Export { id: 1, path, rules }],
        ..config()
    }
}

fn read_only(clients: &str) -> Rule {
    Rule {
        access: ExportAccess::ReadOnly,
        ..rule(clients, Squash::None)
    }
}

/// The rights that ACCESS grants out of all.
fn granted(client: &mut Client, handle: &[u8]) -> u32 {
    let results = client.nfs(4, |w| arguments(w, 4, handle, handle));
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    post_op(&mut reader);
    reader.u32().unwrap()
}

/// The flavors in the reply to MNT.
fn flavors(client: &mut Client) -> Vec<u32> {
    let reply = client.call(MOUNT, 3, 1, |w| w.opaque(b"/"));
    let results = accepted(&reply);
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    reader.opaque(64).unwrap();
    let count = reader.u32().unwrap();
    let flavors = (0..count).map(|_| reader.u32().unwrap()).collect();
    reader.end().unwrap();
    flavors
}

#[test]
fn nothing_can_be_changed_under_an_export_that_is_ro() {
    let fs = Arc::new(MemoryFileSystem::new());
    let open = Running::new(fs.clone(), config());
    let mut client = open.client();
    let root = client.root();
    let file = client.create(&root, "name");
    client.write(&file, 0, b"text");
    let before = (client.attributes(&root), client.attributes(&file));
    drop(open);

    let closed = Running::new(fs, with_rules(vec![read_only("127.0.0.1")]));
    let mut client = closed.client();
    assert_eq!(client.mount("/"), Ok(root.clone()), "handles do not change");
    for procedure in CHANGES {
        let handle = if matches!(procedure, 2 | 7 | 15) {
            &file
        } else {
            &root
        };
        let results = client.nfs(procedure, |w| arguments(w, procedure, handle, &root));
        assert_eq!(results.status(), ROFS, "procedure {procedure}");
    }
    // The rule is checked before the arguments.
    let beyond = client.nfs(7, |w| write_arguments(w, &file, u64::MAX, b"x", 0));
    assert_eq!(beyond.changed().0, ROFS);
    // The attributes come along, so that clients can correct their caches.
    let (status, after) = client.write(&file, 0, b"more").changed();
    assert_eq!((status, after.unwrap().size), (ROFS, 4));
    for (procedure, handle) in [(1, &file), (3, &root), (6, &file), (16, &root), (17, &root)] {
        let results = client.nfs(procedure, |w| arguments(w, procedure, handle, handle));
        assert_eq!(results.status(), 0, "procedure {procedure}");
    }
    // COMMIT only makes earlier writes durable.
    let committed = client.nfs(21, |w| arguments(w, 21, &file, &file));
    assert_eq!(committed.status(), 0);
    assert_eq!(client.read(&file, 0, 10).0, b"text");
    assert_eq!((client.attributes(&root), client.attributes(&file)), before);
}

#[test]
fn access_offers_no_change_under_an_export_that_is_ro() {
    let fs = Arc::new(MemoryFileSystem::new());
    let open = Running::new(fs.clone(), config());
    let root = open.client().root();
    // READ, LOOKUP, MODIFY, EXTEND, DELETE (EXECUTE has no meaning for a directory).
    assert_eq!(granted(&mut open.client(), &root) & 0x1f, 0x1f);
    let closed = Running::new(fs, with_rules(vec![read_only("127.0.0.1")]));
    assert_eq!(granted(&mut closed.client(), &root) & 0x1f, 0x03);
}

#[test]
fn clients_of_one_export_have_rules_of_their_own_and_the_same_handles() {
    let mut narrow = rule("127.0.0.2", Squash::None);
    narrow.access = ExportAccess::ReadWrite;
    let rules = vec![read_only("127.0.0.0/8"), narrow];
    let server = Running::new(Arc::new(MemoryFileSystem::new()), with_rules(rules));
    let mut many = Client::connect_from("127.0.0.1", server.address);
    let mut one = Client::connect_from("127.0.0.2", server.address);
    let root = one.root();
    assert_eq!(many.root(), root);
    let file = one.create(&root, "file");
    assert_eq!(one.write(&file, 0, b"text").status(), 0);
    assert_eq!(many.write(&file, 0, b"else").status(), ROFS);
    assert_eq!(many.read(&file, 0, 10).0, b"text");
}

#[test]
fn squashed_callers_are_the_anonymous_user_of_the_export() {
    let mut all = rule("127.0.0.1", Squash::All);
    all.anonymous = Anonymous { uid: 150, gid: 100 };
    let fs = Arc::new(MemoryFileSystem::new());
    let open = Running::new(fs.clone(), config());
    let mut client = open.client();
    let root = client.root();
    client.nfs(2, |w| {
        w.opaque(&root);
        w.u32(1);
        w.u32(0o777);
        (0..6).for_each(|_| w.u32(0));
    });
    let server = Running::new(fs, with_rules(vec![all]));
    for (name, caller) in [
        ("root", ROOT),
        ("user", As::User(1000, 100, vec![27])),
        ("nobody", As::Nobody),
    ] {
        let mut client = server.client().with_identity(caller);
        let file = client.create(&root, name);
        let made = client.attributes(&file);
        assert_eq!((made.uid, made.gid), (150, 100), "{name}");
    }
}

#[test]
fn credentials_of_another_flavor_are_too_weak_and_do_nothing() {
    let fs = Arc::new(MemoryFileSystem::new());
    let mut sys = rule("127.0.0.1", Squash::None);
    sys.flavors = Flavors::SYS;
    let server = Running::new(fs.clone(), with_rules(vec![sys]));
    let mut client = server.client();
    let root = client.root();
    assert_eq!(flavors(&mut client), [1]);
    let before = client.attributes(&root);
    let mut nobody = server.client().with_identity(As::Nobody);
    for procedure in 1..=21 {
        let asked = |w: &mut Writer| arguments(w, procedure, &root, &root);
        let denied = nobody.call(NFS, 3, procedure, asked);
        assert_eq!(denied[4..], TOO_WEAK, "procedure {procedure}");
    }
    assert_eq!(client.attributes(&root), before);
    // A guessed handle does not reveal that.
    assert_eq!(
        nobody
            .getattr(&[&root[..31], &[!root[31]]].concat())
            .status(),
        STALE
    );
    // NULL, and MNT as mount programs send it, are open to everyone.
    assert!(nobody.nfs(0, |_| {}).0.is_empty());
    assert_eq!(nobody.mount("/"), Ok(root.clone()));

    // With AUTH_NONE only, the identity that the client claims is ignored.
    let mut none = rule("127.0.0.1", Squash::None);
    none.flavors = Flavors {
        sys: false,
        none: true,
    };
    let server = Running::new(fs.clone(), with_rules(vec![none]));
    let mut client = server.client();
    assert_eq!(flavors(&mut client), [0]);
    let made = client.create(&root, "made");
    assert_eq!(client.attributes(&made).uid, NOBODY);

    let both = rule("127.0.0.1", Squash::None);
    let server = Running::new(fs, with_rules(vec![both]));
    assert_eq!(flavors(&mut server.client()), [1, 0]);
    assert_eq!(server.client().getattr(&root).status(), 0);
    let mut nobody = server.client().with_identity(As::Nobody);
    assert_eq!(nobody.getattr(&root).status(), 0);
}

#[test]
fn a_client_with_an_unprivileged_port_gets_nothing_where_the_port_counts() {
    let fs = Arc::new(MemoryFileSystem::new());
    let open = Running::new(fs.clone(), config());
    let root = open.client().root();
    let mut secure = rule("127.0.0.1", Squash::None);
    secure.source_port = SourcePort::Privileged;
    let server = Running::new(fs, with_rules(vec![secure]));
    let mut client = server.client();
    assert_eq!(client.mount("/"), Err(ACCES));
    let denied = client.call(NFS, 3, 1, |w| w.opaque(&root));
    assert_eq!(denied[4..], TOO_WEAK);
    // Every user of a client that may mount can use `showmount`.
    let listed = accepted(&client.call(MOUNT, 3, 5, |_| {})).0;
    assert_eq!(listed[..12], [0, 0, 0, 1, 0, 0, 0, 1, b'/', 0, 0, 0]);
}

#[test]
fn a_client_is_told_of_no_export_and_no_mount_but_its_own() {
    let mut two = config();
    two.exports = vec![
        export(1, "/ours", "127.0.0.1", Squash::None),
        export(2, "/theirs", "127.0.0.2", Squash::None),
        export(3, "/", "127.0.0.3", Squash::None),
    ];
    let server = Running::new(Arc::new(MemoryFileSystem::new()), two);
    let mut above = Client::connect_from("127.0.0.3", server.address);
    let root = above.root();
    above.mkdir(&root, "ours");
    above.mkdir(&root, "theirs");
    let mut ours = Client::connect_from("127.0.0.1", server.address);
    let mut theirs = Client::connect_from("127.0.0.2", server.address);
    ours.mount("/ours").unwrap();
    theirs.mount("/theirs").unwrap();
    // Whether the path exists makes no difference.
    for path in [
        "/theirs",
        "/theirs/x",
        "/nowhere",
        "/",
        "",
        "/ours/../theirs",
    ] {
        let refused = ours.mount(path);
        let expected = if path.starts_with("/ours") {
            NOENT
        } else {
            ACCES
        };
        assert_eq!(refused, Err(expected), "{path}");
    }
    for procedure in [2, 5] {
        let listed = accepted(&ours.call(MOUNT, 3, procedure, |_| {})).0;
        let has = |text: &[u8]| listed.windows(text.len()).any(|part| part == text);
        assert!(has(b"/ours") && has(b"127.0.0.1"), "procedure {procedure}");
        assert!(!has(b"/theirs") && !has(b"127.0.0.2") && !has(b"127.0.0.3"));
    }
}

#[test]
fn a_client_that_mounts_everything_makes_the_server_forget_no_other() {
    let mut server = config();
    server.exports[0].rules = vec![rule("127.0.0.0/8", Squash::None)];
    let server = Running::new(Arc::new(MemoryFileSystem::new()), server);
    let mut quiet = Client::connect_from("127.0.0.2", server.address);
    let root = quiet.root();
    let mut loud = Client::connect_from("127.0.0.1", server.address);
    for number in 0..300 {
        let name = format!("{number:0200}");
        loud.mkdir(&root, &name);
        loud.mount(&format!("/{name}")).unwrap();
    }
    let dumped = |client: &mut Client| {
        let results = accepted(&client.call(MOUNT, 3, 2, |_| {}));
        let mut reader = results.reader();
        let mut mounts = Vec::new();
        while reader.bool().unwrap() {
            let address = reader.opaque(48).unwrap().to_vec();
            let path = reader.opaque(1024).unwrap().to_vec();
            mounts.push((String::from_utf8(address).unwrap(), path));
        }
        reader.end().unwrap();
        mounts
    };
    let mounts = dumped(&mut quiet);
    assert_eq!(mounts.len(), 1 + 64);
    assert_eq!(mounts[0], ("127.0.0.2".to_owned(), b"/".to_vec()));
    assert_eq!(mounts[64].1, format!("/{:0200}", 299).into_bytes());
    // Regardless of how the path is written.
    quiet.call(MOUNT, 3, 3, |w| w.opaque(b"//"));
    assert_eq!(dumped(&mut quiet).len(), 64);
}

/// A directory that was moved out of an export while a client had its handle.
#[test]
fn what_was_moved_out_of_an_export_can_be_used_and_leads_nowhere() {
    let fs = Arc::new(MemoryFileSystem::new());
    let mut both = config();
    both.exports
        .push(export(7, "/home", "127.0.0.1", Squash::None));
    let server = Running::new(fs, both);
    let mut client = server.client();
    let root = client.root();
    let home = client.mkdir(&root, "home");
    let out = client.mkdir(&home, "out");
    client.mkdir(&out, "below");

    let top = client.mount("/home").unwrap();
    let (held, _) = client.lookup(&top, b"out").found();
    let (below, _) = client.lookup(&held, b"below").found();
    assert_eq!(client.lookup(&held, b"..").found().0, top);
    let moved = client.nfs(14, |w| {
        w.opaque(&home);
        w.opaque(b"out");
        w.opaque(&root);
        w.opaque(b"out");
    });
    assert_eq!(moved.status(), 0);
    assert_eq!(client.getattr(&held).status(), 0);
    assert_eq!(client.lookup(&held, b"..").found().0, held);
    assert_eq!(client.lookup(&below, b"..").found().0, below);
    // It still is a part of the root export.
    assert_eq!(client.lookup(&out, b"..").found().0, root);
}
