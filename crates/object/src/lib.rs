//! Forebay: opens the object store that a volume lives in.
//!
//! A store is named by a URL and used through one trait, [`object_store::ObjectStore`]; the layers
//! above this crate do not depend on the kind of store.
//!
//! | URL | store |
//! |---|---|
//! | `file:///folder` | [`FileStore`]: a local folder, every put on stable storage before it returns |
//! | `s3://bucket/prefix` | [`S3Store`]: any S3 server, through the AWS SDK |
//! | `memory://` | memory of this process, empty at every opening |
//! | `memory://name` | memory of this process, shared by all that open that name |
//!
//! Every request goes through one policy of retries, limits and pauses, which `retry` describes; [`Health`] reports how
//! the store has answered lately. The bytes per second that go to an S3 server and come from it can be
//! [limited](LinkLimit).
//!
//! [`open`] checks at once whether the store can be reached and reports the remedy if it cannot. [`probe`] proves that
//! a store keeps the guarantees that a volume relies on, conditional writes above all. [`CountingStore`] counts the
//! requests to a store, and [`Requests`] those that are sent, by their [`Cause`]. Errors stay those of the trait; [`Fault`] sorts them by what the caller can do.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod chain;
mod counting;
mod error;
mod fault;
#[cfg(feature = "faults")]
pub mod faults;
mod file;
mod link;
mod location;
mod memory;
mod opening;
mod options;
mod probe;
mod range;
mod requests;
mod retry;
mod s3;
mod sort;

use std::fmt::Display;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{Attribute, ObjectStore, PutOptions};
use tokio::time::Instant;

pub use counting::{CountingStore, RequestCounts};
pub use error::OpenError;
pub use fault::Fault;
pub use file::FileStore;
pub use link::{Hours, LinkLimit};
pub use options::{Checksum, Credentials, Encryption, Proxy, Restore, RestoreTier, StoreOptions};
pub use probe::{ProbeError, probe};
pub use requests::{Cause, CausedStore, Ended, Method, Requests, Total, caused, current};
pub use retry::{Health, Needs, RetrySettings, UnansweredTry};
pub use s3::{
    CredentialSource, S3Store, advice, check_environment, check_region, endpoint, http_client,
};
pub use sort::Refusal;

use location::Location;
use requests::ObservedStore;
use retry::{Body, Kind, Repeat, RetryPolicy, RetryingStore};

/// An open store, which holds a volume's objects.
#[derive(Clone, Debug)]
pub struct Store {
    /// The interface to the objects.
    pub store: Arc<dyn ObjectStore>,
    /// The prefix below which all of the volume's objects lie; empty for the whole store.
    pub root: Path,
    /// The URL, for showing to people: it contains no secret.
    pub url: String,
    /// How the store has answered lately.
    pub health: Health,
    /// The requests that were sent to it.
    pub requests: Arc<Requests>,
    /// The source of the credentials of its requests, if they need some.
    pub credentials: Option<CredentialSource>,
    /// The options for putting objects that hold data, and not metadata: storage class and tags.
    pub data_options: PutOptions,
}

