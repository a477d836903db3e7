//! ONC RPC version 2 (RFC 5531): the header of a call, its credential, and the headers of replies.
//!
//! ```text
//!  call                                      accepted reply         denied reply
//!  0  xid                                    0  xid                 0  xid
//!  4  0 (call)                               4  1 (reply)           4  1 (reply)
//!  8  2 (RPC version)                        8  0 (accepted)        8  1 (denied)
//! 12  program                               12  0 (verifier: none)  12 0 + two versions,
//! 16  version                               16  0 (its length)         or 1 + auth_stat
//! 20  procedure                             20  accept_stat
//! 24  credential: flavor, opaque<400>       24  results, or two versions
//!  .  verifier: flavor, opaque<400>
//!  .  arguments
//! ```

mod call;
mod reply;

pub(crate) use call::wanted;
pub use call::{Call, Credential, Denial, NotServed};
pub(crate) use reply::Answered;
pub use reply::Reply;

/// The version of RPC.
pub const RPC_VERSION: u32 = 2;

/// Message types.
pub const CALL: u32 = 0;
/// See [`CALL`].
pub const REPLY: u32 = 1;

/// Flavor of a credential without an identity.
pub const AUTH_NONE: u32 = 0;
/// Flavor of a credential with the user and groups of a Unix system (RFC 5531, appendix A).
pub const AUTH_SYS: u32 = 1;
/// Flavor of the credential with which a client asks for TLS on its connection (RFC 9289, section 4.1).
pub const AUTH_TLS: u32 = 7;

/// The body of the verifier by which the server agrees to switch to TLS.
pub const STARTTLS: [u8; 8] = *b"STARTTLS";

/// Longest body of a credential or verifier, in bytes.
pub const MAX_AUTH_BYTES: usize = 400;
/// Most groups in an AUTH_SYS credential.
pub const MAX_GROUPS: usize = 16;
/// Longest machine name in an AUTH_SYS credential, in bytes.
pub const MAX_MACHINE_NAME: usize = 255;

/// Why an accepted call has no results (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no such program here.
    ProgramUnavailable,
    /// The program exists in other versions: the lowest and highest of these.
    ProgramMismatch(u32, u32),
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// The server failed.
    SystemError,
}
