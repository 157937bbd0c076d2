"""Disks: tokens, attachment, growth, snapshots."""

from __future__ import annotations

from endpoint import Endpoint, refused, token


def test_token_gives_the_same_volume(strict: Endpoint) -> None:
    key = token()
    first = strict.create_volume(ClientToken=key)
    assert first["State"] == "creating"
    strict.advance(1)
    again = strict.create_volume(ClientToken=key)
    assert (again["VolumeId"], again["State"]) == (first["VolumeId"], "available")
    with refused("IdempotentParameterMismatch"):
        strict.create_volume(ClientToken=key, Size=30)


def test_creating_takes_time(strict: Endpoint) -> None:
    volume_id = strict.create_volume(
        Encrypted=True,
        Iops=4000,
        Throughput=250,
        TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}],
    )["VolumeId"]
    strict.advance(0.3)
    volume = strict.volume(volume_id)
    assert volume["State"] == "creating"
    assert volume["Encrypted"] and (volume["Iops"], volume["Throughput"]) == (4000, 250)
    assert volume["Tags"] == [{"Key": "k", "Value": "v"}]
    with refused("IncorrectState"):
        strict.ec2.attach_volume(
            VolumeId=volume_id, InstanceId=running_without_advance(strict), Device="/dev/sdf"
        )
    strict.advance(0.5)
    assert strict.volume(volume_id)["State"] == "available"


def test_unknown_zone_is_refused(strict: Endpoint) -> None:
    with refused("InvalidZone.NotFound"):
        strict.create_volume("z")


def test_what_moto_cannot_do_is_told(strict: Endpoint) -> None:
    with refused("UnsupportedOperation"):
        strict.ec2.describe_volume_status()


def running_without_advance(endpoint: Endpoint) -> str:
    instance_id = endpoint.launch()["InstanceId"]
    endpoint.patch("/settings", {"volume_creating_s": 60.0})
    endpoint.advance(0.21)
    return str(instance_id)


def test_attach_and_detach_take_time(strict: Endpoint) -> None:
    instance_id, volume_id = strict.running(), strict.available()
    answer = strict.ec2.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    assert answer["State"] == "attaching"
    volume = strict.volume(volume_id)
    assert (volume["State"], volume["Attachments"][0]["State"]) == ("in-use", "attaching")
    assert device_status(strict, instance_id, "/dev/sdf") == "attaching"
    strict.advance(1)
    attachment = strict.volume(volume_id)["Attachments"][0]
    assert attachment["State"] == "attached"
    assert attachment["DeleteOnTermination"] is False
    assert device_status(strict, instance_id, "/dev/sdf") == "attached"
    for _ in range(2):
        answer = strict.ec2.detach_volume(VolumeId=volume_id, InstanceId=instance_id)
        assert answer["State"] == "detaching"
    assert strict.volume(volume_id)["State"] == "in-use"
    strict.advance(1)
    volume = strict.volume(volume_id)
    assert (volume["State"], volume["Attachments"]) == ("available", [])
    with refused("IncorrectState"):
        strict.ec2.detach_volume(VolumeId=volume_id, InstanceId=instance_id)


def device_status(endpoint: Endpoint, instance_id: str, device: str) -> str:
    mappings = endpoint.instance(instance_id)["BlockDeviceMappings"]
    return next(item["Ebs"]["Status"] for item in mappings if item["DeviceName"] == device)


def test_a_volume_has_one_user(strict: Endpoint) -> None:
    instance_id, volume_id = strict.attached()
    other = strict.running()
    for target in (instance_id, other):
        with refused("VolumeInUse"):
            strict.ec2.attach_volume(VolumeId=volume_id, InstanceId=target, Device="/dev/sdg")
    with refused("VolumeInUse"):
        strict.ec2.delete_volume(VolumeId=volume_id)
    with refused("InvalidAttachment.NotFound"):
        strict.ec2.detach_volume(VolumeId=volume_id, InstanceId=other)
    strict.ec2.detach_volume(VolumeId=volume_id, InstanceId=instance_id)
    with refused("VolumeInUse"):
        strict.ec2.attach_volume(VolumeId=volume_id, InstanceId=other, Device="/dev/sdf")


