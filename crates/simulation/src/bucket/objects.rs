//! The objects as the product accesses them.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

use super::{Fate, NO_ANSWER, Prefix};
use crate::world::{Step, World};

/// The objects of a world's bucket.
#[derive(Clone)]
pub(crate) struct Objects(pub(crate) World);

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects")
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated bucket")
    }
}

fn no_answer() -> Error {
    Error::Generic {
        store: "simulation",
        source: NO_ANSWER.into(),
    }
}

fn unsupported(operation: &str) -> Error {
    Error::NotSupported {
        source: format!("a volume is not known to ask for {operation}").into(),
    }
}

fn meta(location: &str, bytes: &Bytes) -> ObjectMeta {
    ObjectMeta {
        location: Path::from(location),
        last_modified: Default::default(),
        size: bytes.len() as u64,
        e_tag: Some(e_tag(bytes)),
        version: None,
    }
}

/// An ETag of an object's content, as in S3: equal for equal bytes.
fn e_tag(bytes: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

impl Objects {
    async fn delete_one(&self, location: Path) -> Result<Path> {
        self.0.travel().await;
        self.0.step(Step::DeleteObject);
        let fate = self.0.bucket(|bucket| {
            let fate = bucket.fate(true);
            if fate != Fate::Fails {
                bucket.delete(&location);
            }
            fate
        });
        self.0.step(Step::DeleteDone);
        match fate {
            Fate::Works => Ok(location),
            Fate::Fails | Fate::Ghost => Err(no_answer()),
        }
    }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.travel().await;
        self.0.step(Step::PutObject);
        let bytes = Bytes::from(payload);
        let fate = self.0.bucket(|bucket| {
            let fate = bucket.fate(true);
            if fate == Fate::Fails {
                return Ok(fate);
            }
            let found = bucket.get(location).map(e_tag);
            if options.mode == PutMode::Create && found.is_some() {
                return Err(Error::AlreadyExists {
                    path: location.to_string(),
                    source: "it is there".into(),
                });
            }
            if let PutMode::Update(expected) = &options.mode
                && (found.is_none() || found != expected.e_tag)
            {
                return Err(Error::Precondition {
                    path: location.to_string(),
                    source: "another version is there".into(),
                });
            }
            bucket.put(location, bytes.clone());
            Ok(fate)
        })?;
        self.0.step(Step::PutDone);
        self.0.travel().await;
        match fate {
            Fate::Works => Ok(PutResult {
                e_tag: Some(e_tag(&bytes)),
                version: None,
                extensions: Default::default(),
            }),
            Fate::Fails | Fate::Ghost => Err(no_answer()),
        }
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("multipart uploads"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.travel().await;
        self.0.step(Step::GetObject);
        let found = self.0.bucket(|bucket| {
            if bucket.fate(false) == Fate::Fails {
                return Err(no_answer());
            }
            let found = bucket.get(location).cloned();
            found.ok_or_else(|| Error::NotFound {
                path: location.to_string(),
                source: "it is not there".into(),
            })
        })?;
        self.0.travel().await;
        let len = found.len() as u64;
        let range = match &options.range {
            Some(range) => range.as_range(len).map_err(|error| Error::Generic {
                store: "simulation",
                source: error.into(),
            })?,
            None => 0..len,
        };
        let part = found.slice(range.start as usize..range.end as usize);
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async { Ok(part) }).boxed()),
            meta: meta(location.as_ref(), &found),
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let objects = self.clone();
        locations
            .then(move |location| {
                let objects = objects.clone();
                async move { objects.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.step(Step::ListObjects);
        let root = prefix.map_or(String::new(), Path::to_string);
        let (prefix, below) = Prefix::of(&root);
        let found = self.0.bucket(|bucket| {
            if bucket.fate(false) == Fate::Fails {
                return vec![Err(no_answer())];
            }
            let objects = bucket.image.objects_at(prefix).iter();
            objects
                .filter(|(name, _)| name.starts_with(below))
                .map(|(name, bytes)| Ok(meta(&format!("{}/{name}", prefix.name()), bytes)))
                .collect()
        });
        stream::iter(found).boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unsupported("listings by folder"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("copies"))
    }
}
