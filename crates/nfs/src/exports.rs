//! Which directories clients may mount, and which rule applies to each client.
//!
//! [`Exports`] are immutable. A connection looks up once what its client is allowed ([`Client`]: a short
//! list, searched by the number in a handle) and works with that, without a lock. When the rules are
//! replaced ([`InForce`]), the connection sees another version number before its next call and looks them up
//! again; calls in flight finish under the rules under which they began.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::{Inode, bounded_u32};
use forebay_vfs::{ClientId, Credentials, Error, FileKind, Trees};
use parking_lot::Mutex;

use crate::address::ClientNetwork;
use crate::handle::Tree;
use crate::object::{Object, Shows};
use crate::{Export, Rule, Transport, View};

/// No path names a deeper directory: paths have at most 4096 bytes (PATH_MAX).
const MAX_DEPTH: usize = 4096 / 2;

/// One version of a server's exports.
pub(crate) struct Exports<F> {
    /// Version number; each replacement increments it.
    version: u64,
    list: Vec<Entry<F>>,
}

struct Entry<F> {
    export: Export,
    /// The file system for the clients of each rule, in the order of the rules.
    views: Vec<Arc<F>>,
    /// Inode of its directory, or 0 while it is unknown: needed so that `..` does not lead out of the export.
    root: AtomicU64,
}

/// What a client is allowed: one rule of one export. Valid only with the [`Exports`] that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Number of the export.
    export: u32,
    /// Index of the export in the list.
    place: u32,
    /// Index of the rule in the export.
    rule: u32,
}

impl Grant {
    /// Number of the export, as handles have it.
    pub(crate) fn export(self) -> u32 {
        self.export
    }
}

/// A client and what it is allowed: looked up once for each connection and version of the exports.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its address; an IPv4-mapped IPv6 address is stored as IPv4.
    pub(crate) address: IpAddr,
    /// Its number for the file system.
    pub(crate) id: ClientId,
    /// How its connection is protected.
    pub(crate) transport: Transport,
    /// At most one for each export, sorted by the exports' numbers.
    grants: Box<[Grant]>,
}

impl Client {
    /// Whether any export names the client.
    pub(crate) fn is_known(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Returns what the client is allowed under the export with this number. An export that does not exist
    /// looks the same as one for other clients only.
    pub(crate) fn grant(&self, export: u32) -> Option<Grant> {
        let found = self
            .grants
            .binary_search_by_key(&export, |grant| grant.export);
        self.grants.get(found.ok()?).copied()
    }
}

/// The root user, whom no permission bits restrict: the path above an export is walked as root,
/// regardless of the user that mounts it.
fn root() -> Credentials {
    Credentials::default()
}

impl<F> Exports<F> {
    /// `view` returns the file system for the clients of a rule.
    pub(crate) fn new(exports: Vec<Export>, view: impl Fn(View) -> Arc<F>) -> Exports<F> {
        let entry = |export: Export| Entry {
            views: export.rules.iter().map(|rule| view(rule.view)).collect(),
            export,
            root: AtomicU64::new(0),
        };
        Exports {
            version: 0,
            list: exports.into_iter().map(entry).collect(),
        }
    }

    /// Looks up what the client at `from` is allowed. The protection of its connection does not count
    /// here: Linux clients mount in clear, and switch to TLS only on the connection for NFS.
    pub(crate) fn client(&self, from: SocketAddr, transport: Transport) -> Client {
        let address = from.ip().to_canonical();
        // The configuration has far fewer exports and rules than 32 bits can number.
        let grant = |(place, entry): (usize, &Entry<F>)| {
            let (rule, found) = entry.rule_of(address)?;
            found.source_port.admits(from.port()).then_some(Grant {
                export: entry.export.id,
                place: bounded_u32(place),
                rule: bounded_u32(rule),
            })
        };
        let mut grants: Box<[Grant]> = self.list.iter().enumerate().filter_map(grant).collect();
        grants.sort_unstable_by_key(|grant| grant.export);
        Client {
            address,
            id: ClientNetwork::of(address).id(),
            transport,
            grants,
        }
    }

