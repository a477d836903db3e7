//! Starts the program, and acts as its client.

pub(crate) mod browser;
pub(crate) mod nfs;
pub(crate) mod preload;
mod process;
pub(crate) mod proxied;
pub(crate) mod s3_proxy;
pub(crate) mod s3_server;
pub(crate) mod signs;
pub(crate) mod terminal;

pub(crate) use process::{
    Gateway, Outcome, Place, Refusal, Running, TIMEOUT, program, refused, refused_with, run,
    run_with,
};
