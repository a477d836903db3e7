//! The status of a gateway.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::metadata_cache::MetadataCache;
use super::snapshot::utc;
use super::space::Space;
use crate::cost::Cost;
use crate::health::Health;
use crate::watch::Wait;

/// The status of a gateway. `forebay status --json` prints it with these names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Whether it is healthy, degraded or failing, and why.
    pub health: Health,
    /// The waits and refusals of clients.
    pub waits: Vec<Wait>,
    /// Version of the program.
    pub version: String,
    /// Seconds since it opened the volume.
    pub uptime_seconds: f64,
    /// Identity of the volume, in hexadecimal digits.
    pub volume: String,
    /// URL of the store that the volume lives in.
    pub store: String,
    /// Address and port on which NFS is served.
    pub listen: String,
    /// Address and port of the admin HTTP server; null if it is off.
    pub admin_listen: Option<String>,
    /// Epoch that the gateway has taken.
    pub epoch: u64,
    /// The bucket holds exactly the state at this LSN.
    pub published_lsn: u64,
    /// Everything before this LSN is on stable storage.
    pub durable_lsn: u64,
    /// End of the log.
    pub log_end_lsn: u64,
    /// Bytes of the log that are not published: missing in the bucket.
    pub unpublished_bytes: u64,
    /// Age of the oldest change that is not in the bucket; null if the bucket has everything.
    pub oldest_unpublished_age_seconds: Option<f64>,
    /// Bytes of the log a second that the bucket takes; null if it has everything.
    #[serde(default)]
    pub publication_bytes_per_second: Option<u64>,
    /// Bytes of file data that are not in the bucket.
    pub dirty_bytes: u64,
    /// Those of them that are in the log alone, and not in memory.
    #[serde(default)]
    pub spilled_bytes: u64,
    /// Closed checkpoints that wait until an older one is in the bucket.
    #[serde(default)]
    pub waiting_checkpoints: usize,
    /// Bytes of memory of block buffers.
    pub memory_bytes: u64,
    /// Limit for these bytes.
    pub memory_limit_bytes: u64,
    /// Bytes of memory of unpublished names and attributes, including the memory that their publication will need.
    pub names_bytes: u64,
    /// Limit for these bytes.
    pub names_limit_bytes: u64,
    /// Bytes of disk used by the log; 0 without a log.
    pub log_bytes: u64,
    /// Limit for these bytes; 0 without a log.
    pub log_limit_bytes: u64,
    /// Logs of earlier epochs that were archived, with records that the bucket may lack.
    pub archived_logs: ArchivedLogs,
    /// The problem with the log, while it lasts; null if there is none.
    pub log_error: Option<LogError>,
    /// How packs are compressed.
    pub compression: Compression,
    /// The memory for metadata that were read; null if there is none.
    #[serde(default)]
    pub metadata_cache: Option<MetadataCache>,
    /// The local disk cache; null if there is none.
    pub disk_cache: Option<DiskCache>,
    /// The content of packs in the bucket, and the work on dead bytes.
    pub space: Space,
    /// Number of snapshots.
    #[serde(default)]
    pub snapshots: u64,
    /// Bytes of packs in the bucket to which snapshots refer, and no live file.
    #[serde(default)]
    pub snapshot_held_bytes: u64,
    /// Objects in the trash.
    #[serde(default)]
    pub trash_objects: u64,
    /// Bytes of files in the trash.
    #[serde(default)]
    pub trash_bytes: u64,
    /// When the next snapshot of `snapshot_schedule` is due, in seconds since 1970; null without a schedule.
    #[serde(default)]
    pub next_snapshot: Option<i64>,
    /// Damaged frames found since the start of which bytes are lost; `forebay scrub --status` lists them.
    pub damaged_frames: u64,
    /// The results of deduplication since the start; null while it is off.
    pub dedup: Option<Deduplication>,
    /// Number of the checkpoint that collects changes.
    pub checkpoint: u64,
    /// The progress of the checkpoint before it.
    pub checkpoint_state: CheckpointState,
    /// Uploads under way.
    pub uploads_in_flight: u64,
    /// The last error of the store, while it lasts; null if there is none.
    pub store_error: Option<StoreError>,
    /// Requests to the bucket since the start, by kind, and their bytes.
    pub requests: BTreeMap<String, u64>,
    /// The same by method and cause, as metrics have them.
    #[serde(default)]
    pub requests_by_cause: Vec<RequestTotal>,
    /// What the bucket costs.
    #[serde(default)]
    pub cost: Cost,
}

/// The requests of one method for one cause since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTotal {
    /// The method, by its name in metrics.
    pub method: String,
    /// The cause, by its name in metrics.
    pub cause: String,
    /// Number of requests: each try, page and part for itself.
    pub requests: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
}

