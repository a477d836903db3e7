//! The files of a log folder for reading, whether the folder is locked or not: [`inspect`](crate::inspect) reads logs
//! through them, and [`position`](crate::position) its own file.

use std::io;

use crate::storage::{SegmentReader, Storage};

/// Files of a log folder, for reading.
pub trait LogFiles: Send + Sync {
    /// The names of all files, in any order, foreign ones included.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file.
    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>>;
}

impl<S: Storage + ?Sized> LogFiles for S {
    fn list(&self) -> io::Result<Vec<String>> {
        Storage::list(self)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn SegmentReader>> {
        Storage::read(self, name)
    }
}
