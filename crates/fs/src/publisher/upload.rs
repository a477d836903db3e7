//! Uploading: the dirty ranges of a closed checkpoint become frames, the frames packs, and the
//! packs objects in the bucket. Nothing in the bucket refers to them before the checkpoint is published.
//!
//! ```text
//!   blocks of a pack ---> encoded ---------> landed: it is known ---> put
//!   are taken over        on its own         where each frame lies     |
//!   (next_group)          threads               |                      v
//!                                               v                   ready: all packs are there
//!                                            the metadata are put together, and wait for that
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::Lease;
use forebay_meta::Ready;
use forebay_meta::record::{FrameAddress, Origin, PackRecord};
use forebay_pack::{Compression, PackWriter};
use forebay_reduction::compression::{BlockJudge, Sending};
use forebay_reduction::dedup::{Arrival, Fingerprint};
use forebay_types::{BlockKey, ByteRange, CheckpointId, Inode, PackId};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::content::Content;
use super::dirty::{DirtyBlock, DirtyBlocks, memory};
use super::put_pack::{PutPack, address, known_frame};
use super::share::Choice;
use super::{Halted, Publisher, pack_plan};
use crate::state::{AT_ONCE_BESIDE, Buffer, Closed, Stopped};

/// What a checkpoint puts into the bucket.
pub(crate) struct Uploaded {
    /// Its frames, by file.
    pub(crate) frames: HashMap<Inode, Vec<(BlockKey, FrameAddress)>>,
    pub(crate) packs: Vec<PutPack>,
    /// When all of it is there.
    pub(crate) ready: Ready,
    /// What is still on its way; dropped, it does not arrive.
    _arriving: JoinSet<()>,
}

/// Where blocks lie, or will when their pack has arrived.
pub(super) struct Landed {
    /// None if the bucket had everything already.
    pub(super) pack: Option<PutPack>,
    /// All frames, in the order of the blocks.
    pub(super) frames: Vec<(BlockKey, FrameAddress)>,
}

/// A pack that has been put together.
struct Encoded {
    put: PutPack,
    /// Where each of its frames will lie.
    addresses: Vec<FrameAddress>,
    bytes: Bytes,
    sending: Sending,
}

impl Publisher {
    /// Uploads what is dirty. Returns as soon as it is known where all of it will lie, when the last packs may still be on
    /// their way.
    pub(crate) async fn upload(self: &Arc<Self>, closed: &Closed) -> Result<Uploaded, Halted> {
        // The last ones are put together while most of a turn is left to make their metadata in.
        let at_once = self.context.config.upload_parallel + 2 * AT_ONCE_BESIDE;
        let mut packs = self.take_eager_packs(closed.id);
        let mut frames: HashMap<_, Vec<_>> = HashMap::new();
        let mut dirty = DirtyBlocks::of(closed);
        let mut next = None;
        let mut uploads = JoinSet::new();
        let mut not_landed = 0;
        let (landed, mut landings) = mpsc::unbounded_channel();
        let mut land = |Landed {
                            pack,
                            frames: found,
                        }| {
            packs.extend(pack);
            for (key, frame) in found {
                frames.entry(key.inode).or_default().push((key, frame));
            }
        };
        loop {
            // Oldest first. Some are put together while as many as configured are on their way.
            while uploads.len() < at_once {
                if next.is_none() {
                    next = self
                        .next_group(&mut dirty, self.context.config.pack_bytes)
                        .await?;
                }
                let Some(group) = &next else { break };
                // The pack, and blocks that are put together for it, are memory beside the block buffers whose
                // bytes they have, until the bucket has them. One at a time there is always, for memory becomes
                // free by uploads; the next one waits for room, at most until that one is done.
                let bytes = memory(group);
                let lease = match uploads.is_empty() {
                    true => Some(self.context.memory.lease(bytes)),
                    false => self.context.memory.try_lease_reserve(bytes),
                };
                let Some(lease) = lease else { break };
                let Some(group) = next.take() else { break };
                not_landed += 1;
                let (publisher, pack) = (self.clone(), self.progress.new_pack());
                uploads.spawn(publisher.upload_pack(closed.id, pack, group, lease, landed.clone()));
            }
            // Known before there is room for more, their metadata are made beside as many packs as can be.
            if next.is_none() && (uploads.len() < at_once || dirty.is_empty()) {
                break;
            }
            tokio::select! {
                biased;
                Some(landing) = landings.recv() => {
                    not_landed -= 1;
                    land(landing);
                }
                Some(done) = uploads.join_next() => self.ended(done)?,
            }
        }
        drop(landed);
        while let Some(landing) = landings.recv().await {
            not_landed -= 1;
            land(landing);
        }
        if not_landed > 0 {
            while let Some(done) = uploads.join_next().await {
                self.ended(done)?;
            }
            return Err(Halted);
        }
        let (arrived, ready) = Ready::later();
        let publisher = self.clone();
        let mut arriving = JoinSet::new();
        arriving.spawn(async move {
            while let Some(done) = uploads.join_next().await {
                if publisher.ended(done).is_err() {
                    return;
                }
            }
            arrived.announce();
        });
        Ok(Uploaded {
            frames,
            packs,
            ready,
            _arriving: arriving,
        })
    }

