//! Requests about the trash.

use forebay_fs::{TrashEntry, Undeleted, Volume, Wanted};
use forebay_types::Inode;
use tokio::sync::mpsc;

use crate::admin::{TrashReport, TrashRequest, TrashRow, VolumePath};

/// Objects in one reply of a list; fewer where paths are long.
const PAGE: usize = 1024;
/// Objects that are back in one line of a reply, and bytes of their paths.
const PART: usize = 256;
const PART_BYTES: usize = 1 << 20;

/// Executes a request. What is brought back goes to `some` as it comes, and the rest is in the report.
pub(super) async fn answer(
    volume: &Volume,
    request: TrashRequest,
    some: mpsc::Sender<Vec<TrashRow>>,
) -> Result<TrashReport, String> {
    let (wanted, to) = match request {
        TrashRequest::List { after } => {
            let after = after.map(|(until, id)| (until, Inode(id)));
            let page = volume.trash_after(after, PAGE).await;
            let page = page.map_err(|error| error.to_string())?;
            return Ok(TrashReport {
                next: page.next.map(|(until, inode)| (until, inode.0)),
                left: 0,
                objects: page.entries.into_iter().map(row).collect(),
            });
        }
        TrashRequest::Path { path, to } => (Wanted::Path(path.0), to),
        TrashRequest::Id { id, to } => (Wanted::Id(Inode(id)), to),
    };
    let (send, back) = mpsc::channel(PART);
    let volume = volume.clone();
    let undelete = async move {
        let to = to.as_ref().map(|VolumePath(to)| to.as_slice());
        // The other side of the channel ends with `send`.
        volume.undelete(&wanted, to, &send).await
    };
    // A task of its own: it may hold a lock of the trash, and must not stop there for a client that reads slowly.
    let undelete = tokio::spawn(Box::pin(undelete));
    let objects = pass_on(back, &some).await;
    let why = match undelete.await {
        Ok(Ok(Undeleted { left, .. })) => {
            return Ok(TrashReport {
                objects,
                left,
                next: None,
            });
        }
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    // These are back all the same.
    if !objects.is_empty() {
        let _ = some.send(objects).await;
    }
    Err(why)
}

/// Passes on what is back, many at a time, and returns the rest.
async fn pass_on(
    mut back: mpsc::Receiver<TrashEntry>,
    some: &mpsc::Sender<Vec<TrashRow>>,
) -> Vec<TrashRow> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(entry) = back.recv().await {
        if rows.len() == PART || bytes >= PART_BYTES {
            // The client may be gone.
            let _ = some.send(std::mem::take(&mut rows)).await;
            bytes = 0;
        }
        bytes += entry.path.as_ref().map_or(0, Vec::len);
        rows.push(row(entry));
    }
    rows
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
