//! The first look of a reader into tables: what it needs of all of them at the same time.
//!
//! SlateDB looks for a key in the newest table first, and then in four others at a time. In each it reads the filter, then the
//! index, and then a block: one round trip after the other. Here index and filter of every table that may have the key are
//! read together before that, so that a look-up takes one round trip for all of them, and one for the block.
//!
//! Beside the look-up, all blocks of each small table that may have the key are read. Later look-ups in those tables take no
//! round trip. Beside the first look-up of all, indexes and filters of other tables are read too, so that later ones find them.
//!
//! The tables are those of one moment: of a reader's state, or of the opening of the store. Tables that a later commit or merge
//! has made are read as SlateDB reads them, and those that are gone are left out.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::iter;
use slatedb::manifest::{SsTableId, SsTableView};
use slatedb::{CacheTarget, DbCacheManagerOps, VersionedManifest};

use crate::key::KeyRange;

/// Requests at the same time: enough for all places to look for a key, two for each, unless merges are far behind.
const AT_ONCE: usize = 128;

/// Of how many tables, beginning with the newest, index and filter are read beside the first look-up of all, and most bytes of
/// them: the look-up waits for them.
const AT_FIRST: usize = 64;
const AT_FIRST_BYTES: u64 = 2 << 20;

/// A table with at most these bytes of blocks is small. One GET reads them all, in about the time of one for a single block.
const SMALL: u64 = 256 << 10;

/// Through which parts of tables are read: an open store, or a reader.
type Tables = dyn DbCacheManagerOps + Sync;

/// The tables of one state.
pub(super) struct FirstLooks {
    /// Each is one place to look for a key: an unmerged table, or a merged run, whose tables are in the order of their keys and
    /// have none in common.
    places: Vec<Vec<Table>>,
    /// Most bytes that are read before one look-up: the cache must keep them until then.
    room: u64,
    /// Whether there was a look-up.
    begun: AtomicBool,
}

struct Table {
    id: SsTableId,
    /// `None`: from the first key of all.
    first: Option<Bytes>,
    /// `None`: to the last key of all.
    last: Option<Bytes>,
    index: Piece,
    filter: Piece,
    /// Its blocks, if it is small.
    blocks: Option<Piece>,
}

/// A part of a table.
struct Piece {
    bytes: u64,
    /// Whether it was asked for.
    is_known: AtomicBool,
}

/// What is read for one look-up.
#[derive(Debug, PartialEq)]
struct Parts {
    /// Indexes and filters, before the look-up.
    before: Vec<(SsTableId, CacheTarget)>,
    /// What is read beside it: blocks of small tables, and what later look-ups need of other tables.
    beside: Vec<(SsTableId, CacheTarget)>,
}

impl Piece {
    fn new(bytes: u64) -> Piece {
        Piece {
            bytes,
            is_known: AtomicBool::new(false),
        }
    }

    /// Whether it is to be read now: it was not asked for before, and has room.
    fn is_wanted(&self, room: &mut u64) -> bool {
        if self.bytes > *room || self.is_known.swap(true, Ordering::Relaxed) {
            return false;
        }
        *room -= self.bytes;
        true
    }
}

impl Table {
    fn of(view: &SsTableView) -> Table {
        let info = &view.sst.info;
        Table {
            id: view.sst.id,
            first: info.first_entry.clone(),
            last: info.last_entry.clone(),
            index: Piece::new(info.index_len),
            filter: Piece::new(info.filter_len),
            // Its blocks lie before everything else.
            blocks: Some(info.index_offset.min(info.filter_offset))
                .filter(|bytes| *bytes <= SMALL)
                .map(Piece::new),
        }
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        self.last.as_ref().is_some_and(|last| &last[..] < key)
    }

    fn begins_behind(&self, key: &[u8]) -> bool {
        self.first.as_ref().is_some_and(|first| &first[..] > key)
    }
}

impl FirstLooks {
    /// `room`: most bytes that are read before one look-up.
    pub(super) fn new(manifest: &VersionedManifest, room: u64) -> FirstLooks {
        let unmerged = manifest.l0().iter().map(|view| vec![Table::of(view)]);
        let merged = manifest.compacted().iter();
        let merged = merged.map(|run| run.sst_views().iter().map(Table::of).collect());
        FirstLooks {
            places: unmerged.chain(merged).collect(),
            room,
            begun: AtomicBool::new(false),
        }
    }

    /// Reads nothing before a look-up.
    pub(super) fn none() -> FirstLooks {
        FirstLooks {
            places: Vec::new(),
            room: 0,
            begun: AtomicBool::new(true),
        }
    }

