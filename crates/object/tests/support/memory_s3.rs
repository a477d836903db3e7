//! An S3 server in memory, based on `s3s`, which provides the protocol and the signatures. It has
//! one bucket, called `bucket`, and checks that the adapter sends the right requests.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use aws_smithy_types::base64;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use md5::{Digest, Md5};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

pub(crate) use super::server::Server;

/// Small enough that listings have several pages.
const PAGE_LEN: usize = 3;

/// The differences of the server from a correct one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Behaviour {
    /// Conditions of puts have no effect, as in Garage.
    pub(crate) ignores_conditions: bool,
    /// No request has permission.
    pub(crate) denies: bool,
    /// Puts take effect, and are answered as if they had failed.
    pub(crate) loses_answers_to_puts: bool,
    /// This number of puts meet a conflict, and have no effect.
    pub(crate) conflicts: u32,
    /// This number of puts fail first.
    pub(crate) failures: u32,
    /// Puts need not have a checksum.
    pub(crate) needs_no_checksum: bool,
    /// Objects whose names contain `archived` are archived, until RestoreObject has asked for this number of days.
    pub(crate) archives: Option<i32>,
    /// ETags are MD5s, as in S3, except for this number of puts at first, which get another ETag.
    pub(crate) md5_e_tags_after: Option<u32>,
}

impl MemoryS3 {
    pub(super) fn new(behaviour: Behaviour) -> MemoryS3 {
        MemoryS3 {
            behaviour,
            state: Arc::default(),
            puts: AtomicU32::new(0),
        }
    }

    /// The ETag of the `number`th put, if it matters.
    fn e_tag(&self, number: u32, bytes: &[u8]) -> Option<ETag> {
        let after = self.behaviour.md5_e_tags_after?;
        let sum: [u8; 16] = Md5::digest(bytes).into();
        let sum = if number < after {
            0
        } else {
            u128::from_be_bytes(sum)
        };
        Some(ETag::Strong(format!("{sum:032x}")))
    }
}

pub(super) struct MemoryS3 {
    behaviour: Behaviour,
    state: Arc<Mutex<State>>,
    /// Puts so far.
    puts: AtomicU32,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: HashMap<String, Upload>,
    restored: HashMap<String, u32>,
    /// The last ETag or upload id.
    counter: u64,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    e_tag: ETag,
    modified: SystemTime,
    content_type: Option<String>,
    metadata: Option<Metadata>,
}

#[derive(Default)]
struct Upload {
    parts: BTreeMap<i32, Object>,
    metadata: Option<Metadata>,
}

impl State {
    fn object(&mut self, bytes: Bytes) -> Object {
        self.counter += 1;
        Object {
            bytes,
            e_tag: ETag::Strong(format!("{:032x}", self.counter)),
            modified: SystemTime::now(),
            content_type: None,
            metadata: None,
        }
    }

    fn get(&self, key: &str) -> S3Result<Object> {
        self.objects
            .get(key)
            .cloned()
            .ok_or_else(|| s3_error!(NoSuchKey))
    }
}

impl MemoryS3 {
    fn enter(&self, bucket: &str) -> S3Result<std::sync::MutexGuard<'_, State>> {
        if self.behaviour.denies {
            return Err(s3_error!(AccessDenied));
        }
        if bucket != "bucket" {
            return Err(s3_error!(NoSuchBucket));
        }
        Ok(self.state.lock().unwrap())
    }

    /// Reads the body of a put, with its CRC32 and its MD5.
    async fn read(
        &self,
        body: Option<StreamingBlob>,
        (crc32, md5): (Option<String>, Option<String>),
    ) -> S3Result<Bytes> {
        let mut bytes = Vec::new();
        if let Some(mut body) = body {
            while let Some(chunk) = body.next().await {
                bytes.extend_from_slice(&chunk.map_err(|_| s3_error!(IncompleteBody))?);
            }
        }
        // The adapter must send one checksum, and the right one.
        let right = match (crc32, md5) {
            (Some(sum), None) => sum == base64::encode(crc32fast::hash(&bytes).to_be_bytes()),
            (None, Some(sum)) => sum == base64::encode(Md5::digest(&bytes)),
            (None, None) => self.behaviour.needs_no_checksum,
            _ => false,
        };
        if right {
            Ok(bytes.into())
        } else {
            Err(s3_error!(BadDigest))
        }
    }
}

