"""Machines: tokens, states over time, protection, addresses, paging."""

from __future__ import annotations

import ipaddress

from endpoint import CIDR, Endpoint, refused, token


def test_token_gives_the_same_machine(strict: Endpoint) -> None:
    key = token()
    first = strict.launch(ClientToken=key)
    assert first["State"]["Name"] == "pending"
    strict.advance(2)
    again = strict.launch(ClientToken=key)
    assert again["InstanceId"] == first["InstanceId"]
    assert again["State"]["Name"] == "running"
    assert strict.calls("ec2:RunInstances") == 2


def test_token_outlives_its_machine_by_a_day(strict: Endpoint) -> None:
    key = token()
    first = strict.running(ClientToken=key)
    strict.ec2.terminate_instances(InstanceIds=[first])
    strict.advance(2)
    again = strict.launch(ClientToken=key)
    assert (again["InstanceId"], again["State"]["Name"]) == (first, "terminated")
    strict.advance(4000)
    with refused("InvalidInstanceID.NotFound"):
        strict.instance(first)
    assert strict.launch(ClientToken=key)["InstanceId"] == first
    strict.advance(86_400)
    assert strict.launch(ClientToken=key)["InstanceId"] != first


def test_token_refuses_other_parameters(strict: Endpoint) -> None:
    key = token()
    first = strict.launch(ClientToken=key)
    for other in ({"InstanceType": "m7i.xlarge"}, {"UserData": "other"}, {"DisableApiStop": True}):
        with refused("IdempotentParameterMismatch"):
            strict.launch(ClientToken=key, **other)
    with refused("IdempotentParameterMismatch"):
        strict.launch("b", ClientToken=key)
    assert strict.launch(ClientToken=key)["InstanceId"] == first["InstanceId"]


def test_failed_launch_burns_no_token(strict: Endpoint) -> None:
    key = token()
    fault = strict.fault(
        "fail", action="RunInstances", code="InsufficientInstanceCapacity", times=1
    )
    with refused("InsufficientInstanceCapacity", 500):
        strict.launch(ClientToken=key)
    with refused("InvalidAMIID.NotFound"):
        strict.launch(ClientToken=key, ImageId="ami-00000000000000000")
    assert strict.launch(ClientToken=key)["State"]["Name"] == "pending"
    assert strict.fired(fault) == 1


def test_life_takes_time(strict: Endpoint) -> None:
    instance_id = strict.launch()["InstanceId"]
    strict.advance(1)
    assert strict.state(instance_id) == "pending"
    strict.advance(1)
    assert strict.state(instance_id) == "running"
    stopping = strict.ec2.stop_instances(InstanceIds=[instance_id])["StoppingInstances"][0]
    assert stopping["PreviousState"]["Name"] == "running"
    assert stopping["CurrentState"] == {"Code": 64, "Name": "stopping"}
    assert strict.state(instance_id) == "stopping"
    strict.advance(1.1)
    assert strict.state(instance_id) == "stopped"
    strict.ec2.start_instances(InstanceIds=[instance_id])
    assert strict.state(instance_id) == "pending"
    strict.advance(2)
    ending = strict.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert ending["CurrentState"] == {"Code": 32, "Name": "shutting-down"}
    assert strict.state(instance_id) == "shutting-down"
    strict.advance(2)
    gone = strict.instance(instance_id)
    assert gone["State"]["Name"] == "terminated"
    assert "PrivateIpAddress" not in gone and "SubnetId" not in gone
    again = strict.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert again["CurrentState"]["Name"] == "terminated"


def test_wrong_states_are_refused(strict: Endpoint) -> None:
    instance_id = strict.launch()["InstanceId"]
    strict.advance(0.5)
    with refused("IncorrectInstanceState"):
        strict.ec2.stop_instances(InstanceIds=[instance_id])
    strict.advance(2)
    strict.ec2.terminate_instances(InstanceIds=[instance_id])
    with refused("IncorrectInstanceState"):
        strict.ec2.start_instances(InstanceIds=[instance_id])
    with refused("InvalidInstanceID.NotFound"):
        strict.ec2.terminate_instances(InstanceIds=["i-00000000000000000"])


