//! Recounting: when a directory gets or loses a quota, moves the counts of the objects below it to the right tree,
//! while clients work.
//!
//! One task walks one tree at a time, in steps of a few objects; each step is one record in the log like any other
//! change of attributes, and holds the names of one directory, so that nothing moves out of it meanwhile. A crash
//! only forgets the progress: the walk begins again.
//!
//! ```text
//!   joining    a directory first, then what is in it: what is made there meanwhile counts at once.
//!              A directory of the tree cannot leave it (renames across a border are refused), so a walk
//!              from the root finds everything.
//!   leaving    what is in a directory first, then the directory: one that counts outside is done with
//!              all that is below it, and may be moved away.
//! ```
//!
//! A file with a name outside may have lost the one inside by which a walk would find it (it is detached). So if more than
//! the root is left in the account of a tree that is left, all objects of the volume are examined, once. The same is
//! done when the root of a tree is removed, which is a directory without names, and something still counts in the
//! tree.
//!
//! During a walk, names cannot be moved between the part that it has passed and the rest: until it is over, a rename
//! that crosses no border may still be refused (EXDEV).

use std::sync::Arc;
use std::time::Duration;

use forebay_meta::record::{InodeRecord, Kind, QuotaRecord, Recount};
use forebay_meta::{Key, KeyRange, Record};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{ClientId, Error, Result};

use crate::files::Files;
use crate::state::{Locked, NameChange, Node};

/// How many objects a step looks at.
const STEP: usize = 32;
/// How many objects a step of the search for detached objects looks at: most of them are none.
const DETACHED_STEP: usize = 4096;
/// Pause after a failed step, for example while the bucket does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// A directory that is being walked, and the cookie that the walk has reached.
struct WalkedDirectory {
    directory: Inode,
    cookie: u64,
}

/// The aim of a walk. If it changes, the walk begins again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Aim {
    recount: Recount,
    /// The tree in which everything is to count.
    to: Option<Inode>,
}

/// A tree to walk.
struct Work {
    /// The root; `None` if it was removed, and something still counts in its tree.
    top: Option<Arc<Node>>,
    quota: QuotaRecord,
    aim: Aim,
}

/// The result of a step.
enum Step {
    /// There is more work.
    On,
    /// Nothing below the root counts in the tree any more, but its account is not empty.
    Detached,
    /// The whole tree counts where it should, or its quota was changed: look again.
    Over,
}

