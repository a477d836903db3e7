//! The world: a bucket, machines, a clock and random numbers, all in memory and all decided by a seed.
//!
//! Everything that a volume does outside its memory is a [`Step`] of its world. At each step the observer may take an
//! [image](WorldImage) from which another world continues: the state that a crash at that moment leaves.

use std::sync::Arc;

use forebay_fs::{Clock, Compute, Environment, Randomness};
use forebay_object::{RetrySettings, Store};
use forebay_vfs::Timestamp;
use object_store::path::Path;
use parking_lot::Mutex;

use crate::bucket::{Bucket, BucketImage, MetaBucket, Objects, Prefix, StoreFaults};
use crate::machine::{DiskFaults, Folder, Machine, MachineImage};
use crate::random::Random;

/// An action of a volume outside its memory. Actions that change something have two steps, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each name says it")]
pub(crate) enum Step {
    /// A record was copied into the log: the one step that is no I/O.
    Appended,
    Flush,
    Flushed,
    WriteBack,
    WroteBack,
    CreateFile,
    CreatedFile,
    RenameFile,
    RenamedFile,
    RemoveFile,
    RemovedFile,
    /// A read of the log while it is open.
    ReadLog,
    LogRead,
    ReplaceState,
    ReplacedState,
    PutObject,
    PutDone,
    DeleteObject,
    DeleteDone,
    GetObject,
    ListObjects,
    CommitMetadata,
    CommittedMetadata,
    OpenedMetadata,
    ReplaceMetadata,
    ReplacedMetadata,
    /// A quiet moment, at the end of a life.
    Rest,
}

/// Everything that exists when the world stops.
#[derive(Clone)]
pub(crate) struct WorldImage {
    /// The machines; the running gateway's is the last one.
    pub(crate) machines: Vec<MachineImage>,
    /// The bucket.
    pub(crate) bucket: BucketImage,
    clock_ns: u64,
    random: Random,
}

/// Called at every step.
pub(crate) type Observer = Arc<dyn Fn(Step) + Send + Sync>;

struct Contents {
    clock_ns: u64,
    random: Random,
    machines: Vec<Machine>,
    bucket: Bucket,
    observer: Option<Observer>,
    /// Percentage of requests to the bucket that yield to other tasks before they are answered.
    delays: u64,
}

/// Takes a world apart when it is dropped: its observer and the hands of its logs refer to the world themselves, and
/// would keep it in memory for ever.
#[must_use]
pub(crate) struct End(World);

impl Drop for End {
    fn drop(&mut self) {
        let mut contents = self.0.0.lock();
        let observer = contents.observer.take();
        let hands: Vec<_> = contents
            .machines
            .iter_mut()
            .map(|machine| machine.hand.take())
            .collect();
        // They look at the world while they are dropped.
        drop(contents);
        drop((observer, hands));
    }
}

/// A world in which volumes can be opened. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Contents>>);

impl WorldImage {
    /// An empty bucket and no machine.
    pub(crate) fn empty(seed: u64) -> WorldImage {
        WorldImage {
            machines: Vec::new(),
            bucket: BucketImage::default(),
            clock_ns: 1_700_000_000_000_000_000,
            random: Random::of(seed, 4),
        }
    }

    /// The world in which the clone is the volume, without the machines of its source.
    pub(crate) fn seen_from_clone(&self) -> WorldImage {
        WorldImage {
            machines: Vec::new(),
            bucket: self.bucket.seen_from_beside(),
            ..self.clone()
        }
    }

    /// The world after `later`, which is seen from the clone: with the machines of this one.
    pub(crate) fn after(&self, later: &WorldImage) -> WorldImage {
        WorldImage {
            machines: self.machines.clone(),
            bucket: later.bucket.seen_from_beside(),
            ..later.clone()
        }
    }
}

impl World {
    /// A world that continues from an image; `life` gives it other random numbers than the world that the image was
    /// taken of.
    pub(crate) fn of(image: &WorldImage, life: u64) -> World {
        let mut random = image.random.clone();
        World(Arc::new(Mutex::new(Contents {
            clock_ns: image.clock_ns + 1_000_000_000,
            random: Random::of(random.number(), life),
            machines: image.machines.iter().map(Machine::of).collect(),
            bucket: Bucket::of(&image.bucket),
            observer: None,
            delays: 0,
        })))
    }

