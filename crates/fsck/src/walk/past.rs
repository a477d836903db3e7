//! Reads the block maps of snapshots.
//!
//! ```text
//!   newest state  <->  newest snapshot  <->  the one before  <->  ...  <->  oldest snapshot
//! ```
//!
//! Of two neighbours only the maps that differ are read, where both have most of their tables in common; else the maps
//! of both are read beside each other. So the work grows with what has changed, and a map that many snapshots have is
//! seen where it begins and where it ends.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use forebay_meta::record::{BlockMap, Record, SnapshotRecord, VolumeState};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::{BlockKey, Inode, SnapshotId};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::Walk;
use crate::finding::{Finding, Nobody, Sink};
use crate::judge::packs::Packs;
use crate::judge::snapshots::Kept;
use crate::progress::Stage;
use crate::source::{Cursor, Moment, Newest, Past, Source};

/// Limits of one page of differences: their number, and the stored bytes of their block maps.
const AT_ONCE: usize = 1024;
const BYTES: usize = 4 << 20;
/// Keys that are looked up at the same time.
pub(crate) const LOOKUPS: usize = 32;

/// A block map that is not the same in two neighbours.
pub(crate) struct Difference {
    pub(crate) block: BlockKey,
    pub(crate) newer: Option<BlockMap>,
    pub(crate) older: Option<BlockMap>,
}

/// Differences between two neighbours.
pub(crate) struct Differences {
    /// The newer one; `None` if that is the newest state.
    pub(crate) newer: Option<Arc<Kept>>,
    /// The older one; `None` at the end, where all maps of the oldest snapshot come.
    pub(crate) older: Option<Arc<Kept>>,
    pub(crate) found: Vec<Difference>,
}

/// A state, and the snapshot that has it.
struct Link {
    /// `None` for the newest state.
    of: Option<Arc<Kept>>,
    moment: Moment,
}

/// Which of two neighbours could not be read.
struct Unread {
    is_older: bool,
    error: StoreError,
}

type Entry = (Bytes, Bytes);

/// How two neighbours are compared.
enum Way {
    /// These keys are looked up in both.
    Keys(vec::IntoIter<Bytes>),
    /// All maps of both are read.
    Merge(Box<[Side; 2]>),
}

/// All maps of one neighbour.
struct Side {
    cursor: Option<Cursor>,
    next: Option<Entry>,
}

impl Side {
    fn of(source: Option<&Arc<dyn Source>>) -> Side {
        let cursor = source.map(|source| Cursor::new(source, KeyRange::blocks_from(Inode(0))));
        Side { cursor, next: None }
    }

    async fn fill(&mut self) -> Result<(), StoreError> {
        if let (Some(cursor), None) = (&mut self.cursor, &self.next) {
            self.next = cursor.next().await?;
            if self.next.is_none() {
                self.cursor = None;
            }
        }
        Ok(())
    }
}

/// A walk through the snapshots, from the newest to the oldest.
pub(crate) struct Chain {
    past: Arc<dyn Past>,
    newest: Arc<dyn Newest>,
    rest: vec::IntoIter<Kept>,
    newer: Option<Link>,
    /// The neighbour that is compared with `newer`, and how.
    step: Option<(Option<Link>, Way)>,
    /// Whether all maps of the oldest snapshot are still to come.
    ends_with_all: bool,
    /// The snapshot of which a map that cannot be read was reported last.
    faulty: Option<SnapshotId>,
}

impl Chain {
    /// The next differences, a page of them; `None` at the end. Snapshots that cannot be read are reported, and left
    /// out.
    pub(crate) async fn next(
        &mut self,
        sink: &mut dyn Sink,
    ) -> Result<Option<Differences>, StoreError> {
        loop {
            if self.step.is_none() && !self.begin(sink).await? {
                return Ok(None);
            }
            let Some((older, way)) = &mut self.step else {
                return Ok(None);
            };
            let found = page(self.newer.as_ref(), older.as_ref(), way).await;
            match found {
                Ok(found) if found.is_empty() => {
                    let older = self.step.take().and_then(|(older, _)| older);
                    let before = std::mem::replace(&mut self.newer, older);
                    close(before).await;
                }
                Ok(found) => {
                    let of = |link: Option<&Link>| link.and_then(|link| link.of.clone());
                    let (newer, older) = (of(self.newer.as_ref()), of(older.as_ref()));
                    let mut fault = None;
                    let found = found
                        .into_iter()
                        .filter_map(|pair| decode(pair, &mut fault))
                        .collect();
                    if let (Some(error), Some(kept)) = (fault, &older)
                        && self.faulty.replace(kept.id) != Some(kept.id)
                    {
                        sink.found(unread(kept, error.to_string()));
                    }
                    return Ok(Some(Differences {
                        newer,
                        older,
                        found,
                    }));
                }
                Err(Unread { is_older, error }) => self.skip(is_older, error, sink).await?,
            }
        }
    }

