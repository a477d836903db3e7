//! Messages while a volume is being opened: a step that takes long, and its progress.

use std::time::Duration;

use super::period::age;

/// The time after which a step is logged.
const LONG: Duration = Duration::from_secs(5);
/// The longest pause between two messages about one step.
const PAUSE: Duration = Duration::from_secs(60);

/// The messages about the steps of an opening.
#[derive(Debug, Default)]
pub struct OpeningWatch {
    /// The step's number.
    step: u64,
    since: Duration,
    /// When the next message about it is due.
    next: Duration,
}

impl OpeningWatch {
    /// Looks at the current step, which has the number `step` among all; returns the message about it, if one is due.
    pub fn look(&mut self, now: Duration, step: u64, what: &str) -> Option<String> {
        if step != self.step {
            *self = OpeningWatch {
                step,
                since: now,
                next: now + LONG,
            };
        }
        if now < self.next {
            return None;
        }
        let lasts = now.saturating_sub(self.since);
        self.next = now + lasts.clamp(LONG, PAUSE);
        Some(format!("opening the volume: {what}, for {}", age(lasts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_said_when_it_takes_long_and_less_and_less_often() {
        let mut watch = OpeningWatch::default();
        let said = (0..400).filter(|second| {
            let said = watch.look(Duration::from_secs(*second), 1, "reading the manifest");
            if *second == 5 {
                let expected = "opening the volume: reading the manifest, for 5s";
                assert_eq!(said.as_deref(), Some(expected));
            }
            said.is_some()
        });
        assert_eq!(
            said.collect::<Vec<_>>(),
            [5, 10, 20, 40, 80, 140, 200, 260, 320, 380]
        );
    }

    #[test]
    fn a_step_that_is_soon_over_is_not_said_and_the_next_begins_again() {
        let mut watch = OpeningWatch::default();
        for second in 0..60 {
            let said = watch.look(Duration::from_secs(second), second / 4 + 1, "a step");
            assert_eq!(said, None, "{second}");
        }
    }
}
