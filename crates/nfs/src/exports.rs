//! Which directories clients may mount, and as whom they act there.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Inode;
use forebay_vfs::{Credentials, Error, FileKind, FileSystem};

use crate::{Export, NOBODY, Squash};

/// The exports of a server.
pub(crate) struct Exports<F> {
    list: Vec<Entry<F>>,
}

struct Entry<F> {
    export: Export,
    /// The file system as this export's clients have it.
    fs: Arc<F>,
    /// Inode of its directory, or 0 while that is not known: so that `..` does not lead out of it.
    root: AtomicU64,
}

/// Which export of [`Exports`]: its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportIndex(usize);

/// A client, by what it is allowed: found out once for each connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its address, an IPv4 one never written as IPv6.
    pub(crate) address: IpAddr,
    /// For each export whether it is for this client.
    allowed: Vec<bool>,
}

impl Client {
    /// Whether any export is for it.
    pub(crate) fn is_known(&self) -> bool {
        self.allowed.contains(&true)
    }

    /// Whether this export is for it.
    pub(crate) fn may_use(&self, export: ExportIndex) -> bool {
        self.allowed.get(export.0).copied().unwrap_or(false)
    }
}

/// The root user has rights that no permission bits limit: what is above an export is
/// walked as root, whoever mounts it.
fn root() -> Credentials {
    Credentials::default()
}

impl<F> Exports<F> {
    /// `view` gives the file system as the clients of an export have it.
    pub(crate) fn new(exports: Vec<Export>, view: impl Fn(&Export) -> Arc<F>) -> Exports<F> {
        let entry = |export| Entry {
            fs: view(&export),
            export,
            root: AtomicU64::new(0),
        };
        Exports {
            list: exports.into_iter().map(entry).collect(),
        }
    }

    /// What the client at this address is allowed.
    pub(crate) fn client(&self, address: IpAddr) -> Client {
        let covers = |entry: &Entry<F>| {
            let mut ranges = entry.export.clients.iter();
            ranges.any(|range| range.contains(address))
        };
        Client {
            address: address.to_canonical(),
            allowed: self.list.iter().map(covers).collect(),
        }
    }

    /// All of them, for the EXPORT procedure.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Export> {
        self.list.iter().map(|entry| &entry.export)
    }

    /// The export with this number.
    pub(crate) fn by_id(&self, id: u32) -> Option<ExportIndex> {
        let position = self.list.iter().position(|entry| entry.export.id == id);
        position.map(ExportIndex)
    }

    /// The number of an export.
    pub(crate) fn id(&self, export: ExportIndex) -> u32 {
        self.list.get(export.0).map_or(0, |entry| entry.export.id)
    }

    /// The file system as the clients of an export have it.
    pub(crate) fn fs(&self, export: ExportIndex) -> Option<&F> {
        self.list.get(export.0).map(|entry| &*entry.fs)
    }

    /// The identity that a caller has within an export.
    pub(crate) fn squash<'a>(
        &self,
        export: ExportIndex,
        who: &'a Credentials,
    ) -> Cow<'a, Credentials> {
        let squash = self.list.get(export.0).map(|entry| entry.export.squash);
        let nobody = |id: u32| if id == 0 { NOBODY } else { id };
        match squash.unwrap_or(Squash::All) {
            Squash::None => Cow::Borrowed(who),
            Squash::Root if who.uid != 0 && who.gid != 0 && !who.groups.contains(&0) => {
                Cow::Borrowed(who)
            }
            Squash::Root => Cow::Owned(Credentials {
                uid: nobody(who.uid),
                gid: nobody(who.gid),
                groups: who.groups.iter().map(|group| nobody(*group)).collect(),
            }),
            Squash::All => Cow::Owned(Credentials {
                uid: NOBODY,
                gid: NOBODY,
                groups: Vec::new(),
            }),
        }
    }

    /// The export that holds `path`, and what remains of the path below it: of those that are for
    /// this client, or else of all, the one with the longest path, and the first of the same path.
    pub(crate) fn holding<'a>(
        &self,
        path: &'a [u8],
        client: &Client,
    ) -> Option<(ExportIndex, Vec<&'a [u8]>)> {
        let wanted: Vec<&[u8]> = names(path).collect();
        let depth = |entry: &Entry<F>| {
            let names: Vec<&[u8]> = names(&entry.export.path).collect();
            wanted.starts_with(&names).then_some(names.len())
        };
        let candidates = self.list.iter().enumerate();
        let (_, depth, Reverse(index)) = candidates
            .filter_map(|(index, entry)| {
                let allowed = client.may_use(ExportIndex(index));
                Some((allowed, depth(entry)?, Reverse(index)))
            })
            .max()?;
        Some((ExportIndex(index), wanted.into_iter().skip(depth).collect()))
    }
}

