//! Which frames of a new pack need not be uploaded: the lookups for `forebay_reduction::dedup`.

use std::sync::Arc;

use forebay_meta::record::{FrameAddress, KnownFrame, Origin, PackFrames};
use forebay_meta::{Key, KeyRange};
use forebay_reduction::dedup::{Arrival, Fingerprint, Found, Frames, MAX_FRAMES, fingerprints};
use forebay_types::{CheckpointId, PackId};

use super::committer::by_hash;
use super::content::Content;
use super::{Halted, Publisher};
use crate::state::Stopped;

/// How many parts of a pack's frames are read at a time; while the filter is filled, parts of all packs.
const PARTS_PER_SCAN: usize = 16;

/// The decision about a frame.
pub(super) enum Choice {
    /// It is uploaded.
    Put,
    /// The bucket has it, in this pack.
    Shared(PackId, KnownFrame),
    /// It is in a pack in flight, at this place in it.
    Awaited(Arc<Arrival>, PackId, usize),
}

impl Choice {
    pub(super) fn is_put(&self) -> bool {
        matches!(self, Choice::Put)
    }
}

impl Publisher {
    /// The fingerprints of all frames of `contents`, in their order, none for those that are lost; empty without
    /// deduplication.
    pub(super) async fn fingerprints(
        &self,
        contents: Vec<Content>,
    ) -> Result<(Vec<Content>, Vec<Option<Fingerprint>>), Halted> {
        if self.context.sharing.is_off() {
            return Ok((contents, Vec::new()));
        }
        let (sharing, keys) = (
            self.context.sharing.clone(),
            self.context.packs.keys().clone(),
        );
        let fingerprinted = self.context.environment.compute.run_in_background(move || {
            let frames = contents
                .iter()
                .flat_map(|content| content.frames.iter().map(move |frame| (content, frame)));
            let whole = frames.clone().filter(|(_, frame)| frame.lost.is_none());
            let whole: Vec<Vec<&[u8]>> = whole
                .map(|(content, frame)| content.pieces(frame.range))
                .collect();
            let mut fingerprints = fingerprints(&whole, &sharing, &keys).into_iter();
            drop(whole);
            let fingerprints = frames.map(|(_, frame)| match frame.lost {
                Some(_) => None,
                None => fingerprints.next(),
            });
            let fingerprints = fingerprints.collect();
            (contents, fingerprints)
        });
        fingerprinted.await.map_err(|error| {
            self.context.signals.stop(Stopped::Failed(format!(
                "a pack could not be read: {error}"
            )));
            Halted
        })
    }

    /// Decides about the frames with these fingerprints; one without is put. They belong to `checkpoint`, and those that
    /// must be uploaded go into `pack`. `arrival` is set when that pack has arrived.
    pub(super) async fn choose(
        &self,
        checkpoint: CheckpointId,
        pack: PackId,
        arrival: &Arc<Arrival>,
        fingerprints: &[Option<Fingerprint>],
    ) -> Vec<Choice> {
        let mut choices = Vec::with_capacity(fingerprints.len());
        let mut put = 0;
        for fingerprint in fingerprints {
            let Some(fingerprint) = fingerprint else {
                choices.push(Choice::Put);
                continue;
            };
            let found = match self.context.sharing.look(checkpoint, fingerprint) {
                Found::Unpublished(arrival, pack, place) => {
                    Some(Choice::Awaited(arrival, pack, place))
                }
                Found::Perhaps(pack) => self.look_into(checkpoint, pack, fingerprint).await,
                Found::Nowhere => None,
            };
            let choice = found.unwrap_or_else(|| {
                self.context
                    .sharing
                    .claim(fingerprint, checkpoint, pack, arrival, put);
                put += 1;
                Choice::Put
            });
            if !choice.is_put() {
                self.context.sharing.saved(u64::from(fingerprint.len));
            }
            choices.push(choice);
        }
        choices
    }

    /// The frame with this fingerprint in a published pack. The pack is pinned then.
    async fn look_into(
        &self,
        checkpoint: CheckpointId,
        pack: PackId,
        fingerprint: &Fingerprint,
    ) -> Option<Choice> {
        let hash = fingerprint.hash?;
        if self.context.damages.may_have(pack) {
            // Healing uploads the bytes again, and must not find the damaged frame.
            return None;
        }
        let frames = self.frames_of(pack).await?;
        let found = frames
            .get(&hash)
            .filter(|found| fingerprint.is_same(&Fingerprint::of(found)));
        let Some(found) = found else {
            self.context.sharing.forget(fingerprint, pack);
            return None;
        };
        let pinned = self.context.sharing.pin(checkpoint, pack)?;
        if !pinned {
            // Only now: a task that makes the pack garbage from here on sees the pin.
            let account = self.context.catalog.pack(pack).await;
            let account = account
                .inspect_err(|error| not_looked_up(pack, error))
                .ok()?;
            if account.is_none_or(|account| account.live_bytes == 0) {
                self.context.sharing.forget(fingerprint, pack);
                return None;
            }
            self.context.sharing.is_alive(checkpoint, pack);
        }
        Some(Choice::Shared(pack, *found))
    }

