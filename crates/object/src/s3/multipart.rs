//! Uploading an object in parts.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::operation::upload_part::UploadPartOutput;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;

use super::checksum::Sum;
use super::put::{Headers, tagging};
use super::{Shared, client, error};
use crate::Checksum;

/// Begins an upload. Its object appears when it completes; an upload that is neither completed nor
/// aborted stays in the bucket, unseen, until a lifecycle rule removes it.
pub(super) async fn begin(
    shared: Arc<Shared>,
    location: &Path,
    options: PutMultipartOptions,
) -> Result<Box<dyn MultipartUpload>> {
    let headers = Headers::new(&options.attributes)?;
    let (encryption, key) = shared.encryption();
    let algorithm = (shared.checksum == Checksum::Crc32).then_some(ChecksumAlgorithm::Crc32);
    let request = shared
        .client
        .create_multipart_upload()
        .bucket(&shared.bucket)
        .key(location.as_ref())
        .set_checksum_algorithm(algorithm)
        .set_server_side_encryption(encryption)
        .set_ssekms_key_id(key)
        .set_tagging(tagging(options.tags.encoded()))
        .set_cache_control(headers.cache_control)
        .set_content_disposition(headers.content_disposition)
        .set_content_encoding(headers.content_encoding)
        .set_content_language(headers.content_language)
        .set_content_type(headers.content_type)
        .set_storage_class(headers.storage_class)
        .set_metadata(headers.metadata);
    let ask = || async {
        let answer = request.clone().send().await;
        answer.map_err(|error| error::from_sdk(location, error))
    };
    let output = shared.ask(ask).await?;
    let id = output
        .upload_id
        .ok_or_else(|| error::other("the server gave the upload no id"))?;
    Ok(Box::new(S3Upload {
        target: Arc::new(Target {
            shared,
            location: location.clone(),
            id,
            done: Mutex::default(),
        }),
        parts: 0,
    }))
}

struct S3Upload {
    target: Arc<Target>,
    /// Number of parts so far; they are numbered from 1.
    parts: i32,
}

struct Target {
    shared: Arc<Shared>,
    location: Path,
    id: String,
    /// The parts that have arrived, in any order.
    done: Mutex<Vec<CompletedPart>>,
}

impl Target {
    /// Puts a part, and repeats that if the server has stored other bytes: the SDK repeats its own errors, and this is
    /// none of them.
    async fn put_part(&self, number: i32, body: Bytes) -> Result<()> {
        let sum = Sum::of(self.shared.checksum, &body).await?;
        let mut attempt = 1;
        loop {
            let put = || self.put_once(number, body.clone(), sum);
            let output = self.shared.ask(put).await?;
            let encryption = output.server_side_encryption.as_ref();
            let verified = sum.verify(&self.location, output.e_tag.as_deref(), encryption);
            if verified.is_err() && attempt < client::PART_ATTEMPTS {
                attempt += 1;
                continue;
            }
            verified?;
            let part = CompletedPart::builder()
                .part_number(number)
                .set_e_tag(output.e_tag)
                .set_checksum_crc32(sum.crc32_header())
                .build();
            self.done.lock().push(part);
            return Ok(());
        }
    }

    async fn put_once(&self, number: i32, body: Bytes, sum: Sum) -> Result<UploadPartOutput> {
        let request = self
            .shared
            .client
            .upload_part()
            .bucket(&self.shared.bucket)
            .key(self.location.as_ref())
            .upload_id(&self.id)
            .part_number(number)
            .set_checksum_crc32(sum.crc32_header())
            .set_content_md5(sum.md5_header())
            .body(ByteStream::from(body))
            .customize()
            .config_override(client::part_config());
        let request = if self.shared.sign_payload {
            request
        } else {
            request.disable_payload_signing()
        };
        request
            .send()
            .await
            .map_err(|error| error::from_sdk(&self.location, error))
    }
}

impl fmt::Debug for S3Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Upload")
            .field("location", &self.target.location)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for S3Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts += 1;
        let number = self.parts;
        let target = Arc::clone(&self.target);
        Box::pin(async move { target.put_part(number, Bytes::from(data)).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.parts == 0 {
            // S3 does not complete an upload without parts; an empty object has one empty part.
            self.put_part(PutPayload::new()).await?;
        }
        let target = &self.target;
        let mut parts = target.done.lock().clone();
        if usize::try_from(self.parts) != Ok(parts.len()) {
            return Err(error::other(format!(
                "{}: only {} of {} parts have arrived",
                target.location,
                parts.len(),
                self.parts
            )));
        }
        parts.sort_by_key(CompletedPart::part_number);
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts));
        let request = target
            .shared
            .client
            .complete_multipart_upload()
            .bucket(&target.shared.bucket)
            .key(target.location.as_ref())
            .upload_id(&target.id)
            .multipart_upload(parts.build());
        let ask = || async {
            let request = request.clone().customize();
            let answer = request.config_override(client::part_config()).send().await;
            answer.map_err(|error| error::from_sdk(&target.location, error))
        };
        let output = target.shared.ask(ask).await?;
        Ok(PutResult {
            e_tag: output.e_tag,
            version: output.version_id,
            extensions: Default::default(),
        })
    }

    async fn abort(&mut self) -> Result<()> {
        let target = &self.target;
        let request = target
            .shared
            .client
            .abort_multipart_upload()
            .bucket(&target.shared.bucket)
            .key(target.location.as_ref())
            .upload_id(&target.id);
        let ask = || async {
            let answer = request.clone().send().await;
            answer.map_err(|error| error::from_sdk(&target.location, error))
        };
        target.shared.ask(ask).await?;
        Ok(())
    }
}
