//! What the operator decides, as pure functions: a valid wish and what is observed give a list of steps as data.
//!
//! `validate` turns a custom resource into a [`Validated`] that cannot be wrong; [`plan()`] compares it with an
//! [`Observed`] world and says what to do next and why; `report` turns the outcome into a status. Builders of manifests
//! are in `build`. No client, no clock (time is a parameter), no async.
//!
//! *Invariant:* every step can be carried out twice, and a crash between any two leads to the same end: what is planned
//! depends on what is observed alone, never on what was planned before.

mod agreement;
mod beside;
pub mod build;
mod change;
mod contest;
mod exclusive;
mod few;
mod goal;
mod hold;
mod identity;
mod in_force;
mod last_copy;
mod matches;
mod misread;
mod misspelt;
mod observed;
mod overrides;
mod overwrite;
mod part;
mod planned;
mod planner;
mod pod;
mod reach;
pub mod references;
mod rehearsal;
mod report;
mod rivals;
pub mod schedule;
pub mod secrets;
mod settings;
pub mod snapshot;
mod step;
mod subject;
mod tables;
mod tagged;
mod unclaimed;
mod upgrade;
mod validate;

pub use agreement::Agreement;
pub use beside::{beside, is_owned, left_beside, unseen_beside};
pub use change::{Change, Reload, Setting};
pub use contest::{Contest, contests, crowds_out};
pub use goal::{Goal, is_leaving};
pub use hold::{is_held, lost_its_hold};
pub use identity::{
    Holder, Identity, MadeFor, Named, Standing, Trace, annotated, copy_of, doubt, identify, is_believed,
    is_for, is_named_by_us, made_for_others, offered_to, settled_identity, trace_of, traces_in_aws,
};
pub use in_force::InForce;
pub use last_copy::{
    Evidence, copies_to_look_at, is_name_known_released, last_copy_to_look_at, number_given, stem_of_order,
    takes_copy, without_last_copy,
};
pub use misread::{misread, unread};
pub use misspelt::is_to_list_keys;
pub use observed::{Account, Children, Dns, Memory, Observed, Unseen, Withheld, rests_on_all};
pub use overwrite::overwriting;
pub use part::Part;
pub use planned::{Action, Elsewhere, Led, Plan, Progress, Renamed, State};
pub use planner::{
    DnsQuestion, Left, Proof, Source, Work, are_as_noted, database_of_text, disk_reported, dns_question,
    has_records, is_named, is_taken, machine_to_check, modification_must_be_read, name_at_rest, names_left,
    names_to_release, owner_text, plan, pod_is_ready, pod_serves, serving, source_to_look_at, work,
};
pub use reach::Reach;
pub use rehearsal::{Rehearsal, rehearse, rehearse_refused};
pub use report::{
    Applied, Failure, can_wait, denied, identified, is_judged, is_reworded, is_suspended, only_begins,
    refused, status, suspended, unidentified, unseen,
};
pub use rivals::{Rival, host_key, host_keys, rivals};
pub use settings::{Neighbours, Settings};
pub use step::{Kind, Manifest, Step, Target};
pub use subject::Subject;
pub use tables::{SuspendedTables, tells_of_tables};
pub use tagged::{
    Lost, Mistagged, carries_our_tags, instance_of, is_disk_left, is_still_its_disk, is_still_ours, lost,
    put_right,
};
pub use unclaimed::{Unclaimed, unclaimed, unclaimed_firewalls};
pub use upgrade::{PodSeen, copy_to_look_at, serves_as, understates, version_on};
pub use validate::{Validated, hostname, is_cidr, validate, validate_over};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod world;
