//! Answers of the bucket that are kept in memory, to be given again.

use std::ops::Range;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::iter;
use object_store::path::Path;
use object_store::{
    Attributes, Error, Extensions, GetResult, GetResultPayload, ObjectMeta, Result,
};

/// The answer to a GET of an object that is there.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) meta: ObjectMeta,
    pub(super) bytes: Bytes,
    range: Range<u64>,
}

impl Answer {
    pub(super) async fn of(found: GetResult) -> Result<Answer> {
        let (meta, range) = (found.meta.clone(), found.range.clone());
        let bytes = found.bytes().await?;
        Ok(Answer { meta, bytes, range })
    }

    pub(super) fn give(self) -> GetResult {
        GetResult {
            payload: GetResultPayload::Stream(iter([Ok(self.bytes)]).boxed()),
            meta: self.meta,
            range: self.range,
            attributes: Attributes::new(),
            extensions: Extensions::new(),
        }
    }
}

/// What is known of an object that may be missing.
#[derive(Clone, Debug)]
pub(super) enum Known {
    There(Answer),
    Missing,
    /// The condition of the GET was not met: the caller has this object already.
    Unmodified,
}

impl Known {
    /// # Errors
    /// When the bucket did not say whether the object is there.
    pub(super) async fn of(answer: Result<GetResult>) -> Result<Known> {
        match answer {
            Ok(found) => Ok(Known::There(Answer::of(found).await?)),
            Err(Error::NotFound { .. }) => Ok(Known::Missing),
            Err(Error::NotModified { .. }) => Ok(Known::Unmodified),
            Err(error) => Err(error),
        }
    }

    pub(super) fn give(self, location: &Path) -> Result<GetResult> {
        let (path, source) = (location.to_string(), "so the bucket said before".into());
        match self {
            Known::There(answer) => Ok(answer.give()),
            Known::Missing => Err(Error::NotFound { path, source }),
            Known::Unmodified => Err(Error::NotModified { path, source }),
        }
    }

    /// The number in a boundary: the collector may have deleted manifests up to it. A boundary that is missing says 0. `None` if
    /// the answer has no number.
    pub(super) fn boundary(&self) -> Option<u64> {
        match self {
            Known::There(answer) => std::str::from_utf8(&answer.bytes).ok()?.trim().parse().ok(),
            Known::Missing => Some(0),
            Known::Unmodified => None,
        }
    }
}
