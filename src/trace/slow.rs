//! The log of slow calls: one line for each, at most [`OF_CLIENT`] a minute for each client and [`OF_KIND`] for all. The
//! rest is counted, and told when the minute is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_nfs::{CallFilter, CallWatch, Seen, SeenCall};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::call::{WithPaths, time};
use super::{Paths, ROOM};
use crate::config::Config;
use crate::logging::Limiter;

/// How often it is looked whether a minute is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Logs slow calls, and exports them as spans, until it is dropped.
pub(crate) struct SlowCalls {
    limit: watch::Sender<Option<Duration>>,
    /// They end with this.
    _tasks: JoinSet<()>,
}

impl SlowCalls {
    /// Logs the calls that take at least `slow_call`, from now on; none without one. They become spans with
    /// `otlp_endpoint`. Must be called within a tokio runtime.
    pub(crate) fn start(
        calls: CallWatch,
        paths: impl Paths + 'static,
        config: &Config,
    ) -> SlowCalls {
        let (limit, current) = watch::channel(config.slow_call.0);
        let paths = Arc::new(paths);
        let mut tasks = JoinSet::new();
        #[cfg(feature = "otlp")]
        if let Some(endpoint) = config.otlp_endpoint.0.clone() {
            let (calls, paths, current) = (calls.clone(), paths.clone(), current.clone());
            tasks.spawn(super::spans::export(endpoint, calls, paths, current));
        }
        tasks.spawn(run(calls, paths, current));
        SlowCalls {
            limit,
            _tasks: tasks,
        }
    }

    /// Changes the limit.
    pub(crate) fn set(&self, limit: Option<Duration>) {
        self.limit.send_replace(limit);
    }
}

async fn run(
    calls: CallWatch,
    paths: Arc<impl Paths>,
    mut limit: watch::Receiver<Option<Duration>>,
) {
    let started = Instant::now();
    let mut lines = Lines::new();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let at_least = *limit.borrow_and_update();
        calls.count_slow(at_least);
        let mut slow = at_least.map(|at_least| {
            let filter = CallFilter {
                at_least,
                ..CallFilter::default()
            };
            calls.watch(filter, ROOM)
        });
        loop {
            let next = async {
                match &mut slow {
                    Some(slow) => slow.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = limit.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                _ = ticks.tick() => lines.due(started.elapsed()).into_iter().for_each(say_more),
                seen = next => match seen {
                    Some(Seen::Call(call)) => {
                        if lines.admit(&call, started.elapsed()) {
                            say(*call, &*paths).await;
                        }
                    }
                    Some(Seen::Lost(count)) => lines.lost(count),
                    // The server has ended.
                    None => return,
                },
            }
        }
    }
}

/// Which slow calls are logged, and the number of the others. Time is passed as an argument.
struct Lines {
    limiter: Limiter<()>,
    /// Those that were not even seen, since the last report.
    lost: u64,
}

impl Lines {
    fn new() -> Lines {
        Lines {
            limiter: Limiter::new(),
            lost: 0,
        }
    }

    /// Whether a call is logged `now`. Otherwise it is counted.
    fn admit(&mut self, call: &SeenCall, now: Duration) -> bool {
        let client = call.client.to_string();
        self.limiter.admit(&(), Some(&client), now, String::new)
    }

    /// This number of slow calls came too fast to be looked at.
    fn lost(&mut self, count: u64) {
        self.lost += count;
    }

    /// The numbers of calls that were not logged, whose minute is over: those of single clients, and of all.
    fn due(&mut self, now: Duration) -> Vec<(Option<String>, u64)> {
        let held = self.limiter.due(now, false).into_iter();
        let mut due: Vec<_> = held.map(|held| (held.client, held.count)).collect();
        // They come with others that are held, if not at once.
        if !due.is_empty() && self.lost > 0 {
            due.push((None, std::mem::take(&mut self.lost)));
        }
        due
    }
}

async fn say(call: SeenCall, paths: &impl Paths) {
    let call = WithPaths::of(call, paths).await.call;
    let filled = |text: String| (!text.is_empty()).then_some(text);
    let object = call.object.fileid.map(|_| call.object.to_string());
    let to = call.to.as_ref().map(ToString::to_string);
    tracing::warn!(
        client = call.client,
        uid = call.uid,
        path = object,
        to,
        offset = call.offset,
        size = call.size,
        result = call.result,
        waited = filled(call.waited()),
        caused = filled(call.caused()),
        "slow call: {} took {}",
        call.procedure,
        time(call.seconds)
    );
}

fn say_more((client, count): (Option<String>, u64)) {
    tracing::warn!(client, "{count} more slow calls within a minute");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::{OF_CLIENT, OF_KIND};
    use crate::trace::call::tests::seen;

    const MINUTE: Duration = Duration::from_secs(60);

    fn from(client: u8) -> SeenCall {
        SeenCall {
            client: std::net::IpAddr::from([192, 0, 2, client]),
            ..seen("READ")
        }
    }

    #[test]
    fn the_lines_of_a_client_are_bounded_and_the_others_told() {
        let mut lines = Lines::new();
        let now = Duration::from_secs(5);
        let count = (0..50).filter(|_| lines.admit(&from(1), now)).count();
        assert_eq!(count, OF_CLIENT as usize);
        assert!(lines.admit(&from(2), now), "another client has lines");
        assert_eq!(lines.due(now), []);
        lines.lost(7);
        let held = 50 - u64::from(OF_CLIENT);
        let client = Some("192.0.2.1".to_owned());
        assert_eq!(lines.due(now + MINUTE), [(client, held), (None, 7)]);
        assert_eq!(lines.due(now + 2 * MINUTE), []);
    }

    #[test]
    fn the_lines_of_all_clients_are_bounded() {
        let mut lines = Lines::new();
        let clients = 0..=u8::MAX;
        let logged = clients.filter(|client| lines.admit(&from(*client), Duration::ZERO));
        assert_eq!(logged.count(), OF_KIND as usize);
        let held = 256 - u64::from(OF_KIND);
        assert_eq!(lines.due(MINUTE), [(None, held)]);
    }
}
