//! Key services: external services that keep the key which wraps the volume key.

use std::pin::Pin;

use forebay_types::VolumeId;

use crate::Secret;

/// The answer of a key service. It comes from a server, so it takes time; the caller provides the executor.
pub type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// Wraps the volume key with a key that never leaves the service, such as AWS KMS.
///
/// The service should authenticate the volume along with the wrapped key (in KMS: the encryption context), so that a
/// key wrapped for one volume is not unwrapped for another.
pub trait KeyService: Send + Sync {
    /// The kind of service, such as `aws-kms`. It is stored in the clear.
    fn service(&self) -> &str;

    /// The key of the service that wraps new slots, in the service's own notation (in KMS: an ARN). It is stored in the
    /// clear.
    fn key(&self) -> &str;

    /// Wraps `volume_key`. Returns at most [`crate::key_ring::MAX_WRAPPED_LEN`] bytes.
    fn wrap<'a>(&'a self, volume_key: &'a Secret, volume: VolumeId) -> ServiceFuture<'a, Vec<u8>>;

    /// Unwraps the output of [`wrap`](Self::wrap) for `volume`. According to the slot, it was wrapped with the
    /// service's key `key`. That comes from the bucket and is not authenticated: an attacker with write access to the
    /// bucket can have wrapped another volume key with another key. So a service unwraps only with keys that its own
    /// configuration names.
    fn unwrap<'a>(
        &'a self,
        wrapped: &'a [u8],
        key: &'a str,
        volume: VolumeId,
    ) -> ServiceFuture<'a, Secret>;
}

/// An error of a key service. The texts are the service's and contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// It could not be reached or is overloaded; a repetition may help.
    #[error("the key service could not be asked: {0}")]
    Unavailable(String),
    /// It refuses: no permission, no such key, or a key that it has not wrapped.
    #[error("the key service refused: {0}")]
    Refused(String),
}

/// A key service in memory, for tests. Its key is derived from its name.
#[cfg(feature = "fake")]
#[derive(Debug)]
pub struct FakeKeyService {
    name: String,
    /// The error that it returns to every request, if set.
    pub fault: Option<ServiceError>,
    /// The result of every unwrapping, if set.
    pub unwraps: Option<Result<[u8; 32], ServiceError>>,
}

#[cfg(feature = "fake")]
impl FakeKeyService {
    /// A service whose key has this name.
    pub fn new(name: &str) -> FakeKeyService {
        FakeKeyService {
            name: name.into(),
            fault: None,
            unwraps: None,
        }
    }

    /// One-time pads are safe only in tests.
    fn pad(name: &str, volume: VolumeId) -> Secret {
        let mut key = blake3::derive_key("forebay test fake key service", name.as_bytes());
        Secret::take(&mut key).derive("forebay test fake key service pad", &[&volume.0])
    }
}

#[cfg(feature = "fake")]
impl KeyService for FakeKeyService {
    fn service(&self) -> &str {
        "fake"
    }

    fn key(&self) -> &str {
        &self.name
    }

    fn wrap<'a>(&'a self, volume_key: &'a Secret, volume: VolumeId) -> ServiceFuture<'a, Vec<u8>> {
        Box::pin(async move {
            if let Some(fault) = &self.fault {
                return Err(fault.clone());
            }
            let pad = FakeKeyService::pad(&self.name, volume);
            let pairs = pad.expose().iter().zip(volume_key.expose());
            let mut wrapped: Vec<u8> = pairs.map(|(pad, key)| pad ^ key).collect();
            wrapped.extend(blake3::keyed_hash(pad.expose(), &wrapped).as_bytes());
            Ok(wrapped)
        })
    }

    fn unwrap<'a>(
        &'a self,
        wrapped: &'a [u8],
        key: &'a str,
        volume: VolumeId,
    ) -> ServiceFuture<'a, Secret> {
        Box::pin(async move {
            if let Some(fault) = &self.fault {
                return Err(fault.clone());
            }
            match self.unwraps.clone() {
                Some(Ok(mut key)) => return Ok(Secret::take(&mut key)),
                Some(Err(error)) => return Err(error),
                None => {}
            }
            let refused = || ServiceError::Refused("not what it has wrapped".into());
            if key != self.name {
                return Err(ServiceError::Refused(format!("it has no key {key}")));
            }
            let pad = FakeKeyService::pad(&self.name, volume);
            let (sealed, mac) = wrapped.split_first_chunk::<32>().ok_or_else(refused)?;
            if blake3::keyed_hash(pad.expose(), sealed).as_bytes() != mac {
                return Err(refused());
            }
            Ok(Secret::filled(|secret| {
                let pairs = pad.expose().iter().zip(sealed);
                for (byte, (pad, sealed)) in secret.iter_mut().zip(pairs) {
                    *byte = pad ^ sealed;
                }
            }))
        })
    }
}