    /// Returns the exports that a client at this address may mount, for the EXPORT procedure. The port does not
    /// count: the process that reads the list need not be the one that mounts.
    pub(crate) fn listed_for(&self, address: IpAddr) -> impl Iterator<Item = &Export> {
        let covers = move |entry: &&Entry<F>| entry.rule_of(address).is_some();
        self.list.iter().filter(covers).map(|entry| &entry.export)
    }

    /// Returns the rule that applies to a client.
    pub(crate) fn rule(&self, grant: Grant) -> Option<&Rule> {
        let entry = self.list.get(grant.place as usize)?;
        entry.export.rules.get(grant.rule as usize)
    }

    /// Returns the rule that applies to a client, and the file system as the client sees it.
    pub(crate) fn granted(&self, grant: Grant) -> Option<(&Rule, &F)> {
        let entry = self.list.get(grant.place as usize)?;
        let rule = entry.export.rules.get(grant.rule as usize)?;
        let fs = entry.views.get(grant.rule as usize)?;
        Some((rule, &**fs))
    }

    /// Of the exports that this client may use, returns the deepest one that contains `path`, and the rest of the
    /// path below it.
    pub(crate) fn holding<'a>(
        &self,
        path: &'a [u8],
        client: &Client,
    ) -> Option<(Grant, Vec<&'a [u8]>)> {
        let wanted: Vec<&[u8]> = names(path).collect();
        let depth = |grant: Grant| {
            let entry = self.list.get(grant.place as usize)?;
            let names: Vec<&[u8]> = names(&entry.export.path).collect();
            wanted.starts_with(&names).then_some(names.len())
        };
        let candidates = client.grants.iter();
        let (depth, grant) = candidates
            .filter_map(|grant| Some((depth(*grant)?, *grant)))
            .max_by_key(|(depth, grant)| (*depth, Reverse(grant.place)))?;
        Some((grant, wanted.into_iter().skip(depth).collect()))
    }
}

impl<F> Entry<F> {
    /// Returns the rule that applies to a client at this address: the one with the longest prefix, and of
    /// equally long ones the first.
    fn rule_of(&self, address: IpAddr) -> Option<(usize, &Rule)> {
        let longest = |rule: &Rule| {
            let ranges = rule.clients.iter();
            let covering = ranges.filter(|range| range.contains(address));
            covering.map(|range| range.prefix()).max()
        };
        let rules = self.export.rules.iter().enumerate();
        let (_, Reverse(index), rule) = rules
            .filter_map(|(index, rule)| Some((longest(rule)?, Reverse(index), rule)))
            .max_by_key(|(prefix, index, _)| (*prefix, *index))?;
        Some((index, rule))
    }
}

impl<F: Trees> Exports<F> {
    /// Resolves the path of an export to its current directory.
    pub(crate) async fn resolve(&self, grant: Grant) -> Result<Inode, Error> {
        let entry = self.list.get(grant.place as usize);
        let (entry, (_, fs)) = entry.zip(self.granted(grant)).ok_or(Error::NotFound)?;
        // An export is a directory of the live file system.
        let root = Object::live(fs, Inode::ROOT, Shows::default());
        let inode = walk(root, names(&entry.export.path)).await?.inode;
        entry.root.store(inode.0, Ordering::Relaxed);
        Ok(inode)
    }

    /// The directory of an export.
    async fn top(&self, grant: Grant, entry: &Entry<F>) -> Result<Inode, Error> {
        if names(&entry.export.path).next().is_none() {
            return Ok(Inode::ROOT);
        }
        match entry.root.load(Ordering::Relaxed) {
            0 => self.resolve(grant).await,
            known => Ok(Inode(known)),
        }
    }

    /// Whether this is the export's own directory.
    pub(crate) async fn is_top(
        &self,
        grant: Grant,
        directory: Object<'_, F>,
    ) -> Result<bool, Error> {
        match self.list.get(grant.place as usize) {
            Some(entry) if directory.tree == Tree::Live => {
                Ok(directory.inode == self.top(grant, entry).await?)
            }
            _ => Ok(false),
        }
    }

