//! Quotas of Forebay: the accounts of the volume and of directory trees.
//!
//! A tree is a directory with a quota and everything below it, down to directories with a quota of
//! their own. Each object counts in one tree or in none, and always in the volume. Its record names the
//! tree by the inode of the root, and a new object gets the tree of its directory. So nothing looks up a
//! path to find an object's account.
//!
//! ```text
//!   account    reserved and used, live              account.rs
//!   ledger     the same as of the published LSN     ledger.rs
//!   accounts   all of a volume                      accounts.rs
//! ```
//!
//! The counted bytes are the attribute `used` of regular files, so that `df` and `du` agree: bytes that were written,
//! not holes. Directories, links and special files count as objects only.

#![forbid(unsafe_code)]

mod account;
mod accounts;
mod ledger;

pub use account::{Account, Amount, Charge, Reservation, UNLIMITED};
pub use accounts::{Accounts, LEAVING, NO_LIMIT, scan_all};
pub use ledger::{Difference, Ledger, PublishedUsage};
