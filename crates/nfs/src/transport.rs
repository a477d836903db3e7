//! Protection of connections, and the protection that a rule requires (`xprtsec` of exports(5)).

/// How a connection is protected, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Not protected: any attacker on the path can read and change the data.
    Plain,
    /// TLS: the client has authenticated the server, and attackers on the path can neither read nor change the data.
    Tls,
    /// TLS in which the client has shown a certificate that was accepted.
    Mutual,
}

/// Which connections a rule accepts (`none`, `tls`, `mtls`). A connection with better protection than a listed one is
/// accepted as well, so only the weakest one listed matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transports {
    /// Without TLS.
    pub none: bool,
    /// With TLS, whether or not the client has a certificate.
    pub tls: bool,
    /// With TLS, by clients with a certificate.
    pub mtls: bool,
}

impl Transports {
    /// Any protection, as the client chooses.
    pub const ANY: Transports = Transports {
        none: true,
        tls: true,
        mtls: true,
    };

    /// Returns the weakest protection that is accepted; `None` if no connection is good enough.
    pub fn weakest(self) -> Option<Transport> {
        match self {
            Transports { none: true, .. } => Some(Transport::Plain),
            Transports { tls: true, .. } => Some(Transport::Tls),
            Transports { mtls: true, .. } => Some(Transport::Mutual),
            Transports { .. } => None,
        }
    }

    /// Whether calls over a connection with this protection are accepted.
    pub(crate) fn admit(self, transport: Transport) -> bool {
        self.weakest().is_some_and(|weakest| transport >= weakest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_that_is_listed_and_everything_better_is_taken() {
        let taken = |none, tls, mtls| {
            let transports = Transports { none, tls, mtls };
            [Transport::Plain, Transport::Tls, Transport::Mutual].map(|t| transports.admit(t))
        };
        assert_eq!(taken(true, true, true), [true; 3]);
        assert_eq!(taken(true, false, false), [true; 3]);
        assert_eq!(taken(false, true, true), [false, true, true]);
        assert_eq!(taken(false, true, false), [false, true, true]);
        assert_eq!(taken(false, false, true), [false, false, true]);
        assert_eq!(taken(false, false, false), [false; 3]);
    }
}
