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
use forebay_object::{Cause, caused};
use forebay_pack::{Compression, PackWriter};
use forebay_reduction::compression::{BlockJudge, Sending};
use forebay_reduction::dedup::{Arrival, Fingerprint};
use forebay_types::{BlockKey, CheckpointId, Inode, PackId, bounded_u32, to_usize};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::content::Content;
use super::dirty::{DirtyBlock, DirtyBlocks, memory};
use super::put_pack::{LostFrame, PutPack, address, known_frame};
use super::share::Choice;
use super::{Halted, Publisher};
use crate::state::{AT_ONCE_BESIDE, Buffer, Closed, EFFORT_LOOK, Stopped};

/// The packs and frames of a checkpoint.
pub(crate) struct Uploaded {
    /// Its frames, by file.
    pub(crate) frames: HashMap<Inode, Vec<(BlockKey, FrameAddress)>>,
    pub(crate) packs: Vec<PutPack>,
    /// Resolves when all packs are in the bucket.
    pub(crate) ready: Ready,
    /// The uploads in flight; dropping it cancels them.
    _arriving: JoinSet<()>,
}

/// The addresses of blocks, valid now or when their pack has arrived.
pub(super) struct Landed {
    /// None if the bucket had everything already.
    pub(super) pack: Option<PutPack>,
    /// All frames, in the order of the blocks.
    pub(super) frames: Vec<(BlockKey, FrameAddress)>,
}

/// A pack that has been built.
struct Encoded {
    put: PutPack,
    /// The addresses of its frames.
    addresses: Vec<FrameAddress>,
    bytes: Bytes,
    sending: Sending,
}

impl Publisher {
    /// How many packs are built or in flight at once if nothing else is to be done. The last packs are built while most of a
    /// turn is left to make their metadata in.
    fn most_at_once(&self) -> usize {
        self.context.config.upload_parallel + 2 * AT_ONCE_BESIDE
    }

    /// The same for now, beside what clients do.
    fn uploads_at_once(&self) -> usize {
        let uploads = self.context.foreground.effort().uploads;
        match uploads < self.context.config.upload_parallel {
            true => uploads,
            false => self.most_at_once(),
        }
    }

