//! Logs as text.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bytesize::ByteSize;
use forebay_salvage::logs::{Content, Event, Label, LogInfo, Logs, Salvage, SalvagedFile, What};

use super::MANIFEST_TEXT;

fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

pub(super) fn time(seconds: i64) -> String {
    match u64::try_from(seconds) {
        Ok(since) => {
            let time = UNIX_EPOCH.checked_add(Duration::from_secs(since));
            time.map_or_else(
                || format!("{seconds} s"),
                |time| humantime::format_rfc3339_seconds(time).to_string(),
            )
        }
        Err(_) => format!("{seconds} s"),
    }
}

/// All logs, one paragraph each. Writing to a `String` never fails.
pub(super) fn list(logs: &Logs) -> String {
    let mut text = String::new();
    for info in logs.list() {
        let _ = describe(&mut text, &info, logs.salvaged_to(&info.label).as_deref());
    }
    if text.is_empty() {
        text.push_str("there are no logs with content in this folder\n");
    }
    text
}

fn describe(text: &mut String, info: &LogInfo, salvaged: Option<&str>) -> std::fmt::Result {
    let summary = &info.summary;
    if !text.is_empty() {
        writeln!(text)?;
    }
    let kept = match info.label {
        Label::Current => "the log that the next start replays",
        Label::Archived(_) => "archived, never replayed",
    };
    writeln!(
        text,
        "{}: {kept}; {} on disk",
        info.label,
        size(info.disk_bytes)
    )?;
    let epochs: Vec<u64> = summary.segments.iter().map(|one| one.epoch.0).collect();
    if let (Some(first), Some(last)) = (epochs.iter().min(), epochs.iter().max()) {
        let volume = info
            .volume
            .map_or_else(String::new, |volume| volume.to_string());
        if first == last {
            writeln!(text, "  volume       {volume}, epoch {last}")?;
        } else {
            writeln!(text, "  volume       {volume}, epochs {first} to {last}")?;
        }
    }
    if let Some(note) = &info.note {
        let why = if note.taken_by.0 == note.gateway {
            "because the volume now has no log".to_owned()
        } else {
            format!("after epoch {} of another gateway", note.taken_by.1.0)
        };
        writeln!(text, "  archived     {}, {why}", time(note.archived_at))?;
    }
    writeln!(
        text,
        "  LSN          {} to {}, in {} segments; ends {}",
        summary.first,
        summary.end,
        summary.segments.len(),
        summary.ending
    )?;
    match info.published {
        Some(published) => writeln!(text, "  published    up to LSN {}", published.lsn)?,
        None => writeln!(
            text,
            "  published    not known; everything counts as unpublished"
        )?,
    }
    let unpublished = &info.unpublished;
    writeln!(
        text,
        "  unpublished  {} records: {} written to {} files, {} changes of names and attributes",
        unpublished.records,
        size(unpublished.data_bytes),
        unpublished.files.len(),
        unpublished.name_changes
    )?;
    let sealed = summary.segments.iter().filter(|one| one.sealed).count();
    match (sealed, summary.segments.len()) {
        (0, _) => {}
        (sealed, all) if sealed == all => writeln!(text, "  sealed       all of it")?,
        (sealed, all) => writeln!(text, "  sealed       {sealed} of its {all} segments")?,
    }
    if info.locked {
        writeln!(
            text,
            "  locked       only the volume's keys can show which files the records write to: set encryption, a passphrase, key file or KMS key, and --store"
        )?;
    }
    for file in &unpublished.files {
        let removed = if file.removed { ", removed since" } else { "" };
        writeln!(
            text,
            "    {:>10}  {} (inode {}){removed}",
            size(file.bytes),
            file.path,
            file.inode
        )?;
    }
    for gap in &summary.gaps {
        writeln!(
            text,
            "  gap          LSN {} to {}: {}",
            gap.from, gap.to, gap.why
        )?;
    }
    for (file, why) in &info.unusable {
        writeln!(text, "  unusable     {file}: {why}")?;
    }
    if let Some(folder) = salvaged {
        writeln!(text, "  salvaged to  {folder}")?;
    }
    Ok(())
}

/// One record on one line, or one line for each change of a batch.
pub(super) fn event(event: &Event<'_>) -> String {
    let lsn = event.lsn;
    match &event.what {
        What::Write {
            inode,
            offset,
            time: written,
            data,
            ..
        } => format!(
            "{lsn}  {}  write     inode {inode}: {} bytes at {offset}",
            time(written.seconds),
            data.len()
        ),
        What::Truncate { inode, record } => format!(
            "{lsn}  {}  truncate  inode {inode}: {} bytes",
            time(record.ctime.seconds),
            record.size
        ),
        What::Names(changes) => {
            let lines: Vec<String> = changes
                .iter()
                .map(|change| format!("{lsn}  names     {change}"))
                .collect();
            lines.join("\n")
        }
        What::Mark => format!("{lsn}  mark"),
        What::Snapshot { id, name } => {
            format!("{lsn}  snapshot {id}, {}", name.escape_debug())
        }
        What::Unknown(why) => format!("{lsn}  not understood: {why}"),
        What::Locked { bytes, .. } => format!("{lsn}  sealed, {bytes} bytes"),
        What::Gap(why) => format!("{lsn}  GAP up to {}: {why}", event.end),
    }
}