    /// For keys that each commit writes: in the newest table alone, and without blocks beside the look-up.
    pub(super) fn in_the_newest(manifest: &VersionedManifest, room: u64) -> FirstLooks {
        let mut looks = FirstLooks::new(manifest, room);
        looks.places.truncate(1);
        for table in looks.places.iter_mut().flatten() {
            table.blocks = None;
        }
        looks
    }

    /// Reads the indexes and filters that lead to the block of `key`, then runs `look_up`. Parts that were asked for before are
    /// not read again. If a table cannot be read, the look-up reports that.
    pub(super) async fn with_key<T>(
        &self,
        reader: &Tables,
        key: &[u8],
        look_up: impl Future<Output = T>,
    ) -> T {
        self.of_key(key).read_with(reader, look_up).await
    }

    /// The same for a scan of `range`.
    pub(super) async fn with_scan<T>(
        &self,
        reader: &Tables,
        range: &KeyRange,
        scan: impl Future<Output = T>,
    ) -> T {
        let parts = self.of_scan(&range.start, &range.end);
        parts.read_with(reader, scan).await
    }

    fn of_key(&self, key: &[u8]) -> Parts {
        let tables = self.begins(key).filter(|table| !table.begins_behind(key));
        self.parts(tables.collect(), true)
    }

    /// A scan does not use filters. An `end` without bytes is the end of all keys.
    fn of_scan(&self, first: &[u8], end: &[u8]) -> Parts {
        let tables = self.begins(first);
        let tables = tables.filter(|table| end.is_empty() || !table.begins_behind(end));
        self.parts(tables.collect(), false)
    }

    /// Blocks have the room that is left, and other tables what is left after that.
    fn parts(&self, tables: Vec<&Table>, with_filters: bool) -> Parts {
        let (mut before, mut room) = (Vec::new(), self.room);
        for table in &tables {
            if table.index.is_wanted(&mut room) {
                before.push((table.id, CacheTarget::Index));
            }
            if with_filters && table.filter.is_wanted(&mut room) {
                before.push((table.id, CacheTarget::Filters));
            }
        }
        let mut beside = Vec::new();
        for table in tables {
            let blocks = table.blocks.as_ref();
            if blocks.is_some_and(|blocks| blocks.is_wanted(&mut room)) {
                beside.push((table.id, CacheTarget::data::<&[u8], _>(..)));
            }
        }
        if !self.begun.swap(true, Ordering::Relaxed) {
            room = room.min(AT_FIRST_BYTES);
            for table in self.places.iter().flatten().take(AT_FIRST) {
                if table.index.is_wanted(&mut room) {
                    beside.push((table.id, CacheTarget::Index));
                }
                if table.filter.is_wanted(&mut room) {
                    beside.push((table.id, CacheTarget::Filters));
                }
            }
        }
        Parts { before, beside }
    }

    /// The first table of each place that may have `key` or a later one.
    fn begins(&self, key: &[u8]) -> impl Iterator<Item = &Table> {
        self.places.iter().filter_map(move |tables| {
            let at = tables.partition_point(|table| table.ends_before(key));
            tables.get(at)
        })
    }
}

impl Parts {
    async fn read_with<T>(self, reader: &Tables, look_up: impl Future<Output = T>) -> T {
        read(reader, self.before).await;
        let (found, ()) = join(look_up, read(reader, self.beside)).await;
        found
    }
}

