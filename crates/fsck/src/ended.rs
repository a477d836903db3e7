//! The end of an attempt, before it is told to a person.
//!
//! Each file that reads the volume may end an attempt. [`check`](crate::check()), [`garbage`](crate::garbage()) and
//! [`repair`](crate::repair()) begin another one, or turn the end into an error of their own.

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
