//! Logs as JSON. Names and paths are text; bytes that are not UTF-8 are replaced.

use forebay_salvage::logs::{
    Ending, Event, Gap, LogInfo, Logs, NameEvent, Salvage, SalvagedFile, What,
};
use serde_json::{Value, json};

use super::text;

pub(super) fn list(logs: &Logs) -> Value {
    let log = |info: LogInfo| {
        let mut value = describe(&info);
        value["salvaged_to"] = json!(logs.salvaged_to(&info.label));
        value
    };
    logs.list().into_iter().map(log).collect()
}

fn describe(info: &LogInfo) -> Value {
    let summary = &info.summary;
    let segments: Vec<Value> = summary
        .segments
        .iter()
        .map(|one| {
            json!({
                "file": one.file, "epoch": one.epoch.0, "sealed": one.sealed, "base_lsn": one.base.0, "end_lsn": one.end.0,
                "data": {"records": one.data.records, "bytes": one.data.bytes},
                "metadata": {"records": one.metadata.records, "bytes": one.metadata.bytes},
                "truncate": {"records": one.truncate.records, "bytes": one.truncate.bytes},
                "snapshot": {"records": one.snapshot.records, "bytes": one.snapshot.bytes},
            })
        })
        .collect();
    let files: Vec<Value> = info
        .unpublished
        .files
        .iter()
        .map(|file| {
            json!({
                "inode": file.inode.0, "path": file.path, "bytes": file.bytes,
                "removed": file.removed,
            })
        })
        .collect();
    json!({
        "label": info.label.to_string(),
        "volume": info.volume.map(|volume| volume.to_string()),
        "put_aside_seconds": info.note.as_ref().map(|note| note.archived_at),
        "taken_by_epoch": info.note.as_ref().map(|note| note.taken_by.1.0),
        "disk_bytes": info.disk_bytes,
        "locked": info.locked,
        "first_lsn": summary.first.0,
        "end_lsn": summary.end.0,
        "ending": ending(&summary.ending),
        "published_lsn": info.published.map(|published| published.lsn.0),
        "segments": segments,
        "gaps": summary.gaps.iter().map(gap).collect::<Vec<_>>(),
        "unusable": info.unusable.iter().map(unusable).collect::<Vec<_>>(),
        "unpublished": {
            "records": info.unpublished.records,
            "data_bytes": info.unpublished.data_bytes,
            "name_changes": info.unpublished.name_changes,
            "files": files,
        },
    })
}

fn ending(ending: &Ending) -> Value {
    match ending {
        Ending::Clean => json!({"how": "clean"}),
        Ending::Torn => json!({"how": "torn"}),
        Ending::Damaged { durable_until } => {
            json!({"how": "damaged", "durable_until_lsn": durable_until.0})
        }
    }
}

fn gap(gap: &Gap) -> Value {
    json!({"from_lsn": gap.from.0, "to_lsn": gap.to.0, "why": gap.why.to_string()})
}

fn unusable((file, why): &(String, String)) -> Value {
    json!({"file": file, "why": why})
}

pub(super) fn event(event: &Event<'_>) -> Value {
    let mut value = match &event.what {
        What::Write {
            inode,
            offset,
            time,
            mode,
            data,
        } => json!({
            "kind": "write", "inode": inode.0, "offset": offset, "bytes": data.len(),
            "seconds": time.seconds, "nanoseconds": time.nanos, "mode": mode,
        }),
        What::Truncate { inode, record } => json!({
            "kind": "truncate", "inode": inode.0, "size": record.size,
            "seconds": record.ctime.seconds, "nanoseconds": record.ctime.nanos,
        }),
        What::Names(changes) => json!({
            "kind": "names", "changes": changes.iter().map(name_event).collect::<Vec<_>>(),
        }),
        What::Mark => json!({"kind": "mark"}),
        What::Snapshot { id, name } => json!({"kind": "snapshot", "id": id.0, "name": name}),
        What::Unknown(why) => json!({"kind": "not understood", "why": why}),
        What::Locked { bytes, .. } => json!({"kind": "sealed", "bytes": bytes}),
        What::Gap(why) => json!({"kind": "gap", "why": why.to_string()}),
    };
    value["lsn"] = json!(event.lsn.0);
    value["end_lsn"] = json!(event.end.0);
    value["epoch"] = json!(event.epoch.map(|epoch| epoch.0));
    value
}

fn name_event(event: &NameEvent) -> Value {
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match event {
        NameEvent::Object { inode, record } => json!({
            "change": "object", "inode": inode.0, "kind": record.kind() as u8, "size": record.size,
            "mode": record.mode, "uid": record.uid, "gid": record.gid, "links": record.nlink,
        }),
        NameEvent::Gone { inode } => json!({"change": "gone", "inode": inode.0}),
        NameEvent::Trash { inode, is_in } => {
            json!({"change": "trash", "inode": inode.0, "is_in": is_in})
        }
        NameEvent::Named {
            directory,
            name: called,
            inode,
        } => json!({
            "change": "named", "directory": directory.0, "name": name(called), "inode": inode.0,
        }),
        NameEvent::Unnamed {
            directory,
            name: called,
        } => json!({"change": "unnamed", "directory": directory.0, "name": name(called)}),
        NameEvent::Quota { root, quota } => json!({
            "change": "quota",
            "inode": root.0,
            "limit_bytes": quota.map(|quota| quota.limit_bytes).filter(|limit| *limit != u64::MAX),
            "limit_files": quota.map(|quota| quota.limit_files).filter(|limit| *limit != u64::MAX),
        }),
        NameEvent::Unknown(key) => json!({"change": "not understood", "key": key}),
    }
}

pub(super) fn manifest(salvaged: &Salvage) -> Value {
    let changes: Vec<Value> = salvaged
        .changes
        .iter()
        .map(|change| {
            let mut value = name_event(&change.event);
            value["lsn"] = json!(change.lsn.0);
            value
        })
        .collect();
    let not_understood = salvaged
        .not_understood
        .iter()
        .map(|(lsn, why)| json!({"lsn": lsn.0, "why": why}));
    json!({
        "label": salvaged.label.to_string(),
        "published_lsn": salvaged.published.map(|published| published.lsn.0),
        "end_lsn": salvaged.end.0,
        "ending": ending(&salvaged.ending),
        "files": salvaged.files.iter().map(file).collect::<Vec<_>>(),
        "changes": changes,
        "gaps": salvaged.gaps.iter().map(gap).collect::<Vec<_>>(),
        "unusable": salvaged.unusable.iter().map(unusable).collect::<Vec<_>>(),
        "not_understood": not_understood.collect::<Vec<_>>(),
    })
}

fn file(file: &SalvagedFile) -> Value {
    let attributes = file.attributes.as_ref().map(|record| {
        json!({
            "mode": record.mode, "uid": record.uid, "gid": record.gid,
            "mtime_seconds": record.mtime.seconds, "mtime_nanoseconds": record.mtime.nanos,
        })
    });
    json!({
        "inode": file.inode.0,
        "path": file.path,
        "file": file.file.as_ref().map(|path| path.to_string_lossy()),
        "size": file.size,
        "content": text::content(&file.content),
        "written": file.ranges,
        "attributes": attributes,
    })
}
