//! The comparison of two moments.

use std::io;
use std::sync::Arc;

use forebay_meta::StoreError;
use forebay_meta::error::Corrupt;

use crate::change::Change;
use crate::names::{compare_names, show_rest};
use crate::objects::Objects;
use crate::output::Output;
use crate::pair::Pair;

/// Why a comparison ended early.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The metadata of one of the moments cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller cannot take a change.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl From<Corrupt> for CompareError {
    fn from(error: Corrupt) -> CompareError {
        CompareError::Store(error.into())
    }
}

/// Calls `each` for every change between two moments, in no order that a caller can rely on. The first call comes when the records of
/// all objects are compared.
///
/// # Errors
/// Those of the metadata, and those of `each`.
pub async fn compare(
    pair: &Pair,
    each: impl FnMut(Change) -> io::Result<()>,
) -> Result<(), CompareError> {
    let objects = Arc::new(Objects::find(pair).await?);
    let mut output = Output::new(pair, each);
    compare_names(pair, &objects, &mut output).await?;
    show_rest(pair, &objects, &mut output).await?;
    output.flush().await
}