def test_attach_is_checked(strict: Endpoint) -> None:
    instance_id, _ = strict.attached()
    second, elsewhere = strict.available(), strict.available("b")
    with refused("InvalidParameterValue"):
        strict.ec2.attach_volume(VolumeId=second, InstanceId=instance_id, Device="/dev/sdf")
    with refused("InvalidVolume.ZoneMismatch"):
        strict.ec2.attach_volume(VolumeId=elsewhere, InstanceId=instance_id, Device="/dev/sdg")
    starting = strict.launch()["InstanceId"]
    strict.advance(0.3)
    with refused("IncorrectState"):
        strict.ec2.attach_volume(VolumeId=second, InstanceId=starting, Device="/dev/sdf")
    with refused("InvalidVolume.NotFound"):
        strict.ec2.attach_volume(
            VolumeId="vol-00000000000000000", InstanceId=instance_id, Device="/dev/sdg"
        )


def test_termination_releases_the_volume(strict: Endpoint) -> None:
    instance_id, volume_id = strict.attached()
    strict.ec2.terminate_instances(InstanceIds=[instance_id])
    strict.advance(1)
    assert strict.volume(volume_id)["State"] == "in-use"
    strict.advance(1)
    assert strict.volume(volume_id)["State"] == "available"
    assert strict.state(instance_id) == "terminated"


def test_stop_keeps_the_volume(strict: Endpoint) -> None:
    instance_id, volume_id = strict.attached()
    strict.ec2.stop_instances(InstanceIds=[instance_id])
    strict.advance(2)
    assert strict.volume(volume_id)["Attachments"][0]["State"] == "attached"
    strict.ec2.detach_volume(VolumeId=volume_id)
    strict.advance(1)
    assert strict.volume(volume_id)["State"] == "available"


def test_delete_takes_time(strict: Endpoint) -> None:
    volume_id = strict.available()
    strict.ec2.delete_volume(VolumeId=volume_id)
    assert strict.volume(volume_id)["State"] == "deleting"
    strict.advance(0.5)
    with refused("InvalidVolume.NotFound"):
        strict.volume(volume_id)


def modification(endpoint: Endpoint, volume_id: str) -> dict[str, object]:
    answer = endpoint.ec2.describe_volumes_modifications(VolumeIds=[volume_id])
    return dict(answer["VolumesModifications"][0])


def test_growth_takes_time(strict: Endpoint) -> None:
    volume_id = strict.available()
    with refused("InvalidVolumeModification.NotFound"):
        modification(strict, volume_id)
    answer = strict.ec2.modify_volume(VolumeId=volume_id, Size=40)["VolumeModification"]
    assert (answer["ModificationState"], answer["OriginalSize"], answer["TargetSize"]) == (
        "modifying",
        20,
        40,
    )
    assert strict.volume(volume_id)["Size"] == 20
    with refused("IncorrectModificationState"):
        strict.ec2.modify_volume(VolumeId=volume_id, Size=50)
    strict.advance(1)
    assert modification(strict, volume_id)["ModificationState"] == "optimizing"
    assert strict.volume(volume_id)["Size"] == 40
    with refused("IncorrectModificationState"):
        strict.ec2.modify_volume(VolumeId=volume_id, Size=50)
    strict.advance(2)
    done = modification(strict, volume_id)
    assert (done["ModificationState"], done["Progress"]) == ("completed", 100)
    with refused("InvalidParameterValue"):
        strict.ec2.modify_volume(VolumeId=volume_id, Size=30)


