//! From the SDK's types to the port's. Pure. What the port must have and the answer lacks is an error, never a default:
//! a volume without a state must not pass for one in any.

use std::time::SystemTime;

use aws_sdk_ec2::types as ec2;
use cloud::{
    Attachment, Error, IngressRule, Instance, PeerRange, SecurityGroup, Tags, Volume, VolumeChange,
    VolumeModification, VolumeSnapshot,
};

use crate::request::{Request, lacks};

/// What an answer lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing(&'static str);

impl Missing {
    pub(crate) fn of(self, request: Request) -> Error {
        lacks(request, self.0)
    }
}

pub(crate) fn required<T>(value: Option<T>, name: &'static str) -> Result<T, Missing> {
    value.ok_or(Missing(name))
}

/// All or the first that lacks something: a list that is short without a word would look like absence.
pub(crate) fn all<A, B>(
    request: Request,
    found: Vec<A>,
    convert: impl Fn(A) -> Result<B, Missing>,
) -> Result<Vec<B>, Error> {
    found.into_iter().map(|one| convert(one).map_err(|missing| missing.of(request))).collect()
}

pub(crate) fn tags(tags: Option<Vec<ec2::Tag>>) -> Tags {
    let tags = tags.unwrap_or_default().into_iter();
    tags.filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default()))).collect()
}

pub(crate) fn instance(seen: ec2::Instance) -> Result<Instance, Missing> {
    let state = required(seen.state.and_then(|state| state.name), "instance state")?;
    let zone = seen.placement.and_then(|placement| placement.availability_zone);
    let groups = seen.security_groups.unwrap_or_default().into_iter();
    Ok(Instance {
        id: required(seen.instance_id, "instance id")?.into(),
        state: state.as_str().into(),
        state_reason: seen.state_reason.and_then(|reason| reason.code).filter(|code| !code.is_empty()),
        zone: required(zone, "availability zone")?,
        subnet: seen.subnet_id.filter(|subnet| !subnet.is_empty()),
        vpc: seen.vpc_id.filter(|vpc| !vpc.is_empty()),
        private_ip: seen.private_ip_address.and_then(|address| address.parse().ok()),
        instance_type: required(seen.instance_type, "instance type")?.as_str().to_owned(),
        image: seen.image_id.unwrap_or_default(),
        security_groups: groups.filter_map(|group| Some(group.group_id?.into())).collect(),
        metadata_guarded: seen.metadata_options.as_ref().and_then(is_guarded),
        tags: tags(seen.tags),
        client_token: seen.client_token.filter(|token| !token.is_empty()),
        protection: None,
        launched_at: time(seen.launch_time),
    })
}

/// Whether nobody but the machine's own processes has an answer from its metadata service, and these in sessions alone.
fn is_guarded(options: &ec2::InstanceMetadataOptionsResponse) -> Option<bool> {
    if options.http_endpoint == Some(ec2::InstanceMetadataEndpointState::Disabled) {
        return Some(true);
    }
    match options.http_tokens.as_ref()? {
        ec2::HttpTokensState::Required => Some(options.http_put_response_hop_limit? <= 1),
        ec2::HttpTokensState::Optional => Some(false),
        _ => None,
    }
}

/// The interface that a machine was launched with, by its id: others may be attached to it, in whatever order EC2 shows them.
pub(crate) fn first_interface(seen: ec2::Instance) -> Option<String> {
    let is_first = |one: &ec2::InstanceNetworkInterface| {
        one.attachment.as_ref().and_then(|attachment| attachment.device_index) == Some(0)
    };
    seen.network_interfaces?.into_iter().find(is_first)?.network_interface_id
}

pub(crate) fn volume(seen: ec2::Volume) -> Result<Volume, Missing> {
    let attachments = seen.attachments.unwrap_or_default();
    Ok(Volume {
        id: required(seen.volume_id, "volume id")?.into(),
        state: required(seen.state, "volume state")?.as_str().into(),
        zone: required(seen.availability_zone, "availability zone")?,
        size_gib: required(number(seen.size), "volume size")?,
        kind: required(seen.volume_type, "volume type")?.as_str().into(),
        iops: number(seen.iops),
        throughput: number(seen.throughput),
        encrypted: seen.encrypted.unwrap_or_default(),
        snapshot: seen.snapshot_id.filter(|snapshot| !snapshot.is_empty()),
        attachments: attachments.into_iter().map(attachment).collect::<Result<_, _>>()?,
        tags: tags(seen.tags),
        created_at: time(seen.create_time),
    })
}

