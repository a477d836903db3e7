//! Tests of the whole program: its refusals and their messages, and its life from start to stop.
//!
//! Every test starts the real program, on a folder and a port of its own, and uses it as users do: by flags, variables,
//! files, signals, NFS over TCP, exit codes and messages.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod admin_http;
mod bad_start;
mod bench;
mod bursts;
mod causes;
mod changes;
mod clones;
mod damage;
mod exports;
mod faults;
mod fsck;
mod full_disk;
mod gc;
mod golden;
mod kms;
mod life;
mod live;
mod local_users;
mod messages;
mod metrics;
mod monitoring;
mod new_volume;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod quota;
mod restore;
mod s3;
mod scrub;
mod sealing;
mod snapshots;
mod soak;
mod support;
mod takeover;
mod tls;
mod top;
mod trace;
mod trash;
mod waits;
mod where_is;