    /// Uploads the dirty blocks. Returns as soon as all their addresses are known, when the last packs may still be
    /// in flight.
    pub(crate) async fn upload(self: &Arc<Self>, closed: &Closed) -> Result<Uploaded, Halted> {
        self.context.memory.uploading(closed.id);
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
            let at_once = self.uploads_at_once();
            // Oldest first. Some packs are built while as many as configured are in flight.
            while uploads.len() < at_once {
                if next.is_none() {
                    next = self
                        .next_group(&mut dirty, self.context.config.pack_bytes)
                        .await?;
                }
                let Some(group) = &next else { break };
                // Until the bucket has them, the pack and its assembled blocks take memory beside the block buffers
                // with the same bytes. The only upload always gets its memory, because uploads make memory free; the
                // next one waits for room, at most until that one is done.
                let bytes = memory(group);
                let lease = match uploads.is_empty() {
                    true => Some(self.context.memory.lease(bytes)),
                    false => self.context.memory.try_lease_reserve(bytes),
                };
                let Some(lease) = lease else { break };
                let Some(group) = next.take() else { break };
                not_landed += 1;
                let (publisher, pack) = (self.clone(), self.progress.new_pack());
                let upload = publisher.upload_pack(closed.id, pack, group, lease, landed.clone());
                uploads.spawn(caused(Cause::Publish, Box::pin(upload)));
            }
            // All groups are known before there is room for more: their metadata are made while as many packs as
            // possible are in flight.
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
                // Clients may pause, or wait.
                () = tokio::time::sleep(EFFORT_LOOK), if at_once < self.most_at_once() => {}
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

    /// Checks the result of an upload; stops the volume if its task panicked.
    fn ended(&self, done: Result<Result<(), Halted>, JoinError>) -> Result<(), Halted> {
        done.unwrap_or_else(|error| {
            self.context
                .signals
                .stop(Stopped::Failed(format!("an upload ended early: {error}")));
            Err(Halted)
        })
    }

    /// Makes a pack of the blocks' bytes that the bucket does not have, sends `landed` the addresses of all blocks as
    /// soon as they are known, and puts the pack into the bucket. The blocks belong to `checkpoint`.
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
            let (image, lost) = self.loaded(block.key, block.image).await?;
            let rewritten = match &block.rewrite {
                Some(rewrite) => self.whole_block(block.key, &image, rewrite).await?,
                None => None,
            };
            let content = Content::new(block.key, block.node, image, rewritten, lost);
            contents.push(content);
        }
        let (contents, fingerprints) = self.fingerprints(contents).await?;
        let arrival = Arc::new(Arrival::new());
        let choices = self.choose(checkpoint, pack, &arrival, &fingerprints).await;
        // The origin that each frame would have in this pack.
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
                // Uploads that share frames of this pack may wait for it, and this one may wait for them below.
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
                // If published, it would be a hole.
                let why = "a pack has fewer frames than were added to it".to_owned();
                self.context.signals.stop(Stopped::Failed(why));
                return Err(Halted);
            };
            frames.push((own.block, address));
        }
        // A receiver that was dropped has stopped.
        let _ = landed.send(Landed { pack: put, frames });
        drop(landed);
        match under_way {
            Some((bytes, sending)) => self.send_pack(pack, bytes, sending).await,
            None => Ok(()),
        }
    }

    /// Builds a pack of the frames that must be put; `None` if there are none.
    async fn encode_pack(
        self: &Arc<Self>,
        pack: PackId,
        contents: Vec<Content>,
        fingerprints: Vec<Option<Fingerprint>>,
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
        let lens: Vec<u64> = puts.map(|(frame, _)| frame.range.len()).collect();
        if lens.is_empty() {
            return Ok(None);
        }
        let raw_bytes: u64 = lens.iter().sum();
        let most = PackWriter::most_bytes(lens.len(), to_usize(raw_bytes));
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
                let (mut known, mut lost) = (Vec::new(), Vec::new());
                let (mut is_put, mut fingerprints) = (is_put.into_iter(), fingerprints.into_iter());
                for content in contents {
                    let file = &content.node.compression;
                    let mut judge = BlockJudge::new(file, content.key, encoding.level(), otherwise);
                    for frame in &content.frames {
                        let fingerprint = fingerprints.next().flatten();
                        if !is_put.next().unwrap_or(true) {
                            continue;
                        }
                        if let Some(why) = &frame.lost {
                            let frame = writer.push_lost(content.key, frame.range);
                            lost.push(LostFrame {
                                block: content.key,
                                address: address(&frame),
                                why: why.clone(),
                            });
                            continue;
                        }
                        let pieces = content.pieces(frame.range);
                        let hash = fingerprint.and_then(|fingerprint| fingerprint.hash);
                        let pieces = pieces.iter().copied();
                        let (frame, hash) = judge.push(&mut writer, frame.range, pieces, hash);
                        known.extend(fingerprint.map(|fingerprint| {
                            known_frame(content.key, &frame, &fingerprint, hash)
                        }));
                    }
                    // From here on writers can change its pieces in place again.
                    drop(content);
                }
                let (bytes, frames) = writer.finish_in_memory();
                let sending = encoding.done(bytes.len() as u64);
                (bytes, frames, (known, lost), sending)
            });
        let (bytes, frames, (known, lost), sending) = encoded.await.map_err(|error| {
            self.context.signals.stop(Stopped::Failed(format!(
                "a pack could not be encoded: {error}"
            )));
            Halted
        })?;
        // The memory of the assembled blocks is free again.
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
            frames: bounded_u32(frames.len()),
            born: Default::default(),
        };
        let put = PutPack {
            id: pack,
            record,
            known,
            lost,
        };
        let addresses = frames.iter().map(|entry| address(&entry.frame));
        Ok(Some(Encoded {
            put,
            addresses: addresses.collect(),
            bytes,
            sending,
        }))
    }

    /// Puts a pack into the bucket, however long that takes; `Err` if the volume stops before.
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
