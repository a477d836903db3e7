//! Options of a store beside its URL.

use std::fmt;
use std::path::PathBuf;

use crate::LinkLimit;

/// How to open a store. The default is right for AWS and takes everything from the environment.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Create the folder of a `file://` store where there is none.
    pub create: bool,
    /// Address of the S3 server, as in `http://127.0.0.1:9000`; else `AWS_ENDPOINT_URL_S3`,
    /// `AWS_ENDPOINT_URL`, the profile's, or AWS.
    pub endpoint_url: Option<String>,
    /// Region of the bucket; else `AWS_REGION`, the profile's, or `us-east-1`.
    pub region: Option<String>,
    /// Profile in the AWS configuration files; else `AWS_PROFILE`, or `default`.
    pub profile: Option<String>,
    /// Credentials; else those that the SDK finds in the environment, the profile, or the machine.
    pub credentials: Option<Credentials>,
    /// Put the bucket in the path rather than the host name; else only if an endpoint is given.
    pub path_style: Option<bool>,
    /// Leave payloads out of the signature even without TLS, which saves two thirds of the CPU time of a put. Each put
    /// still carries a CRC32 that the server verifies, so this only gives up protection against an attacker who alters
    /// packets in transit. Over TLS payloads are never signed.
    pub unsigned_payload: bool,
    /// The checksum that an upload carries for verification by the server.
    pub checksum: Checksum,
    /// How the server encrypts stored objects.
    pub encryption: Encryption,
    /// Storage class of [`crate::Store::data_options`]; else the bucket's.
    pub storage_class: Option<String>,
    /// Tags of [`crate::Store::data_options`]: keys and values.
    pub tags: Vec<(String, String)>,
    /// Whether reading an object that the server has archived starts its restoration.
    pub restore: Restore,
    /// Limit of the bytes that go to an S3 server.
    pub upload_limit: LinkLimit,
    /// Limit of the bytes that come from an S3 server.
    pub download_limit: LinkLimit,
    /// PEM file with certificate authorities for servers, beside those of the system.
    pub ca: Option<PathBuf>,
    /// The proxy for an S3 server.
    pub proxy: Proxy,
}

/// The checksum that an upload to an S3 server carries for verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// CRC32, in `x-amz-checksum-crc32`.
    #[default]
    Crc32,
    /// MD5, in `Content-MD5`, for servers that support no other. The ETag of the answer is compared with it as well.
    Md5,
    /// None, for servers that support neither.
    Off,
}

/// How an S3 server encrypts stored objects. Keys of the client (SSE-C) are not supported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// With the default of the bucket.
    #[default]
    Bucket,
    /// With keys that the server manages (SSE-S3).
    Aes256,
    /// With a key of the server's key management (SSE-KMS).
    Kms {
        /// The key's name; else the server's default key for S3.
        key: Option<String>,
    },
}

/// Whether an archived object is restored when it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restore {
    /// The gateway does not restore it: the operator has to.
    #[default]
    Off,
    /// The gateway restores it.
    As {
        /// The speed, and thus the price.
        tier: RestoreTier,
        /// Number of days in which it can be read then, 1 or more; an object of INTELLIGENT_TIERING stays readable.
        days: u32,
    },
}

/// How fast S3 restores an archived object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreTier {
    /// In minutes; not from DEEP_ARCHIVE.
    Expedited,
    /// In hours.
    Standard,
    /// In half a day to two days.
    Bulk,
}

/// The proxy for an S3 server, or for a service beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// The one that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` names, except for addresses that `NO_PROXY` lists; this
    /// machine's own addresses are reached directly.
    #[default]
    Environment,
    /// None.
    Direct,
    /// The one at this URL, for all requests.
    Url(String),
}

/// An access key for S3.
#[derive(Clone)]
pub struct Credentials {
    /// The key's public part.
    pub access_key_id: String,
    /// The key's secret part.
    pub secret_access_key: String,
}

impl fmt::Debug for Credentials {
    /// Never shows the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}
