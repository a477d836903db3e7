use proptest::prelude::*;

use super::*;
use crate::schedule::{DAY, HOUR};

/// 2026-11-27, a Friday, 00:00 UTC.
const FRIDAY: i64 = 1_795_737_600;

fn schedules(list: &[(i64, usize)]) -> Vec<Schedule> {
    let made = list
        .iter()
        .map(|(every, keep)| Schedule::new(*every, *keep));
    made.collect::<Option<_>>().unwrap()
}

fn scheduled(time: i64) -> Known {
    Known {
        name: name_at(time),
        made_by: MADE_BY.to_owned(),
        is_published: true,
    }
}

/// A volume whose scheduled snapshots are made and deleted as planned.
struct World {
    schedules: Vec<Schedule>,
    known: Vec<Known>,
}

impl World {
    fn new(list: &[(i64, usize)]) -> World {
        World {
            schedules: schedules(list),
            known: Vec::new(),
        }
    }

    fn plan(&self, now: i64) -> Plan {
        plan(now, &self.schedules, &self.known)
    }

    /// Does the work that is due; the bucket has a new one at once, if it `publishes`. Returns its name.
    fn act(&mut self, now: i64, publishes: bool) -> Option<String> {
        let made = self.plan(now).make;
        if let Some(name) = &made {
            self.known.push(Known {
                name: name.clone(),
                made_by: MADE_BY.to_owned(),
                is_published: false,
            });
        }
        if publishes {
            self.known
                .iter_mut()
                .for_each(|one| one.is_published = true);
        }
        let expired = self.plan(now).delete;
        self.known.retain(|one| !expired.contains(&one.name));
        made
    }

    /// The times of the scheduled ones, in minutes since Friday.
    fn minutes(&self) -> Vec<i64> {
        let times = self.known.iter().filter_map(|one| time_of(&one.name));
        times.map(|time| (time - FRIDAY) / MINUTE).collect()
    }
}

#[test]
fn a_day_with_three_schedules_has_each_snapshot_once_at_its_exact_time() {
    let mut world = World::new(&[(15 * MINUTE, 4), (HOUR, 3), (DAY, 2)]);
    let mut made = Vec::new();
    // Looked at a few seconds late, each minute.
    for minute in 0..=24 * 60 {
        made.extend(world.act(FRIDAY + minute * MINUTE + minute % 7, true));
    }
    assert_eq!(made.len(), 24 * 4 + 1);
    assert_eq!(made[0], "auto-2026-11-27T00:00:00Z");
    assert_eq!(made[1], "auto-2026-11-27T00:15:00Z");
    assert_eq!(made[96], "auto-2026-11-28T00:00:00Z");
    let hour = 60;
    // Two of days, three of hours and four of quarters; midnight serves all three.
    assert_eq!(
        world.minutes(),
        [
            0,
            22 * hour,
            23 * hour,
            23 * hour + 15,
            23 * hour + 30,
            23 * hour + 45,
            24 * hour
        ]
    );
    let next = world.plan(FRIDAY + DAY + 1).next;
    assert_eq!(next, Some(FRIDAY + DAY + 15 * MINUTE));
}

#[test]
fn after_a_pause_one_is_made_that_says_when() {
    let mut world = World::new(&[(15 * MINUTE, 8), (HOUR, 8)]);
    world.act(FRIDAY, true);
    let late = FRIDAY + 5 * HOUR + 20 * MINUTE + 7;
    assert_eq!(world.act(late, true).unwrap(), "auto-2026-11-27T05:20:07Z");
    assert_eq!(world.act(late + 1, true), None);
    // It is the one of its hour and of its quarter.
    let next = FRIDAY + 5 * HOUR + 30 * MINUTE;
    assert_eq!(world.act(next - 1, true), None);
    assert_eq!(world.act(next, true).unwrap(), "auto-2026-11-27T05:30:00Z");
}

#[test]
fn weeks_begin_on_monday_and_days_at_midnight() {
    let mut world = World::new(&[(7 * DAY, 4)]);
    world.act(FRIDAY, true);
    assert_eq!(world.act(FRIDAY + 3 * DAY - 1, true), None);
    let monday = world.act(FRIDAY + 3 * DAY, true);
    assert_eq!(monday.unwrap(), "auto-2026-11-30T00:00:00Z");
}

