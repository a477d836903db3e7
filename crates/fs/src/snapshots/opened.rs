//! Snapshots that are open for reading.

use std::future::Future;
use std::sync::Arc;

use forebay_types::SnapshotId;
use forebay_view::View;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// How many snapshots stay open, at most. Each keeps its manifest and some frames in memory.
const MAX_OPEN: usize = 16;

type Slot = Arc<OnceCell<Arc<View>>>;

/// The open snapshots, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Opened(Mutex<Vec<(SnapshotId, Slot)>>);

impl Opened {
    /// Returns the snapshot; opens it if it is not open. Of callers at the same time one opens it.
    pub(super) async fn get<E, O>(
        &self,
        id: SnapshotId,
        open: impl FnOnce() -> O,
    ) -> Result<Arc<View>, E>
    where
        O: Future<Output = Result<View, E>>,
    {
        let slot = self.slot(id);
        let opened = slot.get_or_try_init(|| async { open().await.map(Arc::new) });
        opened.await.cloned()
    }

    fn slot(&self, id: SnapshotId) -> Slot {
        let mut open = self.0.lock();
        let place = open.iter().position(|(own, _)| *own == id);
        let used = match place {
            Some(place) => open.remove(place),
            None => (id, Slot::default()),
        };
        let slot = used.1.clone();
        open.push(used);
        if open.len() > MAX_OPEN {
            open.remove(0);
        }
        slot
    }

    /// Closes a snapshot that is being deleted, as soon as no call reads it.
    pub(super) fn close(&self, id: SnapshotId) {
        self.0.lock().retain(|(own, _)| *own != id);
    }
}
