//! The state of a gateway's volume as metrics: what `forebay status` shows.

use std::sync::Arc;
use std::time::Instant;

use forebay_fs::{Stage, Status, Volume};
use forebay_metrics::{Family, Samples, Source, Value, table};

use crate::health::Health;
use crate::schedule::Keeper;
use crate::watch::{self, Watcher};

/// The state of a volume that is open.
pub(super) struct VolumeState {
    pub(super) volume: Volume,
    pub(super) watcher: Arc<Watcher>,
    pub(super) keeper: Arc<Keeper>,
    /// When the volume was opened.
    pub(super) started: Instant,
}

impl Source for VolumeState {
    fn collect(&self, samples: &mut Samples) {
        let status = self.volume.status();
        let health = Health::of(&status, watch::problems(&self.watcher.waits()));
        let version = [env!("CARGO_PKG_VERSION").into()];
        samples.add(&table::BUILD_INFO, version, Value::Gauge(1.0));
        let mut gauge = |family: &'static Family, value: f64| {
            samples.add(family, [], Value::Gauge(value));
        };
        gauge(&table::UPTIME, self.started.elapsed().as_secs_f64());
        gauge(&table::HEALTH, f64::from(health.state.code()));
        for problem in health.problems {
            samples.add(&table::PROBLEM, [problem.name.into()], Value::Gauge(1.0));
        }
        add_volume(&status, samples);
        add_limits(&status, samples);
        add_space(&status, samples);
        add_kept(&status, samples);
        let now = self.volume.now().seconds;
        if let Some(next) = self.keeper.next(now) {
            let left = Value::Gauge((next - now).max(0) as f64);
            samples.add(&table::NEXT_SNAPSHOT, [], left);
        }
        add_reduction(&status, samples);
        self.volume.collect(samples);
    }
}

fn gauge(samples: &mut Samples, family: &'static Family, value: u64) {
    samples.add(family, [], Value::Gauge(value as f64));
}

fn counter(samples: &mut Samples, family: &'static Family, value: u64) {
    samples.add(family, [], Value::Counter(value as f64));
}

/// How far the bucket is behind.
fn add_volume(status: &Status, samples: &mut Samples) {
    gauge(samples, &table::EPOCH, status.epoch.0);
    gauge(samples, &table::CHECKPOINT, status.checkpoint.0);
    let stage = match status.stage {
        Stage::Idle => "idle",
        Stage::Uploading => "uploading",
        Stage::Publishing => "publishing",
    };
    for name in ["idle", "uploading", "publishing"] {
        let value = Value::Gauge(f64::from(u8::from(name == stage)));
        samples.add(&table::CHECKPOINT_STAGE, [name.into()], value);
    }
    gauge(samples, &table::PUBLISHED_LSN, status.published.0);
    gauge(samples, &table::DURABLE_LSN, status.durable.0);
    gauge(samples, &table::LOG_END_LSN, status.end.0);
    gauge(samples, &table::UNPUBLISHED, status.unpublished_bytes());
    let age = status.oldest_unpublished.unwrap_or_default();
    let age = Value::Gauge(age.as_secs_f64());
    samples.add(&table::UNPUBLISHED_AGE, [], age);
    gauge(samples, &table::UPLOADS, status.uploads as u64);
    let trouble = status.store_trouble.as_ref().or(status.gone.as_ref());
    let trouble = trouble.map_or(0.0, |(_, since)| since.as_secs_f64());
    samples.add(&table::STORE_TROUBLE, [], Value::Gauge(trouble));
}

