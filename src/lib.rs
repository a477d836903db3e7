//! The program: command line, configuration and wiring around the file system.
//!
//! * [`mod@bench`]: `forebay bench`, which measures any folder.
//! * [`config`]: all settings, from flags, environment and file, in one table.
//! * [`cli`]: the commands and their flags.
//! * [`cost`]: the cost of requests and of what the bucket stores.
//! * [`admin`]: the control socket of a running gateway, and its clients.
//! * [`credentials`]: passphrase, key file or key service of a sealed volume.
//! * [`exports`]: translates the exports of the configuration to those of the server.
//! * [`fit`]: whether a configuration fits the machine.
//! * [`gc`]: `forebay gc`, which finds objects that nothing refers to.
//! * [`health`]: whether a gateway is healthy, degraded or failing.
//! * [`http`]: the admin HTTP server of a running gateway.
//! * [`fsck`]: `forebay fsck`, which checks the volume in its bucket, and repairs it.
//! * [`salvage`]: `forebay salvage`, for a volume whose metadata are lost.
//! * [`kept_logs`]: `forebay log`.
//! * [`keys`]: `forebay keys`, which changes the key ring of a sealed volume.
//! * [`live`]: the last ten minutes, for `forebay top` and the page.
//! * [`local_users`]: denies other users of this machine access to files and memory of a gateway.
//! * [`new_volume`]: whether a volume may be made where none exists.
//! * [`logging`]: the program's messages, on standard error.
//! * [`past`]: `forebay changes`, `forebay versions` and others about snapshots, out of the bucket alone.
//! * `scrub`: answers `forebay scrub`.
//! * [`tls`]: the files of TLS.
//! * [`top`]: `forebay top`.
//! * [`watch`]: messages about waiting clients and problems.
//! * [`serve`]: the life of a gateway from start to a clean stop.
//!
//! The layers below (NFS, file system, log, cache, bucket) are crates of their own; this one only wires them
//! together.

pub mod admin;
pub mod bench;
pub mod cli;
pub mod clones;
pub mod config;
pub mod cost;
pub mod credentials;
pub mod exports;
pub mod fit;
pub mod fsck;
pub mod gateway;
pub mod gc;
pub mod health;
mod held;
pub mod http;
pub mod kept_logs;
pub mod keys;
pub mod live;
pub mod local_users;
mod locks;
pub mod logging;
pub mod metrics;
pub mod new_volume;
pub mod past;
pub mod salvage;
pub mod schedule;
mod scrub;
mod secret_file;
pub mod serve;
pub mod store;
mod taken_over;
pub mod tls;
pub mod top;
pub mod trace;
pub mod undelete;
pub mod watch;
