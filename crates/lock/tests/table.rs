//! Individual rules of the table, one scenario each.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use forebay_lock::{
    Client, Grant, Incarnation, Limits, LockOutcome, LockTable, Owner, Range, Share, Wanted,
};
use forebay_types::Inode;

const FILE: Inode = Inode(7);

fn client(host: u8) -> Arc<Client> {
    Arc::new(Client {
        host: IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)),
        name: b"box".to_vec(),
    })
}

fn lock(host: u8, offset: u64, length: u64, exclusive: bool) -> Wanted {
    Wanted {
        owner: Arc::new(Owner {
            client: client(host),
            process: 1,
            handle: b"1@box".to_vec(),
        }),
        range: Range::new(offset, length).unwrap(),
        exclusive,
        incarnation: Incarnation(3),
    }
}

fn table() -> LockTable<&'static str> {
    LockTable::new(Limits::default())
}

/// The tags of the grants.
fn told(grants: &[Grant<&'static str>]) -> Vec<&'static str> {
    grants.iter().map(|grant| grant.tag).collect()
}

#[test]
fn a_repeated_request_is_answered_as_the_first_was() {
    let table = table();
    let whole = lock(1, 0, 0, true);
    for _ in 0..2 {
        assert_eq!(table.lock(FILE, &whole, None).0, LockOutcome::Granted);
        let waiter = lock(2, 5, 1, true);
        assert_eq!(table.lock(FILE, &waiter, Some("2")).0, LockOutcome::Blocked);
        assert_eq!(table.lock(FILE, &waiter, None).0, LockOutcome::Denied);
    }
    assert_eq!(table.entries(), 2);
    for expected in [vec!["2"], vec![]] {
        let (done, grants) = table.unlock(FILE, &whole.owner, whole.range);
        assert!(done);
        assert_eq!(told(&grants), expected);
    }
}

#[test]
fn waiters_get_the_lock_in_the_order_in_which_they_came() {
    let table = table();
    let first = lock(1, 0, 0, true);
    table.lock(FILE, &first, None);
    let (second, third) = (lock(2, 0, 0, true), lock(3, 0, 0, true));
    table.lock(FILE, &second, Some("2"));
    table.lock(FILE, &third, Some("3"));
    // A repeated request does not lose the place.
    table.lock(FILE, &second, Some("2 again"));
    let (_, grants) = table.unlock(FILE, &first.owner, first.range);
    assert_eq!(told(&grants), ["2 again"]);
    // A granted lock excludes others before it is confirmed.
    assert_eq!(table.lock(FILE, &first, None).0, LockOutcome::Denied);
    table.confirm(&grants[0]);
    let (_, grants) = table.unlock(FILE, &second.owner, second.range);
    assert_eq!(told(&grants), ["3"]);
}

#[test]
fn readers_that_wait_get_it_together() {
    let table = table();
    let writer = lock(1, 0, 0, true);
    table.lock(FILE, &writer, None);
    table.lock(FILE, &lock(2, 0, 10, false), Some("2"));
    table.lock(FILE, &lock(3, 5, 10, false), Some("3"));
    let (_, grants) = table.unlock(FILE, &writer.owner, writer.range);
    assert_eq!(told(&grants), ["2", "3"]);
}

#[test]
fn a_grant_that_nobody_wants_goes_to_the_next_and_leaves_what_was_held_before() {
    let table = table();
    let (reader, upgrade) = (lock(1, 0, 10, false), lock(1, 0, 10, true));
    let other = lock(2, 0, 10, false);
    table.lock(FILE, &reader, None);
    table.lock(FILE, &other, None);
    table.lock(FILE, &upgrade, Some("upgrade"));
    table.lock(FILE, &lock(3, 0, 10, false), None);
    let (_, grants) = table.unlock(FILE, &other.owner, other.range);
    assert!(grants.is_empty(), "host 3 reads still");
    let (_, grants) = table.unlock(FILE, &lock(3, 0, 10, false).owner, other.range);
    assert_eq!(told(&grants), ["upgrade"]);
    table.lock(FILE, &other, Some("other"));
    let next = table.refuse(&grants[0]);
    assert_eq!(told(&next), ["other"]);
    // Host 1 still has its shared lock.
    let holder = table.test(FILE, &lock(4, 0, 10, true)).unwrap();
    assert!(!holder.exclusive);
    assert_eq!(
        table.lock(FILE, &lock(4, 0, 1, true), None).0,
        LockOutcome::Denied
    );
    assert_eq!(
        table.lock(FILE, &lock(4, 0, 1, false), None).0,
        LockOutcome::Granted
    );
    // A settled grant does not change.
    assert!(table.refuse(&grants[0]).is_empty());
    table.confirm(&grants[0]);
    assert_eq!(
        table.lock(FILE, &lock(4, 0, 1, false), None).0,
        LockOutcome::Granted
    );
}

#[test]
fn asking_again_confirms_a_grant() {
    let table = table();
    let (holder, waiter) = (lock(1, 0, 0, true), lock(2, 0, 0, true));
    table.lock(FILE, &holder, None);
    table.lock(FILE, &waiter, Some("2"));
    let (_, grants) = table.unlock(FILE, &holder.owner, holder.range);
    assert!(table.is_unsettled(&grants[0]));
    assert_eq!(table.lock(FILE, &waiter, Some("2")).0, LockOutcome::Granted);
    assert!(!table.is_unsettled(&grants[0]));
    // The failed callback makes no difference any more.
    assert!(table.refuse(&grants[0]).is_empty());
    assert_eq!(table.lock(FILE, &holder, None).0, LockOutcome::Denied);
}

#[test]
fn unlocking_gives_back_what_was_granted_but_never_confirmed() {
    let table = table();
    let (holder, waiter) = (lock(1, 0, 10, true), lock(2, 0, 10, true));
    table.lock(FILE, &holder, None);
    table.lock(FILE, &waiter, Some("2"));
    let (_, grants) = table.unlock(FILE, &holder.owner, holder.range);
    // The client was notified, and releases half of the lock before its answer arrives.
    table.unlock(FILE, &waiter.owner, Range::new(0, 5).unwrap());
    table.refuse(&grants[0]);
    assert_eq!(
        table.lock(FILE, &lock(1, 0, 5, true), None).0,
        LockOutcome::Granted
    );
    assert_eq!(
        table.lock(FILE, &lock(1, 5, 5, true), None).0,
        LockOutcome::Denied
    );
}

#[test]
fn unlocking_ends_waiting_as_well() {
    let table = table();
    let (holder, waiter) = (lock(1, 0, 0, true), lock(2, 5, 5, true));
    table.lock(FILE, &holder, None);
    table.lock(FILE, &waiter, Some("2"));
    table.unlock(FILE, &waiter.owner, Range::WHOLE);
    let (_, grants) = table.unlock(FILE, &holder.owner, Range::WHOLE);
    assert!(grants.is_empty());
    assert_eq!(table.entries(), 0);
}

#[test]
fn cancel_ends_waiting_and_gives_back_a_grant_but_never_a_lock() {
    let table = table();
    let (holder, waiter) = (lock(1, 0, 0, true), lock(2, 5, 5, true));
    table.lock(FILE, &holder, None);
    assert!(!table.cancel(FILE, &holder).0);
    assert_eq!(table.lock(FILE, &waiter, None).0, LockOutcome::Denied);
    table.lock(FILE, &waiter, Some("2"));
    assert!(!table.cancel(FILE, &lock(2, 5, 6, true)).0);
    assert!(table.cancel(FILE, &waiter).0);
    assert!(!table.cancel(FILE, &waiter).0);
    table.lock(FILE, &waiter, Some("2"));
    table.lock(FILE, &lock(3, 0, 0, true), Some("3"));
    table.unlock(FILE, &holder.owner, Range::WHOLE);
    let (found, grants) = table.cancel(FILE, &waiter);
    assert!(found);
    assert_eq!(told(&grants), ["3"]);
}

#[test]
fn a_lesser_lock_admits_the_waiting_requests_that_it_allows() {
    let table = table();
    table.lock(FILE, &lock(1, 0, 10, true), None);
    table.lock(FILE, &lock(2, 0, 5, false), Some("2"));
    let (outcome, grants) = table.lock(FILE, &lock(1, 0, 5, false), None);
    assert_eq!(outcome, LockOutcome::Granted);
    assert_eq!(told(&grants), ["2"]);
    assert_eq!(
        table.lock(FILE, &lock(2, 5, 5, false), None).0,
        LockOutcome::Denied
    );
}

#[test]
fn two_files_know_nothing_of_each_other() {
    let table = table();
    table.lock(FILE, &lock(1, 0, 0, true), None);
    // Also in the same shard.
    for other in [Inode(8), Inode(7 + 64)] {
        assert_eq!(
            table.lock(other, &lock(2, 0, 0, true), None).0,
            LockOutcome::Granted
        );
    }
}

#[test]
fn a_rebooted_client_loses_what_is_from_before_and_nothing_else() {
    let table = table();
    let old = lock(1, 0, 10, true);
    let new = Wanted {
        incarnation: Incarnation(5),
        ..lock(1, 10, 10, true)
    };
    table.lock(FILE, &old, None);
    table.lock(FILE, &new, None);
    table.lock(FILE, &lock(2, 0, 5, true), Some("2"));
    table.lock(FILE, &lock(2, 12, 1, true), Some("new"));
    let grants = table.free(&old.owner.client, Some(Incarnation(5)));
    assert_eq!(told(&grants), ["2"]);
    // The same notice arrives again, late; it removes nothing.
    assert!(
        table
            .free(&old.owner.client, Some(Incarnation(5)))
            .is_empty()
    );
    assert_eq!(told(&table.free(&old.owner.client, None)), ["new"]);
}

#[test]
fn a_lock_taken_again_after_a_reboot_is_of_the_new_life() {
    let table = table();
    let old = lock(1, 0, 10, true);
    let again = Wanted {
        incarnation: Incarnation(5),
        ..lock(1, 3, 4, true)
    };
    table.lock(FILE, &old, None);
    assert_eq!(table.lock(FILE, &again, None).0, LockOutcome::Granted);
    table.free(&old.owner.client, Some(Incarnation(5)));
    assert_eq!(
        table.lock(FILE, &lock(2, 0, 3, true), None).0,
        LockOutcome::Granted
    );
    assert_eq!(
        table.lock(FILE, &lock(2, 3, 4, true), None).0,
        LockOutcome::Denied
    );
    assert_eq!(
        table.lock(FILE, &lock(2, 7, 0, true), None).0,
        LockOutcome::Granted
    );
}

#[test]
fn machines_behind_one_address_are_told_apart_by_name() {
    let table = table();
    let one = lock(1, 0, 0, true);
    let named = |name: &[u8]| {
        let mut other = lock(1, 0, 0, true);
        let owner = Arc::make_mut(&mut other.owner);
        Arc::make_mut(&mut owner.client).name = name.to_vec();
        other
    };
    table.lock(FILE, &one, None);
    let other = named(b"other");
    assert_eq!(table.lock(FILE, &other, None).0, LockOutcome::Denied);
    table.free(&other.owner.client, None);
    assert_eq!(table.lock(FILE, &other, None).0, LockOutcome::Denied);
    table.free(&one.owner.client, None);
    assert_eq!(table.lock(FILE, &other, None).0, LockOutcome::Granted);
}

#[test]
fn at_a_limit_nothing_is_taken_and_unlocking_works() {
    let limits = Limits {
        per_host: 3,
        per_file: 5,
        total: 6,
    };
    let table = LockTable::<()>::new(limits);
    for offset in [0, 10, 20] {
        assert_eq!(
            table.lock(FILE, &lock(1, offset, 5, true), None).0,
            LockOutcome::Granted
        );
    }
    let fourth = lock(1, 30, 5, true);
    assert_eq!(table.lock(FILE, &fourth, None).0, LockOutcome::NoLocks);
    // Requests for held bytes, and extensions of a held lock, take no further entries.
    assert_eq!(
        table.lock(FILE, &lock(1, 10, 5, true), None).0,
        LockOutcome::Granted
    );
    assert_eq!(
        table.lock(FILE, &lock(1, 5, 5, true), None).0,
        LockOutcome::Granted
    );
    assert_eq!(table.entries(), 2);
    assert_eq!(table.lock(FILE, &fourth, None).0, LockOutcome::Granted);
    // A split does.
    let middle = lock(1, 2, 1, true);
    assert!(!table.unlock(FILE, &middle.owner, middle.range).0);
    assert!(
        table
            .unlock(FILE, &middle.owner, Range::new(20, 5).unwrap())
            .0
    );
    assert!(table.unlock(FILE, &middle.owner, middle.range).0);
    // A wait does, for other hosts as well: then five are in the file.
    assert_eq!(
        table.lock(FILE, &lock(2, 0, 1, true), Some(())).0,
        LockOutcome::Blocked
    );
    assert_eq!(
        table.lock(FILE, &lock(2, 0, 1, true), Some(())).0,
        LockOutcome::Blocked
    );
    assert_eq!(
        table.lock(FILE, &lock(2, 50, 1, true), None).0,
        LockOutcome::Granted
    );
    assert_eq!(
        table.lock(FILE, &lock(2, 60, 1, true), None).0,
        LockOutcome::NoLocks
    );
    // And one more in total.
    assert_eq!(
        table.lock(Inode(8), &lock(2, 0, 1, true), None).0,
        LockOutcome::Granted
    );
    assert_eq!(
        table.lock(Inode(8), &lock(3, 2, 1, true), None).0,
        LockOutcome::NoLocks
    );
    assert_eq!(table.share(Inode(8), share(3, 1, 0)), LockOutcome::NoLocks);
    table.free(&client(1), None);
    assert_eq!(table.share(Inode(8), share(3, 1, 0)), LockOutcome::Granted);
}

const READ: u32 = 1;
const WRITE: u32 = 2;

fn share(host: u8, access: u32, deny: u32) -> Share {
    Share {
        client: client(host),
        handle: b"file".to_vec(),
        access,
        deny,
        incarnation: Incarnation(3),
    }
}

#[test]
fn share_reservations_forbid_what_they_say_both_ways() {
    let table = table();
    assert_eq!(
        table.share(FILE, share(1, READ, WRITE)),
        LockOutcome::Granted
    );
    assert_eq!(table.share(FILE, share(2, WRITE, 0)), LockOutcome::Denied);
    assert_eq!(table.share(FILE, share(2, READ, READ)), LockOutcome::Denied);
    assert_eq!(table.share(FILE, share(2, READ, 0)), LockOutcome::Granted);
    // The owner changes its own reservation, if the others allow it.
    assert_eq!(table.share(FILE, share(1, READ, READ)), LockOutcome::Denied);
    assert_eq!(
        table.share(FILE, share(1, READ | WRITE, 0)),
        LockOutcome::Granted
    );
    assert_eq!(table.entries(), 2);
    table.unshare(FILE, &share(1, 0, 0));
    table.unshare(FILE, &share(1, 0, 0));
    assert_eq!(
        table.share(FILE, share(2, READ, READ | WRITE)),
        LockOutcome::Granted
    );
    table.free(&client(2), None);
    assert_eq!(table.entries(), 0);
}

/// Many waiters for one byte, and one for another.
fn crowd(waiters: i32) -> LockTable<&'static str> {
    let limits = Limits {
        per_host: 100_000,
        per_file: 100_000,
        total: 100_000,
    };
    let table = LockTable::new(limits);
    table.lock(FILE, &lock(1, 0, 2, true), None);
    for process in 0..waiters {
        let mut waiter = lock(2, 0, 1, true);
        Arc::make_mut(&mut waiter.owner).process = process;
        assert_eq!(
            table.lock(FILE, &waiter, Some("one of many")).0,
            LockOutcome::Blocked
        );
    }
    table.lock(FILE, &lock(3, 1, 1, true), Some("another"));
    table
}

#[test]
fn an_unlock_looks_at_some_of_many_waiters_and_the_others_are_come_to_later() {
    const WAITERS: i32 = 16_000;
    let table = crowd(WAITERS);
    assert!(!table.has_work_left());
    let (done, grants) = table.unlock(FILE, &lock(1, 0, 2, true).owner, Range::WHOLE);
    assert!(done);
    assert_eq!(told(&grants), ["one of many"], "the first");
    assert_eq!(grants[0].lock.owner.process, 0);
    assert!(table.has_work_left());
    let (mut steps, mut later) = (0, Vec::new());
    while let Some(grants) = table.go_on() {
        steps += 1;
        later.extend(told(&grants));
        // Bytes that become free meanwhile start no new round before all waiters were visited.
        let other = lock(4, 100, 1, true);
        table.lock(FILE, &other, None);
        table.unlock(FILE, &other.owner, Range::WHOLE);
        if later == ["another"] {
            break;
        }
    }
    assert_eq!(later, ["another"]);
    // Each step, and each of the calls between, tries 64 of them.
    assert!((50..400).contains(&steps), "{steps} steps");
    while table.go_on().is_some() {}
    assert!(!table.has_work_left());
    assert_eq!(table.entries(), WAITERS as usize + 1);
}

#[test]
fn waiters_that_are_left_are_forgotten_with_their_file() {
    let table = crowd(200);
    table.unlock(FILE, &lock(1, 0, 2, true).owner, Range::WHOLE);
    assert!(table.has_work_left());
    for host in [2, 3] {
        table.free(&client(host), None);
    }
    assert_eq!(table.entries(), 0);
    while let Some(grants) = table.go_on() {
        assert!(grants.is_empty());
    }
    // The same file starts a new round.
    assert_eq!(
        table.lock(FILE, &lock(1, 0, 2, true), None).0,
        LockOutcome::Granted
    );
}
