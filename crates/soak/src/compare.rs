//! Checks that all acknowledged data are in the volume.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use forebay_client::{Handle, Link, LinkError, Reply, Request, Steady};
use forebay_crash::random::content;

use crate::ledger::{BLOCK_BYTES, Kept, Promises, numbered};
use crate::polite::TIMEOUT;
use crate::world::World;

/// Bytes of a READ: few, because in the middle of a run the rude clients are still active and delay large READs, whose
/// latency other code measures.
const READ_BYTES: u32 = 32 << 10;

/// Most differences that a comparison collects.
const MOST_DIFFERENCES: usize = 20;

/// The amount of data compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Files that were read as a whole.
    pub files: usize,
    /// Names.
    pub names: usize,
    /// Blocks that clients write repeatedly.
    pub blocks: usize,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files, {} names, {} blocks",
            self.files, self.names, self.blocks
        )
    }
}

/// Compares files that no client changes any more: all that can be compared while clients are active.
///
/// # Errors
/// The differences, and files that cannot be read.
pub fn kept_files(world: &World, promises: &Promises) -> Result<Compared, Vec<String>> {
    let mut look = Look::new(world);
    look.kept(&promises.kept);
    look.result()
}

/// Compares everything. No client may be active.
///
/// # Errors
/// The differences, and files that cannot be read.
pub fn everything(world: &World, promises: &Promises) -> Result<Compared, Vec<String>> {
    let mut look = Look::new(world);
    look.kept(&promises.kept);
    for directory in &promises.exact {
        look.exact(directory, &promises.kept);
    }
    for (directory, numbers) in &promises.names {
        look.names(directory, numbers);
    }
    for (file, blocks) in &promises.blocks {
        look.blocks(file, blocks);
    }
    look.result()
}

struct Look {
    link: Link<Steady>,
    directories: BTreeMap<String, Handle>,
    compared: Compared,
    differences: Vec<String>,
}

impl Look {
    fn new(world: &World) -> Look {
        Look {
            link: Link::new(Steady::new(world.address), world.first_call(), TIMEOUT),
            directories: BTreeMap::from([(String::new(), world.root.clone())]),
            compared: Compared::default(),
            differences: Vec::new(),
        }
    }

    fn result(self) -> Result<Compared, Vec<String>> {
        match self.differences.is_empty() {
            true => Ok(self.compared),
            false => Err(self.differences),
        }
    }

    fn differs(&mut self, what: String) {
        if self.differences.len() < MOST_DIFFERENCES {
            self.differences.push(what);
        }
    }

    /// The object at a path.
    fn find(&mut self, path: &str) -> Result<Handle, LinkError> {
        if let Some(handle) = self.directories.get(path) {
            return Ok(handle.clone());
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.directory(parent)?;
        let request = Request::lookup(&parent, name.as_bytes());
        Ok(self.link.get(&request, Reply::found)?.handle)
    }

    /// Looks up a directory, and remembers its handle.
    fn directory(&mut self, path: &str) -> Result<Handle, LinkError> {
        let handle = self.find(path)?;
        self.directories.insert(path.to_owned(), handle.clone());
        Ok(handle)
    }

    fn bytes(&mut self, path: &str) -> Result<Vec<u8>, LinkError> {
        let file = self.find(path)?;
        let mut bytes = Vec::new();
        loop {
            let request = Request::read(&file, bytes.len() as u64, READ_BYTES);
            let (data, eof) = self.link.get(&request, Reply::data)?;
            bytes.extend_from_slice(&data);
            if eof || data.is_empty() {
                return Ok(bytes);
            }
        }
    }

    fn listing(&mut self, path: &str) -> Result<BTreeSet<String>, LinkError> {
        let directory = self.directory(path)?;
        let (mut names, mut cookie) = (BTreeSet::new(), 0);
        loop {
            let request = Request::readdirplus(&directory, cookie, 64 << 10);
            let listing = self.link.get(&request, Reply::listed)?;
            let stands_still = listing.entries.is_empty();
            for entry in listing.entries {
                cookie = entry.cookie;
                if entry.name != b"." && entry.name != b".." {
                    names.insert(String::from_utf8_lossy(&entry.name).into_owned());
                }
            }
            // A listing that neither advances nor ends counts as ended; the comparison finds the missing names.
            if listing.eof || stands_still {
                return Ok(names);
            }
        }
    }

    fn kept(&mut self, kept: &BTreeMap<String, Kept>) {
        for (path, kept) in kept {
            match self.bytes(path) {
                Ok(bytes) if bytes == content(kept.seed, kept.length) => self.compared.files += 1,
                Ok(bytes) => self.differs(format!(
                    "{path} has {} bytes that are not the {} that were acknowledged",
                    bytes.len(),
                    kept.length
                )),
                Err(error) => self.differs(format!("{path}: {error}")),
            }
        }
    }

    fn exact(&mut self, directory: &str, kept: &BTreeMap<String, Kept>) {
        let below = format!("{directory}/");
        let expected = kept.keys().filter_map(|path| path.strip_prefix(&below));
        let expected: BTreeSet<String> = expected.map(str::to_owned).collect();
        match self.listing(directory) {
            Ok(names) => {
                for name in names.symmetric_difference(&expected) {
                    let what = match expected.contains(name) {
                        true => "is not listed",
                        false => "was removed and is listed",
                    };
                    self.differs(format!("{directory}/{name} {what}"));
                }
                self.compared.names += names.len();
            }
            Err(error) => self.differs(format!("{directory}: {error}")),
        }
    }

    fn names(&mut self, directory: &str, numbers: &BTreeSet<u32>) {
        match self.listing(directory) {
            Ok(names) => {
                for number in numbers {
                    if !names.contains(&numbered(*number)) {
                        self.differs(format!("{directory}/{} is not listed", numbered(*number)));
                    }
                }
                self.compared.names += numbers.len();
            }
            Err(error) => self.differs(format!("{directory}: {error}")),
        }
    }

    fn blocks(&mut self, file: &str, blocks: &BTreeMap<u64, Vec<Option<u64>>>) {
        let bytes = match self.bytes(file) {
            Ok(bytes) => bytes,
            Err(error) => return self.differs(format!("{file}: {error}")),
        };
        for (block, seeds) in blocks {
            let start = *block as usize * BLOCK_BYTES;
            let found = bytes.get(start..start + BLOCK_BYTES);
            // If the file ends before the block, the block counts as zeros.
            let zeros = found.is_none_or(|found| found.iter().all(|byte| *byte == 0));
            let fits = seeds.iter().any(|seed| match seed {
                Some(seed) => found == Some(content(*seed, BLOCK_BYTES).as_slice()),
                None => zeros,
            });
            match fits {
                true => self.compared.blocks += 1,
                false => self.differs(format!(
                    "block {block} of {file} has none of the {} contents that it may have",
                    seeds.len()
                )),
            }
        }
    }
}
