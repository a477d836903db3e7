//! Holding a volume: which gateway may open it, decided by the [note](forebay_meta::volume::holder) in the bucket.
//!
//! | the note | the gateway that starts | so |
//! |---|---|---|
//! | there is none: a new volume, or one that no version with notes has opened | any | it takes the volume |
//! | its gateway stopped in order, and the bucket has everything | any | it takes the volume |
//! | names this gateway | has the log that the bucket's state continues, or has not opened the volume since it wrote the note | it goes on |
//! | names this gateway | the bucket was opened under this identity with a later epoch: by a copy of this local folder | it is refused |
//! | cannot be read | has the log that the bucket's state continues | it goes on |
//! | anything else | any | it is refused |
//!
//! Where it would be refused, [`Takeover::Allow`] has it take the volume. The note is replaced before the metadata are
//! opened for writing, and only if it is still the one that was read: of several gateways that start at once one goes
//! on, and the others have fenced no gateway. If the opening fails after that, a volume that was free is given back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_meta::volume::holder::{HOLDER_NAME, Holder, HolderPut, StoppedInOrder, StoredHolder};
use object_store::path::Path;
use object_store::{ObjectStore, UpdateVersion};
use parking_lot::Mutex;

use super::error::OpenError;
use super::held::HeldVolume;
use crate::config::Takeover;

/// How often the note is read again because its version has changed, or the result of a write is not known.
const ATTEMPTS: u32 = 8;

/// The limit of time for reading which gateway has taken the volume over, and for giving a volume back.
const QUESTION_LIMIT: Duration = Duration::from_secs(5);

/// The state of a gateway that starts.
pub(super) struct Candidate {
    /// The note that it would leave.
    pub(super) note: Holder,
    /// Whether its log continues the bucket's state.
    pub(super) continues: bool,
    /// Whether the bucket was opened under its identity, and not by this local folder.
    pub(super) is_copied: bool,
    /// ETag of the note that this local folder wrote last.
    pub(super) e_tag: Option<String>,
    pub(super) takeover: Takeover,
    pub(super) url: String,
    pub(super) data_dir: PathBuf,
}

/// The meaning of a note for a gateway that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No gateway holds the volume.
    Free,
    /// This gateway held it last.
    Own,
    /// Another one does.
    Held,
}

impl Candidate {
    /// The table of the module.
    fn judge(&self, found: Option<&Result<Holder, String>>) -> Verdict {
        match found {
            None => Verdict::Free,
            Some(Ok(holder)) if holder.is_free() => Verdict::Free,
            Some(Ok(holder)) if holder.gateway == self.note.gateway && !self.is_copied => {
                Verdict::Own
            }
            Some(Err(_)) if self.continues => Verdict::Own,
            Some(_) => Verdict::Held,
        }
    }

    fn refusal(&self, holder: Result<Holder, String>) -> OpenError {
        let is_copy = holder
            .as_ref()
            .is_ok_and(|holder| holder.gateway == self.note.gateway);
        OpenError::Held(Box::new(HeldVolume {
            url: self.url.clone(),
            holder,
            is_copy,
            host: self.note.host.clone(),
            data_dir: self.data_dir.clone(),
        }))
    }
}

/// A volume that this gateway holds.
pub(crate) struct Hold {
    store: Arc<dyn ObjectStore>,
    root: Path,
    note: Holder,
    /// The note's version in the bucket.
    version: Mutex<UpdateVersion>,
    /// The note to put back if the opening fails: the one that it replaced, if the volume was free by that, or this
    /// gateway's own as after an orderly stop, if there was none.
    free: Mutex<Option<Holder>>,
}

