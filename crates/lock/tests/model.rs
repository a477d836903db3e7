//! The table against a model that stores every byte separately.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use forebay_lock::{
    Client, Grant, Incarnation, Limits, LockOutcome, LockTable, Owner, Range, Wanted,
};
use forebay_types::Inode;
use proptest::prelude::*;

const FILE: Inode = Inode(7);
/// Number of bytes in the model; the last one stands for all that follow.
const BYTES: u64 = 12;

fn owner(number: u8) -> Arc<Owner> {
    // Owners 0 and 1 are processes of one client.
    let client = Client {
        host: IpAddr::V4(Ipv4Addr::new(192, 0, 2, number / 2)),
        name: b"box".to_vec(),
    };
    Arc::new(Owner {
        client: Arc::new(client),
        process: i32::from(number),
        handle: vec![number],
    })
}

/// Bytes `first` to `last` of the model; to the end of the file if `last` is the last one.
fn range(first: u64, last: u64) -> Range {
    let (first, last) = (first.min(last), first.max(last));
    let length = if last == BYTES - 1 {
        0
    } else {
        last - first + 1
    };
    Range::new(first, length).unwrap()
}

fn bytes(range: Range) -> impl Iterator<Item = u64> {
    let end = match range.length() {
        0 => BYTES,
        length => range.offset() + length,
    };
    range.offset()..end
}

fn wanted(number: u8, range: Range, exclusive: bool) -> Wanted {
    Wanted {
        owner: owner(number),
        range,
        exclusive,
        incarnation: Incarnation(1),
    }
}

/// The owners of each byte (true: exclusive), and the waiters, with numbers in the order of arrival.
#[derive(Default)]
struct Model {
    held: BTreeMap<(u64, u8), bool>,
    waiting: Vec<(u8, Range, bool)>,
}

impl Model {
    fn conflicts(&self, caller: u8, range: Range, exclusive: bool) -> bool {
        bytes(range).any(|byte| {
            let mut others = self
                .held
                .iter()
                .filter(|((b, o), _)| *b == byte && *o != caller);
            others.any(|(_, held)| exclusive || *held)
        })
    }

    fn hold(&mut self, caller: u8, range: Range, exclusive: bool) {
        for byte in bytes(range) {
            self.held.insert((byte, caller), exclusive);
        }
    }

    /// Grants all locks that are possible, in order; returns the new owners and ranges. A grant excludes others at
    /// once, but the locks that its owner held before change only when it is confirmed. The model confirms when all
    /// that could be granted together was granted.
    fn promote(&mut self) -> Vec<(u8, Range, bool)> {
        let mut granted: Vec<(u8, Range, bool)> = Vec::new();
        let mut confirmed = 0;
        loop {
            let mut position = 0;
            while let Some((caller, range, exclusive)) = self.waiting.get(position).copied() {
                let excluded = granted[confirmed..].iter().any(|(other, theirs, mode)| {
                    *other != caller && theirs.overlaps(range) && (exclusive || *mode)
                });
                if excluded || self.conflicts(caller, range, exclusive) {
                    position += 1;
                } else {
                    granted.push(self.waiting.remove(position));
                }
            }
            let Some((caller, range, exclusive)) = granted.get(confirmed).copied() else {
                return granted;
            };
            self.hold(caller, range, exclusive);
            confirmed += 1;
        }
    }

