//! Ranges of addresses, as they are written where others compare or check them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range without the bits behind its prefix. EC2 keeps it so, and a rule would never be found as it was asked for; Kubernetes
/// takes no other from 1.36 on.
pub(super) fn canonical(cidr: &str) -> String {
    let Some((address, length)) = cidr.split_once('/') else { return cidr.to_owned() };
    match (address.parse::<IpAddr>(), length.parse::<u32>()) {
        (Ok(IpAddr::V4(address)), Ok(length @ 0..=32)) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            format!("{}/{length}", Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        // An IPv4 range in other clothes, in which Kubernetes takes none either.
        (Ok(IpAddr::V6(address)), Ok(length @ 96..=128)) if address.to_ipv4_mapped().is_some() => {
            canonical(&format!("{}/{}", address.to_canonical(), length - 96))
        }
        (Ok(IpAddr::V6(address)), Ok(length @ 0..=128)) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            format!("{}/{length}", Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        _ => cidr.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_as_ec2_keeps_them() {
        for (text, kept) in [
            ("10.0.0.0/16", "10.0.0.0/16"),
            ("10.0.1.7/16", "10.0.0.0/16"),
            ("10.0.1.7/08", "10.0.0.0/8"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("1.2.3.4/32", "1.2.3.4/32"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("2001:DB8::/0", "::/0"),
            ("::ffff:10.0.1.7/112", "10.0.0.0/16"),
            ("::ffff:10.0.1.7/64", "::/64"),
            ("no range", "no range"),
        ] {
            assert_eq!(canonical(text), kept);
        }
    }
}