    /// The frames of a published pack whose content is known; `None` if they cannot be read: then their content is
    /// uploaded again.
    async fn frames_of(&self, pack: PackId) -> Option<Arc<Frames>> {
        if let Some(frames) = self.context.sharing.frames_of(pack) {
            return Some(frames);
        }
        let mut range = KeyRange::pack_frames(pack);
        let mut frames = Frames::new();
        loop {
            let parts = self
                .context
                .catalog
                .records::<PackFrames>(&range, PARTS_PER_SCAN);
            let parts = parts.await.inspect_err(|error| not_looked_up(pack, error));
            let parts = parts.ok()?;
            let last = parts.last().map(|(key, _)| key.encode());
            let full = parts.len() == PARTS_PER_SCAN;
            for (_, PackFrames(part)) in parts {
                frames.extend(part.into_iter().filter_map(by_hash));
            }
            match last.filter(|_| full && frames.len() < MAX_FRAMES) {
                Some(last) => range = range.after(&last),
                None => break,
            }
        }
        let frames = Arc::new(frames);
        self.context.sharing.keep_frames(pack, frames.clone());
        Some(frames)
    }

    /// The address of a frame that another upload has put: `own` is the origin that it would have here.
    pub(super) async fn shared_address(
        &self,
        choice: Choice,
        own: Origin,
    ) -> Result<Option<FrameAddress>, Halted> {
        let (pack, known) = match choice {
            Choice::Put => return Ok(None),
            Choice::Shared(pack, known) => (pack, known),
            Choice::Awaited(arrival, pack, place) => {
                let mut stopped = self.context.signals.watch_stopped();
                let frames = tokio::select! {
                    biased;
                    _ = stopped.wait_for(Option::is_some) => return Err(Halted),
                    frames = arrival.wait() => frames,
                };
                match frames.get(place) {
                    Some(known) => (pack, *known),
                    None => {
                        let why = format!("pack {pack} has no frame {place}");
                        self.context.signals.stop(Stopped::Failed(why));
                        return Err(Halted);
                    }
                }
            }
        };
        Ok(Some(FrameAddress {
            pack,
            offset: known.offset,
            stored_len: known.stored_len,
            raw_len: known.raw_len,
            raw_start: own.start,
            crc32: known.crc32,
            origin: (known.origin != own).then_some(known.origin),
        }))
    }

    /// Whether the bucket has notes on the frames of packs, or will have.
    pub(super) async fn has_frame_notes(&self) -> Result<bool, Halted> {
        let sharing = &self.context.sharing;
        if !sharing.is_off() || sharing.does_share_frames() {
            return Ok(true);
        }
        let look = || async {
            // A restore makes referrers without deduplication.
            for all in [
                KeyRange::pack_frames_from(PackId(0)),
                KeyRange::referrers_from(PackId(0)),
            ] {
                let found = self.committer.insist(|| self.context.catalog.scan(&all, 1));
                if !found.await?.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        self.context
            .sharing
            .has_notes
            .get_or_try_init(look)
            .await
            .copied()
    }

    /// Reads the notes of earlier runs on the content of packs. Until that is done, content that only these packs
    /// have is uploaded again.
    pub(crate) async fn learn_frames(self: Arc<Self>) {
        if self.context.sharing.is_off() {
            return;
        }
        let mut range = KeyRange::pack_frames_from(PackId(0));
        let mut attempt = 0;
        loop {
            let parts = self
                .context
                .catalog
                .records::<PackFrames>(&range, PARTS_PER_SCAN);
            let parts = match parts.await {
                Ok(parts) => parts,
                Err(forebay_meta::StoreError::Transient(_)) => {
                    attempt += 1;
                    let pause =
                        forebay_environment::backoff(attempt, &*self.context.environment.random);
                    tokio::time::sleep(pause).await;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot read the fingerprints of the packs to the end: {error}; deduplication finds less, and more is uploaded"
                    );
                    break;
                }
            };
            attempt = 0;
            for (key, PackFrames(frames)) in &parts {
                if let Key::PackFrames(pack, _) = key {
                    self.context.sharing.learn(*pack, frames);
                }
            }
            match parts.last() {
                Some((last, _)) if parts.len() == PARTS_PER_SCAN => {
                    range = range.after(&last.encode());
                }
                _ => break,
            }
        }
        self.context.sharing.has_learnt();
    }
}

fn not_looked_up(pack: PackId, error: &forebay_meta::StoreError) {
    tracing::warn!(
        "cannot look up the fingerprints of pack {pack}: {error}; the same content is uploaded again"
    );
}
