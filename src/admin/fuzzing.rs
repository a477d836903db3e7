//! The messages of the control socket, for the fuzz targets. Each function parses one, and encodes the result again.

use super::message::{Reply, Request, to_line};

/// Parses a client's request.
pub fn request(line: &[u8]) -> Option<Vec<u8>> {
    let request: Request = serde_json::from_slice(line).ok()?;
    to_line(&request).ok()
}

/// Parses a gateway's reply; returns it encoded and as shown to a user.
pub fn reply(line: &[u8]) -> Option<(Vec<u8>, String)> {
    let reply: Reply = serde_json::from_slice(line).ok()?;
    let shown = match &reply {
        Reply::Exports(exports) => exports.iter().map(ToString::to_string).collect(),
        Reply::Flush(report) => report.to_string(),
        Reply::Status(status) => status.to_string(),
        Reply::Quota(quotas) => super::QuotaTable(quotas).to_string(),
        Reply::Snapshot(snapshots) => super::SnapshotTable(snapshots).to_string(),
        Reply::Restored(report) => report.to_string(),
        Reply::Trashed(rows) => super::TrashTable(rows).to_string(),
        Reply::Trash(report) => super::TrashTable(&report.objects).to_string(),
        Reply::Scrub(report) => report.to_string(),
        Reply::Live(live) => format!("{live:?}"),
        Reply::Gc(report) => report.to_string(),
        Reply::Where(report) => report.to_string(),
        Reply::Seen(objects) => objects.to_string(),
        Reply::Events(events) => events.iter().map(ToString::to_string).collect(),
        Reply::Event(event) => event.to_string(),
        Reply::Tracing => String::new(),
        Reply::Call(call) => call.to_string(),
        Reply::Lost(count) => count.to_string(),
        Reply::Opening(text) | Reply::Error(text) => text.clone(),
    };
    Some((to_line(&reply).ok()?, shown))
}
