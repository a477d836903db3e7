//! Listing objects.

use std::sync::Arc;

use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::Object;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ListResult, ObjectMeta, Result};

use super::get::{from_sdk_time, length};
use super::{Shared, error};

/// The parameters that all pages of a listing share.
struct Listing {
    shared: Arc<Shared>,
    prefix: Path,
    start_after: Option<String>,
}

/// The page to request next.
enum Next {
    First,
    After(String),
    None,
}

/// All objects below `prefix`, without those at and before `offset`, page by page.
pub(super) fn stream(
    shared: Arc<Shared>,
    prefix: Option<&Path>,
    offset: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let listing = Listing {
        shared,
        prefix: prefix.cloned().unwrap_or_default(),
        start_after: offset.map(ToString::to_string),
    };
    stream::try_unfold((listing, Next::First), |(listing, next)| async move {
        let token = match next {
            Next::First => None,
            Next::After(token) => Some(token),
            Next::None => return Ok::<_, Error>(None),
        };
        let shared = &listing.shared;
        let start_after = listing.start_after.clone();
        let page = shared
            .page(&listing.prefix, None, start_after, token)
            .await?;
        let objects: Vec<_> = page.contents().iter().filter_map(meta).collect();
        let next = next_page(page);
        Ok(Some((stream::iter(objects), (listing, next))))
    })
    .try_flatten()
    .boxed()
}

impl Shared {
    pub(super) async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        let mut common_prefixes = Vec::new();
        let mut objects = Vec::new();
        let mut token = None;
        loop {
            let page = self.page(&prefix, Some("/"), None, token).await?;
            common_prefixes.extend(
                page.common_prefixes()
                    .iter()
                    .filter_map(|common| Path::parse(common.prefix()?).ok()),
            );
            for object in page.contents().iter().filter_map(meta) {
                objects.push(object?);
            }
            token = match next_page(page) {
                Next::After(next) => Some(next),
                Next::First | Next::None => break,
            };
        }
        Ok(ListResult {
            common_prefixes,
            objects,
            extensions: Default::default(),
        })
    }

    async fn page(
        &self,
        prefix: &Path,
        delimiter: Option<&str>,
        start_after: Option<String>,
        token: Option<String>,
    ) -> Result<ListObjectsV2Output> {
        let request = self
            .client
            .list_objects_v2()
            .bucket(&self.bucket)
            .set_prefix(below(prefix))
            .set_delimiter(delimiter.map(str::to_owned))
            .set_start_after(start_after)
            .set_continuation_token(token);
        self.ask(|| async {
            let answer = request.clone().send().await;
            answer.map_err(|error| error::from_list(prefix, error))
        })
        .await
    }
}

/// The prefix of keys to list, which ends in a slash: `a` contains `a/b`, and not `ab`.
pub(super) fn below(prefix: &Path) -> Option<String> {
    (!prefix.as_ref().is_empty()).then(|| format!("{prefix}/"))
}

fn next_page(page: ListObjectsV2Output) -> Next {
    match page.next_continuation_token {
        Some(token) if page.is_truncated == Some(true) => Next::After(token),
        _ => Next::None,
    }
}

/// An object of a listing; `None` for keys that the trait cannot represent, such as the `folder/`
/// that consoles create: no volume has objects with that kind of key.
fn meta(object: &Object) -> Option<Result<ObjectMeta>> {
    let key = object.key()?;
    if key.ends_with('/') {
        return None;
    }
    let location = Path::parse(key).ok()?;
    Some(length(object.size()).map(|size| ObjectMeta {
        location,
        last_modified: from_sdk_time(object.last_modified().copied()),
        size,
        e_tag: object.e_tag().map(str::to_owned),
        version: None,
    }))
}
