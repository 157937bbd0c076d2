"""Security groups: in use, referred to, unknown for a while."""

from __future__ import annotations

from typing import Any

from endpoint import Endpoint, refused, token

RULE = [
    {
        "IpProtocol": "tcp",
        "FromPort": 9000,
        "ToPort": 9000,
        "IpRanges": [{"CidrIp": "10.0.0.0/8"}],
    }
]


def created(endpoint: Endpoint) -> str:
    answer = endpoint.ec2.create_security_group(
        GroupName=token(), Description="d", VpcId=endpoint.network.vpc_id
    )
    endpoint.advance(1)
    return str(answer["GroupId"])


def rules(endpoint: Endpoint, group_id: str) -> Any:
    answer = endpoint.ec2.describe_security_groups(GroupIds=[group_id])
    return answer["SecurityGroups"][0]["IpPermissions"]


def test_rules(strict: Endpoint) -> None:
    group_id = created(strict)
    strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=RULE)
    assert [rule["FromPort"] for rule in rules(strict, group_id)] == [9000]
    with refused("InvalidPermission.Duplicate"):
        strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=RULE)
    strict.ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=RULE)
    assert rules(strict, group_id) == []
    with refused("InvalidPermission.NotFound"):
        strict.ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=RULE)


def test_too_many_rules_are_refused_all_at_once(strict: Endpoint) -> None:
    group_id = created(strict)

    def authorize(first: int, last: int) -> None:
        # Each in a permission of its own.
        permissions = [
            {**RULE[0], "IpRanges": [{"CidrIp": f"10.{number}.0.0/16"}]}
            for number in range(first, last)
        ]
        strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=permissions)

    with refused("RulesPerSecurityGroupLimitExceeded"):
        authorize(0, 61)
    assert rules(strict, group_id) == []
    authorize(0, 58)
    with refused("RulesPerSecurityGroupLimitExceeded"):
        authorize(58, 61)
    assert len(rules(strict, group_id)[0]["IpRanges"]) == 58
    authorize(58, 60)
    assert len(rules(strict, group_id)[0]["IpRanges"]) == 60


def test_rules_count_by_family_of_addresses(strict: Endpoint) -> None:
    group_id = created(strict)
    ranges = [{"CidrIp": f"10.{number}.0.0/16"} for number in range(60)]
    ipv6 = [{"CidrIpv6": f"fd00:{number:x}::/32"} for number in range(60)]
    both = [{**RULE[0], "IpRanges": ranges, "Ipv6Ranges": ipv6}]
    strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=both)
    found = rules(strict, group_id)[0]
    assert (len(found["IpRanges"]), len(found["Ipv6Ranges"])) == (60, 60)
    # A group has addresses of both.
    other = {"IpProtocol": "tcp", "FromPort": 9000, "ToPort": 9000}
    other["UserIdGroupPairs"] = [{"GroupId": created(strict)}]
    for family in ("IpRanges", "Ipv6Ranges"):
        with refused("RulesPerSecurityGroupLimitExceeded"):
            strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=[other])
        one = [{**RULE[0], "IpRanges": [], family: found[family][:1]}]
        strict.ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=one)
    strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=[other])


def test_name_is_unique_in_its_network(strict: Endpoint) -> None:
    group = {"GroupName": token(), "Description": "d", "VpcId": strict.network.vpc_id}
    strict.ec2.create_security_group(**group)
    with refused("InvalidGroup.Duplicate"):
        strict.ec2.create_security_group(**group)


def test_group_in_use_stays(strict: Endpoint) -> None:
    group_id = created(strict)
    instance_id = strict.running(SecurityGroupIds=[group_id])
    assert [group["GroupId"] for group in strict.instance(instance_id)["SecurityGroups"]] == [
        group_id
    ]
    with refused("DependencyViolation"):
        strict.ec2.delete_security_group(GroupId=group_id)
    strict.ec2.terminate_instances(InstanceIds=[instance_id])
    with refused("DependencyViolation"):
        strict.ec2.delete_security_group(GroupId=group_id)
    strict.advance(2)
    strict.ec2.delete_security_group(GroupId=group_id)
    with refused("InvalidGroup.NotFound"):
        strict.ec2.delete_security_group(GroupId=group_id)


