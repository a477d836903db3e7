//! The objects that the store consists of, each checked as a whole.
//!
//! A reader of the metadata reads only the parts that it needs. A filter that no lookup used, a note of a merge that
//! was not finished, the table that this merge has written: such an object can stay damaged for a long time before a
//! read finds it, and the table becomes part of the state as soon as the next gateway finishes the merge.
//!
//! ```text
//!   manifests, notes on merges, marks of the collector     whole objects, each with a checksum of ours or sealed
//!   tables that the newest manifest or a merge names       blocks, filter, index, statistics: each ends in its CRC32,
//!                                                          and so does what the end of the table says of them
//!  all other tables                                       never read again
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use slatedb::admin::AdminBuilder;
use slatedb::manifest::SsTableHandle;
use slatedb::{ErrorKind, SstReader};

use super::{Sealing, verified, within};
use crate::error::StoreError;

/// A section of a table ends in a CRC32 of the bytes before it.
const CRC_BYTES: usize = 4;
/// Bytes at the end of a table: the offset of its description, and the version of its layout.
const FOOTER_BYTES: usize = 8 + 2;
/// Known versions of a table's layout.
const LAYOUTS: [u16; 2] = [1, 2];

/// Checks the objects of a store in the bucket. It writes none.
pub struct SlateObjects {
    store: Arc<dyn ObjectStore>,
    path: Path,
    timeout: Duration,
}

/// One object of the store.
#[derive(Clone, Debug)]
pub struct MetaObject {
    /// Its name in the bucket.
    pub location: Path,
    table: Option<Box<SsTableHandle>>,
}

impl MetaObject {
    /// Whether it is a table that belongs to the state now, or will.
    pub fn is_table(&self) -> bool {
        self.table.is_some()
    }
}

/// The condition of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As it was written.
    Whole,
    /// Missing, or deleted since it was listed.
    Missing,
    /// Not as it was written; with the reason.
    Damaged(String),
}

impl SlateObjects {
    /// The objects of the store under `path`, which is sealed if there is a `sealing`. Calls stop waiting for the
    /// bucket after `timeout`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
        sealing: Option<Sealing>,
    ) -> SlateObjects {
        SlateObjects {
            store: verified(store, &path, sealing),
            path,
            timeout,
        }
    }

    /// All objects of the newest state, and those noted for a later one, sorted by name.
    pub async fn list(&self) -> Result<Vec<MetaObject>, StoreError> {
        let listed = self.store.list(Some(&self.path)).try_collect::<Vec<_>>();
        let listed = self.in_time(listed).await?.map_err(unavailable)?;
        let notes = listed
            .into_iter()
            .filter(|object| object.location.extension() != Some("sst"))
            .map(|object| (object.location, None));
        let mut objects: BTreeMap<Path, _> = notes.collect();
        for table in self.tables().await? {
            let name = format!("compacted/{}.sst", table.id.value());
            let location = self.path.parts().chain(Path::from(name).parts()).collect();
            objects.insert(location, Some(Box::new(table)));
        }
        let objects = objects.into_iter();
        Ok(objects
            .map(|(location, table)| MetaObject { location, table })
            .collect())
    }

    /// Tables that the newest manifest names, and tables written by merges that are not finished.
    async fn tables(&self) -> Result<Vec<SsTableHandle>, StoreError> {
        let admin = AdminBuilder::new(self.path.clone(), self.store.clone()).build();
        let state = within(self.timeout, admin.read_compactor_state_view()).await?;
        let manifest = state.manifest();
        let runs = manifest.compacted().iter().flat_map(|run| run.sst_views());
        let views = manifest.l0().iter().chain(runs);
        let mut tables: Vec<_> = views.map(|view| view.sst.clone()).collect();
        if let Some(merges) = state.compactions() {
            let unfinished = merges.recent_compactions().filter(|merge| merge.active());
            tables.extend(unfinished.flat_map(|merge| merge.output_ssts()));
        }
        Ok(tables)
    }

    /// Reads an object to its end. It takes as much memory as the object has bytes: tables have some 32 MiB.
    ///
    /// # Errors
    /// When the bucket fails. Damage is no error.
    pub async fn look_at(&self, object: &MetaObject) -> Result<Condition, StoreError> {
        let whole = async {
            let found = self.store.get(&object.location).await?;
            found.bytes().await
        };
        let whole = match self.in_time(whole).await? {
            Ok(whole) => whole,
            Err(object_store::Error::NotFound { .. }) => return Ok(Condition::Missing),
            Err(error) if super::is_damage(&error) => {
                return Ok(Condition::Damaged(error.to_string()));
            }
            Err(error) => return Err(unavailable(error)),
        };
        let Some(table) = &object.table else {
            return Ok(Condition::Whole);
        };
        let index = match self.blocks(table).await? {
            Ok(blocks) => blocks,
            Err(why) => return Ok(Condition::Damaged(why)),
        };
        Ok(match flaw(&whole, table, &index) {
            Some(why) => Condition::Damaged(why),
            None => Condition::Whole,
        })
    }

    /// Offsets of the blocks of a table, or the reason why its index does not give them.
    async fn blocks(&self, table: &SsTableHandle) -> Result<Result<Vec<u64>, String>, StoreError> {
        let reader = SstReader::new(self.path.clone(), self.store.clone(), None, None);
        let file = match reader.open_with_handle(table.clone()) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let index = async { Ok(file.index().await) };
        Ok(match within(self.timeout, index).await? {
            Ok(index) => Ok(index.iter().map(|(at, _)| at).collect()),
            Err(error) if error.kind() == ErrorKind::Data => Err(error.to_string()),
            Err(error) => match super::sorted(&error) {
                StoreError::Corrupt(why) => Err(why),
                error => return Err(error),
            },
        })
    }

    async fn in_time<T>(&self, call: impl Future<Output = T>) -> Result<T, StoreError> {
        let answer = tokio::time::timeout(self.timeout, call);
        answer.await.map_err(|_| {
            let seconds = self.timeout.as_secs_f32();
            StoreError::Transient(format!("no answer within {seconds} s"))
        })
    }
}

