//! What is in the trash: objects and their entries, one or many at a time.

use std::collections::HashMap;

use forebay_meta::record::{InodeRecord, Kind, TrashRecord, round_up};
use forebay_meta::{Key, KeyRange};
use forebay_types::{Inode, to_usize};
use forebay_vfs::{Attributes, Error, Result};
use forebay_view::convert;
use forebay_waits::{For, waiting};
use futures_util::StreamExt;

use crate::files::Files;
use crate::files::names::list::{SCANS, stretches};
use crate::state::{Node, NodeState};

/// An object in the trash.
#[derive(Clone, Debug)]
pub(super) struct Removed {
    pub(super) record: InodeRecord,
    pub(super) entry: TrashRecord,
    /// Bytes that it takes.
    used: u64,
}

impl Removed {
    pub(super) fn is_file(&self) -> bool {
        self.record.kind() == Kind::Regular
    }

    /// Its attributes for clients, for which it has one name.
    pub(super) fn attributes(&self, inode: Inode) -> Attributes {
        shown(convert::attributes(inode, &self.record, self.used))
    }
}

/// The attributes of a file in the trash as clients see them: it has one name, `.trash/NAME`.
pub(super) fn shown(attributes: Attributes) -> Attributes {
    Attributes {
        nlink: 1,
        ..attributes
    }
}

/// The record and the space of an object, if it is in the trash.
fn of_node(node: &Node) -> Option<(InodeRecord, u64)> {
    let state = node.lock();
    let of = |state: &NodeState| (state.record.clone(), round_up(state.space()));
    state.is_in_trash().then(|| of(&state))
}

/// The same for an object of which nothing is in memory.
fn of_record(record: InodeRecord) -> Option<(InodeRecord, u64)> {
    let used = round_up(record.used.min(record.size));
    record.is_in_trash().then_some((record, used))
}

impl Files {
    /// An object in the trash and its entry; `None` if it is not there.
    pub(super) async fn in_trash(&self, inode: Inode) -> Result<Option<Removed>> {
        let found = match self.state.nodes.peek(inode) {
            Some(node) => of_node(&node),
            // Nothing of it is unpublished.
            None => {
                let record = self.state.catalog.inode(inode).await;
                let record = record.map_err(|error| self.state.store_failed(error))?;
                record.and_then(of_record)
            }
        };
        let Some((record, used)) = found else {
            return Ok(None);
        };
        let entry = self.state.catalog.record(&Key::Trash(inode)).await;
        let entry: Option<TrashRecord> = entry.map_err(|error| self.state.store_failed(error))?;
        Ok(entry.map(|entry| Removed {
            record,
            entry,
            used,
        }))
    }

    /// Those of these objects that are in the trash. Reads neighbours together; leaves out those that cannot be read for
    /// damage, which is in the log.
    pub(super) async fn all_in_trash(&self, inodes: &[Inode]) -> Result<HashMap<Inode, Removed>> {
        // An object that is not in memory after the read has no unpublished change. If no checkpoint has closed since, what
        // was read is the newest state.
        let closings = self.state.catalog.overlay().closings();
        let (mut records, _) = self.read_inodes(inodes).await;
        let mut entries = self.read_entries(inodes).await;
        let is_newest = self.state.catalog.overlay().closings() == closings;
        let mut found = HashMap::with_capacity(inodes.len());
        for inode in inodes.iter().copied() {
            let record = match self.state.nodes.peek(inode) {
                Some(node) => of_node(&node),
                None => records
                    .remove(&inode)
                    .filter(|_| is_newest)
                    .and_then(of_record),
            };
            let removed = match (record, entries.remove(&inode)) {
                (Some((record, used)), Some(entry)) => Some(Removed {
                    record,
                    entry,
                    used,
                }),
                // It changes now, or one of the two cannot be read with its neighbours.
                _ => match self.in_trash(inode).await {
                    Err(Error::Io) => None,
                    removed => removed?,
                },
            };
            found.extend(removed.map(|removed| (inode, removed)));
        }
        Ok(found)
    }

    /// The entries of these objects, as far as they can be read now.
    async fn read_entries(&self, inodes: &[Inode]) -> HashMap<Inode, TrashRecord> {
        let scans = stretches(inodes.to_vec())
            .into_iter()
            .map(|(first, last)| async move {
                let catalog = &self.state.catalog;
                if first == last {
                    let key = Key::Trash(first);
                    let entry = catalog.record::<TrashRecord>(&key).await?;
                    return Ok(entry.map(|entry| (key, entry)).into_iter().collect());
                }
                let range = KeyRange::trash_between(Inode(first.0.saturating_sub(1)), last);
                let most = to_usize(last.0 - first.0).saturating_add(1);
                catalog.records::<TrashRecord>(&range, most).await
            });
        let mut scans = futures_util::stream::iter(scans).buffer_unordered(SCANS);
        let mut found = HashMap::new();
        while let Some(scan) = waiting(For::Bucket, scans.next()).await {
            let Ok(entries) = scan else { break };
            found.extend(entries.into_iter().filter_map(|(key, entry)| match key {
                Key::Trash(inode) => Some((inode, entry)),
                _ => None,
            }));
        }
        found
    }
}
