//! Requests about the trash.

use forebay_fs::{TrashEntry, Volume, Wanted};
use forebay_types::Inode;

use crate::admin::{TrashReport, TrashRequest, TrashRow, VolumePath};

/// Objects in one reply of a list. With the longest paths it has some 12 MiB.
const PAGE: usize = 1024;

/// Executes a request.
pub(super) async fn answer(volume: &Volume, request: TrashRequest) -> Result<TrashReport, String> {
    let (wanted, to) = match request {
        TrashRequest::List { after } => {
            let after = after.map(|(until, id)| (until, Inode(id)));
            let found = volume.trash_after(after, PAGE).await;
            let found = found.map_err(|error| error.to_string())?;
            let last = found.last().filter(|_| found.len() == PAGE);
            return Ok(TrashReport {
                next: last.map(|last| (last.until, last.inode.0)),
                left: 0,
                objects: found.into_iter().map(row).collect(),
            });
        }
        TrashRequest::Path { path, to } => (Wanted::Path(path.0), to),
        TrashRequest::Id { id, to } => (Wanted::Id(Inode(id)), to),
    };
    let to = to.as_ref().map(|VolumePath(to)| to.as_slice());
    let (back, left) = volume
        .undelete(&wanted, to)
        .await
        .map_err(|error| error.to_string())?;
    Ok(TrashReport {
        objects: back.into_iter().map(row).collect(),
        left,
        next: None,
    })
}

fn row(entry: TrashEntry) -> TrashRow {
    let kind = match entry.is_directory {
        true => "directory",
        false => "file",
    };
    TrashRow {
        id: entry.inode.0,
        path: entry.path.map(VolumePath),
        name: VolumePath(entry.name.to_vec()),
        kind: kind.to_owned(),
        size_bytes: entry.size,
        removed: entry.removed.seconds,
        removed_by: entry.by,
        until: entry.until,
    }
}
