//! Who may reach a database, as asked for.

use std::net::IpAddr;

use crate::catalogue;
use crate::desired::Exposure;
use crate::violation::{Rule, Violation, Violations};

const CIDRS: &str = "/network/allowed_cidrs";

/// The CIDRs in their order, each once; tells what is wrong with them.
pub(super) fn check_cidrs(cidrs: &[String], wrong: &mut Violations) -> Vec<String> {
    if cidrs.len() > catalogue::ALLOWED_CIDRS {
        let most = catalogue::ALLOWED_CIDRS;
        wrong.push(Violation::new(CIDRS, Rule::Range, format!("holds at most {most} CIDRs")));
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        if !is_cidr(cidr) {
            let detail = format!(
                "must be a network such as 10.0.0.0/8, of at most {} characters, with no bits set beyond its prefix",
                catalogue::CIDR_LENGTH
            );
            wrong.push(Violation::new(format!("{CIDRS}/{index}"), Rule::Format, detail));
        }
    }
    let mut sorted = cidrs.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

/// Tells that whoever is public has to name who may come in: its operator would refuse it, since nobody could reach it.
pub(super) fn check_exposure(exposure: Exposure, cidrs: &[String], wrong: &mut Violations) {
    if exposure == Exposure::Public && cidrs.is_empty() {
        let detail = "a public database needs at least one CIDR, else nobody could reach it";
        wrong.push(Violation::new(CIDRS, Rule::Required, detail));
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(prefix)) = (address.parse::<IpAddr>(), prefix.parse::<u32>()) else { return false };
    // Whoever parses an address takes more ways of writing one than the custom resource has room for.
    if text.len() > catalogue::CIDR_LENGTH
        || prefix.to_string() != text.rsplit('/').next().unwrap_or_default()
    {
        return false;
    }
    match address {
        IpAddr::V4(v4) => prefix <= 32 && v4.to_bits().checked_shl(prefix).unwrap_or(0) == 0,
        IpAddr::V6(v6) => prefix <= 128 && v6.to_bits().checked_shl(prefix).unwrap_or(0) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_no_host_bits() {
        for good in [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "192.168.1.1/32",
            "::/0",
            "2001:db8::/32",
            "2001:0db8:0000:0000:0000:0000:0000:0001/128",
        ] {
            assert!(is_cidr(good), "{good}");
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "x/8",
            "::1/64",
            "10.0.0.0/+8",
            // Longer than a custom resource takes.
            "0000:0000:0000:0000:0000:ffff:100.100.100.100/128",
        ] {
            assert!(!is_cidr(bad), "{bad}");
        }
    }
}