async fn read(reader: &Tables, parts: Vec<(SsTableId, CacheTarget)>) {
    if parts.is_empty() {
        return;
    }
    let reads = iter(parts).map(|(table, part)| async move {
        if let Err(error) = reader.warm_sst(table, &[part]).await {
            tracing::debug!("a table is read again: {error}");
        }
    });
    reads.buffer_unordered(AT_ONCE).collect::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> SsTableId {
        SsTableId::new(format!("{number:026}").parse().unwrap())
    }

    /// A table with these keys, an index of 10 bytes, and a filter of 5.
    fn table(number: u64, keys: Option<(&'static str, &'static str)>) -> Table {
        Table {
            id: id(number),
            first: keys.map(|(first, _)| first.into()),
            last: keys.map(|(_, last)| last.into()),
            index: Piece::new(10),
            filter: Piece::new(5),
            blocks: None,
        }
    }

    fn looks(room: u64) -> FirstLooks {
        FirstLooks {
            places: vec![
                vec![table(1, Some(("c", "x")))],
                vec![table(2, None)],
                vec![
                    table(3, Some(("a", "d"))),
                    table(4, Some(("f", "k"))),
                    table(5, Some(("l", "z"))),
                ],
                Vec::new(),
            ],
            room,
            begun: AtomicBool::new(true),
        }
    }

    /// These parts of these tables are read before the look-up, and no blocks.
    fn parts(tables: &[u64], parts: &[CacheTarget]) -> Parts {
        let tables = tables.iter().map(|number| id(*number));
        let before = tables.flat_map(|table| parts.iter().map(move |part| (table, part.clone())));
        Parts {
            before: before.collect(),
            beside: Vec::new(),
        }
    }

    #[test]
    fn a_look_up_begins_in_one_table_of_each_place() {
        let both = [CacheTarget::Index, CacheTarget::Filters];
        for (key, expected) in [
            ("a", &[2, 3][..]),
            ("c", &[1, 2, 3]),
            ("d", &[1, 2, 3]),
            ("e", &[1, 2]),
            ("k", &[1, 2, 4]),
            ("x", &[1, 2, 5]),
            ("zz", &[2]),
        ] {
            let looks = looks(1000);
            assert_eq!(looks.of_key(key.as_bytes()), parts(expected, &both));
            assert_eq!(looks.of_key(key.as_bytes()), parts(&[], &[]), "{key} again");
        }
    }

    #[test]
    fn a_scan_needs_no_filters_and_may_begin_behind_its_first_key() {
        let index = [CacheTarget::Index];
        for (first, end, expected) in [
            ("e", "f", &[1, 2, 4][..]),
            ("e", "ee", &[1, 2]),
            ("a", "b", &[2, 3]),
            ("a", "", &[1, 2, 3]),
            ("", "", &[1, 2, 3]),
            ("zz", "", &[2]),
        ] {
            let looks = looks(1000);
            let found = looks.of_scan(first.as_bytes(), end.as_bytes());
            assert_eq!(found, parts(expected, &index), "{first} {end}");
        }
    }

    #[test]
    fn nothing_is_read_twice() {
        let looks = looks(1000);
        let (index, filter) = (CacheTarget::Index, CacheTarget::Filters);
        let (index, both) = ([index.clone()], [index, filter]);
        assert_eq!(looks.of_scan(b"c", b""), parts(&[1, 2, 3], &index));
        assert_eq!(looks.of_key(b"c"), parts(&[1, 2, 3], &both[1..]));
        assert_eq!(looks.of_key(b"l"), parts(&[5], &both));
        assert_eq!(looks.of_scan(b"", b""), parts(&[], &[]));
    }

    #[test]
    fn what_has_no_room_is_left_to_the_look_up() {
        let looks = looks(24);
        let (index, filter) = (CacheTarget::Index, CacheTarget::Filters);
        // 15 of 24 bytes, and no other index has room.
        let expected = [(1, &index), (1, &filter), (2, &filter)];
        let expected = expected.map(|(table, part)| (id(table), part.clone()));
        assert_eq!(looks.of_key(b"c").before, expected);
        // The next one has the same room again.
        let expected = [(2, &index), (3, &index)];
        let expected = expected.map(|(table, part)| (id(table), part.clone()));
        assert_eq!(looks.of_key(b"c").before, expected);
        assert_eq!(looks.of_key(b"c").before, [(id(3), filter)]);
        assert_eq!(looks.of_key(b"c").before, []);
    }

    #[test]
    fn blocks_of_small_tables_have_the_room_that_indexes_leave() {
        let small = |number, bytes| Table {
            blocks: Some(Piece::new(bytes)),
            ..table(number, None)
        };
        let looks = FirstLooks {
            places: vec![
                vec![small(1, 100)],
                vec![small(2, 100)],
                vec![table(3, None)],
            ],
            room: 140,
            begun: AtomicBool::new(true),
        };
        let blocks = |number| [(id(number), CacheTarget::data::<&[u8], _>(..))];
        let first = looks.of_scan(b"", b"");
        let before = parts(&[1, 2, 3], &[CacheTarget::Index]).before;
        assert_eq!((first.before, &first.beside[..]), (before, &blocks(1)[..]));
        let second = Parts {
            before: Vec::new(),
            beside: blocks(2).into(),
        };
        assert_eq!(looks.of_scan(b"", b""), second);
        assert_eq!(looks.of_scan(b"", b""), parts(&[], &[]));
    }

    #[test]
    fn beside_the_first_look_up_of_all_other_tables_are_read() {
        let looks = FirstLooks {
            begun: AtomicBool::new(false),
            ..looks(64)
        };
        let both = [CacheTarget::Index, CacheTarget::Filters];
        let first = looks.of_key(b"e");
        assert_eq!(first.before, parts(&[1, 2], &both).before);
        // The room has 4 bytes left then: the third of them would need 10.
        assert_eq!(first.beside, parts(&[3, 4], &both).before);
        assert_eq!(looks.of_key(b"e"), parts(&[], &[]));
        assert_eq!(looks.of_key(b"m"), parts(&[5], &both));
    }
}
