//! Reads the server's state over a connection of its own: names, attributes and contents.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use forebay_client::{
    Attributes, FileKind, Handle, Link, LinkError, Request, Stable, Steady, Verifier,
};

/// Longer than any call takes on a working server.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a READ.
const READ_BYTES: u32 = 256 << 10;

/// Bytes of reply to a READDIRPLUS: few, so that listings continue from cookies.
const LISTING_BYTES: u32 = 4096;

/// A name that was found, and its object.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Handle of the object.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// Cookie of the name.
    pub cookie: u64,
    /// Its target, if it is a symbolic link.
    pub target: Option<String>,
}

/// The state after a crash.
pub trait View {
    /// Everything below a directory, by path.
    ///
    /// # Errors
    /// When something cannot be read.
    fn tree(&mut self, directory: &Handle, path: &str)
    -> Result<BTreeMap<String, Seen>, LinkError>;

    /// The bytes of a file of this size.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn read(&mut self, file: &Handle, size: u64) -> Result<Vec<u8>, LinkError>;
}

/// A client that reads the state.
pub struct Observer {
    link: Link<Steady>,
}

impl Observer {
    /// Connects. `number` keeps the call numbers of this observer apart from those of others.
    pub fn new(address: SocketAddr, number: u32) -> Observer {
        // Writers have numbers without the highest bit.
        let first = 0x8000_0000 | number << 16;
        Observer {
            link: Link::new(Steady::new(address), first, TIMEOUT),
        }
    }

    /// The root of the export `/`.
    pub fn mount(&mut self) -> Result<Handle, LinkError> {
        self.link
            .get(&Request::mount(b"/"), |reply| reply.mounted())
    }

    /// Makes a directory, which must be new, and returns its handle and inode number.
    pub fn make_directory(
        &mut self,
        parent: &Handle,
        name: &str,
    ) -> Result<(Handle, u64), LinkError> {
        let request = Request::mkdir(parent, name.as_bytes(), 0o755);
        let handle = self.link.get(&request, |reply| reply.made())?.handle;
        let attributes = self.attributes(&handle)?;
        Ok((handle, attributes.fileid))
    }

    /// Makes an empty file.
    pub fn make_file(&mut self, parent: &Handle, name: &str) -> Result<Handle, LinkError> {
        let how = forebay_client::Create::Guarded;
        let request = Request::create(parent, name.as_bytes(), how, 0o644);
        Ok(self.link.get(&request, |reply| reply.made())?.handle)
    }

    /// The object of a name.
    pub fn find(&mut self, directory: &Handle, name: &str) -> Result<Handle, LinkError> {
        let request = Request::lookup(directory, name.as_bytes());
        Ok(self.link.get(&request, |reply| reply.found())?.handle)
    }

    /// Removes a name of something else than a directory.
    pub fn remove(&mut self, directory: &Handle, name: &str) -> Result<(), LinkError> {
        let request = Request::remove(directory, name.as_bytes());
        self.link.get(&request, |reply| reply.done())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, directory: &Handle, name: &str) -> Result<(), LinkError> {
        let request = Request::rmdir(directory, name.as_bytes());
        self.link.get(&request, |reply| reply.done())
    }

    /// GETATTR.
    pub fn attributes(&mut self, object: &Handle) -> Result<Attributes, LinkError> {
        self.link
            .get(&Request::getattr(object), |reply| reply.attributes())
    }

    /// The server's write verifier: that of a COMMIT of this file.
    pub fn verifier(&mut self, file: &Handle) -> Result<Verifier, LinkError> {
        self.link
            .get(&Request::commit(file), |reply| reply.committed())
    }

    /// Writes a file and makes it stable.
    pub fn put(&mut self, file: &Handle, data: &[u8]) -> Result<(), LinkError> {
        let request = Request::write(file, 0, data, Stable::FileSync);
        self.link.get(&request, |reply| reply.written()).map(drop)
    }

    /// The names of a directory after a cookie, in their order.
    pub fn list(
        &mut self,
        directory: &Handle,
        mut cookie: u64,
    ) -> Result<Vec<(String, Option<Seen>, u64)>, LinkError> {
        let mut names = Vec::new();
        loop {
            let request = Request::readdirplus(directory, cookie, LISTING_BYTES);
            let listing = self.link.get(&request, |reply| reply.listed())?;
            let stands_still = listing.entries.is_empty();
            for entry in listing.entries {
                cookie = entry.cookie;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let seen = match entry.object {
                    Some((handle, attributes)) => {
                        Some(self.seen(handle, attributes, entry.cookie)?)
                    }
                    None => None,
                };
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                names.push((name, seen, cookie));
            }
            // A listing that neither advances nor ends is taken as ended; the comparison finds the missing names.
            if listing.eof || stands_still {
                return Ok(names);
            }
        }
    }

    fn seen(
        &mut self,
        handle: Handle,
        attributes: Attributes,
        cookie: u64,
    ) -> Result<Seen, LinkError> {
        let target = match attributes.kind {
            FileKind::Symlink => {
                let target = self
                    .link
                    .get(&Request::readlink(&handle), |reply| reply.target())?;
                Some(String::from_utf8_lossy(&target).into_owned())
            }
            _ => None,
        };
        Ok(Seen {
            handle,
            attributes,
            cookie,
            target,
        })
    }

    fn lookup(&mut self, directory: &Handle, name: &str, cookie: u64) -> Result<Seen, LinkError> {
        let handle = self.find(directory, name)?;
        let attributes = self.attributes(&handle)?;
        self.seen(handle, attributes, cookie)
    }
}

impl View for Observer {
    fn tree(
        &mut self,
        directory: &Handle,
        path: &str,
    ) -> Result<BTreeMap<String, Seen>, LinkError> {
        let mut found = BTreeMap::new();
        let mut below = vec![(directory.clone(), path.to_owned())];
        while let Some((directory, path)) = below.pop() {
            for (name, seen, cookie) in self.list(&directory, 0)? {
                let path = format!("{path}/{name}");
                let seen = match seen {
                    Some(seen) => seen,
                    None => self.lookup(&directory, &name, cookie)?,
                };
                if seen.attributes.kind == FileKind::Directory {
                    below.push((seen.handle.clone(), path.clone()));
                }
                found.insert(path, seen);
            }
        }
        Ok(found)
    }

    fn read(&mut self, file: &Handle, size: u64) -> Result<Vec<u8>, LinkError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let request = Request::read(file, bytes.len() as u64, READ_BYTES);
            let (data, eof) = self.link.get(&request, |reply| reply.data())?;
            bytes.extend_from_slice(&data);
            if eof || data.is_empty() {
                break;
            }
        }
        Ok(bytes)
    }
}
