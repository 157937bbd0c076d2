//! Where the objects lie that go with a resource. Nobody but the operator takes them away: they have no `ownerReference`
//! ([`names::RESOURCE`]), so Kubernetes' garbage collector knows nothing of them.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use resources::names;

use crate::identity::goes_with;
use crate::{Goal, Kind, Subject, Target, Unseen, Validated};

/// Kind and name of each in the namespace of the resource, be it there or not. Not among them are the pod, which its StatefulSet
/// takes along, the claim, and credentials that may stay beside their disk.
pub fn beside(validated: &Validated) -> Vec<(Kind, String)> {
    let name = &validated.subject.name;
    let mut all = vec![
        (Kind::StatefulSet, name.clone()),
        (Kind::ConfigMap, names::config(name)),
        (Kind::Service, name.clone()),
        (Kind::Service, names::headless(name)),
        (Kind::NetworkPolicy, names::guard(name)),
        (Kind::PodDisruptionBudget, names::guard(name)),
        (Kind::ServiceMonitor, name.clone()),
        (Kind::PodMonitor, name.clone()),
        (Kind::IngressRoute, name.clone()),
        (Kind::IngressRouteTcp, names::route_pg(name)),
        (Kind::IngressRouteTcp, names::route_ilp(name)),
    ];
    // One may have been handed out without anybody having noted it.
    let drawn = validated.credentials.ilp.iter().flat_map(|ilp| &ilp.drawn);
    all.extend(drawn.map(|id| (Kind::Secret, names::drawn_key(name, id))));
    if validated.goal == Goal::Purge {
        all.push((Kind::Secret, names::credentials(name)));
    }
    all
}

/// What of it we may not look for, with the reason: it may stay when the resource goes.
pub fn unseen_beside(validated: &Validated, unseen: &BTreeMap<Kind, Unseen>) -> Vec<String> {
    let told = |(kind, name): (Kind, String)| match unseen.get(&kind)? {
        Unseen::Refused(why) => Some(format!("{} {name} ({why})", kind.as_str())),
        // These are asked for one by one.
        Unseen::Yet | Unseen::Broken(_) => None,
    };
    beside(validated).into_iter().filter_map(told).collect()
}

/// What is to be deleted when this is found there; nothing when it is somebody else's.
pub fn left_beside(subject: &Subject, kind: Kind, found: &ObjectMeta) -> Option<Target> {
    subject.holds(found).then(|| Target::of(kind, found))
}

/// Whether an object is to go with the resource of this uid, or would be taken away with it by Kubernetes.
pub fn is_owned(found: &ObjectMeta, uid: &str) -> bool {
    goes_with(found, uid) || refers(found, uid)
}

/// Whether Kubernetes takes an object away with the resource of this uid.
pub(crate) fn refers(found: &ObjectMeta, uid: &str) -> bool {
    found.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build;
    use crate::fixture::{resource, settings, subject, validated};

    #[test]
    fn what_goes_with_a_resource_is_looked_for_under_its_own_name() {
        let wish = validated(&resource(1));
        let made = [
            build::stateful_set(&wish, "node", None),
            build::config_map(&wish),
            build::service(&wish),
            build::headless(&wish),
            build::network_policy(&wish, &settings()),
            build::disruption_budget(&wish.subject),
        ];
        let all = beside(&wish);
        for manifest in made {
            let mark = &manifest.body["metadata"]["annotations"][names::RESOURCE];
            assert_eq!(*mark, json!(wish.subject.uid), "{}", manifest.name);
            assert!(manifest.body.pointer("/metadata/ownerReferences").is_none(), "{}", manifest.name);
            assert!(all.contains(&(manifest.kind, manifest.name.clone())), "{}", manifest.name);
        }
    }

    #[test]
    fn credentials_are_left_over_only_where_nothing_is_to_stay() {
        let own = (Kind::Secret, names::credentials(&subject().name));
        let mut wish = validated(&resource(1));
        wish.goal = Goal::Retire;
        assert!(!beside(&wish).contains(&own));
        wish.goal = Goal::Purge;
        assert!(beside(&wish).contains(&own));
    }

    #[test]
    fn what_cannot_be_looked_for_is_told_with_the_reason() {
        let wish = validated(&resource(1));
        let told = |unseen: &[(Kind, Unseen)]| unseen_beside(&wish, &unseen.iter().cloned().collect());
        let refused = || Unseen::Refused("grant it".to_owned());
        let name = &wish.subject.name;
        assert_eq!(told(&[]), [""; 0], "what a cluster does not know is not there");
        assert_eq!(
            told(&[(Kind::IngressRoute, refused()), (Kind::PodMonitor, refused())]),
            [format!("PodMonitor {name} (grant it)"), format!("IngressRoute {name} (grant it)")]
        );
        assert_eq!(told(&[(Kind::IngressRouteTcp, refused())]).len(), 2, "each of its routes");
        for asked in [Unseen::Yet, Unseen::Broken("no answer".to_owned())] {
            assert_eq!(told(&[(Kind::IngressRoute, asked)]), [""; 0], "it is asked for");
        }
    }

    #[test]
    fn nothing_of_somebody_else_is_left_over() {
        let subject = subject();
        let left = |metadata: serde_json::Value| {
            let found = serde_json::from_value(metadata).unwrap();
            left_beside(&subject, Kind::ConfigMap, &found).map(|target| target.uid)
        };
        let metadata =
            |uid: &str| json!({ "name": "a", "uid": "1", "annotations": { names::RESOURCE: uid } });
        assert_eq!(left(metadata(&subject.uid)).as_deref(), Some("1"));
        assert_eq!(
            left(json!({ "name": "a", "uid": "1", "labels": subject.labels() })).as_deref(),
            Some("1")
        );
        assert_eq!(left(metadata("other")), None);
        assert_eq!(left(json!({ "name": "a", "uid": "1" })), None);
    }
}
