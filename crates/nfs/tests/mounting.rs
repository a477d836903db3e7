//! The MOUNT protocol and exports: which clients may mount, which directories, and as which user.

mod common;

use std::sync::Arc;

use common::*;
use forebay_nfs::xdr::Writer;
use forebay_nfs::{NOBODY, Squash, View};
use forebay_vfs::memory::MemoryFileSystem;

const ACCES: u32 = 13;
const STALE: u32 = 70;

#[test]
fn mount_gives_a_handle_and_refuses_what_is_not_there() {
    let server = Running::memory();
    let mut client = server.client();
    let root = client.root();
    let below = client.mkdir(&root, "below");
    client.create(&root, "file");
    assert_eq!(client.mount("/below/"), Ok(below));
    assert_eq!(client.mount("/none"), Err(2));
    assert_eq!(client.mount("/file"), Err(20));
    assert_eq!(client.mount("/below/.."), Err(2));
}

#[test]
fn dump_export_and_unmount() {
    let server = Running::memory();
    let mut client = server.client();
    client.root();
    let list =
        |client: &mut Client, procedure| accepted(&client.call(MOUNT, 3, procedure, |_| {})).0;
    let dumped = list(&mut client, 2);
    let mut expected = vec![0, 0, 0, 1, 0, 0, 0, 9];
    expected.extend(b"127.0.0.1\0\0\0\0\0\0\x01/\0\0\0\0\0\0\0");
    assert_eq!(dumped, expected);
    let exported = list(&mut client, 5);
    let mut expected = vec![
        0, 0, 0, 1, 0, 0, 0, 1, b'/', 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9,
    ];
    expected.extend(b"127.0.0.1\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(exported, expected);
    client.call(MOUNT, 3, 3, |w| w.opaque(b"/"));
    assert_eq!(list(&mut client, 2), [0; 4]);
    client.root();
    client.call(MOUNT, 3, 4, |_| {});
    assert_eq!(list(&mut client, 2), [0; 4]);
}

#[test]
fn a_client_outside_every_export_gets_nothing() {
    let mut closed = config();
    closed.exports = vec![export(1, "/", "192.0.2.0/24", Squash::None)];
    let server = Running::new(Arc::new(MemoryFileSystem::new()), closed);
    let mut client = server.client();
    assert_eq!(client.mount("/"), Err(ACCES));
    assert_eq!(client.mount("/none"), Err(ACCES));
    for procedure in [2, 5] {
        let listed = client.call(MOUNT, 3, procedure, |_| {});
        assert_eq!(accepted(&listed).0, [0; 4]);
    }
    // NULL is answered; anything else is denied: AUTH_ERROR, AUTH_TOOWEAK.
    assert!(client.nfs(0, |_| {}).0.is_empty());
    let denied = client.call(NFS, 3, 1, |w| w.opaque(&[0; 32]));
    assert_eq!(
        denied[4..],
        [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]
    );
}

#[test]
fn a_handle_of_an_export_for_others_looks_like_one_that_was_never_given_out() {
    let fs = Arc::new(MemoryFileSystem::new());
    let open = Running::new(fs.clone(), config());
    let root = open.client().root();
    let mut split = config();
    split.exports = vec![
        export(1, "/", "192.0.2.0/24", Squash::None),
        export(2, "/", "127.0.0.1", Squash::None),
    ];
    let server = Running::new(fs, split);
    let mut client = server.client();
    let mut forged = root.clone();
    forged[31] ^= 1;
    for procedure in 1..=21 {
        let mut answer = |handle: &[u8]| {
            let asked = |w: &mut Writer| arguments(w, procedure, handle, handle);
            accepted(&client.call(NFS, 3, procedure, asked)).0
        };
        let results = answer(&root);
        assert_eq!(results[..4], STALE.to_be_bytes(), "procedure {procedure}");
        assert_eq!(results, answer(&forged), "procedure {procedure}");
    }
}

#[test]
fn an_export_below_the_root_does_not_lead_out_of_itself() {
    let fs = Arc::new(MemoryFileSystem::new());
    let whole = Running::new(fs.clone(), config());
    let mut client = whole.client();
    let root = client.root();
    let home = client.mkdir(&root, "home");
    client.mkdir(&home, "inner");
    let home_id = client.attributes(&home).fileid;
    drop(whole);

    let mut below = config();
    below.exports = vec![export(7, "/home", "127.0.0.1", Squash::None)];
    let server = Running::new(fs, below);
    let mut client = server.client();
    assert_eq!(client.mount("/"), Err(ACCES));
    let top = client.mount("/home").unwrap();
    let (above, attributes) = client.lookup(&top, b"..").found();
    assert_eq!((above, attributes.fileid), (top.clone(), home_id));
    let (inner, _) = client.lookup(&top, b"inner").found();
    assert_eq!(client.lookup(&inner, b"..").found().0, top);
    // READDIRPLUS shows the same.
    let results = client.nfs(17, |w| {
        w.opaque(&top);
        w.u64(1);
        w.u64(0);
        w.u32(4096);
        w.u32(4096);
    });
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    post_op(&mut reader);
    reader.array::<8>().unwrap();
    assert_eq!(reader.bool(), Ok(true));
    assert_eq!(reader.u64(), Ok(home_id));
    assert_eq!(reader.opaque(255), Ok(&b".."[..]));
    reader.u64().unwrap();
    assert_eq!(post_op(&mut reader).unwrap().fileid, home_id);
    assert_eq!(reader.option(|r| r.opaque(64)), Ok(Some(&top[..])));
}

#[test]
fn nothing_is_renamed_or_linked_from_one_export_into_another() {
    let fs = Arc::new(MemoryFileSystem::new());
    let mut two = config();
    two.exports
        .push(export(2, "/home", "127.0.0.1", Squash::None));
    let server = Running::new(fs, two);
    let mut client = server.client();
    let root = client.root();
    client.mkdir(&root, "home");
    let home = client.mount("/home").unwrap();
    let file = client.create(&root, "file");
    let renamed = client.nfs(14, |w| {
        w.opaque(&root);
        w.opaque(b"file");
        w.opaque(&home);
        w.opaque(b"file");
    });
    assert_eq!(renamed.status(), 18);
    let linked = client.nfs(15, |w| {
        w.opaque(&file);
        w.opaque(&home);
        w.opaque(b"file");
    });
    assert_eq!(linked.status(), 18);
}

#[test]
fn callers_are_squashed_as_the_export_says() {
    for (squash, root, user) in [
        (Squash::None, 0, 1000),
        (Squash::Root, NOBODY, 1000),
        (Squash::All, NOBODY, NOBODY),
    ] {
        let mut squashed = config();
        squashed.exports[0].rules[0].squash = squash;
        let fs = Arc::new(MemoryFileSystem::new());
        let server = Running::new(fs.clone(), config());
        let mut client = server.client();
        let handle = client.root();
        // All users may write here.
        client.nfs(2, |w| {
            w.opaque(&handle);
            w.u32(1);
            w.u32(0o777);
            (0..6).for_each(|_| w.u32(0));
        });
        let server = Running::new(fs, squashed);
        let owner_of = |caller: As, name: &str| {
            let mut client = server.client().with_identity(caller);
            let file = client.create(&handle, name);
            client.attributes(&file).uid
        };
        assert_eq!(owner_of(ROOT, "root"), root);
        assert_eq!(owner_of(As::User(1000, 100, vec![]), "user"), user);
        assert_eq!(owner_of(As::Nobody, "nobody"), NOBODY);
    }
}

#[test]
fn handles_survive_a_restart() {
    let fs = Arc::new(MemoryFileSystem::new());
    let first = Running::new(fs.clone(), config());
    let mut client = first.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let before = client.attributes(&file);
    drop(first);
    let second = Running::new(fs, config());
    assert_eq!(second.client().attributes(&file), before);
}

#[test]
fn clients_of_an_export_have_the_file_system_as_it_is_for_that_export() {
    let mut both = config();
    both.exports = vec![
        export(1, "/", "127.0.0.1", Squash::None),
        export(2, "/own", "127.0.0.1", Squash::None),
    ];
    both.exports[1].rules[0].view = View(1);
    // Two file systems, to show which one was called.
    let views = [1, 2].map(|_| Arc::new(MemoryFileSystem::new()));
    let server = Running::with_views(both, |view| views[view.0 as usize].clone());
    let mut client = server.client();
    let root = client.root();
    client.create(&root, "in the first");
    assert_eq!(
        client.mount("/own"),
        Err(2),
        "the second has no such directory"
    );

    let mut only = config();
    only.exports = vec![export(2, "/", "127.0.0.1", Squash::None)];
    let through_second = Running::with_views(only, |_| views[1].clone());
    let mut client = through_second.client();
    let root = client.root();
    client.mkdir(&root, "own");

    let mut client = server.client();
    let own = client.mount("/own").unwrap();
    let file = client.create(&own, "in the second");
    assert_eq!(client.write(&file, 0, b"text").status(), 0);
    assert_eq!(client.lookup(&own, b"in the second").status(), 0);
    let root = client.root();
    assert_eq!(client.lookup(&root, b"own").status(), 2);
    assert_eq!(client.lookup(&root, b"in the first").status(), 0);
}

#[test]
fn a_bad_configuration_is_refused_with_what_is_wrong() {
    let mut twice = config();
    twice.exports.push(twice.exports[0].clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fs = Arc::new(MemoryFileSystem::new());
    let any = "127.0.0.1:0".parse().unwrap();
    let bound = runtime.block_on(forebay_nfs::Server::bind(any, fs, twice));
    let error = bound.err().unwrap();
    assert!(
        error.to_string().contains("two exports have the id 1"),
        "{error}"
    );
}
