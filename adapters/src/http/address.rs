//! Which addresses may be dialled: public ones, and of the special ranges only what an origin's configuration allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::AllowedAddresses;

/// What range an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    Public,
    Loopback,
    Private,
    /// Link-local, metadata, shared, multicast, documentation, benchmark, reserved, tunnelled.
    Special,
}

/// An address as it is dialled: an IPv4 address mapped into IPv6 is the IPv4 address.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

pub(crate) fn range(address: IpAddr) -> Range {
    match canonical(address) {
        IpAddr::V4(address) => range_v4(address),
        IpAddr::V6(address) => range_v6(address),
    }
}

fn range_v4(address: Ipv4Addr) -> Range {
    /// Azure's metadata and name service, in an otherwise public range.
    const PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => Range::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Range::Private,
        (0, ..)                       // this network
        | (100, 64..=127, _)          // shared by carriers
        | (169, 254, _)               // link-local, metadata services
        | (192, 0, 0 | 2)             // protocol assignments, documentation
        | (192, 31, 196)              // AS112
        | (192, 52, 193)              // AMT
        | (192, 88, 99)               // 6to4 relays
        | (192, 175, 48)              // AS112
        | (198, 18..=19, _)           // benchmarks
        | (198, 51, 100)              // documentation
        | (203, 0, 113)               // documentation
        | (224..=255, ..) => Range::Special, // multicast, reserved, broadcast
        _ if address == PLATFORM => Range::Special,
        _ => Range::Public,
    }
}

fn range_v6(address: Ipv6Addr) -> Range {
    let [a, b, ..] = address.segments();
    match (a, b) {
        _ if address.is_loopback() => Range::Loopback,
        (0xfc00..=0xfdff, _) => Range::Private,
        (0x2001, 0..=0x1ff)           // protocol assignments, Teredo
        | (0x2001, 0xdb8)             // documentation
        | (0x2002, _)                 // 6to4
        | (0x3fff, 0..=0xfff) => Range::Special, // documentation
        (0x2000..=0x3fff, _) => Range::Public,
        _ => Range::Special,          // everything outside 2000::/3
    }
}

impl AllowedAddresses {
    /// Whether an address may be dialled.
    pub(crate) fn permits(&self, address: IpAddr) -> bool {
        match range(address) {
            Range::Public => true,
            Range::Loopback if self.loopback => true,
            Range::Private if self.private => true,
            _ => self.exact.iter().any(|exact| canonical(*exact) == canonical(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(text: &str, expected: Range) {
        assert_eq!(range(text.parse().expect("an address")), expected, "{text}");
    }

    #[test]
    fn special_ranges_are_known() {
        for public in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "2606:4700::1",
            "::ffff:8.8.8.8",
        ] {
            is(public, Range::Public);
        }
        for loopback in ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"] {
            is(loopback, Range::Loopback);
        }
        for private in
            ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "::ffff:10.1.2.3"]
        {
            is(private, Range::Private);
        }
        for special in [
            "0.0.0.0",
            "100.64.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "fe80::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002::1",
            "3fff::1",
            "64:ff9b::1",
            "::ffff:169.254.169.254",
            "::7f00:1",
        ] {
            is(special, Range::Special);
        }
    }

    #[test]
    fn special_addresses_need_consent() {
        let address = |text: &str| text.parse().expect("an address");
        let none = AllowedAddresses::default();
        assert!(none.permits(address("1.1.1.1")));
        assert!(!none.permits(address("127.0.0.1")));
        assert!(!none.permits(address("10.0.0.1")));
        let both = AllowedAddresses { loopback: true, private: true, exact: Vec::new() };
        assert!(both.permits(address("::1")) && both.permits(address("10.0.0.1")));
        assert!(
            !both.permits(address("169.254.169.254")),
            "consent to private addresses is none to metadata"
        );
        let exact = AllowedAddresses { exact: vec![address("169.254.169.254")], ..none };
        assert!(exact.permits(address("::ffff:169.254.169.254")));
        assert!(!exact.permits(address("169.254.169.253")));
    }
}