    /// Looks at what an upload has come to.
    fn ended(&self, done: Result<Result<(), Halted>, JoinError>) -> Result<(), Halted> {
        done.unwrap_or_else(|error| {
            self.context
                .signals
                .stop(Stopped::Failed(format!("an upload ended early: {error}")));
            Err(Halted)
        })
    }

    /// Makes a pack of what the bucket does not have of the blocks, tells `landed` where all of them lie as soon as that is
    /// known, and puts the pack into the bucket. The blocks are of `checkpoint`.
    pub(super) async fn upload_pack(
        self: Arc<Self>,
        checkpoint: CheckpointId,
        pack: PackId,
        group: Vec<DirtyBlock>,
        lease: Lease,
        landed: mpsc::UnboundedSender<Landed>,
    ) -> Result<(), Halted> {
        let _counted = self.progress.begin_upload();
        let mut contents = Vec::with_capacity(group.len());
        for block in group {
            let rewritten = match &block.rewrite {
                Some(rewrite) => self.whole_block(&block, rewrite).await?,
                None => None,
            };
            let frames: Vec<ByteRange> = match &rewritten {
                Some(whole) => pack_plan::frames(all_of(whole)).collect(),
                None => block
                    .snapshot
                    .ranges()
                    .flat_map(pack_plan::frames)
                    .collect(),
            };
            contents.push(Content {
                key: block.key,
                node: block.node,
                snapshot: block.snapshot,
                rewritten,
                frames,
            });
        }
        let (contents, fingerprints) = self.fingerprints(contents).await?;
        let arrival = Arc::new(Arrival::new());
        let choices = self.choose(checkpoint, pack, &arrival, &fingerprints).await;
        // Of each frame, what it would be there for.
        let owns: Vec<Origin> = contents.iter().flat_map(Content::origins).collect();
        let encoded = self
            .encode_pack(pack, contents, fingerprints, &choices, lease)
            .await?;
        let (mut put, mut addresses, mut under_way) = (None, Vec::new(), None);
        if let Some(encoded) = encoded {
            addresses = encoded.addresses;
            if self.context.sharing.is_off() {
                under_way = Some((encoded.bytes, encoded.sending));
            } else {
                self.send_pack(pack, encoded.bytes, encoded.sending).await?;
                // Whoever shares frames of it may wait, and be waited for below.
                let _ = arrival.set(encoded.put.known.clone());
            }
            put = Some(encoded.put);
        }
        let mut addresses = addresses.into_iter();
        let mut frames = Vec::with_capacity(owns.len());
        let mut choices = choices.into_iter();
        for own in owns {
            let choice = choices.next().unwrap_or(Choice::Put);
            let address = match self.shared_address(choice, own).await? {
                Some(shared) => Some(shared),
                None => addresses.next(),
            };
            let Some(address) = address else {
                // Published, it would be a hole.
                let why = "a pack has fewer frames than were to be put into it".to_owned();
                self.context.signals.stop(Stopped::Failed(why));
                return Err(Halted);
            };
            frames.push((own.block, address));
        }
        // Who does not listen any more has stopped.
        let _ = landed.send(Landed { pack: put, frames });
        drop(landed);
        match under_way {
            Some((bytes, sending)) => self.send_pack(pack, bytes, sending).await,
            None => Ok(()),
        }
    }

