//! Reads every frame that the newest state or a snapshot refers to, and verifies it.
//!
//! Block maps are walked in windows of some hundred thousand frames. The frames of a window are sorted by their
//! position; adjoining ones are read by one GET. A frame that is not shared is named by one map, in one window only,
//! and read once; a shared frame is read once in each window.
//!
//! The maps of the newest state come first, then those of [snapshots](crate::walk::past), from the newest to the
//! oldest: of each map the frames that its neighbour, which was read before, does not have under the same key.

mod damaged;
mod plan;

use std::collections::HashSet;

use forebay_meta::record::BlockMap;
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_pack::{Frame, FrameError, open_frame};
use forebay_types::{Inode, PackId, to_usize};
use futures_util::{StreamExt, stream};

use crate::bucket::{Bucket, Unread};
use crate::ended::Ended;
use crate::finding::Nobody;
use crate::progress::Stage;
use crate::source::Cursor;
use crate::walk::Walk;
use crate::walk::past::{Chain, Differences};
use damaged::Damaged;
use plan::{MAX_GET, Read, Wanted};

/// Most GETs in flight.
const AT_ONCE: usize = 16;
/// How often a frame that arrives damaged is fetched.
const FETCHES: u32 = 3;

/// Reads every frame that a block map of the moment, or of its snapshots, refers to, in about `memory` bytes.
pub(crate) async fn read(walk: &mut Walk, bucket: &Bucket, memory: usize) -> Result<(), Ended> {
    let total = u64::try_from(walk.totals.used).unwrap_or(u64::MAX);
    walk.progress.begin(Stage::Data, total);
    let window = (memory / 2 / size_of::<Wanted>()).max(1024);
    let parallel = (memory / 2 / to_usize(MAX_GET)).clamp(1, AT_ONCE);
    let mut blocks = Cursor::new(&walk.source, KeyRange::blocks_from(Inode(0)));
    let mut damaged = Damaged::default();
    loop {
        let wanted = gather(&mut blocks, window).await?;
        if wanted.is_empty() {
            break;
        }
        read_window(walk, bucket, wanted, parallel, &mut damaged).await?;
    }
    if let Some(mut chain) = walk.chain(&bucket.newest, false) {
        walk.progress.begin(Stage::Data, 0);
        loop {
            let wanted = gather_past(&mut chain, window).await?;
            if wanted.is_empty() {
                break;
            }
            read_window(walk, bucket, wanted, parallel, &mut damaged).await?;
        }
    }
    damaged.report(walk, bucket).await
}

/// Collects the frames of the next block maps of snapshots that were not read before.
async fn gather_past(chain: &mut Chain, window: usize) -> Result<Vec<Wanted>, StoreError> {
    let mut wanted = Vec::new();
    while wanted.len() < window {
        // Snapshots that cannot be read were reported before.
        let Some(Differences { older, found, .. }) = chain.next(&mut Nobody).await? else {
            break;
        };
        for one in found {
            let Some(map) = &one.older else { continue };
            let newer = one
                .newer
                .iter()
                .flat_map(|map| plan::frames(one.block, map));
            let read: HashSet<(PackId, u32)> = newer.map(|one| one.place()).collect();
            let unread = plan::frames(one.block, map).filter(|one| !read.contains(&one.place()));
            wanted.extend(unread.map(|one| Wanted {
                snapshot: older.clone(),
                ..one
            }));
        }
    }
    Ok(wanted)
}

/// Collects the frames of the next block maps.
async fn gather(blocks: &mut Cursor, window: usize) -> Result<Vec<Wanted>, StoreError> {
    let mut wanted = Vec::new();
    while wanted.len() < window {
        let Some((key, map)) = blocks.record::<BlockMap>(&mut Nobody).await? else {
            break;
        };
        if let (Key::Block(key), Some(map)) = (key, map) {
            wanted.extend(plan::frames(key, &map));
        }
    }
    Ok(wanted)
}