    /// Whether `..` of a directory must be hidden from clients of the export: at the export's own directory,
    /// and where a directory was moved out of the export while a client had its handle.
    pub(crate) async fn leads_out(
        &self,
        grant: Grant,
        directory: Object<'_, F>,
    ) -> Result<bool, Error> {
        // Its parent is where it was reached from.
        if matches!(directory.tree, Tree::List | Tree::Trash(_)) {
            return Ok(false);
        }
        let entry = self.list.get(grant.place as usize);
        let Some(entry) = entry else {
            return Ok(true);
        };
        let top = self.top(grant, entry).await?;
        let mut at = directory;
        for _ in 0..MAX_DEPTH {
            if at.inode == top {
                return Ok(directory.inode == top);
            }
            if at.inode == Inode::ROOT {
                return Ok(true);
            }
            at = at.lookup(&root(), b"..").await?.0;
        }
        Ok(true)
    }
}

/// The exports in force.
pub(crate) struct InForce<F> {
    /// Version of `exports`, readable without the lock.
    version: AtomicU64,
    exports: Mutex<Arc<Exports<F>>>,
}

impl<F> InForce<F> {
    pub(crate) fn new(exports: Exports<F>) -> InForce<F> {
        InForce {
            version: AtomicU64::new(exports.version),
            exports: Mutex::new(Arc::new(exports)),
        }
    }

    /// Replaces the exports: the new ones apply to every call that begins after this.
    pub(crate) fn replace(&self, mut exports: Exports<F>) {
        let mut current = self.exports.lock();
        exports.version = current.version.wrapping_add(1);
        self.version.store(exports.version, Ordering::Release);
        *current = Arc::new(exports);
    }

    /// Returns the exports in force.
    pub(crate) fn current(&self) -> Arc<Exports<F>> {
        self.exports.lock().clone()
    }

    /// Whether `exports` were replaced. This check is all that the rules cost a call while they stay the same.
    pub(crate) fn has_replaced(&self, exports: &Exports<F>) -> bool {
        self.version.load(Ordering::Acquire) != exports.version
    }
}

/// Splits a path into its names.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