    pub(crate) fn image(&self) -> WorldImage {
        let mut contents = self.0.lock();
        WorldImage {
            machines: contents.machines.iter_mut().map(Machine::image).collect(),
            bucket: contents.bucket.image(),
            clock_ns: contents.clock_ns,
            random: contents.random.clone(),
        }
    }

    /// Adds a new machine; returns its number.
    pub(crate) fn add_machine(&self) -> usize {
        let mut contents = self.0.lock();
        let number = contents.machines.len();
        let image = MachineImage::new(1000 * number as u64);
        contents.machines.push(Machine::of(&image));
        number
    }

    pub(crate) fn observe(&self, observer: Option<Observer>) {
        self.0.lock().observer = observer;
    }

    /// This world ends when the returned value is dropped.
    pub(crate) fn ends_here(&self) -> End {
        End(self.clone())
    }

    pub(crate) fn set_delays(&self, percent: u64) {
        self.0.lock().delays = percent;
    }

    /// Calls the observer, without holding the lock that it needs to take an image.
    pub(crate) fn step(&self, step: Step) {
        let observer = self.0.lock().observer.clone();
        if let Some(observer) = observer {
            observer(step);
        }
    }

    pub(crate) fn machine<T>(&self, machine: usize, look: impl FnOnce(&mut Machine) -> T) -> T {
        look(&mut self.0.lock().machines[machine])
    }

    pub(crate) fn bucket<T>(&self, look: impl FnOnce(&mut Bucket) -> T) -> T {
        look(&mut self.0.lock().bucket)
    }

    pub(crate) fn set_store_faults(&self, faults: StoreFaults) {
        self.0.lock().bucket.faults = faults;
    }

    pub(crate) fn set_disk_faults(&self, machine: usize, faults: DiskFaults) {
        self.0.lock().machines[machine].faults = faults;
    }

    /// A random number.
    pub(crate) fn number(&self) -> u64 {
        self.0.lock().random.number()
    }

    /// Advances the clock by one tick: later actions have another time than earlier ones.
    pub(crate) fn tick(&self) -> Timestamp {
        let mut contents = self.0.lock();
        contents.clock_ns += 1_000_003;
        time(contents.clock_ns)
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        time(self.0.lock().clock_ns)
    }

    /// Moves the clock.
    pub(crate) fn pass(&self, ms: u64) {
        self.0.lock().clock_ns += ms * 1_000_000;
    }

    /// Sometimes yields to other tasks, as a request to the bucket does.
    pub(crate) async fn travel(&self) {
        let turns = {
            let mut contents = self.0.lock();
            let delays = contents.delays;
            if delays > 0 && contents.random.percent(delays) {
                1 + contents.random.below(3)
            } else {
                0
            }
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// The environment of a volume on a machine of this world.
    pub(crate) fn environment(&self, machine: usize) -> Environment {
        Environment {
            clock: Arc::new(WorldClock(self.clone())),
            random: Arc::new(WorldRandom(self.clone())),
            local: Arc::new(Folder {
                world: self.clone(),
                machine,
            }),
            metadata: Arc::new(MetaBucket(self.clone())),
            compute: Compute::InPlace,
        }
    }

    /// The place of the other volume in the bucket.
    pub(crate) fn beside(&self) -> Store {
        let prefix = self.bucket(|bucket| bucket.image().seen_from_beside().prefix);
        self.store_at(prefix)
    }

    /// The bucket as a store of objects.
    pub(crate) fn store(&self) -> Store {
        let prefix = self.bucket(|bucket| bucket.image().prefix);
        self.store_at(prefix)
    }

    fn store_at(&self, prefix: Prefix) -> Store {
        let retry = RetrySettings {
            seed: Some(self.number()),
            ..RetrySettings::default()
        };
        let objects = Arc::new(Objects(self.clone()));
        let (root, url) = (Path::from(prefix.name()), prefix.name().to_owned());
        Store::new(objects, root, url, retry)
    }
}

fn time(ns: u64) -> Timestamp {
    Timestamp {
        seconds: (ns / 1_000_000_000) as i64,
        nanos: (ns % 1_000_000_000) as u32,
    }
}

struct WorldClock(World);

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        time(self.0.0.lock().clock_ns)
    }
}

struct WorldRandom(World);

impl Randomness for WorldRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.0.lock().random.fill(bytes);
    }
}
