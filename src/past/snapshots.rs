//! `forebay snapshot list --bucket` and `show --bucket`: what a running gateway prints, without one.

use forebay_view::Published;

use crate::admin::{SnapshotReport, SnapshotTable};

/// The list of the bucket's snapshots, or the one with this name, as text.
pub(super) async fn said(
    published: &Published,
    name: Option<&str>,
    json: bool,
) -> Result<String, String> {
    let holds = published.holds().await.map_err(|error| error.to_string())?;
    let reports = holds.into_iter().map(|(id, record, holds)| SnapshotReport {
        name: record.name.clone(),
        id: id.0,
        made: record.made.seconds,
        made_by: record.made_by.clone(),
        published: true,
        used_bytes: Some(record.used_bytes),
        used_files: Some(record.used_inodes),
        unique_bytes: Some(holds.unique_bytes),
        held_bytes: Some(holds.all_bytes),
    });
    let mut reports: Vec<_> = reports.collect();
    if let Some(name) = name {
        let (id, _) = published.find(name).map_err(|error| error.to_string())?;
        reports.retain(|report| report.id == id.0);
    }
    match json {
        true => {
            let text = serde_json::to_string_pretty(&reports);
            text.map(|text| format!("{text}\n"))
                .map_err(|error| error.to_string())
        }
        false => Ok(SnapshotTable(&reports).to_string()),
    }
}
