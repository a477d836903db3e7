//! Runs targets without libFuzzer: with one input, with a number of mutations, or for a time.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::Target;
use crate::mutate::{Random, mutated};

/// An input that takes longer than this counts as endless.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Most runs of a target for minimising an input.
const MINIMISING_RUNS: usize = 5000;

/// An input that violates a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// Message of the panic.
    pub message: String,
    /// Position of the panic: file and line.
    pub place: String,
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Makes panics within [`attempt`] recorded instead of printed.
fn listen_to_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                return before(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic without message");
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            PANIC.set(Some((message.to_owned(), place)));
        }));
    });
}

/// Runs a target with one input.
///
/// # Errors
/// The failure of the target.
pub fn attempt(target: &Target, input: &[u8]) -> Result<(), Failure> {
    listen_to_panics();
    QUIET.set(true);
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    QUIET.set(false);
    ended.map_err(|_| {
        let (message, place) = PANIC.take().unwrap_or_default();
        Failure {
            input: input.to_vec(),
            message,
            place,
        }
    })
}

/// Makes the input of a failure smaller and plainer, as long as it fails at the same place.
pub fn minimise(target: &Target, failure: Failure) -> Failure {
    let mut best = failure;
    let mut runs = 0;
    let mut still_fails = |input: Vec<u8>, best: &mut Failure| {
        runs += 1;
        if runs > MINIMISING_RUNS {
            return false;
        }
        match attempt(target, &input) {
            Err(smaller) if smaller.place == best.place => {
                *best = smaller;
                true
            }
            _ => false,
        }
    };
    let mut piece = best.input.len().next_power_of_two();
    while piece > 0 {
        let mut at = 0;
        while at < best.input.len() {
            let end = (at + piece).min(best.input.len());
            let mut without = best.input.clone();
            without.drain(at..end);
            if !still_fails(without, &mut best) {
                at = end;
            }
        }
        piece /= 2;
    }
    for at in 0..best.input.len() {
        let mut plainer = best.input.clone();
        if std::mem::take(&mut plainer[at]) != 0 {
            still_fails(plainer, &mut best);
        }
    }
    best
}

/// Runs `count` mutations of `corpus`.
///
/// # Errors
/// The first failure, minimised.
pub fn try_mutations(
    target: &Target,
    corpus: &[Vec<u8>],
    seed: u64,
    count: usize,
) -> Result<(), Failure> {
    let mut random = Random(seed);
    for _ in 0..count {
        let input = mutated(corpus, target.max_bytes, &mut random);
        attempt(target, &input).map_err(|failure| minimise(target, failure))?;
    }
    Ok(())
}

/// The result of a long run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of inputs tried.
    pub executions: u64,
    /// One failure for each position, minimised, and the file with its input.
    pub failures: Vec<(Failure, PathBuf)>,
}

/// The input that a job is trying, and when it began.
type Trying = Mutex<Option<(Instant, Vec<u8>)>>;

/// State shared by the threads of a run.
struct Run<'a> {
    target: &'a Target,
    corpus: &'a [Vec<u8>],
    folder: &'a Path,
    ends_at: Instant,
    executions: AtomicU64,
    done: AtomicBool,
    failures: Mutex<Vec<(Failure, PathBuf)>>,
    /// The current input of each job.
    trying: Vec<Trying>,
}

/// Runs mutations of `corpus` for a time in `jobs` threads. Continues after a failure; each failing position is
/// reported once, and its smallest input is written into `folder`. An input that takes longer than [`TIMEOUT`] is
/// written there too, and ends the process, because nothing else could end its thread.
///
/// # Errors
/// A failing input could not be written.
pub fn run_for(
    target: &Target,
    corpus: &[Vec<u8>],
    seed: u64,
    time: Duration,
    jobs: usize,
    folder: &Path,
) -> io::Result<Outcome> {
    fs::create_dir_all(folder)?;
    let run = Run {
        target,
        corpus,
        folder,
        ends_at: Instant::now() + time,
        executions: AtomicU64::new(0),
        done: AtomicBool::new(false),
        failures: Mutex::default(),
        trying: (0..jobs).map(|_| Mutex::default()).collect(),
    };
    let ended: io::Result<()> = std::thread::scope(|scope| {
        let watch = scope.spawn(|| run.watch());
        let jobs: Vec<_> = (0..jobs)
            .map(|job| {
                let run = &run;
                scope.spawn(move || run.job(job, seed.wrapping_add(job as u64)))
            })
            .collect();
        let ended = jobs.into_iter().try_for_each(|job| {
            job.join()
                .unwrap_or_else(|_| Err(io::Error::other("a job of the harness panicked")))
        });
        run.done.store(true, Ordering::Release);
        watch.thread().unpark();
        ended
    });
    ended?;
    Ok(Outcome {
        executions: run.executions.load(Ordering::Acquire),
        failures: run
            .failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
    })
}

