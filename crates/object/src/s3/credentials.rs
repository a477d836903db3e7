//! Credentials that change while the program runs.
//!
//! The SDK reads profile files once in the life of a client, and treats credentials without a time of expiry as valid.
//! But agents write new keys into those files every hour, and endpoints of containers change theirs. So this module
//! holds the credentials that the SDK finds, and searches again, with the files, in four cases:
//!
//! | when | at most |
//! |---|---|
//! | one of the files has changed | a check each second in which there are requests |
//! | the credentials expire within five minutes, or have no time of expiry and are a quarter of an hour old | once a minute |
//! | the server refuses them | every three seconds |
//! | [`read_again`](CredentialSource::read_again) was called | |
//!
//! During a search, requests continue with the old credentials, unless these have expired. If a search finds nothing,
//! the old ones stay.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Interval of checks of the files.
const LOOK: Duration = Duration::from_secs(1);
/// The pause before another search after credentials were refused or not found.
const AGAIN: Duration = Duration::from_secs(3);
/// Time before the expiry of credentials at which a search for others begins.
const EARLY: Duration = Duration::from_secs(300);
/// Interval of searches in that time.
const EARLY_AGAIN: Duration = Duration::from_secs(60);
/// The age at which credentials without a time of expiry are searched for again.
const OLD: Duration = Duration::from_secs(900);

type Found = Result<Credentials, CredentialsError>;
type Find = Box<dyn Fn() -> BoxFuture<'static, Found> + Send + Sync>;

/// The source of credentials for requests, which may change. Clones share one state.
#[derive(Clone)]
pub struct CredentialSource {
    shared: Arc<Source>,
}

struct Source {
    find: Find,
    /// Files that contain credentials, or tokens for requesting them.
    files: Vec<PathBuf>,
    state: Mutex<State>,
    /// Locked during a search: there is only one at a time.
    finding: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    /// Increases with each change of the credentials.
    generation: u64,
    /// Whether a search is due, independent of all times.
    is_stale: bool,
    /// The time of the last search, and the reason if it failed.
    tried: Option<(Instant, Option<String>)>,
    /// The files as they were at the last search.
    stamps: Vec<Stamp>,
    looked: Option<Instant>,
}

struct Held {
    credentials: Credentials,
    found: Instant,
    expires: Option<Instant>,
}

/// Identifies a version of a file: time of change, length, inode. `None` if there is no file.
type Stamp = Option<(i64, i64, u64, u64)>;

/// The step that is needed before a request.
enum Need {
    Nothing(Credentials),
    /// A search is due; these credentials still work.
    Better(Credentials),
    Others,
    /// The last search failed a moment ago.
    Wait(String),
}

