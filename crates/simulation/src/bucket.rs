//! The bucket: objects, and beside them the metadata, which are one atomic map here. (SlateDB's own tests, and those
//! of `meta`, prove that it makes such a map of objects.)

mod metadata;
mod objects;
mod states;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;

pub(crate) use metadata::MetaBucket;
pub(crate) use objects::Objects;

/// The object that stands for the metadata of a clone: they are gone with it.
pub(crate) const MANIFEST: &str = "meta/manifest";

/// A prefix in the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// That of the volume.
    #[default]
    Volume,
    /// That of its clone.
    Clone,
}

impl Prefix {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Prefix::Volume => "volume",
            Prefix::Clone => "clone",
        }
    }

    fn other(self) -> Prefix {
        match self {
            Prefix::Volume => Prefix::Clone,
            Prefix::Clone => Prefix::Volume,
        }
    }

    /// The prefix of a location, and the name below it.
    fn of(location: &str) -> (Prefix, &str) {
        let (first, name) = location.split_once('/').unwrap_or((location, ""));
        match first == Prefix::Clone.name() {
            true => (Prefix::Clone, name),
            false => (Prefix::Volume, name),
        }
    }
}

/// Content of the bucket when the world stops, seen from one of its volumes. Images share the parts that did not change.
#[derive(Clone, Default)]
pub(crate) struct BucketImage {
    /// The volume's objects, by their names below its prefix.
    pub(crate) objects: Arc<BTreeMap<String, Bytes>>,
    pub(crate) metadata: Arc<Metadata>,
    /// The volume's prefix.
    pub(crate) prefix: Prefix,
    /// The objects of the other volume, and its metadata.
    beside: (Arc<BTreeMap<String, Bytes>>, Arc<Metadata>),
}

impl BucketImage {
    /// Whether both images are equal.
    pub(crate) fn is_same(&self, other: &BucketImage) -> bool {
        Arc::ptr_eq(&self.objects, &other.objects)
            && Arc::ptr_eq(&self.metadata, &other.metadata)
            && self.is_same_beside(other)
    }

    /// Whether the other volume is equal in both images.
    pub(crate) fn is_same_beside(&self, other: &BucketImage) -> bool {
        Arc::ptr_eq(&self.beside.0, &other.beside.0) && Arc::ptr_eq(&self.beside.1, &other.beside.1)
    }

    /// The same bucket, seen from the other volume.
    pub(crate) fn seen_from_beside(&self) -> BucketImage {
        BucketImage {
            objects: self.beside.0.clone(),
            metadata: self.beside.1.clone(),
            prefix: self.prefix.other(),
            beside: (self.objects.clone(), self.metadata.clone()),
        }
    }

    /// The bucket after all objects of the other volume were deleted.
    pub(crate) fn alone(&self) -> BucketImage {
        BucketImage {
            beside: Default::default(),
            ..self.clone()
        }
    }

    /// Whether there is an object with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.objects.contains_key(name)
    }

    /// Number of notes on clones of the volume.
    pub(crate) fn notes(&self) -> usize {
        let names = self.objects.keys();
        names.filter(|name| name.starts_with("clones/")).count()
    }

    /// A pack of the volume: its own, or one of its source.
    pub(crate) fn pack(&self, name: &str) -> Option<&Bytes> {
        let is_clone = self.prefix == Prefix::Clone;
        let at_the_source = || self.beside.0.get(name).filter(|_| is_clone);
        self.objects.get(name).or_else(at_the_source)
    }

    fn objects_at(&self, prefix: Prefix) -> &BTreeMap<String, Bytes> {
        match self.prefix == prefix {
            true => &self.objects,
            false => &self.beside.0,
        }
    }

    fn metadata_at(&self, prefix: Prefix) -> &Metadata {
        match self.prefix == prefix {
            true => &self.metadata,
            false => &self.beside.1,
        }
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
    /// Number of changes.
    pub(crate) changes: u64,
}

impl Metadata {
    /// Takes the metadata from every opener.
    fn fence(&mut self) {
        self.former = Some(Arc::new(self.entries.clone()));
        self.epoch += 1;
        self.changes += 1;
    }
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

    fn put(&mut self, location: &Path, bytes: Bytes) {
        let (prefix, name) = Prefix::of(location.as_ref());
        self.objects(prefix).insert(name.to_owned(), bytes);
    }

    fn get(&self, location: &Path) -> Option<&Bytes> {
        let (prefix, name) = Prefix::of(location.as_ref());
        self.image.objects_at(prefix).get(name)
    }

    fn delete(&mut self, location: &Path) {
        let (prefix, name) = Prefix::of(location.as_ref());
        if self.objects(prefix).remove(name).is_some() && name == MANIFEST {
            *self.metadata(prefix) = Metadata::default();
        }
    }

    fn objects(&mut self, prefix: Prefix) -> &mut BTreeMap<String, Bytes> {
        Arc::make_mut(match self.image.prefix == prefix {
            true => &mut self.image.objects,
            false => &mut self.image.beside.0,
        })
    }

    fn metadata(&mut self, prefix: Prefix) -> &mut Metadata {
        Arc::make_mut(match self.image.prefix == prefix {
            true => &mut self.image.metadata,
            false => &mut self.image.beside.1,
        })
    }
}

/// Error of a store that does not answer.
const NO_ANSWER: &str = "the simulated bucket does not answer";
