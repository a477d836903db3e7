//! `forebay versions`.

use std::fmt::Write;
use std::sync::Arc;

use bytesize::ByteSize;
use forebay_changes::{Found, Moment, Version, find, versions};
use forebay_meta::record::{Kind, SnapshotRecord};
use forebay_meta::{Catalog, MetaStore, Overlay, SlateReader};
use forebay_types::SnapshotId;
use forebay_view::{Published, SnapshotAway, ViewError};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::admin::{VolumePath, utc};

/// Snapshots that are open at the same time.
const PARALLEL: usize = 8;

/// A snapshot, or the newest state: `None`.
type At<'a> = Option<(SnapshotId, &'a SnapshotRecord)>;

/// A version, for programs.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Report {
    /// The first and the last of the consecutive moments that have it.
    first: MomentReport,
    last: MomentReport,
    moments: usize,
    /// What differs from the version before: `made`, `content`, `attributes`, or `absent`.
    change: &'static str,
    /// Null, as all others, where nothing has the path.
    inode: Option<u64>,
    kind: Option<&'static str>,
    size_bytes: Option<u64>,
    mtime: Option<i64>,
    mtime_nanos: Option<u32>,
}

/// A snapshot; all null for the newest state.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct MomentReport {
    snapshot: Option<u64>,
    name: Option<String>,
    made: Option<i64>,
}

/// The versions of a path, as text.
pub(super) async fn said(
    published: &Published,
    path: &VolumePath,
    json: bool,
) -> Result<String, String> {
    let found = moments(published, &path.0).await;
    let found = found.map_err(|error| error.to_string())?;
    if found.iter().all(|moment| moment.found.is_none()) {
        let path = path.0.escape_ascii();
        return Err(format!(
            "there is no {path} in the newest published state nor in a snapshot"
        ));
    }
    let versions = versions(found);
    if !json {
        return Ok(text(&versions));
    }
    let text = serde_json::to_string_pretty(&reports(&versions));
    text.map(|text| format!("{text}\n"))
        .map_err(|error| error.to_string())
}

/// The path in each snapshot, the oldest first, and in the newest state.
async fn moments<'a>(
    published: &'a Published,
    path: &[u8],
) -> Result<Vec<Moment<At<'a>>>, ViewError> {
    let snapshots = published.snapshots().iter();
    let live = snapshots.filter(|(_, record)| !record.is_being_deleted);
    let lookups = live.map(|(id, record)| in_snapshot(published, (*id, record), path));
    let lookups = stream::iter(lookups).buffered(PARALLEL);
    let found = lookups.try_filter_map(async |moment| Ok(moment));
    let mut found: Vec<_> = found.try_collect().await?;
    found.push(Moment {
        moment: None,
        found: find(&catalog(published.newest()), path).await?,
    });
    Ok(found)
}

/// `None` if the bucket does not have the state of the snapshot now.
async fn in_snapshot<'a>(
    published: &Published,
    (id, record): (SnapshotId, &'a SnapshotRecord),
    path: &[u8],
) -> Result<Option<Moment<At<'a>>>, ViewError> {
    let state = match published.open_snapshot(id, record).await {
        Ok(state) => state,
        Err(ViewError::Snapshot(why @ (SnapshotAway::Gone(_) | SnapshotAway::NotPublished(_)))) => {
            tracing::warn!("{why}; it is left out");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let found = find(&catalog(&state), path).await;
    // A failure to end a reader says nothing about what it has read.
    let _ = state.close().await;
    Ok(Some(Moment {
        moment: Some((id, record)),
        found: found?,
    }))
}

fn catalog(state: &Arc<SlateReader>) -> Catalog {
    Catalog::new(Arc::new(Overlay::new()), state.clone())
}

/// How a version differs from the one before.
fn change(before: Option<&Found>, found: Option<&Found>) -> &'static str {
    match (before, found) {
        (_, None) => "absent",
        (Some(before), Some(found)) if before.inode == found.inode => {
            match (before.size, before.mtime) == (found.size, found.mtime) {
                true => "attributes",
                false => "content",
            }
        }
        _ => "made",
    }
}