#[test]
fn a_clock_that_is_set_back_makes_none_twice_and_takes_no_place_from_others() {
    let mut world = World::new(&[(15 * MINUTE, 4)]);
    for quarter in 0..6 {
        world.act(FRIDAY + quarter * 15 * MINUTE, true);
    }
    assert_eq!(world.minutes(), [30, 45, 60, 75]);
    // Back to 0:31, where all but one are still to come, and then on.
    for minute in 31..75 {
        assert_eq!(world.act(FRIDAY + minute * MINUTE, true), None);
    }
    assert_eq!(world.minutes(), [30, 45, 60, 75]);
    // Back to the day before: the work goes on, and those to come stay.
    for quarter in 0..8 {
        assert!(
            world
                .act(FRIDAY - DAY + quarter * 15 * MINUTE, true)
                .is_some()
        );
    }
    let before = -24 * 60;
    let times = [
        30,
        45,
        60,
        75,
        before + 60,
        before + 75,
        before + 90,
        before + 105,
    ];
    assert_eq!(world.minutes(), times);
}

#[test]
fn one_that_the_bucket_does_not_have_is_neither_deleted_nor_takes_a_place() {
    let mut world = World::new(&[(HOUR, 2)]);
    for hour in 0..2 {
        world.act(FRIDAY + hour * HOUR, true);
    }
    // The bucket is away.
    for hour in 2..6 {
        world.act(FRIDAY + hour * HOUR, false);
    }
    assert_eq!(world.minutes(), [0, 60, 120, 180, 240, 300]);
    world.act(FRIDAY + 5 * HOUR + 1, true);
    assert_eq!(world.minutes(), [240, 300]);
}

#[test]
fn those_of_people_stay_and_a_name_that_one_has_taken_is_left_to_them() {
    let mut world = World::new(&[(HOUR, 1)]);
    let own = |name: &str| Known {
        name: name.to_owned(),
        made_by: "uid 0".to_owned(),
        is_published: true,
    };
    world.known.push(own("auto-2026-11-27T00:00:00Z"));
    world.known.push(own("before-upgrade"));
    // Made by the schedule, and not named by it: there is none such, and it is left alone.
    world.known.push(Known {
        name: "auto-yesterday".to_owned(),
        ..scheduled(0)
    });
    assert_eq!(world.act(FRIDAY, true), None);
    let late = world.act(FRIDAY + MINUTE, true);
    assert_eq!(late.unwrap(), "auto-2026-11-27T00:01:00Z");
    for hour in 1..10 {
        assert!(world.act(FRIDAY + hour * HOUR, true).is_some());
    }
    assert_eq!(world.known.len(), 4);
}

#[test]
fn a_schedule_that_is_taken_away_keeps_nothing_and_without_any_nothing_is_deleted() {
    let mut world = World::new(&[(15 * MINUTE, 8), (HOUR, 2)]);
    for quarter in 0..12 {
        world.act(FRIDAY + quarter * 15 * MINUTE, true);
    }
    assert_eq!(world.known.len(), 8);
    world.schedules.clear();
    let none = world.plan(FRIDAY + DAY);
    assert_eq!((none.make, none.delete.len(), none.next), (None, 0, None));
    world.schedules = schedules(&[(HOUR, 2)]);
    world.act(FRIDAY + 2 * HOUR + 46 * MINUTE, true);
    assert_eq!(world.minutes(), [60, 120]);
}

#[test]
fn a_name_has_its_time_and_no_other_name_has_one() {
    for time in [0, 1, FRIDAY, FRIDAY + 3599] {
        assert_eq!(time_of(&name_at(time)), Some(time));
    }
    for name in [
        "2026-11-27T09:15:00Z",
        "auto-",
        "auto-2026-11-27T09:15:00.5Z",
        "auto-2026-11-27T09:15:00.000Z",
        "auto-2026-11-27 09:15:00Z",
        "auto-2026-11-31T09:15:00Z",
        "auto-2026-11-27T09:15:00Zulu",
    ] {
        assert_eq!(time_of(name), None, "{name}");
    }
}

