//! Why an attempt to read the volume ended early.
//!
//! Each file that reads the volume may end an attempt. [`check`](crate::check()), [`garbage`](crate::garbage()) and
//! [`repair`](crate::repair()) begin another attempt, or return an error of their own.

use forebay_meta::StoreError;

/// What ends an attempt.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The metadata cannot be read.
    Metadata(StoreError),
    /// The bucket did not answer well.
    Bucket(String),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Ended::Metadata(error)
    }
}
