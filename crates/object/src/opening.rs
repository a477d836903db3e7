//! The time that opening a store waits for a server that answers, but cannot serve the request at the moment.

use std::time::Duration;

use object_store::{Error, Result};
use tokio::time::Instant;

use crate::Fault;
use crate::sort::is_outage;

/// The server may have just started, or be overloaded.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two requests in that time.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Repeats a request until it succeeds or is refused permanently; when the time is over it returns the last answer.
pub(crate) async fn asked<T, F>(mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let begun = Instant::now();
    let mut said: Option<Error> = None;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let was_sent = !is_outage(&error);
        let may_change = !was_sent || Fault::of(&error) == Fault::Transient;
        let error = said.take().filter(|_| !was_sent).unwrap_or(error);
        if !may_change || begun.elapsed() >= TIMEOUT {
            return Err(error);
        }
        said = Some(error);
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::s3::error::{Words, sorted};

    fn answer(status: u16, code: &str) -> Error {
        let words = Words {
            status,
            code: Some(code),
            ..Words::default()
        };
        sorted("a", words)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_busy_is_waited_for_and_its_words_are_the_error() {
        let times = Cell::new(0);
        let error = asked(|| async {
            times.set(times.get() + 1);
            Err::<(), _>(answer(503, "SlowDown"))
        })
        .await
        .unwrap_err();
        assert!(crate::sort::words(&error).contains("SlowDown"));
        assert_eq!(times.get(), 31);
        let times = Cell::new(0);
        let opened = asked(|| async {
            times.set(times.get() + 1);
            match times.get() {
                1..=5 => Err(answer(503, "XMinioServerNotInitialized")),
                _ => Ok(()),
            }
        });
        opened.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stays_is_not_waited_for() {
        for (status, code) in [
            (403, "AccessDenied"),
            (404, "NoSuchBucket"),
            (400, "ExpiredToken"),
        ] {
            let times = Cell::new(0);
            let refused = asked(|| async {
                times.set(times.get() + 1);
                Err::<(), _>(answer(status, code))
            });
            refused.await.unwrap_err();
            assert_eq!(times.get(), 1, "{code}");
        }
    }
}
