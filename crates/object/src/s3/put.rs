//! Putting objects.

use std::collections::HashMap;

use aws_sdk_s3::operation::put_object::PutObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ServerSideEncryption, StorageClass};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, PutMode, PutOptions, PutPayload, PutResult, Result,
};

use super::checksum::Sum;
use super::{Shared, error};
use crate::Encryption;

impl Shared {
    pub(super) async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = Put::new(location, payload, options)?;
        let sum = Sum::of(self.checksum, &put.body).await?;
        let ask = || self.put_once(&put, sum);
        let output = self.ask(ask).await.map_err(|error| put.sorted(error))?;
        let encrypted = output.server_side_encryption.as_ref();
        sum.verify(&put.location, output.e_tag.as_deref(), encrypted)?;
        Ok(PutResult {
            e_tag: output.e_tag,
            version: output.version_id,
            extensions: Default::default(),
        })
    }

    async fn put_once(&self, put: &Put, sum: Sum) -> Result<PutObjectOutput> {
        let headers = put.headers.clone();
        let (encryption, key) = self.encryption();
        let request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(put.location.as_ref())
            .set_checksum_crc32(sum.crc32_header())
            .set_content_md5(sum.md5_header())
            .set_server_side_encryption(encryption)
            .set_ssekms_key_id(key)
            .set_if_none_match(put.must_create.then(|| "*".to_owned()))
            .set_if_match(put.replaces.clone())
            .set_tagging(put.tags.clone())
            .set_cache_control(headers.cache_control)
            .set_content_disposition(headers.content_disposition)
            .set_content_encoding(headers.content_encoding)
            .set_content_language(headers.content_language)
            .set_content_type(headers.content_type)
            .set_storage_class(headers.storage_class)
            .set_metadata(headers.metadata)
            .body(ByteStream::from(put.body.clone()))
            .customize();
        let request = if self.sign_payload {
            request
        } else {
            request.disable_payload_signing()
        };
        let answer = request.send().await;
        answer.map_err(|error| error::from_sdk(&put.location, error))
    }

    /// The encryption to request from the server, and its key.
    pub(super) fn encryption(&self) -> (Option<ServerSideEncryption>, Option<String>) {
        match &self.encryption {
            Encryption::Bucket => (None, None),
            Encryption::Aes256 => (Some(ServerSideEncryption::Aes256), None),
            Encryption::Kms { key } => (Some(ServerSideEncryption::AwsKms), key.clone()),
        }
    }
}

/// A put, as S3 takes it.
struct Put {
    location: Path,
    body: Bytes,
    must_create: bool,
    replaces: Option<String>,
    tags: Option<String>,
    headers: Headers,
}

impl Put {
    fn new(location: &Path, payload: PutPayload, options: PutOptions) -> Result<Put> {
        let (must_create, replaces) = match options.mode {
            PutMode::Overwrite => (false, None),
            PutMode::Create => (true, None),
            PutMode::Update(expected) => match expected.e_tag {
                None => {
                    return Err(error::other(
                        "an update must name the ETag of the version that it replaces",
                    ));
                }
                e_tag => (false, e_tag),
            },
        };
        Ok(Put {
            location: location.clone(),
            body: Bytes::from(payload),
            must_create,
            replaces,
            tags: tagging(options.tags.encoded()),
            headers: Headers::new(&options.attributes)?,
        })
    }

    /// S3 has one answer, "precondition failed", for a create that meets an object and for an
    /// update that meets another version; and "not found" for an update that meets no object.
    fn sorted(&self, error: Error) -> Error {
        match error {
            Error::Precondition { path, source } if self.must_create => {
                Error::AlreadyExists { path, source }
            }
            Error::NotFound { path, source } if self.replaces.is_some() => {
                Error::Precondition { path, source }
            }
            error => error,
        }
    }
}

pub(super) fn tagging(encoded: &str) -> Option<String> {
    (!encoded.is_empty()).then(|| encoded.to_owned())
}

/// Attributes of an object, as S3 takes them.
#[derive(Clone, Default)]
pub(super) struct Headers {
    pub(super) cache_control: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) content_language: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) storage_class: Option<StorageClass>,
    pub(super) metadata: Option<HashMap<String, String>>,
}

impl Headers {
    pub(super) fn new(attributes: &Attributes) -> Result<Headers> {
        let mut headers = Headers::default();
        for (attribute, value) in attributes {
            let text = value.to_string();
            match attribute {
                Attribute::CacheControl => headers.cache_control = Some(text),
                Attribute::ContentDisposition => headers.content_disposition = Some(text),
                Attribute::ContentEncoding => headers.content_encoding = Some(text),
                Attribute::ContentLanguage => headers.content_language = Some(text),
                Attribute::ContentType => headers.content_type = Some(text),
                Attribute::StorageClass => {
                    headers.storage_class = Some(StorageClass::from(text.as_str()));
                }
                Attribute::Metadata(key) => {
                    let metadata = headers.metadata.get_or_insert_default();
                    metadata.insert(key.to_string(), text);
                }
                other => {
                    return Err(Error::NotSupported {
                        source: format!("the attribute {other:?}").into(),
                    });
                }
            }
        }
        Ok(headers)
    }
}

/// Encodes a key for the header that names the source of a copy.
pub(super) fn percent_encode(key: &str) -> String {
    key.bytes()
        .fold(String::with_capacity(key.len()), |mut encoded, byte| {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    encoded.push(char::from(byte));
                }
                _ => encoded.push_str(&format!("%{byte:02X}")),
            }
            encoded
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_percent_encoded_for_copies() {
        assert_eq!(percent_encode("a/b-1.pack"), "a/b-1.pack");
        assert_eq!(percent_encode("a b%é"), "a%20b%25%C3%A9");
    }
}
