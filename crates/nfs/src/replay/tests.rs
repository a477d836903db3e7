//! Identity of calls, eviction, and the cost of an arrival.

use std::sync::atomic::Ordering;

use super::*;
use shard::{MAX_WAITING, SLOT_BYTES};

const AGE: Duration = Duration::from_secs(10);

fn cache(entries: usize, bytes: usize) -> ReplayCache {
    ReplayCache::new(entries, bytes, AGE)
}

fn arrive<'a>(cache: &'a ReplayCache, record: &[u8], now: Instant) -> Arrival<'a> {
    let address = "10.0.0.1".parse().unwrap();
    cache.arrive(address, Transport::Plain, record, now)
}

fn first(arrival: Arrival<'_>) -> Ticket<'_> {
    match arrival {
        Arrival::First(ticket) => ticket,
        _ => panic!("the call is known already"),
    }
}

fn done(arrival: Arrival<'_>) -> Bytes {
    match arrival {
        Arrival::Done(reply) => reply,
        _ => panic!("the call is not done"),
    }
}

#[test]
fn a_repeated_call_gets_the_first_reply() {
    let (cache, now) = (cache(1000, 1 << 20), Instant::now());
    first(arrive(&cache, b"call", now)).finish(b"reply");
    assert_eq!(done(arrive(&cache, b"call", now)), &b"reply"[..]);
    first(arrive(&cache, b"other call", now));
    let other = "10.0.0.2".parse().unwrap();
    first(cache.arrive(other, Transport::Plain, b"call", now));
    let same = "10.0.0.1".parse().unwrap();
    first(cache.arrive(same, Transport::Tls, b"call", now));
}

/// A call that differs in any one bit is another call.
#[test]
fn calls_that_differ_in_one_bit_are_not_taken_for_one_another() {
    // All records with one transaction id are in one shard.
    let (cache, now) = (cache(SHARDS << 14, 256 << 20), Instant::now());
    for length in [4, 16, 60, 200, 300, 1200] {
        let record = vec![0x5a; length];
        first(arrive(&cache, &record, now)).finish(b"reply");
        for bit in 0..length * 8 {
            let mut other = record.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            first(arrive(&cache, &other, now)).finish(b"another");
        }
        first(arrive(&cache, &record[1..], now));
        assert_eq!(done(arrive(&cache, &record, now)), &b"reply"[..]);
    }
}

#[test]
fn a_repetition_of_a_call_under_way_waits_for_its_reply() {
    let (cache, now) = (cache(1000, 1 << 20), Instant::now());
    let ticket = first(arrive(&cache, b"call", now));
    let Arrival::UnderWay(mut waiting) = arrive(&cache, b"call", now) else {
        panic!("the call is under way");
    };
    assert!(waiting.try_recv().is_err());
    ticket.finish(b"reply");
    assert_eq!(waiting.try_recv().unwrap(), &b"reply"[..]);
}

#[test]
fn only_a_few_repetitions_wait() {
    let (cache, now) = (cache(1000, 1 << 20), Instant::now());
    let _ticket = first(arrive(&cache, b"call", now));
    let mut waiting: Vec<_> = (0..MAX_WAITING)
        .map(|_| arrive(&cache, b"call", now))
        .collect();
    assert!(matches!(arrive(&cache, b"call", now), Arrival::Crowded));
    waiting.pop();
    let arrival = arrive(&cache, b"call", now);
    assert!(matches!(arrival, Arrival::UnderWay(_)));
}

#[test]
fn a_call_that_was_given_up_can_be_done_again() {
    let (cache, now) = (cache(1000, 1 << 20), Instant::now());
    let ticket = first(arrive(&cache, b"call", now));
    let Arrival::UnderWay(mut waiting) = arrive(&cache, b"call", now) else {
        panic!("the call is under way");
    };
    drop(ticket);
    assert_eq!(
        waiting.try_recv(),
        Err(oneshot::error::TryRecvError::Closed)
    );
    first(arrive(&cache, b"call", now)).finish(b"reply");
    assert_eq!(done(arrive(&cache, b"call", now)), &b"reply"[..]);
}

#[test]
fn an_old_reply_is_not_given_again() {
    let (cache, now) = (cache(1000, 1 << 20), Instant::now());
    first(arrive(&cache, b"call", now)).finish(b"reply");
    let later = now + AGE + Duration::from_secs(1);
    first(arrive(&cache, b"call", later)).finish(b"second");
    assert_eq!(done(arrive(&cache, b"call", later)), &b"second"[..]);
}

#[test]
fn the_newest_replies_are_kept_within_the_limits() {
    let now = Instant::now();
    let record = |number: u32| (number << 16 | 1).to_be_bytes();
    // At first the number of entries limits, then the bytes.
    let by_bytes = SHARDS * 16 * (SLOT_BYTES + 288);
    for (entries, bytes) in [(SHARDS * 16, 1 << 20), (1 << 20, by_bytes)] {
        let cache = cache(entries, bytes);
        for number in 0..5000_u32 {
            first(arrive(&cache, &record(number), now)).finish(&[0; 288]);
            assert_eq!(done(arrive(&cache, &record(number), now)).len(), 288);
            for shard in &cache.shards {
                assert!(shard.shard.lock().is_within(16, 0));
            }
        }
        // The cache holds 512 in all: no shard has 16 of the newest 32.
        for number in 4968..5000_u32 {
            assert_eq!(done(arrive(&cache, &record(number), now)).len(), 288);
        }
        for number in 0..1000_u32 {
            first(arrive(&cache, &record(number), now));
        }
    }
}

#[test]
fn a_reply_that_is_longer_than_the_cache_is_not_kept() {
    let (cache, now) = (cache(SHARDS * 4, SHARDS * 4096), Instant::now());
    first(arrive(&cache, b"long", now)).finish(&[0; 8192]);
    first(arrive(&cache, b"long", now)).finish(b"short");
    assert_eq!(done(arrive(&cache, b"long", now)), &b"short"[..]);
}

/// Some calls wait for a disk or a bucket while others arrive and finish.
#[test]
fn a_call_under_way_is_known_however_many_are_done_meanwhile() {
    let (cache, now) = (cache(SHARDS * 4, 1 << 20), Instant::now());
    let slow: Vec<[u8; 4]> = (0..SHARDS as u32 * 20)
        .map(|number| (number << 16).to_be_bytes())
        .collect();
    let tickets: Vec<_> = slow
        .iter()
        .map(|record| first(arrive(&cache, record, now)))
        .collect();
    for number in 0..5000_u32 {
        first(arrive(&cache, &(number << 1 | 1).to_be_bytes(), now + AGE)).finish(b"quick");
        first(arrive(&cache, b"and one that is given up", now));
        if number % 1000 == 0 {
            for record in &slow {
                let arrival = arrive(&cache, record, now);
                assert!(matches!(arrival, Arrival::UnderWay(_)));
            }
        }
    }
    for shard in &cache.shards {
        assert!(shard.shard.lock().is_within(4, slow.len()));
    }
    for ticket in tickets {
        ticket.finish(b"slow");
    }
    let last = slow.last().unwrap();
    assert_eq!(done(arrive(&cache, last, now)), &b"slow"[..]);
}

/// A client with consecutive transaction ids and one without can both use the whole cache.
#[test]
fn a_client_has_the_whole_cache_however_it_counts_its_calls() {
    let now = Instant::now();
    for step in [1_u32, 2, 32, 1024, 65_536] {
        let cache = cache(32_768, 16 << 20);
        for number in 0..32_768_u32 {
            let record = number.wrapping_mul(step).to_be_bytes();
            first(arrive(
                &cache,
                &[&record[..], &number.to_be_bytes()].concat(),
                now,
            ));
        }
        let shards = cache.shards.iter();
        let used = shards.filter(|shard| shard.locked.load(Ordering::Relaxed) > 32_768 / 128);
        assert!(used.count() > SHARDS * 3 / 4, "{step}");
    }
}

/// There is no lock that all calls share, and no scan through the entries.
#[test]
fn a_call_takes_one_shards_lock_twice_and_looks_at_a_few_entries_however_many_are_kept() {
    let now = Instant::now();
    let looked_at = |cache: &ReplayCache| -> u64 {
        let shards = cache.shards.iter();
        shards.map(|shard| shard.shard.lock().looked_at.get()).sum()
    };
    let locked = |cache: &ReplayCache| -> u64 {
        let shards = cache.shards.iter();
        shards
            .map(|shard| shard.locked.load(Ordering::Relaxed))
            .sum()
    };
    for entries in [SHARDS * 4, 1024, 32_768, 1 << 17] {
        let cache = cache(entries, 64 << 20);
        let call = |number: u32| {
            first(arrive(&cache, &number.to_be_bytes(), now)).finish(b"reply");
        };
        let fill = entries as u32 * 2;
        (0..fill).for_each(call);
        let (before_locked, before) = (locked(&cache), looked_at(&cache));
        let calls = 4096;
        (fill..fill + calls).for_each(call);
        assert_eq!(locked(&cache) - before_locked, u64::from(calls) * 2);
        // Entries of the bucket on arrival and on completion, and the one that is evicted.
        let looked_at = (looked_at(&cache) - before) as f64 / f64::from(calls);
        assert!(looked_at < 3.5, "{looked_at} of {entries}");
    }
}

/// Calls of other shards do not wait for the holder of a lock.
#[test]
fn shards_have_locks_of_their_own() {
    let (cache, now) = (cache(1000, 1 << 20), Instant::now());
    let held = cache.shards[0].shard.lock();
    let others = (0..200_u32).filter(|number| {
        // Far from one another.
        let record = (number << 16).to_be_bytes();
        let address = "10.0.0.1".parse().unwrap();
        let (_, number) = cache.keys.of(address, Transport::Plain, &record);
        let is_other = !(number as usize).is_multiple_of(SHARDS);
        if is_other {
            first(arrive(&cache, &record, now)).finish(b"reply");
        }
        is_other
    });
    assert!(others.count() > 100);
    drop(held);
}