/// The progress of the last closed checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointState {
    /// It is published; changes are collected for the next.
    Open,
    /// Its blocks are on their way to the bucket.
    Uploading,
    /// Its metadata is on its way to the bucket.
    Publishing,
}

/// Archived logs of earlier epochs, kept for `forebay log`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedLogs {
    /// Number of logs.
    pub logs: u64,
    /// Bytes of disk that they occupy.
    pub bytes: u64,
    /// When the oldest was archived, in seconds since 1970; null if there is none, or if it is not known.
    pub oldest_seconds: Option<i64>,
}

/// A problem with the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogError {
    /// The error of the system.
    pub message: String,
    /// Seconds for which writes have been refused; null if they are not refused, but may have to wait.
    pub for_seconds: Option<f64>,
}

/// The results of compression since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compression {
    /// Level of zstd that was planned for the last pack; null if it was not compressed, or if there was none.
    pub level: Option<u8>,
    /// Bytes of file data in packs.
    pub raw_bytes: u64,
    /// Bytes of those packs.
    pub stored_bytes: u64,
}

/// Counters of the local disk cache since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCache {
    /// Bytes of disk that it uses.
    pub limit_bytes: u64,
    /// Frames that were read from it.
    pub hits: u64,
    /// Frames that were not in it.
    pub misses: u64,
    /// Frames that were damaged in it, and fetched from the bucket instead.
    pub damaged: u64,
    /// Whether its disk has failed, so that it is not used until the next start.
    pub failed: bool,
}

/// The results of deduplication since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deduplication {
    /// Bytes of file data that were not uploaded, because the volume had them already.
    pub saved_bytes: u64,
    /// Frames that can be found by their content.
    pub known_frames: u64,
    /// Whether the content of earlier runs in the bucket is still being read: frames that exist only there are not
    /// found yet.
    pub learning: bool,
}

/// A problem with the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreError {
    /// Its last error.
    pub message: String,
    /// Seconds since the last success.
    pub for_seconds: f64,
}

/// The result of a flush.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlushReport {
    /// The path of the file or tree; null for the whole volume. Bytes that are not UTF-8 are replaced.
    #[serde(default)]
    pub path: Option<String>,
    /// The bucket holds at least the state at this LSN.
    pub published_lsn: u64,
    /// Bytes that were uploaded for it, by this flush or by uploads that were already under way.
    pub uploaded_bytes: u64,
    /// Its duration.
    pub seconds: f64,
}

impl fmt::Display for FlushReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uploaded, seconds) = (size(self.uploaded_bytes), age(self.seconds));
        match &self.path {
            None => write!(
                f,
                "the bucket holds everything up to LSN {} ({uploaded} uploaded in {seconds})",
                self.published_lsn,
            ),
            Some(path) => write!(
                f,
                "the bucket holds {} as it was when you asked ({uploaded} uploaded in {seconds})",
                path.escape_debug()
            ),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<13} {text}");
        row("health", self.health.to_string())?;
        for wait in &self.waits {
            let text = format!("for {}: {}", age(wait.for_seconds), wait.message);
            row("clients", text)?;
        }
        row("volume", format!("{}, epoch {}", self.volume, self.epoch))?;
        row("store", self.store.clone())?;
        row("listen", self.listen.clone())?;
        row(
            "admin HTTP",
            self.admin_listen
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
        )?;
        row(
            "running",
            format!("{}, version {}", age(self.uptime_seconds), self.version),
        )?;
        row("unpublished", self.unpublished())?;
        row(
            "LSN",
            format!(
                "published {}, durable {}, end {}",
                self.published_lsn, self.durable_lsn, self.log_end_lsn
            ),
        )?;
        row("checkpoint", self.checkpoints())?;
        row("dirty", self.dirty())?;
        row(
            "memory",
            of_limit(self.memory_bytes, self.memory_limit_bytes),
        )?;
        row("names", of_limit(self.names_bytes, self.names_limit_bytes))?;
        row(
            "log",
            match self.log_limit_bytes {
                0 => "none".to_owned(),
                limit => of_limit(self.log_bytes, limit),
            },
        )?;
        if self.archived_logs.logs > 0 {
            row("archived logs", self.archived_logs.described())?;
        }
        if let Some(error) = &self.log_error {
            let refused = match error.for_seconds {
                Some(seconds) => format!("writes are refused for {}: ", age(seconds)),
                None => "writers may have to wait: ".to_owned(),
            };
            row("log error", format!("{refused}{}", error.message))?;
        }
        row("compression", self.compression.described())?;
        if let Some(cache) = &self.metadata_cache {
            row("metadata", cache.described())?;
        }
        row(
            "disk cache",
            match &self.disk_cache {
                None => "none".to_owned(),
                Some(cache) => cache.described(),
            },
        )?;
        row("space", self.space.described())?;
        if self.snapshots > 0 || self.snapshot_held_bytes > 0 {
            let held = size(self.snapshot_held_bytes);
            row(
                "snapshots",
                format!("{}, which hold {held}", self.snapshots),
            )?;
        }
        if self.trash_objects > 0 {
            let bytes = size(self.trash_bytes);
            row("trash", format!("{} objects, {bytes}", self.trash_objects))?;
        }
        if let Some(next) = self.next_snapshot {
            row("next snapshot", format!("{} (UTC)", utc(next)))?;
        }
        if self.damaged_frames > 0 {
            let damaged = self.damaged_frames;
            row(
                "damage",
                format!(
                    "{damaged} frames in the bucket have lost bytes: see `forebay scrub --status`"
                ),
            )?;
        }
        if let Some(dedup) = &self.dedup {
            let learning = match dedup.learning {
                true => ", and those of earlier runs are being read",
                false => "",
            };
            let saved = size(dedup.saved_bytes);
            let known = dedup.known_frames;
            row(
                "dedup",
                format!("{saved} not uploaded since the start; {known} frames are known{learning}"),
            )?;
        }
        row(
            "store error",
            match &self.store_error {
                None => "none".to_owned(),
                Some(error) => format!("for {}: {}", age(error.for_seconds), error.message),
            },
        )?;
        let requests: Vec<_> = self
            .requests
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        row(
            "requests",
            if requests.is_empty() {
                "none".to_owned()
            } else {
                requests.join(", ")
            },
        )?;
        row("cost", self.cost.to_string())?;
        row(
            "cost a day",
            format!(
                "{}; prices: {}",
                self.cost.causes(),
                self.cost.prices.escape_debug()
            ),
        )
    }
}

