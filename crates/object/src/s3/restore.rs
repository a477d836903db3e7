//! Archived objects: they are logged, and restored if `s3_restore` is set.
//!
//! A lifecycle rule may move objects into a class whose objects cannot be read (GLACIER, DEEP_ARCHIVE, the archive
//! tiers of INTELLIGENT_TIERING). A GET of one is answered with 403 `InvalidObjectState`. Its data are not lost; they
//! can be read some minutes to two days after RestoreObject, for the number of days in that request.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectError;
use aws_sdk_s3::types::error::InvalidObjectState;
use aws_sdk_s3::types::{GlacierJobParameters, RestoreRequest, Tier};
use object_store::Error;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Shared, error};
use crate::{Restore, RestoreTier};

/// Time until the same object is logged, and restored, again: a restore may have expired meanwhile.
const AGAIN: Duration = Duration::from_secs(6 * 3600);
/// Maximum number of remembered objects.
const MOST: usize = 10_000;

/// Archived objects that requests have met.
#[derive(Debug, Default)]
pub(super) struct Archived(Mutex<HashMap<Path, Instant>>);

impl Archived {
    /// Whether this object is to be logged and restored now.
    fn is_news(&self, location: &Path) -> bool {
        let mut met = self.0.lock();
        if met.len() >= MOST {
            met.retain(|_, at| at.elapsed() < AGAIN);
        }
        if met.len() >= MOST && !met.contains_key(location) {
            // Without it each read would ask for the same restore again.
            return false;
        }
        let before = met.insert(location.clone(), Instant::now());
        match before.filter(|at| at.elapsed() < AGAIN) {
            Some(at) => {
                met.insert(location.clone(), at);
                false
            }
            None => true,
        }
    }

    /// Notes that a request for a restore failed: the next read tries again.
    fn forget(&self, location: &Path) {
        self.0.lock().remove(location);
    }
}

/// The class of an archived object, as the server reports it.
struct Class {
    name: String,
    /// Whether its copy is restored for good, and not for some days.
    is_tiered: bool,
}

impl Class {
    fn of(state: &InvalidObjectState) -> Class {
        let class = state.storage_class().map(|class| class.as_str());
        let tier = state.access_tier().map(|tier| tier.as_str());
        let name = [class, tier].into_iter().flatten().collect::<Vec<_>>();
        Class {
            is_tiered: tier.is_some() || class == Some("INTELLIGENT_TIERING"),
            name: match name.is_empty() {
                true => "a storage class that the server does not name".to_owned(),
                false => format!("storage class {}", name.join(", ")),
            },
        }
    }
}

impl Shared {
    /// The error of a GET. An archived object is restored, if `s3_restore` is set and no restore was requested lately.
    pub(super) async fn not_got(
        &self,
        location: &Path,
        failed: SdkError<GetObjectError, HttpResponse>,
    ) -> Error {
        let class = match failed.as_service_error() {
            Some(GetObjectError::InvalidObjectState(state)) => Class::of(state),
            _ => return error::from_sdk(location, failed),
        };
        let name = &class.name;
        let what = match self.restore {
            Restore::Off => format!(
                "{location} is archived ({name}) and cannot be read: restore it (S3's RestoreObject, or s3_restore = \"standard\"), and take the volume out of the lifecycle rule that archives it"
            ),
            Restore::As { .. } => {
                format!("{location} is archived ({name}) and cannot be read before it is restored")
            }
        };
        if self.archived.is_news(location) {
            match self.restore {
                Restore::Off => tracing::warn!("{what}"),
                Restore::As { tier, days } => self.restore(location, &class, tier, days).await,
            }
        }
        error::archived(location, &what)
    }

    async fn restore(&self, location: &Path, class: &Class, tier: RestoreTier, days: u32) {
        let tier = match tier {
            RestoreTier::Expedited => Tier::Expedited,
            RestoreTier::Standard => Tier::Standard,
            RestoreTier::Bulk => Tier::Bulk,
        };
        let word = tier.as_str().to_owned();
        let Ok(job) = GlacierJobParameters::builder().tier(tier).build() else {
            return;
        };
        let request = RestoreRequest::builder().glacier_job_parameters(job);
        let request = match class.is_tiered {
            true => request,
            false => request.days(days.try_into().unwrap_or(i32::MAX)),
        };
        let asked = self
            .client
            .restore_object()
            .bucket(&self.bucket)
            .key(location.as_ref())
            .restore_request(request.build())
            .send()
            .await;
        let name = &class.name;
        match asked {
            Ok(_) => tracing::warn!(
                "{location} is archived ({name}); it is being restored ({word}), and can be read when that is done"
            ),
            Err(error) if error.code() == Some("RestoreAlreadyInProgress") => {
                tracing::warn!("{location} is archived ({name}); it is being restored already");
            }
            Err(failed) => {
                let why = crate::chain::chain(&error::from_sdk(location, failed));
                tracing::error!("{location} is archived ({name}) and cannot be restored: {why}");
                self.archived.forget(location);
            }
        }
    }
}
