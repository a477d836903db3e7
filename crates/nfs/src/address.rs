//! Addresses of clients: the ranges that exports name, and the addresses that share resources.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use forebay_vfs::ClientId;

/// The addresses that share the resources of one client: one IPv4 address; a /64 network of IPv6, because a host there
/// can take any number of addresses; or one link-local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// Returns the network of `address`.
    pub(crate) fn of(address: IpAddr) -> ClientNetwork {
        match address.to_canonical() {
            IpAddr::V6(address) if !address.is_unicast_link_local() && !address.is_loopback() => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                ClientNetwork(Ipv6Addr::from_bits(network).into())
            }
            address => ClientNetwork(address),
        }
    }

    /// Returns the client's number for the file system.
    pub(crate) fn id(self) -> ClientId {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        ClientId(hasher.finish())
    }
}

/// The addresses that share their first `prefix` bits with `base` (CIDR): `10.0.0.0/8`,
/// `10.0.0.0/255.0.0.0`, `fd00::/8`, or a single address without a prefix.
///
/// An IPv4 client that arrives on an IPv6 socket (`::ffff:10.1.2.3`) counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    base: IpAddr,
    prefix: u8,
}

/// Why a text is not an [`AddressRange`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeError {
    /// The part before the slash is not an address.
    #[error("'{0}' is not an IP address: write one such as 10.0.0.0/8, 192.168.1.5 or fd00::/8")]
    Address(String),
    /// It is a name, a pattern of names or a netgroup.
    #[error(
        "'{0}' is a host name, which is not resolved, because the name server would then decide which \
         clients may mount; write addresses or networks such as 192.168.1.5 or 10.0.0.0/8, or * for \
         everybody"
    )]
    Name(String),
    /// The part after the slash has the form of an address, but is not a netmask.
    #[error("'{0}' is not a netmask: write one such as 255.255.0.0, or a prefix length such as 16")]
    Netmask(Ipv4Addr),
    /// The part after the slash is not a prefix length.
    #[error("'{text}' is not a prefix length: write a number from 0 to {max}")]
    Prefix {
        /// The text as written.
        text: String,
        /// Bits of an address of this family.
        max: u8,
    },
    /// Bits beyond the prefix are set: most likely the prefix is wrong.
    #[error(
        "{base}/{prefix} has bits set beyond its prefix: write {network}/{prefix}, or {base} for the one address"
    )]
    HostBits {
        /// The address that was written.
        base: IpAddr,
        /// The prefix that was written.
        prefix: u8,
        /// The address with those bits cleared.
        network: IpAddr,
    },
}

impl AddressRange {
    /// Every IPv4 address.
    pub const ANY_V4: AddressRange = AddressRange {
        base: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        prefix: 0,
    };
    /// Every IPv6 address.
    pub const ANY_V6: AddressRange = AddressRange {
        base: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        prefix: 0,
    };

    /// Whether every address in the range is a loopback address of this machine.
    pub fn is_loopback(&self) -> bool {
        let whole = match self.base {
            IpAddr::V4(_) => 8,
            IpAddr::V6(_) => 128,
        };
        self.base.is_loopback() && self.prefix >= whole
    }

    /// The range of `base` with `prefix` bits; fails when the prefix is longer than the address,
    /// or the address has bits set beyond it.
    pub fn new(base: IpAddr, prefix: u8) -> Result<AddressRange, AddressRangeError> {
        let max = bits_of(base);
        if prefix > max {
            let text = prefix.to_string();
            return Err(AddressRangeError::Prefix { text, max });
        }
        let network = masked(base, prefix);
        if network != base {
            return Err(AddressRangeError::HostBits {
                base,
                prefix,
                network,
            });
        }
        Ok(AddressRange { base, prefix })
    }

    /// Number of leading bits that the addresses share. If two ranges overlap, the one with the longer prefix lies
    /// within the other.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether clients in this range can connect to the local address `address`. A loopback address is reachable from
    /// loopback addresses only, any other address from all non-loopback addresses of its family.
    pub fn reaches(&self, address: IpAddr) -> bool {
        let is_v4 = address.is_ipv4();
        match address {
            // A socket that listens there accepts IPv4 as well.
            IpAddr::V6(all) if all.is_unspecified() => true,
            _ if is_v4 != self.base.is_ipv4() => false,
            address if address.is_unspecified() => true,
            address if address.is_loopback() => self.is_loopback() || self.contains(address),
            _ => !self.is_loopback(),
        }
    }

    /// Whether the range contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.base.is_ipv4() && masked(address, self.prefix) == self.base
    }
}

