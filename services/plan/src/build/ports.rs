//! Which ports a database has for its clients: said once, for Services, firewalls and routes.
//!
//! *Invariant:* a port that asks for no credentials is open to nobody. The line protocol over TCP (9009) asks for none
//! unless QuestDB was given keys: without one QuestDB does not listen there and no firewall lets anybody in. A QuestDB that is
//! told to listen is told its keys in the same breath (the pod's environment), and does not start without their file. One that
//! was started before it was told so may listen without them, so nobody is let in before it was restarted.

use resources::names::port;

use crate::Validated;

/// Ports that clients connect to now, by the name that Services give them.
pub(super) fn of_clients(validated: &Validated) -> Vec<(&'static str, u16)> {
    ports(validated.keyring.open)
}

/// Ports on which a pod that is made now listens for clients.
pub(super) fn of_pod(validated: &Validated) -> Vec<(&'static str, u16)> {
    ports(validated.keyring.ilp)
}

fn ports(ilp: bool) -> Vec<(&'static str, u16)> {
    let ilp = ilp.then_some(("ilp", port::ILP));
    [("http", port::HTTP), ("pg", port::PG)].into_iter().chain(ilp).collect()
}
