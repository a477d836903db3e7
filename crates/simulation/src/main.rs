//! `simulate`: tests thousands of crash states, from a seed. See `docs/simulation.md`.
#![allow(clippy::print_stdout, reason = "it is what the program is for")]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::process::ExitCode;
use std::time::Duration;

use forebay_simulation::plan::Memory;
use forebay_simulation::{Failure, Perils, Plan, Scope, Suite, Trace, run, shrink};

const HELP: &str = "\
simulate: stops a simulated world at every I/O step, and checks the recovery from the remaining state

  --seed N          seed of the first run; the others count up from it (default: random)
  --runs N          end after N runs
  --states N        end after N crash states (default without another limit: 100000)
  --seconds N       end after N seconds
  --threads N       default 2
  --mode MODE       remaining state: same (machine), power (cut), elsewhere, all (default)
  --faults on|off   faults of store and disk, takeovers, clients that give up (default: on)
  --clones on|off   clones, and restores of the whole volume, between lives (default: on)
  --memory MEMORY   of gateways: enough, tight, or drawn for each plan (default)
  --steps N,N,...   only these actions of the plan of --seed; prints the actions
  --shrink on|off   whether to reduce a failing plan to the actions that matter (default: on)
  --trace           prints the actions in the run of --seed";

struct Arguments {
    suite: Suite,
    steps: Option<Vec<u32>>,
    trace: bool,
    shrink: bool,
}

fn parse() -> Result<Option<Arguments>, String> {
    let mut suite = Suite {
        seed: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as u64 % 1_000_000_000),
        runs: None,
        states: None,
        time: None,
        threads: 2,
        scope: Scope::default(),
        perils: Perils {
            faults: true,
            clones: true,
            memory: None,
        },
    };
    let (mut steps, mut trace, mut shrink) = (None, false, true);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--trace" => {
                trace = true;
                continue;
            }
            _ => {}
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} needs a value; see --help"))?;
        let number = || {
            let digits = value.replace('_', "");
            digits
                .parse::<u64>()
                .map_err(|_| format!("{name} wants a number, not {value:?}"))
        };
        match name.as_str() {
            "--seed" => suite.seed = number()?,
            "--runs" => suite.runs = Some(number()?),
            "--states" => suite.states = Some(number()?),
            "--seconds" => suite.time = Some(Duration::from_secs(number()?)),
            "--threads" => suite.threads = number()? as usize,
            "--mode" => {
                let all = value == "all";
                suite.scope = Scope {
                    same: all || value == "same",
                    power: all || value == "power",
                    elsewhere: all || value == "elsewhere",
                    ..suite.scope
                };
                if !(suite.scope.same || suite.scope.power || suite.scope.elsewhere) {
                    return Err(format!(
                        "--mode is same, power, elsewhere or all, not {value:?}"
                    ));
                }
            }
            "--faults" => suite.perils.faults = on(&name, &value)?,
            "--clones" => suite.perils.clones = on(&name, &value)?,
            "--memory" => {
                suite.perils.memory = match value.as_str() {
                    "enough" => Some(Memory::Enough),
                    "tight" => Some(Memory::Tight),
                    "drawn" => None,
                    _ => return Err(format!("--memory is enough, tight or drawn, not {value:?}")),
                }
            }
            "--shrink" => shrink = on(&name, &value)?,
            "--steps" => {
                let numbers = value.split(',').map(|number| number.trim().parse::<u32>());
                steps = Some(
                    numbers
                        .collect::<Result<_, _>>()
                        .map_err(|_| format!("--steps wants numbers, not {value:?}"))?,
                );
            }
            _ => return Err(format!("{name} is unknown; see --help")),
        }
    }
    if suite.runs.is_none() && suite.states.is_none() && suite.time.is_none() {
        suite.states = Some(100_000);
    }
    Ok(Some(Arguments {
        suite,
        steps,
        trace,
        shrink,
    }))
}

fn on(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} is on or off, not {value:?}")),
    }
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("simulate: {why}");
            return ExitCode::from(2);
        }
    };
    let suite = &arguments.suite;
    if arguments.steps.is_some() || arguments.trace {
        return one(&arguments);
    }
    println!("seed {}", suite.seed);
    let outcome = suite.run();
    print!("{}", outcome.totals);
    println!("{:<26}{:>10.1} s", "took", outcome.took.as_secs_f64());
    let passed = outcome.totals.runs;
    match outcome.failure {
        None => {
            println!("{passed} passed, 0 failed");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("\nFAILED: {failure}\n");
            if arguments.shrink {
                explain(suite, failure);
            }
            println!("{passed} passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Runs one plan, or a part of it, and prints the events.
fn one(arguments: &Arguments) -> ExitCode {
    let suite = &arguments.suite;
    let mut plan = Plan::of(suite.seed, suite.perils);
    if let Some(steps) = &arguments.steps {
        plan = plan.only(steps);
    }
    let mut trace = Trace::kept();
    let result = run(&plan, &suite.scope, &mut trace);
    for line in trace.lines() {
        println!("{line}");
    }
    match result {
        Ok(totals) => {
            print!("{totals}");
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("\nFAILED: {failure}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Shrinks a failing plan and prints it with the command that repeats it.
fn explain(suite: &Suite, failure: Failure) {
    let plan = Plan::of(failure.seed, suite.perils);
    let (plan, failure) = shrink(&plan, &suite.scope, failure);
    println!(
        "The smallest part of the plan that fails ({:?}):",
        plan.journal
    );
    for (number, action) in &plan.actions {
        println!("{number:>6}  {action}");
    }
    let steps: Vec<String> = plan
        .actions
        .iter()
        .map(|(number, _)| number.to_string())
        .collect();
    println!("\n{failure}\n");
    let faults = if suite.perils.faults { "on" } else { "off" };
    let clones = if suite.perils.clones { "on" } else { "off" };
    let memory = match suite.perils.memory {
        Some(Memory::Enough) => "enough",
        Some(Memory::Tight) => "tight",
        None => "drawn",
    };
    println!(
        "repeat it with: simulate --seed {} --faults {faults} --clones {clones} --memory {memory} --steps {}\n",
        failure.seed,
        steps.join(",")
    );
}
