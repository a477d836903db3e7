//! Ranges that begin behind the end of an object, for stores that report them like a failure.

use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt, Result};

use crate::error::out_of_range;

/// Gets from a store whose error for such a range looks like all its other errors, though it means no problem of the
/// store.
pub(crate) async fn get(
    store: &impl ObjectStore,
    location: &Path,
    options: GetOptions,
) -> Result<GetResult> {
    let start = match &options.range {
        Some(GetRange::Bounded(range)) => Some(range.start),
        Some(GetRange::Offset(start)) => Some(*start),
        Some(GetRange::Suffix(_)) | None => None,
    };
    let got = store.get_opts(location, options).await;
    if let (Err(Error::Generic { .. }), Some(start)) = (&got, start)
        && let Ok(found) = store.head(location).await
        && found.size <= start
    {
        return Err(out_of_range(location, found.size, start));
    }
    got
}
