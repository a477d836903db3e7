//! The first look of a reader into tables: what it needs of all of them at the same time.
//!
//! SlateDB looks for a key in the newest table first, and then in four others at a time. In each it reads the filter, then the
//! index, and then a block: one round trip after the other. Here index and filter of every table that may have the key are
//! read together before that, so that a look-up takes one round trip for all of them, and one for the block.
//!
//! The blocks of a small table are all read with the first of them, at once for all such tables: look-ups that follow find
//! them in memory. So a look into a small volume takes two round trips, whatever the client asks for next.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::iter;
use slatedb::manifest::{SsTableId, SsTableView};
use slatedb::{CacheTarget, DbCacheManagerOps, DbReader, VersionedManifest};

/// Requests at the same time: more than there are places to look for a key, two for each.
const AT_ONCE: usize = 128;

/// A table with at most these bytes of blocks is small. One GET reads them all, in about the time of one for a single block.
const SMALL: u64 = 256 << 10;

/// The tables of one state.
pub(super) struct FirstLooks {
    /// Each is one place to look for a key: an unmerged table, or a merged run, whose tables are in the order of their keys and
    /// have none in common.
    places: Vec<Vec<Table>>,
    /// Most bytes that are read before one look-up: the cache must keep them until then.
    room: u64,
}

struct Table {
    id: SsTableId,
    /// `None`: from the first key of all.
    first: Option<Bytes>,
    /// `None`: to the last key of all.
    last: Option<Bytes>,
    index: Piece,
    filter: Piece,
    /// Bytes of its blocks, if it is small.
    blocks: Option<u64>,
}

/// A part of a table.
struct Piece {
    bytes: u64,
    /// Whether it was asked for.
    is_known: AtomicBool,
}

/// What is read of a table, one after the other.
type Part = (SsTableId, Vec<CacheTarget>);

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
            blocks: Some(info.index_offset.min(info.filter_offset)).filter(|bytes| *bytes <= SMALL),
        }
    }

    /// The index, and the blocks of a small table, unless they were asked for before or have no room.
    fn wanted(&self, room: &mut u64) -> Option<Part> {
        if !self.index.is_wanted(room) {
            return None;
        }
        let mut targets = vec![CacheTarget::Index];
        if let Some(bytes) = self.blocks.filter(|bytes| *bytes <= *room) {
            *room -= bytes;
            targets.push(CacheTarget::data::<&[u8], _>(..));
        }
        Some((self.id, targets))
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
        }
    }

    /// Reads what a look-up of a key needs to find its block, as far as that was not asked for before. Tables that cannot
    /// be read are left to the look-up, which says so.
    pub(super) async fn before_key(&self, reader: &DbReader, key: &[u8]) {
        read(reader, self.of_key(key)).await;
    }

    /// The same for a scan of keys from `first` on, before `end` unless that is empty.
    pub(super) async fn before_scan(&self, reader: &DbReader, first: &[u8], end: &[u8]) {
        read(reader, self.of_scan(first, end)).await;
    }

    fn of_key(&self, key: &[u8]) -> Vec<Part> {
        let (mut parts, mut room) = (Vec::new(), self.room);
        for table in self.begins(key).filter(|table| !table.begins_behind(key)) {
            parts.extend(table.wanted(&mut room));
            if table.filter.is_wanted(&mut room) {
                parts.push((table.id, vec![CacheTarget::Filters]));
            }
        }
        parts
    }

    /// A scan does not use filters.
    fn of_scan(&self, first: &[u8], end: &[u8]) -> Vec<Part> {
        let mut room = self.room;
        let begins = self.begins(first);
        begins
            .filter(|table| end.is_empty() || !table.begins_behind(end))
            .filter_map(|table| table.wanted(&mut room))
            .collect()
    }

    /// The first table of each place that may have `key` or a later one.
    fn begins(&self, key: &[u8]) -> impl Iterator<Item = &Table> {
        self.places.iter().filter_map(move |tables| {
            let at = tables.partition_point(|table| table.ends_before(key));
            tables.get(at)
        })
    }
}

async fn read(reader: &DbReader, parts: Vec<Part>) {
    if parts.is_empty() {
        return;
    }
    let reads = iter(parts).map(|(table, targets)| async move {
        if let Err(error) = reader.warm_sst(table, &targets).await {
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
        }
    }

    fn parts(tables: &[u64], parts: &[CacheTarget]) -> Vec<Part> {
        let tables = tables.iter().map(|number| id(*number));
        tables
            .flat_map(|table| parts.iter().map(move |part| (table, vec![part.clone()])))
            .collect()
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
            assert_eq!(looks.of_key(key.as_bytes()), [], "{key} again");
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
        assert_eq!(looks.of_scan(b"", b""), []);
    }

    #[test]
    fn what_has_no_room_is_left_to_the_look_up() {
        let looks = looks(24);
        let (index, filter) = (CacheTarget::Index, CacheTarget::Filters);
        // 15 of 24 bytes, and no other index has room.
        let expected = [(1, &index), (1, &filter), (2, &filter)];
        let expected = expected.map(|(table, part)| (id(table), vec![part.clone()]));
        assert_eq!(looks.of_key(b"c"), expected);
        // The next one has the same room again.
        let expected = [(2, &index), (3, &index)];
        let expected = expected.map(|(table, part)| (id(table), vec![part.clone()]));
        assert_eq!(looks.of_key(b"c"), expected);
        assert_eq!(looks.of_key(b"c"), [(id(3), vec![filter])]);
        assert_eq!(looks.of_key(b"c"), []);
    }

    #[test]
    fn blocks_of_small_tables_follow_their_index_if_they_have_room() {
        let small = |number, bytes| Table {
            blocks: Some(bytes),
            ..table(number, None)
        };
        let looks = FirstLooks {
            places: vec![
                vec![small(1, 100)],
                vec![small(2, 100)],
                vec![table(3, None)],
            ],
            room: 140,
        };
        let (index, all) = (CacheTarget::Index, CacheTarget::data::<&[u8], _>(..));
        let expected = [
            (id(1), vec![index.clone(), all]),
            (id(2), vec![index.clone()]),
            (id(3), vec![index]),
        ];
        assert_eq!(looks.of_scan(b"", b""), expected);
        assert_eq!(looks.of_scan(b"", b""), []);
    }
}
