//! Weak cache consistency (RFC 1813, section 2.6): the attributes before and after a change in a reply are those of
//! GETATTR, and concurrent changes form one chain.

use std::collections::BTreeMap;

use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{Set, Stable};
use forebay_conformance::results::Before;
use forebay_conformance::{Call, Results};

use crate::stack::{Client, Stack};

/// Makes a call that changes the objects of these handles, and compares the attributes in its reply with those of
/// GETATTR over another connection.
#[track_caller]
fn changes(stack: &Stack, root: &mut Client, call: &Call, objects: &[&[u8]]) -> Results {
    let mut other = stack.root();
    let procedure = call.procedure;
    let before: Vec<_> = objects
        .iter()
        .map(|object| other.attributes(object))
        .collect();
    let results = root.ok(call);
    assert_eq!(results.changes.len(), objects.len());
    for ((object, before), told) in objects.iter().zip(&before).zip(&results.changes) {
        let after = other.attributes(object);
        assert_eq!(told.before, Some(Before::from(before)), "{procedure:?}");
        assert_eq!(told.after.as_ref(), Some(&after), "{procedure:?}");
        assert_ne!(
            after.ctime, before.ctime,
            "{procedure:?}: the change can be seen"
        );
    }
    results
}

/// The same for a call that makes an object, whose attributes are in the reply as well.
#[track_caller]
fn makes(stack: &Stack, root: &mut Client, call: &Call, directory: &[u8]) -> Vec<u8> {
    let results = changes(stack, root, call, &[directory]);
    let object = results.handle.unwrap();
    assert_eq!(results.attributes, [Some(root.attributes(&object))]);
    object
}

#[test]
fn every_change_tells_what_was_before_and_what_is_after() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let one = makes(
        &stack,
        &mut root,
        &Call::mkdir(&top, b"one", &Set::default()),
        &top,
    );
    let two = makes(
        &stack,
        &mut root,
        &Call::mkdir(&top, b"two", &Set::default()),
        &top,
    );
    let mut made = BTreeMap::new();
    for procedure in [Create, Symlink, Mknod] {
        let call = Call::any(procedure, &one, format!("{procedure:?}").as_bytes(), &one);
        made.insert(procedure, makes(&stack, &mut root, &call, &one));
    }
    let file = &made[&Create];
    let before = root.attributes(file);
    for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
        let write = Call::write(file, 5, b"data", stable);
        changes(&stack, &mut root, &write, &[file]);
    }
    let set = Set {
        mode: Some(0o600),
        size: Some(3),
        ..Set::default()
    };
    changes(&stack, &mut root, &Call::setattr(file, &set, None), &[file]);
    assert_eq!(root.attributes(file).atime, before.atime);

    let link = Call::link(file, &two, b"link");
    let linked = changes(&stack, &mut root, &link, &[&two]);
    assert_eq!(linked.attributes, [Some(root.attributes(file))]);
    let rename = Call::rename((&one, b"Create"), (&two, b"moved"));
    changes(&stack, &mut root, &rename, &[&one, &two]);
    let rename = Call::rename((&two, b"moved"), (&two, b"again"));
    changes(&stack, &mut root, &rename, &[&two, &two]);
    changes(&stack, &mut root, &Call::remove(&two, b"again"), &[&two]);
    assert_eq!(root.attributes(file).nlink, 1);
    changes(&stack, &mut root, &Call::remove(&two, b"link"), &[&two]);
    changes(&stack, &mut root, &Call::rmdir(&top, b"two"), &[&top]);
}

#[test]
fn what_only_looks_tells_the_attributes_and_changes_none() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    for procedure in Procedure::ALL {
        if Procedure::CHANGES.contains(&procedure) {
            continue;
        }
        let name = format!("for-{procedure:?}");
        let object = root.object(procedure, &top, name.as_bytes());
        if procedure == Lookup {
            root.file(&object, b"name");
        }
        let before = root.attributes(&object);
        let results = root.ok(&Call::any(procedure, &object, b"name", b""));
        let told = match procedure {
            // First the object, which is not the directory, then the directory.
            Lookup => {
                let found = root.attributes(results.handle.as_ref().unwrap());
                assert_eq!(results.attributes[0], Some(found));
                &results.attributes[1]
            }
            Commit => {
                assert_eq!(results.changes[0].before, Some(Before::from(&before)));
                &results.changes[0].after
            }
            _ => &results.attributes[0],
        };
        assert_eq!(told.as_ref(), Some(&before), "{procedure:?}");
        assert_eq!(root.attributes(&object), before, "{procedure:?}");
    }
}

/// Checks that the replies form a chain from `first` on: each change began where another one ended.
fn is_a_chain(first: Before, mut told: Vec<(Before, Before)>) {
    let mut at = first;
    while !told.is_empty() {
        let next = told.iter().position(|(before, _)| *before == at);
        let next = next.unwrap_or_else(|| panic!("no change began at {at:?}; {} left", told.len()));
        at = told.swap_remove(next).1;
    }
}

/// Several clients change one object at the same time, each with calls of its own.
fn change_together(stack: &Stack, object: &[u8], call: impl Fn(usize, u64) -> Call + Sync) {
    const CLIENTS: usize = 4;
    const CALLS: u64 = 40;
    let first = Before::from(&stack.root().attributes(object));
    let told = std::thread::scope(|scope| {
        let call = &call;
        let clients = (0..CLIENTS).map(|client| {
            let mut connection = stack.root();
            scope.spawn(move || {
                let told = (0..CALLS).map(|number| {
                    let results = connection.ok(&call(client, number));
                    let change = &results.changes[0];
                    let after = change.after.as_ref().unwrap();
                    (change.before.clone().unwrap(), Before::from(after))
                });
                told.collect::<Vec<_>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        let told = clients.into_iter().map(|client| client.join().unwrap());
        told.flatten().collect::<Vec<_>>()
    });
    assert_eq!(told.len(), CLIENTS * CALLS as usize);
    is_a_chain(first, told);
}

#[test]
fn changes_of_one_object_by_many_at_the_same_time_form_one_chain() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    change_together(&stack, &file, |client, number| {
        let offset = number * 1000 + client as u64 * 7;
        Call::write(&file, offset, b"some bytes", Stable::Unstable)
    });
    let place = root.directory(&top, b"place");
    change_together(&stack, &place, |client, number| {
        let name = format!("{client}-{number}");
        Call::any(Create, &place, name.as_bytes(), b"")
    });
}
