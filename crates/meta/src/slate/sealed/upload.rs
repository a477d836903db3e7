//! Uploads in parts, as SlateDB uses them for larger tables.

use std::fmt;

use async_trait::async_trait;
use object_store::{Error, MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::chunks::ObjectSealer;

/// Seals the parts as they arrive. Each waits for the next one, because nothing else shows which part is the last: so
/// there are as many parts as without sealing, and as many requests.
pub(super) struct SealedUpload {
    inner: Box<dyn MultipartUpload>,
    stage: Stage,
}

enum Stage {
    /// The latest part is not sealed yet.
    Parts {
        sealer: Box<ObjectSealer>,
        last: PutPayload,
    },
    /// The last part is on its way, or failed.
    Closing,
    /// All parts are uploaded.
    Closed,
}

impl SealedUpload {
    pub(super) fn new(inner: Box<dyn MultipartUpload>, sealer: ObjectSealer) -> SealedUpload {
        SealedUpload {
            inner,
            stage: Stage::Parts {
                sealer: Box::new(sealer),
                last: PutPayload::default(),
            },
        }
    }
}

impl fmt::Debug for SealedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedUpload({:?})", self.inner)
    }
}

#[async_trait]
impl MultipartUpload for SealedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Stage::Parts { sealer, last } = &mut self.stage else {
            return Box::pin(async { Err(ended()) });
        };
        if data.content_length() == 0 {
            return Box::pin(async { Ok(()) });
        }
        sealer.add(&std::mem::replace(last, data));
        let sealed = sealer.take();
        if sealed.is_empty() {
            return Box::pin(async { Ok(()) });
        }
        self.inner.put_part(sealed.into())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        match std::mem::replace(&mut self.stage, Stage::Closing) {
            Stage::Parts { mut sealer, last } => {
                sealer.add(&last);
                self.inner.put_part(sealer.finish().into()).await?;
            }
            // The store counts a part even if it failed.
            Stage::Closing => return Err(ended()),
            Stage::Closed => {}
        }
        self.stage = Stage::Closed;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

fn ended() -> Error {
    Error::Generic {
        store: "sealed",
        source: "the upload has ended; begin another one".into(),
    }
}
