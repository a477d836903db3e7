//! Rooms in memory for tests of engines: a bucket and metadata, and no volume over them.

use std::sync::Arc;

use forebay_cache::Cache;
use forebay_environment::{Compute, Environment};
use forebay_meta::record::{BlockMap, Content, FrameAddress, InodeRecord, PackRecord, VolumeState};
use forebay_meta::{Batch, Catalog, Key, MemoryStore, Overlay};
use forebay_object::faults::{Faults, FaultyStore};
use forebay_object::{RetrySettings, Store};
use forebay_pack::{Compression, PackKeys, PackWriter};
use forebay_pack_store::PackStore;
use forebay_quota::{Account, Accounts, Amount, Charge, UNLIMITED};
use forebay_reduction::dedup::Sharing;
use forebay_types::{BlockKey, ByteRange, Epoch, Inode, Lsn, PackId, VolumeId};
use forebay_vfs::Troubles;
use object_store::memory::InMemory;
use object_store::path::Path;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::FsConfig;
use crate::damages::Damages;
use crate::publisher::{Committer, Observer, Progress, address};
use crate::state::{
    EagerUploads, Effort, Foreground, Memory, MemoryParts, Node, NodeTable, PackBuffers, Signals,
    StoreTrouble, most,
};

/// Clients that do nothing.
pub(crate) struct Idle;

impl Foreground for Idle {
    fn effort(&self) -> Effort {
        Effort {
            uploads: usize::MAX,
            eager: true,
            background: true,
        }
    }
}

