//! The report for people.

use std::fmt::Write;

use bytesize::ByteSize;
use forebay_fsck::{Amount, Report};

use crate::held::{self, Holder};

pub(super) fn report(report: &Report, holders: &[Holder<'_>]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(report, holders, &mut out);
    out
}

fn write(report: &Report, holders: &[Holder<'_>], out: &mut String) -> std::fmt::Result {
    for (name, count, kept) in report.findings.kinds() {
        writeln!(out, "{name}: {count}")?;
        for finding in kept {
            let path = finding.inode().and_then(|inode| report.paths.get(&inode));
            match path.map(String::as_str).or(finding.path_then()) {
                Some(path) => writeln!(out, "  {path}: {finding}")?,
                None => writeln!(out, "  {finding}")?,
            }
        }
        let more = count.saturating_sub(kept.len() as u64);
        if more > 0 {
            writeln!(out, "  and {more} more: --all prints them")?;
        }
    }
    write_census(report, holders, out)?;
    let kinds = report.findings.kinds().count();
    match report.findings.count() {
        0 => writeln!(out, "the volume is consistent"),
        1 => writeln!(out, "1 finding; docs/fsck.md explains it and the repair"),
        count => writeln!(
            out,
            "{count} findings of {kinds} kinds; docs/fsck.md explains them and the repair"
        ),
    }
}

fn write_census(report: &Report, holders: &[Holder<'_>], out: &mut String) -> std::fmt::Result {
    write!(out, "volume {}", report.volume)?;
    if let Some(state) = &report.state {
        write!(
            out,
            " as of LSN {} in epoch {}",
            state.published.0, state.epoch.0
        )?;
    }
    let census = &report.census;
    writeln!(
        out,
        ": {} objects, {} of them directories; {} names; {} in block maps; {} in {} packs",
        census.objects,
        census.directories,
        census.names,
        ByteSize(census.block_maps.bytes).display().iec(),
        ByteSize(census.packs.bytes).display().iec(),
        census.packs.count,
    )?;
    if census.snapshots > 0 {
        let Amount { count, bytes } = census.held_packs;
        let bytes = ByteSize(bytes).display().iec();
        let snapshots = census.snapshots;
        writeln!(
            out,
            "{snapshots} snapshots, for which {bytes} in {count} dead packs are held"
        )?;
        out.push_str(&held::lines(holders));
    }
    if report.read_data {
        let Amount { count, bytes } = census.frames_read;
        let bytes = ByteSize(bytes).display().iec();
        writeln!(out, "{count} frames were read and verified, {bytes}")?;
    } else {
        writeln!(out, "file data were not read: use --read-data for that")?;
    }
    let left = [
        (
            census.unreferenced_packs,
            "left over by gateways of earlier epochs; nothing refers to them",
        ),
        (
            census.packs_under_way,
            "of a checkpoint that is being published, or left over by a crash",
        ),
    ];
    for (Amount { count, bytes }, what) in left {
        if count > 0 {
            let bytes = ByteSize(bytes).display().iec();
            writeln!(out, "{count} more packs of {bytes} are {what}")?;
        }
    }
    if census.foreign_objects.count > 0 {
        let count = census.foreign_objects.count;
        writeln!(out, "{count} objects among the packs are not packs")?;
    }
    Ok(())
}
