//! Windows: small frames of several files that are near one another in a pack are fetched with one GET.
//!
//! Files that were written together are together in a pack, and are mostly read together as well. A request for a
//! small frame near the one that was requested last fetches a window of the pack around it, which is kept for a while
//! for requests for its other frames. Readers that jump around in a pack fetch only their frames.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{PackId, to_usize};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Length of a window in bytes, and the distance that counts as near.
const WINDOW: u64 = 256 << 10;
/// Longer frames, in stored bytes, are fetched without a window.
const SMALL: u64 = 128 << 10;
/// How many windows are kept, and for how many packs the last offset is.
const KEPT: usize = 16;

/// The most recent windows.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// The most recently used one comes first.
    windows: VecDeque<Arc<Window>>,
    /// Where in a pack a small frame was requested last, alone or in a window; the most recent pack comes first.
    places: VecDeque<(PackId, u64)>,
}

/// A range of a pack.
#[derive(Debug)]
pub(crate) struct Window {
    pack: PackId,
    range: Range<u64>,
    /// The bytes that have arrived. Their memory is not counted: there are at most [`KEPT`] windows, of at most
    /// [`WINDOW`] and [`SMALL`] bytes.
    bytes: OnceCell<Bytes>,
}

impl Recent {
    /// Whether this offset of the pack is near the one before. Remembers it as the last one.
    fn is_near(&mut self, pack: PackId, at: u64) -> bool {
        let known = self.places.iter().position(|(own, _)| *own == pack);
        let before = known.and_then(|index| self.places.remove(index));
        self.places.truncate(KEPT - 1);
        self.places.push_front((pack, at));
        before.is_some_and(|(_, before)| before.abs_diff(at) <= WINDOW)
    }

    fn find(&mut self, pack: PackId, range: &Range<u64>) -> Option<Arc<Window>> {
        let holds = |window: &Arc<Window>| {
            let own = &window.range;
            window.pack == pack && own.start <= range.start && range.end <= own.end
        };
        let found = self.windows.iter().position(holds)?;
        let found = self.windows.remove(found)?;
        self.windows.push_front(Arc::clone(&found));
        Some(found)
    }
}

impl Windows {
    /// The window that contains this range of a pack; `None` if the range must be fetched alone.
    pub(crate) fn of(&self, pack: PackId, range: &Range<u64>) -> Option<Arc<Window>> {
        if range.end - range.start > SMALL {
            return None;
        }
        let mut recent = self.0.lock();
        let is_near = recent.is_near(pack, range.start);
        if let Some(found) = recent.find(pack, range) {
            return Some(found);
        }
        if !is_near {
            return None;
        }
        // Aligned, except for a frame across the end of a present window: the bytes before that end were fetched.
        let begins_in =
            |window: &Arc<Window>| window.pack == pack && window.range.contains(&range.start);
        let start = match recent.windows.iter().any(begins_in) {
            true => range.start,
            false => range.start - range.start % WINDOW,
        };
        let window = Arc::new(Window {
            pack,
            range: start..range.end.max(start + WINDOW),
            bytes: OnceCell::new(),
        });
        recent.windows.truncate(KEPT - 1);
        recent.windows.push_front(Arc::clone(&window));
        Some(window)
    }

    /// Forgets a window with a frame that arrived damaged.
    pub(crate) fn forget(&self, window: &Arc<Window>) {
        let mut recent = self.0.lock();
        recent.windows.retain(|own| !Arc::ptr_eq(own, window));
    }
}

impl Window {
    /// A part of the window, which the first caller fetches; shorter, or empty, if the pack ends before.
    pub(crate) async fn part<E, F: Future<Output = Result<Bytes, E>>>(
        &self,
        range: &Range<u64>,
        fetch: impl FnOnce(Range<u64>) -> F,
    ) -> Result<Bytes, E> {
        let fetched = self.bytes.get_or_try_init(|| fetch(self.range.clone()));
        let bytes = fetched.await?;
        let place = |at: u64| bytes.len().min(to_usize(at - self.range.start));
        Ok(bytes.slice(place(range.start)..place(range.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACK: PackId = PackId(1);

    fn at(start: u64) -> Range<u64> {
        start..start + 4096
    }

    #[test]
    fn reads_that_go_on_nearby_get_a_window_and_jumps_do_not() {
        let windows = Windows::default();
        assert!(windows.of(PACK, &at(300_000)).is_none(), "the first");
        let window = windows.of(PACK, &at(304_096)).unwrap();
        assert_eq!(window.range, WINDOW..2 * WINDOW);
        let same = windows.of(PACK, &at(400_000)).unwrap();
        assert!(Arc::ptr_eq(&window, &same));
        // Across its end, and a little before it.
        let next = windows.of(PACK, &at(2 * WINDOW - 10)).unwrap();
        assert_eq!(next.range, 2 * WINDOW - 10..3 * WINDOW - 10);
        assert!(windows.of(PACK, &at(WINDOW - 5000)).is_none(), "a jump");
        assert!(windows.of(PACK, &at(WINDOW - 9000)).is_some());
        assert!(windows.of(PackId(2), &at(WINDOW)).is_none(), "another pack");
        assert!(windows.of(PACK, &at(50 * WINDOW)).is_none());
        assert!(
            windows.of(PACK, &(50 * WINDOW..51 * WINDOW)).is_none(),
            "large"
        );
        windows.forget(&next);
        assert!(
            windows.of(PACK, &at(2 * WINDOW - 10)).is_none(),
            "forgotten, and a jump"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let windows = Windows::default();
        for pack in 0..100 {
            windows.of(PackId(pack), &at(0));
            windows.of(PackId(pack), &at(4096));
        }
        let recent = windows.0.lock();
        assert_eq!((recent.windows.len(), recent.places.len()), (KEPT, KEPT));
    }

    #[tokio::test]
    async fn a_window_is_fetched_once_and_ends_where_its_pack_does() {
        let windows = Windows::default();
        windows.of(PACK, &at(0));
        let window = windows.of(PACK, &at(4096)).unwrap();
        let failed = window.part(&at(4096), |_| async { Err("not now") }).await;
        assert_eq!(failed.err(), Some("not now"));
        let second = at(4096);
        let part = window.part(&second, |range| async move {
            assert_eq!(range, 0..WINDOW);
            Ok::<_, &str>(Bytes::from(vec![7; 10_000]))
        });
        assert_eq!(part.await.unwrap().len(), 4096);
        for (start, len) in [(0, 4096), (8192, 1808), (12_288, 0)] {
            let range = at(start);
            let part = window.part(&range, |_| async { Err("asked again") });
            assert_eq!(part.await.unwrap().len(), len);
        }
    }
}