fn each<'a, 'b>(
    versions: &'b [Version<At<'a>>],
) -> impl Iterator<Item = (&'b Version<At<'a>>, &'static str)> {
    let before = std::iter::once(None).chain(versions.iter().map(|version| version.found.as_ref()));
    let versions = versions.iter().zip(before);
    versions.map(|(version, before)| (version, change(before, version.found.as_ref())))
}

fn reports(versions: &[Version<At<'_>>]) -> Vec<Report> {
    let moment = |at: &At<'_>| MomentReport {
        snapshot: at.map(|(id, _)| id.0),
        name: at.map(|(_, record)| record.name.clone()),
        made: at.map(|(_, record)| record.made.seconds),
    };
    let reports = each(versions).map(|(version, change)| Report {
        first: moment(&version.first),
        last: moment(&version.last),
        moments: version.moments,
        change,
        inode: version.found.map(|found| found.inode.0),
        kind: version.found.map(|found| kind(found.kind)),
        size_bytes: version.found.map(|found| found.size),
        mtime: version.found.map(|found| found.mtime.seconds),
        mtime_nanos: version.found.map(|found| found.mtime.nanos),
    });
    reports.collect()
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        _ => "other",
    }
}

fn text(versions: &[Version<At<'_>>]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{:<20} {:>12}  {:<10}  in",
        "modified (UTC)", "size", "change"
    );
    for (version, change) in each(versions) {
        let (time, size) = match &version.found {
            Some(found) => {
                let size = ByteSize::b(found.size).display().iec().to_string();
                (utc(found.mtime.seconds), size)
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        let _ = write!(out, "{time:<20} {size:>12}  {change:<10}  ");
        let _ = match version.moments {
            1 => writeln!(out, "{}", name(&version.first)),
            moments => writeln!(
                out,
                "{} to {} ({moments})",
                name(&version.first),
                name(&version.last)
            ),
        };
    }
    out
}

/// A name must not send control characters to the terminal.
fn name(at: &At<'_>) -> String {
    match at {
        Some((id, record)) => format!(
            "{id} {} of {}",
            record.name.escape_debug(),
            utc(record.made.seconds)
        ),
        None => "the newest state".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::record::Timestamp;
    use forebay_types::{CommitNumber, Inode, Lsn};

    use super::*;

    fn record(name: &str) -> SnapshotRecord {
        SnapshotRecord {
            is_being_deleted: false,
            commit: CommitNumber(1),
            lsn: Lsn(0),
            used_bytes: 0,
            used_inodes: 1,
            made: Timestamp::default(),
            name: name.to_owned(),
            made_by: String::new(),
        }
    }

    fn file(inode: u64, size: u64, ctime: i64) -> Option<Found> {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        Some(Found {
            inode: Inode(inode),
            kind: Kind::Regular,
            size,
            mtime: at(60),
            ctime: at(ctime),
        })
    }

    #[test]
    fn versions_that_are_the_same_are_one_line() {
        let all = ["a", "b", "c\n", "d"].map(record);
        let at = |number: usize| Some((SnapshotId(number as u64 + 1), &all[number]));
        let found = [
            (at(0), file(5, 2048, 1)),
            (at(1), file(5, 2048, 1)),
            (at(2), None),
            (at(3), file(6, 1, 2)),
            (None, file(6, 1, 3)),
        ];
        let found = found.map(|(moment, found)| Moment { moment, found });
        let versions = versions(found);
        let expected = "\
modified (UTC)               size  change      in
1970-01-01T00:01:00Z      2.0 KiB  made        1 a of 1970-01-01T00:00:00Z to 2 b of 1970-01-01T00:00:00Z (2)
-                               -  absent      3 c\\n of 1970-01-01T00:00:00Z
1970-01-01T00:01:00Z          1 B  made        4 d of 1970-01-01T00:00:00Z
1970-01-01T00:01:00Z          1 B  attributes  the newest state
";
        assert_eq!(text(&versions), expected);
        let reports = reports(&versions);
        assert_eq!(reports.len(), 4);
        assert_eq!((reports[0].moments, reports[0].size_bytes), (2, Some(2048)));
        assert_eq!(reports[1].inode, None);
        assert_eq!(reports[3].first.snapshot, None);
    }
}
