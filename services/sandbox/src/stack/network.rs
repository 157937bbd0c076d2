//! The addresses of a stack's machines: one /20 that no other stack on this machine uses.
//!
//! Chooses and computes only; the AWS endpoint hands the addresses out and the node agent puts them on interfaces.

use std::net::Ipv4Addr;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Environment variable by which a running stack shows its network to others.
pub(super) const MARKER: &str = "SLIPWAY_STACK_NETWORK";

/// A /20 of 10.250.0.0/16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Which of the sixteen.
    pub index: u8,
}

impl Network {
    /// The whole network: `10.250.16.0/20`.
    pub fn cidr(self) -> String {
        format!("{}/20", self.first())
    }

    /// Its first address.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 250, self.index * 16, 0)
    }

    /// Whether an address lies in it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let [first, second, third, _] = address.octets();
        (first, second, third / 16) == (10, 250, self.index)
    }

    /// The first network, counted from `start`, that neither a route nor another stack uses.
    pub fn choose(routes: &str, taken: &[String], start: u8) -> anyhow::Result<Self> {
        (0..16)
            .map(|step| Self { index: (start + step) % 16 })
            .find(|network| !network.is_routed(routes) && !taken.contains(&network.cidr()))
            .context("all of 10.250.0.0/16 is in use on this machine; 'cargo xtask down' in other checkouts frees some")
    }

    /// Whether the output of `ip route` names an address of it.
    pub fn is_routed(self, routes: &str) -> bool {
        routes
            .split_whitespace()
            .filter_map(|word| word.split('/').next()?.parse().ok())
            .any(|address| self.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_routed_or_taken_is_passed_over() {
        let routes = "default via 192.0.2.1 dev eth0\n10.250.16.0/22 dev sw-a proto kernel src 10.250.16.1\n";
        let taken = vec!["10.250.32.0/20".to_owned()];
        for (start, expect) in [(0, 0), (1, 3), (2, 3), (15, 15)] {
            let network = Network::choose(routes, &taken, start).expect("some are free");
            assert_eq!(network.index, expect, "from {start}");
        }
        let all: Vec<String> = (0..16).map(|index| Network { index }.cidr()).collect();
        assert!(Network::choose("", &all, 0).is_err());
    }

    #[test]
    fn addresses_belong_to_one_network() {
        let network = Network { index: 15 };
        assert_eq!(network.cidr(), "10.250.240.0/20");
        assert!(network.contains(Ipv4Addr::new(10, 250, 255, 9)));
        assert!(!network.contains(Ipv4Addr::new(10, 250, 239, 9)));
        assert!(!network.contains(Ipv4Addr::new(10, 251, 240, 9)));
    }
}