/// Writes a failing input under a name made from its content, and returns the file.
fn keep(folder: &Path, target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    let name = format!("{}-{}", target.name, &blake3::hash(input).to_hex()[..12]);
    let path = folder.join(name);
    fs::write(&path, input)?;
    Ok(path)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `failures` has one at the same position.
fn is_known(failures: &[(Failure, PathBuf)], failure: &Failure) -> bool {
    failures
        .iter()
        .any(|(known, _)| known.place == failure.place)
}

impl Run<'_> {
    fn job(&self, job: usize, seed: u64) -> io::Result<()> {
        let mut random = Random(seed);
        while Instant::now() < self.ends_at {
            let input = mutated(self.corpus, self.target.max_bytes, &mut random);
            if let Some(trying) = self.trying.get(job) {
                *lock(trying) = Some((Instant::now(), input.clone()));
            }
            let ended = attempt(self.target, &input);
            self.executions.fetch_add(1, Ordering::AcqRel);
            let Err(failure) = ended else { continue };
            if is_known(&lock(&self.failures), &failure) {
                continue;
            }
            let failure = minimise(self.target, failure);
            // Held from the check to the entry: another job may have found the same position at the same time.
            let mut failures = lock(&self.failures);
            if !is_known(&failures, &failure) {
                let path = keep(self.folder, self.target, &failure.input)?;
                failures.push((failure, path));
            }
        }
        if let Some(trying) = self.trying.get(job) {
            *lock(trying) = None;
        }
        Ok(())
    }

    /// Looks for endless inputs.
    fn watch(&self) {
        while !self.done.load(Ordering::Acquire) {
            for trying in &self.trying {
                let stuck = lock(trying)
                    .clone()
                    .filter(|(since, _)| since.elapsed() > TIMEOUT);
                if let Some((_, input)) = stuck {
                    let kept = keep(self.folder, self.target, &input);
                    eprintln!(
                        "{}: no end within {} s; the input is {kept:?}",
                        self.target.name,
                        TIMEOUT.as_secs()
                    );
                    std::process::abort();
                }
            }
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails for an input with an `X` after a `Y`.
    const FRAGILE: Target = Target {
        name: "fragile",
        run: |bytes| {
            let behind = bytes.iter().skip_while(|byte| **byte != b'Y');
            assert!(!behind.into_iter().any(|byte| *byte == b'X'), "an X");
        },
        seeds: Vec::new,
        max_bytes: 100,
    };

    #[test]
    fn a_failure_is_found_and_made_as_small_as_it_can_be() {
        let corpus = vec![b"it takes what comes XXXX at once YYYY".to_vec()];
        let failure = try_mutations(&FRAGILE, &corpus, 1, 20_000).unwrap_err();
        assert_eq!(failure.input, b"YX");
        assert_eq!(failure.message, "an X");
        assert!(failure.place.contains("harness.rs"), "{}", failure.place);
        assert_eq!(attempt(&FRAGILE, b"XY"), Ok(()));
    }

    #[test]
    fn a_run_reports_each_place_once_with_a_file_that_repeats_it() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = vec![b"XXXXYYYY".to_vec()];
        let time = Duration::from_millis(200);
        let outcome = run_for(&FRAGILE, &corpus, 1, time, 2, folder.path()).unwrap();
        assert!(outcome.executions > 0);
        let [(failure, path)] = &outcome.failures[..] else {
            panic!("{outcome:?}")
        };
        let kept = fs::read(path).unwrap();
        assert_eq!(attempt(&FRAGILE, &kept).unwrap_err().place, failure.place);
    }
}