def protect(endpoint: Endpoint, instance_id: str, **attributes: bool) -> None:
    values = {name: {"Value": value} for name, value in attributes.items()}
    endpoint.ec2.modify_instance_attribute(InstanceId=instance_id, **values)


def test_protection(strict: Endpoint) -> None:
    instance_id = strict.running(DisableApiTermination=True, DisableApiStop=True)
    for attribute in ("disableApiTermination", "disableApiStop"):
        answer = strict.ec2.describe_instance_attribute(InstanceId=instance_id, Attribute=attribute)
        assert answer[attribute[0].upper() + attribute[1:]]["Value"] is True
    with refused("OperationNotPermitted"):
        strict.ec2.stop_instances(InstanceIds=[instance_id])
    protect(strict, instance_id, DisableApiTermination=False)
    # Stop protection protects from termination too.
    with refused("OperationNotPermitted"):
        strict.ec2.terminate_instances(InstanceIds=[instance_id])
    with refused("InvalidParameterCombination"):
        protect(strict, instance_id, DisableApiTermination=False, DisableApiStop=False)
    protect(strict, instance_id, DisableApiStop=False)
    strict.ec2.terminate_instances(InstanceIds=[instance_id])
    assert strict.state(instance_id) == "shutting-down"


def test_one_protected_machine_keeps_all(strict: Endpoint) -> None:
    free, guarded = strict.running(), strict.running()
    strict.ec2.modify_instance_attribute(
        InstanceId=guarded, Attribute="disableApiTermination", Value="true"
    )
    with refused("OperationNotPermitted"):
        strict.ec2.terminate_instances(InstanceIds=[free, guarded])
    assert strict.state(free) == "running"


def test_addresses(strict: Endpoint) -> None:
    subnet_of = strict.ec2.describe_subnets(SubnetIds=[strict.network.zones["eu-west-1a"]])[
        "Subnets"
    ][0]["CidrBlock"]
    network = ipaddress.ip_network(subnet_of)
    assert network.subnet_of(ipaddress.ip_network(CIDR))
    machines = [strict.launch() for _ in range(6)]
    addresses = [ipaddress.ip_address(machine["PrivateIpAddress"]) for machine in machines]
    assert len(set(addresses)) == 6
    for address in addresses:
        assert address in network
        assert int(address) - int(network.network_address) >= 4
        assert address != network.broadcast_address


def test_small_subnet_runs_out_and_frees_again(strict: Endpoint) -> None:
    vpc = strict.ec2.create_vpc(CidrBlock="10.77.0.0/24")["Vpc"]["VpcId"]
    subnet = strict.ec2.create_subnet(
        VpcId=vpc, CidrBlock="10.77.0.0/28", AvailabilityZone="eu-west-1a"
    )["Subnet"]["SubnetId"]
    ids = [strict.running(SubnetId=subnet) for _ in range(11)]
    used = {strict.instance(instance_id)["PrivateIpAddress"] for instance_id in ids}
    assert used == {f"10.77.0.{number}" for number in range(4, 15)}
    with refused("InsufficientFreeAddressesInSubnet"):
        strict.launch(SubnetId=subnet)
    freed = strict.instance(ids[3])["PrivateIpAddress"]
    strict.ec2.terminate_instances(InstanceIds=[ids[3]])
    strict.advance(2)
    assert strict.launch(SubnetId=subnet)["PrivateIpAddress"] == freed