impl Hold {
    /// Writes the note of `candidate`, if it may hold the volume; `keep` stores its identity in the local folder
    /// before. `seen` is the note that was read a moment ago, if it was: a write that replaces another version fails, and the
    /// note is read again.
    pub(super) async fn take(
        store: Arc<dyn ObjectStore>,
        root: Path,
        candidate: Candidate,
        mut seen: Option<Option<StoredHolder>>,
        keep: impl Fn() -> Result<(), OpenError>,
    ) -> Result<Hold, OpenError> {
        let failed = |source| OpenError::Holder {
            object: HOLDER_NAME.to_owned(),
            source,
        };
        let hold = |version, free| Hold {
            store: store.clone(),
            root: root.clone(),
            note: candidate.note.clone(),
            version: Mutex::new(version),
            free: Mutex::new(free),
        };
        let put = |replaced| candidate.note.put(&store, &root, replaced);
        // A restart, which replaces the note that this folder wrote last, need not read it.
        let mut outcome = match candidate.e_tag.clone().filter(|_| candidate.continues) {
            Some(e_tag) => Some(
                put(Some(UpdateVersion {
                    e_tag: Some(e_tag),
                    version: None,
                }))
                .await,
            ),
            None => None,
        };
        let mut free = None;
        for _ in 0..ATTEMPTS {
            if let Some(Ok(HolderPut::Done(version))) = outcome {
                return Ok(hold(version, free));
            }
            let found = match seen.take() {
                Some(seen) => seen,
                None => StoredHolder::load(&store, &root).await.map_err(failed)?,
            };
            // Of a request that was repeated, or whose answer got lost.
            if let Some(found) = &found
                && found.holder.as_ref() == Ok(&candidate.note)
            {
                return Ok(hold(found.version.clone(), free));
            }
            let verdict = candidate.judge(found.as_ref().map(|found| &found.holder));
            free = match &found {
                None => Some(Holder {
                    stopped: Some(StoppedInOrder {
                        at: candidate.note.since,
                        unpublished_bytes: 0,
                    }),
                    ..candidate.note.clone()
                }),
                Some(found) => found.holder.clone().ok().filter(Holder::is_free),
            };
            let replaced = match found {
                Some(found) if verdict == Verdict::Held => {
                    if candidate.takeover == Takeover::Refuse {
                        return Err(candidate.refusal(found.holder));
                    }
                    tracing::warn!(
                        "taking the volume over (takeover = allow): {}",
                        candidate.refusal(found.holder)
                    );
                    Some(found.version)
                }
                found => found.map(|found| found.version),
            };
            keep()?;
            outcome = Some(put(replaced).await);
        }
        match outcome {
            Some(Ok(HolderPut::Done(version))) => Ok(hold(version, free)),
            Some(Err(error)) => Err(failed(error)),
            _ => Err(failed(too_many())),
        }
    }

    /// Writes the note again, over any other: another gateway has taken the volume after the note was written and
    /// before this one opened it, which has fenced the other one.
    pub(super) async fn take_again(&self) -> Result<(), OpenError> {
        // That one may have served clients, and has their changes in its log.
        *self.free.lock() = None;
        let failed = |source| OpenError::Holder {
            object: HOLDER_NAME.to_owned(),
            source,
        };
        for _ in 0..ATTEMPTS {
            let found = StoredHolder::load(&self.store, &self.root).await;
            let replaced = found.map_err(failed)?.map(|found| found.version);
            let put = self.note.put(&self.store, &self.root, replaced).await;
            if let HolderPut::Done(version) = put.map_err(failed)? {
                *self.version.lock() = version;
                return Ok(());
            }
        }
        Err(failed(too_many()))
    }

    /// Notes in the bucket that this gateway has stopped in order, with `unpublished_bytes` that the bucket does not
    /// have.
    ///
    /// # Errors
    /// The reason why the note was not written: another gateway has taken the volume, or the store fails.
    pub(crate) async fn release(&self, at: u64, unpublished_bytes: u64) -> Result<(), String> {
        let note = Holder {
            stopped: Some(StoppedInOrder {
                at,
                unpublished_bytes,
            }),
            ..self.note.clone()
        };
        let replaced = self.version.lock().clone();
        match note.put(&self.store, &self.root, Some(replaced)).await {
            Ok(HolderPut::Done(version)) => {
                *self.version.lock() = version;
                Ok(())
            }
            Ok(HolderPut::Conflict) => Err("another gateway has taken the volume".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Makes the volume free again after an opening that failed, if it was free before: this gateway has served no
    /// client, so that a start elsewhere, or with another `data_dir`, need not take the volume over. Gives up after
    /// five seconds.
    pub(super) async fn give_back(&self) {
        let Some(free) = self.free.lock().take() else {
            return;
        };
        let replaced = self.version.lock().clone();
        let put = free.put(&self.store, &self.root, Some(replaced));
        let why = match tokio::time::timeout(QUESTION_LIMIT, put).await {
            Ok(Ok(HolderPut::Done(_) | HolderPut::Conflict)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        tracing::warn!(
            "cannot note in the bucket that this start has failed ({why}), so this gateway remains noted there as the holder; a start with another data_dir needs --take-over"
        );
    }

    /// ETag of the note, to be kept in the local folder.
    pub(crate) fn e_tag(&self) -> Option<String> {
        self.version.lock().e_tag.clone()
    }

    /// The gateway that has taken the volume from this one, by the note in the bucket.
    pub(crate) async fn successor(&self) -> Option<Holder> {
        let asked = StoredHolder::load(&self.store, &self.root);
        let found = tokio::time::timeout(QUESTION_LIMIT, asked).await;
        let holder = found.ok()?.ok()??.holder.ok()?;
        (holder.instance != self.note.instance).then_some(holder)
    }
}

fn too_many() -> object_store::Error {
    object_store::Error::Generic {
        store: "bucket",
        source: "several gateways replace it at the same time: start one after the other".into(),
    }
}

#[cfg(test)]
mod tests;
