//! Keys under which two states of one store may differ, out of the tables that only one of them has.
//!
//! Tables never change. A value that differs between two states comes, in at least one of them, from a table that the other
//! does not have: of two entries that both states have, both show the newer. A merge writes entries into new tables, which then
//! are among those; so most of the keys that are found may be the same in both states.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::manifest::{SsTableHandle, SsTableId};
use slatedb::{SstFile, SstReader};

use super::read_again;
use super::reader::SlateReader;
use crate::error::StoreError;

/// Most bytes of tables that are read for this.
const MAX_BYTES: u64 = 16 << 20;
/// The tables must be at most this part of all, as a divisor: else reading both states in their order is less work.
const MAX_PART: u64 = 16;
/// Blocks that are fetched at the same time.
const FETCHES: usize = 16;
/// For indexes, each of which is needed for every block of its table.
const INDEX_CACHE_BYTES: u64 = 4 << 20;

/// The keys that `is_wanted` and under which two readers of one store may show different values, ascending. All other keys that are
/// wanted are the same in both. `None` if the tables that only one of them has are too large to look for them.
///
/// # Errors
/// When a table cannot be read.
pub async fn keys_that_may_differ(
    one: &SlateReader,
    other: &SlateReader,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<Bytes>>, StoreError> {
    let (tables, others) = (one.tables(), other.tables());
    let bytes =
        |tables: &[SsTableHandle]| -> u64 { tables.iter().map(SsTableHandle::estimate_size).sum() };
    let all = bytes(&tables).max(bytes(&others));
    let unshared: Vec<_> = without(&tables, &others)
        .chain(without(&others, &tables))
        .collect();
    let unshared_bytes = bytes(&unshared);
    if unshared_bytes > MAX_BYTES || unshared_bytes.saturating_mul(MAX_PART) > all {
        return Ok(None);
    }
    let cache = FoyerCache::new_with_opts(FoyerCacheOptions {
        max_capacity: INDEX_CACHE_BYTES,
        shards: 1,
    });
    let (path, store) = (one.path.clone(), one.store.clone());
    let reader = SstReader::new(path, store, Some(Arc::new(cache)), None);
    let mut keys = BTreeSet::new();
    for table in unshared {
        let file = reader.open_with_handle(table);
        let file = file.map_err(|error| super::sorted(&error))?;
        add_keys(&file, one, &is_wanted, &mut keys).await?;
    }
    Ok(Some(keys.into_iter().collect()))
}

async fn add_keys(
    file: &SstFile,
    reader: &SlateReader,
    is_wanted: &impl Fn(&[u8]) -> bool,
    keys: &mut BTreeSet<Bytes>,
) -> Result<(), StoreError> {
    let blocks = read_again(reader.timeout, || async { Ok(file.index().await?.len()) }).await?;
    let fetches =
        (0..blocks).map(|block| read_again(reader.timeout, move || file.read_block(block)));
    let mut fetched = stream::iter(fetches).buffer_unordered(FETCHES);
    while let Some(entries) = fetched.try_next().await? {
        let wanted = entries.into_iter().map(|entry| entry.key);
        // A copy: the key may be a part of its whole block.
        keys.extend(
            wanted
                .filter(|key| is_wanted(key))
                .map(|key| Bytes::copy_from_slice(&key)),
        );
    }
    Ok(())
}

fn without<'a>(
    tables: &'a [SsTableHandle],
    others: &[SsTableHandle],
) -> impl Iterator<Item = SsTableHandle> + use<'a> {
    let others: HashSet<SsTableId> = others.iter().map(|table| table.id).collect();
    tables
        .iter()
        .filter(move |table| !others.contains(&table.id))
        .cloned()
}
