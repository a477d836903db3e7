//! What a client may do under an export, and as which user.
//!
//! A [`Rule`] is a client entry of exports(5): some addresses with their options. [`crate::exports`] chooses a
//! client's rule once for each connection; the decisions here are cheap enough to be made for
//! every call.

use std::borrow::Cow;
use std::time::Duration;

use forebay_vfs::{ClientId, Credentials, Groups};

use crate::rpc::{AUTH_NONE, AUTH_SYS, Credential};
use crate::{AddressRange, NOBODY, Transports};

/// First port that unprivileged users of a Unix machine may use.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Some clients of an export, and what they may do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Addresses of the clients; an empty list matches no client.
    pub clients: Vec<AddressRange>,
    /// Whether they may change anything.
    pub access: ExportAccess,
    /// Which callers get another identity.
    pub squash: Squash,
    /// The identity that they get.
    pub anonymous: Anonymous,
    /// Which credentials they may use.
    pub flavors: Flavors,
    /// From which ports they may connect.
    pub source_port: SourcePort,
    /// How their connections have to be protected.
    pub transports: Transports,
    /// The view in which they see the file system.
    pub view: View,
    /// How they see snapshots.
    pub snapshots: VirtualDirectory,
    /// How long files that they remove or replace stay in the trash; zero deletes them at once.
    pub trash: Duration,
    /// How they see the trash, if they have one.
    pub trash_directory: VirtualDirectory,
}

/// No clients yet; otherwise the defaults of exports(5): root is squashed, credentials are AUTH_SYS, ports privileged,
/// TLS optional. The exception is `rw`: clients that may mount may write.
impl Default for Rule {
    fn default() -> Self {
        Rule {
            clients: Vec::new(),
            access: ExportAccess::ReadWrite,
            squash: Squash::Root,
            anonymous: Anonymous::default(),
            flavors: Flavors::SYS,
            source_port: SourcePort::Privileged,
            transports: Transports::ANY,
            view: View::default(),
            snapshots: VirtualDirectory::default(),
            trash: Duration::ZERO,
            trash_directory: VirtualDirectory::default(),
        }
    }
}

/// Whether clients may change anything (`rw`, `ro`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportAccess {
    /// They may, as far as permissions let them.
    #[default]
    ReadWrite,
    /// Every call that would change something is answered with NFS3ERR_ROFS.
    ReadOnly,
}

/// How clients see a directory that the file system does not have: `.snapshot` or `.trash`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VirtualDirectory {
    /// Not at all.
    Off,
    /// By its name, which no listing has: programs that walk through a tree do not enter it.
    #[default]
    Hidden,
    /// The same, and the export's own directory lists it.
    Visible,
}

/// Which callers of an export are mapped to its anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// None: uid 0 of a client is root here (`no_root_squash`).
    None,
    /// User 0 and group 0, the latter as primary or supplementary group (`root_squash`).
    #[default]
    Root,
    /// All callers (`all_squash`).
    All,
}

/// The identity of callers that are squashed, or that have none (`anonuid`, `anongid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anonymous {
    /// Its user id.
    pub uid: u32,
    /// Its only group id.
    pub gid: u32,
}

impl Default for Anonymous {
    fn default() -> Self {
        Anonymous {
            uid: NOBODY,
            gid: NOBODY,
        }
    }
}

/// Which credentials are accepted (`sec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavors {
    /// AUTH_SYS, with the identity that it claims.
    pub sys: bool,
    /// AUTH_NONE, and with it every flavor that is not listed: the caller is the anonymous user. In MOUNT's
    /// list, AUTH_NONE has this meaning by RFC 2623 (section 2.7) and for Linux clients.
    pub none: bool,
}

impl Flavors {
    /// AUTH_SYS alone.
    pub const SYS: Flavors = Flavors {
        sys: true,
        none: false,
    };
    /// AUTH_SYS, and anonymous callers.
    pub const ANY: Flavors = Flavors {
        sys: true,
        none: true,
    };

    /// The flavors' numbers, the preferred one first, for the reply to MNT.
    pub(crate) fn numbers(self) -> impl ExactSizeIterator<Item = u32> {
        let numbers = match (self.sys, self.none) {
            (true, true) => &[AUTH_SYS, AUTH_NONE][..],
            (true, false) => &[AUTH_SYS],
            (false, true) => &[AUTH_NONE],
            (false, false) => &[],
        };
        numbers.iter().copied()
    }
}

/// From which ports clients may connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePort {
    /// Only from ports below 1024, which Unix machines reserve for root (`secure`). Otherwise every user of a
    /// client could send calls with any AUTH_SYS credentials.
    #[default]
    Privileged,
    /// From any (`insecure`).
    Any,
}

impl SourcePort {
    /// Whether a connection from this port may be used.
    pub fn admits(self, port: u16) -> bool {
        self == SourcePort::Any || port < FIRST_UNPRIVILEGED_PORT
    }
}

/// One of several configurations in which clients may see the file system, for example with another commit mode. The
/// program that binds the server defines the numbers; the protocol does not interpret them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View(pub u32);

