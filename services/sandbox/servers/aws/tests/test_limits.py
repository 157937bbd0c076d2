"""How large and how fast a disk may be: new ones, and those that are changed."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from endpoint import REGION, Endpoint, refused

VALUE, COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"
IO2 = (
    "io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB ratio"
    " are not supported."
)

# Type, GiB, operations a second and MiB/s, then code and text of the refusal.
REFUSED = [
    ("gp3", 20, 2_999, None, VALUE, "Volume iops of 2999 is too low; minimum is 3000."),
    ("gp3", 200, 80_001, None, VALUE, "Volume iops of 80001 is too high; maximum is 80000."),
    (
        *("gp3", 20, 15_000, None, VALUE),
        "Iops to volume size ratio of 750.000000 is too high; maximum is 500",
    ),
    ("gp3", 20, 3_000, 124, VALUE, "Volume throughput of 124 is too low; minimum is 125."),
    ("gp3", 20, 10_000, 2_001, VALUE, "Volume throughput of 2001 is too high; maximum is 2000."),
    (
        *("gp3", 20, 3_000, 1_000, VALUE),
        "Throughput (MiBps) to iops ratio of 0.333333 is too high;"
        " maximum is 0.250000 MiBps per iops.",
    ),
    # The operations that nobody asked for are 3000.
    (
        *("gp3", 20, None, 751, VALUE),
        "Throughput (MiBps) to iops ratio of 0.250333 is too high;"
        " maximum is 0.250000 MiBps per iops.",
    ),
    (
        *("gp3", 65_537, None, None, VALUE),
        "Volume of 65537GiB is too large for volume type gp3; maximum is 65536GiB",
    ),
    ("io2", 20, 99, None, VALUE, "Volume iops of 99 is too low; minimum is 100."),
    ("io2", 20, 20_001, None, COMBINATION, IO2),
    ("io2", 300, 256_001, None, COMBINATION, IO2),
    (
        *("io2", 20, 3_000, 125, COMBINATION),
        "The parameter throughput is not supported for io2 volumes.",
    ),
    (
        *("io1", 20, 1_001, None, VALUE),
        "Iops to volume size ratio of 50.050000 is too high; maximum is 50",
    ),
    ("io1", 2_000, 64_001, None, VALUE, "Volume iops of 64001 is too high; maximum is 64000."),
    ("gp2", 20, 3_000, None, COMBINATION, "The parameter iops is not supported for gp2 volumes."),
    (
        *("st1", 124, None, None, VALUE),
        "The volume size is invalid for st1 volumes: 124 GiB. st1 volumes must be at least 125 GiB"
        " in size. Please specify a volume size above the minimum limit.",
    ),
    (
        *("gp9", 20, None, None, "UnknownVolumeType"),
        "Unsupported volume type 'gp9' for volume creation.",
    ),
]

ALLOWED = [
    ("gp3", 20, 10_000, 2_000),
    ("gp3", 160, 80_000, 2_000),
    ("gp3", 20, 3_000, 750),
    ("gp3", 65_536, None, None),
    ("io2", 20, 20_000, None),
    ("io2", 256, 256_000, None),
    ("io1", 20, 1_000, None),
    ("gp2", 20, None, None),
    ("st1", 125, None, None),
]


def wished(kind: str, size: int, iops: int | None, throughput: int | None) -> dict[str, Any]:
    """The parameters, without those that nobody asks for."""
    every = {"VolumeType": kind, "Size": size, "Iops": iops, "Throughput": throughput}
    return {name: value for name, value in every.items() if value is not None}


def told(caught: pytest.ExceptionInfo[ClientError]) -> tuple[str, str]:
    """Code and text of a refusal."""
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_what_ebs_does_not_allow_is_refused(strict: Endpoint) -> None:
    volume_id = strict.available()
    for *numbers, code, text in REFUSED:
        wish = wished(*numbers)
        with pytest.raises(ClientError) as caught:
            strict.create_volume(**wish)
        assert told(caught) == (code, text), wish
        with pytest.raises(ClientError) as caught:
            strict.ec2.modify_volume(VolumeId=volume_id, **wish)
        assert told(caught) == (code, text), wish
    # Nothing of it was begun.
    with refused("InvalidVolumeModification.NotFound"):
        strict.ec2.describe_volumes_modifications(VolumeIds=[volume_id])
    assert strict.volume(volume_id)["Size"] == 20


def test_what_ebs_allows_is_taken(strict: Endpoint) -> None:
    for numbers in ALLOWED:
        wish = wished(*numbers)
        strict.create_volume(**wish)
        volume_id = strict.available()
        strict.ec2.modify_volume(VolumeId=volume_id, **wish)
        strict.advance(3)
        volume = strict.volume(volume_id)
        assert {name: volume[name] for name in wish} == wish


def test_what_a_small_disk_has_at_least_it_may_have(strict: Endpoint) -> None:
    volume = strict.create_volume(Size=1)
    assert (volume["Size"], volume["Iops"]) == (1, 3000)
    with refused(VALUE):
        strict.create_volume(Size=5, Iops=3001)


def test_what_is_provisioned_has_to_be_named(strict: Endpoint) -> None:
    for kind in ("io1", "io2"):
        with refused(COMBINATION):
            strict.create_volume(VolumeType=kind)
        with refused(VALUE):
            strict.create_volume(VolumeType=kind, Size=3, Iops=100)


def test_a_change_is_judged_by_all_that_the_volume_then_has(strict: Endpoint) -> None:
    volume_id = strict.available(Iops=10_000, Throughput=1_000)
    with refused(VALUE):
        strict.ec2.modify_volume(VolumeId=volume_id, Iops=3_999)
    with refused(VALUE):
        strict.ec2.modify_volume(VolumeId=volume_id, Iops=10_001)
    strict.ec2.modify_volume(VolumeId=volume_id, Size=21, Iops=10_500)


def test_a_copy_is_as_large_as_what_was_copied(strict: Endpoint) -> None:
    snapshot_id = strict.ec2.create_snapshot(VolumeId=strict.available())["SnapshotId"]
    strict.advance(3)
    with refused(VALUE):
        strict.ec2.create_volume(
            AvailabilityZone=f"{REGION}a", VolumeType="gp3", SnapshotId=snapshot_id, Iops=10_001
        )


@pytest.mark.parametrize(
    ("key", "value"), [("k" * 129, "v"), ("k", "v" * 257), ("aws:k", "v"), ("AWS:k", "v")]
)
def test_tags_that_no_resource_may_have_are_refused(
    strict: Endpoint, key: str, value: str
) -> None:
    tags = [{"Key": key, "Value": value}]
    volume_id = strict.available()
    with refused("InvalidParameterValue"):
        strict.ec2.create_tags(Resources=[volume_id], Tags=tags)
    for kind, create in (
        ("volume", strict.create_volume),
        ("instance", strict.launch),
        ("snapshot", lambda **given: strict.ec2.create_snapshot(VolumeId=volume_id, **given)),
    ):
        with refused("InvalidParameterValue"):
            create(TagSpecifications=[{"ResourceType": kind, "Tags": tags}])


def test_a_resource_has_fifty_tags_at_most(strict: Endpoint) -> None:
    tags = [{"Key": f"k{number}", "Value": ""} for number in range(51)]
    with refused("TagLimitExceeded"):
        strict.create_volume(TagSpecifications=[{"ResourceType": "volume", "Tags": tags}])
    given = [{"ResourceType": "volume", "Tags": tags[:50]}]
    volume_id = strict.available(TagSpecifications=given)
    with refused("TagLimitExceeded"):
        strict.ec2.create_tags(Resources=[volume_id], Tags=tags[50:])
    longest = [{"Key": "k0", "Value": "v" * 256}]
    strict.ec2.create_tags(Resources=[volume_id], Tags=longest)


def test_a_describe_names_two_hundred_values_at_most(strict: Endpoint) -> None:
    ids = [f"vol-{number:017x}" for number in range(201)]
    ask = strict.ec2.describe_volumes
    assert ask(Filters=[{"Name": "volume-id", "Values": ids[:200]}])["Volumes"] == []
    with refused("FilterLimitExceeded"):
        ask(Filters=[{"Name": "volume-id", "Values": ids}])