def test_a_modification_tells_how_far_it_is(strict: Endpoint) -> None:
    volume_id = strict.available()
    answer = strict.ec2.modify_volume(VolumeId=volume_id, Iops=4000)["VolumeModification"]
    assert (answer["Progress"], answer["OriginalIops"], answer["TargetIops"]) == (0, 3000, 4000)
    held = strict.fault("stick", transition="volume-optimizing", contains=volume_id)
    seen = []
    for seconds in (0.27, 0.54, 1.08, 60):
        strict.advance(seconds)
        found = modification(strict, volume_id)
        seen.append((found["ModificationState"], found["Progress"]))
    assert [state for state, _ in seen] == ["modifying", "optimizing", "optimizing", "optimizing"]
    assert [percent for _, percent in seen] == [10, 30, 70, 99]
    strict.delete(f"/faults/{held}")
    strict.advance(1)
    found = modification(strict, volume_id)
    assert (found["ModificationState"], found["Progress"]) == ("completed", 100)


def test_a_volume_has_what_its_type_has(strict: Endpoint) -> None:
    volume_id = strict.available(Iops=4000, Throughput=250)
    with refused("InvalidParameterCombination"):
        strict.ec2.modify_volume(VolumeId=volume_id, VolumeType="io2", Throughput=250)
    strict.ec2.modify_volume(VolumeId=volume_id, VolumeType="io2")
    strict.advance(3)
    volume = strict.volume(volume_id)
    # What nobody asks for is not kept by a volume that becomes of another type.
    assert (volume["VolumeType"], volume["Iops"]) == ("io2", 3000)
    assert "Throughput" not in volume
    strict.ec2.modify_volume(VolumeId=volume_id, Iops=5000)
    strict.advance(3)
    strict.ec2.modify_volume(VolumeId=volume_id, VolumeType="gp3")
    strict.advance(3)
    volume = strict.volume(volume_id)
    assert (volume["Iops"], volume["Throughput"]) == (3000, 125)


def test_four_modifications_a_day(strict: Endpoint) -> None:
    volume_id = strict.available()
    for size in (21, 22, 23, 24):
        strict.ec2.modify_volume(VolumeId=volume_id, Size=size)
        strict.advance(3)
    with refused("VolumeModificationRateExceeded"):
        strict.ec2.modify_volume(VolumeId=volume_id, Size=25)
    strict.advance(86_400)
    strict.ec2.modify_volume(VolumeId=volume_id, Size=25)
    assert modification(strict, volume_id)["TargetSize"] == 25


def test_the_day_of_one_volume_passes_alone(strict: Endpoint) -> None:
    first, second = strict.available(), strict.available()
    for size in (21, 22, 23, 24):
        for volume_id in (first, second):
            strict.ec2.modify_volume(VolumeId=volume_id, Size=size)
        strict.advance(3)
    strict.post(f"/volumes/{first}/age", {"seconds": 86_400})
    strict.ec2.modify_volume(VolumeId=first, Size=25)
    with refused("VolumeModificationRateExceeded"):
        strict.ec2.modify_volume(VolumeId=second, Size=25)


def test_snapshots_take_time(strict: Endpoint) -> None:
    volume_id = strict.available()
    snapshot = strict.ec2.create_snapshot(VolumeId=volume_id, Description="d")
    snapshot_id = snapshot["SnapshotId"]
    assert (snapshot["State"], snapshot["VolumeSize"]) == ("pending", 20)
    with refused("SnapshotCreationPerVolumeRateExceeded"):
        strict.ec2.create_snapshot(VolumeId=volume_id)
    strict.advance(0.5)
    with refused("IncorrectState"):
        strict.create_volume(SnapshotId=snapshot_id)
    strict.ec2.modify_volume(VolumeId=volume_id, Size=40)
    strict.advance(3)
    described = strict.ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0]
    assert (described["State"], described["VolumeSize"]) == ("completed", 20)
    with refused("InvalidParameterValue"):
        strict.create_volume(SnapshotId=snapshot_id, Size=10)
    assert strict.create_volume(SnapshotId=snapshot_id)["Size"] in (20, 40)
    strict.ec2.delete_snapshot(SnapshotId=snapshot_id)