/// What is used of memory and log, and the limits.
fn add_limits(status: &Status, samples: &mut Samples) {
    let rate = status.publication_rate.unwrap_or(0);
    gauge(samples, &table::PUBLICATION_RATE, rate);
    gauge(samples, &table::DIRTY, status.dirty_bytes);
    gauge(samples, &table::SPILLED, status.spilled_bytes);
    let waiting = status.waiting_checkpoints as u64;
    gauge(samples, &table::CHECKPOINTS_WAITING, waiting);
    let metadata = status
        .metadata_cache
        .map(|cache| ("metadata", cache.used_bytes, Some(cache.limit_bytes)));
    for (owner, used, limit) in [
        ("blocks", status.memory_bytes, Some(status.memory_limit)),
        ("packs", status.leased_bytes, None),
        ("admitted", status.admitted_bytes, None),
        ("names", status.names_bytes, Some(status.names_limit)),
    ]
    .into_iter()
    .chain(metadata)
    {
        let value = Value::Gauge(used as f64);
        samples.add(&table::MEMORY, [owner.into()], value);
        if let Some(limit) = limit {
            let value = Value::Gauge(limit as f64);
            samples.add(&table::MEMORY_LIMIT, [owner.into()], value);
        }
    }
    if let Some((used, limit)) = status.log {
        gauge(samples, &table::LOG, used);
        gauge(samples, &table::LOG_LIMIT, limit);
    }
}

/// What the bucket has.
fn add_space(status: &Status, samples: &mut Samples) {
    gauge(samples, &table::USED, status.used_bytes);
    gauge(samples, &table::FILES, status.inodes);
    gauge(samples, &table::DAMAGED_FRAMES, status.damaged_frames);
    let collector = &status.collector;
    if let Some(space) = &collector.space {
        gauge(samples, &table::PACKS, space.packs);
        gauge(samples, &table::SPACE_STORED, space.stored_bytes);
        let live = space.live_bytes.saturating_sub(space.shared_bytes);
        let dead = space.raw_bytes.saturating_sub(live);
        for (use_, bytes) in [("live", live), ("dead", dead)] {
            let value = Value::Gauge(bytes as f64);
            samples.add(&table::SPACE, [use_.into()], value);
        }
    }
    gauge(samples, &table::PACKS_TO_REWRITE, collector.to_rewrite);
    counter(samples, &table::PACKS_REWRITTEN, collector.rewritten);
    counter(samples, &table::REWRITTEN, collector.copied_bytes);
    counter(samples, &table::ORPHANS_DELETED, collector.orphans_deleted);
    gauge(samples, &table::FRAGMENTED, collector.fragmented_blocks);
    counter(samples, &table::DEFRAGMENTED, collector.defragmented_blocks);
    counter(
        samples,
        &table::DEFRAGMENTED_BYTES,
        collector.defragmented_bytes,
    );
}

/// Snapshots and the trash.
fn add_kept(status: &Status, samples: &mut Samples) {
    gauge(samples, &table::SNAPSHOTS, status.snapshots as u64);
    let unpublished = status.unpublished_snapshots as u64;
    gauge(samples, &table::SNAPSHOTS_UNPUBLISHED, unpublished);
    gauge(samples, &table::SNAPSHOT_HELD, status.held_bytes);
    gauge(samples, &table::TRASH_OBJECTS, status.trash_entries);
    gauge(samples, &table::TRASH, status.trash_bytes);
    for (cause, objects) in [
        ("time", status.trash_expired),
        ("room", status.trash_displaced),
    ] {
        let value = Value::Counter(objects as f64);
        samples.add(&table::TRASH_DELETED, [cause.into()], value);
    }
}

