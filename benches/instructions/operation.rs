//! An operation whose instructions are counted.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use forebay_measure::instructions::{CountError, Counted, Turns};

/// Has the program do an operation so often: `--loop KEY TURNS`.
pub(crate) const LOOP: &str = "--loop";

/// One turn.
pub(crate) type Turn = Box<dyn FnMut()>;

/// An operation, and how to come to the state in which it is counted.
pub(crate) struct Operation {
    /// Layer and name: "cache/write 4 KiB".
    pub(crate) key: String,
    turns: Turns,
    prepare: Box<dyn Fn() -> Turn + Send + Sync>,
}

impl Operation {
    /// Counted over up to so many turns, at least 8. Where the turns go round in something, such as a file, a quarter
    /// of them has to be whole rounds.
    pub(crate) fn new(
        key: impl Into<String>,
        turns: u64,
        prepare: impl Fn() -> Turn + Send + Sync + 'static,
    ) -> Operation {
        Operation {
            key: key.into(),
            turns: Turns::upto(turns),
            prepare: Box::new(prepare),
        }
    }

    /// Does it so often.
    pub(crate) fn run(&self, turns: u64) {
        let mut turn = (self.prepare)();
        // What only the first turns do.
        (0..self.turns.few).for_each(|_| turn());
        counted_turns(&mut turn, turns);
    }

    /// Does it a few times.
    pub(crate) fn try_out(&self) {
        let mut turn = (self.prepare)();
        (0..2).for_each(|_| turn());
    }

    /// Instructions of a turn.
    pub(crate) fn count(&self) -> Result<f64, CountError> {
        let program = Counted::this()?.within("counted_turns");
        self.turns
            .each(|turns| program.run(&[LOOP, &self.key, &turns.to_string()]))
    }
}

/// The instructions in here are counted, known by the name of the function.
#[inline(never)]
fn counted_turns(turn: &mut Turn, turns: u64) {
    (0..turns).for_each(|_| turn());
}

/// What a future comes to that does not wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an operation waits that should not have to"),
    }
}
