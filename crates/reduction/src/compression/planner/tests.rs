//! The planner with simulated threads and links.

use std::collections::BinaryHeap;

use super::*;

const MIB: u64 = 1 << 20;
const RAW: u64 = 8 * MIB;

/// The time of zstd 1.5.4 for a pack of 8 MiB of a source tree in frames of 256 KiB, in milliseconds, and the
/// compressed size per 1000 bytes, at levels 1 to 9, on a machine that was busy with other work as well.
const ZSTD: [(u64, u64); 9] = [
    (52, 246),
    (58, 233),
    (60, 230),
    (132, 217),
    (161, 212),
    (227, 211),
    (225, 208),
    (293, 206),
    (335, 204),
];

/// A machine that encodes, and a link that takes one byte after the other.
struct Machine {
    threads: usize,
    parallel: usize,
    /// Bytes a second; none for a link with only a latency.
    link: Option<u64>,
    /// Latency, in milliseconds.
    answer: u64,
    /// How many times as long encoding takes because other work uses the processor.
    busy: u64,
    /// Whether the planner knows the limit of the link.
    limit_is_known: bool,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            threads: 2,
            parallel: 4,
            link: None,
            answer: 20,
            busy: 1,
            limit_is_known: false,
        }
    }
}

#[derive(Debug)]
struct Outcome {
    levels: Vec<u8>,
    stored: u64,
    took: Duration,
}

impl Outcome {
    fn last(&self) -> u8 {
        self.levels[self.levels.len() - 1]
    }
}

/// The next event, earliest first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event(std::cmp::Reverse<Duration>, What);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Encoded { level: u8, took: Duration },
    Arrived { stored: u64, began: Duration },
}

impl Machine {
    fn planner(&self) -> Planner {
        Planner::new(self.threads, self.parallel)
    }

    /// Uploads `packs` packs as the uploader does: `parallel` and two more are under way.
    fn upload(
        &self,
        planner: &mut Planner,
        packs: usize,
        levels: Levels,
        from: Duration,
    ) -> Outcome {
        let mut outcome = Outcome {
            levels: Vec::new(),
            stored: 0,
            took: Duration::ZERO,
        };
        let (mut now, mut link_is_free) = (from, from);
        let (mut encoding, mut under_way, mut begun) = (0, 0, 0);
        // Stored bytes of packs that are encoded and not on the link yet.
        let mut queue: Vec<u64> = Vec::new();
        let mut on_link = 0;
        let mut events = BinaryHeap::new();
        loop {
            while encoding < self.threads && under_way < self.parallel + 2 && begun < packs {
                let level = planner.level(&Next {
                    raw_bytes: RAW,
                    levels,
                    link_limit: self.link.filter(|_| self.limit_is_known),
                });
                let took = Duration::from_millis(ZSTD[usize::from(level) - 1].0 * self.busy);
                events.push(Event(
                    std::cmp::Reverse(now + took),
                    What::Encoded { level, took },
                ));
                outcome.levels.push(level);
                (encoding, under_way, begun) = (encoding + 1, under_way + 1, begun + 1);
            }
            while on_link < self.parallel && !queue.is_empty() {
                let stored = queue.remove(0);
                let on_its_way = self.link.map_or(0.0, |rate| stored as f64 / rate as f64);
                link_is_free = link_is_free.max(now) + Duration::from_secs_f64(on_its_way);
                let arrives = link_is_free + Duration::from_millis(self.answer);
                events.push(Event(
                    std::cmp::Reverse(arrives),
                    What::Arrived { stored, began: now },
                ));
                on_link += 1;
            }
            let Some(Event(std::cmp::Reverse(at), what)) = events.pop() else {
                outcome.took = now - from;
                return outcome;
            };
            now = at;
            match what {
                What::Encoded { level, took } => {
                    let stored = RAW * ZSTD[usize::from(level) - 1].1 / 1000;
                    planner.encoded(Some(level), RAW, stored, took);
                    queue.push(stored);
                    outcome.stored += stored;
                    encoding -= 1;
                }
                What::Arrived { stored, began } => {
                    planner.arrived(stored, began, now);
                    on_link -= 1;
                    under_way -= 1;
                }
            }
        }
    }

    fn run(&self, packs: usize, levels: Levels) -> Outcome {
        self.upload(&mut self.planner(), packs, levels, Duration::ZERO)
    }
}

fn levels(lowest: u8, highest: u8) -> Levels {
    Levels::new(lowest, highest).unwrap()
}

