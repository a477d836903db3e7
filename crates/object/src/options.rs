//! What can be said about a store beside its URL.

use std::fmt;
use std::path::PathBuf;

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
    /// PEM file with authorities that certificates of servers may come from, beside those of the system.
    pub ca: Option<PathBuf>,
    /// Through which proxy an S3 server is spoken to.
    pub proxy: Proxy,
}

/// Through which proxy an S3 server is spoken to.
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
