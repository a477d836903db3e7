//! Searches for changed credentials.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// An access key, and when it expires.
type Key = (String, Option<Duration>);

/// Finds `keyN` the `N`th time, unless `next` is set to nothing.
struct Agent {
    source: CredentialSource,
    found: Arc<AtomicU32>,
    /// The result of the next search: nothing, or the access key and its time of expiry.
    next: Arc<Mutex<Option<Key>>>,
}

impl Agent {
    fn new(files: Vec<PathBuf>) -> Agent {
        let found = Arc::new(AtomicU32::new(0));
        let next = Arc::new(Mutex::new(Some(("first".to_owned(), None))));
        let (count, give) = (Arc::clone(&found), Arc::clone(&next));
        let find = move || -> BoxFuture<'static, Found> {
            count.fetch_add(1, Ordering::Relaxed);
            let given = give.lock().clone();
            Box::pin(async move {
                let (key, left) = given.ok_or_else(|| CredentialsError::not_loaded("none"))?;
                let expiry = left.map(|left| SystemTime::now() + left);
                sound(Credentials::new(key, "secret", None, expiry, "test"))
            })
        };
        Agent {
            source: CredentialSource::new(Box::new(find), files),
            found,
            next,
        }
    }

    fn gives(&self, key: &str, left: Option<Duration>) {
        *self.next.lock() = Some((key.to_owned(), left));
    }

    fn gives_nothing(&self) {
        *self.next.lock() = None;
    }

    async fn key(&self) -> Result<String, CredentialsError> {
        let held = self.source.get().await?;
        Ok(held.access_key_id().to_owned())
    }

    fn searches(&self) -> u32 {
        self.found.load(Ordering::Relaxed)
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn credentials_are_found_once_for_many_requests() {
    let agent = Agent::new(Vec::new());
    for _ in 0..100 {
        assert_eq!(agent.key().await.unwrap(), "first");
    }
    assert_eq!((agent.searches(), agent.source.generation()), (1, 1));
    // Credentials without a time of expiry, for a quarter of an hour.
    tokio::time::advance(OLD - SECOND).await;
    agent.gives("second", None);
    assert_eq!(agent.key().await.unwrap(), "first");
    tokio::time::advance(SECOND).await;
    assert_eq!(agent.key().await.unwrap(), "second");
    assert_eq!((agent.searches(), agent.source.generation()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_has_changed_is_noticed_without_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let agent = Agent::new(vec![file.clone(), folder.path().join("not there")]);
    assert_eq!(agent.key().await.unwrap(), "first");
    agent.gives("second", None);
    std::fs::write(&file, "of another length").unwrap();
    // The file is checked once a second.
    assert_eq!(agent.key().await.unwrap(), "first");
    tokio::time::advance(LOOK).await;
    assert_eq!(agent.key().await.unwrap(), "second");
    tokio::time::advance(LOOK).await;
    assert_eq!(agent.key().await.unwrap(), "second");
    assert_eq!(agent.searches(), 2, "it has not changed since");
    std::fs::remove_file(&file).unwrap();
    agent.gives_nothing();
    tokio::time::advance(LOOK).await;
    assert_eq!(
        agent.key().await.unwrap(),
        "second",
        "the previous ones stay"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_them_found_again_and_not_more_often_than_every_few_seconds() {
    let agent = Agent::new(Vec::new());
    agent.key().await.unwrap();
    // The first request was refused, before which there were no credentials: they have not changed.
    assert!(!agent.source.refused(0).await);
    assert_eq!(agent.searches(), 1);
    tokio::time::advance(AGAIN).await;
    let first = agent.source.generation();
    assert!(!agent.source.refused(first).await, "there are no others");
    assert_eq!(agent.searches(), 2);
    agent.gives("second", None);
    for _ in 0..10 {
        assert!(!agent.source.refused(first).await);
    }
    assert_eq!(agent.searches(), 2, "a moment ago");
    tokio::time::advance(AGAIN).await;
    assert!(agent.source.refused(first).await);
    assert_eq!(agent.searches(), 3);
    // A request that was signed before was refused: the new credentials are there already.
    assert!(agent.source.refused(first).await);
    assert_eq!(agent.searches(), 3);
    assert_eq!(agent.key().await.unwrap(), "second");
}

#[tokio::test(start_paused = true)]
async fn others_are_looked_for_before_they_expire_and_those_of_before_stay_meanwhile() {
    let agent = Agent::new(Vec::new());
    agent.gives("first", Some(3600 * SECOND));
    agent.key().await.unwrap();
    tokio::time::advance(3600 * SECOND - EARLY - 2 * SECOND).await;
    agent.key().await.unwrap();
    assert_eq!(agent.searches(), 1);
    agent.gives_nothing();
    tokio::time::advance(4 * SECOND).await;
    assert_eq!(agent.key().await.unwrap(), "first");
    assert_eq!(agent.key().await.unwrap(), "first");
    assert_eq!(agent.searches(), 2, "once a minute");
    tokio::time::advance(EARLY_AGAIN).await;
    agent.gives("second", Some(3600 * SECOND));
    assert_eq!(agent.key().await.unwrap(), "second");
}

#[tokio::test(start_paused = true)]
async fn where_none_are_found_none_are_looked_for_at_each_request() {
    let agent = Agent::new(Vec::new());
    agent.gives_nothing();
    for _ in 0..10 {
        let error = agent.key().await.unwrap_err();
        assert!(crate::chain::chain(&error).contains("none"), "{error:?}");
    }
    assert_eq!(agent.searches(), 1);
    agent.gives("second", None);
    tokio::time::advance(AGAIN).await;
    assert_eq!(agent.key().await.unwrap(), "second");
    // SIGHUP does not wait.
    agent.gives("third", None);
    agent.source.read_again();
    assert_eq!(agent.key().await.unwrap(), "third");
}

#[tokio::test]
async fn what_no_header_may_hold_is_an_error_that_does_not_tell_it() {
    for key in ["AKIA\n", "AK IA", "AKIÄ", "", "AKIA\u{1}"] {
        let agent = Agent::new(Vec::new());
        agent.gives(key, None);
        let error = crate::chain::chain(&agent.key().await.unwrap_err());
        assert!(
            error.contains("access key id") && !error.contains("AKI"),
            "{error}"
        );
    }
}