impl Rule {
    /// Whether calls may change anything.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access == ExportAccess::ReadOnly
    }

    /// Whether calls with this credential are accepted.
    pub(crate) fn takes(&self, credential: &Credential) -> bool {
        match credential {
            Credential::Sys(_) => self.flavors.sys || self.flavors.none,
            Credential::None => self.flavors.none,
            // It asks for a TLS handshake; no procedure is called with it.
            Credential::Tls => false,
        }
    }

    /// Returns the caller's identity under this rule. `client` is the client of the credential, if that has one.
    pub(crate) fn identity<'a>(
        &self,
        credential: &'a Credential,
        client: ClientId,
    ) -> Cow<'a, Credentials> {
        let Anonymous { uid, gid } = self.anonymous;
        let caller = match credential {
            Credential::Sys(caller) if self.flavors.sys && self.squash != Squash::All => caller,
            _ => {
                return Cow::Owned(Credentials {
                    uid,
                    gid,
                    groups: Groups::new(),
                    client,
                    trash: self.trash_seconds(),
                });
            }
        };
        let is_root = || caller.uid == 0 || caller.gid == 0 || caller.groups.contains(&0);
        if self.squash == Squash::None || !is_root() {
            if self.trash.is_zero() {
                return Cow::Borrowed(caller);
            }
            return Cow::Owned(Credentials {
                trash: self.trash_seconds(),
                ..caller.clone()
            });
        }
        let group = |id: u32| if id == 0 { gid } else { id };
        Cow::Owned(Credentials {
            uid: if caller.uid == 0 { uid } else { caller.uid },
            gid: group(caller.gid),
            groups: caller.groups.iter().map(|id| group(*id)).collect(),
            client,
            trash: self.trash_seconds(),
        })
    }

    /// How clients see the trash.
    pub(crate) fn shown_trash(&self) -> VirtualDirectory {
        match self.trash.is_zero() {
            true => VirtualDirectory::Off,
            false => self.trash_directory,
        }
    }

    fn trash_seconds(&self) -> u32 {
        u32::try_from(self.trash.as_secs()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(7);

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials {
            uid,
            gid,
            groups: groups.into(),
            client: CLIENT,
            trash: 0,
        }
    }

    fn identity(rule: &Rule, claimed: Credentials) -> Credentials {
        rule.identity(&Credential::Sys(claimed), CLIENT)
            .into_owned()
    }

    #[test]
    fn squashing_replaces_root_or_everyone() {
        let rule = |squash| Rule {
            squash,
            ..Rule::default()
        };
        let (root, bob) = (caller(0, 0, &[0, 5]), caller(1000, 100, &[27]));
        assert_eq!(identity(&rule(Squash::None), root.clone()), root);
        let by_root = rule(Squash::Root);
        assert_eq!(
            identity(&by_root, root),
            caller(NOBODY, NOBODY, &[NOBODY, 5])
        );
        assert_eq!(identity(&by_root, bob.clone()), bob);
        assert_eq!(
            identity(&by_root, caller(1000, 100, &[0])),
            caller(1000, 100, &[NOBODY])
        );
        assert_eq!(
            identity(&rule(Squash::All), bob),
            caller(NOBODY, NOBODY, &[])
        );
    }

    #[test]
    fn squashed_callers_are_the_anonymous_user_of_the_rule() {
        let anonymous = Anonymous { uid: 150, gid: 100 };
        let rule = |squash| Rule {
            squash,
            anonymous,
            flavors: Flavors::ANY,
            ..Rule::default()
        };
        assert_eq!(
            identity(&rule(Squash::Root), caller(0, 0, &[0])),
            caller(150, 100, &[100])
        );
        assert_eq!(
            identity(&rule(Squash::All), caller(7, 7, &[7])),
            caller(150, 100, &[])
        );
        // Without squashing too: a caller without identity has no other identity to get.
        let nobody = rule(Squash::None)
            .identity(&Credential::None, CLIENT)
            .into_owned();
        assert_eq!(nobody, caller(150, 100, &[]));
    }

    #[test]
    fn credentials_that_are_not_listed_are_refused_or_count_for_nothing() {
        let sys = || Credential::Sys(caller(1000, 100, &[]));
        let rule = |sys, none| Rule {
            flavors: Flavors { sys, none },
            ..Rule::default()
        };
        let taken = |rule: &Rule| [rule.takes(&sys()), rule.takes(&Credential::None)];
        assert_eq!(taken(&rule(true, false)), [true, false]);
        assert_eq!(taken(&rule(true, true)), [true, true]);
        assert_eq!(taken(&rule(false, true)), [true, true]);
        assert_eq!(taken(&rule(false, false)), [false, false]);
        let anonymous = rule(false, true).identity(&sys(), CLIENT).into_owned();
        assert_eq!(anonymous, caller(NOBODY, NOBODY, &[]));
        let known = rule(true, true).identity(&sys(), CLIENT).into_owned();
        assert_eq!(known, caller(1000, 100, &[]));
    }

    #[test]
    fn ports_below_1024_are_privileged() {
        let admits = |port| SourcePort::Privileged.admits(port);
        assert_eq!(
            [1, 1023, 1024, 65535].map(admits),
            [true, true, false, false]
        );
        assert!(SourcePort::Any.admits(40_000));
    }
}