pub(super) fn content(content: &Content) -> String {
    match content {
        Content::Whole => "whole: the log has every byte".into(),
        Content::Merged => "whole: the log's bytes over those in the bucket".into(),
        Content::MergedWithLater => {
            "mixed: the log's bytes over those in the bucket, which another gateway has written to since".into()
        }
        Content::RangesOnly => "only the ranges below are right, the other bytes are zeros".into(),
        Content::BaseFailed(why) => {
            format!("only the ranges below are certain to be right: {why}")
        }
        Content::Removed => "removed by a client, nothing is kept".into(),
    }
}

/// The salvaged and the lost data, file by file.
pub(super) fn manifest(salvaged: &Salvage) -> String {
    let mut text = String::new();
    let _ = write_manifest(&mut text, salvaged);
    text
}

fn write_manifest(text: &mut String, salvaged: &Salvage) -> std::fmt::Result {
    let from = match salvaged.published {
        Some(published) => format!(
            "from LSN {} on; the bucket has everything before it",
            published.lsn
        ),
        None => "all of it: the published LSN is not known".to_owned(),
    };
    writeln!(
        text,
        "Log {}, up to LSN {}, {from}.",
        salvaged.label, salvaged.end
    )?;
    writeln!(text, "It ends {}.", salvaged.ending)?;
    if is_complete(salvaged) {
        writeln!(text, "It is complete.")?;
    } else {
        writeln!(
            text,
            "\nMISSING. The lists below may lack any of these changes:"
        )?;
        for gap in &salvaged.gaps {
            writeln!(text, "  LSN {} to {}: {}", gap.from, gap.to, gap.why)?;
        }
        for (file, why) in &salvaged.unusable {
            writeln!(text, "  {file}: {why}")?;
        }
        for (lsn, why) in &salvaged.not_understood {
            writeln!(text, "  LSN {lsn}: {why}")?;
        }
    }
    writeln!(text, "\nFILES that were written, created or truncated:")?;
    for file in &salvaged.files {
        write_file(text, file)?;
    }
    writeln!(
        text,
        "\nCHANGES of names and attributes, in their order (LSN first):"
    )?;
    for change in &salvaged.changes {
        writeln!(text, "  {}  {}", change.lsn, change.event)?;
    }
    Ok(())
}

fn write_file(text: &mut String, file: &SalvagedFile) -> std::fmt::Result {
    match &file.file {
        Some(path) => writeln!(text, "  {}", path.display())?,
        None => writeln!(text, "  (not kept)")?,
    }
    write!(
        text,
        "    {} (inode {}), {} bytes",
        file.path, file.inode, file.size
    )?;
    if let Some(record) = &file.attributes {
        write!(
            text,
            ", mode {:04o}, owner {}:{}",
            record.mode, record.uid, record.gid
        )?;
    }
    writeln!(text, "\n    {}", content(&file.content))?;
    for (start, end) in &file.ranges {
        writeln!(text, "    written: bytes {start} to {end}")?;
    }
    Ok(())
}

/// Whether all of the unpublished part could be read.
fn is_complete(salvaged: &Salvage) -> bool {
    salvaged.gaps.is_empty() && salvaged.unusable.is_empty() && salvaged.not_understood.is_empty()
}

/// The outcome of a salvage.
pub(super) fn outcome(salvaged: &Salvage, to: &Path) -> String {
    let kept = salvaged.files.iter().filter(|file| file.file.is_some());
    let missing = if is_complete(salvaged) {
        String::new()
    } else {
        "; parts of the log are damaged or missing".to_owned()
    };
    format!(
        "{} files and {} changes of names and attributes are in {}{missing}; {MANIFEST_TEXT} there says which parts of each file are right\n",
        kept.count(),
        salvaged.changes.len(),
        to.display()
    )
}

/// The deleted log.
pub(super) fn forgotten(info: &LogInfo, salvaged: Option<&str>, bytes: u64) -> String {
    let lost = match salvaged {
        Some(folder) => format!("it was salvaged to {folder}"),
        None => format!(
            "lost with it: {} records, {} written to {} files",
            info.unpublished.records,
            size(info.unpublished.data_bytes),
            info.unpublished.files.len()
        ),
    };
    format!("{} is deleted ({}); {lost}\n", info.label, size(bytes))
}