impl<F: FileSystem> Exports<F> {
    /// Finds the directory of an export, as it is now.
    pub(crate) async fn resolve(&self, export: ExportIndex) -> Result<Inode, Error> {
        let entry = self.list.get(export.0).ok_or(Error::NotFound)?;
        let inode = walk(&*entry.fs, Inode::ROOT, names(&entry.export.path)).await?;
        entry.root.store(inode.0, Ordering::Relaxed);
        Ok(inode)
    }

    /// Whether `directory` is the directory of the export, so that its `..` has to be itself.
    pub(crate) async fn is_root(
        &self,
        export: ExportIndex,
        directory: Inode,
    ) -> Result<bool, Error> {
        let Some(entry) = self.list.get(export.0) else {
            return Ok(true);
        };
        let known = match entry.root.load(Ordering::Relaxed) {
            0 => self.resolve(export).await?,
            known => Inode(known),
        };
        Ok(known == directory)
    }
}

/// The names that make up a path.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

/// Goes from a directory down a path as root, to a directory. Neither `..` nor a symbolic link leads
/// anywhere.
pub(crate) async fn walk<'a, F: FileSystem>(
    fs: &F,
    from: Inode,
    names: impl Iterator<Item = &'a [u8]>,
) -> Result<Inode, Error> {
    let mut at = from;
    for name in names {
        if name == b"." || name == b".." {
            return Err(Error::NotFound);
        }
        let found = fs.lookup(&root(), at, name).await?;
        if found.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        at = found.inode;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(id: u32, path: &str, clients: &str, squash: Squash) -> Export {
        Export {
            id,
            path: path.into(),
            clients: vec![clients.parse().unwrap()],
            squash,
        }
    }

    fn exports() -> Exports<()> {
        let exports = vec![
            export(1, "/", "127.0.0.1", Squash::None),
            export(2, "/home", "10.0.0.0/8", Squash::Root),
            export(3, "/home/all/", "10.0.0.0/8", Squash::All),
        ];
        Exports::new(exports, |_| Arc::default())
    }

    #[test]
    fn a_path_belongs_to_the_deepest_export_that_holds_it() {
        let exports = exports();
        let nobody = exports.client("192.168.0.1".parse().unwrap());
        let holding = |path: &'static str| {
            let (export, rest) = exports.holding(path.as_bytes(), &nobody).unwrap();
            (exports.id(export), rest)
        };
        assert_eq!(holding("/"), (1, vec![]));
        assert_eq!(holding("/homes"), (1, vec![&b"homes"[..]]));
        assert_eq!(holding("//home/"), (2, vec![]));
        assert_eq!(holding("/home/bob"), (2, vec![&b"bob"[..]]));
        assert_eq!(holding("/home/all/x/y"), (3, vec![&b"x"[..], b"y"]));
    }

    #[test]
    fn of_two_exports_of_a_path_a_client_gets_the_first_that_is_for_it() {
        let exports = vec![
            export(1, "/", "127.0.0.0/8", Squash::None),
            export(2, "/", "0.0.0.0/0", Squash::Root),
        ];
        let exports: Exports<()> = Exports::new(exports, |_| Arc::default());
        let gets = |address: &str| {
            let client = exports.client(address.parse().unwrap());
            exports.id(exports.holding(b"/", &client).unwrap().0)
        };
        assert_eq!(gets("127.0.0.1"), 1);
        assert_eq!(gets("10.0.0.1"), 2);
    }

    #[test]
    fn a_client_is_allowed_by_its_address() {
        let exports = exports();
        let client = exports.client("::ffff:10.1.1.1".parse().unwrap());
        let allowed = [1, 2, 3].map(|id| client.may_use(exports.by_id(id).unwrap()));
        assert_eq!(allowed, [false, true, true]);
        assert!(client.is_known());
        assert!(!exports.client("192.0.2.1".parse().unwrap()).is_known());
    }

    #[test]
    fn squashing_replaces_root_or_everyone() {
        let exports = exports();
        let squash = |id, who: &Credentials| {
            let export = exports.by_id(id).unwrap();
            exports.squash(export, who).into_owned()
        };
        let who = |uid, gid, groups: &[u32]| Credentials {
            uid,
            gid,
            groups: groups.to_vec(),
        };
        let (root, bob) = (who(0, 0, &[0, 5]), who(1000, 100, &[27]));
        assert_eq!(squash(1, &root), root);
        assert_eq!(squash(2, &root), who(NOBODY, NOBODY, &[NOBODY, 5]));
        assert_eq!(squash(2, &bob), bob);
        assert_eq!(squash(2, &who(1000, 100, &[0])), who(1000, 100, &[NOBODY]));
        assert_eq!(squash(3, &bob), who(NOBODY, NOBODY, &[]));
    }
}
