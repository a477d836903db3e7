//! Any S3 server as an [`ObjectStore`], through the AWS SDK.
//!
//! The SDK signs and speaks HTTP; this adapter translates calls of the trait into calls of the SDK,
//! and the SDK's errors into the trait's. Beyond that:
//!
//! * **Retries.** There are none here: [`crate::Store`] decides which requests are repeated. Parts of uploads are the
//!   exception, since the trait cannot repeat one: the SDK sends them up to three times.
//! * **Time.** Connecting takes at most 3 s, the first byte of an answer at most 20 s (after an upload up to 16 s
//!   more), and a body that does not move for 20 s is given up, in either direction (see [`stall`]). So an outage is
//!   an error within a minute or so, never a hang.
//! * **Integrity.** Every put carries a checksum from here, which the server verifies: a CRC32, or an MD5, which is
//!   also compared with the ETag of the answer (see [`checksum`]). The layers above verify checksums of the data they
//!   read.
//! * **Limits.** If the [link](crate::link) has limits, bodies wait in transit. [`crate::Store`] also makes them wait
//!   before they begin.

pub mod advice;
mod checksum;
mod client;
mod connector;
mod credentials;
mod environment;
pub(crate) mod error;
mod get;
mod list;
mod multipart;
mod put;
mod restore;
mod stall;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use futures_util::stream::{self, BoxStream, TryReadyChunksError};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::link::Link;
use crate::{Checksum, Encryption, OpenError, Requests, Restore, StoreOptions};
pub(crate) use advice::Kind;
pub use connector::http_client;
pub use credentials::CredentialSource;
pub use environment::{check_environment, check_region, endpoint};
pub(crate) use error::S3Error;
use restore::Archived;
use stall::STALL_LIMIT;

/// Checks the environment and `options`, as [`S3Store::connect`] does first.
pub(crate) fn check(options: &StoreOptions) -> std::result::Result<(), OpenError> {
    check_environment()?;
    environment::check_options(options)?;
    client::endpoint(options)?;
    connector::http_client(options.ca.as_deref(), &options.proxy, true)?;
    Ok(())
}

/// A bucket. Clones share one client and its connections.
#[derive(Clone)]
pub struct S3Store {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    credentials: CredentialSource,
    bucket: String,
    /// Whether payloads are part of the signature.
    sign_payload: bool,
    checksum: Checksum,
    encryption: Encryption,
    link: Option<Arc<Link>>,
    restore: Restore,
    archived: Archived,
}

/// Most objects that one `DeleteObjects` request may name.
const DELETE_BATCH: usize = 1000;

impl S3Store {
    /// The bucket that `options` and the environment determine. Sends no request to the server.
    ///
    /// # Errors
    /// A value of `options` or the environment that cannot be used for reaching the server.
    pub async fn connect(
        bucket: &str,
        options: &StoreOptions,
        requests: Arc<Requests>,
    ) -> std::result::Result<S3Store, OpenError> {
        let link = Link::new(&options.upload_limit, &options.download_limit);
        S3Store::connect_with(bucket, options, STALL_LIMIT, link, requests).await
    }

    async fn connect_with(
        bucket: &str,
        options: &StoreOptions,
        stall_limit: Duration,
        link: Option<Arc<Link>>,
        requests: Arc<Requests>,
    ) -> std::result::Result<S3Store, OpenError> {
        let connected = client::connect(options, stall_limit, link.clone(), requests).await?;
        Ok(S3Store {
            shared: Arc::new(Shared {
                client: connected.client,
                credentials: connected.credentials,
                bucket: bucket.to_owned(),
                sign_payload: connected.sign_payload,
                checksum: options.checksum,
                encryption: options.encryption.clone(),
                link,
                restore: options.restore,
                archived: Archived::default(),
            }),
        })
    }

    /// Limits of the link to the server, if there are any.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.shared.link.clone()
    }

    /// The source of the credentials of its requests.
    pub(crate) fn credentials(&self) -> CredentialSource {
        self.shared.credentials.clone()
    }

    /// Requests a listing of at most one object below `prefix`: checks that the server answers,
    /// that the bucket exists, and that the credentials are valid for it.
    pub(crate) async fn check(&self, prefix: &Path) -> Result<()> {
        let request = self.shared.client.list_objects_v2();
        let request = request
            .bucket(&self.shared.bucket)
            .set_prefix(list::below(prefix))
            .max_keys(1);
        let ask = || async {
            let answer = request.clone().send().await;
            answer.map_err(|error| error::from_list(prefix, error))
        };
        self.shared.ask(ask).await?;
        Ok(())
    }
}

