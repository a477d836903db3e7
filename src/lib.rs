//! The program: what stands between a shell and the file system.
//!
//! * [`mod@bench`]: `forebay bench`, which measures any folder.
//! * [`config`]: everything that can be set, from flags, environment and file, in one table.
//! * [`cli`]: the commands and their flags.
//! * [`admin`]: the control socket of a running gateway, and who asks there.
//! * [`credentials`]: what opens a sealed volume, from a file or typed.
//! * [`exports`]: what may be mounted, from the configuration's words to the server's.
//! * [`fit`]: whether a configuration fits the machine.
//! * [`gc`]: `forebay gc`, which finds objects that nothing refers to.
//! * [`health`]: whether a gateway is healthy, degraded or failing.
//! * [`fsck`]: `forebay fsck`, which checks the volume in its bucket, and repairs it.
//! * [`salvage`]: `forebay salvage`, for a volume whose metadata are lost.
//! * [`kept_logs`]: `forebay log`.
//! * [`keys`]: `forebay keys`, which changes what opens a sealed volume.
//! * [`local_users`]: other users of this machine get nothing.
//! * [`new_volume`]: whether a volume may be made where there is none.
//! * [`logging`]: the program's messages, on standard error.
//! * `scrub`: what `forebay scrub` asks of the volume.
//! * [`tls`]: the files of TLS.
//! * [`watch`]: messages about waiting clients and problems.
//! * [`serve`]: the life of a gateway from start to a clean stop.
//!
//! The layers below (NFS, file system, log, cache, bucket) are crates of their own; this one wires
//! them together and knows no more of them than that.

pub mod admin;
pub mod bench;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod exports;
pub mod fit;
pub mod fsck;
pub mod gateway;
pub mod gc;
pub mod health;
pub mod kept_logs;
pub mod keys;
pub mod local_users;
mod locks;
pub mod logging;
pub mod new_volume;
pub mod salvage;
mod scrub;
mod secret_file;
pub mod serve;
pub mod store;
mod taken_over;
pub mod tls;
pub mod watch;
