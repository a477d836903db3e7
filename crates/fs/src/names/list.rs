//! READDIR and READDIRPLUS.

use bytes::Bytes;
use forebay_types::Inode;
use forebay_vfs::{Attributes, Credentials, DirectoryEntry, Listing, Result, permission};

use super::{DOT_COOKIE, DOT_DOT_COOKIE};
use crate::convert::owned;
use crate::core::Core;

impl Core {
    pub(crate) async fn readdir(
        &self,
        who: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        let directory = self.directory(directory).await?;
        let (attributes, parent, may_search) = {
            let state = directory.lock_directory()?;
            permission::may_list(owned(&state.record), who)?;
            let parent = state
                .record
                .directory()
                .map_or(Inode::ROOT, |own| own.parent);
            let may_search = permission::may_search(owned(&state.record), who).is_ok();
            (directory.attributes(&state), parent, may_search)
        };
        let mut entries = Vec::new();
        for (own, inode, name) in [
            (DOT_COOKIE, directory.inode, &b"."[..]),
            (DOT_DOT_COOKIE, parent, b".."),
        ] {
            if cookie < own && entries.len() < max_entries {
                entries.push(DirectoryEntry {
                    cookie: own,
                    inode,
                    name: Bytes::from_static(name),
                    attributes: None,
                });
            }
        }
        let wanted = max_entries.max(1) - entries.len();
        let mut end = false;
        if wanted > 0 {
            let found = self
                .catalog
                .cookies_after(directory.inode, cookie.max(DOT_DOT_COOKIE), wanted)
                .await
                .map_err(|error| self.store_failed(error))?;
            end = found.len() < wanted;
            entries.extend(found.into_iter().map(|(cookie, record)| DirectoryEntry {
                cookie,
                inode: record.inode,
                name: record.name,
                attributes: None,
            }));
        }
        // Who may read the names only learns nothing of what they name: no handle either.
        if with_attributes && may_search {
            for entry in &mut entries {
                entry.attributes = self.attributes_of(entry.inode).await;
            }
        }
        Ok(Listing {
            directory: attributes,
            entries,
            end,
        })
    }

    /// The attributes of an object that may have gone meanwhile.
    async fn attributes_of(&self, inode: Inode) -> Option<Attributes> {
        let node = self.node(inode).await.ok()?;
        let state = node.lock_live().ok()?;
        Some(node.attributes(&state))
    }
}
