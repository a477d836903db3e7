//! Configuration of the server: keys, exports and limits.

use std::time::Duration;

use forebay_types::VolumeId;

use crate::Rule;

/// Largest READ, WRITE and directory reply that FSINFO offers, in bytes.
pub const TRANSFER_BYTES: u32 = 1 << 20;

/// User and group of a caller without an identity: AUTH_NONE, or squashed.
pub const NOBODY: u32 = 65534;

/// Configuration for [`crate::Server::bind`].
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Key of the file handles' authentication codes. Draw it at random once per volume and keep
    /// it: handles made under another key are refused (NFS3ERR_STALE), so clients would have to mount
    /// again. Keep it secret: its holder can make a valid handle for any inode.
    pub handle_key: [u8; 32],
    /// The volume behind the server; a handle of another one is refused.
    pub volume: VolumeId,
    /// Directories that may be mounted, each with its clients. A client that no export names gets no access.
    pub exports: Vec<Export>,
    /// Limits.
    pub limits: Limits,
}

/// A directory of the volume that clients may mount, with its rules.
#[derive(Clone, Debug)]
pub struct Export {
    /// Number of the export, part of every handle given out under it: keep it across restarts and
    /// do not use it for another path. It does not depend on the rules: they may change, and handles stay valid.
    pub id: u32,
    /// Path of the directory, from the root of the volume, such as `/` or `/home`. Symbolic links
    /// in it are not followed.
    pub path: Vec<u8>,
    /// Which clients may mount it, and with which rights. Of the rules that contain a client's address, the one with
    /// the longest prefix applies; of equally long ones, the first.
    pub rules: Vec<Rule>,
}

/// A cap on everything that a client can influence.
///
/// Clients can make the server hold at most `shared_bytes` and `resting_bytes` of memory, plus some KiB for each
/// connection; the replay cache and the pool of idle buffers (8 MiB) come on top. Each client address has its own
/// share of bytes and of connections, so that no client takes the room that others need.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest record in bytes; a longer one closes the connection, before anything is allocated
    /// for it. The longest that a client has reason to send is a WRITE of [`TRANSFER_BYTES`]
    /// with its header.
    pub record_bytes: usize,
    /// Calls of one connection that may wait for the file system, for each of three kinds: calls that look at names and
    /// attributes, calls that read, calls that change something. Linux sends as many as its slot table holds (dynamic,
    /// from 2 up).
    pub calls_in_flight: usize,
    /// Bytes of replies of one connection, finished or expected; further calls with long replies start only after
    /// some are sent. Sixteen reads of the largest size keep a fast link busy over 30 ms of bucket latency.
    pub reply_bytes: usize,
    /// Bytes of calls and replies of all connections together. One client may have at most three quarters of them.
    pub shared_bytes: usize,
    /// Bytes that connections may hold in addition while they wait: incomplete records, calls that have not started,
    /// small calls and replies, and TLS state, which is 8 KiB or more for each TLS connection. A connection whose
    /// client exceeds its share is closed.
    pub resting_bytes: usize,
    /// How long a call for which there is no room may block the calls behind it on its connection. After that it is
    /// answered NFS3ERR_JUKEBOX, if it is safe to execute twice. Further calls then get that answer at once until there
    /// is room again.
    pub max_blocking: Duration,
    /// Connections of clients that an export names; further ones are closed at once. One client may have at most seven
    /// eighths of them. An idle connection costs a few KiB. Keep this below the limit of open files: at that limit
    /// connections wait in the listen queue instead.
    pub connections: usize,
    /// Connections of all other addresses, each of which may have at most a quarter of them: their calls get
    /// AUTH_TOOWEAK.
    pub stranger_connections: usize,
    /// Time after which a connection of one of these addresses is closed, even if it is in use.
    pub stranger_time: Duration,
    /// Time from the beginning of a connection to its first call.
    pub first_call_timeout: Duration,
    /// Closes a connection that was idle for this time. NFS clients keep their connections open, and
    /// TCP keepalive finds vanished clients: none by default.
    pub idle_timeout: Option<Duration>,
    /// Time from the first byte of a record to its last: 1 MiB at 17 KB/s by default.
    pub record_timeout: Duration,
    /// Time from the answer to AUTH_TLS to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Time in which a client has to take `reply_rate` of the replies that wait for it. A tenth of it applies while
    /// calls wait for the shared budget.
    pub reply_timeout: Duration,
    /// Bytes per second that a client has to take of the replies that wait for it, on average over `reply_timeout`.
    /// Four times as much applies while calls wait for the shared budget.
    pub reply_rate: u64,
    /// Time that calls already read have to finish at shutdown.
    pub grace: Duration,
    /// Replies kept for repeated calls, and the bytes they may take.
    pub replay_entries: usize,
    /// See `replay_entries`.
    pub replay_bytes: usize,
    /// How long a reply is kept for a repeated call, and how long a call continues after its connection has
    /// closed; after that its resources are released, and the call was executed or it was not. A Linux client repeats
    /// over TCP after 60 s, or at once after a reconnect.
    pub replay_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            record_bytes: TRANSFER_BYTES as usize + 4096,
            calls_in_flight: 128,
            reply_bytes: 16 << 20,
            shared_bytes: 256 << 20,
            resting_bytes: 16 << 20,
            max_blocking: Duration::from_secs(1),
            connections: 16_384,
            stranger_connections: 64,
            stranger_time: Duration::from_secs(10),
            first_call_timeout: Duration::from_secs(30),
            idle_timeout: None,
            record_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(60),
            // The rate that `record_timeout` requires of senders.
            reply_rate: 16 << 10,
            grace: Duration::from_secs(10),
            replay_entries: 32_768,
            replay_bytes: 16 << 20,
            replay_age: Duration::from_secs(180),
        }
    }
}

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two exports have the same number, so their handles could not be distinguished.
    #[error("two exports have the id {0}: give each its own")]
    DuplicateExport(u32),
    /// An export's path does not begin with a slash.
    #[error("the path of export {0} has to begin with '/'")]
    RelativePath(u32),
    /// A limit is too low for the server to do anything.
    #[error("the limit {name} is {value}: it has to be at least {least}")]
    LimitTooLow {
        /// Field of [`Limits`].
        name: &'static str,
        /// Its value.
        value: usize,
        /// Its lowest valid value.
        least: usize,
    },
}