    /// Begins the comparison with the next snapshot; false if there is none.
    async fn begin(&mut self, sink: &mut dyn Sink) -> Result<bool, StoreError> {
        while let Some(kept) = self.rest.next() {
            match self.past.state(kept.id).await {
                Ok(Some(moment)) => {
                    let newer = self.newer.as_ref().map(|link| &link.moment);
                    let keys = match newer {
                        Some(newer) => newer.may_differ(&moment, is_block).await,
                        None => None,
                    };
                    let way = match keys {
                        Some(keys) => Way::Keys(keys.into_iter()),
                        None => {
                            let newer = newer.map(|newer| &newer.source);
                            Way::Merge(Box::new([Side::of(newer), Side::of(Some(&moment.source))]))
                        }
                    };
                    let of = Some(Arc::new(kept));
                    self.step = Some((Some(Link { of, moment }), way));
                    return Ok(true);
                }
                Ok(None) => self.is_gone(&kept, sink).await?,
                Err(error) => self.unreadable(&kept, error, sink).await?,
            }
        }
        if !std::mem::take(&mut self.ends_with_all) {
            close(self.newer.take()).await;
            return Ok(false);
        }
        let oldest = self.newer.as_ref().filter(|link| link.of.is_some());
        let source = oldest.map(|link| &link.moment.source);
        self.step = Some((
            None,
            Way::Merge(Box::new([Side::of(source), Side::of(None)])),
        ));
        Ok(true)
    }

    /// Leaves out the neighbour that could not be read.
    async fn skip(
        &mut self,
        is_older: bool,
        error: StoreError,
        sink: &mut dyn Sink,
    ) -> Result<(), StoreError> {
        let older = self.step.take().and_then(|(older, _)| older);
        let (unread, other) = match is_older {
            true => (older, self.newer.take()),
            false => (self.newer.take(), older),
        };
        let Some(kept) = unread.as_ref().and_then(|link| link.of.clone()) else {
            return Err(error);
        };
        self.unreadable(&kept, error, sink).await?;
        close(unread).await;
        if is_older {
            self.newer = other;
            return Ok(());
        }
        // All maps of the older one count as its own.
        let source = other.as_ref().map(|link| &link.moment.source);
        let way = Way::Merge(Box::new([Side::of(None), Side::of(source)]));
        self.step = Some((other, way));
        Ok(())
    }

    /// Reports that a snapshot cannot be read, if it is still there.
    async fn unreadable(
        &self,
        kept: &Kept,
        error: StoreError,
        sink: &mut dyn Sink,
    ) -> Result<(), StoreError> {
        if let StoreError::Transient(_) = error {
            return Err(error);
        }
        if is_still_there(&*self.newest.newest().await?, kept).await? {
            sink.found(unread(kept, error.to_string()));
        }
        Ok(())
    }

    /// Reports that the state of a snapshot is gone, unless the snapshot is, too, or its state is about to be kept.
    async fn is_gone(&self, kept: &Kept, sink: &mut dyn Sink) -> Result<(), StoreError> {
        let newest = self.newest.newest().await?;
        // The record comes with a commit, and the state is kept before the next one.
        let key = Key::Volume.encode();
        let state = newest.get(&key).await?;
        let state = state.and_then(|value| VolumeState::decode(&key, &value).ok());
        if state.is_none_or(|state| state.history.commit == kept.commit)
            || !is_still_there(&*newest, kept).await?
            || self.past.state(kept.id).await?.is_some()
        {
            return Ok(());
        }
        sink.found(unread(kept, "its state is gone from the bucket".to_owned()));
        Ok(())
    }
}

fn unread(kept: &Kept, why: String) -> Finding {
    Finding::UnreadableSnapshot {
        snapshot: kept.id,
        name: kept.name.to_string(),
        why,
    }
}

async fn close(link: Option<Link>) {
    if let Some(Link {
        of: Some(_),
        moment,
    }) = link
    {
        moment.close().await;
    }
}

fn is_block(key: &[u8]) -> bool {
    key.first() == Some(&BlockMap::TAG)
}

/// Whether a snapshot is there, and is not being deleted.
pub(crate) async fn is_still_there(newest: &dyn Source, kept: &Kept) -> Result<bool, StoreError> {
    let key = Key::Snapshot(kept.id).encode();
    let value = newest.get(&key).await?;
    let record = value.and_then(|value| SnapshotRecord::decode(&key, &value).ok());
    Ok(record.is_some_and(|record| !record.is_being_deleted))
}

/// A map that differs: its key, and its value in the newer and in the older neighbour.
type Pair = (Bytes, Option<Bytes>, Option<Bytes>);

