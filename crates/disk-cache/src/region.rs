//! The file of one region: reads and writes at offsets.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{pread, pwritev};

use crate::layout::{ENTRY_HEADER, Entry, Life, encode_entry, encode_index};
use crate::recovery::{self, Found};

/// Maximum number of slices that the system takes in one call.
const MAX_SLICES: usize = 1024;

#[derive(Debug)]
pub(crate) struct RegionFile {
    file: File,
    bytes: u64,
}

impl RegionFile {
    /// Opens the file, or creates it, and reserves all of its space on the disk.
    pub(crate) fn open(path: &Path, bytes: u64) -> io::Result<RegionFile> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        if file.metadata()?.len() > bytes {
            file.set_len(bytes)?;
        }
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        Ok(RegionFile { file, bytes })
    }

    /// Reads `len` bytes at `at`. Fewer are an error, too.
    pub(crate) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let next = at + bytes.len() as u64;
            match pread(&self.file, spare_capacity(&mut bytes), next) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn write(&self, at: u64, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let (mut at, mut pieces) = (at, pieces);
        while !pieces.is_empty() {
            let some = &pieces[..pieces.len().min(MAX_SLICES)];
            match pwritev(&self.file, some, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut pieces, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Begins a life: no entry of the file's earlier content is valid any more.
    pub(crate) fn begin(&self, life: Life) -> io::Result<()> {
        self.write(0, &mut [IoSlice::new(&life.encode())])
    }

    /// Writes consecutive entries.
    pub(crate) fn append(&self, entries: &[(Entry, Bytes)], salt: u64) -> io::Result<()> {
        let Some((first, _)) = entries.first() else {
            return Ok(());
        };
        let headers = entries.iter().map(|(entry, _)| encode_entry(entry, salt));
        let headers: Vec<_> = headers.collect();
        let pieces = headers.iter().zip(entries);
        let pieces = pieces.flat_map(|(header, (_, frame))| {
            let frame = (!frame.is_empty()).then(|| IoSlice::new(frame));
            std::iter::once(IoSlice::new(header)).chain(frame)
        });
        let mut pieces: Vec<IoSlice<'_>> = pieces.collect();
        self.write(u64::from(first.at) - ENTRY_HEADER as u64, &mut pieces)
    }

    /// Writes the index of all entries, so that the next start need not search for them.
    pub(crate) fn finish(&self, entries: &[Entry], salt: u64) -> io::Result<()> {
        let index = encode_index(entries, salt);
        self.write(self.bytes - index.len() as u64, &mut [IoSlice::new(&index)])
    }

    /// Finds the entries that earlier runs have left.
    pub(crate) fn find(&self) -> io::Result<Option<Found>> {
        recovery::find(self.bytes, |at, len| self.read(at, len))
    }
}