def test_a_copy_of_a_snapshot_is_of_no_volume(strict: Endpoint) -> None:
    volume_id = strict.available()
    tags = [{"Key": "k", "Value": "v"}]
    given = [{"ResourceType": "snapshot", "Tags": tags}]
    snapshot_id = strict.ec2.create_snapshot(VolumeId=volume_id, TagSpecifications=given)[
        "SnapshotId"
    ]
    strict.advance(0.5)

    def copy(**values: object) -> str:
        answer = strict.ec2.copy_snapshot(
            SourceRegion="eu-west-1", SourceSnapshotId=snapshot_id, **values
        )
        return str(answer["SnapshotId"])

    with refused("IncorrectState"):
        copy()
    strict.advance(2)
    strict.ec2.modify_volume(VolumeId=volume_id, Size=40)
    strict.advance(3)
    tagged, bare = copy(TagSpecifications=given), copy()
    with refused("InvalidSnapshot.NotFound"):
        strict.ec2.describe_snapshots(SnapshotIds=[tagged])
    strict.advance(0.5)

    def described(*filters: tuple[str, str]) -> dict[str, tuple[object, ...]]:
        asked = [{"Name": name, "Values": [value]} for name, value in filters]
        answer = strict.ec2.describe_snapshots(OwnerIds=["self"], Filters=asked)
        return {
            one["SnapshotId"]: (one["VolumeId"], one["VolumeSize"], one["State"])
            for one in answer["Snapshots"]
            if one["SnapshotId"] in (snapshot_id, tagged, bare)
        }

    copied = ("vol-ffffffff", 20, "pending")
    assert described(("volume-id", "vol-ffffffff")) == {tagged: copied, bare: copied}
    original = (volume_id, 20, "completed")
    # Tags come along only where they are asked for.
    assert described(("tag:k", "v")) == {snapshot_id: original, tagged: copied}
    strict.ec2.delete_snapshot(SnapshotId=snapshot_id)
    strict.advance(2)
    assert described() == {one: ("vol-ffffffff", 20, "completed") for one in (tagged, bare)}
    assert strict.create_volume(SnapshotId=bare)["Size"] == 20
    with refused("InvalidSnapshot.NotFound"):
        copy()


def test_a_token_of_a_volume_that_is_gone_is_spent(strict: Endpoint) -> None:
    key = token()
    volume_id = strict.available(ClientToken=key)
    strict.ec2.delete_volume(VolumeId=volume_id)
    assert strict.create_volume(ClientToken=key)["State"] == "deleting"
    strict.advance(0.5)
    with refused("IdempotentParameterMismatch"):
        strict.create_volume(ClientToken=key)
    strict.advance(86_400)
    assert strict.create_volume(ClientToken=key)["VolumeId"] != volume_id


def test_dead_machine_holds_its_volume(strict: Endpoint) -> None:
    instance_id, volume_id = strict.attached()
    strict.post(f"/instances/{instance_id}/kill", {"how": "impair"})
    strict.ec2.detach_volume(VolumeId=volume_id, InstanceId=instance_id)
    strict.advance(60)
    assert strict.volume(volume_id)["Attachments"][0]["State"] == "detaching"
    strict.ec2.stop_instances(InstanceIds=[instance_id])
    strict.advance(2)
    strict.advance(1)
    assert strict.volume(volume_id)["State"] == "available"


def test_describe_volumes_in_pages(strict: Endpoint) -> None:
    key = token()
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "page", "Value": key}]}]
    ids = {strict.available(TagSpecifications=tags) for _ in range(6)}
    pages = strict.ec2.get_paginator("describe_volumes").paginate(
        Filters=[{"Name": "tag:page", "Values": [key]}], PaginationConfig={"PageSize": 5}
    )
    found = [{volume["VolumeId"] for volume in page["Volumes"]} for page in pages]
    assert [len(page) for page in found] == [5, 1]
    assert set.union(*found) == ids