async fn read_window(
    walk: &mut Walk,
    bucket: &Bucket,
    wanted: Vec<Wanted>,
    parallel: usize,
    damaged: &mut Damaged,
) -> Result<(), Ended> {
    let reads = plan::reads(wanted).into_iter().map(|read| {
        let bucket = bucket.clone();
        async move { verify(&bucket, read).await }
    });
    let mut reads = stream::iter(reads).buffer_unordered(parallel);
    let mut suspects = Vec::new();
    while let Some(verified) = reads.next().await {
        for (wanted, fault) in verified.map_err(Ended::Bucket)? {
            walk.progress.add(u64::from(wanted.to - wanted.from));
            match fault {
                None => walk
                    .census
                    .frames_read
                    .add(u64::from(wanted.frame.stored_len)),
                Some(why) => suspects.push((wanted, why)),
            }
        }
    }
    drop(reads);
    // Frames of one pack are adjacent, so that the pack is looked up once.
    suspects.sort_unstable_by_key(|(wanted, _)| (wanted.frame.pack, wanted.frame.offset));
    let mut looked_up = None;
    for (wanted, why) in suspects {
        let pack = wanted.frame.pack;
        let gone = match looked_up {
            Some((of, gone)) if of == pack => gone,
            _ => bucket.has_gone(pack).await?,
        };
        looked_up = Some((pack, gone));
        if !gone {
            damaged.add(wanted, why, &mut walk.findings);
        }
    }
    Ok(())
}

/// Frames, each with its error if it has one.
type Verified = Vec<(Wanted, Option<String>)>;

/// Reads adjoining frames by one GET, and each by itself where that fails.
async fn verify(bucket: &Bucket, read: Read) -> Result<Verified, String> {
    let Read {
        pack,
        range,
        frames,
    } = read;
    let bytes = match bucket.bytes(pack, range.start, range.end).await {
        Ok(bytes) => bytes,
        Err(Unread::Bucket(why)) => return Err(why),
        Err(Unread::Missing) => {
            let missing = || Some("the pack is not in the bucket".to_owned());
            return Ok(frames.into_iter().map(|one| (one, missing())).collect());
        }
        Err(Unread::CutOff { len }) => return one_by_one(bucket, frames, Some(len)).await,
    };
    let keys = bucket.keys.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let open = |one: Wanted| {
            let stored = one.frame.stored_range();
            let from = to_usize(stored.start.saturating_sub(range.start));
            let to = to_usize(stored.end.saturating_sub(range.start));
            let bytes = bytes.slice(from.min(bytes.len())..to.min(bytes.len()));
            let opened = open_frame(bytes, &one.frame, one.of, &keys);
            let fault = opened
                .and_then(|frame: Frame| frame.verify_hash(&keys))
                .err();
            (one, fault)
        };
        frames.into_iter().map(open).collect::<Vec<_>>()
    });
    let opened = opening.await.map_err(|error| error.to_string())?;
    let mut verified = Vec::with_capacity(opened.len());
    for (one, fault) in opened {
        let fault = match fault {
            Some(fault) if fault.is_worth_another_fetch() => again(bucket, &one).await?,
            fault => fault.map(|fault| fault.fault.to_string()),
        };
        verified.push((one, fault));
    }
    Ok(verified)
}

/// Fetches frames one after the other. `len` is the length of their pack, if the frames reach beyond it.
async fn one_by_one(
    bucket: &Bucket,
    frames: Vec<Wanted>,
    len: Option<u64>,
) -> Result<Verified, String> {
    let mut verified = Vec::with_capacity(frames.len());
    for one in frames {
        let fault = match len {
            Some(len) if one.frame.stored_range().end > len => Some(cut_off(len)),
            _ => again(bucket, &one).await?,
        };
        verified.push((one, fault));
    }
    Ok(verified)
}

fn cut_off(len: u64) -> String {
    format!("the pack is cut off: it has {len} bytes")
}

/// Fetches a frame by itself, several times if it arrives damaged. Returns its error after the last fetch, if any.
async fn again(bucket: &Bucket, one: &Wanted) -> Result<Option<String>, String> {
    let stored = one.frame.stored_range();
    let mut fetch = 1;
    loop {
        let bytes = match bucket.bytes(one.frame.pack, stored.start, stored.end).await {
            Ok(bytes) => bytes,
            Err(Unread::Bucket(why)) => return Err(why),
            Err(Unread::Missing) => return Ok(Some("the pack is not in the bucket".to_owned())),
            Err(Unread::CutOff { len }) => return Ok(Some(cut_off(len))),
        };
        let opened = open_frame(bytes, &one.frame, one.of, &bucket.keys);
        let verified = opened.and_then(|frame| frame.verify_hash(&bucket.keys));
        match verified {
            Ok(()) => return Ok(None),
            Err(error) if error.is_worth_another_fetch() && fetch < FETCHES => fetch += 1,
            Err(FrameError { fault, .. }) => return Ok(Some(fault.to_string())),
        }
    }
}
