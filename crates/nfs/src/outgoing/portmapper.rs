//! Asks a machine for the ports of its programs: portmapper version 2 over IPv4, rpcbind version 4 over IPv6
//! (RFC 1833).

use std::net::{IpAddr, SocketAddr};

use super::{Failure, Program, Transport};
use crate::xdr::{Malformed, Reader, Writer};

const PROGRAM: u32 = 100_000;
/// GETPORT of version 2, and GETADDR of version 4.
const ASK: u32 = 3;
/// Longest universal address, in bytes: that of IPv6 with its port.
const MAX_ADDRESS_BYTES: usize = 64;

/// A question to a portmapper.
pub(super) struct Question {
    pub(super) procedure: u32,
    pub(super) arguments: Vec<u8>,
}

/// The question for the port of `program` on `host`.
pub(super) fn question(
    host: IpAddr,
    transport: Transport,
    program: Program,
) -> (Program, Question) {
    let mut arguments = Vec::new();
    let mut writer = Writer::new(&mut arguments);
    writer.u32(program.number);
    writer.u32(program.version);
    let version = match host {
        IpAddr::V4(_) => {
            // IPPROTO_TCP, IPPROTO_UDP; and a port that is ignored.
            writer.u32(match transport {
                Transport::Tcp => 6,
                Transport::Udp => 17,
            });
            writer.u32(0);
            2
        }
        IpAddr::V6(_) => {
            writer.opaque(match transport {
                Transport::Tcp => b"tcp6",
                Transport::Udp => b"udp6",
            });
            // Address and owner are ignored here.
            writer.opaque(&[]);
            writer.opaque(&[]);
            4
        }
    };
    let portmapper = Program {
        number: PROGRAM,
        version,
    };
    let question = Question {
        procedure: ASK,
        arguments,
    };
    (portmapper, question)
}

/// Returns the port in the answer.
pub(super) fn port(host: IpAddr, answer: &[u8]) -> Result<u16, Failure> {
    let malformed = |Malformed| Failure::Refused("its portmapper's answer is malformed");
    let mut reader = Reader::new(answer);
    let port = match host {
        IpAddr::V4(_) => u16::try_from(reader.u32().map_err(malformed)?).ok(),
        IpAddr::V6(_) => {
            let text = reader.opaque(MAX_ADDRESS_BYTES).map_err(malformed)?;
            parse_address(text).map(|address| address.port())
        }
    };
    // The program may be registered for the other transport.
    let missing = || Failure::Unreachable(std::io::ErrorKind::ConnectionRefused.into());
    port.filter(|port| *port != 0).ok_or_else(missing)
}

/// Formats an address and port as rpcbind does: `127.0.0.1.8.1` is port 8 * 256 + 1.
pub(crate) fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Parses the output of [`universal_address`].
pub(crate) fn parse_address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}
