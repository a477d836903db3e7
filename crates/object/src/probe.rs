//! Proves that a store keeps what a volume relies on.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};

use crate::error::chain;
use crate::{Fault, Store};

/// A store is not fit for a volume, and why.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A request failed that should have worked.
    #[error("{url} could not {step}: {} ({detail})", fault.way_out())]
    Failed {
        /// The store, without secrets.
        url: String,
        /// What was tried.
        step: &'static str,
        /// What stands in the way.
        fault: Fault,
        /// The store's own words.
        detail: String,
    },
    /// A condition was ignored: two gateways could write one volume and destroy it.
    #[error(
        "{url} ignores conditional writes ({condition}), without which two gateways could write \
         one volume at once and destroy it: use a store that has them (AWS S3, MinIO, versitygw; \
         not Garage)"
    )]
    ConditionIgnored {
        /// The store, without secrets.
        url: String,
        /// The condition that had no effect.
        condition: &'static str,
    },
    /// A request was answered, but wrongly.
    #[error("{url} gave a wrong answer when asked to {step}: it is not fit for a volume")]
    WrongAnswer {
        /// The store, without secrets.
        url: String,
        /// What was tried.
        step: &'static str,
    },
}

/// Proves, under a temporary name below the volume's prefix, that the store can put, get, get a
/// range, list and delete, that it refuses a second create (`If-None-Match: *`) and a stale update
/// (`If-Match`), and accepts an update that is not stale. About ten small requests. The
/// temporary object is deleted again, unless the store stops answering in between.
pub async fn probe(store: &Store) -> Result<(), ProbeError> {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let name = format!("probe/{nanos:x}-{:x}", std::process::id());
    let probe = Probe {
        store,
        location: store.path(&name),
    };
    let result = probe.run().await;
    if result.is_err() {
        // What went wrong before is what people must hear of.
        let _ = store.store.delete(&probe.location).await;
    }
    result
}

struct Probe<'a> {
    store: &'a Store,
    location: Path,
}

const FIRST: &[u8] = b"forebay probes the store: first";
const SECOND: &[u8] = b"forebay probes the store: second";

impl Probe<'_> {
    async fn run(&self) -> Result<(), ProbeError> {
        let store = &self.store.store;
        let first = self
            .put(FIRST, PutMode::Create)
            .await
            .map_err(|error| self.failed("create an object", &error))?;
        self.refuse_second_create().await?;
        self.read().await?;
        let second = self
            .put(SECOND, PutMode::Update(first.clone()))
            .await
            .map_err(|error| self.failed("update an object (If-Match)", &error))?;
        if second.e_tag == first.e_tag {
            return Err(self.wrong("give every version of an object an ETag of its own"));
        }
        self.refuse_stale_update(first).await?;
        if self.get(None, "get an updated object").await? != SECOND {
            return Err(self.wrong("get an updated object"));
        }
        self.put(FIRST, PutMode::Overwrite)
            .await
            .map_err(|error| self.failed("overwrite an object", &error))?;
        store
            .delete(&self.location)
            .await
            .map_err(|error| self.failed("delete an object", &error))?;
        match store.head(&self.location).await {
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("look for a deleted object", &error)),
            Ok(_) => Err(self.wrong("delete an object")),
        }
    }

    async fn refuse_second_create(&self) -> Result<(), ProbeError> {
        match self.put(SECOND, PutMode::Create).await {
            Err(Error::AlreadyExists { .. }) => Ok(()),
            Ok(_) => Err(self.ignored("If-None-Match: *")),
            Err(error) => Err(self.failed("refuse a second create (If-None-Match)", &error)),
        }
    }

    async fn refuse_stale_update(&self, stale: UpdateVersion) -> Result<(), ProbeError> {
        match self.put(FIRST, PutMode::Update(stale)).await {
            Err(Error::Precondition { .. }) => Ok(()),
            Ok(_) => Err(self.ignored("If-Match")),
            Err(error) => Err(self.failed("refuse a stale update (If-Match)", &error)),
        }
    }

    async fn read(&self) -> Result<(), ProbeError> {
        if self.get(None, "get an object").await? != FIRST {
            return Err(self.wrong("get an object"));
        }
        let (step, range) = ("get a range of an object", 8..14_u64);
        if self.get(Some(range.into()), step).await? != FIRST[8..14] {
            return Err(self.wrong(step));
        }
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
            .any(|object| object.location == self.location && object.size == FIRST.len() as u64);
        if found {
            Ok(())
        } else {
            Err(self.wrong("list objects"))
        }
    }

    async fn put(&self, bytes: &'static [u8], mode: PutMode) -> Result<UpdateVersion, Error> {
        let payload = PutPayload::from_static(bytes);
        let result = self
            .store
            .store
            .put_opts(&self.location, payload, mode.into())
            .await?;
        Ok(result.into())
    }

    async fn get(&self, range: Option<GetRange>, step: &'static str) -> Result<Bytes, ProbeError> {
        let options = GetOptions::new().with_range(range);
        let got = self.store.store.get_opts(&self.location, options).await;
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
            detail: chain(error),
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