pub(crate) fn attachment(seen: ec2::VolumeAttachment) -> Result<Attachment, Missing> {
    Ok(Attachment {
        volume: required(seen.volume_id, "volume id of the attachment")?.into(),
        instance: required(seen.instance_id, "instance id of the attachment")?.into(),
        device: seen.device.unwrap_or_default(),
        state: required(seen.state, "attachment state")?.as_str().into(),
        goes_with_machine: seen.delete_on_termination.unwrap_or_default(),
    })
}

pub(crate) fn modification(seen: ec2::VolumeModification) -> Result<VolumeModification, Missing> {
    Ok(VolumeModification {
        volume: required(seen.volume_id, "volume id of the modification")?.into(),
        state: required(seen.modification_state, "modification state")?.as_str().into(),
        progress: seen.progress.and_then(|progress| u8::try_from(progress).ok()),
        target: VolumeChange {
            size_gib: number(seen.target_size),
            kind: seen.target_volume_type.map(|kind| kind.as_str().into()),
            iops: number(seen.target_iops),
            throughput: number(seen.target_throughput),
        },
        message: seen.status_message.filter(|message| !message.is_empty()),
        started_at: time(seen.start_time),
    })
}

pub(crate) fn snapshot(seen: ec2::Snapshot) -> Result<VolumeSnapshot, Missing> {
    let progress = seen.progress.as_deref().and_then(|progress| progress.trim_end_matches('%').parse().ok());
    Ok(VolumeSnapshot {
        id: required(seen.snapshot_id, "snapshot id")?.into(),
        state: required(seen.state, "snapshot state")?.as_str().into(),
        volume: required(seen.volume_id, "volume id of the snapshot")?.into(),
        size_gib: required(number(seen.volume_size), "size of the snapshot's volume")?,
        progress,
        message: seen.state_message.filter(|message| !message.is_empty()),
        encrypted: seen.encrypted.unwrap_or_default(),
        tags: tags(seen.tags),
        started_at: time(seen.start_time),
    })
}

pub(crate) fn security_group(seen: ec2::SecurityGroup) -> Result<SecurityGroup, Missing> {
    let mut ingress: Vec<_> = seen.ip_permissions.unwrap_or_default().into_iter().flat_map(rules).collect();
    ingress.sort_unstable();
    Ok(SecurityGroup {
        id: required(seen.group_id, "security group id")?.into(),
        name: required(seen.group_name, "security group name")?,
        vpc: seen.vpc_id.unwrap_or_default(),
        description: seen.description.unwrap_or_default(),
        ingress,
        tags: tags(seen.tags),
    })
}

/// A permission with several peers as one rule for each.
fn rules(permission: ec2::IpPermission) -> impl Iterator<Item = IngressRule> {
    let ec2::IpPermission { ip_protocol, from_port, to_port, .. } = &permission;
    let protocol = cloud::Protocol::from(ip_protocol.as_deref().unwrap_or("-1"));
    // Protocols without ports have none, or -1.
    let port =
        |port: &Option<i32>, otherwise| port.and_then(|port| u16::try_from(port).ok()).unwrap_or(otherwise);
    let (from_port, to_port) = (port(from_port, u16::MIN), port(to_port, u16::MAX));
    let ipv4 = permission.ip_ranges.unwrap_or_default().into_iter();
    let ipv6 = permission.ipv6_ranges.unwrap_or_default().into_iter();
    let groups = permission.user_id_group_pairs.unwrap_or_default().into_iter();
    let lists = permission.prefix_list_ids.unwrap_or_default().into_iter();
    ipv4.filter_map(|range| range.cidr_ip.map(PeerRange::Ipv4))
        .chain(ipv6.filter_map(|range| range.cidr_ipv6.map(PeerRange::Ipv6)))
        .chain(groups.filter_map(|pair| pair.group_id.map(|id| PeerRange::Group(id.into()))))
        .chain(lists.filter_map(|list| list.prefix_list_id.map(PeerRange::PrefixList)))
        .map(move |peer| IngressRule { protocol: protocol.clone(), from_port, to_port, peer })
}

/// A rule as EC2 takes it.
pub(crate) fn permission(rule: &IngressRule) -> ec2::IpPermission {
    let IngressRule { protocol, from_port, to_port, peer } = rule;
    let mut permission = ec2::IpPermission::builder().ip_protocol(protocol.as_str());
    if *protocol != cloud::Protocol::All {
        permission = permission.from_port(i32::from(*from_port)).to_port(i32::from(*to_port));
    }
    match peer {
        PeerRange::Ipv4(range) => permission.ip_ranges(ec2::IpRange::builder().cidr_ip(range).build()),
        PeerRange::Ipv6(range) => permission.ipv6_ranges(ec2::Ipv6Range::builder().cidr_ipv6(range).build()),
        PeerRange::Group(id) => {
            permission.user_id_group_pairs(ec2::UserIdGroupPair::builder().group_id(id.as_str()).build())
        }
        PeerRange::PrefixList(id) => {
            permission.prefix_list_ids(ec2::PrefixListId::builder().prefix_list_id(id).build())
        }
    }
    .build()
}

