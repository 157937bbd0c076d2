"""Every call that the operator and the node agent make, on both kinds of endpoint."""

from __future__ import annotations

import ipaddress
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from endpoint import CIDR, REGION, Endpoint, eventually, token


def test_health(either: Endpoint) -> None:
    health = either.get("/health")
    assert health["ok"] is True
    assert health["mode"] == ("plain" if "--plain" in either.arguments else "strict")


def test_bootstrap_again_changes_nothing(either: Endpoint) -> None:
    assert either.bootstrap(CIDR) == either.network
    zones = either.route53.list_hosted_zones()["HostedZones"]
    assert len([zone for zone in zones if zone["Name"] == f"{REGION}.slipway.test."]) == 1
    subnets = either.ec2.describe_subnets(
        Filters=[{"Name": "vpc-id", "Values": [either.network.vpc_id]}]
    )["Subnets"]
    assert sorted(subnet["CidrBlock"] for subnet in subnets) == [
        "10.250.16.0/23",
        "10.250.18.0/23",
    ]


def test_two_regions(either: Endpoint) -> None:
    other = either.bootstrap("10.250.20.0/22", region="us-east-1")
    assert set(other.zones) == {"us-east-1a", "us-east-1b"}
    assert other.hosted_zone_id != either.network.hosted_zone_id
    assert other.vpc_id != either.network.vpc_id


def pass_time(endpoint: Endpoint, seconds: float) -> None:
    if "--plain" not in endpoint.arguments:
        endpoint.advance(seconds)


def launch(endpoint: Endpoint, database: str, **values: Any) -> Any:
    tags = [
        {"Key": "questdb.io/database", "Value": database},
        {"Key": "questdb.io/role", "Value": "node"},
    ]
    return endpoint.launch(
        ClientToken=token(),
        UserData=json.dumps({"cluster": "c", "nodeName": "qdb-1"}),
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "volume", "Tags": tags},
        ],
        **values,
    )


def test_a_machines_life(either: Endpoint) -> None:
    ec2, database = either.ec2, token()
    group_id = ec2.create_security_group(
        GroupName=f"qdb-{database}",
        Description="d",
        VpcId=either.network.vpc_id,
        TagSpecifications=[
            {"ResourceType": "security-group", "Tags": [{"Key": "k", "Value": database}]}
        ],
    )["GroupId"]
    pass_time(either, 1)
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "IpRanges": [{"CidrIp": CIDR}]}
    ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=[rule])
    ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=[rule])
    wanted = [{"Name": "tag:k", "Values": [database]}]
    groups = ec2.describe_security_groups(Filters=wanted)["SecurityGroups"]
    assert [group["GroupId"] for group in groups] == [group_id]

    instance_id = launch(either, database, SecurityGroupIds=[group_id])["InstanceId"]
    pass_time(either, 2)
    described = ec2.describe_instances(
        Filters=[
            {"Name": "tag:questdb.io/database", "Values": [database]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ],
        MaxResults=100,
    )["Reservations"][0]["Instances"][0]
    assert described["InstanceId"] == instance_id
    assert described["MetadataOptions"]["HttpTokens"] == "required"
    assert described["Placement"]["AvailabilityZone"] == f"{REGION}a"
    assert ipaddress.ip_address(described["PrivateIpAddress"]) in ipaddress.ip_network(CIDR)
    user_data = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
    assert user_data["UserData"]["Value"]

    volume_id = volume_life(either, instance_id, database)

    for attribute in ("DisableApiTermination", "DisableApiStop"):
        ec2.modify_instance_attribute(InstanceId=instance_id, **{attribute: {"Value": True}})
        ec2.modify_instance_attribute(InstanceId=instance_id, **{attribute: {"Value": False}})
    ec2.stop_instances(InstanceIds=[instance_id])
    pass_time(either, 2)
    assert either.state(instance_id) == "stopped"
    ec2.terminate_instances(InstanceIds=[instance_id])
    pass_time(either, 2)
    assert either.state(instance_id) == "terminated"
    ec2.delete_volume(VolumeId=volume_id)
    ec2.delete_security_group(GroupId=group_id)


def volume_life(endpoint: Endpoint, instance_id: str, database: str) -> str:
    ec2 = endpoint.ec2
    volume_id = endpoint.create_volume(
        ClientToken=token(),
        Encrypted=True,
        Iops=3000,
        Throughput=125,
        TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "questdb.io/data", "Value": database}]}
        ],
    )["VolumeId"]
    pass_time(endpoint, 1)
    wanted = [{"Name": "tag:questdb.io/data", "Values": [database]}]
    volumes = ec2.describe_volumes(Filters=wanted)["Volumes"]
    assert [volume["VolumeId"] for volume in volumes] == [volume_id]
    ec2.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    pass_time(endpoint, 1)
    assert endpoint.volume(volume_id)["Attachments"][0]["State"] == "attached"
    ec2.modify_volume(VolumeId=volume_id, Size=30)
    pass_time(endpoint, 5)
    modified = ec2.describe_volumes_modifications(VolumeIds=[volume_id])
    assert modified["VolumesModifications"][0]["ModificationState"] == "completed"
    assert endpoint.volume(volume_id)["Size"] == 30
    ec2.create_tags(Resources=[volume_id], Tags=[{"Key": "questdb.io/generation", "Value": "2"}])
    tags = {tag["Key"]: tag["Value"] for tag in endpoint.volume(volume_id)["Tags"]}
    assert tags == {"questdb.io/data": database, "questdb.io/generation": "2"}
    ec2.detach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    pass_time(endpoint, 1)
    assert endpoint.volume(volume_id)["State"] == "available"
    return str(volume_id)


