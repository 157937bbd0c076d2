//! What a step brings about, so that nobody asks for it twice in a breath.

use super::{Manifest, Step};

impl Step {
    /// What it brings about that a look right after it may not show yet, by a name of its own: to ask for it again meanwhile would
    /// change nothing and cost a request.
    pub fn brings(&self) -> Option<String> {
        match self {
            Self::Apply(Manifest { kind, name, uid: None, .. })
            | Self::CreateSecret(Manifest { kind, name, uid: None, .. }) => {
                Some(format!("{} {name}", kind.as_str()))
            }
            // By then that version is no more: a second write over it would be refused, whatever it says.
            Self::Apply(Manifest { kind, name, body, .. }) => {
                let over = body.pointer("/metadata/resourceVersion")?.as_str()?;
                Some(format!("{} {name} over version {over}", kind.as_str()))
            }
            Self::CreateSecurityGroup(group) => Some(format!("security group {}", group.name)),
            Self::SetMachineGroups { instance, groups } => Some(format!("{instance} in {groups:?}")),
            Self::GuardMetadata { instance } => Some(format!("{instance} with metadata for itself")),
            Self::RunInstance { generation, zone, .. } => Some(format!("machine {generation} in {zone}")),
            Self::CreateVolume(volume) => Some(format!("volume in {}", volume.zone)),
            // The number of what a disk serves is a proof for other steps, which come only after it was written.
            Self::Tag { resource, tags } => {
                tags.get(cloud::key::GENERATION).is_none().then(|| format!("{resource} with {tags:?}"))
            }
            // Which modification is the last one shows late too, and EC2 counts each.
            Self::ModifyVolume { volume, change } => Some(format!("{volume} with {change:?}")),
            Self::LabelNode { uid, labels, .. } => Some(format!("Node {uid} with {labels:?}")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cloud::{Tags, VolumeChange};
    use serde_json::json;

    use super::*;
    use crate::Kind;

    #[test]
    fn what_is_made_has_a_name_and_what_is_changed_or_proves_something_has_none() {
        let manifest = |uid: Option<&str>| Manifest {
            kind: Kind::Service,
            namespace: Some("data".to_owned()),
            name: "trades".to_owned(),
            body: json!({}),
            uid: uid.map(str::to_owned),
        };
        assert_eq!(Step::Apply(manifest(None)).brings().as_deref(), Some("Service trades"));
        assert_eq!(Step::Apply(manifest(Some("u"))).brings(), None, "a change may be needed twice");
        let over = |version: &str| {
            let body = json!({ "metadata": { "resourceVersion": version } });
            Step::Apply(Manifest { body, ..manifest(Some("u")) }).brings()
        };
        assert!(over("7").is_some_and(|what| what != "Service trades"), "what is made is another matter");
        assert_ne!(over("7"), over("8"), "one version is written over once");
        let tag = |key: &str| {
            let tags: Tags = [(key.to_owned(), "1".to_owned())].into_iter().collect();
            Step::Tag { resource: "vol-1".to_owned(), tags }.brings()
        };
        assert!(tag("Name").is_some_and(|what| what.starts_with("vol-1")));
        assert_eq!(tag(cloud::key::GENERATION), None, "what was written is proof for what follows");
        let label = |value: &str| {
            let labels = BTreeMap::from([("of".to_owned(), value.to_owned())]);
            Step::LabelNode { name: "n".to_owned(), uid: "u".to_owned(), labels }.brings()
        };
        assert!(label("a").is_some() && label("a") != label("b"));
        let regroup = |group: &str| {
            Step::SetMachineGroups { instance: "i-1".into(), groups: vec![group.into()] }.brings()
        };
        assert!(regroup("sg-1").is_some() && regroup("sg-1") != regroup("sg-2"));
        let guard = |instance: &str| Step::GuardMetadata { instance: instance.into() }.brings();
        assert!(guard("i-1").is_some() && guard("i-1") != guard("i-2"));
        let modify = |iops: u32| {
            let change = VolumeChange { iops: Some(iops), ..VolumeChange::default() };
            Step::ModifyVolume { volume: "vol-1".into(), change }.brings()
        };
        assert!(
            modify(6_000).is_some() && modify(6_000) != modify(7_000),
            "another wish is asked for at once"
        );
    }
}
