//! A pod that has its machine, which has its disk, and of which no container begins. Why, its kubelet tells in events alone, which nobody
//! here watches: after a while people are told where to look. Of an image that it is still pulling it says no more than of a volume that
//! it cannot mount. It is waited for all the same, and nothing is ended for it.

use k8s_openapi::api::core::v1::{Node, Pod};
use resources::names;

use super::machine::is_ready;
use super::{World, held, ready, workload};
use crate::{Part, Plan, State, pod};

/// How it is with such a pod once it is late; nothing of any other. A kubelet that was silent had no time to begin it.
pub(super) fn state(world: &World<'_>, plan: &Plan, pod: &Pod, node: &Node) -> Option<State> {
    let is_attached = plan.state(Part::Attachment) == Some(&State::Done);
    if !(is_attached && is_ready(node) && workload::is_on(pod, node) && pod::is_unbegun(pod)) {
        return None;
    }
    let (placed, attached) = (held::placed_at(pod)?, held::ended(world, Part::Attachment)?);
    let since = placed.max(attached).max(ready::since(node).unwrap_or(placed));
    let (namespace, name) = (&world.validated.subject.namespace, &world.validated.subject.name);
    held::is_late(world, since).then(|| {
        State::Broken(format!(
            "its machine has the disk, and no container has begun there since {since:.0}; most often a volume cannot be mounted, or an \
             image is still being pulled: see the events at the end of kubectl -n {namespace} describe pod {}",
            names::pod(name)
        ))
    })
}