#[test]
fn no_user_is_taken_for_the_schedule() {
    assert_eq!(made_by_user("root".to_owned()), "root");
    assert_ne!(made_by_user(MADE_BY.to_owned()), MADE_BY);
}

fn some_schedules() -> impl Strategy<Value = Vec<Schedule>> {
    let every = prop::sample::select(vec![1, 2, 7, 15, 60, 90, 1440, 10_080]);
    let one = (every, 1_usize..6).prop_map(|(minutes, keep)| (minutes * MINUTE, keep));
    prop::collection::vec(one, 1..4).prop_map(|list| schedules(&list))
}

/// Snapshots at any times, in the bucket or not, by anyone.
fn some_known() -> impl Strategy<Value = Vec<Known>> {
    let one = (0_i64..3 * DAY, any::<bool>(), 0..4_u8).prop_map(|(at, is_published, kind)| Known {
        is_published,
        made_by: if kind == 0 { "uid 0" } else { MADE_BY }.to_owned(),
        ..scheduled(FRIDAY + at - at % MINUTE)
    });
    let all = prop::collection::vec(one, 0..60);
    all.prop_map(|all| {
        let by_name: BTreeMap<String, Known> =
            all.into_iter().map(|one| (one.name.clone(), one)).collect();
        by_name.into_values().collect()
    })
}

proptest! {
    /// By the definition: each schedule keeps the first of each of its newest periods.
    #[test]
    fn exactly_those_that_no_schedule_keeps_are_deleted(
        schedules in some_schedules(),
        known in some_known(),
        now in 0_i64..3 * DAY,
    ) {
        let now = FRIDAY + now;
        let deleted = plan(now, &schedules, &known).delete;
        let candidates: Vec<i64> = known
            .iter()
            .filter(|one| one.made_by == MADE_BY && one.is_published)
            .filter_map(|one| time_of(&one.name))
            .filter(|time| *time <= now)
            .collect();
        let is_kept = |time: i64| schedules.iter().any(|schedule| {
            let begin = schedule.begin(time);
            let is_first = !candidates
                .iter()
                .any(|other| schedule.begin(*other) == begin && *other < time);
            let newer = candidates.iter().map(|other| schedule.begin(*other));
            let newer: BTreeSet<i64> = newer.filter(|other| *other > begin).collect();
            is_first && newer.len() < schedule.keep()
        });
        let mut expected = candidates.clone();
        expected.sort_unstable();
        expected.retain(|time| !is_kept(*time));
        let expected: Vec<String> = expected.into_iter().map(name_at).collect();
        prop_assert_eq!(deleted, expected);
    }

    /// However the clock goes and whenever the bucket is away.
    #[test]
    fn work_under_any_clock_makes_none_twice_and_keeps_what_it_should(
        schedules in some_schedules(),
        known in some_known(),
        steps in prop::collection::vec((-2 * HOUR..4 * HOUR, any::<bool>()), 1..60),
    ) {
        let most: usize = schedules.iter().map(|one| one.keep()).sum();
        let mut world = World { schedules, known };
        let mut now = FRIDAY + DAY;
        for (step, publishes) in steps {
            now += step;
            let before = world.known.clone();
            let made = world.act(now, publishes);
            if let Some(name) = &made {
                prop_assert!(before.iter().all(|one| one.name != *name), "{} twice", name);
                // It does not expire at once.
                prop_assert!(world.known.iter().any(|one| one.name == *name));
            }
            for gone in before.iter().filter(|one| !world.known.iter().any(|left| left.name == one.name)) {
                prop_assert_eq!(&gone.made_by, MADE_BY);
                prop_assert!(gone.is_published || publishes);
                prop_assert!(time_of(&gone.name).unwrap() <= now);
            }
            // All is done: the same look again finds nothing to do.
            let again = world.plan(now);
            prop_assert!(again.delete.is_empty());
            let by_hand = |one: &Known| one.made_by != MADE_BY;
            if !world.known.iter().any(by_hand) {
                prop_assert_eq!(again.make, None);
            }
            prop_assert!(again.next.is_some_and(|next| next > now));
            let past = world.known.iter().filter(|one| {
                one.made_by == MADE_BY && one.is_published && time_of(&one.name).unwrap() <= now
            });
            prop_assert!(past.count() <= most);
        }
    }
}
