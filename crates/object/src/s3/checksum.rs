//! Checksums of uploads: for verification by the server, and for comparison with its answer.

use aws_sdk_s3::config::http::HttpRequest;
use aws_sdk_s3::types::ServerSideEncryption;
use aws_smithy_types::base64;
use bytes::Bytes;
use md5::{Digest, Md5};
use object_store::Result;
use object_store::path::Path;

use super::error;
use crate::Checksum;

/// Longest body whose MD5 is computed on the async thread, in bytes: a fraction of a millisecond.
const AT_ONCE: usize = 256 << 10;

/// The checksum of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Crc32(u32),
    Md5([u8; 16]),
    None,
}

impl Sum {
    pub(super) async fn of(mode: Checksum, body: &Bytes) -> Result<Sum> {
        Ok(match mode {
            Checksum::Crc32 => Sum::Crc32(crc32fast::hash(body)),
            Checksum::Md5 if body.len() <= AT_ONCE => Sum::Md5(md5(body)),
            Checksum::Md5 => {
                let body = body.clone();
                let summed = tokio::task::spawn_blocking(move || md5(&body)).await;
                Sum::Md5(summed.map_err(error::other)?)
            }
            Checksum::Off => Sum::None,
        })
    }

    /// The value of the header `x-amz-checksum-crc32`.
    pub(super) fn crc32_header(self) -> Option<String> {
        match self {
            Sum::Crc32(sum) => Some(base64::encode(sum.to_be_bytes())),
            _ => None,
        }
    }

    /// The value of the header `Content-MD5`.
    pub(super) fn md5_header(self) -> Option<String> {
        match self {
            Sum::Md5(sum) => Some(base64::encode(sum)),
            _ => None,
        }
    }

    /// Compares an MD5 with the ETag of the answer, if that is an MD5: it has 32 hexadecimal digits, and no key of a
    /// key management was used, which makes S3 return another ETag.
    pub(super) fn verify(
        self,
        location: &Path,
        e_tag: Option<&str>,
        encryption: Option<&ServerSideEncryption>,
    ) -> Result<()> {
        let (Sum::Md5(sum), Some(e_tag)) = (self, e_tag) else {
            return Ok(());
        };
        if !matches!(encryption, None | Some(ServerSideEncryption::Aes256)) {
            return Ok(());
        }
        let e_tag = e_tag.trim_matches('"').to_ascii_lowercase();
        let is_md5 = e_tag.len() == 32 && e_tag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let expected = hex(sum);
        if !is_md5 || e_tag == expected {
            return Ok(());
        }
        Err(error::other(format!(
            "{location}: the server has stored other bytes than were sent: its ETag is {e_tag}, and the MD5 is \
             {expected}; if ETags of this server are not MD5 sums, set s3_checksum to crc32 or off"
        )))
    }
}

/// Replaces the checksum of a request of the SDK by an MD5: servers without CRC32 require one for deletes of many
/// objects. Does nothing for a body that is not in memory.
pub(super) fn with_md5(request: &mut HttpRequest) {
    let Some(sum) = request.body().bytes().map(md5) else {
        return;
    };
    let headers = request.headers_mut();
    for name in ["x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"] {
        headers.remove(name);
    }
    headers.insert("content-md5", base64::encode(sum));
}

fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

fn hex(sum: [u8; 16]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: Bytes = Bytes::from_static(b"123456789");
    const MD5_HEX: &str = "25f9e794323b453885f5181f1b624d0b";

    #[tokio::test]
    async fn the_headers_are_the_documented_ones() {
        let crc32 = Sum::of(Checksum::Crc32, &BODY).await.unwrap();
        // CRC32 of "123456789" is cbf43926.
        assert_eq!(crc32.crc32_header().unwrap(), "y/Q5Jg==");
        assert_eq!(crc32.md5_header(), None);
        let md5 = Sum::of(Checksum::Md5, &BODY).await.unwrap();
        assert_eq!(md5.md5_header().unwrap(), "JfnnlDI7RTiF9RgfG2JNCw==");
        assert_eq!(md5.crc32_header(), None);
        let off = Sum::of(Checksum::Off, &BODY).await.unwrap();
        assert_eq!((off.crc32_header(), off.md5_header()), (None, None));
    }

    #[tokio::test]
    async fn a_long_body_has_the_same_sum() {
        let long = Bytes::from(vec![7; 2 * AT_ONCE]);
        let sum = Sum::of(Checksum::Md5, &long).await.unwrap();
        assert_eq!(sum, Sum::Md5(md5(&long)));
    }

    #[test]
    fn an_etag_is_compared_where_it_is_an_md5() {
        fn verify(e_tag: Option<&str>, encryption: Option<&ServerSideEncryption>) -> Result<()> {
            Sum::Md5(md5(&BODY)).verify(&Path::from("x"), e_tag, encryption)
        }
        let other = "00000000000000000000000000000000";
        verify(Some(&format!("\"{MD5_HEX}\"")), None).unwrap();
        verify(Some(&MD5_HEX.to_uppercase()), None).unwrap();
        let wrong = verify(Some(other), None).unwrap_err().to_string();
        assert!(
            wrong.contains(MD5_HEX) && wrong.contains("s3_checksum"),
            "{wrong}"
        );
        verify(Some(other), Some(&ServerSideEncryption::Aes256)).unwrap_err();
        for kms in [
            ServerSideEncryption::AwsKms,
            ServerSideEncryption::AwsKmsDsse,
        ] {
            verify(Some(other), Some(&kms)).unwrap();
        }
        // The ETag of an upload in several parts, and those of a server with its own ETags.
        for other in ["\"00000000000000000000000000000000-2\"", "\"abc\"", ""] {
            verify(Some(other), None).unwrap();
        }
        verify(None, None).unwrap();
        let path = Path::from("x");
        Sum::Crc32(0).verify(&path, Some(other), None).unwrap();
    }
}
