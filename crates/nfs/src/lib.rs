//! Forebay: the NFSv3 protocol engine.

mod address;
mod config;
mod server;

pub use address::{AddressRange, AddressRangeError};
pub use config::{Export, Limits, NOBODY, ServerConfig, Squash, TRANSFER_BYTES};
pub use server::Server;