fn body(bytes: Bytes) -> StreamingBlob {
    // Two pieces, so that readers have to join them.
    let (front, back) = (
        bytes.slice(..bytes.len() / 2),
        bytes.slice(bytes.len() / 2..),
    );
    let pieces = [front, back].map(Ok::<_, std::io::Error>);
    StreamingBlob::wrap(stream::iter(pieces))
}

fn matches(condition: &ETagCondition, object: Option<&Object>) -> bool {
    match condition {
        ETagCondition::Any => object.is_some(),
        ETagCondition::ETag(e_tag) => object.is_some_and(|object| &object.e_tag == e_tag),
    }
}

fn check_read(
    object: &Object,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    if if_match.is_some_and(|condition| !matches(condition, Some(object))) {
        return Err(s3_error!(PreconditionFailed));
    }
    if if_none_match.is_some_and(|condition| matches(condition, Some(object))) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

fn answer<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

#[async_trait::async_trait]
impl S3 for MemoryS3 {
    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let sums = (input.checksum_crc32, input.content_md5);
        let bytes = self.read(input.body, sums).await?;
        let number = self.puts.fetch_add(1, Relaxed);
        if number < self.behaviour.conflicts {
            return Err(s3_error!(ConditionalRequestConflict));
        }
        if number < self.behaviour.failures {
            return Err(s3_error!(InternalError));
        }
        let mut state = self.enter(&input.bucket)?;
        let present = state.objects.get(&input.key);
        if !self.behaviour.ignores_conditions {
            if let Some(condition) = &input.if_none_match
                && matches(condition, present)
            {
                return Err(s3_error!(PreconditionFailed));
            }
            if let Some(condition) = &input.if_match {
                if present.is_none() {
                    return Err(s3_error!(NoSuchKey));
                }
                if !matches(condition, present) {
                    return Err(s3_error!(PreconditionFailed));
                }
            }
        }
        let e_tag = self.e_tag(number, &bytes);
        let mut object = state.object(bytes);
        object.e_tag = e_tag.unwrap_or(object.e_tag);
        object.content_type = input.content_type;
        object.metadata = input.metadata;
        let e_tag = Some(object.e_tag.clone());
        state.objects.insert(input.key, object);
        if self.behaviour.loses_answers_to_puts {
            return Err(s3_error!(InternalError));
        }
        answer(PutObjectOutput {
            e_tag,
            ..Default::default()
        })
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let (object, is_restored) = {
            let state = self.enter(&input.bucket)?;
            (
                state.get(&input.key)?,
                state.restored.contains_key(&input.key),
            )
        };
        if self.behaviour.archives.is_some() && input.key.contains("archived") && !is_restored {
            return Err(s3_error!(InvalidObjectState));
        }
        check_read(
            &object,
            input.if_match.as_ref(),
            input.if_none_match.as_ref(),
        )?;
        let len = object.bytes.len() as u64;
        let mut bytes = object.bytes;
        let mut content_range = None;
        if let Some(range) = input.range {
            let range = range.check(len).map_err(|_| s3_error!(InvalidRange))?;
            content_range = Some(format!("bytes {}-{}/{len}", range.start, range.end - 1));
            bytes = bytes.slice(range.start as usize..range.end as usize);
        }
        answer(GetObjectOutput {
            content_length: Some(bytes.len() as i64),
            content_range,
            body: Some(body(bytes)),
            e_tag: Some(object.e_tag),
            last_modified: Some(object.modified.into()),
            content_type: object.content_type,
            metadata: object.metadata,
            ..Default::default()
        })
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let object = self.enter(&input.bucket)?.get(&input.key)?;
        check_read(
            &object,
            input.if_match.as_ref(),
            input.if_none_match.as_ref(),
        )?;
        answer(HeadObjectOutput {
            content_length: Some(object.bytes.len() as i64),
            e_tag: Some(object.e_tag),
            last_modified: Some(object.modified.into()),
            content_type: object.content_type,
            metadata: object.metadata,
            ..Default::default()
        })
    }

    async fn restore_object(
        &self,
        request: S3Request<RestoreObjectInput>,
    ) -> S3Result<S3Response<RestoreObjectOutput>> {
        let input = request.input;
        let asked = input.restore_request.unwrap_or_default();
        let tier = asked.glacier_job_parameters.map(|job| job.tier);
        let is_standard = tier.is_some_and(|tier| tier.as_str() == Tier::STANDARD);
        if asked.days != self.behaviour.archives || !is_standard {
            return Err(s3_error!(MalformedXML));
        }
        let mut state = self.enter(&input.bucket)?;
        let times = state.restored.entry(input.key).or_default();
        *times += 1;
        assert_eq!(*times, 1, "it was asked for already");
        answer(RestoreObjectOutput::default())
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        self.enter(&input.bucket)?.objects.remove(&input.key);
        answer(DeleteObjectOutput::default())
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        let mut state = self.enter(&input.bucket)?;
        for object in input.delete.objects {
            state.objects.remove(&object.key);
        }
        answer(DeleteObjectsOutput::default())
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = request.input;
        let CopySource::Bucket { key, .. } = &input.copy_source else {
            return Err(s3_error!(NotImplemented));
        };
        let mut state = self.enter(&input.bucket)?;
        let bytes = state.get(key)?.bytes;
        let object = state.object(bytes);
        state.objects.insert(input.key, object);
        answer(CopyObjectOutput::default())
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let state = self.enter(&input.bucket)?;
        let prefix = input.prefix.unwrap_or_default();
        let after = input.continuation_token.or(input.start_after);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page_len = PAGE_LEN.min(input.max_keys.unwrap_or(1000) as usize);
        let mut contents = Vec::new();
        let mut common_prefixes = Vec::<CommonPrefix>::new();
        let mut last = None;
        let mut is_truncated = false;
        for (key, object) in state.objects.range::<String, _>((from, Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(&prefix) else {
                continue;
            };
            let folder = input.delimiter.as_deref().and_then(|delimiter| {
                let (folder, _) = rest.split_once(delimiter)?;
                Some(format!("{prefix}{folder}{delimiter}"))
            });
            if folder.is_some() && common_prefixes.last().and_then(|p| p.prefix.clone()) == folder {
                last = Some(key.clone());
                continue;
            }
            if contents.len() + common_prefixes.len() == page_len {
                is_truncated = true;
                break;
            }
            last = Some(key.clone());
            match folder {
                Some(folder) => common_prefixes.push(CommonPrefix {
                    prefix: Some(folder),
                }),
                None => contents.push(s3s::dto::Object {
                    key: Some(key.clone()),
                    size: Some(object.bytes.len() as i64),
                    e_tag: Some(object.e_tag.clone()),
                    last_modified: Some(object.modified.into()),
                    ..Default::default()
                }),
            }
        }
        answer(ListObjectsV2Output {
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            is_truncated: Some(is_truncated),
            next_continuation_token: last.filter(|_| is_truncated),
            ..Default::default()
        })
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        let mut state = self.enter(&input.bucket)?;
        state.counter += 1;
        let id = format!("upload-{}", state.counter);
        let upload = Upload {
            metadata: input.metadata,
            ..Default::default()
        };
        state.uploads.insert(id.clone(), upload);
        answer(CreateMultipartUploadOutput {
            upload_id: Some(id),
            ..Default::default()
        })
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = request.input;
        let sums = (input.checksum_crc32, input.content_md5);
        let bytes = self.read(input.body, sums).await?;
        let number = self.puts.fetch_add(1, Relaxed);
        let e_tag = self.e_tag(number, &bytes);
        let mut state = self.enter(&input.bucket)?;
        let mut part = state.object(bytes);
        part.e_tag = e_tag.unwrap_or(part.e_tag);
        let e_tag = Some(part.e_tag.clone());
        let upload = state.uploads.get_mut(&input.upload_id);
        let upload = upload.ok_or_else(|| s3_error!(NoSuchUpload))?;
        upload.parts.insert(input.part_number, part);
        answer(UploadPartOutput {
            e_tag,
            ..Default::default()
        })
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        let mut state = self.enter(&input.bucket)?;
        let upload = state.uploads.remove(&input.upload_id);
        let upload = upload.ok_or_else(|| s3_error!(NoSuchUpload))?;
        let named = input.multipart_upload.and_then(|upload| upload.parts);
        let mut bytes = Vec::new();
        for named in named.unwrap_or_default() {
            let part = named
                .part_number
                .and_then(|number| upload.parts.get(&number));
            let part = part.filter(|part| Some(&part.e_tag) == named.e_tag.as_ref());
            bytes.extend_from_slice(&part.ok_or_else(|| s3_error!(InvalidPart))?.bytes);
        }
        let mut object = state.object(bytes.into());
        object.metadata = upload.metadata;
        let e_tag = Some(object.e_tag.clone());
        state.objects.insert(input.key, object);
        answer(CompleteMultipartUploadOutput {
            e_tag,
            ..Default::default()
        })
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        let mut state = self.enter(&input.bucket)?;
        state.uploads.remove(&input.upload_id);
        answer(AbortMultipartUploadOutput::default())
    }
}