impl Shared {
    /// Sends a request, and repeats it once if its credentials were refused and others are available by now. That does
    /// no harm: a refused request has had no effect.
    async fn ask<T, F>(&self, send: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let generation = self.credentials.generation();
        match send().await {
            Err(error)
                if error::concerns_credentials(&error)
                    && self.credentials.refused(generation).await =>
            {
                tracing::info!("credentials were refused, and others were found: {error}");
                send().await
            }
            answer => answer,
        }
    }

    async fn delete(&self, locations: Vec<Path>) -> Vec<Result<Path>> {
        match <[Path; 1]>::try_from(locations) {
            Ok([location]) => vec![self.delete_one(location).await],
            Err(locations) => match self.delete_batch(&locations).await {
                Ok(failed) => answer_each(locations, failed),
                Err(error) => vec![Err(error)],
            },
        }
    }

    async fn delete_one(&self, location: Path) -> Result<Path> {
        let request = self.client.delete_object().bucket(&self.bucket);
        let request = request.key(location.as_ref());
        let ask = || async {
            let answer = request.clone().send().await;
            answer.map_err(|error| error::from_sdk(&location, error))
        };
        match self.ask(ask).await {
            // S3 itself reports success here; some servers do not.
            Ok(_) | Err(Error::NotFound { .. }) => Ok(location),
            Err(error) => Err(error),
        }
    }

    /// Deletes up to [`DELETE_BATCH`] objects and returns those whose deletion failed.
    async fn delete_batch(&self, locations: &[Path]) -> Result<Vec<(String, Error)>> {
        let batch = Path::default();
        let mut delete = Delete::builder().quiet(true);
        for location in locations {
            let object = ObjectIdentifier::builder()
                .key(location.as_ref())
                .build()
                .map_err(error::from_build)?;
            delete = delete.objects(object);
        }
        let request = self.client.delete_objects().bucket(&self.bucket);
        let request = request.delete(delete.build().map_err(error::from_build)?);
        let ask = || async {
            let request = request.clone().customize();
            let request = match self.checksum {
                Checksum::Md5 => request.mutate_request(checksum::with_md5),
                // The request has to carry a checksum, and the SDK's is a CRC32.
                Checksum::Crc32 | Checksum::Off => request,
            };
            let answer = request.send().await;
            answer.map_err(|error| error::from_sdk(&batch, error))
        };
        let output = self.ask(ask).await?;
        let failed = output.errors.unwrap_or_default().into_iter();
        Ok(failed
            .filter(|failure| failure.code() != Some("NoSuchKey"))
            .map(|failure| {
                let key = failure.key().unwrap_or_default().to_owned();
                let error = error::from_code(&key, failure.code(), failure.message());
                (key, error)
            })
            .collect())
    }
}

/// One answer for each location, in order.
fn answer_each(locations: Vec<Path>, mut failed: Vec<(String, Error)>) -> Vec<Result<Path>> {
    locations
        .into_iter()
        .map(|location| {
            let failure = failed.iter().position(|(key, _)| key == location.as_ref());
            match failure {
                Some(at) => Err(failed.swap_remove(at).1),
                None => Ok(location),
            }
        })
        .collect()
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Store({})", self.shared.bucket)
    }
}

#[async_trait]
impl ObjectStore for S3Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.shared.put(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        multipart::begin(Arc::clone(&self.shared), location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            self.shared.head(location, options).await
        } else {
            self.shared.get(location, options).await
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let shared = Arc::clone(&self.shared);
        locations
            .try_ready_chunks(DELETE_BATCH)
            .then(move |batch| {
                let shared = Arc::clone(&shared);
                async move {
                    let (locations, failure) = match batch {
                        Ok(locations) => (locations, None),
                        Err(TryReadyChunksError(locations, error)) => (locations, Some(error)),
                    };
                    let mut answers = shared.delete(locations).await;
                    answers.extend(failure.map(Err));
                    stream::iter(answers)
                }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::stream(Arc::clone(&self.shared), prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        list::stream(Arc::clone(&self.shared), prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.shared.list_with_delimiter(prefix).await
    }

    /// Copies within the bucket, up to S3's limit of 5 GiB. S3 servers do not agree on a conditional
    /// copy, and many ignore the condition, so a copy that must not overwrite is refused here.
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        if options.mode == CopyMode::Create {
            return Err(Error::NotImplemented {
                operation: "copy without overwriting".to_owned(),
                implementer: self.to_string(),
            });
        }
        let bucket = &self.shared.bucket;
        let (encryption, key) = self.shared.encryption();
        let request = self.shared.client.copy_object();
        let request = request
            .set_server_side_encryption(encryption)
            .set_ssekms_key_id(key)
            .bucket(bucket)
            .copy_source(format!("{bucket}/{}", put::percent_encode(from.as_ref())))
            .key(to.as_ref());
        let ask = || async {
            let answer = request.clone().send().await;
            answer.map_err(|error| error::from_sdk(from, error))
        };
        self.shared.ask(ask).await?;
        Ok(())
    }
}
