//! The list of clients that hold locks, as stored for the next start.
//!
//! A small text, its last line a checksum of the others:
//!
//! ```text
//! forebay-locks 1
//! state 873012345            the server's NSM state number: odd, and higher at every start
//! client 10.1.2.3 10.1.2.1 626f78
//!        |        |        the name that the client uses, in hexadecimal digits; may be empty
//!        |        the local address by which it knows this server
//!        its address
//! checksum 0a1b...           first 8 bytes of BLAKE3
//! ```

use std::fmt::Write;
use std::io;
use std::net::IpAddr;

use forebay_lock::Client;

const MAGIC: &str = "forebay-locks 1";

/// Keeps a small content on stable storage.
pub trait ClientListStore: Send + Sync + 'static {
    /// Returns the content that was stored last; `None` if there never was any.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the content atomically: after a crash it is either the old or the new one. The new content is on
    /// stable storage when this returns. May block.
    ///
    /// # Errors
    /// It cannot be written; the old content stays.
    fn replace(&self, content: &[u8]) -> io::Result<()>;
}

/// A client, and the address by which it knows this server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) client: Client,
    /// The local address that its connection came to.
    pub(crate) local: IpAddr,
}

/// The decoded content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientList {
    pub(super) state: i32,
    pub(super) clients: Vec<Peer>,
}

impl ClientList {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{MAGIC}\nstate {}\n", self.state);
        for Peer { client, local } in &self.clients {
            // Writing to a string cannot fail.
            let _ = write!(text, "client {} {local} ", client.host);
            client.name.iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            });
            text.push('\n');
        }
        let checksum = checksum(&text);
        let _ = writeln!(text, "checksum {checksum}");
        text.into_bytes()
    }

    /// Returns `None` for any text that [`ClientList::encode`] does not produce.
    pub(super) fn decode(content: &[u8]) -> Option<ClientList> {
        let text = std::str::from_utf8(content).ok()?;
        let (body, sum) = text.rsplit_once("checksum ")?;
        if sum.trim_end() != checksum(body) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != MAGIC {
            return None;
        }
        let state = lines.next()?.strip_prefix("state ")?.parse().ok()?;
        let clients = lines.map(peer).collect::<Option<_>>()?;
        Some(ClientList { state, clients })
    }
}

fn peer(line: &str) -> Option<Peer> {
    let mut words = line.strip_prefix("client ")?.splitn(3, ' ');
    let (host, local, name) = (words.next()?, words.next()?, words.next()?);
    let digits = name.as_bytes().chunks(2);
    let byte = |digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    Some(Peer {
        client: Client {
            host: host.parse().ok()?,
            name: digits.map(byte).collect::<Option<_>>()?,
        },
        local: local.parse().ok()?,
    })
}

fn checksum(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    hash.chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> ClientList {
        let peer = |host: &str, name: &[u8]| Peer {
            client: Client {
                host: host.parse().unwrap(),
                name: name.to_vec(),
            },
            local: "10.1.2.1".parse().unwrap(),
        };
        ClientList {
            state: 7,
            clients: vec![peer("10.1.2.3", b"box\n \xff"), peer("fe80::1", b"")],
        }
    }

    #[test]
    fn what_was_written_is_read_back_whatever_the_names() {
        for list in [list(), ClientList::default()] {
            assert_eq!(ClientList::decode(&list.encode()), Some(list));
        }
    }

    #[test]
    fn what_is_damaged_is_noticed() {
        let content = list().encode();
        for position in 0..content.len() {
            let mut damaged = content.clone();
            damaged[position] ^= 1;
            // The last byte is a newline, which carries no information.
            let last = position + 1 == content.len();
            assert!(
                last || ClientList::decode(&damaged).is_none(),
                "byte {position}"
            );
            assert!(last || ClientList::decode(&content[..position]).is_none());
        }
    }
}
