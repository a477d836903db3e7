//! Forebay: the NFSv3 protocol engine.
//!
//! It stands between sockets and anything that is a [`forebay_vfs::FileSystem`]. From the outside in:
//!
//! * [`Server`] is the async shell: it accepts connections, reads what came into pooled
//!   buffers, begins calls, gathers their replies and writes them, all within [`Limits`].
//! * [`record`] tells messages apart in the stream; [`rpc`] takes the header off a call and puts one
//!   on a reply; [`xdr`] is the representation of all values.
//! * The engine picks the program: [`mount`], by which a client gets its first handle, or [`nfs3`]
//!   with its 22 procedures. Calls that must not be done twice pass the replay cache.
//! * [`nlm`] locks for clients, and [`nsm`] hears which of them were booted anew; both are served once
//!   [`Server::with_locks`] was called, which also has the server tell clients about its own restarts.
//! * [`handle`] names inodes towards clients; the exports say who may use them, and a [`Rule`] of theirs
//!   what for, and as whom. [`ExportControl`] replaces them while clients go on.
//! * [`Tls`] is how a connection goes over to TLS when its client asks for it (RFC 9289); a rule says which
//!   [`Transports`] are good enough.
//! * [`Metrics`] counts what happens.
//!
//! Everything but the shell is synchronous code over byte strings, or waits for the file system
//! alone. Nothing that comes from the network is trusted: every length has a limit that is checked
//! before memory is taken for it, and what cannot be decoded is answered or closed, never a panic.

#![forbid(unsafe_code)]

mod address;
mod config;
mod engine;
mod exports;
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
mod outgoing;
pub mod record;
mod replay;
pub mod rpc;
pub mod rpcbind;
mod rule;
mod server;
mod tls;
mod transport;
pub mod xdr;

pub use address::{AddressRange, AddressRangeError};
pub use config::{ConfigError, Export, Limits, NOBODY, ServerConfig, TRANSFER_BYTES};
pub use engine::ExportControl;
pub use forebay_lock::Limits as LockLimits;
pub use locks::{LockConfig, Notebook};
pub use metrics::{Kind, Metrics, Sample};
pub use rule::{Anonymous, ExportAccess, Flavors, Rule, SourcePort, Squash, View};
pub use server::Server;
pub use tls::{Tls, TlsControl, TlsError};
pub use transport::{Transport, Transports};