impl CredentialSource {
    /// The credentials that the SDK finds: in the environment, in the files of the profile, and at the endpoints that
    /// provide them to a machine or a container, with the HTTP client and the region of `loaded`.
    pub fn of_environment(profile: Option<String>, loaded: &SdkConfig) -> CredentialSource {
        let (region, http) = (loaded.region().cloned(), loaded.http_client());
        let (use_fips, use_dual_stack) = (loaded.use_fips(), loaded.use_dual_stack());
        let config = move || {
            let config = ProviderConfig::without_region()
                .with_behavior_version(Some(BehaviorVersion::latest()))
                .with_use_fips(use_fips)
                .with_use_dual_stack(use_dual_stack);
            match &http {
                Some(http) => config.with_http_client(http.clone()),
                None => config,
            }
        };
        let find = move || -> BoxFuture<'static, Found> {
            let (profile, region, config) = (profile.clone(), region.clone(), config());
            Box::pin(async move {
                // A chain that was built before would have read the files already.
                let mut chain = DefaultCredentialsChain::builder().configure(config);
                if let Some(profile) = &profile {
                    chain = chain.profile_name(profile);
                }
                if let Some(region) = region {
                    chain = chain.region(region);
                }
                sound(chain.build().await.provide_credentials().await?)
            })
        };
        CredentialSource::new(Box::new(find), files())
    }

    /// A source of fixed credentials.
    pub fn fixed(credentials: Credentials) -> CredentialSource {
        let find = move || -> BoxFuture<'static, Found> {
            let credentials = credentials.clone();
            Box::pin(async move { sound(credentials) })
        };
        CredentialSource::new(Box::new(find), Vec::new())
    }

    fn new(find: Find, files: Vec<PathBuf>) -> CredentialSource {
        CredentialSource {
            shared: Arc::new(Source {
                find,
                files,
                state: Mutex::default(),
                finding: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Makes the next request search for the credentials again.
    pub fn read_again(&self) {
        let mut state = self.shared.state.lock();
        state.is_stale = true;
        state.tried = None;
    }

    /// A number that changes whenever the credentials do; 0 before any are found.
    pub fn generation(&self) -> u64 {
        self.shared.state.lock().generation
    }

    /// Searches again for credentials that a server has refused. Returns whether they differ by now from those of
    /// `generation`.
    pub async fn refused(&self, generation: u64) -> bool {
        let refused = {
            let mut state = self.shared.state.lock();
            // Without earlier credentials, the refused ones are the first.
            if state.generation != generation && generation != 0 {
                return true;
            }
            let now = Instant::now();
            if state
                .tried
                .as_ref()
                .is_some_and(|(at, _)| now < *at + AGAIN)
            {
                return false;
            }
            state.is_stale = true;
            state.generation
        };
        let found = self.get().await;
        found.is_ok() && self.generation() != refused
    }

    async fn get(&self) -> Found {
        let need = self.need();
        let held = match need {
            Need::Nothing(held) => return Ok(held),
            Need::Wait(why) => return Err(CredentialsError::provider_error(why)),
            Need::Better(held) => Some(held),
            Need::Others => None,
        };
        let Some(held) = held else {
            let _one = self.shared.finding.lock().await;
            // Another request may have found them meanwhile.
            return match self.need() {
                Need::Nothing(held) | Need::Better(held) => Ok(held),
                Need::Wait(why) => Err(CredentialsError::provider_error(why)),
                Need::Others => self.find().await,
            };
        };
        match self.shared.finding.try_lock() {
            Ok(_one) => self.find().await,
            Err(_) => Ok(held),
        }
    }

    fn need(&self) -> Need {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        if state.looked.is_none_or(|looked| now >= looked + LOOK) {
            state.looked = Some(now);
            // The first search reads them in any case.
            if state.held.is_some() && self.shared.stamps() != state.stamps {
                state.is_stale = true;
                state.tried = None;
            }
        }
        state.need(now)
    }

    /// Searches for credentials. If nothing is found, the old ones stay while they may be valid.
    async fn find(&self) -> Found {
        let stamps = self.shared.stamps();
        let found = (self.shared.find)().await;
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        state.is_stale = false;
        state.stamps = stamps;
        match found {
            Ok(credentials) => {
                state.tried = Some((now, None));
                let is_same = state
                    .held
                    .as_ref()
                    .is_some_and(|held| is_same(&held.credentials, &credentials));
                if !is_same {
                    state.generation += 1;
                }
                let left = |expiry: SystemTime| {
                    expiry.duration_since(SystemTime::now()).unwrap_or_default()
                };
                state.held = Some(Held {
                    expires: credentials.expiry().map(|expiry| now + left(expiry)),
                    credentials: credentials.clone(),
                    found: now,
                });
                Ok(credentials)
            }
            Err(error) => {
                let why = crate::chain::chain(&error);
                state.tried = Some((now, Some(why.clone())));
                match &state.held {
                    Some(held) if held.expires.is_none_or(|expires| now < expires) => {
                        tracing::warn!(
                            "cannot read the credentials again, so the previous ones stay in use: {why}"
                        );
                        Ok(held.credentials.clone())
                    }
                    _ => Err(error),
                }
            }
        }
    }
}

impl State {
    fn need(&self, now: Instant) -> Need {
        let since = self.tried.as_ref().map(|(at, _)| now - *at);
        let may_try = |pause| since.is_none_or(|since| since >= pause);
        let Some(held) = &self.held else {
            return match &self.tried {
                Some((_, Some(why))) if !may_try(AGAIN) => Need::Wait(why.clone()),
                _ => Need::Others,
            };
        };
        let credentials = held.credentials.clone();
        if self.is_stale {
            return Need::Others;
        }
        let (has_expired, is_due) = match held.expires {
            Some(expires) => (now >= expires, now + EARLY >= expires),
            None => (false, now >= held.found + OLD),
        };
        match () {
            () if has_expired && may_try(AGAIN) => Need::Others,
            // The server decides: this machine's clock may be wrong.
            () if has_expired => Need::Nothing(credentials),
            () if is_due && may_try(EARLY_AGAIN) => Need::Better(credentials),
            () => Need::Nothing(credentials),
        }
    }
}

impl Source {
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |file: &PathBuf| -> Stamp {
            let found = fs::metadata(file).ok()?;
            Some((found.mtime(), found.mtime_nsec(), found.len(), found.ino()))
        };
        self.files.iter().map(stamp).collect()
    }
}

fn is_same(a: &Credentials, b: &Credentials) -> bool {
    (a.access_key_id(), a.secret_access_key(), a.session_token())
        == (b.access_key_id(), b.secret_access_key(), b.session_token())
}

/// The credentials, unless they hold characters that cannot be part of a header: the SDK would panic at them.
fn sound(credentials: Credentials) -> Found {
    let is_sent = |value: &str| value.bytes().all(|b| b.is_ascii_graphic());
    // The secret itself is never sent; but it never contains white space at its ends.
    let is_one = |value: &str| value.trim() == value && !value.contains(char::is_control);
    let key_id = credentials.access_key_id();
    let secret = credentials.secret_access_key();
    let token = credentials.session_token();
    let wrong = match () {
        () if key_id.is_empty() || !is_sent(key_id) => "access key id",
        () if secret.is_empty() || !is_one(secret) => "secret access key",
        () if token.is_some_and(|token| !is_sent(token)) => "session token",
        () => return Ok(credentials),
    };
    Err(CredentialsError::invalid_configuration(format!(
        "the {wrong} is empty, or holds a space, a line break or another character that is not allowed in keys: \
         correct it in its source"
    )))
}

/// The files that the environment names, or the default ones.
fn files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(PathBuf::from);
    let named = |name: &str| {
        let path = PathBuf::from(variable(name)?);
        Some(match (path.strip_prefix("~"), &home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path,
        })
    };
    let of_profile = |name: &str, usual: &str| {
        let usual = home.as_deref().map(|home| home.join(Path::new(usual)));
        named(name).or(usual)
    };
    [
        of_profile("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        of_profile("AWS_CONFIG_FILE", ".aws/config"),
        named("AWS_WEB_IDENTITY_TOKEN_FILE"),
        named("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl ProvideCredentials for CredentialSource {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.get())
    }
}

impl fmt::Debug for CredentialSource {
    /// Shows no credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSource")
            .field("files", &self.shared.files)
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
