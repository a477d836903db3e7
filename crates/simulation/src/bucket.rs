//! The bucket: objects, and beside them the metadata, which are one atomic map here (that SlateDB
//! makes one of objects is proven by its own tests and by those of `meta`).

mod metadata;
mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use metadata::MetaBucket;
pub(crate) use objects::Objects;

/// What is in the bucket when the world stops. Images share what did not change.
#[derive(Clone, Default)]
pub(crate) struct BucketImage {
    pub(crate) objects: Arc<BTreeMap<String, Bytes>>,
    pub(crate) metadata: Arc<Metadata>,
}

impl BucketImage {
    /// Whether nothing differs.
    pub(crate) fn is_same(&self, other: &BucketImage) -> bool {
        Arc::ptr_eq(&self.objects, &other.objects) && Arc::ptr_eq(&self.metadata, &other.metadata)
    }
}

/// The metadata of the volume.
#[derive(Clone, Default)]
pub(crate) struct Metadata {
    pub(crate) entries: BTreeMap<Bytes, Bytes>,
    /// How often they were opened; the last who did may write.
    pub(crate) epoch: u64,
}

/// What the store does wrong from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Nothing is answered but with an error, until this is taken back.
    pub outage: bool,
    /// Requests that fail and change nothing.
    pub failing: u32,
    /// Changes that are made although they are answered with an error.
    pub ghosts: u32,
}

/// The bucket of a running world.
#[derive(Default)]
pub(crate) struct Bucket {
    image: BucketImage,
    pub(crate) faults: StoreFaults,
    /// Counts of faults that were met.
    pub(crate) failed: u64,
    pub(crate) ghosts: u64,
}

/// How a request ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Works,
    Fails,
    /// It is done, and answered with an error.
    Ghost,
}

impl Bucket {
    pub(crate) fn of(image: &BucketImage) -> Bucket {
        Bucket {
            image: image.clone(),
            ..Bucket::default()
        }
    }

    pub(crate) fn image(&self) -> BucketImage {
        self.image.clone()
    }

    fn fate(&mut self, changes: bool) -> Fate {
        let faults = &mut self.faults;
        if faults.outage {
            self.failed += 1;
            Fate::Fails
        } else if faults.failing > 0 {
            faults.failing -= 1;
            self.failed += 1;
            Fate::Fails
        } else if faults.ghosts > 0 && changes {
            faults.ghosts -= 1;
            self.ghosts += 1;
            Fate::Ghost
        } else {
            Fate::Works
        }
    }

    fn objects(&mut self) -> &mut BTreeMap<String, Bytes> {
        Arc::make_mut(&mut self.image.objects)
    }

    fn metadata(&mut self) -> &mut Metadata {
        Arc::make_mut(&mut self.image.metadata)
    }
}

/// What a store says when it does not answer.
const NO_ANSWER: &str = "the simulated bucket does not answer";
