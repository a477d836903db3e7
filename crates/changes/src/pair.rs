//! Two moments, and a walk through the entries in which they differ.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::error::Corrupt;
use forebay_meta::record::{BlockMap, InodeRecord, NameRecord, Record};
use forebay_meta::{KeyRange, MetaStore, StoreError};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;

/// Entries that are read at a time in a walk through everything.
const PAGE: usize = 4096;
/// The same at first, where a few may be enough.
pub(crate) const SMALL_PAGE: usize = 64;
/// Keys that are looked up for one page of a walk.
const LOOKUPS: usize = 4096;
/// Lookups that wait at the same time.
const PARALLEL: usize = 32;
/// Most pieces of a range.
const MAX_PIECES: usize = 32;

/// An entry: its key and its value.
type Entry = (Bytes, Bytes);

/// Two moments of one volume.
#[derive(Clone)]
pub struct Pair {
    pub(crate) old: Arc<dyn MetaStore>,
    pub(crate) new: Arc<dyn MetaStore>,
    /// Keys outside of which the moments are known to be the same, ascending.
    may_differ: Option<Arc<[Bytes]>>,
}

/// An entry that is not the same in both moments.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) key: Bytes,
    pub(crate) old: Option<Bytes>,
    pub(crate) new: Option<Bytes>,
}

impl Difference {
    /// The records of the old and of the new moment.
    pub(crate) fn records<R: Record>(&self) -> Result<(Option<R>, Option<R>), Corrupt> {
        let decode = |value: &Option<Bytes>| {
            let record = value.as_ref().map(|value| R::decode(&self.key, value));
            record.transpose()
        };
        Ok((decode(&self.old)?, decode(&self.new)?))
    }
}

/// Whether entries with this encoded key take part in a comparison: objects, names and block maps.
pub fn is_compared(key: &[u8]) -> bool {
    let tags = [InodeRecord::TAG, NameRecord::TAG, BlockMap::TAG];
    key.first().is_some_and(|tag| tags.contains(tag))
}

impl Pair {
    /// Two moments. `may_differ` are the [compared](is_compared) keys that may have different values, ascending; `None` if that is not
    /// known, and everything has to be read.
    pub fn new(
        old: Arc<dyn MetaStore>,
        new: Arc<dyn MetaStore>,
        may_differ: Option<Vec<Bytes>>,
    ) -> Pair {
        Pair {
            old,
            new,
            may_differ: may_differ.map(Arc::from),
        }
    }

    /// Pieces of a range, in order, that may be walked through at the same time; the range itself if few keys may differ.
    pub(crate) fn pieces(&self, range: &KeyRange) -> Vec<KeyRange> {
        let mut starts: Vec<Bytes> = match self.may_differ {
            Some(_) => Vec::new(),
            None => self.new.divisions(),
        };
        starts.retain(|key| *key > range.start && (range.end.is_empty() || *key < range.end));
        starts.sort();
        starts.dedup();
        let step = starts.len().div_ceil(MAX_PIECES - 1).max(1);
        let mut start = range.start.clone();
        let mut pieces = Vec::new();
        for end in starts.into_iter().step_by(step) {
            pieces.push(KeyRange {
                start: std::mem::replace(&mut start, end.clone()),
                end,
            });
        }
        let end = range.end.clone();
        pieces.push(KeyRange { start, end });
        pieces
    }

    /// Walks through all differences in a range, which may be large. Both moments are read ahead.
    pub(crate) fn walk(&self, range: &KeyRange) -> Walk<'_> {
        Walk(match self.known(range) {
            Some(keys) => Way::Keys(self, keys),
            None => {
                let side = |store: &Arc<dyn MetaStore>| Side::new(Pages::ahead(store, range));
                Way::Merge(Box::new((side(&self.old), side(&self.new))))
            }
        })
    }

    /// The same for a range with about that many entries in each moment.
    pub(crate) fn short_walk(&self, range: &KeyRange, expected: usize) -> Walk<'_> {
        // Less than a page says that there are no more.
        let page = PAGE.min(expected + SMALL_PAGE);
        Walk(match self.known(range) {
            Some(keys) => Way::Keys(self, keys),
            None => {
                let side = |store: &Arc<dyn MetaStore>| {
                    let pages = Pages::growing(store, range, page);
                    Side::new(pages)
                };
                Way::Merge(Box::new((side(&self.old), side(&self.new))))
            }
        })
    }

    fn known(&self, range: &KeyRange) -> Option<&[Bytes]> {
        let keys = self.may_differ.as_ref()?;
        let first = keys.partition_point(|key| *key < range.start);
        let end = keys.partition_point(|key| range.end.is_empty() || *key < range.end);
        Some(keys.get(first..end).unwrap_or_default())
    }
}

/// A walk through the differences in a range, in the order of keys.
pub(crate) struct Walk<'a>(Way<'a>);

enum Way<'a> {
    /// Looks up these keys.
    Keys(&'a Pair, &'a [Bytes]),
    /// Reads everything of the old and the new moment.
    Merge(Box<(Side, Side)>),
}

