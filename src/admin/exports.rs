//! What a gateway says about its exports.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What one client or network may do under an export, in words of exports(5). `forebay exports --json`
/// prints a list of these, with these names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The directory, from the root of the volume.
    pub path: String,
    /// The address or network. Where several have a client, the longest prefix counts.
    pub client: String,
    /// `rw` or `ro`.
    pub access: String,
    /// `root_squash`, `no_root_squash` or `all_squash`.
    pub squash: String,
    /// User that squashed callers are taken for.
    pub anonuid: u32,
    /// Group that squashed callers are taken for.
    pub anongid: u32,
    /// Flavors of credentials, with colons between them.
    pub sec: String,
    /// `secure` or `insecure`.
    pub source_port: String,
    /// How connections have to be protected, with colons between the ways: `none`, `tls`, `mtls`.
    pub xprtsec: String,
    /// What answers that promise stable storage wait for.
    pub commit: String,
    /// How what they write is compressed: the levels of zstd, such as `1-9`, or `off`.
    pub compression: String,
}

impl fmt::Display for ExportStatus {
    /// As a line of /etc/exports, with words more for the commit mode and for compression.
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
        } = self;
        // As exportfs does: what is so unless somebody says otherwise is left out.
        let xprtsec = match xprtsec.as_str() {
            "none:tls:mtls" => String::new(),
            some => format!(",xprtsec={some}"),
        };
        let compression = match compression.as_str() {
            "1-9" => String::new(),
            some => format!(",compression={some}"),
        };
        write!(
            f,
            "{path} {client}({access},{squash},anonuid={anonuid},anongid={anongid},sec={sec},\
             {source_port}{xprtsec},commit={commit}{compression})"
        )
    }
}