impl Store {
    /// A store that sends its requests to `inner`, each under the limits and with the repeats that `settings` allow.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        root: Path,
        url: String,
        settings: RetrySettings,
    ) -> Store {
        let requests = Arc::<Requests>::default();
        let inner = Arc::new(ObservedStore::new(inner, requests.clone()));
        let policy = RetryPolicy::new(settings, None);
        Store::retrying(inner, root, url, policy, requests)
    }

    fn retrying(
        inner: Arc<dyn ObjectStore>,
        root: Path,
        url: String,
        policy: RetryPolicy,
        requests: Arc<Requests>,
    ) -> Store {
        let policy = Arc::new(policy);
        Store {
            store: Arc::new(RetryingStore::new(inner, Arc::clone(&policy))),
            root,
            url,
            health: Health { policy },
            requests,
            credentials: None,
            data_options: PutOptions::default(),
        }
    }

    /// Runs `work`, which needs the store, and ends it at the store's first permanent refusal: one that lasts until a
    /// person acts. Work that repeats its requests without end would never succeed. An error of `work` itself is
    /// returned unchanged, unless there was such a refusal.
    ///
    /// # Errors
    /// That refusal. `work` is dropped then.
    pub async fn unless_refused<T, E>(
        &self,
        needs: Needs,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, Refusal> {
        let mut refusals = self.health.policy.words.lasting(needs);
        let done = tokio::select! {
            biased;
            done = work => done,
            Some(refusal) = refusals.next() => return Err(refusal),
        };
        match refusals.seen().filter(|_| done.is_err()) {
            Some(refusal) => Err(refusal),
            None => Ok(done),
        }
    }

    /// An error for people, with the store's last message, if it came since `since` and the error does not contain it.
    pub fn explained(&self, since: Instant, error: impl Display) -> String {
        let error = error.to_string();
        match self.health.words_since(since) {
            Some(said) => said.added_to(&error),
            None => error,
        }
    }

    /// Where it lies, in the form that [`beside`](Store::beside) takes: the prefix in its bucket, or the folder.
    pub fn place(&self) -> String {
        match Location::parse(&self.url) {
            Ok(Location::File(folder)) => folder.display().to_string(),
            _ => self.root.to_string(),
        }
    }

    /// Another place of the same bucket: another prefix, or another folder.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn beside(&self, place: &str) -> Result<Store, OpenError> {
        let parsed = Location::parse(&self.url);
        if let Ok(Location::File(_)) = parsed {
            let folder = std::path::Path::new(place);
            let inner = ObservedStore::new(
                Arc::new(FileStore::open(folder, false)?),
                self.requests.clone(),
            );
            return Ok(Store {
                store: Arc::new(RetryingStore::new(
                    Arc::new(inner),
                    self.health.policy.clone(),
                )),
                url: format!("file://{place}"),
                root: Path::default(),
                ..self.clone()
            });
        }
        let root = Path::parse(place).map_err(|error| OpenError::InvalidUrl {
            url: place.to_owned(),
            why: error.to_string(),
        })?;
        let url = match parsed {
            Ok(Location::S3 { bucket, .. }) => Location::S3 {
                bucket,
                prefix: root.clone(),
            }
            .to_string(),
            _ => place.to_owned(),
        };
        Ok(Store {
            root,
            url,
            ..self.clone()
        })
    }

    /// Whether `other` is another place of the same bucket, and neither lies in the other.
    pub fn is_beside(&self, other: &Store) -> bool {
        let (here, there) = (Location::parse(&self.url), Location::parse(&other.url));
        match (here, there) {
            (Ok(Location::File(here)), Ok(Location::File(there))) => {
                !here.starts_with(&there) && !there.starts_with(&here)
            }
            (Ok(Location::S3 { bucket: here, .. }), Ok(Location::S3 { bucket: there, .. })) => {
                here == there && are_apart(&self.root, &other.root)
            }
            _ => are_apart(&self.root, &other.root),
        }
    }

    /// The full location of the object whose name in the volume is `name`, as in `packs/01/...`.
    pub fn path(&self, name: &str) -> Path {
        self.root.parts().chain(Path::from(name).parts()).collect()
    }
}

/// Checks whether `url` can name a store, and whether the environment and `options` contain any value with which no
/// store can be reached. Makes no request.
///
/// # Errors
/// The first problem to correct.
pub fn check(url: &str, options: &StoreOptions) -> Result<(), OpenError> {
    match Location::parse(url)? {
        Location::S3 { .. } => s3::check(options),
        Location::File(_) | Location::Memory(_) => Ok(()),
    }
}

/// Opens the store that `url` names. A folder must exist unless [`StoreOptions::create`] is set; a
/// bucket must exist in any case. For S3 this sends one request to the server (a listing of at most
/// one object), so that a wrong name, key or address is found here and not by the first write.
pub async fn open(url: &str, options: &StoreOptions) -> Result<Store, OpenError> {
    let location = Location::parse(url)?;
    let url = location.to_string();
    let retrying = |inner, root| Store::new(inner, root, url.clone(), RetrySettings::default());
    Ok(match location {
        Location::File(folder) => {
            let inner = FileStore::open(&folder, options.create)?;
            retrying(Arc::new(inner), Path::default())
        }
        Location::Memory(name) => retrying(memory::open(name.as_deref()), Path::default()),
        Location::S3 { bucket, prefix } => {
            let requests = Arc::<Requests>::default();
            let s3 = S3Store::connect(&bucket, options, requests.clone()).await?;
            let policy = RetryPolicy::new(RetrySettings::default(), s3.link());
            let store = Store {
                data_options: data_options(options),
                credentials: Some(s3.credentials()),
                ..Store::retrying(
                    Arc::new(s3.clone()),
                    prefix.clone(),
                    url.clone(),
                    policy,
                    requests,
                )
            };
            let policy = &store.health.policy;
            opening::asked(|| {
                policy.run(Kind::Read, Repeat::Freely, Body::Nothing, || {
                    s3.check(&prefix)
                })
            })
            .await
            .map_err(|source| OpenError::store(&url, &source))?;
            store
        }
    })
}

fn are_apart(here: &Path, there: &Path) -> bool {
    !here.prefix_matches(there) && !there.prefix_matches(here)
}

fn data_options(options: &StoreOptions) -> PutOptions {
    let mut put = PutOptions::default();
    if let Some(class) = &options.storage_class {
        let class = class.clone().into();
        put.attributes.insert(Attribute::StorageClass, class);
    }
    for (key, value) in &options.tags {
        put.tags.push(key, value);
    }
    put
}