/// Our tags for a request that creates a resource of this type; none when there are none (EC2 refuses an empty list).
pub(crate) fn tagged(kind: ec2::ResourceType, tags: &Tags) -> Option<Vec<ec2::TagSpecification>> {
    let specification = ec2::TagSpecification::builder().resource_type(kind).set_tags(Some(sdk_tags(tags)));
    (!tags.is_empty()).then(|| vec![specification.build()])
}

pub(crate) fn sdk_tags(tags: &Tags) -> Vec<ec2::Tag> {
    tags.iter().map(|(key, value)| ec2::Tag::builder().key(key).value(value).build()).collect()
}

/// EC2's numbers are signed; ours cannot be negative.
fn number(value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok())
}

fn time(value: Option<aws_sdk_ec2::primitives::DateTime>) -> Option<SystemTime> {
    value.and_then(|value| SystemTime::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use cloud::{InstanceState, Protocol, VolumeState};

    use super::*;
    use crate::request::DESCRIBE_VOLUMES;

    #[test]
    fn a_metadata_service_is_guarded_that_answers_no_packet_from_further_away_and_nobody_without_a_session() {
        use ec2::HttpTokensState::{Optional, Required};
        let options = |tokens: Option<ec2::HttpTokensState>, hops: Option<i32>| {
            ec2::InstanceMetadataOptionsResponse::builder()
                .set_http_tokens(tokens)
                .set_http_put_response_hop_limit(hops)
        };
        for (tokens, hops, expected) in [
            (Some(Required), Some(1), Some(true)),
            (Some(Required), Some(2), Some(false)),
            (Some(Optional), Some(1), Some(false)),
            (Some(Optional), Some(64), Some(false)),
            (None, Some(1), None),
            (Some("stricter".into()), Some(1), None),
            (Some(Required), None, None),
            // Without sessions nobody's way is too long.
            (Some(Optional), None, Some(false)),
        ] {
            let options = options(tokens, hops);
            assert_eq!(is_guarded(&options.clone().build()), expected, "{options:?}");
            // One that is off answers nobody.
            let off = options.http_endpoint(ec2::InstanceMetadataEndpointState::Disabled).build();
            assert_eq!(is_guarded(&off), Some(true), "{off:?}");
        }
    }

    fn sdk_volume() -> ec2::builders::VolumeBuilder {
        ec2::Volume::builder()
            .volume_id("vol-1")
            .state(ec2::VolumeState::InUse)
            .availability_zone("eu-west-1a")
            .size(10)
            .volume_type(ec2::VolumeType::Gp3)
    }

    #[test]
    fn what_must_be_there_and_is_not_is_an_error() {
        let check = |builder: ec2::builders::VolumeBuilder, lacks: &'static str| {
            assert_eq!(volume(builder.build()).unwrap_err(), Missing(lacks));
        };
        check(sdk_volume().set_volume_id(None), "volume id");
        check(sdk_volume().set_state(None), "volume state");
        check(sdk_volume().set_availability_zone(None), "availability zone");
        check(sdk_volume().set_size(None), "volume size");
        check(sdk_volume().size(-1), "volume size");
        check(
            sdk_volume().attachments(ec2::VolumeAttachment::builder().build()),
            "volume id of the attachment",
        );
        let error = all(DESCRIBE_VOLUMES, vec![sdk_volume().set_state(None).build()], volume).unwrap_err();
        assert!(error.outcome_unknown());
    }

    #[test]
    fn a_disk_that_goes_with_its_machine_is_known() {
        let seen = |marked: Option<bool>| {
            let attachment = ec2::VolumeAttachment::builder().volume_id("vol-1").instance_id("i-1");
            let attachment = attachment.state(ec2::VolumeAttachmentState::Attached);
            let attachment = attachment.set_delete_on_termination(marked).build();
            volume(sdk_volume().attachments(attachment).build()).unwrap().attachments[0].goes_with_machine
        };
        assert_eq!([seen(Some(true)), seen(Some(false)), seen(None)], [true, false, false]);
    }

    #[test]
    fn the_progress_of_a_snapshot_is_a_number() {
        let seen = |progress: Option<&str>| {
            let seen = ec2::Snapshot::builder().snapshot_id("snap-1").state(ec2::SnapshotState::Pending);
            let seen = seen.volume_id("vol-1").volume_size(10).set_progress(progress.map(str::to_owned));
            snapshot(seen.build()).unwrap().progress
        };
        assert_eq!(
            [seen(Some("42%")), seen(Some("")), seen(Some("?")), seen(None)],
            [Some(42), None, None, None]
        );
        let lacking = ec2::Snapshot::builder().snapshot_id("snap-1").build();
        assert_eq!(snapshot(lacking).unwrap_err(), Missing("snapshot state"));
    }

    #[test]
    fn a_modification_tells_all_that_the_volume_will_be() {
        let seen = ec2::VolumeModification::builder()
            .volume_id("vol-1")
            .modification_state(ec2::VolumeModificationState::Optimizing)
            .progress(42)
            .target_size(80)
            .target_volume_type(ec2::VolumeType::Io2)
            .target_iops(6_000)
            .target_throughput(250);
        let seen = modification(seen.build()).unwrap();
        let expected = VolumeChange {
            size_gib: Some(80),
            kind: Some("io2".into()),
            iops: Some(6_000),
            throughput: Some(250),
        };
        assert_eq!((seen.progress, seen.target), (Some(42), expected));
        let lacking = ec2::VolumeModification::builder().volume_id("vol-1").build();
        assert_eq!(modification(lacking).unwrap_err(), Missing("modification state"));
    }

    #[test]
    fn words_that_are_new_to_us_are_kept() {
        let seen = sdk_volume().state("defrosting".into()).volume_type("gp9".into()).build();
        let seen = volume(seen).unwrap();
        assert_eq!(seen.state, VolumeState::Unknown("defrosting".into()));
        assert_eq!(seen.kind.as_str(), "gp9");
        assert!(!seen.is_detached());
    }

    #[test]
    fn a_terminated_instance_has_no_place_in_a_network() {
        let seen = ec2::Instance::builder()
            .instance_id("i-1")
            .state(ec2::InstanceState::builder().name(ec2::InstanceStateName::Terminated).build())
            .placement(ec2::Placement::builder().availability_zone("eu-west-1a").build())
            .instance_type(ec2::InstanceType::M6iLarge)
            .subnet_id("")
            .client_token("")
            .build();
        let seen = instance(seen).unwrap();
        assert_eq!((seen.state, seen.subnet, seen.private_ip), (InstanceState::Terminated, None, None));
        assert_eq!(seen.client_token, None);
    }

    #[test]
    fn the_first_interface_is_the_one_that_a_machine_was_launched_with() {
        let interface = |id: &str, index: Option<i32>| {
            let attachment = ec2::InstanceNetworkInterfaceAttachment::builder().set_device_index(index);
            let interface = ec2::InstanceNetworkInterface::builder().network_interface_id(id);
            interface.attachment(attachment.build()).build()
        };
        let first = |interfaces: Vec<ec2::InstanceNetworkInterface>| {
            let seen = ec2::Instance::builder().set_network_interfaces(Some(interfaces));
            first_interface(seen.build())
        };
        let later = || interface("eni-2", Some(1));
        assert_eq!(first(vec![later(), interface("eni-1", Some(0))]).as_deref(), Some("eni-1"));
        assert_eq!(first(vec![later(), interface("eni-3", None)]), None);
        assert_eq!(first_interface(ec2::Instance::builder().build()), None, "it has ended");
    }

    #[test]
    fn each_peer_is_a_rule_and_survives_the_way_back() {
        let permission_of_two = ec2::IpPermission::builder()
            .ip_protocol("tcp")
            .from_port(9000)
            .to_port(9000)
            .ip_ranges(ec2::IpRange::builder().cidr_ip("10.0.0.0/8").build())
            .ipv6_ranges(ec2::Ipv6Range::builder().cidr_ipv6("fd00::/8").build())
            .build();
        let expect = [IngressRule::tcp(9000, "10.0.0.0/8"), IngressRule::tcp(9000, "fd00::/8")];
        assert_eq!(rules(permission_of_two).collect::<Vec<_>>(), expect);
        let everything = IngressRule {
            protocol: Protocol::All,
            from_port: 0,
            to_port: u16::MAX,
            peer: PeerRange::Group("sg-1".into()),
        };
        for rule in expect.into_iter().chain([everything]) {
            assert_eq!(rules(permission(&rule)).collect::<Vec<_>>(), [rule]);
        }
    }
}