impl ArchivedLogs {
    fn described(&self) -> String {
        let since = self
            .oldest_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let since = since.map_or(String::new(), |since| {
            format!(
                ", the oldest of {}",
                humantime::format_rfc3339_seconds(since)
            )
        });
        format!(
            "{} with {}{since}: see `forebay log list`",
            self.logs,
            size(self.bytes)
        )
    }
}

impl Compression {
    fn described(&self) -> String {
        if self.raw_bytes == 0 {
            return "nothing to compress since the start".to_owned();
        }
        let level = match self.level {
            Some(level) => format!("level {level}"),
            None => "off".to_owned(),
        };
        let (raw, stored) = (size(self.raw_bytes), size(self.stored_bytes));
        format!("{level} for the last pack, {raw} became {stored} since the start")
    }
}

impl DiskCache {
    fn described(&self) -> String {
        let asked = self.hits + self.misses + self.damaged;
        let mut text = format!(
            "{}, {} of {asked} frames found since the start",
            size(self.limit_bytes),
            self.hits
        );
        if self.damaged > 0 {
            text += &format!(", {} damaged: check its disk", self.damaged);
        }
        if self.failed {
            text += "; its disk failed: not used until the next start";
        }
        text
    }
}

impl Status {
    fn unpublished(&self) -> String {
        match self.oldest_unpublished_age_seconds {
            None => "nothing: the bucket has everything".to_owned(),
            Some(seconds) => {
                let behind = format!(
                    "{} of log, the oldest {} old",
                    size(self.unpublished_bytes),
                    age(seconds)
                );
                match self.publication_bytes_per_second {
                    None | Some(0) => behind,
                    Some(rate) => format!("{behind}; the bucket takes {} a second", size(rate)),
                }
            }
        }
    }

    fn checkpoints(&self) -> String {
        let before = match self.checkpoint_state {
            CheckpointState::Open => "everything before it is published",
            CheckpointState::Uploading => "the one before is being uploaded",
            CheckpointState::Publishing => "the one before is being published",
        };
        let waiting = match self.waiting_checkpoints {
            0 => String::new(),
            1 => ", one waits".to_owned(),
            waiting => format!(", {waiting} wait"),
        };
        let uploads = self.uploads_in_flight;
        format!(
            "{} is open, {before}{waiting}; {uploads} uploads in flight",
            self.checkpoint
        )
    }

    fn dirty(&self) -> String {
        let dirty = size(self.dirty_bytes);
        match self.spilled_bytes {
            0 => dirty,
            spilled => format!("{dirty}, {} of it in the log alone", size(spilled)),
        }
    }
}

/// A size for people, rounded.
pub(super) fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

pub(super) fn of_limit(bytes: u64, limit: u64) -> String {
    format!("{} of {}", size(bytes), size(limit))
}

/// A time for people: milliseconds below a minute, else seconds.
pub(super) fn age(seconds: f64) -> String {
    let exact = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let rounded = if exact < Duration::from_secs(60) {
        Duration::new(exact.as_secs(), exact.subsec_millis() * 1_000_000)
    } else {
        Duration::from_secs(exact.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}