    /// Makes a pack of the frames that are to be put. None if there are none.
    async fn encode_pack(
        self: &Arc<Self>,
        pack: PackId,
        contents: Vec<Content>,
        fingerprints: Vec<Fingerprint>,
        choices: &[Choice],
        lease: Lease,
    ) -> Result<Option<Encoded>, Halted> {
        // Without deduplication there are no choices.
        let is_put: Vec<bool> = match self.context.sharing.is_off() {
            true => contents
                .iter()
                .flat_map(|content| &content.frames)
                .map(|_| true)
                .collect(),
            false => choices.iter().map(Choice::is_put).collect(),
        };
        let (keys, otherwise) = (
            self.context.packs.keys().clone(),
            self.context.config.compression,
        );
        let compressing = self.compressing.clone();
        let link_limit = self.context.trouble.upload_rate();
        let all = contents.iter().flat_map(|content| &content.frames);
        let puts = all.zip(&is_put).filter(|(_, is_put)| **is_put);
        let lens: Vec<u64> = puts.map(|(frame, _)| frame.len()).collect();
        if lens.is_empty() {
            return Ok(None);
        }
        let raw_bytes: u64 = lens.iter().sum();
        let most = PackWriter::most_bytes(lens.len(), raw_bytes as usize);
        let (memory, kept) = match self.context.memory.pack_buffers.take(most) {
            Some(buffer) => (buffer.bytes, Some(buffer.lease)),
            None => (Vec::with_capacity(most), None),
        };
        let encoded =
            self.context.environment.compute.run_in_background(move || {
                let files = contents.iter();
                let files = files.map(|content| content.node.compression.now(otherwise));
                let encoding = compressing.encode(raw_bytes, files, link_limit);
                let mut writer = PackWriter::new_in(memory, pack, &keys, Compression::Off);
                let mut known = Vec::new();
                let (mut is_put, mut fingerprints) = (is_put.into_iter(), fingerprints.into_iter());
                for content in contents {
                    let file = &content.node.compression;
                    let mut judge = BlockJudge::new(file, content.key, encoding.level(), otherwise);
                    for frame in &content.frames {
                        let fingerprint = fingerprints.next();
                        if !is_put.next().unwrap_or(true) {
                            continue;
                        }
                        let pieces = content.pieces(*frame);
                        let hash = fingerprint.and_then(|fingerprint| fingerprint.hash);
                        let pieces = pieces.iter().copied();
                        let (frame, hash) = judge.push(&mut writer, *frame, pieces, hash);
                        known.extend(fingerprint.map(|fingerprint| {
                            known_frame(content.key, &frame, &fingerprint, hash)
                        }));
                    }
                    // From here on writers change its pieces in place again.
                    drop(content);
                }
                let (bytes, frames) = writer.finish_in_memory();
                let sending = encoding.done(bytes.len() as u64);
                (bytes, frames, known, sending)
            });
        let (bytes, frames, known, sending) = encoded.await.map_err(|error| {
            self.context.signals.stop(Stopped::Failed(format!(
                "a pack could not be encoded: {error}"
            )));
            Halted
        })?;
        // What blocks took that were put together first is free again.
        let mut lease = kept.unwrap_or(lease);
        let spare = lease.bytes().saturating_sub(bytes.capacity() as u64);
        lease.give_back(spare);
        let bytes = self
            .context
            .memory
            .pack_buffers
            .lend(Buffer { bytes, lease });
        let record = PackRecord {
            bytes: bytes.len() as u64,
            raw_bytes,
            live_bytes: raw_bytes,
            frames: frames.len() as u32,
        };
        let put = PutPack {
            id: pack,
            record,
            known,
        };
        let addresses = frames.iter().map(|entry| address(&entry.frame));
        Ok(Some(Encoded {
            put,
            addresses: addresses.collect(),
            bytes,
            sending,
        }))
    }

    /// Puts a pack into the bucket, however long that takes; `Err` when the volume stops before.
    async fn send_pack(&self, pack: PackId, bytes: Bytes, sending: Sending) -> Result<(), Halted> {
        let (mut attempt, mut is_doubtful) = (1, false);
        loop {
            match self.context.packs.put(pack, bytes.clone()).await {
                Ok(doubtful) => {
                    is_doubtful |= doubtful;
                    break;
                }
                Err(error) => {
                    is_doubtful = true;
                    let why = format!("pack {pack}: {error}");
                    self.committer.wait_for_store(&why, attempt).await?;
                    attempt += 1;
                }
            }
        }
        if is_doubtful {
            self.committer.put_in_doubt(pack);
        }
        sending.arrived(bytes.len() as u64);
        self.context.trouble.store_works();
        Ok(())
    }
}

fn all_of(whole: &[u8]) -> ByteRange {
    ByteRange::new(0, whole.len() as u64)
}
