//! The quick suite: a world that stops at every I/O step, with the same seeds every time.

use forebay_simulation::{Perils, Plan, Scope, Suite, Trace, run, shrink};

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {value:?}")),
        Err(_) => default,
    }
}

/// Tests crash states. `SIMULATION_STATES` and `SIMULATION_SEED` set their number and the seed.
fn try_states(faults: bool, share: u64) {
    let suite = Suite {
        seed: number("SIMULATION_SEED", 1),
        runs: None,
        states: Some(number("SIMULATION_STATES", 100_000) * share / 100),
        time: None,
        threads: 1,
        scope: Scope::default(),
        perils: Perils {
            faults,
            clones: true,
            memory: None,
        },
    };
    let outcome = suite.run();
    // For a reader of the test's output.
    eprintln!("seed {}\n{}", suite.seed, outcome.totals);
    let totals = &outcome.totals;
    let rare = [
        totals.clones,
        totals.raced,
        totals.detached,
        totals.held,
        totals.taken_back,
        totals.spilled_bytes,
        totals.log_reads,
        totals.log_loads,
        // One that waits is no backlog.
        totals.most_waiting.saturating_sub(2),
    ];
    let of_faults = [totals.failed_reads, totals.dropped_pages];
    let is_whole = outcome.failure.is_none() && std::env::var_os("SIMULATION_STATES").is_none();
    assert!(!is_whole || !rare.contains(&0), "{totals}");
    assert!(!is_whole || !faults || !of_faults.contains(&0), "{totals}");
    if let Some(failure) = outcome.failure {
        let plan = Plan::of(failure.seed, suite.perils);
        let (plan, failure) = shrink(&plan, &suite.scope, failure);
        let steps: Vec<String> = plan
            .actions
            .iter()
            .map(|(number, _)| number.to_string())
            .collect();
        panic!(
            "{failure}\nrepeat it with: simulate --seed {} --faults {} --steps {}",
            failure.seed,
            if faults { "on" } else { "off" },
            steps.join(",")
        );
    }
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_world_stops() {
    try_states(false, 50);
}

#[test]
fn nothing_acknowledged_is_lost_when_store_and_disk_fail_as_well() {
    try_states(true, 50);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..3 {
        let perils = Perils {
            faults: true,
            clones: true,
            memory: None,
        };
        let plan = Plan::of(seed, perils);
        let [first, second] = [(); 2].map(|()| {
            let mut trace = Trace::kept();
            let totals = run(&plan, &Scope::default(), &mut trace);
            (totals, trace.lines().to_vec())
        });
        assert!(first.1.len() > 20);
        assert_eq!(first, second);
    }
}
