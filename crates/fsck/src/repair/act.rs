//! Chooses the phase and the step for each kind of finding: the table is in the documentation of the module above.

use forebay_meta::record::{Content, FrameAddress, UsageRecord, VolumeState};
use forebay_meta::{Key, StoreError};
use forebay_types::Inode;

use super::work::Work;
use super::{maps, names, packs, records, snapshots, trash, trees};
use crate::bucket::Bucket;
use crate::ended::Ended;
use crate::finding::{Finding, VolumeCount};

/// Number of phases of a repair.
const PHASES: u8 = 12;

/// Runs the first phase that can repair some of the findings.
pub(super) async fn treat(work: &mut Work<'_>, bucket: &Bucket) -> Result<(), Ended> {
    let report = work.report;
    for phase in 0..PHASES {
        let findings = report.findings.kinds().flat_map(|(_, _, kept)| kept);
        for finding in findings.filter(|finding| phase_of(finding) == Some(phase)) {
            one(work, bucket, finding).await?;
            work.settle().await?;
        }
        work.commit().await?;
        if work.steps > 0 {
            break;
        }
    }
    Ok(())
}

/// The phase that repairs a finding; `None` if only a copy of the bucket can.
fn phase_of(finding: &Finding) -> Option<u8> {
    Some(match finding {
        Finding::DamagedRecord { .. }
        | Finding::NoVolumeState
        | Finding::NextInodeTooLow { .. }
        | Finding::NextPackTooLow { .. }
        | Finding::HistoryTooLow { .. }
        | Finding::NextCookieTooLow { .. } => 0,
        Finding::BadRoot { .. }
        | Finding::NamesInNoDirectory { .. }
        | Finding::BlocksWithoutFile { .. } => 1,
        Finding::NameWithoutObject { .. }
        | Finding::WrongKind { .. }
        | Finding::BadName { .. }
        | Finding::NameWithoutCookie { .. }
        | Finding::NameAndCookieDiffer { .. }
        | Finding::ManyNames { .. }
        | Finding::WrongParent { .. } => 2,
        // In this order, so that a name which its cookie has kept comes back before `lost+found` is needed.
        Finding::CookieWithoutName { .. } | Finding::Orphan { .. } => 3,
        Finding::Loop { .. } => 4,
        Finding::BadAttributes { .. }
        | Finding::WrongLinkCount { .. }
        | Finding::WrongEntryCount { .. }
        | Finding::BlockBehindEnd { .. }
        | Finding::GarbageOfLiving { .. }
        | Finding::CollectedBlock { .. }
        | Finding::TrashOfNothing { .. }
        | Finding::QuotaOfNoDirectory { .. } => 5,
        Finding::WrongUsed { .. }
        | Finding::TreeWithoutQuota { .. }
        | Finding::WrongTree { .. } => 6,
        Finding::PackWithoutAccount { .. }
        | Finding::WrongLiveBytes { .. }
        | Finding::DeadPackInUse { .. }
        | Finding::HeldPackInUse { .. }
        | Finding::WrongUsage { .. }
        | Finding::WrongVolumeCount { .. } => 7,
        Finding::BadPackAccount { .. } => 8,
        Finding::WrongHolder { is: Some(_), .. }
        | Finding::WrongMark { .. }
        | Finding::WrongTrashMark { .. }
        | Finding::WrongTrashOwner { .. }
        | Finding::PackNotHeld { .. }
        | Finding::SnapshotsWithOneName { .. } => 9,
        // A snapshot may refer to the pack although its record says otherwise, which is repaired before.
        Finding::WrongHolder { is: None, .. }
        | Finding::ImpossibleFrame { .. }
        | Finding::CheckOfNoPack { .. }
        | Finding::NoteWithoutPack { .. }
        | Finding::ImpossibleNote { .. } => 10,
        // From the block maps that are left.
        Finding::MissingSharers { .. } => 11,
        Finding::UnknownEntry { .. }
        | Finding::DamagedHolder { .. }
        | Finding::DamagedMetadata { .. }
        | Finding::MissingPack { .. }
        | Finding::WrongPackLength { .. }
        | Finding::DamagedFrame { .. }
        | Finding::DamagedFrameOfSnapshot { .. }
        | Finding::UnreadableSnapshot { .. }
        | Finding::DamagedPack { .. } => return None,
    })
}

