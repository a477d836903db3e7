//! Findings: inconsistencies, each kind with a name, a sentence, and the numbers in it.
//!
//! `docs/fsck.md` explains what each kind means and what to do about it.

use std::fmt;

use bytes::Bytes;
use forebay_meta::error::DisplayKey;
use forebay_meta::record::Kind;
use forebay_types::{Inode, PackId, SnapshotId};
use serde::{Serialize, Serializer};

/// A name in a directory. It is shown with every character escaped that is not plain.
#[derive(Clone, PartialEq, Eq)]
pub struct Name(pub Bytes);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn number<S: Serializer>(inode: &Inode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(inode.0)
}

fn number_or_none<S: Serializer>(inode: &Option<Inode>, serializer: S) -> Result<S::Ok, S::Error> {
    inode.map(|inode| inode.0).serialize(serializer)
}

fn digits<S: Serializer>(pack: &PackId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(pack)
}

fn of_snapshot<S: Serializer>(snapshot: &SnapshotId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(snapshot.0)
}

fn of_snapshot_or_none<S: Serializer>(
    snapshot: &Option<SnapshotId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    snapshot.map(|snapshot| snapshot.0).serialize(serializer)
}

fn text<S: Serializer, T: fmt::Display>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn word<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(of_kind(kind))
}

/// A kind of object in words.
pub(crate) fn of_kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::BlockDevice => "block device",
        Kind::CharDevice => "character device",
        Kind::Symlink => "symbolic link",
        Kind::Socket => "socket",
        Kind::Fifo => "named pipe",
    }
}

/// A tree in words.
fn of_tree(tree: &Option<Inode>) -> String {
    match tree {
        Some(root) => format!("the tree of inode {root}"),
        None => "no tree".to_owned(),
    }
}

/// The right holder of a pack in words.
fn of_holder(holder: &Option<SnapshotId>) -> String {
    match holder {
        Some(snapshot) => format!("snapshot {snapshot} is the newest that refers to it"),
        None => "no snapshot refers to it".to_owned(),
    }
}

/// Most snapshots that a sentence names.
const NAMED: usize = 5;

/// Snapshots in words.
fn in_words(snapshots: &[String]) -> String {
    let mut names: Vec<String> = snapshots
        .iter()
        .take(NAMED)
        .map(|name| format!("{name:?}"))
        .collect();
    match (snapshots.len().saturating_sub(NAMED), snapshots.len()) {
        (0, 1) => return format!("snapshot {}", names.concat()),
        (0, _) => {}
        (more, _) => names.push(format!("{more} more")),
    }
    let last = names.pop().unwrap_or_default();
    format!("snapshots {} and {last}", names.join(", "))
}

/// The snapshots that refer to something, at the end of a sentence.
fn referred(snapshots: &[String]) -> String {
    match snapshots {
        [] => String::new(),
        [_] => format!("; {} refers to it", in_words(snapshots)),
        _ => format!("; {} refer to it", in_words(snapshots)),
    }
}

/// The snapshots that have the same damage, at the end of a sentence.
fn also(snapshots: &[String]) -> String {
    match snapshots {
        [] => String::new(),
        _ => format!("; also in {}", in_words(snapshots)),
    }
}

/// A counter in the volume's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeCount {
    /// Bytes that block maps refer to.
    UsedBytes,
    /// Objects.
    Objects,
    /// Bytes that quotas count.
    ChargedBytes,
    /// Bytes of dead packs that snapshots hold.
    HeldBytes,
    /// Objects in the trash.
    TrashObjects,
    /// Bytes of the objects in the trash.
    TrashBytes,
}

impl fmt::Display for VolumeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VolumeCount::UsedBytes => "bytes that block maps refer to",
            VolumeCount::Objects => "objects",
            VolumeCount::ChargedBytes => "bytes charged to quotas",
            VolumeCount::HeldBytes => "bytes that snapshots hold",
            VolumeCount::TrashObjects => "objects in the trash",
            VolumeCount::TrashBytes => "bytes in the trash",
        })
    }
}

/// A number in the history of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryCount {
    /// The last commit.
    Commit,
    /// The last snapshot.
    Snapshot,
}

