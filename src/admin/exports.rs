//! The exports in the replies of a gateway.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rights of one client or network under an export, in the words of exports(5). `forebay exports --json` prints a
/// list of these, with these names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The directory, from the root of the volume.
    pub path: String,
    /// The address or network. If several contain a client, the longest prefix counts.
    pub client: String,
    /// `rw` or `ro`.
    pub access: String,
    /// `root_squash`, `no_root_squash` or `all_squash`.
    pub squash: String,
    /// User ID of squashed callers.
    pub anonuid: u32,
    /// Group ID of squashed callers.
    pub anongid: u32,
    /// Flavors of credentials, with colons between them.
    pub sec: String,
    /// `secure` or `insecure`.
    pub source_port: String,
    /// The required protection of connections, with colons between the kinds: `none`, `tls`, `mtls`.
    pub xprtsec: String,
    /// The commit mode: where data must be before a reply that promises stable storage.
    pub commit: String,
    /// Compression of written data: the levels of zstd, such as `1-9`, or `off`.
    pub compression: String,
    /// How clients see snapshots: `hidden`, `visible` or `off`.
    pub snapshot_directory: String,
    /// How clients see the trash, if they have one: `hidden`, `visible` or `off`.
    pub trash_directory: String,
    /// How long removed and replaced files stay in the trash, or `none`.
    pub trash: String,
}

impl fmt::Display for ExportStatus {
    /// As a line of /etc/exports, with additional words for options that exports(5) does not have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExportStatus {
            path,
            client,
            access,
            squash,
            anonuid,
            anongid,
            sec,
            source_port,
            xprtsec,
            commit,
            compression,
            snapshot_directory,
            trash_directory,
            trash,
        } = self;
        // Like exportfs: defaults are left out.
        let xprtsec = match xprtsec.as_str() {
            "none:tls:mtls" => String::new(),
            some => format!(",xprtsec={some}"),
        };
        let snapshots = match snapshot_directory.as_str() {
            "hidden" => String::new(),
            some => format!(",snapshot_directory={some}"),
        };
        let trash_directory = match trash_directory.as_str() {
            "hidden" => String::new(),
            some => format!(",trash_directory={some}"),
        };
        let trash = match trash.as_str() {
            "none" => String::new(),
            some => format!(",trash={some}"),
        };
        let compression = match compression.as_str() {
            "1-9" => String::new(),
            some => format!(",compression={some}"),
        };
        write!(
            f,
            "{path} {client}({access},{squash},anonuid={anonuid},anongid={anongid},sec={sec},\
             {source_port}{xprtsec},commit={commit}{compression}{snapshots}{trash}{trash_directory})"
        )
    }
}