/// What compression, deduplication and the caches have saved.
fn add_reduction(status: &Status, samples: &mut Samples) {
    counter(
        samples,
        &table::COMPRESSION_RAW,
        status.compression.raw_bytes,
    );
    counter(
        samples,
        &table::COMPRESSION_STORED,
        status.compression.stored_bytes,
    );
    if let Some(dedup) = &status.dedup {
        counter(samples, &table::DEDUP_SAVED, dedup.saved_bytes);
        gauge(samples, &table::DEDUP_KNOWN, dedup.known_frames);
    }
    if let Some(cache) = &status.metadata_cache {
        for (part, lookups) in [
            ("block", cache.blocks),
            ("index", cache.indexes),
            ("filter", cache.filters),
        ] {
            for (result, number) in [("hit", lookups.hits), ("miss", lookups.misses)] {
                let value = Value::Counter(number as f64);
                let labels = [part.into(), result.into()];
                samples.add(&table::METADATA_CACHE_READS, labels, value);
            }
        }
    }
    if let Some(cache) = &status.disk_cache {
        gauge(samples, &table::DISK_CACHE, cache.used_bytes);
        gauge(samples, &table::DISK_CACHE_LIMIT, cache.limit_bytes);
        for (result, frames) in [
            ("hit", cache.hits),
            ("miss", cache.misses),
            ("damaged", cache.damaged),
        ] {
            let value = Value::Counter(frames as f64);
            samples.add(&table::DISK_CACHE_READS, [result.into()], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value as Json;

    use super::*;
    use crate::admin::fake::some_status;

    /// How metrics show a field of `forebay status --json`.
    enum Shown {
        /// By these families.
        By(&'static [&'static str]),
        /// They do not, for this reason.
        Not(&'static str),
    }
    use Shown::{By, Not};

    /// All fields; those of an object may stand for it.
    const FIELDS: &[(&str, Shown)] = &[
        ("health.state", By(&["health"])),
        ("health.problems", By(&["problem"])),
        (
            "waits",
            By(&["waiting_calls", "wait_duration_seconds", "problem"]),
        ),
        ("version", By(&["build_info"])),
        ("uptime_seconds", By(&["uptime_seconds"])),
        (
            "volume",
            Not("it names the gateway, which the target of a scrape does"),
        ),
        (
            "store",
            Not("it names the gateway, which the target of a scrape does"),
        ),
        ("listen", Not("an address is no number")),
        ("admin_listen", Not("it is the address of the scrape")),
        ("epoch", By(&["epoch"])),
        ("published_lsn", By(&["published_lsn"])),
        ("durable_lsn", By(&["durable_lsn"])),
        ("log_end_lsn", By(&["log_end_lsn"])),
        ("unpublished_bytes", By(&["unpublished_bytes"])),
        (
            "oldest_unpublished_age_seconds",
            By(&["unpublished_age_seconds"]),
        ),
        (
            "publication_bytes_per_second",
            By(&["publication_bytes_per_second"]),
        ),
        ("dirty_bytes", By(&["dirty_bytes"])),
        ("spilled_bytes", By(&["spilled_bytes"])),
        ("waiting_checkpoints", By(&["waiting_checkpoints"])),
        ("memory_bytes", By(&["memory_bytes"])),
        ("memory_limit_bytes", By(&["memory_limit_bytes"])),
        ("names_bytes", By(&["memory_bytes"])),
        ("names_limit_bytes", By(&["memory_limit_bytes"])),
        ("log_bytes", By(&["log_bytes"])),
        ("log_limit_bytes", By(&["log_limit_bytes"])),
        ("archived_logs.logs", By(&["archived_logs"])),
        ("archived_logs.bytes", By(&["archived_log_bytes"])),
        (
            "archived_logs.oldest_seconds",
            Not("the age of a kept log is no alarm; `forebay log list` has it"),
        ),
        ("log_error", By(&["problem"])),
        (
            "compression.level",
            Not("it is the plan for the last pack alone"),
        ),
        ("compression.raw_bytes", By(&["compression_raw_bytes"])),
        (
            "compression.stored_bytes",
            By(&["compression_stored_bytes"]),
        ),
        ("metadata_cache.used_bytes", By(&["memory_bytes"])),
        ("metadata_cache.limit_bytes", By(&["memory_limit_bytes"])),
        ("metadata_cache.hits", By(&["metadata_cache_reads"])),
        ("metadata_cache.misses", By(&["metadata_cache_reads"])),
        ("disk_cache.limit_bytes", By(&["disk_cache_limit_bytes"])),
        ("disk_cache.hits", By(&["disk_cache_reads"])),
        ("disk_cache.misses", By(&["disk_cache_reads"])),
        ("disk_cache.damaged", By(&["disk_cache_reads"])),
        ("disk_cache.failed", By(&["problem"])),
        ("space.packs", By(&["packs"])),
        ("space.stored_bytes", By(&["space_stored_bytes"])),
        ("space.raw_bytes", By(&["space_bytes"])),
        ("space.live_bytes", By(&["space_bytes"])),
        ("space.shared_bytes", By(&["space_bytes"])),
        ("space.packs_to_rewrite", By(&["packs_to_rewrite"])),
        (
            "space.dead_bytes_to_free",
            Not("a part of the dead bytes in `space_bytes`, which the next rewrites free"),
        ),
        ("space.packs_rewritten", By(&["packs_rewritten"])),
        ("space.bytes_copied", By(&["rewritten_bytes"])),
        (
            "space.packs_left_alone",
            Not("it is about one order, `forebay gc --rewrite`"),
        ),
        ("space.orphans_deleted", By(&["orphans_deleted"])),
        ("space.fragmented_blocks", By(&["fragmented_blocks"])),
        ("space.defragmented_blocks", By(&["defragmented_blocks"])),
        ("space.defragmented_bytes", By(&["defragmented_bytes"])),
        ("snapshots", By(&["snapshots", "snapshots_unpublished"])),
        ("snapshot_held_bytes", By(&["snapshot_held_bytes"])),
        ("trash_objects", By(&["trash_objects"])),
        ("trash_bytes", By(&["trash_bytes"])),
        ("next_snapshot", By(&["next_snapshot_seconds"])),
        ("damaged_frames", By(&["damaged_frames"])),
        ("dedup.saved_bytes", By(&["dedup_saved_bytes"])),
        ("dedup.known_frames", By(&["dedup_known_frames"])),
        ("dedup.learning", Not("it is over soon after a start")),
        ("checkpoint", By(&["checkpoint"])),
        ("checkpoint_state", By(&["checkpoint_stage"])),
        ("uploads_in_flight", By(&["uploads_in_flight"])),
        ("store_error", By(&["store_trouble_seconds"])),
        ("requests", By(&["store_request_duration_seconds"])),
        (
            "requests_by_cause",
            By(&[
                "store_request_duration_seconds",
                "store_sent_bytes",
                "store_received_bytes",
            ]),
        ),
        ("cost.currency", By(&["cost", "cost_per_day"])),
        ("cost.prices", Not("they are of the configuration")),
        ("cost.per_day", By(&["cost_per_day"])),
        ("cost.storage_per_day", By(&["cost_per_day"])),
        (
            "cost.window_seconds",
            Not("it is an hour, or the time since the start"),
        ),
        ("cost.since_start", By(&["cost"])),
        ("cost.by_cause", By(&["cost", "cost_per_day"])),
    ];

    /// The names of all fields of an object, those that stand in the list and those that have no object below them.
    fn add_fields(json: &Json, within: &str, fields: &mut BTreeSet<String>) {
        let Json::Object(object) = json else {
            fields.insert(within.to_owned());
            return;
        };
        if FIELDS.iter().any(|(name, _)| *name == within) {
            fields.insert(within.to_owned());
            return;
        }
        for (name, value) in object {
            let name = match within {
                "" => name.clone(),
                within => format!("{within}.{name}"),
            };
            add_fields(value, &name, fields);
        }
    }

    #[test]
    fn each_field_of_the_status_is_a_metric_or_has_a_reason() {
        let mut fields = BTreeSet::new();
        let status = serde_json::to_value(some_status()).unwrap();
        add_fields(&status, "", &mut fields);
        let listed: BTreeSet<_> = FIELDS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed.len(), FIELDS.len(), "a field is listed twice");
        assert_eq!(fields, listed);
        for (field, shown) in FIELDS {
            match shown {
                By(families) => {
                    assert!(!families.is_empty(), "{field}");
                    for name in *families {
                        let mut all = table::FAMILIES.iter();
                        assert!(all.any(|one| one.name == *name), "{field}: {name}");
                    }
                }
                Not(reason) => assert!(reason.contains(' '), "{field}"),
            }
        }
    }
}