impl fmt::Display for HistoryCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HistoryCount::Commit => "commit",
            HistoryCount::Snapshot => "snapshot",
        })
    }
}

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "finding", rename_all = "kebab-case")]
#[rustfmt::skip]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum Finding {
    #[error("the metadata entry {key} cannot be read: it {why}")]
    DamagedRecord { #[serde(serialize_with = "text")] key: DisplayKey, why: &'static str },
    #[error("the metadata entry {key} is of a kind that this version does not know")]
    UnknownEntry { #[serde(serialize_with = "text")] key: DisplayKey },

    #[error("the note forebay.holder, which names the gateway that holds the volume, cannot be read: {why}")]
    DamagedHolder { why: String },
    #[error("the volume has no readable state: its counts and the next numbers of objects and packs are unknown")]
    NoVolumeState,
    #[error("the volume counts {says} {count}, but has {is}")]
    WrongVolumeCount { count: VolumeCount, says: u64, is: u64 },
    #[error("the next object would get inode {next}, but there is an inode {highest} already")]
    NextInodeTooLow { next: u64, #[serde(serialize_with = "number")] highest: Inode },
    #[error("the next pack would get number {next}, but there is a pack {highest} already")]
    NextPackTooLow { #[serde(serialize_with = "digits")] next: PackId, #[serde(serialize_with = "digits")] highest: PackId },
    #[error("the last {count} of the volume is {says}, but there is a {count} {highest} already")]
    HistoryTooLow { count: HistoryCount, says: u64, highest: u64 },

    #[error("the root directory {why}")]
    BadRoot { why: &'static str },
    #[error("inode {inode}, a {}, has no name", of_kind(.kind))]
    Orphan { #[serde(serialize_with = "number")] inode: Inode, #[serde(serialize_with = "word", rename = "kind")] kind: Kind },
    #[error("inode {inode} counts {says} links, but has {is}")]
    WrongLinkCount { #[serde(serialize_with = "number")] inode: Inode, says: u32, is: u64 },
    #[error("inode {inode} has impossible attributes: {why}")]
    BadAttributes { #[serde(serialize_with = "number")] inode: Inode, why: &'static str },

    #[error("directory {inode} counts {says} names, but has {is}")]
    WrongEntryCount { #[serde(serialize_with = "number")] inode: Inode, says: u64, is: u64 },
    #[error("directory {inode} would give its next name cookie {next}, but has a cookie {highest} already")]
    NextCookieTooLow { #[serde(serialize_with = "number")] inode: Inode, next: u64, highest: u64 },
    #[error("the parent of directory {inode} is {says}, but its name is in {is}")]
    WrongParent { #[serde(serialize_with = "number")] inode: Inode, #[serde(serialize_with = "number")] says: Inode, #[serde(serialize_with = "number")] is: Inode },
    #[error("directory {inode} has {names} names")]
    ManyNames { #[serde(serialize_with = "number")] inode: Inode, names: u64 },
    #[error("directory {inode} is below itself, in a loop of {directories} directories that is not reachable from the root")]
    Loop { #[serde(serialize_with = "number")] inode: Inode, directories: u64 },

    #[error("name {name} in directory {directory} refers to inode {inode}, which does not exist")]
    NameWithoutObject { #[serde(serialize_with = "number")] directory: Inode, name: Name, #[serde(serialize_with = "number")] inode: Inode },
    #[error("name {name} in directory {directory} says that inode {inode} is a {}, but it is a {}", of_kind(.says), of_kind(.is))]
    WrongKind { #[serde(serialize_with = "number")] directory: Inode, name: Name, #[serde(serialize_with = "number")] inode: Inode, #[serde(serialize_with = "word")] says: Kind, #[serde(serialize_with = "word")] is: Kind },
    #[error("there are {entries} names and cookies in inode {directory}, which is not a directory")]
    NamesInNoDirectory { #[serde(serialize_with = "number")] directory: Inode, entries: u64 },
    #[error("name {name} in directory {directory} {why}")]
    BadName { #[serde(serialize_with = "number")] directory: Inode, name: Name, why: &'static str },
    #[error("name {name} in directory {directory} has cookie {cookie}, which does not exist: listings do not show the name")]
    NameWithoutCookie { #[serde(serialize_with = "number")] directory: Inode, name: Name, cookie: u64 },
    #[error("cookie {cookie} in directory {directory} belongs to name {name}, which does not exist: listings show a name that cannot be opened")]
    CookieWithoutName { #[serde(serialize_with = "number")] directory: Inode, name: Name, cookie: u64 },
    #[error("name {name} in directory {directory} and its cookie {cookie} contradict each other: {why}")]
    NameAndCookieDiffer { #[serde(serialize_with = "number")] directory: Inode, name: Name, cookie: u64, why: &'static str },

    #[error("inode {inode} has {blocks} block maps, but {why}")]
    BlocksWithoutFile { #[serde(serialize_with = "number")] inode: Inode, blocks: u64, why: &'static str },
    #[error("block {block} of inode {inode} has bytes behind the end of the file at {size}")]
    BlockBehindEnd { #[serde(serialize_with = "number")] inode: Inode, block: u64, size: u64 },
    #[error("block {block} of inode {inode} refers to an impossible frame: {why}")]
    ImpossibleFrame { #[serde(serialize_with = "number")] inode: Inode, block: u64, #[serde(serialize_with = "digits")] pack: PackId, offset: u32, why: &'static str },
    #[error("inode {inode} counts {says} bytes, but its block maps hold {is}")]
    WrongUsed { #[serde(serialize_with = "number")] inode: Inode, says: u64, is: u64 },
    #[error("inode {inode} is noted for collection as a removed file, but it still exists")]
    GarbageOfLiving { #[serde(serialize_with = "number")] inode: Inode },
    #[error("block {block} of the removed inode {inode} still exists, but blocks before {first_block} were collected")]
    CollectedBlock { #[serde(serialize_with = "number")] inode: Inode, block: u64, first_block: u64 },

    #[error("pack {pack} has no account, but block maps refer to {bytes} bytes of it")]
    PackWithoutAccount { #[serde(serialize_with = "digits")] pack: PackId, bytes: u64 },
    #[error("pack {pack} counts {says} live bytes, but has {is}")]
    WrongLiveBytes { #[serde(serialize_with = "digits")] pack: PackId, says: u64, is: u64 },
    #[error("pack {pack} is noted for deletion, but {why}")]
    DeadPackInUse { #[serde(serialize_with = "digits")] pack: PackId, bytes: u64, why: &'static str },
    #[error("pack {pack} is dead and held for a snapshot, but {why}")]
    HeldPackInUse { #[serde(serialize_with = "digits")] pack: PackId, bytes: u64, why: &'static str },
    #[error("the account of pack {pack} is impossible: {why}")]
    BadPackAccount { #[serde(serialize_with = "digits")] pack: PackId, why: &'static str },
    #[error("pack {pack} does not exist, but there is a note on {of}")]
    NoteWithoutPack { #[serde(serialize_with = "digits")] pack: PackId, of: &'static str },
    #[error("the note on the frame at byte {offset} of pack {pack} is impossible")]
    ImpossibleNote { #[serde(serialize_with = "digits")] pack: PackId, offset: u32 },
    #[error("{is} blocks share frames of pack {pack} that were written for other blocks, but only {says} of them are noted")]
    MissingSharers { #[serde(serialize_with = "digits")] pack: PackId, says: u64, is: u64 },
    #[error("pack {pack} is not in the bucket: {object}{}", referred(.snapshots))]
    MissingPack { #[serde(serialize_with = "digits")] pack: PackId, object: String, #[serde(skip_serializing_if = "Vec::is_empty")] snapshots: Vec<String> },
    #[error("pack {pack} has {is} bytes in the bucket, but was written with {says}: {object}{}", referred(.snapshots))]
    WrongPackLength { #[serde(serialize_with = "digits")] pack: PackId, object: String, says: u64, is: u64, #[serde(skip_serializing_if = "Vec::is_empty")] snapshots: Vec<String> },

    #[error("there is a scrub result of pack {pack}, which has no account")]
    CheckOfNoPack { #[serde(serialize_with = "digits")] pack: PackId },

    #[error("pack {pack} is held by snapshot {says}, but {}", of_holder(.is))]
    WrongHolder { #[serde(serialize_with = "digits")] pack: PackId, #[serde(serialize_with = "of_snapshot")] says: SnapshotId, #[serde(serialize_with = "of_snapshot_or_none")] is: Option<SnapshotId> },
    #[error("the mark that snapshot {snapshot} holds pack {pack} {why}")]
    WrongMark { #[serde(serialize_with = "of_snapshot")] snapshot: SnapshotId, #[serde(serialize_with = "digits")] pack: PackId, why: &'static str },
    #[error("snapshots {first} and {snapshot} have the same name: {name:?}")]
    SnapshotsWithOneName { #[serde(serialize_with = "of_snapshot")] snapshot: SnapshotId, #[serde(serialize_with = "of_snapshot")] first: SnapshotId, name: String },
    #[error("snapshot {name:?} refers to pack {pack}, which {why}")]
    PackNotHeld { #[serde(serialize_with = "of_snapshot")] snapshot: SnapshotId, name: String, #[serde(serialize_with = "digits")] pack: PackId, why: &'static str },
    #[error("snapshot {name:?} cannot be read: {why}")]
    UnreadableSnapshot { #[serde(serialize_with = "of_snapshot")] snapshot: SnapshotId, name: String, why: String },

    #[error("there is an entry in the trash for inode {inode}, {why}")]
    TrashOfNothing { #[serde(serialize_with = "number")] inode: Inode, why: &'static str },
    #[error("the mark that inode {inode} stays in the trash until second {until} {why}")]
    WrongTrashMark { #[serde(serialize_with = "number")] inode: Inode, until: u64, why: &'static str },
    #[error("the mark that inode {inode} in the trash belongs to user {uid} {why}")]
    WrongTrashOwner { #[serde(serialize_with = "number")] inode: Inode, uid: u32, why: &'static str },

    #[error("there is a quota of inode {inode}, {why}")]
    QuotaOfNoDirectory { #[serde(serialize_with = "number")] inode: Inode, why: &'static str },
    #[error("the tree of inode {inode} counts {says_bytes} bytes and {says_files} objects, but has {is_bytes} and {is_files}")]
    WrongUsage { #[serde(serialize_with = "number")] inode: Inode, says_bytes: u64, says_files: u64, is_bytes: u64, is_files: u64 },
    #[error("{files} objects count in the tree of inode {inode}, which has no quota")]
    TreeWithoutQuota { #[serde(serialize_with = "number")] inode: Inode, files: u64 },
    #[error("inode {inode} counts in {}, but its directory {directory} in {}", of_tree(.says), of_tree(.is))]
    WrongTree { #[serde(serialize_with = "number")] inode: Inode, #[serde(serialize_with = "number")] directory: Inode, #[serde(serialize_with = "number_or_none")] says: Option<Inode>, #[serde(serialize_with = "number_or_none")] is: Option<Inode> },

    #[error("bytes {from} to {to} of inode {inode} cannot be read: the frame at byte {offset} of {object}: {why}{}", also(.snapshots))]
    DamagedFrame { #[serde(serialize_with = "number")] inode: Inode, from: u64, to: u64, #[serde(serialize_with = "digits")] pack: PackId, object: String, offset: u32, why: String, #[serde(skip_serializing_if = "Vec::is_empty")] snapshots: Vec<String> },
    #[error("bytes {from} to {to} of inode {inode} cannot be read in {}: the frame at byte {offset} of {object}: {why}", in_words(.snapshots))]
    DamagedFrameOfSnapshot { snapshots: Vec<String>, #[serde(serialize_with = "number")] inode: Inode, #[serde(skip_serializing_if = "Option::is_none")] path: Option<String>, from: u64, to: u64, #[serde(serialize_with = "digits")] pack: PackId, object: String, offset: u32, why: String },
    #[error("{object} has a damaged header or index: {why}{}", referred(.snapshots))]
    DamagedPack { #[serde(serialize_with = "digits")] pack: PackId, object: String, why: String, #[serde(skip_serializing_if = "Vec::is_empty")] snapshots: Vec<String> },

    #[error("{object}, of the metadata, is damaged: {why}")]
    DamagedMetadata { object: String, why: String },
}

impl Finding {
    /// Name of the finding's kind, as in JSON and in `docs/fsck.md`.
    pub fn name(&self) -> &'static str {
        match self {
            Finding::DamagedRecord { .. } => "damaged-record",
            Finding::UnknownEntry { .. } => "unknown-entry",
            Finding::DamagedHolder { .. } => "damaged-holder",
            Finding::NoVolumeState => "no-volume-state",
            Finding::WrongVolumeCount { .. } => "wrong-volume-count",
            Finding::NextInodeTooLow { .. } => "next-inode-too-low",
            Finding::NextPackTooLow { .. } => "next-pack-too-low",
            Finding::HistoryTooLow { .. } => "history-too-low",
            Finding::BadRoot { .. } => "bad-root",
            Finding::Orphan { .. } => "orphan",
            Finding::WrongLinkCount { .. } => "wrong-link-count",
            Finding::BadAttributes { .. } => "bad-attributes",
            Finding::WrongEntryCount { .. } => "wrong-entry-count",
            Finding::NextCookieTooLow { .. } => "next-cookie-too-low",
            Finding::WrongParent { .. } => "wrong-parent",
            Finding::ManyNames { .. } => "many-names",
            Finding::Loop { .. } => "loop",
            Finding::NameWithoutObject { .. } => "name-without-object",
            Finding::WrongKind { .. } => "wrong-kind",
            Finding::NamesInNoDirectory { .. } => "names-in-no-directory",
            Finding::BadName { .. } => "bad-name",
            Finding::NameWithoutCookie { .. } => "name-without-cookie",
            Finding::CookieWithoutName { .. } => "cookie-without-name",
            Finding::NameAndCookieDiffer { .. } => "name-and-cookie-differ",
            Finding::BlocksWithoutFile { .. } => "blocks-without-file",
            Finding::BlockBehindEnd { .. } => "block-behind-end",
            Finding::ImpossibleFrame { .. } => "impossible-frame",
            Finding::WrongUsed { .. } => "wrong-used",
            Finding::GarbageOfLiving { .. } => "garbage-of-living",
            Finding::CollectedBlock { .. } => "collected-block",
            Finding::PackWithoutAccount { .. } => "pack-without-account",
            Finding::WrongLiveBytes { .. } => "wrong-live-bytes",
            Finding::DeadPackInUse { .. } => "dead-pack-in-use",
            Finding::HeldPackInUse { .. } => "held-pack-in-use",
            Finding::BadPackAccount { .. } => "bad-pack-account",
            Finding::NoteWithoutPack { .. } => "note-without-pack",
            Finding::ImpossibleNote { .. } => "impossible-note",
            Finding::MissingSharers { .. } => "missing-sharers",
            Finding::MissingPack { .. } => "missing-pack",
            Finding::WrongPackLength { .. } => "wrong-pack-length",
            Finding::CheckOfNoPack { .. } => "check-of-no-pack",
            Finding::WrongHolder { .. } => "wrong-holder",
            Finding::WrongMark { .. } => "wrong-mark",
            Finding::SnapshotsWithOneName { .. } => "snapshots-with-one-name",
            Finding::PackNotHeld { .. } => "pack-not-held",
            Finding::UnreadableSnapshot { .. } => "unreadable-snapshot",
            Finding::TrashOfNothing { .. } => "trash-of-nothing",
            Finding::WrongTrashMark { .. } => "wrong-trash-mark",
            Finding::WrongTrashOwner { .. } => "wrong-trash-owner",
            Finding::QuotaOfNoDirectory { .. } => "quota-of-no-directory",
            Finding::WrongUsage { .. } => "wrong-usage",
            Finding::TreeWithoutQuota { .. } => "tree-without-quota",
            Finding::WrongTree { .. } => "wrong-tree",
            Finding::DamagedFrame { .. } => "damaged-frame",
            Finding::DamagedFrameOfSnapshot { .. } => "damaged-frame-of-snapshot",
            Finding::DamagedPack { .. } => "damaged-pack",
            Finding::DamagedMetadata { .. } => "damaged-metadata",
        }
    }

    /// The path in a snapshot, if the finding is about a file there.
    pub fn path_then(&self) -> Option<&str> {
        match self {
            Finding::DamagedFrameOfSnapshot { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    /// The object that the finding is about; its path helps a reader of the report.
    pub fn inode(&self) -> Option<Inode> {
        match self {
            Finding::WrongLinkCount { inode, .. }
            | Finding::BadAttributes { inode, .. }
            | Finding::WrongEntryCount { inode, .. }
            | Finding::NextCookieTooLow { inode, .. }
            | Finding::WrongParent { inode, .. }
            | Finding::ManyNames { inode, .. }
            | Finding::BlocksWithoutFile { inode, .. }
            | Finding::BlockBehindEnd { inode, .. }
            | Finding::ImpossibleFrame { inode, .. }
            | Finding::WrongUsed { inode, .. }
            | Finding::GarbageOfLiving { inode }
            | Finding::QuotaOfNoDirectory { inode, .. }
            | Finding::WrongUsage { inode, .. }
            | Finding::TreeWithoutQuota { inode, .. }
            | Finding::WrongTree { inode, .. }
            | Finding::DamagedFrame { inode, .. } => Some(*inode),
            Finding::NameWithoutObject { directory, .. }
            | Finding::WrongKind { directory, .. }
            | Finding::BadName { directory, .. }
            | Finding::NameWithoutCookie { directory, .. }
            | Finding::CookieWithoutName { directory, .. }
            | Finding::NameAndCookieDiffer { directory, .. } => Some(*directory),
            _ => None,
        }
    }
}

/// Receives findings.
pub trait Sink {
    /// Receives one finding.
    fn found(&mut self, finding: Finding);
}

/// Drops findings that were reported before.
pub(crate) struct Nobody;

impl Sink for Nobody {
    fn found(&mut self, _: Finding) {}
}

impl Sink for Vec<Finding> {
    fn found(&mut self, finding: Finding) {
        self.push(finding);
    }
}
