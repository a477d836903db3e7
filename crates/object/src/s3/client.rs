//! Setup of the SDK's client.

use std::sync::Arc;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{
    self, Credentials, IdentityCache, Region, RequestChecksumCalculation,
    ResponseChecksumValidation,
};

use super::connector::http_client;
use super::credentials::CredentialSource;
use super::environment;
use super::stall::StallGuard;
use crate::link::{Direction, Link};
use crate::requests::ObservedClient;
use crate::{OpenError, Requests, StoreOptions};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Number of tries of a part of an upload, and of its completion: the trait has no way to repeat them.
pub(super) const PART_ATTEMPTS: u32 = 3;
const PART_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_PART_BACKOFF: Duration = Duration::from_secs(5);

const DEFAULT_REGION: &str = "us-east-1";

/// The client of a server.
pub(super) struct Connected {
    /// A client whose bodies follow the limits of the link.
    pub(super) client: Client,
    /// The source of its credentials.
    pub(super) credentials: CredentialSource,
    /// Whether payloads have to be signed.
    pub(super) sign_payload: bool,
}

pub(super) async fn connect(
    options: &StoreOptions,
    stall_limit: Duration,
    link: Option<Arc<Link>>,
    requests: Arc<Requests>,
) -> Result<Connected, OpenError> {
    super::check(options)?;
    let endpoint = endpoint(options)?;
    // Providers of credentials are reached through TLS, or are on this machine.
    let http_client = |is_tls| http_client(options.ca.as_deref(), &options.proxy, is_tls);
    let secure = http_client(true)?;
    let limits_answers = link
        .as_ref()
        .is_some_and(|link| link.limits(Direction::Down));
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(StallGuard::new(secure.clone(), stall_limit, None))
        // They are set below.
        .no_credentials()
        // The layer above all stores decides which requests are repeated, and when.
        .retry_config(RetryConfig::disabled())
        // No limit for answers: the stall guard has its own. With the same setting for all requests, they also share
        // one pool of connections.
        .timeout_config(
            TimeoutConfig::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .build(),
        )
        // For bodies of answers only: it does not notice stalled uploads from memory. If a limit slows bodies down, the
        // stall guard watches them itself.
        .stalled_stream_protection(if limits_answers {
            StalledStreamProtectionConfig::disabled()
        } else {
            StalledStreamProtectionConfig::enabled()
                .upload_enabled(false)
                .grace_period(stall_limit)
                .build()
        });
    if let Some(region) = region(options, endpoint.is_some()) {
        loader = loader.region(region);
    }
    if let Some(profile) = &options.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(endpoint) = &endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    let loaded = loader.load().await;
    if let Some(region) = loaded.region() {
        environment::check_region("the region of the profile", region.as_ref())?;
    }
    let credentials = match &options.credentials {
        Some(own) => CredentialSource::fixed(Credentials::new(
            &own.access_key_id,
            &own.secret_access_key,
            None,
            None,
            "store options",
        )),
        None => CredentialSource::of_environment(options.profile.clone(), &loaded),
    };
    let of_profile = loaded
        .endpoint_url()
        .filter(|_| endpoint.is_none())
        .map(|url| environment::endpoint("endpoint_url of the profile", url))
        .transpose()?;
    let endpoint = endpoint.as_ref().or(of_profile.as_ref());
    let is_tls = endpoint.is_none_or(|url| !url.starts_with("http://"));
    let http = if is_tls { secure } else { http_client(false)? };
    let region = loaded.region().cloned();
    let mut config = config::Builder::from(&loaded);
    if let Some(url) = of_profile
        .as_ref()
        .filter(|url| Some(url.as_str()) != loaded.endpoint_url())
    {
        config = config.endpoint_url(url);
    }
    let config = config
        .http_client(ObservedClient::new(
            StallGuard::new(http, stall_limit, link),
            requests,
        ))
        .region(region.unwrap_or(Region::from_static(DEFAULT_REGION)))
        .force_path_style(options.path_style.unwrap_or(endpoint.is_some()))
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .credentials_provider(credentials.clone())
        // The source caches them, and notices changes better.
        .identity_cache(IdentityCache::no_cache())
        .build();
    Ok(Connected {
        client: Client::from_conf(config),
        credentials,
        sign_payload: !is_tls && !options.unsigned_payload,
    })
}

/// The endpoint that `options` or the environment name.
pub(super) fn endpoint(options: &StoreOptions) -> Result<Option<String>, OpenError> {
    if let Some(url) = &options.endpoint_url {
        return environment::endpoint("the endpoint", url).map(Some);
    }
    // The service's own variable takes precedence, as in all SDKs.
    for name in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] {
        if let Ok(url) = std::env::var(name)
            && !url.is_empty()
        {
            return environment::endpoint(name, &url).map(Some);
        }
    }
    Ok(None)
}

/// The region, or `None` to leave it to the SDK, which asks the machine's metadata service last. That makes sense only
/// for AWS itself: elsewhere there is no metadata service, and asking takes seconds.
fn region(options: &StoreOptions, has_endpoint: bool) -> Option<RegionProviderChain> {
    if let Some(region) = &options.region {
        return Some(RegionProviderChain::first_try(Region::new(region.clone())));
    }
    if !has_endpoint {
        return None;
    }
    let mut profile = ProfileFileRegionProvider::builder();
    if let Some(name) = &options.profile {
        profile = profile.profile_name(name);
    }
    let found = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new());
    Some(found.or_else(profile.build()))
}

/// The settings for a part of an upload, and for its completion: see [`PART_ATTEMPTS`].
pub(super) fn part_config() -> config::Builder {
    config::Config::builder().retry_config(
        RetryConfig::standard()
            .with_max_attempts(PART_ATTEMPTS)
            .with_initial_backoff(PART_BACKOFF)
            .with_max_backoff(LONGEST_PART_BACKOFF),
    )
}
