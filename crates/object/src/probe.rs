//! Proves that a store keeps the guarantees that a volume relies on.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};

use crate::sort::{way_out, words};
use crate::{Fault, Store};

/// Why a store is not fit for a volume.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A request failed that should have succeeded.
    #[error("{url} could not {step}: {advice} ({detail})")]
    Failed {
        /// The store, without secrets.
        url: String,
        /// The step that was tried.
        step: &'static str,
        /// The class of the problem.
        fault: Fault,
        /// The remedy.
        advice: String,
        /// The store's own message.
        detail: String,
    },
    /// A condition was ignored: two gateways could write one volume and destroy it.
    #[error(
        "{url} ignores conditional writes ({condition}); without them two gateways could write \
         one volume at once and destroy it: use a store that supports them (AWS S3, MinIO, \
         versitygw; not Garage)"
    )]
    ConditionIgnored {
        /// The store, without secrets.
        url: String,
        /// The condition that had no effect.
        condition: &'static str,
    },
    /// The answer to a request was wrong.
    #[error("{url} gave a wrong answer to the request to {step}: it cannot hold a volume")]
    WrongAnswer {
        /// The store, without secrets.
        url: String,
        /// The step that was tried.
        step: &'static str,
    },
}

/// Proves, under temporary names below the volume's prefix, that the store can put, get, get a range, list and delete,
/// that it refuses a second create (`If-None-Match: *`) and a stale update (`If-Match`), and accepts an update that is
/// not stale. About fifteen small requests, in five rounds: those of a round are sent together, because of stores with
/// a long round trip. The temporary objects are deleted again, unless the store stops answering meanwhile.
pub async fn probe(store: &Store) -> Result<(), ProbeError> {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let name = format!("probe/{nanos:x}-{:x}", std::process::id());
    let probe = Probe {
        store,
        read: store.path(&format!("{name}-read")),
        updated: store.path(&format!("{name}-updated")),
    };
    let result = probe.run().await;
    if result.is_err() {
        // The error is reported from the step that failed, not from these deletes.
        let (read, updated) = (
            store.store.delete(&probe.read),
            store.store.delete(&probe.updated),
        );
        let _ = tokio::join!(read, updated);
    }
    result
}

struct Probe<'a> {
    store: &'a Store,
    /// Created, read and overwritten.
    read: Path,
    /// Created and updated.
    updated: Path,
}

const FIRST: &[u8] = b"forebay probes the store: first";
const SECOND: &[u8] = b"forebay probes the store: second";

