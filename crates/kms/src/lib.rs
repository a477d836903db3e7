//! AWS KMS as a [`KeyService`]: the volume key is wrapped with a key that never leaves KMS.
//!
//! It is a crate of its own so that `forebay-seal` does not depend on AWS. Wrapping is `Encrypt` and unwrapping is
//! `Decrypt`, both with the volume's identity as encryption context ([`CONTEXT`]), so that a key wrapped for one volume
//! is not unwrapped for another, and that AWS CloudTrail names the volume. Running a gateway requires `kms:Decrypt` for
//! the key; adding a slot requires `kms:Encrypt` as well.
//!
//! * **The key** is the one of the [options](KmsOptions), for unwrapping too. The key that a slot names is ignored: the
//!   slot lies in the bucket, and an attacker with write access could name another key there, and wrap another volume
//!   key with it.
//! * **Credentials** come from the usual sources of the SDKs: `AWS_*` variables, profiles, the machine's role. Refused
//!   ones are read again, and the request is repeated if they have changed.
//! * **Time.** Connecting takes at most 3 s, an answer 10 s; a request that finds the service overloaded is sent up to
//!   three times. So an unreachable service is an error within a minute, never a hang.
//! * **Secrets.** The key in an answer is wiped here. The SDK's own copies of it, in the bodies of one request or
//!   answer, are freed without being wiped. Without TLS, requests go only to this machine.

#![forbid(unsafe_code)]

mod clear;
mod error;
#[cfg(feature = "fake")]
pub mod fake;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_kms::Client;
use aws_sdk_kms::config::http::HttpResponse;
use aws_sdk_kms::config::{self, IdentityCache, Region, SharedHttpClient};
use aws_sdk_kms::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kms::primitives::Blob;
use forebay_object::{
    CredentialSource, OpenError, Proxy, check_environment, check_region, endpoint, http_client,
};
use forebay_seal::{KeyService, SECRET_LEN, Secret, ServiceError, ServiceFuture};
use forebay_types::VolumeId;
use tokio::sync::OnceCell;
use zeroize::{Zeroize, Zeroizing};

use clear::NotInTheClear;

/// The kind of service, as slots of the key ring name it.
pub const SERVICE: &str = "aws-kms";

/// The name in the encryption context whose value is the volume's identity, in hexadecimal digits.
pub const CONTEXT: &str = "forebay:volume";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;
const _: () = assert!(
    ATTEMPTS as u64 * (CONNECT_TIMEOUT.as_secs() + ANSWER_TIMEOUT.as_secs()) < 60,
    "a service that is away is an error within a minute"
);

/// Variables that may name the endpoint; the service's own takes precedence, as in all SDKs.
const ENDPOINT_VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL_KMS", "AWS_ENDPOINT_URL"];

/// The region if there is an endpoint, and no other source names a region.
const DEFAULT_REGION: &str = "us-east-1";

/// The key, its location, and the connection to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsOptions {
    /// The key: its ARN, its id, or an alias (`alias/forebay`) or its ARN.
    pub key: String,
    /// Its region. `None`: the one in the key's ARN, else the one that the SDK finds.
    pub region: Option<String>,
    /// URL of the service, if it is not AWS's own. `None`: the one of `AWS_ENDPOINT_URL_KMS`, `AWS_ENDPOINT_URL`, or
    /// the region. Without TLS it has to be on this machine, and no proxy is used then.
    pub endpoint: Option<String>,
    /// PEM file with certificate authorities for the service, beside those of the system.
    pub ca: Option<PathBuf>,
    /// The proxy for the service, and for the providers of credentials.
    pub proxy: Proxy,
}

/// A key in AWS KMS.
pub struct Kms {
    options: KmsOptions,
    http: SharedHttpClient,
    /// Created at the first request, since region and endpoint may have to be looked up.
    client: OnceCell<Connected>,
}

/// A client, and the source of its credentials.
struct Connected {
    client: Client,
    credentials: CredentialSource,
}

impl Kms {
    /// The key that `options` name, with credentials from the environment. It makes no request yet.
    ///
    /// # Errors
    /// When the authorities or the proxy cannot be used, or the name of the region, the endpoint or the key cannot
    /// be sent.
    pub fn new(options: KmsOptions) -> Result<Kms, OpenError> {
        check_environment()?;
        if let Some(region) = options.region.as_deref().or(region_of(&options.key)) {
            check_region("kms_region, or the key's ARN,", region)?;
        }
        if let Some(url) = &options.endpoint {
            endpoint("kms_endpoint", url)?;
        }
        // Requests without TLS stay on this machine, so a proxy is for TLS alone.
        let http = http_client(options.ca.as_deref(), &options.proxy, true)?;
        Ok(Kms {
            options,
            http,
            client: OnceCell::new(),
        })
    }