/// `fault` becomes the fault of the older map, if it has one. Those of the newer one were reported before.
fn decode((key, newer, older): Pair, fault: &mut Option<StoreError>) -> Option<Difference> {
    let map = |value: Option<Bytes>| {
        value
            .map(|value| BlockMap::decode(&key, &value))
            .transpose()
    };
    match Key::decode(&key) {
        Ok(Key::Block(block)) => Some(Difference {
            block,
            newer: map(newer).ok().flatten(),
            older: map(older).unwrap_or_else(|corrupt| {
                *fault = Some(corrupt.into());
                None
            }),
        }),
        _ => None,
    }
}

/// Maps that differ, and the bytes of their values.
#[derive(Default)]
struct Page {
    found: Vec<Pair>,
    bytes: usize,
}

impl Page {
    fn push(&mut self, pair: Pair) {
        let len = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        self.bytes += len(&pair.1) + len(&pair.2);
        self.found.push(pair);
    }

    fn is_full(&self) -> bool {
        self.found.len() >= AT_ONCE || self.bytes >= BYTES
    }
}

/// The next maps that differ; none at the end.
async fn page(
    newer: Option<&Link>,
    older: Option<&Link>,
    way: &mut Way,
) -> Result<Vec<Pair>, Unread> {
    let failed = |is_older| move |error| Unread { is_older, error };
    let mut page = Page::default();
    match way {
        Way::Keys(keys) => {
            while !page.is_full() {
                let some: Vec<Bytes> = keys.take(LOOKUPS).collect();
                if some.is_empty() {
                    break;
                }
                let look_up = some.into_iter().map(|key| async move {
                    let one = get(newer, &key).await.map_err(failed(false))?;
                    let other = get(older, &key).await.map_err(failed(true))?;
                    Ok::<_, Unread>((one != other).then_some((key, one, other)))
                });
                let mut found = stream::iter(look_up).buffered(LOOKUPS);
                while let Some(pair) = found.try_next().await? {
                    if let Some(pair) = pair {
                        page.push(pair);
                    }
                }
            }
        }
        Way::Merge(sides) => {
            let [one, other] = &mut **sides;
            while !page.is_full() {
                one.fill().await.map_err(failed(false))?;
                other.fill().await.map_err(failed(true))?;
                let order = match (&one.next, &other.next) {
                    (Some((one, _)), Some((other, _))) => one.cmp(other),
                    (Some(_), None) => std::cmp::Ordering::Less,
                    (None, Some(_)) => std::cmp::Ordering::Greater,
                    (None, None) => break,
                };
                let one = order.is_le().then(|| one.next.take()).flatten();
                let other = order.is_ge().then(|| other.next.take()).flatten();
                match (one, other) {
                    (Some((_, one)), Some((_, other))) if one == other => {}
                    (Some((key, one)), other) => {
                        page.push((key, Some(one), other.map(|(_, value)| value)));
                    }
                    (None, Some((key, other))) => page.push((key, None, Some(other))),
                    (None, None) => break,
                }
            }
        }
    }
    Ok(page.found)
}

async fn get(link: Option<&Link>, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
    match link {
        Some(link) => link.moment.source.get(key).await,
        None => Ok(None),
    }
}

impl Walk {
    /// A walk through the snapshots. `ends_with_all`: it ends with all maps of the oldest one. `None` if there are none.
    pub(crate) fn chain(&self, newest: &Arc<dyn Newest>, ends_with_all: bool) -> Option<Chain> {
        let past = self.past.clone()?;
        let snapshots = self.snapshots.newest_first();
        if snapshots.is_empty() {
            return None;
        }
        Some(Chain {
            past,
            newest: newest.clone(),
            rest: snapshots.into_iter(),
            newer: Some(Link {
                of: None,
                moment: self.moment.clone(),
            }),
            step: None,
            ends_with_all,
            faulty: None,
        })
    }

    /// Passes the references of all snapshots to a range of packs, and judges whether these are kept for them.
    pub(crate) async fn past(
        &mut self,
        newest: &Arc<dyn Newest>,
        packs: &mut Packs,
    ) -> Result<(), StoreError> {
        let Some(mut chain) = self.chain(newest, true) else {
            return Ok(());
        };
        self.progress.begin(Stage::Snapshots, 0);
        let is_first = packs.bounds().0.0 == 0;
        loop {
            let sink: &mut dyn Sink = match is_first {
                true => &mut self.findings,
                false => &mut Nobody,
            };
            let Some(Differences {
                newer,
                older,
                found,
            }) = chain.next(sink).await?
            else {
                break;
            };
            self.progress.add(found.len() as u64);
            for one in &found {
                refer(packs, newer.as_deref(), one.newer.as_ref());
                refer(packs, older.as_deref(), one.older.as_ref());
            }
        }
        packs.judge_seen(&self.snapshots.newest_first(), &mut self.findings);
        Ok(())
    }
}

fn refer(packs: &mut Packs, kept: Option<&Kept>, map: Option<&BlockMap>) {
    let (Some(kept), Some(map)) = (kept, map) else {
        return;
    };
    for extent in map.extents() {
        packs.seen(extent.frame.pack, kept.commit);
    }
}