impl ServerConfig {
    /// Checks whether a server can work with this configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_exports(&self.exports)?;
        let limits = &self.limits;
        // A call or reply of the largest transfer, with its headers.
        let transfer = TRANSFER_BYTES as usize + 2048;
        for (name, value, least) in [
            ("record_bytes", limits.record_bytes, transfer),
            ("reply_bytes", limits.reply_bytes, transfer),
            (
                "shared_bytes",
                limits.shared_bytes,
                limits.record_bytes.saturating_mul(4),
            ),
            ("resting_bytes", limits.resting_bytes, 1 << 20),
            ("calls_in_flight", limits.calls_in_flight, 1),
            ("connections", limits.connections, 1),
        ] {
            if value < least {
                return Err(ConfigError::LimitTooLow { name, value, least });
            }
        }
        Ok(())
    }
}

/// Checks whether these exports can be served together.
pub(crate) fn check_exports(exports: &[Export]) -> Result<(), ConfigError> {
    let mut ids = std::collections::HashSet::new();
    for export in exports {
        if !ids.insert(export.id) {
            return Err(ConfigError::DuplicateExport(export.id));
        }
        if export.path.first() != Some(&b'/') {
            return Err(ConfigError::RelativePath(export.id));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddressRange;

    fn config() -> ServerConfig {
        let export = |id, path: &str| Export {
            id,
            path: path.into(),
            rules: vec![Rule {
                clients: vec![AddressRange::ANY_V4],
                ..Rule::default()
            }],
        };
        ServerConfig {
            handle_key: [0; 32],
            volume: VolumeId([0; 16]),
            exports: vec![export(1, "/"), export(2, "/home")],
            limits: Limits::default(),
        }
    }

    #[test]
    fn the_defaults_are_usable() {
        assert_eq!(config().check(), Ok(()));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let mut bad = config();
        bad.exports[1].id = 1;
        assert_eq!(bad.check(), Err(ConfigError::DuplicateExport(1)));
        let mut bad = config();
        bad.exports[1].path = b"home".to_vec();
        assert_eq!(bad.check(), Err(ConfigError::RelativePath(2)));
        let mut bad = config();
        bad.limits.shared_bytes = 1 << 20;
        let message = bad.check().unwrap_err().to_string();
        assert!(message.contains("shared_bytes is 1048576"), "{message}");
    }
}