def test_catalogue(either: Endpoint) -> None:
    types = either.ec2.describe_instance_types(InstanceTypes=["m7i.large", "r7g.xlarge"])
    assert {item["InstanceType"] for item in types["InstanceTypes"]} == {"m7i.large", "r7g.xlarge"}
    images = either.ec2.describe_images(ImageIds=[either.network.node_image])["Images"]
    assert images[0]["State"] == "available"
    zones = either.ec2.describe_availability_zones()["AvailabilityZones"]
    assert {zone["ZoneName"] for zone in zones} >= set(either.network.zones)


def test_records(either: Endpoint) -> None:
    zone_id, name = either.network.hosted_zone_id, f"{token()}.{REGION}.slipway.test."

    def change(action: str) -> str:
        pass_time(either, 1)
        answer = either.route53.change_resource_record_sets(
            HostedZoneId=zone_id,
            ChangeBatch={
                "Comment": "c",
                "Changes": [
                    {
                        "Action": action,
                        "ResourceRecordSet": {
                            "Name": name,
                            "Type": "A",
                            "TTL": 30,
                            "ResourceRecords": [{"Value": "10.250.16.4"}],
                        },
                    }
                ],
            },
        )
        return str(answer["ChangeInfo"]["Id"])

    change_id = change("UPSERT")
    pass_time(either, 2)

    def in_sync() -> bool:
        answer = either.route53.get_change(Id=change_id)
        return bool(answer["ChangeInfo"]["Status"] == "INSYNC")

    eventually(in_sync)
    listed = either.route53.list_resource_record_sets(
        HostedZoneId=zone_id, StartRecordName=name, StartRecordType="A", MaxItems="1"
    )["ResourceRecordSets"]
    assert listed[0]["Name"] == name
    change("DELETE")
    assert either.route53.get_hosted_zone(Id=zone_id)["HostedZone"]["Name"].startswith(REGION)


def test_many_at_once(either: Endpoint) -> None:
    database = token()
    with ThreadPoolExecutor(16) as pool:
        machines = list(pool.map(lambda _: launch(either, database), range(40)))
    assert len({machine["InstanceId"] for machine in machines}) == 40
    assert len({machine["PrivateIpAddress"] for machine in machines}) == 40
