//! Which ports a database has for its clients: said once, for Services, firewalls and routes.
//!
//! *Invariant:* a port that asks for no credentials is open to nobody. The line protocol over TCP (9009) asks for none
//! unless QuestDB was given keys, so QuestDB does not listen there and no firewall lets anybody in; over HTTP (9000) it asks
//! for the same password as everything else.

use resources::names::port;

use crate::Validated;

/// Ports that clients connect to, by the name that Services give them.
pub(super) fn of_clients(_: &Validated) -> Vec<(&'static str, u16)> {
    vec![("http", port::HTTP), ("pg", port::PG)]
}