impl Probe<'_> {
    async fn run(&self) -> Result<(), ProbeError> {
        let (read, first) = tokio::join!(self.create(&self.read), self.create(&self.updated));
        read?;
        let first = first?;

        let (refused, got, range, listed, second) = tokio::join!(
            self.refuse_second_create(),
            self.get(&self.read, None, "get an object"),
            self.get_range(),
            self.list(),
            self.update(first.clone()),
        );
        // An ignored condition changes the results of the other steps.
        refused?;
        if got? != FIRST {
            return Err(self.wrong("get an object"));
        }
        range?;
        listed?;
        let second = second?;
        if second.e_tag == first.e_tag {
            return Err(self.wrong("give every version of an object an ETag of its own"));
        }

        let (refused, got, overwritten) = tokio::join!(
            self.refuse_stale_update(first),
            self.get(&self.updated, None, "get an updated object"),
            self.put(&self.read, SECOND, PutMode::Overwrite),
        );
        refused?;
        if got? != SECOND {
            return Err(self.wrong("get an updated object"));
        }
        overwritten.map_err(|error| self.failed("overwrite an object", &error))?;

        let (read, updated) = tokio::join!(self.delete(&self.read), self.delete(&self.updated));
        read.and(updated)?;
        let (read, updated) = tokio::join!(self.is_gone(&self.read), self.is_gone(&self.updated));
        read.and(updated)
    }

    async fn create(&self, location: &Path) -> Result<UpdateVersion, ProbeError> {
        let created = self.put(location, FIRST, PutMode::Create).await;
        created.map_err(|error| self.failed("create an object", &error))
    }

    async fn update(&self, first: UpdateVersion) -> Result<UpdateVersion, ProbeError> {
        let updated = self
            .put(&self.updated, SECOND, PutMode::Update(first))
            .await;
        updated.map_err(|error| self.failed("update an object (If-Match)", &error))
    }

    async fn delete(&self, location: &Path) -> Result<(), ProbeError> {
        let deleted = self.store.store.delete(location).await;
        deleted.map_err(|error| self.failed("delete an object", &error))
    }

    async fn is_gone(&self, location: &Path) -> Result<(), ProbeError> {
        match self.store.store.head(location).await {
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("look for a deleted object", &error)),
            Ok(_) => Err(self.wrong("delete an object")),
        }
    }

    async fn refuse_second_create(&self) -> Result<(), ProbeError> {
        match self.put(&self.read, SECOND, PutMode::Create).await {
            Err(Error::AlreadyExists { .. }) => Ok(()),
            Ok(_) => Err(self.ignored("If-None-Match: *")),
            Err(error) => Err(self.failed("refuse a second create (If-None-Match)", &error)),
        }
    }

    async fn refuse_stale_update(&self, stale: UpdateVersion) -> Result<(), ProbeError> {
        match self.put(&self.updated, FIRST, PutMode::Update(stale)).await {
            Err(Error::Precondition { .. }) => Ok(()),
            Ok(_) => Err(self.ignored("If-Match")),
            Err(error) => Err(self.failed("refuse a stale update (If-Match)", &error)),
        }
    }

    async fn get_range(&self) -> Result<(), ProbeError> {
        let (step, range) = ("get a range of an object", 8..14_u64);
        if self.get(&self.read, Some(range.into()), step).await? != FIRST[8..14] {
            return Err(self.wrong(step));
        }
        Ok(())
    }

    async fn list(&self) -> Result<(), ProbeError> {
        let parent = self.store.path("probe");
        let listed: Vec<_> = self
            .store
            .store
            .list(Some(&parent))
            .try_collect()
            .await
            .map_err(|error| self.failed("list objects", &error))?;
        let found = listed
            .iter()
            .any(|object| object.location == self.read && object.size == FIRST.len() as u64);
        if found {
            Ok(())
        } else {
            Err(self.wrong("list objects"))
        }
    }

    async fn put(
        &self,
        location: &Path,
        bytes: &'static [u8],
        mode: PutMode,
    ) -> Result<UpdateVersion, Error> {
        let payload = PutPayload::from_static(bytes);
        let store = &self.store.store;
        let result = store.put_opts(location, payload, mode.into()).await?;
        Ok(result.into())
    }

    async fn get(
        &self,
        location: &Path,
        range: Option<GetRange>,
        step: &'static str,
    ) -> Result<Bytes, ProbeError> {
        let options = GetOptions::new().with_range(range);
        let got = self.store.store.get_opts(location, options).await;
        match got {
            Ok(result) => result.bytes().await,
            Err(error) => Err(error),
        }
        .map_err(|error| self.failed(step, &error))
    }

    fn failed(&self, step: &'static str, error: &Error) -> ProbeError {
        ProbeError::Failed {
            url: self.store.url.clone(),
            step,
            fault: Fault::of(error),
            advice: way_out(error),
            detail: words(error),
        }
    }

    fn wrong(&self, step: &'static str) -> ProbeError {
        ProbeError::WrongAnswer {
            url: self.store.url.clone(),
            step,
        }
    }

    fn ignored(&self, condition: &'static str) -> ProbeError {
        ProbeError::ConditionIgnored {
            url: self.store.url.clone(),
            condition,
        }
    }
}