    /// Sends a request, and repeats it once if the credentials were refused and others are available by now.
    async fn ask<T, E, F>(
        &self,
        ask: impl Fn(Client) -> F,
    ) -> Result<Result<T, SdkError<E, HttpResponse>>, ServiceError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata,
    {
        let Connected {
            client,
            credentials,
        } = self.client.get_or_try_init(|| self.connect()).await?;
        let generation = credentials.generation();
        let answer = ask(client.clone()).await;
        if let Err(error) = &answer
            && error::concerns_credentials(error)
            && credentials.refused(generation).await
        {
            return Ok(ask(client.clone()).await);
        }
        Ok(answer)
    }

    async fn connect(&self) -> Result<Connected, ServiceError> {
        let options = &self.options;
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(self.http.clone())
            // They are set below.
            .no_credentials();
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|url| !url.is_empty());
        let elsewhere = options.endpoint.is_some() || ENDPOINT_VARIABLES.iter().any(is_set);
        if let Some(region) = options.region.as_deref().or(region_of(&options.key)) {
            loader = loader.region(Region::new(region.to_owned()));
        } else if elsewhere {
            // Else the SDK would also ask the machine's metadata service, which only AWS has.
            let found = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
                .or_else(ProfileFileRegionProvider::builder().build())
                .or_else(Region::from_static(DEFAULT_REGION));
            loader = loader.region(found);
        }
        if let Some(endpoint) = &options.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let loaded = loader.load().await;
        let Some(region) = loaded.region() else {
            return Err(error::no_region(&options.key));
        };
        check_region("the region of the profile", region.as_ref())
            .map_err(|error| ServiceError::Refused(error.to_string()))?;
        let credentials = CredentialSource::of_environment(None, &loaded);
        let config = config::Builder::from(&loaded)
            .credentials_provider(credentials.clone())
            // The source caches them, and notices changes better.
            .identity_cache(IdentityCache::no_cache());
        Ok(Connected {
            client: set_up(config, ANSWER_TIMEOUT),
            credentials,
        })
    }
}

fn set_up(config: config::Builder, answer: Duration) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(answer);
    let config = config
        .timeout_config(timeouts.build())
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .interceptor(NotInTheClear);
    Client::from_conf(config.build())
}

impl fmt::Debug for Kms {
    /// Omits the client's data on credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kms")
            .field("key", &self.options.key)
            .finish_non_exhaustive()
    }
}

/// The region in an ARN: `arn:PARTITION:kms:REGION:ACCOUNT:...`. `None` if the key is not named by an ARN.
pub fn region_of(key: &str) -> Option<&str> {
    let mut parts = key.split(':');
    let is_arn = parts.next() == Some("arn") && parts.nth(1) == Some("kms");
    parts.next().filter(|region| is_arn && !region.is_empty())
}

fn context(volume: VolumeId) -> HashMap<String, String> {
    HashMap::from([(CONTEXT.to_owned(), volume.to_string())])
}

impl KeyService for Kms {
    fn service(&self) -> &str {
        SERVICE
    }

    fn key(&self) -> &str {
        &self.options.key
    }

    fn wrap<'a>(&'a self, volume_key: &'a Secret, volume: VolumeId) -> ServiceFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let answer = self.ask(|client| {
                let request = client.encrypt().key_id(self.key());
                let request = request.set_encryption_context(Some(context(volume)));
                request.plaintext(Blob::new(volume_key.expose())).send()
            });
            let answer = answer
                .await?
                .map_err(|error| error::sorted(error, self.key()));
            let wrapped = answer?.ciphertext_blob.map(Blob::into_inner);
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
            let answer = self.ask(|client| {
                let request = client.decrypt().key_id(self.key());
                let request = request.set_encryption_context(Some(context(volume)));
                request.ciphertext_blob(Blob::new(wrapped)).send()
            });
            let answer = answer.await?.map_err(|error| {
                let sorted = error::sorted(error, self.key());
                error::of_slot(sorted, key, self.key())
            });
            let plain = answer?.plaintext.map(Blob::into_inner).unwrap_or_default();
            secret(Zeroizing::new(plain))
        })
    }
}

fn secret(plain: Zeroizing<Vec<u8>>) -> Result<Secret, ServiceError> {
    let bytes: Result<[u8; SECRET_LEN], _> = plain.as_slice().try_into();
    let mut bytes = bytes.map_err(|_| {
        let len = plain.len();
        error::odd(&format!(
            "the unwrapped key has {len} bytes, not {SECRET_LEN}"
        ))
    })?;
    let secret = Secret::take(&mut bytes);
    bytes.zeroize();
    Ok(secret)
}

#[cfg(test)]
mod tests;