impl Walk<'_> {
    /// The next differences; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Difference>>, StoreError> {
        self.next_with(|_, _| {}).await
    }

    /// The same; yields also the keys and values between that are the same, if it reads them.
    pub(crate) async fn next_with(
        &mut self,
        mut same: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<Difference>>, StoreError> {
        match &mut self.0 {
            Way::Keys(_, []) => Ok(None),
            Way::Keys(pair, keys) => {
                let (now, later) = keys.split_at(keys.len().min(LOOKUPS));
                *keys = later;
                let pair: &Pair = pair;
                // Collected: a future that is sent to another thread must not hold the closure.
                let lookups: Vec<_> = now.iter().map(|key| look_up(pair, key)).collect();
                let found = stream::iter(lookups).buffered(PARALLEL);
                let found: Vec<Option<Difference>> = found.try_collect().await?;
                Ok(Some(found.into_iter().flatten().collect()))
            }
            Way::Merge(sides) => {
                let (old, new) = &mut **sides;
                tokio::try_join!(old.refill(), new.refill())?;
                if old.is_empty() && new.is_empty() {
                    return Ok(None);
                }
                Ok(Some(merge(old, new, &mut same)))
            }
        }
    }
}

async fn look_up(pair: &Pair, key: &Bytes) -> Result<Option<Difference>, StoreError> {
    let (old, new) = tokio::try_join!(pair.old.get(key), pair.new.get(key))?;
    let key = key.clone();
    Ok((old != new).then_some(Difference { key, old, new }))
}

/// Merges what is in memory, up to the point where one side has to be read further.
fn merge(old: &mut Side, new: &mut Side, same: &mut impl FnMut(&[u8], &[u8])) -> Vec<Difference> {
    let mut found = Vec::new();
    loop {
        let order = match (old.page.front(), new.page.front()) {
            (Some((one, _)), Some((other, _))) => one.cmp(other),
            (Some(_), None) if new.is_at_end => Ordering::Less,
            (None, Some(_)) if old.is_at_end => Ordering::Greater,
            _ => return found,
        };
        let one = (order != Ordering::Greater).then(|| old.page.pop_front());
        let other = (order != Ordering::Less).then(|| new.page.pop_front());
        match (one.flatten(), other.flatten()) {
            (Some((key, one)), Some((_, other))) if one == other => same(&key, &one),
            (Some((key, one)), other) => found.push(Difference {
                key,
                old: Some(one),
                new: other.map(|(_, value)| value),
            }),
            (None, Some((key, other))) => found.push(Difference {
                key,
                old: None,
                new: Some(other),
            }),
            (None, None) => return found,
        }
    }
}

/// One moment in a merge.
struct Side {
    pages: Pages,
    page: VecDeque<Entry>,
    is_at_end: bool,
}

impl Side {
    fn new(pages: Pages) -> Side {
        Side {
            pages,
            page: VecDeque::new(),
            is_at_end: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.page.is_empty()
    }

    async fn refill(&mut self) -> Result<(), StoreError> {
        if self.page.is_empty() && !self.is_at_end {
            self.page = self.pages.next().await?.into();
            self.is_at_end = self.page.is_empty();
        }
        Ok(())
    }
}

/// The entries of a range, page by page.
pub(crate) enum Pages {
    Ahead(mpsc::Receiver<Result<Vec<Entry>, StoreError>>),
    OnDemand {
        store: Arc<dyn MetaStore>,
        /// `None` if there are no more.
        rest: Option<KeyRange>,
        /// Entries of the next page. Each page is twice as large as the one before, up to [`PAGE`].
        page: usize,
    },
}

impl Pages {
    /// A task reads one page ahead, until this is dropped.
    pub(crate) fn ahead(store: &Arc<dyn MetaStore>, range: &KeyRange) -> Pages {
        let (sender, receiver) = mpsc::channel(1);
        let mut pages = Pages::OnDemand {
            store: store.clone(),
            rest: Some(range.clone()),
            page: PAGE,
        };
        tokio::spawn(async move {
            loop {
                let page = Box::pin(pages.next()).await;
                let is_last = page.as_ref().map_or(true, Vec::is_empty);
                if sender.send(page).await.is_err() || is_last {
                    return;
                }
            }
        });
        Pages::Ahead(receiver)
    }

    /// Reads pages on demand: the first one has `first` entries, and later ones more.
    pub(crate) fn growing(store: &Arc<dyn MetaStore>, range: &KeyRange, first: usize) -> Pages {
        Pages::OnDemand {
            store: store.clone(),
            rest: Some(range.clone()),
            page: first,
        }
    }

    /// The next entries; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Vec<Entry>, StoreError> {
        match self {
            // The task ends after the last page.
            Pages::Ahead(receiver) => receiver.recv().await.unwrap_or(Ok(Vec::new())),
            Pages::OnDemand { store, rest, page } => {
                let Some(range) = rest.take() else {
                    return Ok(Vec::new());
                };
                let entries = store.scan(&range, *page).await?;
                if entries.len() == *page {
                    *rest = entries.last().map(|(last, _)| range.after(last));
                }
                *page = PAGE.min(*page * 2);
                Ok(entries)
            }
        }
    }
}