impl From<IpAddr> for AddressRange {
    fn from(base: IpAddr) -> Self {
        AddressRange {
            base,
            prefix: bits_of(base),
        }
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.trim().parse().map_err(|_| no_address(base.trim()))?;
        let Some(prefix) = prefix else {
            return Ok(AddressRange::from(base));
        };
        let prefix = prefix.trim();
        if let (IpAddr::V4(_), Ok(mask)) = (base, prefix.parse::<Ipv4Addr>()) {
            return AddressRange::new(base, prefix_of(mask)?);
        }
        let prefix = prefix.parse().map_err(|_| AddressRangeError::Prefix {
            text: prefix.to_owned(),
            max: bits_of(base),
        })?;
        AddressRange::new(base, prefix)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits_of(self.base) {
            write!(f, "{}", self.base)
        } else {
            write!(f, "{}/{}", self.base, self.prefix)
        }
    }
}

/// Chooses the error for a text that is not an address. The letters of IPv6 addresses end at `f`.
fn no_address(text: &str) -> AddressRangeError {
    let of_names = |character: char| match character {
        '*' | '?' | '@' | '[' => true,
        _ => character.is_ascii_alphabetic() && !character.is_ascii_hexdigit(),
    };
    let kind = match text.contains(of_names) && !text.contains(':') {
        true => AddressRangeError::Name,
        false => AddressRangeError::Address,
    };
    kind(text.to_owned())
}

/// The prefix length that a netmask stands for.
#[expect(clippy::cast_possible_truncation, reason = "a mask has 32 bits")]
fn prefix_of(mask: Ipv4Addr) -> Result<u8, AddressRangeError> {
    let bits = mask.to_bits();
    if bits.leading_ones() + bits.trailing_zeros() < u32::BITS {
        return Err(AddressRangeError::Netmask(mask));
    }
    Ok(bits.leading_ones() as u8)
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns `address` with all bits after the first `prefix` cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(prefix.min(32)))
                .unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_covers_its_network_and_nothing_else() {
        assert!(range("10.0.0.0/8").contains(address("10.255.0.1")));
        assert!(!range("10.0.0.0/8").contains(address("11.0.0.1")));
        assert!(range("0.0.0.0/0").contains(address("203.0.113.9")));
        assert!(!range("0.0.0.0/0").contains(address("::1")));
        assert!(range("fd00::/8").contains(address("fd12::7")));
        assert!(range("::/0").contains(address("2001:db8::1")));
        assert!(range("192.168.1.5").contains(address("192.168.1.5")));
        assert!(!range("192.168.1.5").contains(address("192.168.1.4")));
    }

    #[test]
    fn an_ipv4_client_on_an_ipv6_socket_counts_as_ipv4() {
        assert!(range("127.0.0.0/8").contains(address("::ffff:127.0.0.1")));
        assert!(!range("::/0").contains(address("::ffff:127.0.0.1")));
    }

    #[test]
    fn a_bad_range_says_what_to_write() {
        let message = |text: &str| text.parse::<AddressRange>().unwrap_err().to_string();
        assert!(message("10.0.0").contains("'10.0.0' is not an IP address"));
        for name in ["localhost", "*.example.com", "@trusted", "192.168.1.*"] {
            let message = message(name);
            assert!(message.contains("which is not resolved"), "{message}");
        }
        assert!(message("fe80::1%eth0").contains("is not an IP address"));
        assert!(message("10.0.0.0/255.0.255.0").contains("'255.0.255.0' is not a netmask"));
        assert!(message("10.0.0.0/33").contains("a number from 0 to 32"));
        assert!(message("::1/129").contains("a number from 0 to 128"));
        assert!(message("10.0.0.0/x").contains("'x' is not a prefix length"));
        assert!(message("10.1.2.3/8").contains("write 10.0.0.0/8"));
    }

    #[test]
    fn a_netmask_is_as_good_as_a_prefix() {
        assert_eq!(range("10.0.0.0/255.0.0.0"), range("10.0.0.0/8"));
        assert_eq!(range("0.0.0.0/0.0.0.0"), AddressRange::ANY_V4);
        let one = range("192.168.1.5/255.255.255.255");
        assert_eq!(one, range("192.168.1.5"));
        assert!("fd00::/255.0.0.0".parse::<AddressRange>().is_err());
        let host_bits = "10.1.0.0/255.0.0.0".parse::<AddressRange>();
        assert!(matches!(host_bits, Err(AddressRangeError::HostBits { .. })));
    }

    #[test]
    fn a_client_is_an_address_or_a_network_in_which_anybody_has_many() {
        let network = |address: &str| ClientNetwork::of(address.parse().unwrap());
        let same = |one: &str, other: &str| {
            let same = network(one) == network(other);
            assert_eq!(same, network(one).id() == network(other).id());
            same
        };
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(!same("fe80::1", "fe80::2"));
        assert!(!same("::1", "::2"));
    }

    #[test]
    fn display_and_parse_agree() {
        for text in ["10.0.0.0/8", "192.168.1.5", "::1", "fd00::/8", "0.0.0.0/0"] {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range("127.0.0.1/32").to_string(), "127.0.0.1");
    }
}
