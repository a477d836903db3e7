//! Getting objects and their metadata.

use std::ops::Range;

use aws_sdk_s3::primitives::{ByteStream, DateTime};
use chrono::Utc;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, Result,
};

use super::{Shared, error};
use crate::link::{Direction, InTransit, Link};

/// Collects the attributes of an answer: those to GET and to HEAD have different types with the same
/// fields.
macro_rules! attributes_of {
    ($answer:expr) => {{
        let mut attributes = Attributes::new();
        let headers = [
            (Attribute::CacheControl, $answer.cache_control.take()),
            (
                Attribute::ContentDisposition,
                $answer.content_disposition.take(),
            ),
            (Attribute::ContentEncoding, $answer.content_encoding.take()),
            (Attribute::ContentLanguage, $answer.content_language.take()),
            (Attribute::ContentType, $answer.content_type.take()),
        ];
        for (attribute, value) in headers {
            if let Some(value) = value {
                attributes.insert(attribute, value.into());
            }
        }
        for (key, value) in $answer.metadata.take().unwrap_or_default() {
            attributes.insert(Attribute::Metadata(key.into()), value.into());
        }
        attributes
    }};
}

impl Shared {
    pub(super) async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let asked = match &options.range {
            Some(range) => {
                if !names_a_byte(range) {
                    return Err(error::other(format!(
                        "{location}: the range {range:?} is empty"
                    )));
                }
                Some(range.to_string())
            }
            None => None,
        };
        let asked_len = match &options.range {
            Some(GetRange::Bounded(range)) => range.end.saturating_sub(range.start),
            Some(GetRange::Suffix(len)) => *len,
            // The length is not known, and few are large.
            Some(GetRange::Offset(_)) | None => 0,
        };
        let under_way = Link::begin(self.link.as_ref(), Direction::Down, asked_len).await;
        let request = self
            .client
            .get_object()
            .bucket(&self.bucket)
            .key(location.as_ref())
            .set_range(asked.clone())
            .set_if_match(options.if_match)
            .set_if_none_match(options.if_none_match)
            .set_if_modified_since(options.if_modified_since.map(to_sdk_time))
            .set_if_unmodified_since(options.if_unmodified_since.map(to_sdk_time))
            .set_version_id(options.version);
        let ask = || async {
            match request.clone().send().await {
                Ok(answer) => Ok(answer),
                Err(error) => Err(self.not_got(location, error).await),
            }
        };
        let mut answer = self.ask(ask).await?;
        let content_len = length(answer.content_length)?;
        let (range, size) = match (asked, answer.content_range.as_deref()) {
            (None, _) => (0..content_len, content_len),
            (Some(_), Some(text)) => parse_content_range(text)
                .filter(|(range, _)| range.end - range.start == content_len)
                .ok_or_else(|| error::other(format!("{location}: unexpected range {text:?}")))?,
            (Some(asked), None) => {
                let why = format!("{location}: the server ignored the range {asked}");
                return Err(error::other(why));
            }
        };
        Ok(GetResult {
            meta: ObjectMeta {
                location: location.clone(),
                last_modified: from_sdk_time(answer.last_modified),
                size,
                e_tag: answer.e_tag.take(),
                version: answer.version_id.take(),
            },
            range,
            attributes: attributes_of!(answer),
            extensions: Default::default(),
            payload: stream_of(answer.body, under_way),
        })
    }

    pub(super) async fn head(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = self
            .client
            .head_object()
            .bucket(&self.bucket)
            .key(location.as_ref())
            .set_if_match(options.if_match)
            .set_if_none_match(options.if_none_match)
            .set_if_modified_since(options.if_modified_since.map(to_sdk_time))
            .set_if_unmodified_since(options.if_unmodified_since.map(to_sdk_time))
            .set_version_id(options.version);
        let ask = || async {
            let answer = request.clone().send().await;
            answer.map_err(|error| error::from_head(location, error))
        };
        let mut answer = self.ask(ask).await?;
        let size = length(answer.content_length)?;
        let range = match &options.range {
            None => 0..size,
            Some(range) => range.as_range(size).map_err(error::other)?,
        };
        Ok(GetResult {
            meta: ObjectMeta {
                location: location.clone(),
                last_modified: from_sdk_time(answer.last_modified),
                size,
                e_tag: answer.e_tag.take(),
                version: answer.version_id.take(),
            },
            range,
            attributes: attributes_of!(answer),
            extensions: Default::default(),
            payload: GetResultPayload::Stream(stream::empty().boxed()),
        })
    }
}

/// The body, which counts as in transit until it has ended.
fn stream_of(body: ByteStream, under_way: Option<InTransit>) -> GetResultPayload {
    let chunks = stream::try_unfold((body, under_way), |(mut body, under_way)| async move {
        let chunk = body.try_next().await.map_err(error::other)?;
        Ok(chunk.map(|chunk| (chunk, (body, under_way))))
    });
    GetResultPayload::Stream(chunks.boxed())
}

/// Whether a range contains a byte: HTTP cannot request an empty range.
fn names_a_byte(range: &GetRange) -> bool {
    match range {
        GetRange::Bounded(range) => range.start < range.end,
        GetRange::Suffix(len) => *len > 0,
        GetRange::Offset(_) => true,
    }
}

/// Parses the range and the whole length from a header such as `bytes 8-13/31`.
fn parse_content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let end = last.checked_add(1)?;
    let size = size.parse().ok()?;
    (first < end && end <= size).then_some((first..end, size))
}

pub(super) fn length(len: Option<i64>) -> Result<u64> {
    len.and_then(|len| u64::try_from(len).ok())
        .ok_or_else(|| error::other("the server does not say how long the object is"))
}

pub(super) fn from_sdk_time(time: Option<DateTime>) -> chrono::DateTime<Utc> {
    time.and_then(|time| chrono::DateTime::from_timestamp(time.secs(), time.subsec_nanos()))
        .unwrap_or_default()
}

fn to_sdk_time(time: chrono::DateTime<Utc>) -> DateTime {
    // HTTP dates have whole seconds.
    DateTime::from_secs(time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_or_refused() {
        assert_eq!(parse_content_range("bytes 8-13/31"), Some((8..14, 31)));
        for strange in [
            "",
            "bytes 8-13",
            "bytes */31",
            "bytes 13-8/31",
            "bytes 8-31/31",
            "bytes 0-18446744073709551615/18446744073709551615",
            "octets 8-13/31",
        ] {
            assert_eq!(parse_content_range(strange), None, "{strange}");
        }
    }
}
