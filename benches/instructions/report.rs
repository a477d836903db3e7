//! The program's options, and its output.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use forebay_measure::instructions::CountError;
use forebay_measure::{Baseline, Machine, Round, Verdict};

use crate::operation::Operation;

/// Prefix of the line at the head of a baseline that names the tools and the machine of its counts.
const TAKEN_WITH: &str = "# taken with:";

/// The requested operation.
pub(crate) struct Order {
    baseline: Option<(Deed, PathBuf)>,
    /// Only keys that contain one of these, if there are any, as with other benchmarks.
    filters: Vec<String>,
}

/// How to use a baseline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Check,
    Update,
}

impl Order {
    /// Reads the arguments of the program.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Order, String> {
        let (mut baseline, mut filters) = (None, Vec::new());
        while let Some(argument) = arguments.next() {
            let deed = match argument.as_str() {
                "--check" => Deed::Check,
                "--update" => Deed::Update,
                option if option.starts_with('-') => return Err(format!("unknown: {option}")),
                _ => {
                    filters.push(argument);
                    continue;
                }
            };
            let file = arguments.next();
            let file = file.ok_or_else(|| format!("{argument} needs the file of the baseline"))?;
            baseline = Some((deed, PathBuf::from(file)));
        }
        if let (Some((Deed::Update, _)), false) = (&baseline, filters.is_empty()) {
            return Err("a baseline is of all operations, not of some".to_owned());
        }
        Ok(Order { baseline, filters })
    }

    fn wants(&self, key: &str) -> bool {
        let mut filters = self.filters.iter();
        self.filters.is_empty() || filters.any(|filter| key.contains(filter))
    }

    /// Counts, and prints, checks or keeps the counts as requested.
    pub(crate) fn carry_out(&self, operations: &[Operation]) -> Result<ExitCode, Box<dyn Error>> {
        let wanted = operations.iter().filter(|one| self.wants(&one.key));
        let wanted: Vec<_> = wanted.collect();
        let counts = match count(&wanted) {
            Ok(counts) => counts,
            Err(CountError::NoValgrind) => return Ok(without_valgrind()),
            Err(error) => return Err(error.into()),
        };
        // In the order of the layers, which a round does not keep.
        for operation in wanted {
            let count = counts.get(&operation.key).unwrap_or(f64::NAN);
            println!("{}\t{count:.0}", operation.key);
        }
        match &self.baseline {
            None => Ok(ExitCode::SUCCESS),
            Some((Deed::Check, file)) => check(file, &counts, |key| self.wants(key)),
            Some((Deed::Update, file)) => update(file, &counts),
        }
    }
}

/// Counts on all processors at the same time; that changes no count.
fn count(operations: &[&Operation]) -> Result<Round, CountError> {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Round::default()));
    let work = || {
        while let Some(operation) = operations.get(next.fetch_add(1, Ordering::Relaxed)) {
            let count = operation.count()?;
            let mut counts = counts.lock().unwrap_or_else(|broken| broken.into_inner());
            counts.insert(operation.key.as_str(), count);
        }
        Ok::<(), CountError>(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("it counts without panicking"))
    })?;
    Ok(counts
        .into_inner()
        .unwrap_or_else(|broken| broken.into_inner()))
}

/// In CI, where everything must be checked, missing Valgrind is a failure.
fn without_valgrind() -> ExitCode {
    println!("{}", CountError::NoValgrind);
    match env::var_os("CI") {
        Some(_) => ExitCode::FAILURE,
        None => {
            println!("nothing was counted");
            ExitCode::SUCCESS
        }
    }
}

fn check(
    file: &Path,
    counts: &Round,
    wants: impl Fn(&str) -> bool,
) -> Result<ExitCode, Box<dyn Error>> {
    let baseline = read(file)?.only(wants);
    let findings = baseline.check(counts);
    println!();
    for finding in &findings {
        let word = match finding.verdict {
            Verdict::Same => continue,
            Verdict::Dearer => "DEARER",
            Verdict::Cheaper => "cheaper",
            Verdict::New => "NEW",
            Verdict::Gone => "GONE",
        };
        println!("{word:8} {finding}");
    }
    let file = file.display();
    let same = findings.iter().filter(|one| one.verdict == Verdict::Same);
    println!("{} of {} are as in {file}", same.count(), findings.len());
    let renew = format!("cargo bench --bench instructions -- --update {file}");
    if findings.iter().any(|finding| finding.is_refused()) {
        println!(
            "refused. What is dearer without need is to be made cheaper again; what has to be so is kept by\n    \
             {renew}\nin the same change, which says why. Another compiler or C library counts otherwise:"
        );
        if let Some(line) = baseline.remarks(TAKEN_WITH) {
            println!("    {line}\n    # here:       {}", surroundings());
        }
        return Ok(ExitCode::FAILURE);
    }
    if findings.iter().any(|one| one.verdict == Verdict::Cheaper) {
        println!("what is cheaper stays so if it is kept: {renew}");
    }
    Ok(ExitCode::SUCCESS)
}

fn update(file: &Path, counts: &Round) -> Result<ExitCode, Box<dyn Error>> {
    let mut baseline = match file.exists() {
        true => read(file)?,
        false => Baseline::default(),
    };
    let remark = format!("{TAKEN_WITH} {}", surroundings());
    baseline.renew(counts, TAKEN_WITH, remark);
    fs::write(file, baseline.to_string())?;
    println!("kept in {}", file.display());
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Baseline, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let baseline = Baseline::parse(&text);
    Ok(baseline.map_err(|error| format!("{}: {error}", file.display()))?)
}

/// Conditions other than the code on which counts depend.
fn surroundings() -> String {
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.lines().next().map(str::to_owned)
    };
    let lines = [
        first_line("rustc", "--version"),
        first_line("ldd", "--version"),
        first_line("valgrind", "--version"),
        Some(Machine::this().to_string()),
    ];
    let known: Vec<_> = lines.into_iter().flatten().collect();
    known.join("; ")
}
