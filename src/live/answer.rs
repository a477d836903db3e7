//! The answer about the last ten minutes. The names are those of the JSON.

use serde::{Deserialize, Serialize};

use crate::health::State as HealthState;

/// The last ten minutes. Rates are averages over the interval of a point, and over the last 10 s in tables. Quantiles are
/// exact to a bucket of the histogram: 1, 2, 5, 10, ...
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// The interval of points.
    pub interval_seconds: f64,
    /// When this was answered, in seconds since 1970.
    pub time: f64,
    /// The limits of what points count.
    pub limits: Limits,
    /// The points, oldest first, at most 300.
    pub series: Vec<Point>,
    /// Clients that did something, those with the most calls first, at most 100.
    pub clients: Vec<ClientRow>,
    /// Procedures that were called, those with the most calls first.
    pub procedures: Vec<ProcedureRow>,
    /// What calls waited for, the kind with the longest waits first.
    #[serde(default)]
    pub waits: Vec<WaitRow>,
    /// Requests to the bucket, by method and cause, the most frequent first.
    pub requests: Vec<RequestRow>,
    /// The files with the most bytes read and written, at most 20.
    pub files: Vec<FileRow>,
}

impl Live {
    /// Leaves out the points up to the one with the sequence number `after`; none if that number was not given yet.
    pub fn leave_out(&mut self, after: u64) {
        let last = self.series.last().map_or(0, |point| point.sequence);
        if after <= last {
            self.series.retain(|point| point.sequence > after);
        }
    }
}

/// Limits in bytes; missing where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Of the log on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<f64>,
    /// Of block buffers, packs in flight and admitted writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Of unpublished names and attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_bytes: Option<f64>,
    /// Of the disk cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_cache_bytes: Option<f64>,
}

/// What happened in one interval, and the fill levels at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Number of the interval since the start of the gateway; the first is 1.
    pub sequence: u64,
    /// The end of the interval, in seconds since 1970.
    pub time: f64,
    /// READ.
    pub reads: Flow,
    /// WRITE and COMMIT.
    pub writes: Flow,
    /// All other procedures but NULL.
    pub names: Flow,
    /// Calls that failed or were refused. Those with NFS3ERR_NOENT, which says that a name is free, and with
    /// NFS3ERR_JUKEBOX, which makes the client wait, are no errors.
    pub errors_per_second: f64,
    /// The requests to the bucket.
    pub bucket: BucketFlow,
    /// Bytes of disk in use by the log; 0 without one.
    pub log_bytes: f64,
    /// Bytes of memory of block buffers, packs in flight and admitted writes.
    pub memory_bytes: f64,
    /// Bytes of memory of unpublished names and attributes.
    pub names_bytes: f64,
    /// Bytes of frames in the disk cache; 0 without one.
    pub disk_cache_bytes: f64,
    /// Bytes of file data that the bucket does not have.
    pub dirty_bytes: f64,
    /// Bytes of the log that the bucket does not have.
    pub unpublished_bytes: f64,
    /// Age of the oldest change that the bucket does not have; 0 if it has everything.
    pub unpublished_age_seconds: f64,
    /// The health of the gateway.
    pub health: HealthState,
}

/// Calls of some procedures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Calls that were answered.
    pub calls_per_second: f64,
    /// Bytes of file data; null for names.
    pub bytes_per_second: Option<f64>,
    /// Half of the calls took no longer; null without calls.
    pub median_seconds: Option<f64>,
    /// 99 % of the calls took no longer; null without calls.
    pub p99_seconds: Option<f64>,
}

/// Requests to the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BucketFlow {
    /// Requests that ended; each try counts.
    pub requests_per_second: f64,
    /// Those of them that failed: refused, throttled, failed or unanswered.
    pub errors_per_second: f64,
    /// Bytes of bodies that came from the bucket.
    pub get_bytes_per_second: f64,
    /// Bytes of bodies that were sent to it.
    pub put_bytes_per_second: f64,
    /// 99 % of the requests took no longer to the first byte of their answer; null without requests.
    pub p99_seconds: Option<f64>,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRow {
    /// Its address, or `other` for all that are not counted apart.
    pub address: String,
    /// Calls that were answered.
    pub calls_per_second: f64,
    /// Bytes that went to it, with all headers.
    pub read_bytes_per_second: f64,
    /// Bytes that came from it, with all headers.
    pub written_bytes_per_second: f64,
    /// The average time of a call; null without calls.
    pub mean_seconds: Option<f64>,
}

/// An NFSv3 procedure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureRow {
    /// Its name.
    pub procedure: String,
    /// Calls that were answered.
    pub calls_per_second: f64,
    /// Those of them that failed with any error but NFS3ERR_JUKEBOX, or were refused.
    pub errors_per_second: f64,
    /// Half of the calls took no longer; null without calls.
    pub median_seconds: Option<f64>,
    /// 99 % of the calls took no longer; null without calls.
    pub p99_seconds: Option<f64>,
}

/// The waits of one kind, of calls that were answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitRow {
    /// What the calls waited for, as in traces.
    #[serde(rename = "for")]
    pub what: String,
    /// Calls that had to wait for it.
    pub calls_per_second: f64,
    /// The time that they waited, all together: the average number of calls that wait.
    pub waited_seconds_per_second: f64,
    /// Half of them waited no longer.
    pub median_seconds: Option<f64>,
    /// 99 % of them waited no longer.
    pub p99_seconds: Option<f64>,
}

/// Requests to the bucket with the same method and cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The operation of S3.
    pub method: String,
    /// Why they were sent, as in the metrics.
    pub cause: String,
    /// Requests that ended; each try counts.
    pub requests_per_second: f64,
    /// Those of them that failed: refused, throttled, failed or unanswered.
    pub errors_per_second: f64,
    /// Bytes of bodies in both directions.
    pub bytes_per_second: f64,
    /// Half of them took no longer to the first byte of their answer; null without requests.
    pub median_seconds: Option<f64>,
    /// 99 % of them took no longer; null without requests.
    pub p99_seconds: Option<f64>,
}

/// A file that is read or written much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRow {
    /// A path from the root of the volume; null if none is known. Bytes that are not printable ASCII are escaped, as in
    /// messages.
    pub path: Option<String>,
    /// Its inode number.
    pub fileid: u64,
    /// READ and WRITE calls.
    pub calls_per_second: f64,
    /// Bytes of file data that were read.
    pub read_bytes_per_second: f64,
    /// Bytes of file data that were written.
    pub written_bytes_per_second: f64,
}
