//! The table of all metrics. To add one, add a row, and a [`Source`](crate::Source) that reports it.

use crate::{Family, Kind, Unit};

/// Declares families and the list of them.
macro_rules! families {
    ($($ident:ident: $kind:ident, $name:literal, $unit:ident, [$($label:literal),*], $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub static $ident: Family = Family {
                name: $name,
                kind: Kind::$kind,
                unit: Unit::$unit,
                labels: &[$($label),*],
                meaning: $meaning,
            };
        )*

        /// All families, in the order of the documentation.
        pub static FAMILIES: &[&Family] = &[$(&$ident,)*];
    };
}

families! {
    BUILD_INFO: Gauge, "build_info", None, ["version"],
        "Always 1; `version` is that of the program.";
    UPTIME: Gauge, "uptime_seconds", Seconds, [],
        "Time since the volume was opened.";
    HEALTH: Gauge, "health", None, [],
        "Health of the gateway: 0 healthy, 1 degraded, 2 failing.";
    PROBLEM: Gauge, "problem", None, ["name"],
        "1 for each reason for not being healthy, by the names in docs/operations.md; missing when it is over.";
    EPOCH: Gauge, "epoch", None, [],
        "Epoch of the volume that this gateway holds.";
    CHECKPOINT: Gauge, "checkpoint", None, [],
        "Number of the checkpoint that collects changes.";
    CHECKPOINT_STAGE: Gauge, "checkpoint_stage", None, ["stage"],
        "1 for the stage of the checkpoint before that one: `idle` (published), `uploading` (its packs) or `publishing` (its metadata); 0 for the others.";
    CHECKPOINT_STAGE_DURATION: Histogram, "checkpoint_stage_duration_seconds", Seconds, ["stage"],
        "Time that published checkpoints spent in the stages `uploading` and `publishing`.";
    CHECKPOINT_DURATION: Histogram, "checkpoint_duration_seconds", Seconds, [],
        "Time from the moment in which a checkpoint was closed to its publication.";
    PUBLISHED_LSN: Gauge, "published_lsn", None, [],
        "The bucket holds exactly the state at this LSN.";
    DURABLE_LSN: Gauge, "durable_lsn", None, [],
        "Everything before this LSN is on stable storage of this machine.";
    LOG_END_LSN: Gauge, "log_end_lsn", None, [],
        "End of the log.";
    UNPUBLISHED: Gauge, "unpublished_bytes", Bytes, [],
        "Bytes of the log that the bucket does not have.";
    UNPUBLISHED_AGE: Gauge, "unpublished_age_seconds", Seconds, [],
        "Age of the oldest change that the bucket does not have; 0 if it has everything.";
    PUBLICATION_RATE: Gauge, "publication_bytes_per_second", None, [],
        "Bytes of the log a second that the bucket takes, by its last publications; 0 if it has everything, or has taken none so far.";
    UPLOADS: Gauge, "uploads_in_flight", None, [],
        "Packs in flight to the bucket.";
    QUEUE: Gauge, "queue_length", None, ["queue"],
        "Work that waits: `uploads` (packs that wait until fewer are in flight to the bucket), `eager_uploads` (blocks that streams have filled, which go to the bucket before their checkpoint closes), `fetches` (reads from the bucket that wait until fewer are in flight) and `prefetches` (ranges that wait to be read ahead).";
    STORE_TROUBLE: Gauge, "store_trouble_seconds", Seconds, [],
        "Time for which the bucket has not answered or misses objects; 0 while it works.";
    DIRTY: Gauge, "dirty_bytes", Bytes, [],
        "Bytes of file data that the bucket does not have.";
    SPILLED: Gauge, "spilled_bytes", Bytes, [],
        "Those of these bytes that are in the log alone, because memory had no room for them.";
    CHECKPOINTS_WAITING: Gauge, "waiting_checkpoints", None, [],
        "Closed checkpoints that wait until an older one is in the bucket.";
    MEMORY: Gauge, "memory_bytes", Bytes, ["owner"],
        "Memory in use, by owner: `blocks` (block buffers), `packs` (packs in flight and frames being fetched), `admitted` (writes that are not in block buffers yet), `names` (unpublished names and attributes), `metadata` (metadata that were read from the bucket) and `calls` (calls and replies of NFS clients, and buffers of their connections: what exceeds the first 64 KiB of a connection's calls and replies, and 2 KiB of its buffers). Data in the reply to a READ lie in blocks, and count there as well.";
    MEMORY_LIMIT: Gauge, "memory_limit_bytes", Bytes, ["owner"],
        "Limit of that memory: that of `blocks` is for blocks, packs and admitted writes together. `packs` and `admitted` have none of their own.";
    WAITING_CALLS: Gauge, "waiting_calls", None, ["for"],
        "Calls that wait now: for room in the `log`, for `memory` for the bytes of writes, for memory for `names` and attributes, or for the `bucket`.";
    WAIT_DURATION: Histogram, "wait_duration_seconds", Seconds, ["for"],
        "Time that calls waited, of those that had to, by what they waited for as in `waiting_calls`. A call that waits several times, or is given up, counts each time.";
    READ: Counter, "read_bytes", Bytes, ["tier"],
        "Bytes of answered READs by where they were: in `memory`, in the `log` alone, in the `disk_cache`, in the `bucket`, or in no place because they are a `hole`. Bytes that were read ahead count as those of memory.";
    EVICTIONS: Counter, "evictions", None, ["tier"],
        "Blocks dropped from `memory`, and frames dropped from the `disk_cache`, to make room for others.";
    EVICTED: Counter, "evicted_bytes", Bytes, ["tier"],
        "Bytes of these blocks and frames.";
    LOG: Gauge, "log_bytes", Bytes, [],
        "Bytes of disk in use by the log.";
    LOG_LIMIT: Gauge, "log_limit_bytes", Bytes, [],
        "Limit of that.";
    ARCHIVED_LOGS: Gauge, "archived_logs", None, [],
        "Archived logs in the local folder, which `forebay log list` shows; counted every 10 s.";
    ARCHIVED_LOG: Gauge, "archived_log_bytes", Bytes, [],
        "Bytes of disk that they take.";
    LOG_FLUSH_DURATION: Histogram, "log_flush_duration_seconds", Seconds, ["outcome"],
        "Time that flushes of the log to the local disk took. `outcome` is `ok` or `failed`.";
    LOG_FLUSH_RECORDS: Histogram, "log_flush_records", None, [],
        "Records that one successful flush made durable.";
    LOG_FLUSH_BYTES: Histogram, "log_flush_bytes", Bytes, [],
        "Bytes of the log that one successful flush made durable.";
    USED: Gauge, "used_bytes", Bytes, [],
        "Bytes that published files use, before reduction.";
    FILES: Gauge, "files", None, [],
        "Files, directories and other objects of the volume.";
    DAMAGED_FRAMES: Gauge, "damaged_frames", None, [],
        "Damaged frames found since the start of which bytes are lost, and packs without a readable index that only snapshots need.";
    PACKS: Gauge, "packs", None, [],
        "Packs in the bucket.";
    SPACE_STORED: Gauge, "space_stored_bytes", Bytes, [],
        "Bytes of all packs in the bucket, as they are stored.";
    SPACE: Gauge, "space_bytes", Bytes, ["use"],
        "Content of all packs before compression: `live` (files refer to it) and `dead`.";
    SNAPSHOTS: Gauge, "snapshots", None, [],
        "Snapshots of the volume.";
    SNAPSHOTS_UNPUBLISHED: Gauge, "snapshots_unpublished", None, [],
        "Snapshots that wait for publication: the log has them, and the bucket does not yet.";
    NEXT_SNAPSHOT: Gauge, "next_snapshot_seconds", Seconds, [],
        "Time until the next snapshot of `snapshot_schedule` is due; missing without a schedule.";
    SNAPSHOT_HELD: Gauge, "snapshot_held_bytes", Bytes, [],
        "Bytes of packs in the bucket to which snapshots refer, and no live file.";
    SNAPSHOT_FAILURES: Counter, "snapshot_failures", None, [],
        "Failures to make or delete a snapshot by the schedule since the start; each minute that one is late counts.";
    TRASH_OBJECTS: Gauge, "trash_objects", None, [],
        "Files and directories in the trash.";
    TRASH: Gauge, "trash_bytes", Bytes, [],
        "Bytes of files in the trash. They count in no quota.";
    TRASH_DELETED: Counter, "trash_deleted", None, ["cause"],
        "Objects that left the trash for good since the start. `cause` is `time` (they were there long enough) or `room` (it was needed).";
    PACKS_TO_REWRITE: Gauge, "packs_to_rewrite", None, [],
        "Packs that are mostly dead.";
    PACKS_REWRITTEN: Counter, "packs_rewritten", None, [],
        "Packs that the collector has rewritten since the start.";
    REWRITTEN: Counter, "rewritten_bytes", Bytes, [],
        "Live bytes that were copied by that, before compression.";
    ORPHANS_DELETED: Counter, "orphans_deleted", None, [],
        "Packs that no gateway ever published, deleted since the start.";
    FRAGMENTED: Gauge, "fragmented_blocks", None, [],
        "Blocks of files of which a reader needs more than one GET for each MiB, as far as they are known: they were published or read since the start.";
    DEFRAGMENTED: Counter, "defragmented_blocks", None, [],
        "Blocks that the collector has copied into one place since the start.";
    DEFRAGMENTED_BYTES: Counter, "defragmented_bytes", Bytes, [],
        "Bytes that were copied for that, before compression.";
    COMPRESSION_RAW: Counter, "compression_raw_bytes", Bytes, [],
        "Bytes of file data in packs that were written since the start.";
    COMPRESSION_STORED: Counter, "compression_stored_bytes", Bytes, [],
        "Bytes of those packs.";
    DEDUP_SAVED: Counter, "dedup_saved_bytes", Bytes, [],
        "Bytes of file data that were not uploaded, because the volume had them already.";
    DEDUP_KNOWN: Gauge, "dedup_known_frames", None, [],
        "Frames that deduplication can find by their content.";
    DISK_CACHE: Gauge, "disk_cache_bytes", Bytes, [],
        "Bytes of frames that have been written to the disk cache and not replaced yet.";
    DISK_CACHE_LIMIT: Gauge, "disk_cache_limit_bytes", Bytes, [],
        "Bytes of disk that the disk cache uses, all of them from the start.";
    METADATA_CACHE_READS: Counter, "metadata_cache_reads", None, ["part", "result"],
        "Parts of tables of metadata that the memory for them was asked for, also to read ahead: `hit` or `miss`. `part` is a `block` of keys and values, an `index` or a `filter`; a lookup may need several of each. Names and attributes that the gateway has in memory need none.";
    DISK_CACHE_READS: Counter, "disk_cache_reads", None, ["result"],
        "Frames that the disk cache was asked for, also to read ahead: `hit`, `miss`, or `damaged` (there, damaged, and fetched from the bucket).";
    DISK_CACHE_WAITING: Gauge, "disk_cache_waiting_bytes", Bytes, [],
        "Bytes of frames that wait to be written to the disk cache.";
    NFS_CALL_DURATION: Histogram, "nfs_call_duration_seconds", Seconds, ["procedure", "outcome"],
        "Time from the last byte of a call to its reply, for each NFSv3 procedure. `outcome` is `ok`, `error` (an nfsstat3 other than NFS3_OK and JUKEBOX), `retry` (NFS3ERR_JUKEBOX: the client repeats the call later) or `refused` (the call was denied, or could not be decoded).";
    NFS_SLOW_CALLS: Counter, "nfs_slow_calls", None, [],
        "Calls that took at least `slow_call`.";
    NFS_CALL_WAIT: Histogram, "nfs_call_wait_seconds", Seconds, ["for"],
        "Time that NFSv3 calls waited, of those that waited. A call counts when it is answered, once for each kind of wait with all waits of that kind together: for its `turn` (its connection has too many calls in flight, or those of all clients hold too much memory), a `repetition` (the first execution of the same call), `memory` for its bytes, memory for `names`, room in the `log` (and the delay of a WRITE while the log is nearly full), the `flush` of the log, the `bucket`, the `disk_cache`, a `log_read` (bytes that are in the log alone), a `directory_lock` (names that another call changes), a `node_lock` (a file or directory that another call uses) or the `checkpoint_lock` (a checkpoint is being closed).";
    NFS_ERRORS: Counter, "nfs_errors", None, ["status"],
        "NFSv3 calls that were answered with this nfsstat3.";
    NFS_CALLS_WAITING: Gauge, "nfs_calls_waiting", None, [],
        "Calls that wait for the file system.";
    NFS_CALLS_DENIED: Counter, "nfs_calls_denied", None, [],
        "Calls refused for their credential or the address of the client.";
    NFS_CALLS_GARBAGE: Counter, "nfs_calls_garbage", None, [],
        "Calls whose arguments could not be decoded.";
    NFS_CALLS_ELSEWHERE: Counter, "nfs_calls_elsewhere", None, [],
        "Calls of programs, versions or procedures that are not served here.";
    NFS_CALLS_PUT_OFF: Counter, "nfs_calls_put_off", None, [],
        "Calls answered with NFS3ERR_JUKEBOX because there was no room for them in time.";
    NFS_BUDGET_WAITS: Counter, "nfs_budget_waits", None, [],
        "Times that a call had to wait for its client's share of the memory for calls and replies.";
    NFS_REPLAYS_ANSWERED: Counter, "nfs_replays_answered", None, [],
        "Repeated calls answered with their first reply.";
    NFS_REPLAYS_JOINED: Counter, "nfs_replays_joined", None, [],
        "Repeated calls that waited for the first to be done.";
    NFS_REPLAYS_DROPPED: Counter, "nfs_replays_dropped", None, [],
        "Repeated calls left unanswered because the first was being done or was given up.";
    NFS_RECEIVED: Counter, "nfs_received_bytes", Bytes, [],
        "Bytes received from NFS clients, with all headers.";
    NFS_SENT: Counter, "nfs_sent_bytes", Bytes, [],
        "Bytes sent to NFS clients, with all headers.";
    NFS_READ: Counter, "nfs_read_bytes", Bytes, [],
        "Bytes of file data in the replies to READ.";
    NFS_WRITTEN: Counter, "nfs_written_bytes", Bytes, [],
        "Bytes of file data that WRITE has accepted.";
    NFS_CONNECTIONS: Gauge, "nfs_connections", None, [],
        "Open connections.";
    NFS_CONNECTIONS_ACCEPTED: Counter, "nfs_connections_accepted", None, [],
        "Connections accepted.";
    NFS_CONNECTIONS_REFUSED: Counter, "nfs_connections_refused", None, [],
        "Connections closed at once because there were too many.";
    NFS_CONNECTIONS_OF_STRANGERS: Counter, "nfs_connections_of_strangers", None, [],
        "Connections from addresses that no export names.";
    NFS_CONNECTIONS_OVER_SHARE: Counter, "nfs_connections_over_share", None, [],
        "Connections closed because their client held more than its share of memory in calls that were not complete or not answered.";
    NFS_CONNECTIONS_BROKEN: Counter, "nfs_connections_broken", None, [],
        "Connections closed because the bytes were not an RPC call, or a record was too long.";
    NFS_CONNECTIONS_TIMED_OUT: Counter, "nfs_connections_timed_out", None, [],
        "Connections closed because a record or a TLS handshake was not completed, replies were not read, or nothing happened.";
    NFS_ACCEPT_ERRORS: Counter, "nfs_accept_errors", None, [],
        "Failures to accept a connection.";
    NFS_TLS_HANDSHAKES: Counter, "nfs_tls_handshakes", None, [],
        "Connections that switched to TLS.";
    NFS_TLS_HANDSHAKES_FAILED: Counter, "nfs_tls_handshakes_failed", None, [],
        "Connections closed because the switch to TLS failed.";
    NFS_MOUNTS: Counter, "nfs_mounts", None, [],
        "Successful MNT calls.";
    NFS_MOUNTS_REFUSED: Counter, "nfs_mounts_refused", None, [],
        "MNT calls refused.";
    NFS_LOCK_CALLS: Counter, "nfs_lock_calls", None, [],
        "Calls of the lock manager (NLM).";
    NFS_LOCK_ANSWERS: Counter, "nfs_lock_answers", None, ["status"],
        "Answers of the lock manager with results, by their `nlm4_stats`: `granted`, `denied` (another client has the lock), `blocked` (the client waits for it), `denied_grace_period` (only reclaims are granted after a start, or the bucket does not answer), `denied_nolocks`, `rofs`, `stale_fh`, `fbig` or `failed`.";
    NFS_LOCKS: Gauge, "nfs_locks", None, [],
        "Locks, waiters for locks and share reservations.";
    NFS_LOCK_CALLBACKS: Counter, "nfs_lock_callbacks", None, [],
        "Successful callbacks for locks that clients waited for.";
    NFS_LOCK_CALLBACKS_FAILED: Counter, "nfs_lock_callbacks_failed", None, [],
        "Failed callbacks for such locks.";
    STORE_REQUEST_DURATION: Histogram, "store_request_duration_seconds", Seconds, ["method", "cause", "outcome"],
        "Time from a request to the bucket to the first byte of its answer, for each try. `method` is the operation of S3. `cause` is `publish` (packs of changed data), `fetch` (data that a client waits for), `prefetch`, `metadata`, `merge` (of metadata), `collector`, `scrub`, `heal` (the metadata that this reads; good copies come from memory or the disk cache, and go to the bucket with `publish`) or `other`. `outcome` is `ok`, `missing`, `condition` (a condition did not hold), `refused` (another 4xx), `throttled` (429 or 503), `failed` (another 5xx) or `unanswered`.";
    STORE_SENT: Counter, "store_sent_bytes", Bytes, ["method", "cause"],
        "Bytes of the bodies of requests to the bucket.";
    STORE_RECEIVED: Counter, "store_received_bytes", Bytes, ["method", "cause"],
        "Bytes of the bodies of answers of the bucket, as their heads promise them.";
    STORE_RETRIES: Counter, "store_retries", None, ["reason"],
        "Repeats of requests to the bucket, by the end of the try before: `throttled` (the bucket asked for fewer requests), `timeout` (no answer in time, or none that went on), `failed` (the server reported an error) or `connection` (there was no usable answer).";
    STORE_NOT_SENT: Counter, "store_not_sent", None, [],
        "Requests that failed without being sent, because the bucket had not answered the last ones.";
    STORE_WAITING: Gauge, "store_requests_waiting", None, [],
        "Requests that wait for permission to be sent: fewer are allowed while the bucket recovers, and none while it asks for a pause.";
    STORE_LINK_HELD: Counter, "store_link_held_seconds", Seconds, ["direction"],
        "Time in which a limit on the link held bodies back: that of `s3_upload_limit` those that go `up`, that of `s3_download_limit` those that come `down`. Missing without a limit.";
    COST: Counter, "cost", None, ["cause", "currency"],
        "Cost of requests to the bucket since the start, by their cause, at the prices of the configuration, in the unit that `currency` names.";
    COST_PER_DAY: Gauge, "cost_per_day", None, ["cause", "currency"],
        "Cost of a day, in that unit: by the cause of requests, at their rate in the last hour (or since the start, if that is later); with the cause `storage`, of the packs that the bucket has.";
    CLIENT_CALLS: Counter, "client_calls", None, ["client"],
        "NFSv3 calls answered, for each client address. Beyond 256 addresses, those that have been idle longest are counted together as `other`, and so are addresses that no export names.";
    CLIENT_CALL_SECONDS: Counter, "client_call_seconds", Seconds, ["client"],
        "Sum of the times from the last byte of a call to its reply, for each client as in `client_calls`.";
    CLIENT_RECEIVED: Counter, "client_received_bytes", Bytes, ["client"],
        "Bytes received from each client, with all headers.";
    CLIENT_SENT: Counter, "client_sent_bytes", Bytes, ["client"],
        "Bytes sent to each client, with all headers.";
    ADMIN_REQUESTS: Counter, "admin_requests", None, ["outcome"],
        "Requests of admin HTTP that were answered, this scrape not included. `outcome` is `ok`, `refused` (4xx) or `failed` (5xx).";
    ADMIN_DELAYED: Counter, "admin_requests_delayed", None, [],
        "Requests of admin HTTP that waited because there were more than 500 a second.";
    ADMIN_CONNECTIONS_REFUSED: Counter, "admin_connections_refused", None, [],
        "Connections to admin HTTP closed at once because there were too many.";
}

/// The table as `docs/metrics.md` has it.
pub fn markdown() -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for family in FAMILIES {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<_> = family
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        text += &format!(
            "| `{}` | {kind} | {} | {} |\n",
            family.full_name(),
            labels.join(", "),
            family.meaning
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        let mut names = HashSet::new();
        for family in FAMILIES {
            let name = family.full_name();
            assert!(names.insert(name.clone()), "{name} is there twice");
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(is_plain), "{name}");
            let ends_in_unit = match family.unit {
                Unit::None => {
                    !family.name.ends_with("_seconds") && !family.name.ends_with("_bytes")
                }
                Unit::Seconds => family.name.ends_with("_seconds"),
                Unit::Bytes => family.name.ends_with("_bytes"),
            };
            assert!(ends_in_unit, "{name} is in {:?}", family.unit);
            assert!(!family.name.ends_with("_total"), "{name}");
            assert!(family.meaning.ends_with('.'), "{name}");
        }
    }
}