/// Repairs a finding if that is possible.
async fn one(work: &mut Work<'_>, bucket: &Bucket, finding: &Finding) -> Result<(), Ended> {
    let on = finding;
    match finding {
        Finding::DamagedRecord { key, why } => {
            records::damaged(work, on, bucket, (key, why)).await?
        }
        Finding::NoVolumeState => records::state(work, on, bucket).await?,
        Finding::NextInodeTooLow { highest, .. } => {
            work.take_number(*highest).await?;
            work.did(
                on,
                format!(
                    "set the next inode number to {}",
                    highest.0.saturating_add(1)
                ),
            );
        }
        Finding::NextPackTooLow { highest, .. } => {
            let next = highest.0.saturating_add(1);
            if edit_state(work, |state| state.next_pack = next).await? {
                work.did(on, format!("set the next pack number to {next:016x}"));
            }
        }
        Finding::HistoryTooLow { count, highest, .. } => {
            let change = |state: &mut VolumeState| snapshots::raise(state, *count, *highest);
            if edit_state(work, change).await? {
                work.did(
                    on,
                    format!("set the last {count} of the volume to {highest}"),
                );
            }
        }
        Finding::NextCookieTooLow { inode, highest, .. } => {
            names::next_cookie(work, on, (*inode, *highest)).await?;
        }
        Finding::BadRoot { .. } => names::root(work, on).await?,
        Finding::NamesInNoDirectory { directory, entries } => {
            names::of_no_directory(work, on, (*directory, *entries)).await?;
        }
        Finding::BlocksWithoutFile { inode, blocks, .. } => {
            maps::without_file(work, on, (*inode, *blocks)).await?;
        }
        Finding::NameWithoutObject {
            directory,
            name,
            inode,
        } => {
            names::of_nothing(work, on, (*directory, name, *inode)).await?;
        }
        Finding::WrongKind {
            directory,
            name,
            inode,
            ..
        } => {
            names::kind(work, on, (*directory, name, *inode)).await?;
        }
        Finding::BadName {
            directory, name, ..
        } => {
            names::unusable(work, on, (*directory, name)).await?;
        }
        Finding::NameWithoutCookie {
            directory, name, ..
        }
        | Finding::NameAndCookieDiffer {
            directory, name, ..
        } => {
            names::differ(work, on, (*directory, name)).await?;
        }
        Finding::CookieWithoutName {
            directory,
            name,
            cookie,
        } => {
            names::cookie_without_name(work, on, (*directory, name, *cookie)).await?;
        }
        Finding::ManyNames { inode, .. } => names::many(work, on, *inode).await?,
        Finding::WrongParent { inode, is, .. } => {
            if work.edit_directory(*inode, |own| own.parent = *is).await? {
                work.did(
                    on,
                    format!("set the parent of directory {inode} to directory {is}"),
                );
            }
        }
        Finding::Orphan { inode, .. } => names::orphan(work, on, *inode).await?,
        Finding::Loop { inode, .. } => names::around(work, on, *inode).await?,
        Finding::BadAttributes { inode, .. } => attributes(work, on, *inode).await?,
        Finding::WrongLinkCount { inode, is, .. } => {
            let links = u32::try_from(*is).unwrap_or(u32::MAX);
            if work.edit(*inode, |record| record.nlink = links).await? {
                work.did(
                    on,
                    format!("set the link count of inode {inode} to {links}"),
                );
            }
        }
        Finding::WrongEntryCount { inode, is, .. } => {
            if work.edit_directory(*inode, |own| own.entries = *is).await? {
                work.did(
                    on,
                    format!("set the number of names of directory {inode} to {is}"),
                );
            }
        }
        Finding::BlockBehindEnd { inode, block, size } => {
            maps::behind_end(work, on, (*inode, *block, *size)).await?;
        }
        Finding::GarbageOfLiving { inode } => maps::living(work, on, *inode),
        Finding::CollectedBlock { inode, block, .. } => {
            maps::collected(work, on, (*inode, *block)).await?;
        }
        Finding::TrashOfNothing { inode, .. } => trash::of_nothing(work, on, *inode).await?,
        Finding::WrongTrashMark { inode, until, .. } => {
            trash::mark(work, on, (*inode, *until)).await?;
        }
        Finding::WrongTrashOwner { inode, uid, .. } => {
            trash::owner(work, on, (*inode, *uid)).await?;
        }
        Finding::QuotaOfNoDirectory { inode, .. } => trees::quota(work, on, *inode).await?,
        Finding::WrongUsed { inode, is, .. } => maps::used(work, on, (*inode, *is)).await?,
        Finding::TreeWithoutQuota { inode, files } => {
            trees::without_quota(work, on, (*inode, *files)).await?;
        }
        Finding::WrongTree { inode, is, .. } => trees::wrong(work, on, (*inode, *is)).await?,
        Finding::PackWithoutAccount { pack, bytes } => {
            packs::without_account(work, on, bucket, (*pack, *bytes)).await?;
        }
        Finding::WrongLiveBytes { pack, is, .. } => {
            packs::live_bytes(work, on, bucket, (*pack, *is)).await?;
        }
        Finding::DeadPackInUse { pack, bytes, .. } => {
            packs::dead_in_use(work, on, bucket, (*pack, *bytes)).await?;
        }
        Finding::HeldPackInUse { pack, bytes, .. } => {
            packs::held_in_use(work, on, bucket, (*pack, *bytes)).await?;
        }
        Finding::WrongHolder { is: None, .. } if !work.reads_past => {}
        Finding::WrongHolder { pack, is, .. } => {
            snapshots::holder_of(work, on, (*pack, *is)).await?;
        }
        Finding::WrongMark { snapshot, pack, .. } => {
            snapshots::mark(work, on, bucket, (*snapshot, *pack)).await?;
        }
        Finding::PackNotHeld { snapshot, pack, .. } => {
            snapshots::keep_for(work, on, bucket, (*snapshot, *pack)).await?;
        }
        Finding::SnapshotsWithOneName { snapshot, .. } => {
            snapshots::other_name(work, on, *snapshot).await?;
        }
        Finding::WrongUsage {
            inode,
            is_bytes,
            is_files,
            ..
        } => {
            let is = UsageRecord {
                bytes: *is_bytes,
                files: *is_files,
            };
            trees::usage(work, on, (*inode, is)).await?;
        }
        Finding::WrongVolumeCount { count, is, .. } => {
            let set = |state: &mut VolumeState| match count {
                VolumeCount::UsedBytes => state.used_bytes = *is,
                VolumeCount::Objects => state.used_inodes = *is,
                VolumeCount::ChargedBytes => state.charged_bytes = Some(*is),
                VolumeCount::TrashObjects => state.trash.files = *is,
                VolumeCount::TrashBytes => state.trash.bytes = *is,
                VolumeCount::HeldBytes => {
                    snapshots::write_history(state);
                    state.history.held_bytes = *is;
                }
            };
            if edit_state(work, set).await? {
                work.did(on, format!("set the volume's count of {count} to {is}"));
            }
        }
        Finding::BadPackAccount { pack, .. } => {
            packs::bad_account(work, on, bucket, *pack).await?;
        }
        Finding::ImpossibleFrame {
            inode,
            block,
            pack,
            offset,
            ..
        } => {
            let is_behind = packs::is_as_counted(work, bucket, *pack).await?;
            let is_wrong =
                |frame: &FrameAddress| is_behind && (frame.pack, frame.offset) == (*pack, *offset);
            maps::impossible_frame(work, on, (*inode, *block), is_wrong).await?;
        }
        Finding::CheckOfNoPack { pack } => {
            work.delete(&Key::Scrub(*pack));
            work.did(on, format!("removed the scrub result of pack {pack}"));
        }
        Finding::NoteWithoutPack { pack, .. } => {
            packs::forget_sharers(work, *pack).await?;
            packs::forget_frames(work, on, *pack).await?;
        }
        Finding::ImpossibleNote { pack, .. } => packs::forget_frames(work, on, *pack).await?,
        Finding::MissingSharers { .. } => packs::note_sharers(work).await?,
        Finding::UnknownEntry { .. }
        | Finding::DamagedHolder { .. }
        | Finding::DamagedMetadata { .. }
        | Finding::MissingPack { .. }
        | Finding::WrongPackLength { .. }
        | Finding::DamagedFrame { .. }
        | Finding::DamagedFrameOfSnapshot { .. }
        | Finding::UnreadableSnapshot { .. }
        | Finding::DamagedPack { .. } => {}
    }
    Ok(())
}

async fn edit_state(
    work: &mut Work<'_>,
    change: impl FnOnce(&mut VolumeState),
) -> Result<bool, StoreError> {
    let Some(mut state) = work.get::<VolumeState>(&Key::Volume).await? else {
        return Ok(false);
    };
    change(&mut state);
    work.put(&Key::Volume, &state);
    Ok(true)
}

/// Repairs attributes that no gateway writes.
async fn attributes(
    work: &mut Work<'_>,
    finding: &Finding,
    inode: Inode,
) -> Result<(), StoreError> {
    let Some(before) = work.inode(inode).await? else {
        return Ok(());
    };
    let mut record = before.clone();
    record.mode &= 0o7777;
    match &record.content {
        Content::Regular => {}
        Content::Symlink { target } => {
            (record.size, record.used) = (target.len() as u64, 0);
        }
        _ => record.used = 0,
    }
    if record != before {
        work.put(&Key::Inode(inode), &record);
        let what = format!(
            "set mode {:o} and size {} of inode {inode}",
            record.mode, record.size
        );
        work.did(finding, what);
    }
    Ok(())
}