/// The rooms of one volume that engines use, without the volume.
pub(crate) struct World {
    pub(crate) config: Arc<FsConfig>,
    pub(crate) environment: Environment,
    /// Faults of the store.
    pub(crate) faults: Arc<Faults>,
    pub(crate) store: Store,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) eager: Arc<EagerUploads>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) damages: Arc<Damages>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) trouble: Arc<StoreTrouble>,
    pub(crate) progress: Arc<Progress>,
    _folder: TempDir,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut FsConfig)) -> World {
        let folder = tempfile::tempdir().unwrap();
        let mut config = FsConfig::new(folder.path().to_owned());
        change(&mut config);
        let config = Arc::new(config);
        // In place: a paused clock advances while a thread computes.
        let environment = Environment {
            compute: Compute::InPlace,
            ..Environment::real(folder.path().to_owned())
        };
        let faults = Arc::new(Faults::default());
        let bucket = FaultyStore::new(Arc::new(InMemory::new()), faults.clone());
        let url = "memory://".to_owned();
        let retry = RetrySettings::default();
        let store = Store::new(Arc::new(bucket), Path::default(), url, retry);
        let packs = PackStore::new(
            store.store.clone(),
            store.root.clone(),
            PackKeys::new(VolumeId([1; 16]), &[2; 32]),
            4,
            4,
            environment.random.clone(),
        );
        let signals = Arc::new(Signals::new());
        // As if clients were served.
        signals.begin_serving();
        let nodes = Arc::new(NodeTable::new(config.node_limit));
        let eager = Arc::new(EagerUploads::new(config.pack_bytes));
        let memory = Memory::new(MemoryParts {
            limit: config.memory_limit,
            reserve: config.memory_reserve(),
            room_wait: config.room_wait,
            nodes,
            eager: eager.clone(),
            pack_buffers: PackBuffers::new(most(&config)),
            signals: signals.clone(),
            troubles: Arc::<Troubles>::default(),
        });
        let state = VolumeState {
            published: Lsn(0),
            epoch: Epoch(1),
            gateway: [3; 16],
            next_inode: 2,
            inode_lease: Some(0),
            next_pack: 1,
            used_bytes: 0,
            used_inodes: 1,
            charged_bytes: Some(0),
            history: Default::default(),
            trash: Default::default(),
        };
        World {
            sharing: Arc::new(Sharing::new(config.dedup)),
            config,
            environment,
            faults,
            trouble: Arc::new(StoreTrouble::new(store.health.clone())),
            store,
            catalog: Arc::new(Catalog::new(
                Arc::new(Overlay::new()),
                Arc::new(MemoryStore::new()),
            )),
            packs: Arc::new(packs),
            eager,
            memory: Arc::new(memory),
            damages: Arc::new(Damages::default()),
            progress: Arc::new(Progress::new(state, signals.clone())),
            signals,
            _folder: folder,
        }
    }

    /// The accounts of an empty volume, without limits.
    pub(crate) async fn accounts(&self) -> Accounts {
        let unlimited = Amount {
            bytes: UNLIMITED,
            files: UNLIMITED,
        };
        let state = self.progress.state();
        Accounts::load(&self.catalog, &state, unlimited)
            .await
            .unwrap()
    }

    pub(crate) fn committer(&self, observers: Vec<Arc<dyn Observer>>) -> Arc<Committer> {
        Arc::new(Committer {
            catalog: self.catalog.clone(),
            progress: self.progress.clone(),
            sharing: self.sharing.clone(),
            signals: self.signals.clone(),
            trouble: self.trouble.clone(),
            random: self.environment.random.clone(),
            folder: "folder".to_owned(),
            observers,
        })
    }

    /// Puts a pack with one frame for each of these blocks into the bucket.
    pub(crate) async fn put_pack(
        &self,
        pack: PackId,
        blocks: &[(BlockKey, Vec<u8>)],
    ) -> Vec<FrameAddress> {
        let mut writer = PackWriter::new(pack, self.packs.keys(), Compression::Off);
        for (block, bytes) in blocks {
            let range = ByteRange::new(0, bytes.len() as u64);
            writer.push(*block, range, std::iter::once(&bytes[..]));
        }
        let finished = writer.finish();
        self.packs.put(pack, finished.bytes).await.unwrap();
        finished
            .frames
            .iter()
            .map(|entry| address(&entry.frame))
            .collect()
    }

    /// Bytes of a pack's object.
    pub(crate) async fn pack_bytes(&self, pack: PackId) -> u64 {
        let (mut list, mut len) = (self.packs.list(), 0);
        while let Some(found) = futures_util::StreamExt::next(&mut list).await {
            let (found, object) = found.unwrap();
            if found == pack {
                len = object.size;
            }
        }
        len
    }

    /// Publishes a pack with these frames; the blocks of the `live` ones refer to them.
    pub(crate) async fn publish_pack(
        &self,
        pack: PackId,
        frames: &[(BlockKey, FrameAddress)],
        live: impl Fn(BlockKey) -> bool,
    ) -> PackRecord {
        let mut batch = Batch::new();
        let mut record = PackRecord {
            bytes: self.pack_bytes(pack).await,
            raw_bytes: 0,
            live_bytes: 0,
            frames: frames.len() as u32,
            born: Default::default(),
        };
        for (block, frame) in frames {
            record.raw_bytes += u64::from(frame.raw_len);
            if live(*block) {
                record.live_bytes += u64::from(frame.raw_len);
                let mut map = BlockMap::new();
                map.insert(frame.raw_range(), *frame).unwrap();
                batch.put(&Key::Block(*block), &map);
            }
        }
        batch.put(&Key::Pack(pack), &record);
        self.catalog.store().commit(&batch).await.unwrap();
        record
    }

    /// A file in memory, without a record in the metadata.
    pub(crate) fn file(&self, inode: Inode) -> Arc<Node> {
        self.object(inode, Content::Regular)
    }

    /// An object in memory, without a record in the metadata.
    pub(crate) fn object(&self, inode: Inode, content: Content) -> Arc<Node> {
        let record = InodeRecord {
            content,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            used: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            create_verifier: None,
            tree: None,
            truncated: Default::default(),
        };
        let unlimited = Amount {
            bytes: UNLIMITED,
            files: UNLIMITED,
        };
        let account = Arc::new(Account::new(None, Amount::default(), unlimited));
        let charge = Charge::counted(account, None, Amount::default());
        let cache: Arc<Cache> = self.memory.cache.clone();
        Node::new(inode, record, false, cache, charge)
    }
}

/// Records the calls to an observer.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) events: Mutex<Vec<String>>,
}

impl Observer for Recorder {
    fn before_commit(&self, batch: &mut Batch, dead: &std::collections::BTreeSet<PackId>) {
        let changes = batch.len();
        self.events
            .lock()
            .push(format!("before {changes} changes, {} dead", dead.len()));
    }

    fn committed(
        &self,
        changes: &[crate::publisher::AccountChange],
        _dead: &std::collections::BTreeSet<PackId>,
    ) {
        self.events
            .lock()
            .push(format!("committed {} accounts", changes.len()));
    }

    fn put_in_doubt(&self, _pack: PackId) {
        self.events.lock().push("in doubt".to_owned());
    }

    fn pack_deleted(&self, pack: PackId) {
        self.events.lock().push(format!("deleted {pack}"));
    }
}
