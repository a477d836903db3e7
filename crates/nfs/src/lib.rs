//! Forebay: the NFSv3 protocol engine.
//!
//! It stands between sockets and any implementation of [`forebay_vfs::Snapshots`], a file system with its snapshots. From the outside in:
//!
//! * [`Server`] is the async shell: it accepts connections, reads their bytes into pooled buffers,
//!   starts calls, gathers their replies and writes them, all within [`Limits`].
//! * [`record`] separates the messages in a stream; [`rpc`] decodes call headers and encodes reply
//!   headers; [`xdr`] is the representation of all values.
//! * The engine picks the program: [`mount`], by which a client gets its first handle, or [`nfs3`]
//!   with its 22 procedures. Calls that must not be executed twice pass through the replay cache.
//! * [`nlm`] serves file locks, and [`nsm`] receives notice of client reboots. Both are served once
//!   [`Server::with_locks`] was called; the server then also notifies clients of its own restarts.
//! * [`handle`] names inodes in file handles, and [`FileIds`] in attributes, each live or as a snapshot has it. The exports define which clients may use them; a [`Rule`] of an
//!   export defines with which rights and as which user. [`ExportControl`] replaces them while clients are connected.
//! * [`Tls`] moves a connection to TLS when its client asks for it (RFC 9289); a rule says which
//!   [`Transports`] are good enough.
//! * [`Metrics`] counts events.
//!
//! Apart from the shell, the code is synchronous over byte strings, or waits for the file system alone. No input
//! from the network is trusted: every length has a limit that is checked before memory is allocated for it.
//! Input that cannot be decoded gets an error reply or closes the connection; it never causes a panic.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod address;
mod config;
mod engine;
mod exports;
mod file_ids;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod handle;
mod locks;
#[cfg(feature = "measuring")]
#[doc(hidden)]
pub mod measuring;
mod metrics;
pub mod mount;
pub mod nfs3;
pub mod nlm;
pub mod nsm;
mod object;
mod outgoing;
pub mod record;
mod replay;
pub mod rpc;
pub mod rpcbind;
mod rule;
mod seen;
mod server;
mod tls;
mod transport;
pub mod xdr;

pub use address::{AddressRange, AddressRangeError};
pub use config::{ConfigError, Export, Limits, NOBODY, ServerConfig, TRANSFER_BYTES};
pub use engine::ExportControl;
pub use file_ids::FileIds;
pub use forebay_lock::Limits as LockLimits;
pub use locks::{ClientListStore, LockConfig};
pub use metrics::{BusyFile, Metrics};
pub use rule::{
    Anonymous, ExportAccess, Flavors, Rule, SourcePort, Squash, View, VirtualDirectory,
};
pub use seen::{CallFilter, CallWatch, Seen, SeenCall, SeenCalls};
pub use server::Server;
pub use tls::{Tls, TlsControl, TlsError};
pub use transport::{Transport, Transports};