impl Files {
    /// Walks trees whose objects do not all count where they should. Never returns.
    pub(crate) async fn move_counts_forever(self: Arc<Files>) {
        loop {
            let wake = self.state.accounts.unsettled_changed();
            let next = self.state.accounts.next_unsettled();
            let Some(root) = next else {
                wake.await;
                continue;
            };
            if self.state.signals.is_stopped().is_some() {
                return std::future::pending().await;
            }
            if let Err(error) = self.recount(root).await {
                tracing::debug!("quota of inode {root}: {error}; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn recount(&self, root: Inode) -> Result<()> {
        let mut places = vec![WalkedDirectory {
            directory: root,
            cookie: 0,
        }];
        let mut aim = None;
        let mut has_looked = false;
        loop {
            match self
                .move_counts_step(root, &mut aim, &mut places, has_looked)
                .await?
            {
                Step::On => {}
                Step::Detached => {
                    self.find_detached(root, aim).await?;
                    has_looked = true;
                }
                Step::Over => return Ok(()),
            }
        }
    }

    /// Moves detached objects, which count in the tree although no name in it leads to them, out of every tree. Ends
    /// early if the walk has another aim by now.
    async fn find_detached(&self, root: Inode, aim: Option<Aim>) -> Result<()> {
        // Later objects are made in the root, and are not detached.
        self.publisher.flush().await.map_err(|_| Error::Delay)?;
        let mut rest = KeyRange::inodes();
        loop {
            self.state.admit_names(ClientId::default()).await?;
            let _changing = self.state.accounts.changing.lock().await;
            let work = self.work_on(root).await?;
            if work.map(|work| work.aim) != aim {
                return Ok(());
            }
            let found = self
                .state
                .catalog
                .scan(&rest, DETACHED_STEP)
                .await
                .map_err(|error| self.state.store_failed(error))?;
            let Some((last, _)) = found.last() else {
                return Ok(());
            };
            rest = rest.after(last);
            let mut detached = Vec::new();
            for (key, value) in found {
                // The tasks that need a damaged record report it.
                let record = InodeRecord::decode(&key, &value);
                if let (Ok(Key::Inode(inode)), Ok(record)) = (Key::decode(&key), record)
                    && inode != root
                    && record.tree == Some(root)
                {
                    match self.state.node(inode).await {
                        // It may count elsewhere by now.
                        Ok(node) if node.lock().record.tree == Some(root) => detached.push(node),
                        Ok(_) | Err(Error::Stale) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            for some in detached.chunks(STEP) {
                // Nothing says where their names are: they may be outside the tree around this one.
                self.count_in(some, None).await?;
            }
        }
    }

    /// The work on a tree; `None` if all of it counts where it should.
    async fn work_on(&self, root: Inode) -> Result<Option<Work>> {
        let quota = self.quota_of(root).await?;
        let Some(quota) = quota.filter(|quota| quota.recount != Recount::Done) else {
            return Ok(None);
        };
        let top = match self.state.node(root).await {
            Err(Error::Stale) => None,
            node => Some(node?).filter(|node| !node.lock().has_no_name()),
        };
        let (recount, to) = match (&top, quota.recount) {
            (Some(top), Recount::Leaving) => (Recount::Leaving, self.tree_of_parent(top).await?),
            (Some(_), recount) => (recount, Some(root)),
            (None, _) => (Recount::Leaving, None),
        };
        let aim = Aim { recount, to };
        Ok(Some(Work { top, quota, aim }))
    }

    /// Does one step. The quota does not change during it. `has_looked` says whether detached objects were looked for.
    async fn move_counts_step(
        &self,
        root: Inode,
        aim: &mut Option<Aim>,
        places: &mut Vec<WalkedDirectory>,
        has_looked: bool,
    ) -> Result<Step> {
        self.state.admit_names(ClientId::default()).await?;
        let _changing = self.state.accounts.changing.lock().await;
        let Some(Work {
            top,
            quota,
            aim: now,
        }) = self.work_on(root).await?
        else {
            self.state.accounts.settled(root);
            return Ok(Step::Over);
        };
        if *aim.get_or_insert(now) != now {
            return Ok(Step::Over);
        }
        let Some(top) = top else {
            if !has_looked && self.state.accounts.tree(root).used().files > 0 {
                return Ok(Step::Detached);
            }
            // With the last of its objects, the published counts lose the tree and its quota.
            self.state.accounts.settled(root);
            return Ok(Step::Over);
        };
        let (leaving, to) = (now.recount == Recount::Leaving, now.to);
        let Some(place) = places.last_mut() else {
            return self.end_joining(&top, quota).await;
        };
        let directory = match self.state.node(place.directory).await {
            Err(Error::Stale) => {
                places.pop();
                return Ok(Step::On);
            }
            node => node?,
        };
        let _names = directory.lock_names().await;
        let entries = self
            .state
            .catalog
            .cookies_after(directory.inode, place.cookie, STEP)
            .await
            .map_err(|error| self.state.store_failed(error))?;
        let mut nodes = Vec::new();
        let mut below = None;
        for (cookie, entry) in &entries {
            place.cookie = *cookie;
            let node = self.state.node(entry.inode).await?;
            let tree = node.lock().record.tree;
            if entry.kind != Kind::Directory {
                nodes.push(node);
                continue;
            }
            let own_quota = tree == Some(node.inode);
            if own_quota || (leaving && tree == to) {
                continue;
            }
            below = Some(node.inode);
            if !leaving {
                nodes.push(node);
            }
            break;
        }
        self.count_in(&nodes, to).await?;
        if let Some(inode) = below {
            places.push(WalkedDirectory {
                directory: inode,
                cookie: 0,
            });
        } else if entries.is_empty() {
            // Its names are still held: nothing was added since.
            if leaving && directory.inode == root {
                if !has_looked && self.state.accounts.tree(root).used().files > 1 {
                    return Ok(Step::Detached);
                }
                return self.end_leaving(&top, to).await;
            }
            if leaving {
                self.count_in(std::slice::from_ref(&directory), to).await?;
            }
            places.pop();
        }
        Ok(Step::On)
    }

    /// Counts the objects in the tree `to`, or in none, in one record.
    async fn count_in(&self, nodes: &[Arc<Node>], to: Option<Inode>) -> Result<Option<Lsn>> {
        self.state
            .retry(|| {
                let all: Vec<&Arc<Node>> = nodes.iter().collect();
                let mut locked = Locked::all(&all);
                let mut change = NameChange::default();
                let mut any = false;
                for node in nodes {
                    let state = locked.of(node);
                    if !state.has_no_name() && state.record.tree != to {
                        let mut record = state.record.clone();
                        record.tree = to;
                        change.set(node, record);
                        any = true;
                    }
                }
                if !any {
                    return Ok(None);
                }
                self.state.record_names(change, &mut locked).map(Some)
            })
            .await
    }

    /// Ends a walk of joining: the whole tree counts in it.
    async fn end_joining(&self, top: &Arc<Node>, quota: QuotaRecord) -> Result<Step> {
        let settled = QuotaRecord {
            recount: Recount::Done,
            ..quota
        };
        self.state
            .retry(|| {
                let mut locked = Locked::all(&[top]);
                let state = locked.of(top);
                if state.has_no_name() {
                    return Ok(());
                }
                let mut change = NameChange::default();
                change.set(top, state.record.clone());
                change.names.put(&Key::Quota(top.inode), &settled);
                self.state.record_names(change, &mut locked).map(drop)
            })
            .await?;
        self.state.accounts.settled(top.inode);
        Ok(Step::Over)
    }

    /// Ends a walk of leaving: only the root still counts in the tree, and now leaves it. To be called with the
    /// root's names held.
    async fn end_leaving(&self, top: &Arc<Node>, to: Option<Inode>) -> Result<Step> {
        let parent = self.parent_of(top).await?;
        let done = self
            .state
            .retry(|| {
                let mut locked = Locked::all(&[top, &parent]);
                let holder = locked.of(&parent).record.tree;
                let state = locked.of(top);
                let moved = state
                    .record
                    .directory()
                    .is_none_or(|own| own.parent != parent.inode);
                if state.has_no_name() || moved || holder != to {
                    return Ok(false);
                }
                let mut record = state.record.clone();
                record.tree = to;
                let mut change = NameChange::default();
                change.set(top, record);
                change.names.delete(&Key::Quota(top.inode));
                self.state.record_names(change, &mut locked).map(|_| true)
            })
            .await?;
        if done {
            self.state.accounts.settled(top.inode);
        }
        Ok(Step::Over)
    }

    /// The limits of a tree, if it has a quota.
    pub(super) async fn quota_of(&self, root: Inode) -> Result<Option<QuotaRecord>> {
        self.state
            .catalog
            .record(&Key::Quota(root))
            .await
            .map_err(|error| self.state.store_failed(error))
    }

    /// The tree in which the parent of a directory counts.
    async fn tree_of_parent(&self, node: &Arc<Node>) -> Result<Option<Inode>> {
        let parent = self.parent_of(node).await?;
        let tree = parent.lock_directory()?.record.tree;
        Ok(tree)
    }

    async fn parent_of(&self, node: &Arc<Node>) -> Result<Arc<Node>> {
        let parent = node
            .lock_directory()?
            .record
            .directory()
            .map(|own| own.parent);
        self.state.node(parent.ok_or(Error::NotDirectory)?).await
    }
}
