//! What tests of directories have in common that the file system itself does not have: listings, and exports that show them.

use super::{Client, Squash, config, export, post_op, rule};
use forebay_nfs::{Rule, ServerConfig};

pub const NOENT: u32 = 2;
pub const EXIST: u32 = 17;
pub const ROFS: u32 = 30;
pub const STALE: u32 = 70;

/// One export, whose rule is the usual one with a change.
pub fn with_rule(path: &str, change: impl FnOnce(&mut Rule)) -> ServerConfig {
    let mut export = export(1, path, "127.0.0.1", Squash::None);
    let mut own = rule("127.0.0.1", Squash::None);
    change(&mut own);
    export.rules = vec![own];
    ServerConfig {
        exports: vec![export],
        ..config()
    }
}

/// The names that READDIR lists, with their file ids.
pub fn listed(client: &mut Client, directory: &[u8]) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let (mut cookie, mut end) = (0, false);
    while !end {
        let results = client.nfs(16, |w| {
            w.opaque(directory);
            w.u64(cookie);
            w.fixed(&[0; 8]);
            // Few entries at a time, so that the listing goes on at each cookie.
            w.u32(200);
        });
        let mut reader = results.reader();
        assert_eq!(reader.u32(), Ok(0));
        post_op(&mut reader).unwrap();
        reader.array::<8>().unwrap();
        while reader.bool().unwrap() {
            let fileid = reader.u64().unwrap();
            let name = String::from_utf8(reader.opaque(255).unwrap().to_vec()).unwrap();
            let next = reader.u64().unwrap();
            assert!(next > cookie);
            cookie = next;
            found.push((name, fileid));
        }
        end = reader.bool().unwrap();
    }
    found
}

pub fn names(client: &mut Client, directory: &[u8]) -> Vec<String> {
    let listed = listed(client, directory).into_iter();
    listed.map(|(name, _)| name).collect()
}

/// Lists with READDIRPLUS in one call; each handle and the attributes with it must be those that LOOKUP gives. Returns names and
/// file ids.
#[track_caller]
pub fn listed_as_looked_up(client: &mut Client, directory: &[u8]) -> Vec<(Vec<u8>, u64)> {
    let results = client.nfs(17, |w| {
        w.opaque(directory);
        w.u64(0);
        w.fixed(&[0; 8]);
        w.u32(10_000);
        w.u32(10_000);
    });
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    post_op(&mut reader).unwrap();
    reader.array::<8>().unwrap();
    let mut found = Vec::new();
    while reader.bool().unwrap() {
        let fileid = reader.u64().unwrap();
        let name = reader.opaque(255).unwrap().to_vec();
        reader.u64().unwrap();
        let attributes = post_op(&mut reader);
        let handle = reader.option(|r| r.opaque(64)).unwrap();
        assert_eq!(attributes.is_some(), handle.is_some());
        if let (Some(handle), Some(attributes)) = (handle, attributes) {
            assert_eq!(attributes.fileid, fileid);
            let looked_up = client.lookup(directory, &name).found();
            assert_eq!(looked_up, (handle.to_vec(), attributes));
        }
        found.push((name, fileid));
    }
    assert_eq!(reader.bool(), Ok(true));
    reader.end().unwrap();
    found
}
