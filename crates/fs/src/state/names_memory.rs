//! Memory of unpublished names and attributes, and the space of the log: a change waits for both before it is
//! recorded.

use forebay_vfs::{ClientId, Error, Result, Trouble};
use forebay_waits::{For, waiting};

use super::State;
use super::memory::LOOK_AGAIN;
use super::node::{NODE_BYTES, PUBLISHING_BYTES, PUBLISHING_COPIES};

/// Approximate memory of a CREATE: its node, and the publication of an object, a name and a cookie. A client is
/// charged this for each change of names or attributes.
const CHANGE_BYTES: u64 = NODE_BYTES + 3 * PUBLISHING_BYTES;

impl State {
    /// Waits while unpublished names and attributes exceed their memory limit. After [`FsConfig::room_wait`] the call
    /// fails with [`Error::Delay`].
    pub(crate) async fn admit_names(&self, client: ClientId) -> Result<()> {
        self.signals.check_running()?;
        if self.overlay_is_half_full() {
            // The publisher closes a checkpoint, unless it is publishing one.
            self.signals.wake_publisher();
        }
        if !self.has_room_for_names(client) {
            let room = self.memory.bounded(self.names_in_bound(client));
            waiting(For::Names, room).await?;
        }
        self.name_shares.count(client, CHANGE_BYTES);
        Ok(())
    }

    fn has_room_for_names(&self, client: ClientId) -> bool {
        let limit = self.config.overlay_limit;
        self.unpublished_names_bytes() + self.name_shares.withheld(client, limit) < limit
    }

    async fn names_in_bound(&self, client: ClientId) -> Result<()> {
        let _waiting = self.troubles.wait(Trouble::NamesFull);
        loop {
            let freed = self.signals.freed();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.has_room_for_names(client) {
                return Ok(());
            }
            self.signals.press();
            freed.await;
            self.signals.check_running()?;
        }
    }

    /// Whether unpublished names and attributes have reached their memory limit.
    pub(crate) fn overlay_is_full(&self) -> bool {
        self.unpublished_names_bytes() >= self.config.overlay_limit
    }

    /// Whether they take half of the limit: then a checkpoint closes, so that changes go on in the other half while
    /// it is published.
    pub(crate) fn overlay_is_half_full(&self) -> bool {
        self.unpublished_names_bytes() >= self.config.overlay_limit / 2
    }

    /// Memory that unpublished names and attributes take: those of the open checkpoint, and those of closed ones. Each
    /// record counts together with the memory of its publication, so that a checkpoint that closes takes no more
    /// than it did before.
    pub(crate) fn unpublished_names_bytes(&self) -> u64 {
        let open = self.open_checkpoint().changed_bytes();
        let nodes = open + self.closed.bytes();
        let overlay = self.catalog.overlay();
        let publishing = overlay.len() as u64 * PUBLISHING_BYTES
            + overlay.content_bytes() as u64 * PUBLISHING_COPIES;
        nodes + overlay.bytes() as u64 + publishing
    }

    /// Waits for room in the log, which has none until its next segment is prepared, or the next checkpoint is
    /// published. After [`FsConfig::room_wait`] the call fails with [`Error::Delay`].
    pub(crate) async fn wait_for_log_room(&self, bytes: u64) -> Result<()> {
        waiting(For::Log, self.memory.bounded(self.log_room(bytes))).await
    }

    async fn log_room(&self, bytes: u64) -> Result<()> {
        let _waiting = self.troubles.wait(Trouble::LogFull);
        let room = self.journal().room(bytes);
        tokio::pin!(room);
        let mut stopped = self.signals.watch_stopped();
        loop {
            if self.log().is_some_and(forebay_wal::Wal::needs_recycling) {
                self.signals.press();
            }
            tokio::select! {
                biased;
                result = &mut room => return result.map_err(|failed| self.log_failed(&failed)),
                _ = stopped.wait_for(Option::is_some) => return Err(Error::Delay),
                // Other changes may have filled again the room that the checkpoint gave back.
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }
}
