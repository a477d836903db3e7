//! The state of a gateway's volume as metrics: what `forebay status` shows.

use std::sync::Arc;
use std::time::Instant;

use forebay_fs::{Stage, Status, Volume};
use forebay_metrics::{Family, Samples, Source, Value, table};

use crate::health::Health;
use crate::watch::{self, Watcher};

/// The state of a volume that is open.
pub(super) struct VolumeState {
    pub(super) volume: Volume,
    pub(super) watcher: Arc<Watcher>,
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
    gauge(samples, &table::DIRTY, status.dirty_bytes);
    for (owner, used, limit) in [
        ("blocks", status.memory_bytes, Some(status.memory_limit)),
        ("packs", status.leased_bytes, None),
        ("admitted", status.admitted_bytes, None),
        ("names", status.names_bytes, Some(status.names_limit)),
    ] {
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
    gauge(samples, &table::SNAPSHOTS, status.snapshots as u64);
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
    gauge(samples, &table::PACKS_TO_REWRITE, collector.to_rewrite);
    counter(samples, &table::PACKS_REWRITTEN, collector.rewritten);
    counter(samples, &table::REWRITTEN, collector.copied_bytes);
    counter(samples, &table::ORPHANS_DELETED, collector.orphans_deleted);
}

/// What compression, deduplication and the disk cache have saved.
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
