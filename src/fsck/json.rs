//! The report for programs; `docs/fsck.md` describes it.

use forebay_fsck::{Finding, Report};
use serde_json::{Value, json};

use crate::held::Holder;

pub(super) fn report(report: &Report, holders: &[Holder<'_>]) -> serde_json::Result<Value> {
    let mut findings = Vec::new();
    for (name, count, kept) in report.findings.kinds() {
        let examples: serde_json::Result<Vec<Value>> = kept
            .iter()
            .map(|finding| example(report, finding))
            .collect();
        findings.push(json!({ "finding": name, "count": count, "examples": examples? }));
    }
    let state = report.state.as_ref();
    Ok(json!({
        "volume": report.volume.to_string(),
        "clean": report.is_clean(),
        "read_data": report.read_data,
        "pinned": report.pinned,
        "published_lsn": state.map(|state| state.published.0),
        "epoch": state.map(|state| state.epoch.0),
        "census": report.census,
        "held_by": holders,
        "findings": findings,
    }))
}

fn example(report: &Report, finding: &Finding) -> serde_json::Result<Value> {
    let mut example = serde_json::to_value(finding)?;
    example["message"] = finding.to_string().into();
    if let Some(path) = finding.inode().and_then(|inode| report.paths.get(&inode)) {
        example["path"] = path.as_str().into();
    }
    Ok(example)
}