    /// The smallest number of ranges that describe the held locks.
    fn ranges(&self) -> usize {
        let starts = self.held.iter().filter(|((byte, caller), mode)| {
            byte.checked_sub(1)
                .and_then(|before| self.held.get(&(before, *caller)))
                != Some(mode)
        });
        starts.count()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lock(u8, u64, u64, bool, bool),
    Unlock(u8, u64, u64),
    Cancel(usize),
    Free(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let byte = 0..BYTES;
    prop_oneof![
        6 => (0u8..4, byte.clone(), byte.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(caller, a, b, exclusive, wait)| Step::Lock(caller, a, b, exclusive, wait)),
        4 => (0u8..4, byte.clone(), byte).prop_map(|(caller, a, b)| Step::Unlock(caller, a, b)),
        1 => (0usize..8).prop_map(Step::Cancel),
        1 => (0u8..2).prop_map(Step::Free),
    ]
}

/// The grants, each confirmed, and the grants that this caused.
fn confirmed(table: &LockTable<()>, mut grants: Vec<Grant<()>>) -> Vec<(u8, Range, bool)> {
    let mut seen = Vec::new();
    while !grants.is_empty() {
        let grant = grants.remove(0);
        let lock = &grant.lock;
        seen.push((lock.owner.process as u8, lock.range, lock.exclusive));
        grants.extend(table.confirm(&grant));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_byte_is_held_by_whom_the_model_says(steps in prop::collection::vec(step(), 1..60)) {
        let table = LockTable::new(Limits::default());
        let mut model = Model::default();
        for step in steps {
            let (grants, expected) = match step {
                Step::Lock(caller, a, b, exclusive, wait) => {
                    let range = range(a, b);
                    let lock = wanted(caller, range, exclusive);
                    let (outcome, grants) = table.lock(FILE, &lock, wait.then_some(()));
                    let request = (caller, range, exclusive);
                    let expected = if !model.conflicts(caller, range, exclusive) {
                        model.hold(caller, range, exclusive);
                        model.waiting.retain(|waiting| *waiting != request);
                        LockOutcome::Granted
                    } else if wait {
                        if !model.waiting.contains(&request) {
                            model.waiting.push(request);
                        }
                        LockOutcome::Blocked
                    } else {
                        LockOutcome::Denied
                    };
                    prop_assert_eq!(outcome, expected);
                    (grants, model.promote())
                }
                Step::Unlock(caller, a, b) => {
                    let range = range(a, b);
                    let (done, grants) = table.unlock(FILE, &owner(caller), range);
                    prop_assert!(done);
                    bytes(range).for_each(|byte| _ = model.held.remove(&(byte, caller)));
                    model.waiting.retain(|(w, waiting, _)| *w != caller || !waiting.overlaps(range));
                    (grants, model.promote())
                }
                Step::Cancel(position) => {
                    let Some(request) = model.waiting.get(position).copied() else { continue };
                    model.waiting.remove(position);
                    let (caller, range, exclusive) = request;
                    let (found, grants) = table.cancel(FILE, &wanted(caller, range, exclusive));
                    prop_assert!(found);
                    (grants, Vec::new())
                }
                Step::Free(client) => {
                    let grants = table.free(&owner(client * 2).client, None);
                    model.held.retain(|(_, caller), _| caller / 2 != client);
                    model.waiting.retain(|(caller, _, _)| caller / 2 != client);
                    (grants, model.promote())
                }
            };
            prop_assert_eq!(confirmed(&table, grants), expected);
            for byte in 0..BYTES {
                for exclusive in [false, true] {
                    // An owner that holds nothing conflicts with any holder.
                    let probe = wanted(99, range(byte, byte), exclusive);
                    let conflict = table.test(FILE, &probe);
                    prop_assert_eq!(conflict.is_some(), model.conflicts(99, probe.range, exclusive));
                    if let Some(holder) = conflict {
                        let key = (byte, holder.owner.process as u8);
                        prop_assert_eq!(model.held.get(&key), Some(&holder.exclusive));
                    }
                }
            }
            prop_assert_eq!(table.entries(), model.ranges() + model.waiting.len());
            let by_host: usize = (0..4).step_by(2).map(|caller| table.entries_of(owner(caller).client.host)).sum();
            prop_assert_eq!(by_host, table.entries());
        }
        (0..2).for_each(|client| drop(table.free(&owner(client * 2).client, None)));
        prop_assert_eq!(table.entries(), 0);
    }
}
