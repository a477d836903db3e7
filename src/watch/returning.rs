//! Finds out that a bucket which was away is back, when nobody else asks it for anything.
//!
//! Publications, collections and reads of clients send requests themselves, and each answer ends the trouble that the gateway
//! shows. An idle gateway sends none, and would show an outage that ended long ago.

use std::sync::Arc;
use std::time::Duration;

use forebay_meta::volume::DESCRIPTOR_NAME;
use forebay_object::{Cause, Health, Store, caused};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::{MissedTickBehavior, interval};

/// The interval of requests while the bucket is away.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// Asks the bucket of one volume while it is away.
pub struct Returning {
    store: Arc<dyn ObjectStore>,
    health: Health,
    /// A small object that every volume has.
    descriptor: Path,
}

impl Returning {
    /// For the bucket of the volume in `store`.
    pub fn new(store: &Store) -> Returning {
        Returning {
            store: store.store.clone(),
            health: store.health.clone(),
            descriptor: store.path(DESCRIPTOR_NAME),
        }
    }

    /// Every ten seconds, while `is_away` and the retry policy permits a request, asks for the attributes of the volume's
    /// descriptor. Does not end. Any answer, also a refusal, shows the retry policy that the bucket is back.
    pub async fn run(&self, is_away: impl Fn() -> bool) {
        let mut ticks = interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if is_away() && self.health.takes_requests() {
                let asked = caused(Cause::Other, self.store.head(&self.descriptor)).await;
                if let Err(error) = asked {
                    tracing::debug!(%error, "the bucket is asked whether it is back");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_object::RetrySettings;
    use forebay_object::faults::{Faults, FaultyStore};
    use object_store::memory::InMemory;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    /// A store that fails all reads, until none is sent but a probe.
    async fn away() -> (Store, Arc<Faults>) {
        let faults = Arc::<Faults>::default();
        let faulty = FaultyStore::new(Arc::new(InMemory::new()), faults.clone());
        let settings = RetrySettings {
            seed: Some(7),
            ..RetrySettings::default()
        };
        let store = Store::new(Arc::new(faulty), Path::default(), String::new(), settings);
        faults.set_down(true);
        while store.health.outage().is_none() {
            let _ = store.store.head(&Path::from("a")).await;
        }
        (store, faults)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_gateway_finds_that_the_bucket_is_back() {
        let (store, faults) = away().await;
        let returning = Returning::new(&store);
        let health = store.health.clone();
        let is_away = || health.outage().is_some();
        let is_back = async {
            sleep(Duration::from_secs(3600)).await;
            assert!(is_away(), "it was not back");
            faults.set_down(false);
            let since = Instant::now();
            while is_away() && since.elapsed() < Duration::from_secs(3600) {
                sleep(Duration::from_secs(1)).await;
            }
            since.elapsed()
        };
        let took = tokio::select! {
            () = returning.run(is_away) => unreachable!("it does not end"),
            took = is_back => took,
        };
        assert!(took <= 2 * ASK_EVERY + Duration::from_secs(15), "{took:?}");
        // Each probe takes at least the pause of ten seconds.
        assert!(faults.refused() <= 12 + 3600 / 10, "{}", faults.refused());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_answers_is_not_asked() {
        let faults = Arc::<Faults>::default();
        let faulty = Arc::new(FaultyStore::new(Arc::new(InMemory::new()), faults));
        let settings = RetrySettings::default();
        let store = Store::new(faulty.clone(), Path::default(), String::new(), settings);
        let returning = Returning::new(&store);
        let hour = timeout(Duration::from_secs(3600), returning.run(|| false));
        assert!(hour.await.is_err());
        assert_eq!(faulty.counts().requests(), 0);
    }
}
