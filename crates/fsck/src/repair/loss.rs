//! Reports damage that cannot be repaired: bytes of files that lie in packs which are missing or cut off.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use forebay_meta::record::BlockMap;
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_pack::object_name;
use forebay_types::{BLOCK_SIZE, Inode, PackId};

use crate::finding::{Finding, Nobody};
use crate::paths;
use crate::report::Report;
use crate::source::{Cursor, Source};

/// Bytes of a file that cannot be read until the object is put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub inode: Inode,
    /// A path of it, if it has one.
    pub path: Option<String>,
    /// Offset of the first lost byte in the file.
    pub from: u64,
    /// One past the last lost byte.
    pub to: u64,
    /// The pack that held them.
    pub pack: PackId,
    /// Its object below the volume's prefix.
    pub object: String,
}

/// All losses.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Ranges of files; at most as many as findings of one kind are kept.
    pub kept: Vec<Loss>,
    /// Number of ranges.
    pub count: u64,
    /// Number of bytes in them.
    pub bytes: u64,
}

impl Losses {
    fn add(&mut self, loss: Loss, limit: usize) {
        self.bytes = self.bytes.saturating_add(loss.to.saturating_sub(loss.from));
        if let Some(last) = self.kept.last_mut()
            && (last.inode, last.pack, last.to) == (loss.inode, loss.pack, loss.from)
        {
            last.to = loss.to;
            return;
        }
        self.count += 1;
        if self.kept.len() < limit {
            self.kept.push(loss);
        }
    }
}

/// The ranges of files that lie in packs which `report` says are missing or cut off.
pub(super) async fn find(
    source: &Arc<dyn Source>,
    report: &Report,
    limit: usize,
) -> Result<Losses, StoreError> {
    let packs = broken(report);
    let mut losses = Losses::default();
    if packs.is_empty() {
        return Ok(losses);
    }
    let mut blocks = Cursor::new(source, KeyRange::blocks_from(Inode(0)));
    while let Some((key, map)) = blocks.record::<BlockMap>(&mut Nobody).await? {
        let (Key::Block(key), Some(map)) = (key, map) else {
            continue;
        };
        for extent in map.extents() {
            let frame = &extent.frame;
            let end = u64::from(frame.offset) + u64::from(frame.stored_len);
            if packs.get(&frame.pack).is_none_or(|len| end <= *len) {
                continue;
            }
            let begins = key.block.0.saturating_mul(BLOCK_SIZE);
            let loss = Loss {
                inode: key.inode,
                path: None,
                from: begins.saturating_add(extent.range.start),
                to: begins.saturating_add(extent.range.end),
                pack: frame.pack,
                object: object_name(frame.pack),
            };
            losses.add(loss, limit);
        }
    }
    let inodes: BTreeSet<Inode> = losses.kept.iter().map(|loss| loss.inode).collect();
    let paths: HashMap<Inode, String> = paths::find(source, &inodes).await?;
    for loss in &mut losses.kept {
        loss.path = paths.get(&loss.inode).cloned();
    }
    Ok(losses)
}

/// Packs that are not as they were written, and how many bytes of each the bucket has.
fn broken(report: &Report) -> BTreeMap<PackId, u64> {
    let findings = report.findings.kinds().flat_map(|(_, _, kept)| kept);
    let broken = findings.filter_map(|finding| match finding {
        Finding::MissingPack { pack, .. } | Finding::PackWithoutAccount { pack, .. } => {
            Some((*pack, 0))
        }
        Finding::WrongPackLength { pack, is, .. } => Some((*pack, *is)),
        _ => None,
    });
    broken.collect()
}
