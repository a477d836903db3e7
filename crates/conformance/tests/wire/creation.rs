//! CREATE unchecked, guarded and exclusive (RFC 1813, section 3.3.8), repeated, by others and after a restart; and
//! the guard of SETATTR (section 3.3.2).

use forebay_conformance::call::{How, Set, SetTime, Stable};
use forebay_conformance::{Call, Status};

use crate::stack::{Client, Stack};

const VERIFIER: [u8; 8] = *b"\0first\0\xff";
const ANOTHER: [u8; 8] = *b"\0first\0\xfe";

fn exclusive(directory: &[u8], verifier: [u8; 8]) -> Call {
    Call::create(directory, b"exclusive", How::Exclusive(verifier))
}

/// Checks a repeated exclusive CREATE, and others of the same name, while `file` exists.
fn is_known_by_its_verifier(root: &mut Client, top: &[u8], file: &[u8]) {
    let before = (root.attributes(top), root.attributes(file));
    let again = root.ok(&exclusive(top, VERIFIER));
    assert_eq!(again.handle.as_deref(), Some(file));
    assert_eq!(again.attributes, [Some(before.1.clone())]);
    assert_eq!(root.status(&exclusive(top, ANOTHER)), Status::EXIST);
    let guarded = Call::create(top, b"exclusive", How::Guarded(Set::default()));
    assert_eq!(root.status(&guarded), Status::EXIST);
    assert_eq!(before, (root.attributes(top), root.attributes(file)));
}

#[test]
fn an_exclusive_create_finds_its_own_file_and_nobody_elses_across_crash_and_restart() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.made(&exclusive(&top, VERIFIER));
    is_known_by_its_verifier(&mut root, &top, &file);
    // A new connection uses other call numbers: nothing comes from the replay cache.
    is_known_by_its_verifier(&mut stack.root(), &top, &file);
    stack.crash();
    stack.start();
    is_known_by_its_verifier(&mut stack.root(), &top, &file);
    stack.stop();
    stack.start();
    is_known_by_its_verifier(&mut stack.root(), &top, &file);

    // The client's next call: SETATTR of everything that CREATE could not carry. The verifier is kept.
    let mut root = stack.root();
    let set = Set {
        mode: Some(0o640),
        atime: SetTime::To((1, 2)),
        mtime: SetTime::To((3, 4)),
        ..Set::default()
    };
    root.ok(&Call::setattr(&file, &set, None));
    let found = root.attributes(&file);
    assert_eq!(
        (found.mode, found.atime, found.mtime),
        (0o640, (1, 2), (3, 4))
    );
    is_known_by_its_verifier(&mut root, &top, &file);

    // Another file with the same name has another verifier.
    root.ok(&Call::remove(&top, b"exclusive"));
    let other = root.made(&exclusive(&top, ANOTHER));
    assert_ne!(other, file);
    assert_eq!(root.status(&exclusive(&top, VERIFIER)), Status::EXIST);
}

#[test]
fn an_exclusive_create_does_not_take_a_file_that_was_made_otherwise() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    root.file(&top, b"exclusive");
    for verifier in [[0; 8], VERIFIER] {
        assert_eq!(root.status(&exclusive(&top, verifier)), Status::EXIST);
    }
}

#[test]
fn an_unchecked_create_takes_the_file_that_is_there_and_sets_its_size_alone() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    root.ok(&Call::write(&file, 0, b"content", Stable::FileSync));
    let set = Set {
        mode: Some(0o777),
        ..Set::default()
    };
    let unchecked = |set| Call::create(&top, b"file", How::Unchecked(set));
    let before = (root.attributes(&top), root.attributes(&file));
    let found = root.ok(&unchecked(set));
    assert_eq!(found.handle.as_ref(), Some(&file));
    assert_eq!(found.attributes, [Some(before.1.clone())]);
    assert_eq!(before, (root.attributes(&top), root.attributes(&file)));
    let cut = Set {
        size: Some(0),
        ..set
    };
    let found = root.ok(&unchecked(cut));
    assert_eq!(found.handle.as_ref(), Some(&file));
    let after = root.attributes(&file);
    assert_eq!((after.size, after.mode), (0, before.1.mode));
    assert_eq!(found.attributes, [Some(after)]);
}

#[test]
fn a_guarded_create_sets_what_it_is_told() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let set = Set {
        mode: Some(0o4751),
        uid: Some(11),
        gid: Some(12),
        size: Some(5_000_000),
        atime: SetTime::To((u32::MAX, 999_999_999)),
        mtime: SetTime::To((0, 0)),
    };
    let file = root.made(&Call::create(&top, b"file", How::Guarded(set)));
    let found = root.attributes(&file);
    assert_eq!((found.kind, found.mode), (1, 0o4751));
    assert_eq!((found.uid, found.gid, found.size), (11, 12, 5_000_000));
    assert_eq!(
        (found.atime, found.mtime),
        ((u32::MAX, 999_999_999), (0, 0))
    );
    assert_eq!((found.nlink, found.used), (1, 0));
}

#[test]
fn a_guard_that_holds_lets_one_change_pass() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    let guard = root.attributes(&file).ctime;
    stack.stop();
    stack.start();
    let mut root = stack.root();
    let set = |size| Set {
        size: Some(size),
        ..Set::default()
    };
    let first = Call::setattr(&file, &set(7), Some(guard));
    let second = Call::setattr(&file, &set(9), Some(guard));
    root.ok(&first);
    assert_eq!(root.status(&second), Status::NOT_SYNC);
    assert_eq!(root.attributes(&file).size, 7);
    let guard = root.attributes(&file).ctime;
    root.ok(&Call::setattr(&file, &set(9), Some(guard)));
    assert_eq!(root.attributes(&file).size, 9);
}
