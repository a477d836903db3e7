//! What can be said about a store beside its URL.

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
    /// Put the bucket into the path rather than the host name; else only where an endpoint is given.
    pub path_style: Option<bool>,
    /// Leave payloads out of the signature even where the transport is not TLS, which saves two
    /// thirds of the CPU time of a put. Each put still carries a CRC32 that the server verifies, so what
    /// this gives up is protection against someone who alters packets on the way. Over TLS
    /// payloads are never signed.
    pub unsigned_payload: bool,
    /// What an upload carries so that the server can verify it.
    pub checksum: Checksum,
    /// How the server encrypts what it stores.
    pub encryption: Encryption,
    /// Storage class of [`crate::Store::data_options`]; else the bucket's.
    pub storage_class: Option<String>,
    /// Tags of [`crate::Store::data_options`]: keys and values.
    pub tags: Vec<(String, String)>,
    /// Whether objects that the server has archived are restored when they are to be read.
    pub restore: Restore,
    /// Limit of what goes to an S3 server.
    pub upload_limit: LinkLimit,
    /// Limit of what comes from one.
    pub download_limit: LinkLimit,
    /// PEM file with authorities that certificates of servers may come from, beside those of the system.
    pub ca: Option<PathBuf>,
    /// Through which proxy an S3 server is spoken to.
    pub proxy: Proxy,
}

/// What an upload to an S3 server carries so that the server can verify it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// CRC32, in `x-amz-checksum-crc32`.
    #[default]
    Crc32,
    /// MD5, in `Content-MD5`, for servers that know no other. The ETag of the answer is compared with it as well.
    Md5,
    /// Nothing, for servers that know neither.
    Off,
}

/// How an S3 server encrypts what it stores. Keys of the client's own (SSE-C) are not among it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// As the bucket says.
    #[default]
    Bucket,
    /// With keys of the server (SSE-S3).
    Aes256,
    /// With a key of its key management (SSE-KMS).
    Kms {
        /// The key's name; else the one that the server has for S3.
        key: Option<String>,
    },
}

/// Whether an archived object that is to be read is restored first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restore {
    /// The gateway does not restore it: the operator has to.
    #[default]
    Off,
    /// It is.
    As {
        /// How fast, and how dear.
        tier: RestoreTier,
        /// For how many days it can be read then, 1 or more; an object of INTELLIGENT_TIERING stays readable.
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
    /// In half a day or two.
    Bulk,
}

/// Through which proxy an S3 server, or a service beside it, is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// The one that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` names, for addresses that `NO_PROXY` does not; this machine's
    /// own addresses are spoken to directly.
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
