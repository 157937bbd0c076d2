//! The planner: what is observed, compared with what is asked for, gives the steps that can be taken now and how far
//! every part is. Reads top-down in the order of a machine's life.

mod child;
mod disk;
mod existing;
mod machine;
mod name;
mod network;
mod teardown;
mod workload;

use resources::{QuestDB, names};

use crate::{Goal, Observed, Part, Plan, Settings, State, Step, Validated};

pub use disk::modification_must_be_read;
pub use machine::{machine_to_check, serving};
pub use name::{DnsQuestion, dns_question, name_to_release};
pub use workload::pod_is_ready;

/// Everything a decision rests on.
pub(crate) struct World<'a> {
    pub(crate) resource: &'a QuestDB,
    pub(crate) validated: &'a Validated,
    pub(crate) observed: &'a Observed,
    pub(crate) settings: &'a Settings,
}

/// What to do now. `resource` is the one that `validated` was made of.
pub fn plan(resource: &QuestDB, validated: &Validated, observed: &Observed, settings: &Settings) -> Plan {
    let world = World { resource, validated, observed, settings };
    let mut plan = Plan::default();
    if !world.is_held() {
        if !validated.removing {
            let reason = "nothing is made before the resource is sure to be cleaned up after";
            plan.act(Part::Resource, Step::AddFinalizer { mint: false }, reason);
            plan.wait(Part::Resource, "the finalizer is being added");
        }
        return plan;
    }
    match validated.goal {
        Goal::Serve => serve(&world, &mut plan),
        Goal::Pause | Goal::Retire | Goal::Purge => teardown::plan(&world, &mut plan),
    }
    plan
}

fn serve(world: &World<'_>, plan: &mut Plan) {
    workload::credentials(world, plan);
    let group = network::security_group(world, plan);
    let disk = existing::volume(world, plan);
    let Some(disk) = disk else { return };
    let instance = machine::instance(world, plan, group, disk);
    let volume = disk::volume(world, plan, disk, instance);
    let node = machine::node(world, plan, instance);
    let configured = workload::config(world, plan);
    let claimed = disk::claim(world, plan, volume);
    let ready = if let Some(node) = node.filter(|_| configured && claimed) {
        workload::pod(world, plan, node)
    } else {
        plan.say(Part::Attachment, State::Pending);
        plan.say(Part::Pod, State::Pending);
        false
    };
    name::resolve(world, plan, instance.filter(|_| ready));
    machine::surplus(world, plan, instance);
}

impl World<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.resource.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.annotation(key)?.parse().ok()
    }

    fn is_held(&self) -> bool {
        let finalizers = self.resource.metadata.finalizers.as_deref().unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == names::FINALIZER)
    }
}
