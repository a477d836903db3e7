//! AWS KMS as a [`KeyService`]: the volume key is wrapped with a key that never leaves KMS.
//!
//! It is a crate of its own so that `forebay-seal` stays without AWS. Wrapping is `Encrypt` and unwrapping is `Decrypt`, both with
//! the volume's identity as encryption context ([`CONTEXT`]), so that what was wrapped for one volume is not unwrapped for
//! another, and that AWS CloudTrail names the volume. Who runs a gateway needs `kms:Decrypt` for the key; who adds a slot
//! `kms:Encrypt` as well.
//!
//! * **Credentials** come from where the SDKs look for them: `AWS_*` variables, profiles, the machine's role.
//! * **Time.** Connecting takes at most 3 s, an answer 10 s; what the service has no time for is asked up to three times. So a service
//!   that is away is an error within a minute, never a hang.
//! * **Secrets.** The key that came is wiped here. The SDK's own copies of it, in the bodies of one request or answer,
//!   are given back to the allocator as they are.

mod error;

use std::collections::HashMap;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_kms::Client;
use aws_sdk_kms::config::{self, Region};
use aws_sdk_kms::primitives::Blob;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use forebay_seal::{KeyService, SECRET_LEN, Secret, ServiceError, ServiceFuture};
use forebay_types::VolumeId;
use zeroize::{Zeroize, Zeroizing};

/// The kind of service, as slots of the key ring name it.
pub const SERVICE: &str = "aws-kms";

/// The name in the encryption context whose value is the volume's identity, in hexadecimal digits.
pub const CONTEXT: &str = "forebay:volume";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;

/// Where there is an endpoint and nobody says which region it is in.
const DEFAULT_REGION: &str = "us-east-1";

/// Which key, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsOptions {
    /// The key: its ARN, its id, or an alias (`alias/forebay`) or its ARN.
    pub key: String,
    /// Its region. None is the one in the key's ARN, else the one that the SDK finds.
    pub region: Option<String>,
    /// URL of the service, for others than AWS's own. None is the one of `AWS_ENDPOINT_URL_KMS`, `AWS_ENDPOINT_URL`, or
    /// the region.
    pub endpoint: Option<String>,
}

/// A key in AWS KMS.
#[derive(Clone, Debug)]
pub struct Kms {
    client: Client,
    key: String,
}

impl Kms {
    /// The key that `options` name, with the credentials that the environment leads to. Nothing is asked of the service yet.
    pub async fn connect(options: &KmsOptions) -> Kms {
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client());
        let region = options.region.as_deref().or(region_of(&options.key));
        // Without a region the SDK would ask the machine's metadata service, which only AWS has.
        let region = region.or(options.endpoint.as_deref().map(|_| DEFAULT_REGION));
        if let Some(region) = region {
            loader = loader.region(Region::new(region.to_owned()));
        }
        if let Some(endpoint) = &options.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let loaded = loader.load().await;
        Kms::over(config::Builder::from(&loaded), &options.key, ANSWER_TIMEOUT)
    }

    fn over(config: config::Builder, key: &str, answer: Duration) -> Kms {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .operation_attempt_timeout(answer);
        let config = config
            .timeout_config(timeouts.build())
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS));
        Kms {
            client: Client::from_conf(config.build()),
            key: key.to_owned(),
        }
    }
}

/// TLS as the S3 client has it.
fn http_client() -> aws_sdk_kms::config::SharedHttpClient {
    let provider = Provider::Rustls(CryptoMode::Ring);
    Builder::new().tls_provider(provider).build_https()
}

/// The region in an ARN: `arn:PARTITION:kms:REGION:ACCOUNT:...`.
fn region_of(key: &str) -> Option<&str> {
    let mut parts = key.split(':');
    let is_arn = parts.next() == Some("arn") && parts.nth(1) == Some("kms");
    parts.next().filter(|region| is_arn && !region.is_empty())
}

fn context(volume: VolumeId) -> HashMap<String, String> {
    let digits = volume.0.iter().map(|byte| format!("{byte:02x}"));
    HashMap::from([(CONTEXT.to_owned(), digits.collect())])
}

impl KeyService for Kms {
    fn service(&self) -> &str {
        SERVICE
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn wrap<'a>(&'a self, volume_key: &'a Secret, volume: VolumeId) -> ServiceFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let request = self.client.encrypt().key_id(&self.key);
            let request = request.set_encryption_context(Some(context(volume)));
            let answer = request.plaintext(Blob::new(volume_key.expose())).send();
            let answer = answer
                .await
                .map_err(|error| error::sorted(error, &self.key))?;
            let wrapped = answer.ciphertext_blob.map(Blob::into_inner);
            wrapped.ok_or_else(|| error::odd("it answered without the wrapped key"))
        })
    }

    fn unwrap<'a>(
        &'a self,
        wrapped: &'a [u8],
        key: &'a str,
        volume: VolumeId,
    ) -> ServiceFuture<'a, Secret> {
        Box::pin(async move {
            let request = self.client.decrypt().key_id(key);
            let request = request.set_encryption_context(Some(context(volume)));
            let answer = request.ciphertext_blob(Blob::new(wrapped)).send();
            let answer = answer.await.map_err(|error| error::sorted(error, key))?;
            let plain = answer.plaintext.map(Blob::into_inner).unwrap_or_default();
            secret(Zeroizing::new(plain))
        })
    }
}

fn secret(plain: Zeroizing<Vec<u8>>) -> Result<Secret, ServiceError> {
    let bytes: Result<[u8; SECRET_LEN], _> = plain.as_slice().try_into();
    let mut bytes = bytes.map_err(|_| {
        let len = plain.len();
        error::odd(&format!(
            "what it unwrapped has {len} bytes and not {SECRET_LEN}"
        ))
    })?;
    let secret = Secret::take(&mut bytes);
    bytes.zeroize();
    Ok(secret)
}

#[cfg(test)]
mod tests;
