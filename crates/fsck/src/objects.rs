//! Checks the objects of the metadata as a whole, including the parts of them that the walk does not read.

use std::sync::Arc;

use forebay_meta::StoreError;
use forebay_meta::slate::{Condition, SlateObjects};
use object_store::path::Path;

use crate::finding::Finding;
use crate::progress::{Progress, Stage};
use crate::source::patiently;

/// Attempts for the list while a gateway merges tables and deletes them.
const ATTEMPTS: u32 = 3;

/// Reads each object as a whole, and returns the errors.
pub(crate) async fn look(
    objects: &SlateObjects,
    root: &Path,
    progress: &Arc<Progress>,
) -> Result<Vec<Finding>, StoreError> {
    let mut attempt = 1;
    loop {
        let listed = patiently(|| objects.list()).await?;
        progress.begin(Stage::Metadata, listed.len() as u64);
        let (mut findings, mut missing) = (Vec::new(), false);
        for object in &listed {
            progress.add(1);
            let why = match patiently(|| objects.look_at(object)).await? {
                Condition::Whole => continue,
                // A note on a past state: gateways delete those.
                Condition::Missing if !object.is_table() => continue,
                Condition::Missing => {
                    missing = true;
                    "it is not in the bucket".to_owned()
                }
                Condition::Damaged(why) => why,
            };
            let parts = object.location.prefix_match(root);
            let name: Option<Path> = parts.map(Iterator::collect);
            let object = name.as_ref().unwrap_or(&object.location).to_string();
            findings.push(Finding::DamagedMetadata { object, why });
        }
        // Perhaps merged and deleted meanwhile: then the next list does not name them.
        if !missing || attempt == ATTEMPTS {
            return Ok(findings);
        }
        attempt += 1;
    }
}
