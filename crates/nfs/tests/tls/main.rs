//! RPC with TLS (RFC 9289) over the wire: how a connection switches to it, what is refused without it, and
//! what an attacker on the network cannot do.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod authority;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod identity;
mod memory;
mod rules;
mod upgrade;

use std::sync::Arc;

use authority::{Authority, Identity};
use client::SERVER;
use common::{Running, config, rule};
use forebay_nfs::{Export, Limits, ServerConfig, Squash, Transports};
use forebay_vfs::memory::MemoryFileSystem;

/// Reply, denied, AUTH_ERROR, and the reason.
const BAD_CREDENTIAL: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
const TOO_WEAK: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5];

/// A server with TLS, and the authority of its certificates.
struct Protected {
    server: Running,
    authority: Authority,
    clients: Authority,
}

impl Protected {
    fn new() -> Protected {
        Protected::with(config())
    }

    fn with(config: ServerConfig) -> Protected {
        Protected::around(Running::new(Arc::new(MemoryFileSystem::new()), config))
    }

    fn around(server: Running) -> Protected {
        let authority = Authority::new("servers");
        let clients = Authority::new("clients");
        let tls = authority.issue(SERVER).tls(Some(&clients)).unwrap();
        server.tls.replace(Some(tls));
        Protected {
            server,
            authority,
            clients,
        }
    }

    fn client_identity(&self) -> Identity {
        self.clients.issue("client.example")
    }
}

/// Exports the root to 127.0.0.1, over connections with this protection.
fn only(transports: Transports) -> ServerConfig {
    let mut rule = rule("127.0.0.1", Squash::None);
    rule.transports = transports;
    ServerConfig {
        exports: vec![Export {
            id: 1,
            path: b"/".to_vec(),
            rules: vec![rule],
        }],
        ..config()
    }
}

fn with_limits(change: impl FnOnce(&mut Limits)) -> ServerConfig {
    let mut config = config();
    change(&mut config.limits);
    config
}