/// Walks from a directory down a path as root, to a directory. Fails on `.` and `..`, and on symbolic
/// links.
pub(crate) async fn walk<'a, 'f, F: Trees>(
    from: Object<'f, F>,
    names: impl Iterator<Item = &'a [u8]>,
) -> Result<Object<'f, F>, Error> {
    let mut at = from;
    for name in names {
        if name == b"." || name == b".." {
            return Err(Error::NotFound);
        }
        let (object, found) = at.lookup(&root(), name).await?;
        if found.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        at = object;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExportAccess, SourcePort};

    fn rule(clients: &[&str]) -> Rule {
        Rule {
            clients: clients.iter().map(|text| text.parse().unwrap()).collect(),
            ..Rule::default()
        }
    }

    fn export(id: u32, path: &str, rules: Vec<Rule>) -> Export {
        let path = path.into();
        Export { id, path, rules }
    }

    fn exports(list: Vec<Export>) -> Exports<()> {
        Exports::new(list, |_| Arc::default())
    }

    /// Of a client with a privileged port.
    fn client(exports: &Exports<()>, address: &str) -> Client {
        exports.client(
            SocketAddr::new(address.parse().unwrap(), 700),
            Transport::Plain,
        )
    }

    #[test]
    fn a_path_belongs_to_the_deepest_export_that_is_for_the_client_and_holds_it() {
        let exports = exports(vec![
            export(9, "/", vec![rule(&["10.0.0.0/8"])]),
            export(2, "/home", vec![rule(&["10.0.0.0/8"])]),
            export(3, "/home/all/", vec![rule(&["10.0.0.0/8"])]),
            export(4, "/home/all/secret", vec![rule(&["192.168.0.0/16"])]),
        ]);
        let ours = client(&exports, "10.1.1.1");
        let holding = |path: &'static str| {
            let (grant, rest) = exports.holding(path.as_bytes(), &ours).unwrap();
            (grant.export(), rest)
        };
        assert_eq!(holding("/"), (9, vec![]));
        assert_eq!(holding("/homes"), (9, vec![&b"homes"[..]]));
        assert_eq!(holding("//home/"), (2, vec![]));
        assert_eq!(holding("/home/bob"), (2, vec![&b"bob"[..]]));
        assert_eq!(holding("/home/all/x/y"), (3, vec![&b"x"[..], b"y"]));
        assert_eq!(holding("/home/all/secret"), (3, vec![&b"secret"[..]]));
        let theirs = client(&exports, "192.168.0.1");
        assert!(exports.holding(b"/home", &theirs).is_none());
    }

    #[test]
    fn the_rule_with_the_longest_prefix_counts_and_of_equal_ones_the_first() {
        let exports = exports(vec![export(
            1,
            "/",
            vec![
                rule(&["0.0.0.0/0"]),
                rule(&["10.0.0.0/8", "192.168.1.5"]),
                rule(&["10.1.0.0/16"]),
                rule(&["10.1.0.0/16", "::/0"]),
            ],
        )]);
        let counts = |address: &str| client(&exports, address).grant(1).map(|grant| grant.rule);
        assert_eq!(counts("203.0.113.9"), Some(0));
        assert_eq!(counts("10.200.0.1"), Some(1));
        assert_eq!(counts("192.168.1.5"), Some(1));
        assert_eq!(counts("192.168.1.6"), Some(0));
        assert_eq!(counts("10.1.2.3"), Some(2));
        assert_eq!(counts("::ffff:10.1.2.3"), Some(2));
        assert_eq!(counts("2001:db8::1"), Some(3));
    }

    #[test]
    fn the_most_specific_rule_counts_also_where_it_allows_less() {
        let mut narrow = rule(&["10.0.0.7"]);
        narrow.source_port = SourcePort::Privileged;
        let mut wide = rule(&["10.0.0.0/8"]);
        wide.source_port = SourcePort::Any;
        wide.access = ExportAccess::ReadOnly;
        let exports = exports(vec![export(1, "/", vec![wide, narrow])]);
        let granted = |address: &str, port| {
            let from = SocketAddr::new(address.parse().unwrap(), port);
            exports
                .client(from, Transport::Plain)
                .grant(1)
                .map(|grant| grant.rule)
        };
        assert_eq!(granted("10.0.0.7", 700), Some(1));
        assert_eq!(granted("10.0.0.7", 40_000), None);
        assert_eq!(granted("10.0.0.8", 40_000), Some(0));
    }

    #[test]
    fn a_client_is_known_by_its_address_and_port() {
        let exports = exports(vec![
            export(7, "/a", vec![rule(&["127.0.0.1"])]),
            export(2, "/b", vec![rule(&["10.0.0.0/8"])]),
            export(5, "/c", vec![rule(&["10.0.0.0/8"])]),
        ]);
        let allowed = client(&exports, "::ffff:10.1.1.1");
        assert_eq!(
            [7, 2, 5, 6].map(|id| allowed.grant(id).is_some()),
            [false, true, true, false]
        );
        assert!(allowed.is_known());
        assert!(!client(&exports, "192.0.2.1").is_known());
        let unprivileged = exports.client("10.1.1.1:1024".parse().unwrap(), Transport::Plain);
        assert!(!unprivileged.is_known());
        let paths = |address: &str| {
            let listed = exports.listed_for(address.parse().unwrap());
            listed.map(|export| export.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(paths("10.1.1.1"), [b"/b", b"/c"]);
        assert!(paths("192.0.2.1").is_empty());
    }

    #[test]
    fn replaced_exports_are_noticed_by_their_version() {
        let in_force = InForce::new(exports(Vec::new()));
        let first = in_force.current();
        assert!(!in_force.has_replaced(&first));
        in_force.replace(exports(vec![export(1, "/", vec![rule(&["10.0.0.1"])])]));
        assert!(in_force.has_replaced(&first));
        let second = in_force.current();
        assert!(!in_force.has_replaced(&second));
        assert!(client(&second, "10.0.0.1").is_known());
    }
}
