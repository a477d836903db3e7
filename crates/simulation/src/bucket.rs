//! The bucket: objects, and beside them the metadata, which are one atomic map here. (SlateDB's own tests, and those
//! of `meta`, prove that it makes such a map of objects.)

mod metadata;
mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use metadata::MetaBucket;
pub(crate) use objects::Objects;

/// Content of the bucket when the world stops. Images share the parts that did not change.
#[derive(Clone, Default)]
pub(crate) struct BucketImage {
    pub(crate) objects: Arc<BTreeMap<String, Bytes>>,
    pub(crate) metadata: Arc<Metadata>,
}

impl BucketImage {
    /// Whether both images are equal.
    pub(crate) fn is_same(&self, other: &BucketImage) -> bool {
        Arc::ptr_eq(&self.objects, &other.objects) && Arc::ptr_eq(&self.metadata, &other.metadata)
    }
}

/// The metadata of the volume.
#[derive(Clone, Default)]
pub(crate) struct Metadata {
    pub(crate) entries: BTreeMap<Bytes, Bytes>,
    /// Earlier states that are kept, by their names.
    pub(crate) kept: BTreeMap<String, BTreeMap<Bytes, Bytes>>,
    /// What the last opener but one reads: as in SlateDB, which keeps its manifest, the state when it was fenced.
    pub(crate) former: Option<Arc<BTreeMap<Bytes, Bytes>>>,
    /// Number of openings for writing; only the last opener may write.
    pub(crate) epoch: u64,
}

/// Faults of the store from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Every request is answered with an error, until this is reset.
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
    /// Numbers of faults that occurred.
    pub(crate) failed: u64,
    pub(crate) ghosts: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Works,
    Fails,
    /// Executed, and answered with an error.
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

/// Error of a store that does not answer.
const NO_ANSWER: &str = "the simulated bucket does not answer";
