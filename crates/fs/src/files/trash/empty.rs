//! Emptying the trash: what has been there long enough, and what room is needed for, the next to end first.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_meta::record::TrashUntil;
use forebay_meta::{Key, KeyRange};
use forebay_types::Inode;
use forebay_vfs::{ClientId, Error, Result};

use super::room::Room;
use crate::files::Files;
use crate::state::{Locked, NameChange, Node};

/// How many entries one record removes.
const STEP: usize = 64;
/// How often it is checked whether something has to leave.
const PERIOD: Duration = Duration::from_secs(1);

impl Files {
    /// Empties the trash as its entries end. Never returns.
    pub(crate) async fn empty_trash_forever(self: Arc<Files>) {
        loop {
            match self.state.accounts.trash().used().files {
                0 => self.state.trash.wait().await,
                _ => tokio::time::sleep(PERIOD).await,
            }
            if self.state.signals.is_stopped().is_some() {
                return std::future::pending().await;
            }
            if let Err(error) = self.empty_trash().await {
                tracing::debug!("emptying the trash: {error}; trying again");
                tokio::time::sleep(PERIOD).await;
            }
        }
    }

    /// Deletes everything in the trash that has to leave now. Returns the number of objects.
    pub(crate) async fn empty_trash(&self) -> Result<u64> {
        let trash = &self.state.trash;
        if !self.room_of_trash().is_over() && trash.next() > self.seconds() {
            return Ok(0);
        }
        let from = trash.begin();
        let mut range = KeyRange::trash_order();
        range.start = Key::TrashUntil(from, Inode(0)).encode();
        let mut deleted = 0;
        loop {
            match self.empty_step(&mut range).await {
                Ok(Step { objects, next }) => {
                    deleted += objects;
                    match next {
                        Next::Step => {}
                        Next::Later(until) => {
                            trash.not_before(until);
                            return Ok(deleted);
                        }
                        Next::Nothing => return Ok(deleted),
                    }
                }
                Err(error) => {
                    trash.not_before(from);
                    return Err(error);
                }
            }
        }
    }

    /// Deletes some entries at the start of the range, and takes them from it.
    async fn empty_step(&self, range: &mut KeyRange) -> Result<Step> {
        self.state.admit_names(ClientId::default()).await?;
        let _changing = self.state.trash.changing.lock().await;
        let found = self.state.catalog.records::<TrashUntil>(range, STEP).await;
        let found = found.map_err(|error| self.state.store_failed(error))?;
        let (mut room, now) = (self.room_of_trash(), self.seconds());
        let is_last = found.len() < STEP;
        let mut next = if is_last { Next::Nothing } else { Next::Step };
        let (mut nodes, mut strays) = (Vec::new(), Vec::new());
        for (key, _) in found {
            let Key::TrashUntil(until, inode) = key else {
                continue;
            };
            if until > now && !room.is_over() {
                next = Next::Later(until);
                break;
            }
            *range = range.after(&key.encode());
            match self.state.node(inode).await {
                Ok(node) => {
                    room.leaves(node.lock().charge.amount());
                    nodes.push((until, node));
                }
                Err(Error::Stale) => strays.push((until, inode)),
                // Its record cannot be read, which is in the log: what ends later does not wait for it.
                Err(Error::Io) => {}
                Err(error) => return Err(error),
            }
        }
        let objects = self.delete_from_trash(&nodes, &strays).await?;
        let are_over = nodes.iter().filter(|(until, _)| *until <= now).count() as u64;
        let displaced = objects.saturating_sub(are_over);
        let trash = &self.state.trash;
        trash.displaced.fetch_add(displaced, Ordering::Relaxed);
        trash
            .expired
            .fetch_add(objects - displaced, Ordering::Relaxed);
        Ok(Step { objects, next })
    }

    /// Deletes these objects, and the entries of `strays`, which are none. Returns the number of objects.
    async fn delete_from_trash(
        &self,
        nodes: &[(u64, Arc<Node>)],
        strays: &[(u64, Inode)],
    ) -> Result<u64> {
        if nodes.is_empty() && strays.is_empty() {
            return Ok(0);
        }
        self.state
            .retry(|| {
                let all: Vec<&Arc<Node>> = nodes.iter().map(|(_, node)| node).collect();
                let mut locked = Locked::all(&all);
                let mut change = NameChange::default();
                let mut objects = 0;
                for (until, node) in nodes {
                    let record = locked.of(node).record.clone();
                    change.leave_trash(node.inode, *until, Some(&record));
                    // Whatever has a name stays.
                    if locked.of(node).is_in_trash() {
                        change.remove(node);
                        objects += 1;
                    }
                }
                for (until, inode) in strays {
                    change.leave_trash(*inode, *until, None);
                }
                self.state.record_names(change, &mut locked)?;
                Ok(objects)
            })
            .await
    }

    fn room_of_trash(&self) -> Room {
        let accounts = &self.state.accounts;
        Room {
            trash: accounts.trash().used(),
            volume: accounts.volume().used(),
            volume_limit: accounts.volume().limit(),
            trash_limit: self.state.config.trash_limit,
        }
    }

    fn seconds(&self) -> u64 {
        u64::try_from(self.state.now().seconds).unwrap_or(0)
    }
}

/// The result of a step.
struct Step {
    objects: u64,
    next: Next,
}

enum Next {
    /// There may be more that has to leave.
    Step,
    /// What is left ends then, or later.
    Later(u64),
    /// Nothing is left.
    Nothing,
}
