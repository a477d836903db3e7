//! An operation whose instructions are counted.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use forebay_measure::instructions::{CountError, Counted, Turns};

/// Makes the program repeat an operation: `--loop KEY TURNS`.
pub(crate) const LOOP: &str = "--loop";

/// One turn.
pub(crate) type Turn = Box<dyn FnMut()>;

/// An operation, and how to reach the state in which it is counted.
pub(crate) struct Operation {
    /// Layer and name: "cache/write 4 KiB".
    pub(crate) key: String,
    turns: Turns,
    prepare: Box<dyn Fn() -> Turn + Send + Sync>,
}

impl Operation {
    /// Counts over at most `turns` turns, at least 8. If the turns repeat passes over an object, such as a file, a
    /// quarter of them must be whole passes.
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

    /// Executes it `turns` times.
    pub(crate) fn run(&self, turns: u64) {
        let mut turn = (self.prepare)();
        // Skips work that only the first turns do.
        (0..self.turns.few).for_each(|_| turn());
        counted_turns(&mut turn, turns);
    }

    /// Executes it a few times.
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

/// Valgrind counts the instructions in this function, which it finds by name.
#[inline(never)]
fn counted_turns(turn: &mut Turn, turns: u64) {
    (0..turns).for_each(|_| turn());
}

/// The result of a future that does not wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an operation waits that should not have to"),
    }
}
