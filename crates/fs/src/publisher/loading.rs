//! Loading: bytes of an image that are in the log alone come from there before the image is encoded.
//!
//! ```text
//!   logged ----------> loaded      a record that cannot be read is read again, with pauses
//!     |                            that double
//!     | the disk returns nothing, or other bytes, every time
//!     v
//!    lost              published as a frame that nobody can read; the rest of the image is
//!                      published as usual
//! ```
//!
//! Only what the disk says about these bytes makes them lost. If the log cannot find or open what it should have, the
//! volume stops: the next start reads the same log, and loses nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::{BlockImage, LoadedImage};
use forebay_types::{BlockKey, ByteRange, Lsn};
use forebay_wal::ReadFailed;

use super::{Halted, Publisher};
use crate::state::{RECORDS_AT_ONCE, Stopped};

/// How often records that cannot be read are read once more: half a minute by default.
const ATTEMPTS: u32 = 6;
/// The same while nothing has been read since the last record was given up.
const ATTEMPTS_AFTER_A_LOSS: u32 = 1;

/// A range of a block whose bytes the log cannot return.
pub(super) struct Lost {
    pub(super) range: ByteRange,
    pub(super) why: Arc<str>,
}

/// A record that was not loaded.
struct Failed {
    lsn: Lsn,
    why: String,
    /// Whether the disk does not have its bytes any more.
    is_damage: bool,
}

impl Publisher {
    /// The image with all of its bytes that the log returns, and the ranges of the others, ascending.
    pub(super) async fn loaded(
        &self,
        key: BlockKey,
        mut image: BlockImage,
    ) -> Result<(LoadedImage, Vec<Lost>), Halted> {
        let mut pause = self.context.config.log_read_pause;
        let mut attempt = 0;
        let mut lost = Vec::new();
        loop {
            let failed = self.load(key, &mut image).await;
            let Some(first) = failed.first() else { break };
            let most = match self.loses.load(Ordering::Relaxed) {
                true => ATTEMPTS_AFTER_A_LOSS,
                false => ATTEMPTS,
            };
            if attempt >= most {
                lost = self.give_up(key, &mut image, &failed)?;
                break;
            }
            tracing::warn!(
                "bytes of inode {}, from {} on, are in the log alone, which cannot return them: {}; they are read once more",
                key.inode,
                key.block.start(),
                first.why
            );
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
        match image.loaded() {
            Ok(image) => Ok((image, lost)),
            Err(_) => Err(self.halt("an image needs records that were not looked for".to_owned())),
        }
    }

    /// Puts the bytes of all records that it needs into the image. Returns those that did not come.
    async fn load(&self, key: BlockKey, image: &mut BlockImage) -> Vec<Failed> {
        let records: BTreeSet<Lsn> = image.logged().map(|(_, lsn)| lsn).collect();
        let records: Vec<Lsn> = records.into_iter().collect();
        let mut failed = Vec::new();
        for some in records.chunks(RECORDS_AT_ONCE) {
            let read = self.context.source.read_logged(key.inode, some.to_vec());
            for (read, lsn) in read.await.into_iter().zip(some) {
                match read {
                    Ok(bytes) => {
                        let (cache, data) = (&self.context.memory.cache, bytes.data.bytes());
                        cache.load(image, *lsn, bytes.offset, data);
                        self.loses.store(false, Ordering::Relaxed);
                    }
                    Err(error) => failed.push(Failed {
                        lsn: *lsn,
                        why: format!("at LSN {lsn}: {error}"),
                        is_damage: matches!(
                            error,
                            ReadFailed::Damaged { .. } | ReadFailed::Unreadable { .. }
                        ),
                    }),
                }
            }
        }
        let known: BTreeSet<Lsn> = failed.iter().map(|failed| failed.lsn).collect();
        let left: BTreeSet<Lsn> = image.logged().map(|(_, lsn)| lsn).collect();
        failed.extend(left.difference(&known).map(|lsn| Failed {
            lsn: *lsn,
            why: format!("the record at LSN {lsn} has other bytes"),
            is_damage: false,
        }));
        failed
    }

    /// Takes the bytes of damaged records out of the image, and returns their ranges. Stops the volume if the log failed
    /// for another reason.
    fn give_up(
        &self,
        key: BlockKey,
        image: &mut BlockImage,
        failed: &[Failed],
    ) -> Result<Vec<Lost>, Halted> {
        let begins = key.block.start();
        if let Some(failed) = failed.iter().find(|failed| !failed.is_damage) {
            return Err(self.halt(format!(
                "bytes of inode {}, from {begins} on, are in the log alone, which cannot return them: {}. Check the disk of the log",
                key.inode, failed.why
            )));
        }
        let mut lost = Vec::new();
        for Failed { lsn, why, .. } in failed {
            let why: Arc<str> = format!("only the log had them, {why}").into();
            let ranges = image.leave_out(*lsn).into_iter();
            lost.extend(ranges.map(|range| Lost {
                range,
                why: why.clone(),
            }));
        }
        lost.sort_by_key(|lost| lost.range.start);
        if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            self.loses.store(true, Ordering::Relaxed);
            let bytes: u64 = lost.iter().map(|lost| lost.range.len()).sum();
            tracing::error!(
                "inode {}: {bytes} bytes between {} and {} are lost: {}. Reading them is an error until they are written again. \
                 Check the disk of the log, and write these bytes again or restore the file",
                key.inode,
                begins + first.range.start,
                begins + last.range.end,
                first.why
            );
        }
        Ok(lost)
    }

    /// Stops the volume.
    fn halt(&self, why: String) -> Halted {
        self.context.signals.stop(Stopped::Failed(why));
        Halted
    }
}
