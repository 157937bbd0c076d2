//! Ports for what a test starts, kills and starts again.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::bail;

/// Below those of stacks, and below the range from which the kernel takes ports for outgoing connections and for whoever
/// asks for any: nobody but another caller is given one of these while its server has yet to start, or is away.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;

/// What was given away in this process.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// An address that nobody has at this moment. No other test of this process is given it.
///
/// # Errors
/// When there is none.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..500 {
        let drawn = uuid::Uuid::now_v7().as_u64_pair().1 % u64::from(COUNT);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + u16::try_from(drawn)?));
        let is_new = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(address.port());
        if is_new && TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between {FIRST} and {}", FIRST + COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_given_what_another_has() {
        let given: BTreeSet<SocketAddr> = (0..50).map(|_| free_address().expect("a free port")).collect();
        assert_eq!(given.len(), 50);
        assert!(given.iter().all(|address| (FIRST..FIRST + COUNT).contains(&address.port())));
    }
}
