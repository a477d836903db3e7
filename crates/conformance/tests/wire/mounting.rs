//! MNT (RFC 1813, section 5.2.1): its errors, and handles that are the same at every mount.

use forebay_client::xdr::Encoder;
use forebay_conformance::Rejected;
use forebay_conformance::call::Set;
use forebay_conformance::{Call, Status};

use crate::resources::change_record;
use crate::stack::{MOUNT, OTHER_EXPORT, Stack};

/// `mountstat3`. MNT3ERR_ACCES is for clients of no export, and tested in `crates/nfs/tests/mounting.rs`. The others
/// that are not here are impossible: MNT checks no permission of a user (PERM), an invalid path does not exist (INVAL),
/// and everything is supported (NOTSUPP).
const NOENT: u32 = 2;
const IO: u32 = 5;
const NOTDIR: u32 = 20;
const NAMETOOLONG: u32 = 63;
const SERVERFAULT: u32 = 10006;

#[test]
fn every_error_of_mnt() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let directory = root.directory(&top, b"directory");
    root.file(&directory, b"file");
    root.ok(&Call::symlink(&directory, b"link", &Set::default(), b"/"));
    let damaged = root.directory(&top, b"damaged");
    let damaged = root.attributes(&damaged).fileid;
    root.chmod(&directory, 0o700);
    let long = [b"/directory/", &[b'n'; 256][..]].concat();
    let cases: [(&[u8], u32); 6] = [
        (b"/nothing", NOENT),
        (b"/directory/nothing/below", NOENT),
        (b"/directory/file", NOTDIR),
        (b"/directory/file/below", NOTDIR),
        (b"/directory/link", NOTDIR),
        (&long, NAMETOOLONG),
    ];
    for client in [&mut root, &mut stack.user(1000)] {
        for (path, status) in cases {
            let shown = path.escape_ascii();
            assert_eq!(client.mount(path), Err(status), "{shown}");
        }
        assert_eq!(client.mount(b"/directory"), Ok(directory.clone()));
        // Additional slashes are ignored.
        assert_eq!(client.mount(b"//directory///"), Ok(directory.clone()));
        assert_eq!(client.mount(b"directory"), Ok(directory.clone()));
        assert_eq!(client.mount(b""), Ok(top.clone()));
    }
    stack.stop();
    change_record(&stack, damaged, |_, _| b"nonsense"[..].into());
    stack.start();
    let mut root = stack.root();
    assert_eq!(root.mount(b"/damaged"), Err(IO));
    assert_eq!(root.mount(b"/directory"), Ok(directory));
    assert_eq!(root.top(), top);
    stack.stop();
    stack.start();
    stack.set_away(true);
    // `mountstat3` has no value for "later".
    assert_eq!(stack.root().mount(b"/directory"), Err(SERVERFAULT));
}

#[test]
fn an_export_that_is_not_there_yet_can_be_mounted_once_it_is() {
    let stack = Stack::new();
    let mut root = stack.root();
    let path = format!("/{OTHER_EXPORT}");
    assert_eq!(root.mount(path.as_bytes()), Err(NOENT));
    let top = root.top();
    let made = root.directory(&top, OTHER_EXPORT.as_bytes());
    let mounted = root.mount(path.as_bytes()).unwrap();
    // The same directory, through another export.
    assert_ne!(mounted, made);
    assert_eq!(root.attributes(&mounted), root.attributes(&made));
    root.ok(&Call::rmdir(&top, OTHER_EXPORT.as_bytes()));
    assert_eq!(root.status(&Call::getattr(&mounted)), Status::STALE);
    assert_eq!(root.mount(path.as_bytes()), Err(NOENT));
}

#[test]
fn a_path_of_1024_bytes_is_the_longest() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let mut directory = top.clone();
    let mut path = Vec::new();
    for _ in 0..4 {
        let name = [b'd'; 255];
        directory = root.directory(&directory, &name);
        path.push(b'/');
        path.extend_from_slice(&name);
    }
    assert_eq!(path.len(), 1024);
    assert_eq!(root.mount(&path), Ok(directory));
    path.push(b'/');
    let path = Encoder::default().opaque(&path);
    for procedure in [1, 3] {
        let answer = root.0.exchange(MOUNT, 3, procedure, &path.0).unwrap();
        assert_eq!(answer, Err(Rejected::Garbage));
    }
}