def groups_of(endpoint: Endpoint, instance_id: str) -> list[str]:
    return [group["GroupId"] for group in endpoint.instance(instance_id)["SecurityGroups"]]


def test_groups_of_a_machine_are_replaced(strict: Endpoint) -> None:
    first, second = created(strict), created(strict)
    instance_id = strict.running(SecurityGroupIds=[first])
    strict.ec2.modify_instance_attribute(InstanceId=instance_id, Groups=[second])
    assert groups_of(strict, instance_id) == [second]
    # Nobody uses it any more.
    strict.ec2.delete_security_group(GroupId=first)
    with refused("InvalidGroup.NotFound"):
        strict.ec2.modify_instance_attribute(InstanceId=instance_id, Groups=[second, first])
    assert groups_of(strict, instance_id) == [second]
    with refused("DependencyViolation"):
        strict.ec2.delete_security_group(GroupId=second)


def test_groups_of_a_machine_with_several_interfaces_are_those_of_the_first(
    strict: Endpoint,
) -> None:
    first, second, other = created(strict), created(strict), created(strict)
    instance_id = strict.running(SecurityGroupIds=[first])
    own = strict.instance(instance_id)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    made = strict.ec2.create_network_interface(
        SubnetId=strict.instance(instance_id)["SubnetId"], Groups=[other]
    )["NetworkInterface"]["NetworkInterfaceId"]
    strict.ec2.attach_network_interface(
        NetworkInterfaceId=made, InstanceId=instance_id, DeviceIndex=1
    )
    with refused("InvalidInstanceID"):
        strict.ec2.modify_instance_attribute(InstanceId=instance_id, Groups=[second])
    strict.ec2.modify_network_interface_attribute(NetworkInterfaceId=made, Groups=[second])
    assert groups_of(strict, instance_id) == [first]
    strict.ec2.modify_network_interface_attribute(NetworkInterfaceId=own, Groups=[second, other])
    assert groups_of(strict, instance_id) == [second, other]
    with refused("InvalidNetworkInterfaceID.NotFound"):
        strict.ec2.modify_network_interface_attribute(
            NetworkInterfaceId="eni-00000000000000000", Groups=[second]
        )


def test_group_that_others_refer_to_stays(strict: Endpoint) -> None:
    group_id, other = created(strict), created(strict)
    rule = [{**RULE[0], "IpRanges": [], "UserIdGroupPairs": [{"GroupId": group_id}]}]
    strict.ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=rule)
    with refused("DependencyViolation"):
        strict.ec2.delete_security_group(GroupId=group_id)
    strict.ec2.delete_security_group(GroupId=other)
    strict.ec2.delete_security_group(GroupId=group_id)


def test_new_group_is_unknown_for_a_while(strict: Endpoint) -> None:
    strict.patch("/settings", {"new_id_lag_s": 1.0})
    group_id = strict.ec2.create_security_group(
        GroupName=token(), Description="d", VpcId=strict.network.vpc_id
    )["GroupId"]
    with refused("InvalidGroup.NotFound"):
        strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=RULE)
    with refused("InvalidGroup.NotFound"):
        strict.launch(SecurityGroupIds=[group_id])
    strict.advance(1.1)
    strict.ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=RULE)


def test_group_of_another_network_is_refused(strict: Endpoint) -> None:
    vpc = strict.ec2.create_vpc(CidrBlock="10.78.0.0/24")["Vpc"]["VpcId"]
    foreign = strict.ec2.create_security_group(GroupName=token(), Description="d", VpcId=vpc)
    strict.advance(1)
    with refused("InvalidParameter"):
        strict.launch(SecurityGroupIds=[foreign["GroupId"]])
    instance_id = strict.running(SecurityGroupIds=[created(strict)])
    with refused("InvalidParameter"):
        strict.ec2.modify_instance_attribute(
            InstanceId=instance_id, Groups=[foreign["GroupId"]]
        )