def test_describe_by_tag_in_pages(strict: Endpoint) -> None:
    key = token()
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "questdb.io/database", "Value": key}]}]
    ids = {strict.running(TagSpecifications=tags) for _ in range(7)}
    wanted = [{"Name": "tag:questdb.io/database", "Values": [key]}]
    pages = strict.ec2.get_paginator("describe_instances").paginate(
        Filters=wanted, PaginationConfig={"PageSize": 5}
    )
    sizes, found = [], set()
    for page in pages:
        sizes.append(len(page["Reservations"]))
        found |= {item["InstanceId"] for one in page["Reservations"] for item in one["Instances"]}
    assert (sizes, found) == ([5, 2], ids)
    with refused("InvalidParameterCombination"):
        strict.ec2.describe_instances(InstanceIds=list(ids), MaxResults=5)
    with refused("InvalidParameterValue"):
        strict.ec2.describe_instances(MaxResults=2)


def test_page_token_survives_a_vanished_machine(strict: Endpoint) -> None:
    ours = [{"Name": "instance-id", "Values": [strict.launch()["InstanceId"] for _ in range(6)]}]
    strict.advance(2)
    first = strict.ec2.describe_instances(Filters=ours, MaxResults=5)
    last = first["Reservations"][-1]["Instances"][0]["InstanceId"]
    strict.ec2.terminate_instances(InstanceIds=[last])
    strict.advance(2)
    strict.advance(3700)
    token = first["NextToken"]
    second = strict.ec2.describe_instances(Filters=ours, MaxResults=1000, NextToken=token)
    assert second["Reservations"]
    assert "NextToken" not in second


def test_launch_is_checked(strict: Endpoint) -> None:
    with refused("InvalidParameterValue"):
        strict.launch(InstanceType="m99.huge")
    with refused("InvalidInstanceType"):
        strict.ec2.describe_instance_types(InstanceTypes=["m99.huge"])
    with refused("InvalidSubnetID.NotFound"):
        strict.launch(SubnetId="subnet-00000000000000000")
    with refused("InvalidGroup.NotFound"):
        strict.launch(SecurityGroupIds=["sg-00000000000000000"])
    with refused("InvalidParameterValue"):
        strict.launch(UserData="x" * 20_000)
    everything = strict.ec2.describe_instances()["Reservations"]
    assert all(reservation["Instances"] for reservation in everything)


def test_new_machine_is_unknown_for_a_while(strict: Endpoint) -> None:
    strict.patch("/settings", {"new_id_lag_s": 1.0})
    key = token()
    instance_id = strict.launch(ClientToken=key)["InstanceId"]
    with refused("InvalidInstanceID.NotFound"):
        strict.instance(instance_id)
    with refused("InvalidInstanceID.NotFound"):
        strict.ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "a", "Value": "b"}])
    found = strict.ec2.describe_instances(
        Filters=[{"Name": "instance-id", "Values": [instance_id]}]
    )
    assert found["Reservations"] == []
    assert strict.launch(ClientToken=key)["InstanceId"] == instance_id
    strict.advance(1.1)
    assert strict.state(instance_id) == "pending"


def test_who_may_ask_for_metadata_is_changed_and_what_is_not_given_stays(strict: Endpoint) -> None:
    machine = strict.running(
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    )

    def shown() -> tuple[str, int, str]:
        options = strict.instance(machine)["MetadataOptions"]
        return tuple(
            options[name] for name in ("HttpTokens", "HttpPutResponseHopLimit", "HttpEndpoint")
        )

    assert shown() == ("required", 1, "enabled")
    change = strict.ec2.modify_instance_metadata_options
    change(InstanceId=machine, HttpPutResponseHopLimit=2)
    assert shown() == ("required", 2, "enabled")
    change(InstanceId=machine, HttpTokens="optional", HttpEndpoint="disabled")
    assert shown() == ("optional", 2, "disabled")
    for wrong in ({"HttpTokens": "none"}, {"HttpPutResponseHopLimit": 65}):
        with refused("InvalidParameterValue"):
            change(InstanceId=machine, **wrong)
    strict.ec2.terminate_instances(InstanceIds=[machine])
    with refused("IncorrectInstanceState"):
        change(InstanceId=machine, HttpTokens="required")
    with refused("InvalidInstanceID.NotFound"):
        change(InstanceId="i-00000000000000000", HttpTokens="required")