fn unavailable(error: object_store::Error) -> StoreError {
    StoreError::Transient(error.to_string())
}

/// The flaw of a table, if there is one.
fn flaw(whole: &Bytes, table: &SsTableHandle, blocks: &[u64]) -> Option<String> {
    let info = &table.info;
    // Sections are contiguous: blocks, then their descriptions. Each begins where the one before ends.
    let others = [
        (info.filter_offset, info.filter_len),
        (info.index_offset, info.index_len),
        (info.stats_offset, info.stats_len),
    ];
    let others = others.into_iter().filter(|(_, len)| *len > 0);
    let behind_blocks = others.clone().map(|(at, _)| at).min()?;
    let ends = blocks.iter().skip(1).copied().chain([behind_blocks]);
    let blocks = blocks.iter().zip(ends).map(|(at, end)| (*at, end));
    let others = others.map(|(at, len)| (at, at.saturating_add(len)));
    for (at, end) in blocks.chain(others) {
        if !ends_in_crc(whole, at, end) {
            return Some(format!("bytes {at} to {end} do not match their checksum"));
        }
    }
    let Some(footer_at) = whole.len().checked_sub(FOOTER_BYTES) else {
        return Some(format!("it has only {} bytes", whole.len()));
    };
    let mut footer = whole.slice(footer_at..);
    let (described_at, layout) = (footer.get_u64(), footer.get_u16());
    let described = ends_in_crc(whole, described_at, footer_at as u64);
    if !described || !LAYOUTS.contains(&layout) {
        return Some("its end does not hold the positions of its parts".to_owned());
    }
    None
}

fn ends_in_crc(whole: &Bytes, at: u64, end: u64) -> bool {
    let range = usize::try_from(at).ok().zip(usize::try_from(end).ok());
    let section = range.and_then(|(at, end)| whole.get(at..end));
    let parts = section.and_then(|section| section.split_last_chunk::<CRC_BYTES>());
    parts.is_some_and(|(bytes, crc)| crc32fast::hash(bytes).to_be_bytes() == *crc)
}
