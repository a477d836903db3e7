//! Addresses that may mount.

use forebay_nfs::AddressRange;

use super::{Value, Written};

/// The addresses that may mount; at least one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients(Vec<AddressRange>);

impl Clients {
    /// The ranges.
    pub fn ranges(&self) -> &[AddressRange] {
        &self.0
    }
}

impl Value for Clients {
    const KIND: &'static str = "networks";
    const EXAMPLE: &'static str = "networks or addresses such as 10.0.0.0/8,fd00::/8,192.168.1.7";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let mut ranges = Vec::new();
        for item in text.split(',') {
            match item.trim() {
                "" => return Err("an empty entry allows no client".to_owned()),
                // As in exports(5): all addresses.
                "*" => ranges.extend([AddressRange::ANY_V4, AddressRange::ANY_V6]),
                item => ranges.push(
                    item.parse::<AddressRange>()
                        .map_err(|error| error.to_string())?,
                ),
            }
        }
        Ok(Clients(ranges))
    }

    fn write(&self) -> Written {
        Written::List(self.0.iter().map(AddressRange::to_string).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_addresses_are_separated_by_commas() {
        let clients = Clients::read("10.0.0.0/8, 192.168.1.7,fd00::/8").unwrap();
        assert_eq!(
            clients.write().to_string(),
            "10.0.0.0/8,192.168.1.7,fd00::/8"
        );
        let allowed = |address: &str| {
            let address = address.parse().unwrap();
            clients.ranges().iter().any(|range| range.contains(address))
        };
        assert!(allowed("192.168.1.7") && allowed("10.9.9.9") && allowed("fd12::1"));
        assert!(!allowed("192.168.1.8") && !allowed("127.0.0.1"));
    }

    #[test]
    fn a_star_is_everybody_and_a_netmask_a_prefix() {
        let written = |text| Clients::read(text).unwrap().write().to_string();
        assert_eq!(written("*"), "0.0.0.0/0,::/0");
        assert_eq!(written("10.0.0.0/255.255.0.0"), "10.0.0.0/16");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            ",",
            "10.0.0.0/8,",
            "10.0.0.0/33",
            "localhost",
            "10.0.0.0/8 10.1.1.1",
        ] {
            assert!(Clients::read(text).is_err(), "{text}");
        }
        let error = Clients::read("10.1.2.3/8").unwrap_err();
        assert!(error.contains("write 10.0.0.0/8"), "{error}");
    }
}