#[test]
fn a_link_that_is_fast_keeps_the_lowest_level() {
    for answer in [1, 20, 100] {
        let machine = Machine {
            answer,
            ..Machine::default()
        };
        let outcome = machine.run(100, levels(1, 9));
        assert!(
            outcome.levels.iter().all(|level| *level <= 2),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_link_that_is_slow_gets_the_highest_level_and_less_to_carry() {
    let machine = Machine {
        link: Some(MIB),
        ..Machine::default()
    };
    let (adaptive, lowest) = (machine.run(40, levels(1, 9)), machine.run(40, levels(1, 1)));
    assert_eq!(adaptive.last(), 9);
    assert!(adaptive.stored * 100 < lowest.stored * 88, "{adaptive:?}");
    assert!(adaptive.took < lowest.took);
}

#[test]
fn a_limit_in_force_is_known_before_the_first_pack_has_arrived() {
    let machine = Machine {
        link: Some(MIB),
        limit_is_known: true,
        ..Machine::default()
    };
    let known = machine.run(40, levels(1, 9));
    let measured = Machine {
        limit_is_known: false,
        ..machine
    };
    let measured = measured.run(40, levels(1, 9));
    // The time of encoding is not known before the first packs are encoded, one on each thread.
    assert_eq!(known.levels[..2], [1, 1]);
    assert!(
        known.levels[2..].iter().all(|level| *level > 3),
        "{known:?}"
    );
    assert_eq!(measured.levels[..6], [1; 6], "{measured:?}");
    assert!(known.stored < measured.stored);
}

#[test]
fn between_them_the_level_follows_the_rate_of_the_link() {
    let at = |rate| {
        let machine = Machine {
            link: Some(rate * MIB),
            ..Machine::default()
        };
        machine.run(200, levels(1, 9)).last()
    };
    let found = [1, 10, 30, 60, 120, 1000].map(at);
    assert!(
        found.is_sorted_by(|slower, faster| slower >= faster),
        "{found:?}"
    );
    assert_eq!((found[0], found[5]), (9, 1), "{found:?}");
    assert!(
        found[2..4].iter().any(|level| (2..9).contains(level)),
        "{found:?}"
    );
}

/// The effect on a writer: how long all uploads take.
#[test]
fn no_link_and_no_machine_is_slower_for_it() {
    for rate in [1, 3, 10, 20, 40, 80, 160, 320, 1000, 4000] {
        for threads in [1, 2, 16] {
            for busy in [1, 5, 30] {
                let machine = Machine {
                    threads,
                    busy,
                    link: Some(rate * MIB),
                    ..Machine::default()
                };
                let (adaptive, lowest) = (
                    machine.run(100, levels(1, 9)),
                    machine.run(100, levels(1, 1)),
                );
                let most = lowest.took.mul_f64(1.02) + Duration::from_millis(500);
                assert!(
                    adaptive.took <= most,
                    "{rate} MiB/s, {threads} threads, {busy}: {:?} and not {:?}, {:?}",
                    adaptive.took,
                    lowest.took,
                    adaptive.levels
                );
            }
        }
    }
}

#[test]
fn the_level_follows_a_link_that_changes() {
    let mut machine = Machine {
        link: Some(MIB),
        ..Machine::default()
    };
    let mut planner = machine.planner();
    let slow = machine.upload(&mut planner, 20, levels(1, 9), Duration::ZERO);
    assert_eq!(slow.last(), 9);
    machine.link = Some(4000 * MIB);
    let fast = machine.upload(&mut planner, 60, levels(1, 9), slow.took);
    assert!(fast.last() <= 2, "{fast:?}");
    let sorted = fast.levels[6..].is_sorted_by(|before, after| before + 1 >= *after);
    assert!(sorted, "{fast:?}");
    machine.link = Some(MIB);
    let again = machine.upload(&mut planner, 40, levels(1, 9), slow.took + fast.took);
    assert_eq!(again.last(), 9, "{again:?}");
}

#[test]
fn a_processor_that_others_need_lowers_the_level() {
    let at = |busy| {
        let machine = Machine {
            busy,
            link: Some(20 * MIB),
            ..Machine::default()
        };
        machine.run(100, levels(1, 9)).last()
    };
    assert!(at(1) > 2, "{}", at(1));
    assert_eq!(at(8), 1);
}

#[test]
fn levels_stay_within_those_of_the_files() {
    let machine = Machine {
        link: Some(MIB),
        ..Machine::default()
    };
    for (lowest, highest) in [(1, 1), (3, 5), (7, 7), (2, 9)] {
        let outcome = machine.run(30, levels(lowest, highest));
        assert!(
            outcome
                .levels
                .iter()
                .all(|level| (lowest..=highest).contains(level))
        );
        assert_eq!(outcome.last(), highest);
    }
}

#[test]
fn small_packs_say_nothing_about_the_rate_of_the_link() {
    let mut planner = Machine::default().planner();
    for n in 0..50 {
        planner.encoded(Some(1), 4096, 4096, Duration::from_micros(20));
        planner.arrived(
            4096,
            n * Duration::from_secs(1),
            n * Duration::from_secs(1) + Duration::from_millis(900),
        );
    }
    let next = Next {
        raw_bytes: RAW,
        levels: levels(1, 9),
        link_limit: None,
    };
    assert_eq!(planner.level(&next), 1);
}
