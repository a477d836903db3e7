//! Unpacks a tree over NFS, in the order of calls of the Linux client and `tar`.
//!
//! ```text
//!  directory   MKDIR
//!  file        CREATE --> WRITE, FILE_SYNC --> SETATTR (times)
//!                 |                              ^
//!                 +-> WRITE, UNSTABLE ... --> COMMIT      if it does not fit into one WRITE
//! ```
//!
//! Several files are in progress at the same time; within one file each call waits for the answer to the one before.
//! The content of a directory waits for the directory.

use std::collections::VecDeque;
use std::io;

use super::tree::{Kind, Tree};
use super::{FILES_AT_ONCE, wrong};
use crate::nfs_client::{Call, Handle, Results, Work};

/// The next call of an entry.
#[derive(Clone, Copy)]
enum Step {
    Make,
    /// WRITE of the bytes from this offset on.
    Write(usize),
    Commit,
    SetTimes,
}

/// A file that has been begun.
struct Begun {
    handle: Handle,
    /// Verifier in the replies to its unstable writes.
    verifier: Option<[u8; 8]>,
}

pub(super) struct Unpack<'a> {
    tree: &'a Tree,
    /// Bytes of one WRITE.
    piece: usize,
    /// Handles of the directories made so far.
    directories: Vec<Option<Handle>>,
    files: Vec<Option<Begun>>,
    /// The first entry that has not been begun.
    next: usize,
    /// The next call of each entry that was begun.
    steps: Vec<Step>,
    under_way: usize,
    ready: VecDeque<usize>,
}

impl<'a> Unpack<'a> {
    pub(super) fn new(tree: &'a Tree, into: Handle, piece: usize) -> Unpack<'a> {
        let mut directories = vec![None; tree.directories];
        directories[0] = Some(into);
        Unpack {
            tree,
            piece,
            directories,
            files: tree.entries.iter().map(|_| None).collect(),
            next: 0,
            steps: vec![Step::Make; tree.entries.len()],
            under_way: 0,
            ready: VecDeque::new(),
        }
    }

    /// The directories, by number, once everything has been unpacked.
    pub(super) fn into_directories(self) -> Vec<Option<Handle>> {
        self.directories
    }

    /// The bytes of one WRITE of an entry, from this offset on.
    fn piece_of(&self, entry: usize, from: usize) -> &'a [u8] {
        let tree = self.tree;
        match &tree.entries[entry].kind {
            Kind::Directory(_) => &[],
            Kind::File { text, .. } => {
                let bytes = tree.bytes(text);
                &bytes[from..bytes.len().min(from + self.piece)]
            }
        }
    }

    fn call(&self, entry: usize) -> Option<Call<'a>> {
        let Step::Make = self.steps[entry] else {
            return self.call_on_file(entry, self.files[entry].as_ref()?);
        };
        let made = &self.tree.entries[entry];
        let parent = self.directories[made.parent].as_ref()?;
        Some(match &made.kind {
            Kind::Directory(_) => Call::make_directory(parent, &made.name, 0o755),
            Kind::File { mode, .. } => Call::create_new(parent, &made.name, *mode),
        })
    }

    fn call_on_file(&self, entry: usize, file: &Begun) -> Option<Call<'a>> {
        let Kind::File { text, modified, .. } = &self.tree.entries[entry].kind else {
            return None;
        };
        Some(match self.steps[entry] {
            Step::Make => return None,
            Step::Write(from) => {
                let piece = self.piece_of(entry, from);
                match piece.len() == text.len() {
                    true => Call::write_stable(&file.handle, 0, piece),
                    false => Call::write(&file.handle, from as u64, piece),
                }
            }
            Step::Commit => Call::commit(&file.handle),
            Step::SetTimes => Call::set_times(&file.handle, *modified),
        })
    }

    /// The next call of an entry after this answer; `None` if the entry is finished.
    fn after(&mut self, entry: usize, results: Results<'_>) -> io::Result<Option<Step>> {
        let step = self.steps[entry];
        let kind = &self.tree.entries[entry].kind;
        let (Kind::File { text, .. }, Step::Write(_) | Step::Commit | Step::SetTimes) =
            (kind, step)
        else {
            return self.made(entry, results.made()?);
        };
        let file = self.files[entry].as_mut();
        let file = file.ok_or_else(|| wrong("an answer about a file not begun".to_owned()))?;
        match step {
            Step::Make | Step::SetTimes => Ok(None),
            Step::Commit => {
                if file.verifier != Some(results.committed()?) {
                    return Err(wrong("the server has lost what was written".to_owned()));
                }
                Ok(Some(Step::SetTimes))
            }
            Step::Write(from) => {
                let written = results.written()?;
                let wanted = (text.len() - from).min(self.piece);
                if written.count as usize != wanted {
                    let count = written.count;
                    return Err(wrong(format!("{count} bytes of {wanted} are written")));
                }
                if !written.stable {
                    if wanted == text.len() {
                        return Err(wrong("FILE_SYNC was asked for and not given".to_owned()));
                    }
                    let verifier = *file.verifier.get_or_insert(written.verifier);
                    if verifier != written.verifier {
                        return Err(wrong("the server has lost what was written".to_owned()));
                    }
                }
                Ok(Some(match from + wanted {
                    next if next < text.len() => Step::Write(next),
                    _ if file.verifier.is_some() => Step::Commit,
                    _ => Step::SetTimes,
                }))
            }
        }
    }

    fn made(&mut self, entry: usize, handle: Handle) -> io::Result<Option<Step>> {
        Ok(match &self.tree.entries[entry].kind {
            Kind::Directory(number) => {
                self.directories[*number] = Some(handle);
                None
            }
            Kind::File { text, .. } => {
                self.files[entry] = Some(Begun {
                    handle,
                    verifier: None,
                });
                match text.is_empty() {
                    true => Some(Step::SetTimes),
                    false => Some(Step::Write(0)),
                }
            }
        })
    }
}

impl<'a> Work<'a> for Unpack<'a> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        if let Some(entry) = self.ready.pop_front() {
            return Some((entry as u64, self.call(entry)?));
        }
        if self.under_way == FILES_AT_ONCE || self.next == self.tree.entries.len() {
            return None;
        }
        let entry = self.next;
        // Until its directory exists there is no call.
        let call = self.call(entry)?;
        self.next += 1;
        self.under_way += 1;
        Some((entry as u64, call))
    }

    fn answered(&mut self, number: u64, results: Results<'_>) -> io::Result<()> {
        let entry = number as usize;
        match self.after(entry, results)? {
            Some(step) => {
                self.steps[entry] = step;
                self.ready.push_back(entry);
            }
            None => self.under_way -= 1,
        }
        Ok(())
    }
}
